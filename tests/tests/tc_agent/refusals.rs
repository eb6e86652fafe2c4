//! What the kernel does not take.

use serde_json::Value;
use sluice_tests::lab::switch::{SERVER, Switch, key, sluice};

use crate::stream::PORT;

pub(crate) fn what_hardware_does_not_take_is_refused_in_the_words_of_the_kernel() {
    let switch = Switch::set_up();
    let daemon = switch.start("tc.policy = \"skip_sw\"\nidle_timeout = \"none\"");
    let flow = key(SERVER, PORT);
    let added = daemon.sluice(&["add-flow", &flow, "server"]);
    assert_eq!(added.code, Some(2), "{added:?}");
    assert!(switch.filters("client").is_empty());
    let listed: Value = serde_json::from_str(&sluice(&daemon, &["dump-flows", "--json"])).unwrap();
    let refusal = &listed[0]["refusal"];
    assert_eq!(refusal["label"], "kernel", "{refusal}");
    let reason = refusal["reason"].as_str().unwrap();
    // A veth has no hardware (`tc_setup_cb_add` of net/sched/cls_api.c).
    assert!(reason.contains("Operation not supported"), "{reason}");
    assert!(added.err.contains(reason), "{} does not say {reason}", added.err);
    let explained = daemon.sluice(&["explain", listed[0]["ufid"].as_str().unwrap()]);
    assert_eq!(explained.code, Some(2), "{explained:?}");
    assert!(explained.out.contains(&format!("  refused   {reason}\n")), "{explained:?}");
    assert_eq!(daemon.metric("sluice_flow_refusals_total{reason=\"kernel\"}"), Some(1.0));
    assert_eq!(sluice(&daemon, &["audit"]), "0 rules, all as wanted (listed by the device)\n");
}
