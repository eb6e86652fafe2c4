//! Flow counters in blocks: told one by one, many at a time, into memory, and later.

use sluice_connectx::profile::BLUEFIELD_2;
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Action, Answers, Domain, Kind, Match, Object, Umem};
use sluice_libmlx5::verbs::Context;

use crate::rig::{
    FORMATS, datagram, device, exactly, five_tuple, object, open, play, play_in_switch, read_counter, value, walk,
};

/// Counters of a block, and bytes of what is told of each.
const BLOCK: u16 = 512;
const COUNT: usize = 16;
const ALL: usize = BLOCK as usize * COUNT;
/// Bytes of an output with nothing but status and syndrome.
const SHORT: usize = 16;

/// A block of counters by units of 128, as DPDK asks for it, and the id of the first.
fn block(context: &Context) -> (Object<'_>, u32) {
    const ALLOC_FLOW_COUNTER: u16 = 0x939;
    object(context, ALLOC_FLOW_COUNTER, &[(0xc, u32::from(BLOCK) / 128)], 16)
}

/// QUERY_FLOW_COUNTER of as many from an id on, by key and address into memory, if that is wanted.
fn query(first: u32, number: u16, clear: bool, memory: Option<(u32, u64)>) -> Vec<u8> {
    const QUERY_FLOW_COUNTER: u16 = 0x93b;
    let mut input = vec![0; 32];
    input[..2].copy_from_slice(&QUERY_FLOW_COUNTER.to_be_bytes());
    if let Some((key, address)) = memory {
        input[12..16].copy_from_slice(&key.to_be_bytes());
        input[16..24].copy_from_slice(&address.to_be_bytes());
    }
    input[24] = u8::from(clear) << 7 | u8::from(memory.is_some()) << 6;
    input[26..28].copy_from_slice(&number.to_be_bytes());
    input[28..].copy_from_slice(&first.to_be_bytes());
    input
}

/// Counters that are not zero, by place: packets and bytes.
fn moved(bytes: &[u8]) -> Vec<(usize, u64, u64)> {
    let wide = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let counters = bytes.chunks_exact(COUNT).map(|counter| (wide(&counter[..8]), wide(&counter[8..])));
    let counters = counters.enumerate().filter(|(_, counter)| *counter != (0, 0));
    counters.map(|(place, (packets, bytes))| (place, packets, bytes)).collect()
}

/// A key over memory under other keys.
struct KeyOver<'a> {
    _key: Object<'a>,
    _protection: Object<'a>,
    key: u32,
}

impl<'a> KeyOver<'a> {
    /// One that begins at an address: length, key and address of each piece.
    fn create(context: &'a Context, start: u32, parts: &[(u32, u32, u64)]) -> Self {
        const CREATE_MKEY: u16 = 0x200;
        const ALLOC_PD: u16 = 0x800;
        const LOCAL_WRITE_AND_READ: u32 = 3 << 10;
        const OVER_KEYS: u32 = 2 << 8;
        const LIST: usize = 0x110;
        let (protection, number) = object(context, ALLOC_PD, &[], 16);
        // Lists are filled up to four.
        let list = parts.len().next_multiple_of(4);
        let mut words = vec![
            (0x10, LOCAL_WRITE_AND_READ | OVER_KEYS),
            (0x14, 0xff_ffff << 8),
            (0x1c, number),
            (0x24, start),
            (0x2c, parts.iter().map(|(length, ..)| length).sum()),
            (0x60, u32::try_from(list).unwrap()),
        ];
        for ((length, key, address), at) in parts.iter().zip((LIST..).step_by(16)) {
            let [high, low] = [address >> 32, address & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
            words.extend([(at, *length), (at + 4, *key), (at + 8, high), (at + 12, low)]);
        }
        let (key, number) = object(context, CREATE_MKEY, &words, LIST + list * 16);
        Self { _key: key, _protection: protection, key: number << 8 }
    }
}

#[test]
fn a_key_over_a_umem_leads_to_its_memory() {
    const CREATE_MKEY: u16 = 0x200;
    const ALLOC_PD: u16 = 0x800;
    const LOCAL_WRITE_AND_READ: u32 = 3 << 10;
    const OVER_PAGES: u32 = 1 << 8;
    const LOG_PAGE: u32 = 12;
    play(BLUEFIELD_2, |plugged, context| {
        let (block, first) = block(context);
        let (domain, end) = (Domain::create(context, Kind::Fdb).unwrap(), Action::drop_packets().unwrap());
        let root = domain.table(0).unwrap();
        let all = root.matcher(0, &Match::default()).unwrap();
        let count = Action::count(&block, 511).unwrap();
        let rule = all.rule(&Match::default(), &[&count, &end]).unwrap();
        walk(plugged, Port::Wire, &datagram([10, 0, 0, 1]));
        let mut memory = vec![0xaa; ALL];
        let start = memory.as_ptr() as u64;
        {
            let umem = Umem::register(context, &mut memory).unwrap();
            let (_protection, domain) = object(context, ALLOC_PD, &[], 16);
            let [high, low] = [start >> 32, start & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
            let words = [
                (0x10, LOCAL_WRITE_AND_READ | OVER_PAGES),
                (0x14, 0xff_ffff << 8),
                (0x1c, domain),
                (0x20, high),
                (0x24, low),
                (0x2c, u32::try_from(ALL).unwrap()),
                (0x48, LOG_PAGE),
                (0x64, umem.number()),
            ];
            let (_key, number) = object(context, CREATE_MKEY, &words, 0x110);
            block.query(&query(first, BLOCK, false, Some((number << 8, start))), SHORT).unwrap();
        }
        assert_eq!(moved(&memory), [(511, 1, datagram([10, 0, 0, 1]).len() as u64)]);
        drop(rule);
    });
}

#[test]
fn a_block_is_told_one_by_one_many_at_a_time_and_into_memory() {
    for profile in FORMATS {
        play_in_switch(profile, |plugged, context, domain, table| {
            let (block, first) = block(context);
            let end = Action::drop_packets().unwrap();
            let (mask, _) = exactly(&five_tuple([10, 0, 0, 0]));
            let matcher = table.matcher(0, &mask).unwrap();
            let counts = [0, 300, 511].map(|offset| Action::count(&block, offset).unwrap());
            let rules: Vec<_> = (1..)
                .zip(&counts)
                .map(|(last, count)| matcher.rule(&value(&five_tuple([10, 0, 0, last])), &[count, &end]).unwrap())
                .collect();
            domain.sync().unwrap();
            let frame = |last| datagram([10, 0, 0, last]);
            for last in [1, 2, 2, 3, 3, 3] {
                walk(plugged, Port::Wire, &frame(last));
            }
            let length = frame(1).len() as u64;
            let expected = vec![(0, 1, length), (300, 2, 2 * length), (511, 3, 3 * length)];

            assert_eq!(read_counter(&block, first + 300).packets, 2);
            let output = block.query(&query(first, BLOCK, false, None), SHORT + ALL).unwrap();
            assert_eq!(moved(&output[SHORT..]), expected);

            let mut memory = vec![0xaa; ALL + 2 * COUNT];
            let start = memory.as_ptr() as u64;
            {
                let protection = context.protection_domain().unwrap();
                let region = protection.register(&mut memory).unwrap();
                let dump = query(first, BLOCK, true, Some((region.keys().0, start + COUNT as u64)));
                let output = block.query(&dump, SHORT + COUNT).unwrap();
                assert_eq!(output, [0; SHORT + COUNT], "they are in memory");
            }
            let (before, rest) = memory.split_at(COUNT);
            let (told, after) = rest.split_at(ALL);
            assert_eq!((before, after), ([0xaa; COUNT].as_slice(), [0xaa; COUNT].as_slice()));
            assert_eq!(moved(told), expected);
            let output = block.query(&query(first, BLOCK, false, None), SHORT + ALL).unwrap();
            assert_eq!(moved(&output[SHORT..]), [], "they were cleared");
            drop(rules);
        });
    }
}

#[test]
fn a_key_over_two_others_leads_to_both_in_its_own_order() {
    play(BLUEFIELD_2, |plugged, context| {
        let (block, first) = block(context);
        let (domain, end) = (Domain::create(context, Kind::Fdb).unwrap(), Action::drop_packets().unwrap());
        let root = domain.table(0).unwrap();
        let all = root.matcher(0, &Match::default()).unwrap();
        let count = Action::count(&block, 511).unwrap();
        let rule = all.rule(&Match::default(), &[&count, &end]).unwrap();
        walk(plugged, Port::Wire, &datagram([10, 0, 0, 1]));
        let mut halves = [vec![0xaa; ALL / 2 + 5], vec![0xaa; ALL / 2]];
        let starts = halves.each_ref().map(|half| half.as_ptr() as u64);
        {
            let [one, other] = &mut halves;
            let protection = context.protection_domain().unwrap();
            let regions = [protection.register(one).unwrap(), protection.register(other).unwrap()];
            let half = u32::try_from(ALL / 2).unwrap();
            let parts = [(half, regions[1].keys().0, starts[1]), (half, regions[0].keys().0, starts[0] + 5)];
            let over = KeyOver::create(context, 0x1000, &parts);
            block.query(&query(first, BLOCK, false, Some((over.key, 0x1000))), SHORT).unwrap();
        }
        let [one, other] = halves;
        assert_eq!(one[..5], [0xaa; 5]);
        assert_eq!((moved(&one[5..]), moved(&other)), (vec![(255, 1, 60)], vec![]));
        drop(rule);
    });
}

#[test]
fn a_dump_that_a_key_does_not_let_through_is_refused_and_clears_nothing() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        let (block, first) = block(&context);
        let (domain, end) = (Domain::create(&context, Kind::Fdb).unwrap(), Action::drop_packets().unwrap());
        let root = domain.table(0).unwrap();
        let all = root.matcher(0, &Match::default()).unwrap();
        let count = Action::count(&block, 7).unwrap();
        let _rule = all.rule(&Match::default(), &[&count, &end]).unwrap();
        walk(&plugged, Port::Wire, &datagram([10, 0, 0, 1]));
        let mut memory = vec![0xaa; ALL];
        let start = memory.as_ptr() as u64;
        {
            let protection = context.protection_domain().unwrap();
            let region = protection.register(&mut memory).unwrap();
            let key = region.keys().0;
            let over = KeyOver::create(&context, 0x1000, &[(u32::try_from(ALL).unwrap(), key, start)]);
            let dump = |key, address| block.query(&query(first, BLOCK, true, Some((key, address))), SHORT);
            assert!(dump(key + 0x100_0000, start).is_err(), "no such key");
            assert!(dump(key, start + 1).is_err(), "past the end");
            assert!(dump(over.key, 0x1001).is_err(), "past the end of the key over it");
            let other = KeyOver::create(&context, 0x1000, &[(u32::try_from(ALL).unwrap(), over.key + 1, 0x1000)]);
            assert!(dump(other.key, 0x1000).is_err(), "over no key");
        }
        assert_eq!(memory, [0xaa; ALL]);
        assert_eq!(read_counter(&block, first + 7).packets, 1, "as it was");
        let past = Action::count(&block, u32::from(BLOCK)).unwrap();
        assert!(all.rule(&Match::default(), &[&past, &end]).is_err(), "the block has no such counter");
        assert!(block.query(&query(first + u32::from(BLOCK), 0, false, None), SHORT + COUNT).is_err());
    }
    drop(context);
    let refusals = plugged.device().refusals();
    let told = |words: &str| assert!(refusals.iter().any(|refusal| refusal.contains(words)), "{refusals:#?}");
    for words in ["there is no key 0x", "bytes at 0x1001 are not under key", "has no flow counter 512"] {
        told(words);
    }
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn answers_come_out_of_a_file_in_order_with_the_numbers_of_their_queries_until_it_is_full() {
    const MOST: u64 = 100_000;
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    {
        let (block, first) = block(&context);
        let answers = Answers::open(&context).unwrap();
        let wanted = query(first, 0, false, None);
        let bad = query(first, BLOCK, false, Some((0xbad0_0000, 0)));
        block.query_later(&answers, &wanted, SHORT + COUNT, 0x1234_5678_9abc_def0).unwrap();
        block.query_later(&answers, &bad, SHORT, 7).unwrap();
        let next = || {
            let (number, output) = answers.next(SHORT + COUNT).unwrap();
            (number, output[0])
        };
        assert_eq!((next(), next()), ((0x1234_5678_9abc_def0, 0), (7, 3)), "numbers and statuses");
        let full = (0..MOST).find(|number| block.query_later(&answers, &wanted, SHORT + COUNT, *number).is_err());
        let full = full.expect("there is no end to it");
        assert!(full > 64, "{full} at a time");
        assert_eq!((0..full).map(|_| next().0).collect::<Vec<_>>(), (0..full).collect::<Vec<_>>());
        block.query_later(&answers, &wanted, SHORT + COUNT, 1).unwrap();
        assert_eq!(next(), (1, 0), "there is room again");
    }
    drop(context);
    let refusals = plugged.device().refusals();
    assert_eq!(refusals.len(), 2, "{refusals:#?}");
    assert!(refusals[0].contains("EAGAIN") && refusals[1].contains("there is no key 0xbad00000"), "{refusals:#?}");
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}
