//! Who is let in, and how many at a time.

use std::fs::{Permissions, set_permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command as Process;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_control::ClientError;

use super::{Bench, read_all, text};
use crate::{Admission, Peer, ServerOptions};

#[test]
fn whoever_has_no_right_is_told_so_in_the_reply_to_the_request() {
    let nobody_but = Admission { uid: 4_000_000_000, gid: 4_000_000_000 };
    let bench = Bench::new(ServerOptions { admission: nobody_but, ..ServerOptions::default() });
    if Peer::own().uid == 0 {
        // Root is let in everywhere, so that somebody else has to ask.
        let socket = bench.path();
        open_to_all(&bench);
        let output = Process::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "ovs-appctl", "-T10", "-t"])
            .arg(&socket)
            .arg("version")
            .output()
            .unwrap();
        let stderr = text(&output.stderr);
        assert!(
            stderr.starts_with("permission denied: uid 65534 is neither root nor uid 4000000000, nor in group"),
            "{stderr}"
        );
        assert_eq!(output.status.code(), Some(2));
    } else {
        let error = bench.client().call_text("version", &[]).unwrap_err().to_string();
        assert!(error.starts_with("permission denied"), "{error}");
    }
}

#[test]
fn a_member_of_the_group_is_let_in_by_any_of_its_groups() {
    if Peer::own().uid != 0 {
        eprintln!("SKIPPED: only root can be somebody else");
        return;
    }
    let admission = Admission { uid: 4_000_000_000, gid: 4711 };
    let bench = Bench::new(ServerOptions { admission, ..ServerOptions::default() });
    open_to_all(&bench);
    for groups in [["--regid=4711", "--clear-groups"], ["--regid=65534", "--groups=1234,4711"]] {
        let output = Process::new("setpriv")
            .arg("--reuid=65534")
            .args(groups)
            .args(["ovs-appctl", "-T10", "-t"])
            .arg(bench.path())
            .arg("version")
            .output()
            .unwrap();
        assert_eq!(text(&output.stdout), "sluiced (Sluice) 0.1.0\n", "{}", text(&output.stderr));
    }
}

fn open_to_all(bench: &Bench) {
    set_permissions(bench.path(), Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn one_client_too_many_is_told_so() {
    let bench = Bench::new(ServerOptions { connection_limit: 2, reserved: 0, ..ServerOptions::default() });
    let mut first = bench.client();
    first.call_text("version", &[]).unwrap();
    let mut second = bench.client();
    second.call_text("version", &[]).unwrap();
    let error = bench.client().call_text("version", &[]).unwrap_err();
    assert!(matches!(&error, ClientError::Refused(text) if text.contains("2 control connections")), "{error}");
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(5);
    while bench.client().call_text("version", &[]).is_err() {
        assert!(Instant::now() < deadline, "the place of the first client is not given on");
    }
}

#[test]
fn a_client_that_asks_nothing_gives_its_place_back() {
    let idle_limit = Duration::from_millis(100);
    let bench = Bench::new(ServerOptions { idle_limit, connection_limit: 1, reserved: 0, ..ServerOptions::default() });
    let mut silent = bench.connect();
    silent.write_all(b"{\"id\":1,\"method\":\"echo\",\"params\":[\"a\"]}").unwrap();
    assert_eq!(read_all(silent), "{\"id\":1,\"result\":\"a\\n\",\"error\":null}", "its answer, and then the end");
    assert_eq!(bench.client().call_text("echo", &["b"]).unwrap(), "b\n");
}

#[test]
fn a_client_that_goes_keeps_its_place_as_long_as_its_command_runs() {
    const BUSY: &str = "busy: 1 control connections are open, or their commands still run";
    let bench = Bench::new(ServerOptions { connection_limit: 1, reserved: 0, ..ServerOptions::default() });
    let mut impatient = bench.connect();
    impatient.write_all(b"{\"id\":1,\"method\":\"hang\",\"params\":[]}").unwrap();
    drop(impatient);
    // The command has heard that its client is gone, and goes on.
    bench.wait_for_lines(1);
    let let_in = (0..100).map(|_| read_all(bench.connect())).find(|told| !told.contains(BUSY));
    bench.lines.store(2, Ordering::Relaxed);
    assert_eq!(let_in, None);
    let deadline = Instant::now() + Duration::from_secs(20);
    while bench.client().call_text("version", &[]).is_err() {
        assert!(Instant::now() < deadline, "the place is not given on");
    }
}
