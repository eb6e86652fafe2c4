//! A firewall for a machine without a test in it: adds, deletes and fetches sessions by OPI's interface, as told by its arguments, and prints each
//! that has ended as a line of JSON.
//!
//!   firewall RUN_DIR add ID udp|tcp SOURCE DESTINATION IN_LIF OUT_LIF CACHE_TIMEOUT
//!   firewall RUN_DIR delete ID
//!   firewall RUN_DIR closed          waits until a session is closed

#![allow(clippy::expect_used, clippy::panic, reason = "a tool of tests that cannot go on says so and ends")]

use std::fmt::Debug;
use std::path::Path;
use std::str::FromStr;

use serde_json::json;
use sluice_client::openoffload::v2 as opi;
use sluice_tests::firewall::{Firewall, session};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let [run_dir, command, rest @ ..] = &arguments[..] else { panic!("a run folder and a command") };
    let mut firewall = Firewall::connect(Path::new(run_dir));
    match (*command, rest) {
        ("add", [id, protocol, source, destination, in_lif, out_lif, cache_timeout]) => {
            let protocol = match *protocol {
                "udp" => opi::ProtocolId::Udp,
                "tcp" => opi::ProtocolId::Tcp,
                other => panic!("{other} is neither udp nor tcp"),
            };
            let (ends, ports) = ([source, destination].map(|end| read(end)), [in_lif, out_lif].map(|port| read(port)));
            let session = session(read(id), protocol, ends, ports);
            firewall.add(opi::SessionRequest { cache_timeout: read(cache_timeout), ..session });
        }
        ("delete", [id]) => print(&firewall.delete(read(id))),
        ("closed", []) => print(&firewall.next_closed()),
        _ => panic!("no such command: {arguments:?}"),
    }
}

fn read<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn print(ended: &opi::SessionResponse) {
    let counted = [ended.in_packets, ended.in_bytes, ended.out_packets, ended.out_bytes];
    let reason = ended.session_close_code().as_str_name();
    println!("{}", json!({ "session": ended.session_id, "counted": counted, "reason": reason }));
}
