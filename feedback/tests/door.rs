//! Who is let in, as the kernel tells it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use sluice_feedback::Door;

/// The socket, for the program in the namespace.
const INSIDE: &str = "SLUICE_TEST_DOOR";
const OPEN: &str = "the door is open";

#[test]
fn a_process_outside_the_pid_namespace_is_let_in_without_a_number() {
    if let Some(path) = env::var_os(INSIDE) {
        return let_in(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("door");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--kill-child"]).arg(env::current_exe().unwrap());
    command.args(["--exact", "a_process_outside_the_pid_namespace_is_let_in_without_a_number", "--nocapture"]);
    let mut inside = command.env(INSIDE, &path).stdout(Stdio::piped()).spawn().expect("unshare runs");
    let mut output = BufReader::new(inside.stdout.take().unwrap());
    assert!(output.by_ref().lines().any(|line| line.unwrap() == OPEN), "{}", inside.wait().unwrap());

    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(inside.wait().unwrap().success() && rest.contains("1 passed"), "{rest}");
}

fn let_in(path: &Path) {
    let door = Door::open(path).unwrap();
    // Behind what the harness has begun to print.
    println!("\n{OPEN}");
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::from_borrowed_fd(door.as_fd(), PollFlags::IN)], Some(&patience)), Ok(1));
    let peer = door.next().expect("somebody has come").expect("it is root's");
    assert_eq!(peer.pid, 0);
    assert_eq!(peer.process.is_some(), tells_of_peers());
}

/// Whether this Linux gives a pidfd of who is at the other end of a socket: it is 6.5 or later.
fn tells_of_peers() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers =
        release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap());
    (numbers.next(), numbers.next()) >= (Some(6), Some(5))
}
