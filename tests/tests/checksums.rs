//! `tshark` finds no bad checksum in what the software NIC makes of packets whose checksums are good.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sluice_flow::action::{Action, ActionKind};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::port::PortNumber;
use sluice_tests::daemon::new_folder;
use sluice_tests::generate::{Feature, GeneratedFlow, Profile, check, flows, packet};
use sluice_tests::scenario::{Scenario, hex};
use sluice_tests::soft::Soft;

const FLOWS: usize = 4_000;

/// The protocols with checksums: how `tshark` calls what it found, and what switches looking on.
const PROTOCOLS: [(&str, &str, &[&str]); 6] = [
    ("IPv4", "ip.checksum.status", &["ip.check_checksum:TRUE"]),
    ("TCP", "tcp.checksum.status", &["tcp.check_checksum:TRUE"]),
    ("UDP", "udp.checksum.status", &["udp.check_checksum:TRUE"]),
    ("ICMP", "icmp.checksum.status", &[]),
    ("ICMPv6", "icmpv6.checksum.status", &[]),
    ("SCTP", "sctp.checksum.status", &["sctp.checksum:crc-32c"]),
];

/// What `tshark` says of each checksum of each frame: 0 is bad, 1 is good, anything else was not looked at.
type Found = Vec<[Vec<u8>; PROTOCOLS.len()]>;

fn dissected(path: &Path) -> Found {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(path).args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]);
    for (_, field, preferences) in PROTOCOLS {
        tshark.args(["-e", field]);
        preferences.iter().for_each(|preference| _ = tshark.args(["-o", preference]));
    }
    let ran = tshark.output().expect("tshark is installed: scripts/setup test");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).expect("text");
    let numbers = |words: &str| words.split(',').filter_map(|word| word.parse().ok()).collect();
    let line = |line: &str| {
        let fields: Vec<Vec<u8>> = line.split('\t').map(numbers).collect();
        fields.try_into().expect("as many fields as were asked for")
    };
    text.lines().map(line).collect()
}

/// A capture in the classic format, of Ethernet.
fn write(folder: &Path, name: &str, frames: &[Vec<u8>]) -> PathBuf {
    let mut bytes = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65535, 1].map(u32::to_be_bytes).concat();
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap();
        bytes.extend([0, 0, length, length].map(u32::to_be_bytes).concat());
        bytes.extend(frame);
    }
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("the capture is written");
    path
}

/// Flows that packets can hit as they come in on a wire and that send what they make of them.
fn scenario(generated: Vec<GeneratedFlow>, numbers: &[u64]) -> Scenario {
    let mut scenario = Scenario { ports: sluice_tests::generate::ports(), ..Scenario::default() };
    let metadata = [Attribute::DpHash, Attribute::SkbPriority, Attribute::SkbMark, Attribute::CtState];
    let metadata = metadata.iter().chain(&[Attribute::CtZone, Attribute::CtMark, Attribute::CtLabel]);
    let metadata: Vec<_> = metadata.chain(&[Attribute::CtTuple4, Attribute::CtTuple6]).collect();
    for flow in generated {
        let mut matching = flow.matching;
        if matching.is_exactly(Field::RecircId, 0) {
            metadata.iter().flat_map(|attribute| attribute.fields()).for_each(|spec| matching.set(spec.field, 0, 0));
        }
        let actions = flow.actions.iter().cloned().chain([Action::Output(PortNumber(2))]).collect();
        let alone = Scenario::new("").flow(matching, Arc::clone(&actions));
        let is_taken = Soft::set_up(&scenario.ports, &alone).is_ok();
        if is_taken && !scenario.flows.iter().any(|(other, _)| check::overlap(other, &matching)) {
            scenario.flows.push((matching, actions));
        }
    }
    scenario.packets = packet::for_flows(&scenario.flows, numbers);
    scenario
}

/// Scenarios with as many flows as asked for.
fn scenarios(count: usize) -> Vec<Scenario> {
    use ActionKind as Kind;
    let cuts = [Kind::Trunc].map(Feature::Action);
    let profile = Profile::everything().without("cuts", "a part of a packet has no checksum", cuts);
    let profile = Arc::new(profile);
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let numbers = proptest::collection::vec(proptest::prelude::any::<u64>(), 32);
    let strategy = (flows(&profile), numbers).prop_map(|(flows, numbers)| scenario(flows, &numbers));
    let (mut scenarios, mut flows) = (Vec::new(), 0);
    while flows < count {
        let scenario = strategy.new_tree(&mut runner).expect("nothing is rejected").current();
        flows += scenario.flows.len();
        scenarios.push(scenario);
    }
    scenarios
}

#[test]
fn good_checksums_stay_good() {
    let folder = new_folder();
    std::fs::create_dir_all(&folder).expect("the folder is made");
    let scenarios = scenarios(FLOWS);
    let came_in: Vec<_> =
        scenarios.iter().flat_map(|scenario| scenario.packets.iter().map(|(_, frame)| frame.clone())).collect();
    let found_in = dissected(&write(&folder, "in.pcap", &came_in));
    for (index, (name, ..)) in PROTOCOLS.iter().enumerate() {
        let bad = found_in.iter().filter(|found| found[index].contains(&0)).count();
        println!("{bad:>8} frames come in with a bad checksum of {name}");
        assert!(bad > 0, "tshark would find one");
    }
    let mut was_good = found_in.iter().map(|found| !found.iter().any(|statuses| statuses.contains(&0)));

    let mut sent = Vec::new();
    for scenario in &scenarios {
        let soft = Soft::set_up(&scenario.ports, scenario).expect("each flow was taken alone");
        for (port, frame) in &scenario.packets {
            if was_good.next().expect("tshark read all frames") && frame.len() >= 14 {
                let came_out = soft.inject(*port, frame).into_values().flatten();
                sent.extend(came_out.map(|out| (out, frame, scenario)));
            }
        }
    }
    let frames: Vec<_> = sent.iter().map(|(frame, ..)| frame.clone()).collect();
    let found = dissected(&write(&folder, "out.pcap", &frames));
    assert_eq!(found.len(), frames.len());
    println!("{} frames in, {} frames out", came_in.len(), frames.len());
    let mut good = [0; PROTOCOLS.len()];
    let mut wrong = Vec::new();
    for (found, (frame, came_in, scenario)) in found.iter().zip(&sent) {
        for (index, statuses) in found.iter().enumerate() {
            good[index] += statuses.iter().filter(|status| **status == 1).count();
            if statuses.contains(&0) {
                let (name, ..) = PROTOCOLS[index];
                wrong.push(format!("{name}\n  of {}\n  made {}\n{scenario}", hex(came_in), hex(frame)));
            }
        }
    }
    for ((name, ..), good) in PROTOCOLS.iter().zip(good) {
        println!("{good:>8} checksums of {name} are good");
        assert!(good > 0, "no {name}");
    }
    assert!(wrong.is_empty(), "{} are bad: {}", wrong.len(), wrong[..wrong.len().min(3)].join("\n"));
    let _ = std::fs::remove_dir_all(folder);
}
