//! What the configuration says of rules, and rules that were put in under another one.

use sluice_tests::daemon::Daemon;
use sluice_tests::lab::switch::{SERVER, Switch, eventually, key, run, sluice};

use crate::stream::{self, PORT, Stream};

/// Ends an agent at once and starts the next one, with other keys of the configuration.
fn restart(switch: &Switch, mut daemon: Daemon, keys: &str, tables: &str) -> Daemon {
    daemon.signal("KILL");
    daemon.wait();
    switch.start_with(&format!("idle_timeout = \"none\"\n{keys}"), tables)
}

fn flows(daemon: &Daemon, state: &str) -> Option<f64> {
    daemon.metric(&format!("sluice_flows{{state=\"{state}\"}}"))
}

pub(crate) fn another_policy_is_that_of_rules_that_are_there_as_well() {
    let switch = Switch::set_up();
    let daemon = switch.start("tc.policy = \"skip_hw\"\nidle_timeout = \"none\"");
    sluice(&daemon, &["add-flow", &key(SERVER, PORT), "server"]);
    let shown = || run("tc filter show dev client ingress");
    assert!(shown().contains("skip_hw"), "{}", shown());
    let stream = Stream::start();
    let daemon = restart(&switch, daemon, "tc.policy = \"none\"", "");
    eventually("hardware may take the rule", || shown().contains("not_in_hw") && !shown().contains("skip_hw"));
    eventually("the agent knows", || sluice(&daemon, &["audit"]) == "1 rules, all as wanted (listed by the device)\n");
    stream.end_without_loss();
    // A veth has no hardware, so that there is no rule any more.
    let daemon = restart(&switch, daemon, "tc.policy = \"skip_sw\"", "");
    eventually("the rule is gone", || flows(&daemon, "refused") == Some(1.0) && switch.filters("client").is_empty());
    let daemon = restart(&switch, daemon, "tc.policy = \"skip_hw\"", "");
    eventually("the rule is back", || flows(&daemon, "partial") == Some(1.0));
    assert_eq!(stream::send(20), 20);
}

pub(crate) fn tunnel_flows_that_the_kernel_cannot_tell_apart_are_held_apart() {
    const POLICY: &str = "tc.policy = \"skip_hw\"";
    const TUNNEL: &str = "[[port]]\nnumber = 3\nname = \"vx0\"\nkind = \"vxlan\"\nunderlay = 2\n";
    let switch = Switch::set_up();
    let daemon = switch.start_with(&format!("{POLICY}\nidle_timeout = \"none\""), TUNNEL);
    let with = |flags: &str| {
        format!(
            "tunnel(tun_id=0x5,src=10.1.0.2,dst=10.1.0.1,flags({flags})),in_port(vx0),eth_type(0x0800),ipv4(frag=no)"
        )
    };
    let [without_df, with_df] = ["-df-csum+key", "+df-csum+key"].map(with);
    sluice(&daemon, &["add-flow", &without_df, "client"]);
    let dump = sluice(&daemon, &["dump-flows", "-m"]);
    assert!(dump.contains("dp-extra-info:wider[df csum]"), "{dump}");
    assert!(sluice(&daemon, &["explain", &without_df, "client"]).contains("the rule is wider than its flow"));
    // What is shown can be put in again.
    sluice(&daemon, &["del-flow", &without_df]);
    let file = switch.folder().join("dump");
    std::fs::write(&file, &dump).unwrap();
    sluice(&daemon, &["add-flows", &file.display().to_string()]);
    // The other one would have its packets.
    let explained = daemon.sluice(&["explain", &with_df, "client"]);
    assert_eq!(explained.code, Some(2), "{explained:?}");
    assert!(explained.out.contains("would be refused: field tunnel.flags: ufid:"), "{explained:?}");
    let added = daemon.sluice(&["add-flow", &with_df, "client"]);
    assert_eq!(added.code, Some(2), "{added:?}");
    assert!(added.err.contains("differs from it only in flags that this kernel does not match"), "{added:?}");
    eventually("neither has a rule", || flows(&daemon, "refused") == Some(2.0));
    assert!(switch.filters("vx0").is_empty());
    let daemon = restart(&switch, daemon, POLICY, TUNNEL);
    eventually("neither has a rule in the next run", || flows(&daemon, "refused") == Some(2.0));
    // With the first one gone the second is taken by itself.
    sluice(&daemon, &["del-flow", &without_df]);
    eventually("the other one has a rule", || flows(&daemon, "partial") == Some(1.0));
    assert!(sluice(&daemon, &["dump-flows"]).contains("+df"));
    let daemon = restart(&switch, daemon, POLICY, TUNNEL);
    assert_eq!(daemon.metric("sluice_start_rules{fate=\"adopted\"}"), Some(1.0));
    assert_eq!(switch.filters("vx0").len(), 1);
    // Where flags are to be matched, a rule that does not match them goes.
    let daemon = restart(&switch, daemon, &format!("{POLICY}\ntc.tunnel_flags = \"exact\""), TUNNEL);
    eventually("the rule is gone", || flows(&daemon, "refused") == Some(1.0) && switch.filters("vx0").is_empty());
}
