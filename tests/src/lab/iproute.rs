//! `ip` of iproute2, several lines in one process: in a machine without KVM the start of a program takes longest.

use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};

/// Carries out lines in the namespace that the thread is in. Each must succeed.
#[track_caller]
pub fn batch(lines: &[String]) {
    check(lines, ip(&[], lines));
}

/// Carries out lines in a named namespace. Each must succeed.
#[track_caller]
pub fn batch_in(namespace: &str, lines: &[String]) {
    check(lines, ip(&["-n", namespace], lines));
}

/// Carries out the lines that succeed.
pub fn attempt(lines: &[String]) {
    // What cannot be taken away is not there.
    let _ = ip(&["-force"], lines);
}

#[track_caller]
fn check(lines: &[String], outcome: io::Result<Output>) {
    let output = outcome.expect("ip can be run");
    assert!(output.status.success(), "{lines:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn ip(options: &[&str], lines: &[String]) -> io::Result<Output> {
    let mut command = Command::new("ip");
    command.args(options).args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(lines.join("\n").as_bytes())?;
    }
    child.wait_with_output()
}
