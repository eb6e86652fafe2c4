//! What the NIC in software sends through tunnels is what `tshark` takes it for: every protocol over both families, with
//! its options, and every checksum good.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::process::Command;
use std::sync::Arc;

use sluice_flow::action::{Action, FieldSet};
use sluice_flow::backend::{Backend, Change, Operation};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::port::{PortKind, Tunnel, TunnelProtocol};
use sluice_flow::table::{FlowId, Generation};
use sluice_flow::time::ManualClock;
use sluice_flow::{Expiry, Flow, MaskedKey, Port, PortNumber, Priority};
use sluice_tests::frames;
use sluice_tests::world::{SEED, soft_nic};

const VXLAN: u32 = 10;
const GENEVE: u32 = 11;
const GRE: u32 = 12;
const ERSPAN: u32 = 13;
const GTPU: u32 = 14;
/// A GTP-U port over another wire, out of which packets come that have no Ethernet header.
const GTPU_IN: u32 = 20;

const CSUM: u128 = 2;
const KEY: u128 = 4;
const OAM: u128 = 8;

/// What is asked for, what `tshark` must say of it, in its names, and the protocols that it must see.
struct Case {
    tunnel: u32,
    fields: Vec<(Field, u128)>,
    says: &'static [(&'static str, &'static str)],
    protocols: &'static str,
}

fn cases() -> Vec<Case> {
    let one_option = (Field::GeneveOptions0, 0x0102_8001_dead_beef_0000_0000_0000_0000);
    vec![
        Case {
            tunnel: VXLAN,
            fields: vec![(Field::TunnelId, 42), (Field::TunnelFlags, KEY)],
            says: &[("vxlan.vni", "42"), ("vxlan.gbp", "0")],
            protocols: "udp:vxlan:eth:ethertype:ip:udp:data",
        },
        Case {
            tunnel: VXLAN,
            fields: vec![
                (Field::TunnelId, 0x00ff_ffff),
                (Field::TunnelFlags, KEY | CSUM),
                (Field::VxlanGbpPresent, 1),
                (Field::VxlanGbpId, 4660),
                (Field::VxlanGbpFlags, 8),
            ],
            says: &[("vxlan.vni", "16777215"), ("vxlan.gbp", "4660"), ("vxlan.flags", "0x8808")],
            protocols: "udp:vxlan:eth:ethertype:ip:udp:data",
        },
        Case {
            tunnel: GENEVE,
            fields: vec![
                (Field::TunnelId, 7),
                (Field::TunnelFlags, KEY | CSUM | OAM),
                (Field::GenevePresent, 1),
                (Field::GeneveLength, 8),
                one_option,
            ],
            says: &[
                ("geneve.vni", "0x000007"),
                ("geneve.flags.oam", "1"),
                ("geneve.flags.critical", "1"),
                ("geneve.option.class", "0x0102"),
                ("geneve.option.type", "0x80"),
                ("geneve.option.unknown.data", "deadbeef"),
            ],
            protocols: "udp:geneve:eth:ethertype:ip:udp:data",
        },
        Case {
            tunnel: GRE,
            fields: vec![(Field::TunnelId, 0x1234_5678), (Field::TunnelFlags, KEY | CSUM)],
            says: &[("gre.key", "0x12345678"), ("gre.checksum.status", "1"), ("gre.proto", "0x6558")],
            protocols: "gre:eth:ethertype:ip:udp:data",
        },
        Case {
            tunnel: ERSPAN,
            fields: vec![
                (Field::TunnelId, 1023),
                (Field::ErspanPresent, 1),
                (Field::ErspanVersion, 1),
                (Field::ErspanIndex, 0x54321),
            ],
            says: &[("erspan.spanid", "1023"), ("erspan.index", "344865"), ("gre.sequence_number", "0")],
            protocols: "gre:erspan:eth:ethertype:ip:udp:data",
        },
        Case {
            tunnel: ERSPAN,
            fields: vec![
                (Field::TunnelId, 5),
                (Field::ErspanPresent, 1),
                (Field::ErspanVersion, 2),
                (Field::ErspanDirection, 1),
                (Field::ErspanHardwareId, 42),
            ],
            says: &[("erspan.spanid", "5"), ("erspan.hw", "42"), ("erspan.direction", "1"), ("erspan.p", "1")],
            protocols: "gre:erspan:eth:ethertype:ip:udp:data",
        },
        Case {
            tunnel: GTPU,
            fields: vec![
                (Field::TunnelId, 0x8000_0001),
                (Field::TunnelFlags, CSUM),
                (Field::GtpuPresent, 1),
                (Field::GtpuFlags, 0x32),
                (Field::GtpuMessageType, 255),
            ],
            says: &[("gtp.teid", "0x80000001"), ("gtp.message", "0xff"), ("gtp.flags", "0x32")],
            protocols: "udp:gtp:ip:udp:data",
        },
    ]
}

/// Outer addresses; the fields in which `tshark` shows them, and how.
type Family = ([(Field, u128); 2], [(&'static str, &'static str); 2]);

const FAMILIES: [Family; 2] = [
    (
        [(Field::TunnelIpv4Src, 0xc0a8_0001), (Field::TunnelIpv4Dst, 0xc0a8_0002)],
        [("ip.src", "192.168.0.1"), ("ip.dst", "192.168.0.2")],
    ),
    (
        [(Field::TunnelIpv6Src, 0x2001_0db8 << 96 | 1), (Field::TunnelIpv6Dst, 0x2001_0db8 << 96 | 2)],
        [("ipv6.src", "2001:db8::1"), ("ipv6.dst", "2001:db8::2")],
    ),
];

/// A NIC with all tunnels over port 1, and one more over port 3.
fn nic() -> Arc<dyn Backend> {
    let nic = soft_nic(Arc::new(ManualClock::default()));
    let attach = |number, kind| {
        nic.attach_port(&Port { number: PortNumber(number), name: format!("p{number}").parse().expect("a name"), kind })
            .expect("a port")
    };
    (1..=3).for_each(|number| attach(number, PortKind::Physical));
    let tunnels = (VXLAN..).zip(TunnelProtocol::ALL).map(|(number, protocol)| (number, protocol, 1));
    for (number, protocol, underlay) in tunnels.chain([(GTPU_IN, TunnelProtocol::Gtpu, 3)]) {
        let (udp_port, underlay) = (protocol.default_udp_port(), PortNumber(underlay));
        attach(number, PortKind::Tunnel(Tunnel { protocol, udp_port, underlay }));
    }
    nic
}

/// The frame that a case makes of a UDP datagram.
fn sent(case: &Case, addresses: [(Field, u128); 2]) -> Vec<u8> {
    let nic = nic();
    let mut fields: Vec<_> =
        addresses.iter().chain(&case.fields).map(|(f, value)| (*f, *value, f.full_mask())).collect();
    fields.sort_unstable();
    let outer = Action::SetTunnel(FieldSet { attribute: Attribute::Tunnel, fields: fields.into() });
    let actions = [outer, Action::Output(PortNumber(case.tunnel))];
    let matching = MaskedKey::new(&Match::default());
    let flow = Flow::new(None, matching, actions.into(), Priority::default(), Expiry::default(), &SEED);
    let change = Change {
        flow: FlowId { slot: 1, incarnation: 1 },
        generation: Generation(1),
        operation: Operation::Install(flow),
    };
    let mut done = vec![];
    nic.install_queue().expect("a queue").submit(&mut vec![change], &mut done);
    done.remove(0).result.expect("the flow is installed");

    let frame = frames::udp(9999);
    let injector = nic.injector().expect("a NIC in software");
    let verdict = if case.tunnel == GTPU {
        let packet = &frame[14..];
        let message = [&[0x30, 255, 0, 46, 0, 0, 0, 1][..], packet].concat();
        let mut carrier = frames::udp(2152);
        carrier.truncate(42);
        carrier.extend(message);
        let length = u16::try_from(carrier.len()).unwrap();
        set_lengths(&mut carrier, length);
        injector.inject(PortNumber(3), &carrier)
    } else {
        injector.inject(PortNumber(2), &frame)
    };
    let mut sent = verdict.expect("the frame is taken").sent;
    assert_eq!(sent.len(), 1, "{:?}", case.fields);
    sent.remove(0).1
}

/// Puts right the lengths of IPv4 and UDP, and the checksum of IPv4.
fn set_lengths(frame: &mut [u8], length: u16) {
    frame[16..18].copy_from_slice(&(length - 14).to_be_bytes());
    frame[38..40].copy_from_slice(&(length - 34).to_be_bytes());
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!u16::try_from(folded).unwrap()).to_be_bytes());
}

/// A capture in the classic format, of Ethernet.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65535, 1].map(u32::to_be_bytes).concat();
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap();
        bytes.extend([0, 0, length, length].map(u32::to_be_bytes).concat());
        bytes.extend(frame);
    }
    bytes
}

/// What `tshark` says of the frames of a capture, field by field, all occurrences.
fn dissected(path: &std::path::Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(path).args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]);
    for protocol in ["ip", "udp", "tcp"] {
        tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    for field in fields {
        tshark.args(["-e", field]);
    }
    let ran = tshark.output().expect("tshark is installed: scripts/setup test");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).expect("text");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn tshark_reads_every_encapsulation_with_its_options_and_finds_its_checksums_good() {
    let cases = cases();
    let mut wanted: Vec<_> = cases.iter().flat_map(|case| FAMILIES.map(|family| (case, family))).collect();
    // Linux sends no UDP checksum over IPv6 where none is asked for (RFC 6935); tshark calls that illegal.
    let is_over_udp = |case: &Case| case.protocols.starts_with("udp");
    let has_checksum =
        |case: &Case| case.fields.iter().any(|(field, value)| *field == Field::TunnelFlags && value & CSUM != 0);
    wanted.retain(|(case, (_, shown))| shown[0].0 == "ip.src" || !is_over_udp(case) || has_checksum(case));
    assert_eq!(wanted.len(), 2 * cases.len() - 1);
    let frames: Vec<_> = wanted.iter().map(|(case, (addresses, _))| sent(case, *addresses)).collect();
    let path = std::env::temp_dir().join(format!("sluice-tunnels-{}.pcap", std::process::id()));
    std::fs::write(&path, capture(&frames)).expect("the capture is written");

    // Checksums: 0 is bad, 1 good, 2 not looked at, 3 not there.
    let common = ["frame.protocols", "_ws.expert.message", "ip.checksum.status", "udp.checksum.status"];
    for (number, (case, (_, addresses))) in wanted.iter().enumerate() {
        let fields: Vec<_> = case.says.iter().chain(addresses).map(|(field, _)| *field).collect();
        let all = dissected(&path, &[&common[..], &fields].concat());
        let said = &all[number];
        let is_v6 = addresses[0].0 == "ipv6.src";
        let network = if is_v6 { "ipv6" } else { "ip" };
        assert_eq!(said[0], format!("eth:ethertype:{network}:{}", case.protocols), "frame {number}");
        assert_eq!(said[1], "", "frame {number}: complaints");
        assert!(said[2].split(',').all(|status| status == "1"), "frame {number}: IPv4 checksums {}", said[2]);
        assert!(!said[3].contains('0'), "frame {number}: UDP checksums {}", said[3]);
        if is_over_udp(case) && has_checksum(case) {
            assert!(said[3].starts_with('1'), "frame {number}: the outer UDP checksum is there and good, {}", said[3]);
        }
        for ((field, value), is) in case.says.iter().chain(addresses).zip(&said[common.len()..]) {
            assert!(
                is == value || is.starts_with(&format!("{value},")),
                "frame {number}: {field} is {is}, not {value}"
            );
        }
    }
    std::fs::remove_file(path).expect("the capture is removed");
}
