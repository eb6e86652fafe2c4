//! What an Open vSwitch with our provider does to the agent, at its socket. The whole of it, with a real one, is a story of `tc_agent`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use sluice_feedback::layout::{RECORD, RECORDS};
use sluice_feedback::protocol::{Message, Received, receive, send};
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::{FlowState, Ufid};
use sluice_tests::daemon::{Daemon, binary, new_folder, run};
use sluice_tests::openvswitch::provider::{DELETED, FLOW, NEW, Provider, SET, Vport, flow_message, name};
use sluice_tests::world::eventually;

/// With a meter of the agent's own.
const CONFIG: &str = "poll_interval = \"20ms\"
[source.ovs]
handed_over = true
[[meter]]
id = 1
pps = 10
";

const UDP: &str = "in_port(1),eth_type(0x0800),ipv4(proto=17)";
const TCP: &str = "in_port(1),eth_type(0x0800),ipv4(proto=6)";

const PORTS: &[&str] = &["one", "two"];

/// Puts a flow, or changes what it does.
fn put(vswitchd: &Provider, command: u8, ufid: u128, key: &str, actions: &str) {
    let (key, actions) = (parse_key(key, &()).unwrap(), parse_actions(actions, &()).unwrap());
    vswitchd.send(&flow_message(command, Ufid(ufid), &key.matching, &actions));
}

/// A UFID as it stands in messages.
fn bytes(ufid: u128) -> Vec<u8> {
    name(Ufid(ufid))
}

/// What the agent's flow of this name does, if there is one.
fn actions_of(daemon: &Daemon, ufid: u128) -> Option<String> {
    let listed: serde_json::Value = serde_json::from_str(&daemon.sluice(&["dump-flows", "--json"]).out).unwrap();
    let name = Ufid(ufid).to_string();
    let flow = listed.as_array().unwrap().iter().find(|flow| name.contains(flow["ufid"].as_str().unwrap()))?;
    (flow["state"] == FlowState::Offloaded.name()).then(|| flow["actions"].as_str().unwrap().to_owned())
}

/// The memory in which the agent tells what it counts.
fn memory(daemon: &Daemon) -> File {
    let library = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let agent = SocketAddrUnix::new(daemon.run_dir().join("ovs-feedback.sock")).unwrap();
    eventually("the agent listens", || connect(&library, &agent).is_ok());
    assert!(send(&library, Message::Hello { tells_meters: false }, None));
    let mut memory = None;
    eventually("the agent shares its memory", || {
        if let Received::Message(Message::Memory, file) = receive(&library) {
            memory = file;
        }
        memory.is_some()
    });
    memory.unwrap().into()
}

/// UFIDs of the flows that have a record there.
fn recorded(memory: &File) -> Vec<Vec<u8>> {
    let mut slots = [0; 8];
    memory.read_exact_at(&mut slots, 32).unwrap();
    let mut records = vec![0; usize::from_ne_bytes(slots) * RECORD];
    memory.read_exact_at(&mut records, RECORDS as u64).unwrap();
    let is_live = |record: &&[u8]| u64::from_ne_bytes(record[48..56].try_into().unwrap()) & 0xff == 1;
    let mut names: Vec<_> = records.chunks(RECORD).filter(is_live).map(|record| record[8..24].to_vec()).collect();
    names.sort_unstable();
    names
}

#[test]
fn flows_that_are_handed_over_are_wanted_and_those_that_the_device_has_not_are_given_back() {
    let daemon = Daemon::start(CONFIG);
    let vswitchd = Provider::connect_to(&daemon, PORTS);
    put(&vswitchd, NEW, 7, UDP, "2");
    eventually("the device has the flow", || actions_of(&daemon, 7).as_deref() == Some("two"));
    put(&vswitchd, SET, 7, UDP, "drop");
    eventually("it drops", || actions_of(&daemon, 7).as_deref() == Some("drop"));

    put(&vswitchd, NEW, 8, TCP, "userspace(pid=1)");
    assert_eq!(vswitchd.given_back(), bytes(8), "no device has a process");
    put(&vswitchd, NEW, 12, TCP, "meter(1),2");
    assert_eq!(vswitchd.given_back(), bytes(12), "the agent's meter is another one");
    put(&vswitchd, NEW, 9, TCP, "77");
    assert_eq!(vswitchd.given_back(), bytes(9), "there is no such port");
    daemon.sluice(&["flush"]);
    assert_eq!(vswitchd.given_back(), bytes(7), "Open vSwitch forwards what a command takes away");

    put(&vswitchd, NEW, 10, UDP, "2");
    put(&vswitchd, NEW, 11, TCP, "2");
    eventually("the device has both", || [10, 11].iter().all(|ufid| actions_of(&daemon, *ufid).is_some()));
    vswitchd.tell(FLOW, DELETED, |message| message.put(9, &bytes(10)));
    eventually("one is gone", || actions_of(&daemon, 10).is_none());
    assert!(actions_of(&daemon, 11).is_some());
    vswitchd.tell(FLOW, DELETED, |_| ());
    eventually("all are", || actions_of(&daemon, 11).is_none());
}

/// One whose device is hardly ever asked what it has counted.
fn patient() -> Daemon {
    Daemon::start(&CONFIG.replace("20ms", "1h"))
}

#[test]
fn a_flow_that_is_refused_is_given_back_at_once() {
    let daemon = patient();
    let vswitchd = Provider::connect_to(&daemon, PORTS);
    put(&vswitchd, NEW, 8, TCP, "userspace(pid=1)");
    assert_eq!(vswitchd.given_back(), bytes(8), "the device has refused it");
    assert_eq!(daemon.sluice(&["add-flow", UDP, "1"]).code, Some(0));
    put(&vswitchd, NEW, 9, UDP, "2");
    assert_eq!(vswitchd.given_back(), bytes(9), "the agent has not taken it on, since somebody else has its match");
}

#[test]
fn what_is_counted_is_told_as_often_as_a_reload_says() {
    let daemon = patient();
    let vswitchd = Provider::connect_to(&daemon, PORTS);
    let memory = memory(&daemon);
    put(&vswitchd, NEW, 7, UDP, "2");
    eventually("the device has the flow", || actions_of(&daemon, 7).is_some());
    fs::write(daemon.folder().join("sluiced.toml"), daemon.config().replace("1h", "20ms")).unwrap();
    assert_eq!(recorded(&memory), [[0; 0]; 0]);
    let reloaded = daemon.sluice(&["reload"]);
    assert!(reloaded.out.contains("poll_interval"), "{reloaded:?}");
    eventually("the flow has a record", || recorded(&memory) == [bytes(7)]);
}

#[test]
fn a_flow_takes_the_place_of_those_that_have_its_name_or_its_match_and_of_no_typed_one() {
    let daemon = Daemon::start(CONFIG);
    let vswitchd = Provider::connect_to(&daemon, PORTS);
    put(&vswitchd, NEW, 7, UDP, "2");
    put(&vswitchd, NEW, 8, TCP, "1");
    eventually("the device has both", || [7, 8].iter().all(|ufid| actions_of(&daemon, *ufid).is_some()));
    // The name of the first, and the match of the second.
    put(&vswitchd, NEW, 7, TCP, "drop");
    eventually("it is in their place", || actions_of(&daemon, 7).as_deref() == Some("drop"));
    assert_eq!(actions_of(&daemon, 8), None);
    assert_eq!(vswitchd.given_back(), bytes(8), "Open vSwitch has the one without a place back");
    let flows = || daemon.sluice(&["dump-flows"]).out.lines().count();
    assert_eq!(flows(), 1);

    assert_eq!(daemon.sluice(&["add-flow", UDP, "1"]).code, Some(0));
    put(&vswitchd, NEW, 9, UDP, "2");
    assert_eq!(vswitchd.given_back(), bytes(9), "somebody else has this match");
    assert_eq!(flows(), 2);
}

#[test]
fn meters_that_are_handed_over_are_the_agents_and_go_with_their_flows() {
    let daemon = Daemon::start(CONFIG);
    let vswitchd = Provider::connect_to(&daemon, PORTS);
    put(&vswitchd, NEW, 7, UDP, "meter(5),2");
    assert_eq!(vswitchd.given_back(), bytes(7), "nothing is known of the meter");
    vswitchd.set_meter(5, 1_000);
    put(&vswitchd, NEW, 7, UDP, "meter(5),2");
    eventually("the device has the flow", || actions_of(&daemon, 7).as_deref() == Some("meter(5),two"));
    let shown = |what: &str| daemon.sluice(&["show-meters"]).out.contains(what);
    assert!(shown("rate:1000, burst:1000"), "{}", daemon.sluice(&["show-meters"]).out);

    vswitchd.set_meter(5, 2_000);
    eventually("it has another rate", || shown("rate:2000, burst:2000"));
    assert!(actions_of(&daemon, 7).is_some());

    // The configuration's stays what it is.
    vswitchd.set_meter(1, 2_000);
    put(&vswitchd, NEW, 8, TCP, "meter(1),2");
    assert_eq!(vswitchd.given_back(), bytes(8), "the agent's meter is another one");
    assert!(shown("meter:1") && shown("rate:10,"));

    vswitchd.delete_meter(5);
    assert_eq!(vswitchd.given_back(), bytes(7), "the flow goes with its meter");
    eventually("the meter is gone", || !shown("meter:5"));

    // If an operator sets a meter of that number, Open vSwitch has its flow back.
    vswitchd.set_meter(5, 1_000);
    put(&vswitchd, NEW, 7, UDP, "meter(5),2");
    eventually("the device has the flow", || actions_of(&daemon, 7).is_some());
    assert_eq!(daemon.sluice(&["add-meter", "5", "--pps=3"]).code, Some(0));
    assert_eq!(vswitchd.given_back(), bytes(7), "the meter is another one now");
    assert!(shown("rate:3,"));
}

#[test]
fn meters_of_an_earlier_ovs_vswitchd_stay_for_the_next_one_to_set_or_go() {
    let daemon = Daemon::start(CONFIG);
    let first = Provider::connect_to(&daemon, PORTS);
    [5, 6].iter().for_each(|id| first.set_meter(*id, 1_000));
    put(&first, NEW, 7, UDP, "meter(5),2");
    eventually("the device has the flow", || actions_of(&daemon, 7).is_some());
    drop(first);
    let second = Provider::connect_to(&daemon, PORTS);
    second.set_meter(5, 1_000);
    put(&second, NEW, 7, UDP, "meter(5),2");
    eventually("the one that nobody sets is gone", || !daemon.sluice(&["show-meters"]).out.contains("meter:6"));
    eventually("the device has the flow", || actions_of(&daemon, 7).is_some());
    drop(second);
    eventually("nothing is left", || !daemon.sluice(&["show-meters"]).out.contains("meter:5"));
}

#[test]
fn a_port_is_what_it_was_last_told_to_be_and_goes_if_the_next_ovs_vswitchd_has_it_not() {
    let daemon = Daemon::start(CONFIG);
    let are = |ports: &[(u32, &str, &str)]| {
        let shown: serde_json::Value = serde_json::from_str(&daemon.sluice(&["show", "--json"]).out).unwrap();
        let shown = shown["ports"].as_array().unwrap().iter();
        let shown = shown.map(|port| (port["number"].clone(), port["name"].clone(), port["kind"].clone()));
        shown.eq(ports.iter().map(|(number, name, kind)| ((*number).into(), (*name).into(), (*kind).into())))
    };
    let first = Provider::connect_to(&daemon, PORTS);
    eventually("both are there", || are(&[(1, "one", "physical"), (2, "two", "physical")]));
    first.tell_port(2, "two", Vport::Internal);
    eventually("one is of another kind", || are(&[(1, "one", "physical"), (2, "two", "internal")]));
    put(&first, NEW, 7, UDP, "2");
    eventually("the device has the flow", || actions_of(&daemon, 7).is_some());
    first.tell_port(3, "one", Vport::Netdev);
    eventually("the other has another number", || are(&[(2, "two", "internal"), (3, "one", "physical")]));
    drop(first);
    let second = Provider::connect_to(&daemon, &["one"]);
    eventually("it has the first one again", || are(&[(1, "one", "physical"), (2, "two", "internal")]));
    eventually("the one of which nobody tells is gone", || are(&[(1, "one", "physical")]));
    // One that has been connected for long begins with its datapath nevertheless, and tells of ports behind that.
    second.begin();
    std::thread::sleep(Duration::from_millis(300));
    assert!(are(&[(1, "one", "physical")]), "it has had no time to tell of it");
    assert!(!daemon.log().contains("which is gone, is kept"), "{}", daemon.log());
}

#[test]
fn a_port_whose_number_somebody_else_has_is_left_out_with_the_reason() {
    let daemon = Daemon::start(&format!("{CONFIG}[[port]]\nnumber = 9\nname = \"nine\"\n"));
    let vswitchd = Provider::connect_to(&daemon, PORTS);
    vswitchd.tell_port(9, "three", Vport::Netdev);
    let reason = "without port three: number 9 is nine already";
    eventually("it is shown", || daemon.sluice(&["show"]).out.contains(reason));
}

#[test]
fn of_two_that_hand_flows_over_the_second_is_turned_away() {
    let daemon = Daemon::start(CONFIG);
    let first = Provider::connect_to(&daemon, PORTS);
    put(&first, NEW, 7, UDP, "2");
    eventually("the device has the flow", || actions_of(&daemon, 7).is_some());
    let second = Provider::connect_to(&daemon, PORTS);
    assert_eq!(second.given_back(), [0; 0], "the agent has hung up");
    assert!(actions_of(&daemon, 7).is_some());
}

#[test]
fn flows_that_go_all_at_once_leave_no_record_and_make_room_for_as_many() {
    let daemon = Daemon::start(&format!("flow_limit = 2\n{CONFIG}"));
    let vswitchd = Provider::connect_to(&daemon, PORTS);
    let memory = memory(&daemon);
    for first in [1, 3, 5] {
        put(&vswitchd, NEW, first, UDP, "2");
        put(&vswitchd, NEW, first + 1, TCP, "2");
        let both = [bytes(first), bytes(first + 1)];
        eventually("both have a record", || recorded(&memory) == both);
        vswitchd.tell(FLOW, DELETED, |_| ());
        // In the table, too, which has room for two.
        eventually("none is left", || recorded(&memory).is_empty() && daemon.sluice(&["dump-flows"]).out.is_empty());
    }
}

#[test]
fn many_flows_that_are_given_back_at_once_all_arrive_though_each_is_deleted_before_more_is_read() {
    const MANY: u16 = 20_000;
    let daemon = Daemon::start(CONFIG);
    let vswitchd = Provider::connect_to(&daemon, PORTS);
    for port in 0..MANY {
        put(&vswitchd, NEW, u128::from(port) + 1, &format!("{UDP},udp(dst={port})"), "2");
    }
    eventually("the device has all", || {
        daemon.metric("sluice_flows_placed{placement=\"hardware\"}") == Some(MANY.into())
    });
    daemon.sluice(&["flush"]);
    let mut given_back = 0;
    while given_back < usize::from(MANY) {
        let names = vswitchd.given_back();
        assert!(!names.is_empty(), "the agent has hung up");
        for name in names.chunks(16) {
            vswitchd.tell(FLOW, DELETED, |message| message.put(9, name));
        }
        given_back += names.len() / 16;
    }
    assert_eq!(given_back, usize::from(MANY));
    put(&vswitchd, NEW, 1, UDP, "2");
    eventually("the device has what comes next", || actions_of(&daemon, 1).is_some());
}

#[test]
fn a_flow_with_as_many_actions_as_an_attribute_holds_does_not_end_the_connection() {
    let daemon = Daemon::start(CONFIG);
    let vswitchd = Provider::connect_to(&daemon, PORTS);
    // Of eight bytes each, in the 65,531 that Open vSwitch has for them (`nl_attr_oversized`).
    put(&vswitchd, NEW, 7, UDP, &vec!["2"; 8_191].join(","));
    put(&vswitchd, NEW, 8, TCP, "2");
    eventually("the device has the next one", || actions_of(&daemon, 8).is_some());
}

#[test]
fn a_start_without_a_socket_for_ovs_vswitchd_is_refused_before_the_device_is_touched() {
    let folder = new_folder();
    let config = folder.join("sluiced.toml");
    for socket in ["ovs-flows.sock", "ovs-feedback.sock"] {
        let in_its_place = folder.join("run").join(socket);
        fs::create_dir_all(&in_its_place).unwrap();
        // A device that is not there, which would be said else.
        let text = format!(
            "backend = \"dv\"\ndevice = \"no-such-device\"\nmetrics = \"none\"\nlock_dir = \"{0}\"\nstate_dir = \"{0}/state\"\n\
             run_dir = \"{0}/run\"\n[source.ovs]\nhanded_over = true\n",
            folder.display()
        );
        fs::write(&config, text).unwrap();
        let refused = run(Command::new(binary("sluiced")).arg("--config").arg(&config));
        let said = format!("cannot make the socket {}", in_its_place.display());
        assert!(refused.code == Some(2) && refused.err.contains(&said), "{refused:?}");
        fs::remove_dir(in_its_place).unwrap();
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn without_an_ovs_vswitchd_and_with_one_that_makes_no_sense_there_are_no_flows() {
    let daemon = Daemon::start(CONFIG);
    for sends_nonsense in [false, true] {
        let vswitchd = Provider::connect_to(&daemon, PORTS);
        put(&vswitchd, NEW, 7, UDP, "2");
        eventually("the device has the flow", || actions_of(&daemon, 7).is_some());
        if sends_nonsense {
            vswitchd.tell(FLOW, NEW, |message| message.raw(&[3, 0, 1, 0]));
            assert_eq!(vswitchd.given_back(), [0; 0], "the agent has hung up");
        }
        drop(vswitchd);
        eventually("the flow is gone", || actions_of(&daemon, 7).is_none());
        let show = daemon.sluice(&["show"]).out;
        assert!(show.contains("no ovs-vswitchd hands flows over"), "{show}");
    }
}
