//! Records and files, whole and broken.

use std::collections::HashSet;
use std::fs;

use parking_lot::Mutex;
use proptest::prelude::*;
use sluice_flow::field::FIELDS;
use sluice_flow::port::GonePort;
use sluice_flow::{ActionList, ChainId, Match, PortNumber};

use super::super::frame::{Contents, FRAME_HEADER, FrameWriter, HEADER, Header};
use super::super::load::children_first;
use super::super::record::{Encoder, WallTime};
use super::super::{RecordError, compact};
use super::*;
use tempfile::TempDir;

const KEYS: [&str; 8] = [
    "in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst=53)",
    "in_port(1),eth(src=02:00:00:00:00:01),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x86dd),ipv6(src=fd00::/ffff::,frag=no))",
    "in_port(1),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.0/255.0.0.0,op=1)",
    "recirc_id(0x5),ct_state(+est+trk),ct_label(0x1/0xffff),in_port(2),eth_type(0x0800),ipv4(frag=later)",
    "tunnel(tun_id=0x2a,src=172.31.0.2,dst=172.31.0.1,flags(-df+csum+key)),in_port(3)",
    "in_port(1),eth_type(0x8847),mpls(label=100,tc=0,ttl=64,bos=1)",
    "in_port(1),eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=135),nd(target=fe80::1,sll=02:00:00:00:00:01)",
    "ufid:01234567-89ab-4def-8123-456789abcdef, in_port(7)",
];
/// Of the first file of a log.
const HEADER_OF_1: Header = Header { contents: Contents::Changes, number: 1, first: 0 };
const ACTIONS: [&str; 6] =
    ["drop", "2", "set(ipv4(src=10.0.0.9)),3", "push_vlan(vid=5,pcp=0),4", "recirc(0x6)", "meter(1),2"];

#[test]
fn every_flow_is_read_back_as_it_was_accepted() {
    let scratch = TempDir::new().unwrap();
    let mut wanted = Vec::new();
    for (index, key) in KEYS.iter().enumerate() {
        let flow = flow(key, ACTIONS[index % ACTIONS.len()]);
        let expiry = Expiry {
            idle: (index % 2 == 0).then_some(Duration::from_millis(1500)),
            hard: (index % 3 == 0).then_some(Duration::from_nanos(1)),
            permanent: index % 4 == 0,
        };
        let actions = flow.actions.clone();
        wanted.push(Flow::new(Some(flow.ufid), flow.matching(), actions, Priority::default(), expiry, &SEED));
    }
    let prior = Priority::new(15).unwrap();
    let udp = udp(53, "2");
    wanted.push(Flow::new(None, udp.matching(), udp.actions.clone(), prior, Expiry::default(), &SEED));
    {
        let kept = Kept::start(scratch.path());
        wanted.iter().for_each(|flow| kept.add(flow));
    }
    assert_eq!(read(scratch.path()).unwrap().0, flows(&wanted));
    let kept = Kept::start(scratch.path());
    assert_eq!(kept.restored.flows, wanted.len() as u64);
    for flow in &wanted {
        let id = kept.table.find(flow.ufid).unwrap();
        assert_eq!(kept.table.view(id).unwrap().flow, *flow);
    }
}

#[test]
fn every_field_has_a_name_of_its_own_and_is_kept_under_it() {
    let names: HashSet<_> = FIELDS.iter().map(|spec| spec.field.to_string()).collect();
    assert_eq!(names.len(), FIELDS.len(), "records name fields by these");
    for spec in FIELDS {
        let mut matching = Match::default();
        matching.set(spec.field, 0x5555_5555_5555_5555_5555_5555_5555_5555, spec.field.full_mask());
        let matching = MaskedKey::new(&matching);
        assert_eq!(round_trip(matching.clone()), matching, "{}", spec.field);
    }
}

#[test]
fn fields_that_share_bits_are_kept_under_the_name_that_the_match_gives_them() {
    let scratch = TempDir::new().unwrap();
    {
        let kept = Kept::start(scratch.path());
        kept.add(&flow("in_port(1),eth_type(0x0806),arp(sip=10.0.0.1)", "2"));
        kept.add(&flow("in_port(1),eth_type(0x0800),ipv4(proto=132,frag=no),sctp(src=1)", "2"));
    }
    let text = String::from_utf8_lossy(&fs::read(scratch.path().join("1.log")).unwrap()).into_owned();
    for (name, is_there) in [("arp.sip", true), ("sctp.src", true), ("ipv4.src", false), ("tcp.src", false)] {
        assert_eq!(text.contains(name), is_there, "{name}");
    }
}

proptest! {
    #[test]
    fn any_mask_is_kept(values in proptest::collection::vec((0..FIELDS.len(), any::<u128>(), any::<u128>()), 0..40)) {
        let mut matching = Match::default();
        for (row, value, mask) in values {
            matching.set(FIELDS[row].field, value, mask);
        }
        matching.normalise();
        let matching = MaskedKey::new(&matching);
        prop_assert_eq!(round_trip(matching.clone()), matching);
    }
}

/// What is read back of a flow with a match.
fn round_trip(matching: MaskedKey<'_>) -> MaskedKey<'static> {
    let scratch = TempDir::new().unwrap();
    let flow = Flow::new(None, matching, ActionList::default(), Priority::default(), Expiry::default(), &SEED);
    let mut bytes = HEADER_OF_1.to_bytes().to_vec();
    Encoder::of(HEADER_OF_1, None).wanted(&mut bytes, &flow, WallTime(1), &[]).unwrap();
    fs::write(scratch.path().join("1.log"), bytes).unwrap();
    let (found, _) = read(scratch.path()).unwrap();
    let flow = found.into_values().next().unwrap();
    MaskedKey::new(&flow.matching().expand())
}

#[test]
fn nothing_is_written_behind_a_torn_end() {
    let scratch = TempDir::new().unwrap();
    let early: Vec<_> = (1..=9).map(|port| udp(port, "2")).collect();
    {
        let kept = Kept::start(scratch.path());
        early.iter().for_each(|flow| kept.add(flow));
    }
    let first = scratch.path().join("1.log");
    let whole = fs::read(&first).unwrap();
    fs::write(&first, &whole[..whole.len() - 1]).unwrap();
    let late = udp(9999, "2");
    Kept::start(scratch.path()).add(&late);
    assert_eq!(fs::read(&first).unwrap().len(), whole.len() - 1);
    let (found, log) = read(scratch.path()).unwrap();
    assert_eq!(found, flows(early.iter().chain([&late])));
    assert_eq!((log.loss(), log.summary.torn.len()), (None, 1), "the second file knows where the first has ended");
}

#[test]
fn what_this_agent_does_not_know_is_refused_by_file_and_place_and_nothing_is_changed() {
    const NUMBER: Header = Header { contents: Contents::Changes, number: 5, first: 0 };
    let frame = |body: &[u8]| {
        let mut bytes = NUMBER.to_bytes().to_vec();
        FrameWriter::of(NUMBER).frame(&mut bytes, |out| out.extend_from_slice(body));
        bytes
    };
    let with_header = |at: usize, value: u8| {
        let mut bytes = NUMBER.to_bytes();
        bytes[at] = value;
        let checksum = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes.to_vec()
    };
    let mut shape = vec![1, 0, 0, 0, 0, 7];
    shape.extend_from_slice(b"nothing");
    shape.push(4);
    shape.extend_from_slice(&[0xff; 16]);
    let mut wanted = Vec::new();
    Encoder::of(NUMBER, None).wanted(&mut wanted, &udp(1, "2"), WallTime(1), &[]).unwrap();
    let length = u32::from_le_bytes(wanted[4..8].try_into().unwrap()) as usize;
    let second = wanted[FRAME_HEADER + length + FRAME_HEADER..].to_vec();
    let cases = [
        (with_header(12, 3), 0, RecordError::UnknownVersion(3)),
        (with_header(14, 9), 0, RecordError::UnknownContents(9)),
        (b"[[port]]\nnumber = 1\n".to_vec(), 0, RecordError::NotALog),
        (b"x".to_vec(), 0, RecordError::NotALog),
        (frame(&[200, 1, 2]), HEADER, RecordError::UnknownKind(200)),
        (frame(&[3, 1, 2]), HEADER, RecordError::Short),
        (frame(&shape), HEADER, RecordError::UnknownField("nothing".into())),
        (frame(&second), HEADER, RecordError::UnknownShape(0)),
    ];
    for (bytes, place, expected) in cases {
        let scratch = TempDir::new().unwrap();
        let path = scratch.path().join("5.log");
        fs::write(&path, &bytes).unwrap();
        let error = Kept::start_at(scratch.path(), SystemTime::now()).err().unwrap();
        let text = error.to_string();
        let JournalError::Unreadable { at, reason, .. } = error else { panic!("{text}") };
        assert_eq!((at, &reason), (place, &expected));
        assert!(text.contains("/5.log, at byte"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_flow_keeps_its_ufid_under_another_seed() {
    let scratch = TempDir::new().unwrap();
    let (wanted, other) = (udp(53, "2"), Seed([4; 16]));
    Kept::start(scratch.path()).add(&wanted);
    let (_, log) = read(scratch.path()).unwrap();
    log.visit(0..log.len(), &mut ActionTexts::default(), &other, &mut |flow, _| {
        assert_eq!(flow.ufid, wanted.ufid);
        assert_eq!(flow.identity(&other), other.names(&wanted.matching(), wanted.priority).0);
        assert_ne!(flow.identity(&other), wanted.identity(&SEED));
    })
    .unwrap();
}

#[test]
fn two_agents_do_not_keep_their_flows_in_one_folder() {
    let scratch = TempDir::new().unwrap();
    let kept = Kept::start(scratch.path());
    let error = Kept::start_at(scratch.path(), SystemTime::now()).err().unwrap();
    assert_eq!(error.to_string(), format!("another sluiced keeps its flows in {}", scratch.path().display()));
    drop(kept);
    Kept::start(scratch.path());
}

#[test]
fn a_life_is_as_old_as_its_acceptance_and_no_agent_was_there_since_the_last_change() {
    let scratch = TempDir::new().unwrap();
    let (old, new) = (udp(1, "2"), udp(2, "2"));
    let accepted = SystemTime::now();
    let later = accepted + Duration::from_secs(100);
    {
        let kept = Kept::start_at(scratch.path(), accepted).unwrap();
        kept.add(&old);
        assert_eq!(kept.restored.away, None, "it is the first start");
    }
    {
        let kept = Kept::start_at(scratch.path(), later).unwrap();
        kept.modify(&old.with_actions(udp(1, "3").actions.clone()));
        kept.add(&new);
    }
    let kept = Kept::start_at(scratch.path(), later + Duration::from_secs(50)).unwrap();
    let age = |flow: &Flow| {
        let id = kept.table.find(flow.ufid).unwrap();
        START.since(kept.table.view(id).unwrap().accepted).as_secs()
    };
    assert_eq!((age(&old), age(&new)), (150, 50), "a change does not make a flow younger");
    let away = kept.restored.away.unwrap();
    assert!(away > Duration::from_secs(140) && away < Duration::from_secs(151) + compact::HEARTBEAT, "{away:?}");
}

#[test]
fn flows_are_as_old_as_they_are_after_a_restart_also_if_somebody_has_set_the_clock() {
    const DAY: Duration = Duration::from_secs(86_400);
    const AGE: Duration = Duration::from_secs(100);
    let right = SystemTime::now();
    // As a machine without a clock of its own has it until NTP sets it, and the other way round.
    for wrong in [SystemTime::UNIX_EPOCH, right + DAY * 3_000] {
        let scratch = TempDir::new().unwrap();
        let old = udp(1, "2");
        let wall = Arc::new(Mutex::new(wrong));
        let shown = wall.clone();
        {
            let mut kept = Kept::start_by(scratch.path(), Arc::new(move || *shown.lock()), 1_000).unwrap();
            kept.add(&old);
            kept.clock.advance(AGE);
            *wall.lock() += AGE;
            kept.keeper.look_at_clocks();
            assert!(!kept.keeper.is_compaction_due(&kept.table), "the clocks go on together");
            *wall.lock() = right;
            kept.keeper.look_at_clocks();
            assert!(kept.keeper.is_compaction_due(&kept.table));
            kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
            kept.keeper.look_at_clocks();
            assert!(!kept.keeper.is_compaction_due(&kept.table), "once");
        }
        let kept = Kept::start_at(scratch.path(), right).unwrap();
        let accepted = kept.table.view(kept.table.find(old.ufid).unwrap()).unwrap().accepted;
        assert_eq!(START.since(accepted), AGE, "{wrong:?}");
    }
}

#[test]
fn chains_come_before_those_that_jump_to_them() {
    let later = |chain: u32, actions: &str| flow(&format!("recirc_id({chain}),in_port(1)"), actions);
    let mut all: Vec<_> =
        [later(3, "recirc(2)"), later(0, "recirc(3)"), later(1, "2"), later(2, "recirc(1)"), later(9, "2")]
            .into_iter()
            .map(|flow| (flow, ()))
            .collect();
    children_first(&mut all);
    let order: Vec<_> = all.iter().map(|(flow, ())| flow.chain()).collect();
    assert_eq!(order, [1, 2, 3, 0, 9].map(ChainId));
    // No agent writes such a log; reading it must end.
    let mut cycle = vec![(later(1, "recirc(2)"), ()), (later(2, "recirc(1)"), ())];
    children_first(&mut cycle);
    assert_eq!(cycle.len(), 2);
}

#[test]
fn a_flow_that_waits_for_a_port_waits_for_it_after_a_restart() {
    let gone = |number, name: &str| GonePort { number: PortNumber(number), name: name.parse().unwrap() };
    let scratch = TempDir::new().unwrap();
    let (waits, is_back, is_changed, has_ended) = (udp(1, "2"), udp(2, "3"), udp(3, "2"), udp(4, "2"));
    let mut kept = Kept::start(scratch.path());
    for flow in [&waits, &is_back, &is_changed, &has_ended] {
        kept.add(flow);
    }
    kept.table.withhold(&gone(2, "two"), START, &mut |_| ());
    kept.table.withhold(&gone(3, "three"), START, &mut |_| ());
    kept.table.release(|port| *port == gone(3, "three"), START, &mut |_| ());
    kept.modify(&is_changed.with_actions(udp(0, "2").actions.clone()));
    kept.delete(&has_ended, EndReason::Deleted);
    for is_compacted in [false, true] {
        if is_compacted {
            kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
        }
        drop(kept);
        let (found, log) = read(scratch.path()).unwrap();
        assert_eq!(found.len(), 3);
        let withheld: Vec<_> = log.withheld.into_iter().collect();
        assert_eq!(withheld, [(waits.ufid, vec![gone(2, "two")])], "compacted: {is_compacted}");
        kept = Kept::start(scratch.path());
        assert_eq!(kept.table.withheld(), [(gone(2, "two"), 1)]);
    }
}
