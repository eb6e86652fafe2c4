//! Bad input gets an error that names the place, changes nothing else, and does not make the agent grow.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sluice_tests::daemon::{CONFIG, Daemon, run};

/// Asks for `dpctl/add-flow` of a key, as the bytes on the socket.
fn add_request(key: &str) -> Vec<u8> {
    let params = serde_json::json!([key, "2"]);
    serde_json::json!({ "id": 1, "method": "dpctl/add-flow", "params": params }).to_string().into_bytes()
}

fn is_untouched(daemon: &Daemon) {
    assert_eq!(daemon.appctl(&["dpctl/dump-flows"]).out, "", "nothing was added");
    assert_eq!(daemon.http("/healthz").0, 200);
}

#[test]
fn a_truncated_flow_names_the_place() {
    let daemon = Daemon::start(CONFIG);
    let key = "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6),tcp(src=1,dst=2)";
    for end in 0..key.len() {
        let cut = &key[..end];
        let ran = daemon.raw(&add_request(cut));
        let complete = cut.trim_end_matches(',').ends_with(')');
        let places = ["at byte", "in_port() is missing"];
        assert!(complete || places.iter().any(|place| ran.contains(place)), "{cut}: {ran}");
    }
}

#[test]
fn nesting_a_thousand_deep_is_refused_in_text_and_in_json() {
    let daemon = Daemon::start(CONFIG);
    let reply = daemon.raw(&add_request(&"encap(".repeat(1_000)));
    assert!(reply.contains("\"error\":") && reply.contains("at byte"), "{reply}");
    let reply = daemon.raw("[".repeat(100_000).as_bytes());
    assert!(reply.contains("\"error\":"), "{reply}");
    is_untouched(&daemon);
}

#[test]
fn a_line_of_ten_megabytes_is_refused_quickly_and_leaves_no_memory_behind() {
    let daemon = Daemon::start(CONFIG);
    let long = format!("in_port(1),{}", "skb_mark(0/0) ".repeat(750_000));
    let began = Instant::now();
    for _ in 0..5 {
        let reply = daemon.raw(&add_request(&long));
        assert!(reply.contains("\"error\":"), "{}", &reply[..reply.len().min(500)]);
        assert!(reply.len() < 4_096, "the error does not repeat the input: {} bytes", reply.len());
    }
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(daemon.memory() < 200 << 20, "{} bytes are held", daemon.memory());
    is_untouched(&daemon);
}

#[test]
fn duplicate_keys_are_refused_at_the_second() {
    let daemon = Daemon::start(CONFIG);
    let ran = daemon.appctl(&["dpctl/add-flow", "in_port(1),in_port(2)", "2"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("at byte 11"), "{}", ran.err);
    is_untouched(&daemon);
}

#[test]
fn garbage_on_the_socket_closes_that_connection_only() {
    let daemon = Daemon::start(CONFIG);
    for garbage in
        [&b"\xff\xfe\x00garbage"[..], b"{\"id\":1,\"method\":3,\"params\":[]}", b"{}", b"[]", b"null", b"{\"id\":1"]
    {
        let reply = daemon.raw(garbage);
        let text = String::from_utf8_lossy(garbage);
        assert!(reply.is_empty() || reply.contains("\"error\":"), "{text}: {reply}");
    }
    is_untouched(&daemon);
}

#[test]
fn half_a_request_then_silence_holds_up_nobody_and_is_closed() {
    let daemon = Daemon::start(CONFIG);
    let mut silent = UnixStream::connect(daemon.socket()).unwrap();
    silent.write_all(b"{\"id\":1,\"method\":\"dpctl/").unwrap();
    let began = Instant::now();
    assert_eq!(daemon.appctl(&["version"]).code, Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "others are served meanwhile");
    silent.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).expect("closed by the agent");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn more_flows_than_the_limit_are_refused_by_name_of_the_limit() {
    let daemon = Daemon::start(&format!("flow_limit = 3\n{CONFIG}"));
    for number in 0..3 {
        assert_eq!(
            daemon.appctl(&["dpctl/add-flow", &format!("in_port(1),skb_priority(0/0),eth_type({number})"), "2"]).err,
            ""
        );
    }
    let ran = daemon.appctl(&["dpctl/add-flow", "in_port(2)", "1"]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(daemon.metric("sluice_flow_refusals_total{reason=\"limit\"}"), Some(1.0));
    assert!(ran.err.contains("refused, limit: as many flows as there may be (at most 3)"), "{}", ran.err);
}

#[test]
fn a_file_is_read_with_the_rights_of_who_names_it() {
    let daemon = Daemon::start(&format!("control_mode = \"0666\"\n{CONFIG}"));
    let folder = daemon.folder().canonicalize().unwrap();
    let secret = folder.join("secret");
    std::fs::write(&secret, "root:$6$salt$hash:19000:0:99999:7:::\n").unwrap();
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    for command in ["dpctl/add-flows", "dpctl/mod-flows", "dpctl/del-flows"] {
        let refused = |path: &Path, reason: &str| {
            let ran = daemon.appctl(&[command, path.to_str().unwrap()]);
            assert_eq!(ran.code, Some(2));
            assert!(ran.err.contains(reason) && !ran.err.contains("salt"), "{}", ran.err);
        };
        // Its owner learns which line is wrong, and no more.
        refused(&secret, "sluiced: line 1: at byte 0: ");
        refused(Path::new("/dev/zero"), "it is not a regular file");
        refused(&folder.join("run/sluiced.ctl"), "it is not a regular file");
    }
    is_untouched(&daemon);
    let group_member = |file: &Path| {
        let mut appctl = Command::new("setpriv");
        appctl.args(["--reuid=65534", "--regid=0", "--clear-groups", "ovs-appctl", "-t"]).arg(daemon.socket());
        run(appctl.args(["dpctl/add-flows"]).arg(file))
    };
    let denied = group_member(&secret);
    assert!(denied.err.contains("secret: uid 65534 may not read it (\"sluice add-flows\""), "{}", denied.err);
    std::fs::set_permissions(&secret, Permissions::from_mode(0o640)).unwrap();
    assert!(group_member(&secret).err.contains("line 1: at byte 0: "));
}
