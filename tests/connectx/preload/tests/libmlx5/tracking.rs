//! Connection tracking by ASO objects: a send queue writes and reads them, rules have packets looked at, and the next table tells what
//! came of it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sluice_connectx::profile::{BLUEFIELD_2, BLUEFIELD_3, CONNECTX_6_DX, CONNECTX_7};
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Action, Match, Object, Uar, Umem, event_queue};
use sluice_libmlx5::verbs::{Context, MemoryRegion, ProtectionDomain};

use crate::frames::{ethernet, ipv4, segment};
use crate::rig::field as f;
use crate::rig::{agreeing, counters, device, exactly, object, open, play_in_switch, read_counter, try_object, walk};

const OBJECT: usize = 64;
const WORDS: usize = OBJECT / 4;
const TYPE: u8 = 0x31;
const INITIATOR: u32 = 1;
const RESPONDER: u32 = 2;

/// A block of 2^`log` objects.
fn connections(context: &Context, pd: u32, log: u32) -> std::io::Result<(Object<'_>, u32)> {
    let words = [(0x4, TYPE.into()), (0xc, log << 24), (0x20, pd)];
    try_object(context, 0xa00, &words, 0x10 + 0x40 + OBJECT)
}

/// The first object of a block as a command tells it. The kernel lets no program ask for others.
fn told(block: &Object<'_>, first: u32) -> Vec<u32> {
    let mut query = [0; 16];
    query[..2].copy_from_slice(&0xa02_u16.to_be_bytes());
    query[7] = TYPE;
    query[8..12].copy_from_slice(&first.to_be_bytes());
    let output = block.query(&query, 0x10 + 0x40 + OBJECT).unwrap();
    output[0x50..].as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

/// Memory of a queue: completions, requests, doorbell records, and what is read.
#[repr(align(4096))]
struct Pages([AtomicU32; 0xc00]);

const REQUESTS: u32 = 0x1000;
const RECORDS: u32 = 0x2000;
const SEEN: u32 = 0x2800;

impl Pages {
    /// No completion is there yet, of which the last word would say so.
    fn new() -> Box<Self> {
        let pages = Box::new(Self([const { AtomicU32::new(0) }; 0xc00]));
        (0..64).for_each(|number| pages.put(64 * number + 60, u32::MAX));
        pages
    }

    fn word(&self, at: u32) -> &AtomicU32 {
        &self.0[usize::try_from(at / 4).unwrap()]
    }

    fn put(&self, at: u32, word: u32) {
        self.word(at).store(word.to_be(), Ordering::Release);
    }
}

/// A send queue that accesses objects, and what it is made of.
struct Queue<'a> {
    pages: &'a Pages,
    posted: u32,
    region: MemoryRegion<'a>,
    _made: [Object<'a>; 2],
    _memory: (Umem<'a>, Uar<'a>),
}

impl<'a> Queue<'a> {
    fn new(context: &'a Context, pages: &'a Pages, protection: &'a ProtectionDomain<'_>, pd: u32) -> Self {
        let (uar, umem) = (Uar::allocate(context).unwrap(), Umem::share(context, &pages.0).unwrap());
        let completion = [
            (0x10, 1 << 25),
            (0x14, umem.number()),
            (0x1c, 6 << 24 | uar.number()),
            (0x24, event_queue(context).unwrap()),
            (0x4c, RECORDS),
            (0x58, umem.number()),
        ];
        let (completion, cqn) = object(context, 0x400, &completion, 0x110);
        let send = [
            (0x28, cqn),
            (0x50, 1 << 28),
            (0x58, pd),
            (0x5c, uar.number()),
            (0x64, RECORDS + 64),
            (0x70, 6 << 16 | 6),
            (0x78, umem.number()),
            (0x7c, umem.number()),
            (0x84, REQUESTS),
        ];
        let (send, sqn) = object(context, 0x904, &send, 0x110);
        let mut ready = [0; 0x110];
        ready[..2].copy_from_slice(&0x905_u16.to_be_bytes());
        ready[8..12].copy_from_slice(&sqn.to_be_bytes());
        ready[0x21] = 1 << 4;
        send.modify(&ready).unwrap();
        let region = protection.share(&pages.0).unwrap();
        Self { pages, posted: 0, region, _made: [send, completion], _memory: (umem, uar) }
    }

    /// Posts a request, and waits for its completion, of which it gives the opcode.
    fn post(&mut self, request: &[u32; 2 * WORDS]) -> u32 {
        let at = REQUESTS + self.posted * 128;
        for (at, word) in (at..).step_by(4).zip(request) {
            self.pages.put(at, *word);
        }
        let completion = self.posted * 64 + 60;
        self.posted += 1;
        self.pages.put(RECORDS + 68, self.posted * 2);
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let word = u32::from_be(self.pages.word(completion).load(Ordering::Acquire));
            // The last byte comes last.
            if word & 0xff != 0xff {
                return word >> 4 & 0xf;
            }
            assert!(Instant::now() < end, "no completion");
            std::thread::yield_now();
        }
    }

    /// An object as a request reads it.
    fn read(&mut self, object: u32) -> [u32; WORDS] {
        let address = std::ptr::from_ref(self.pages.word(SEEN)) as u64;
        assert_eq!(self.post(&read(object, address, self.region.keys().0)), 0);
        let words = (SEEN..).step_by(4).map(|at| u32::from_be(self.pages.word(at).load(Ordering::Acquire)));
        words.take(WORDS).collect::<Vec<_>>().try_into().unwrap()
    }
}

/// Writes an object, as drivers do.
fn write(object: u32, data: &[u32; WORDS]) -> [u32; 2 * WORDS] {
    const BYTE_BY_BYTE: u32 = 1 << 30;
    const ALWAYS_TRUE: u32 = 1;
    const EITHER: u32 = 1 << 6;
    let mut request = [0; 2 * WORDS];
    (request[0], request[1], request[2], request[3]) = (1 << 24 | 0x2d, 8, 0x08, object);
    request[7] = BYTE_BY_BYTE | ALWAYS_TRUE << 20 | ALWAYS_TRUE << 16 | EITHER;
    (request[14], request[15]) = (u32::MAX, u32::MAX);
    request[WORDS..].copy_from_slice(data);
    request
}

/// Reads one to an address under a key: the conditions never hold.
fn read(object: u32, address: u64, key: u32) -> [u32; 2 * WORDS] {
    let mut request = write(object, &[u32::MAX; WORDS]);
    let [high, low] = [address >> 32, address & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
    (request[4], request[5], request[6], request[7]) = (high, low | 1, key, 1 << 30);
    request
}

/// First numbers of the initiator and of the responder, who offer this window and do not scale.
const OUT: u32 = 5000;
const BACK: u32 = 0xffff_fff0;
const WINDOW: u16 = 4096;

/// A connection whose SYN has been answered.
fn answered() -> [u32; WORDS] {
    const VALID: u32 = 1 << 31;
    const NO_SCALE: u32 = 0xf;
    let (out, back, window) = (OUT + 1, BACK + 1, u32::from(WINDOW));
    [
        [out, window, back.wrapping_add(window), back],
        [0, window, out + window, out],
        [back, out, BACK, u32::from(WINDOW) << 16 | 2],
        [0, 0, NO_SCALE << 28 | 1 << 24 | NO_SCALE << 12, VALID],
    ]
    .concat()
    .try_into()
    .unwrap()
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A segment of the initiator or of the responder: how many bytes it has sent and acknowledges, beginning with the SYN, and how many it
/// carries.
fn frame(from: Port, flags: u8, sent: u32, acknowledged: u32, bytes: usize) -> Vec<u8> {
    let (client, server) = ([10, 0, 0, 1], [10, 9, 9, 9]);
    let ((source, destination), ports, (own, other)) = match from {
        Port::Wire => ((server, client), (80, 1000), (BACK, OUT)),
        Port::Vport(_) => ((client, server), (1000, 80), (OUT, BACK)),
    };
    let mut segment = segment(ports.0, ports.1, flags);
    segment[4..8].copy_from_slice(&own.wrapping_add(sent).to_be_bytes());
    if flags & ACK != 0 {
        segment[8..12].copy_from_slice(&other.wrapping_add(acknowledged).to_be_bytes());
    }
    segment[14..16].copy_from_slice(&WINDOW.to_be_bytes());
    segment.resize(segment.len() + bytes, 0x5a);
    ethernet(0x0800, &ipv4(source, destination, 6, &segment))
}

const HOST: Port = Port::Vport(0);

/// What came of a packet, by the register.
const VALID: u128 = 0x00;
const CHANGED: u128 = 0x02;
const INVALID: u128 = 0x40;
const BAD: u128 = 0x41;
const UNTRACKED: u128 = 0x80;
const OUTCOMES: [u128; 5] = [VALID, CHANGED, INVALID, BAD, UNTRACKED];

/// Plays with rules that have the connection in object 9 of a block look at packets of the host as those of its initiator, and at
/// those from the wire as those of the responder. What tells the outcome of a packet is the counter that moves.
fn play(
    profile: sluice_connectx::profile::Profile,
    register: (f::Field, u8),
    story: impl FnOnce(&mut Queue<'_>, u32, &dyn Fn(Port, &[u8]) -> u128),
) {
    play_in_switch(profile, |plugged, context, domain, first| {
        let (_pd, pd) = object(context, 0x800, &[], 16);
        let pages = Pages::new();
        let protection = context.protection_domain().unwrap();
        let mut queue = Queue::new(context, &pages, &protection, pd);
        let (block, number) = connections(context, pd, 6).unwrap();
        let second = domain.table(2).unwrap();
        let (out, back) = (
            domain.aso(&block, 9, INITIATOR, register.1).unwrap(),
            domain.aso(&block, 9, RESPONDER, register.1).unwrap(),
        );
        let (onward, drop) = (Action::to_table(&second).unwrap(), Action::drop_packets().unwrap());
        let of = |port| exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, 6), (f::TCP_DESTINATION, port)]);
        let (mask, to_server) = of(80);
        let matcher = first.matcher(0, &mask).unwrap();
        let _out = matcher.rule(&to_server, &[&out, &onward]).unwrap();
        let _back = matcher.rule(&of(1000).1, &[&back, &onward]).unwrap();
        // A packet that is no TCP, looked at nevertheless.
        let (mask, datagrams) = exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, 17)]);
        let others = first.matcher(1, &mask).unwrap();
        let _others = others.rule(&datagrams, &[&out, &onward]).unwrap();
        let low = |outcome| Match::default().with(register.0.0, 32, outcome);
        let outcomes = second.matcher(0, &low(0xff)).unwrap();
        let blocks: Vec<_> = OUTCOMES.iter().map(|_| counters(context, 0)).collect();
        let actions: Vec<_> = blocks.iter().map(|(block, _)| Action::count(block, 0).unwrap()).collect();
        let _rules: Vec<_> = OUTCOMES
            .iter()
            .zip(&actions)
            .map(|(outcome, count)| outcomes.rule(&low(*outcome), &[count, &drop]).unwrap())
            .collect();
        domain.sync().unwrap();
        assert!(agreeing(plugged, profile, domain) > 0);
        let packets = || blocks.iter().map(|(block, id)| read_counter(block, *id).packets).collect::<Vec<_>>();
        let outcome = |from, frame: &[u8]| {
            let before = packets();
            walk(plugged, from, frame);
            let moved = packets().iter().zip(&before).position(|(after, before)| after > before);
            OUTCOMES[moved.expect("no counter has moved")]
        };
        story(&mut queue, number + 9, &outcome);
    });
}

#[test]
fn a_connection_is_followed_from_its_answered_syn_to_its_end() {
    let story = [
        (HOST, SYN, 0, 0, 0, VALID),
        (Port::Wire, SYN | ACK, 0, 1, 0, VALID),
        (HOST, ACK, 1, 2, 0, INVALID),
        (HOST, ACK, 1, 1, 0, CHANGED),
        (HOST, ACK, 1, 1, 1000, VALID),
        (HOST, ACK, 6000, 1, 1, INVALID),
        (Port::Wire, ACK, 1, 1001, 500, VALID),
        (Port::Wire, ACK, 1, 1002, 0, INVALID),
        (Port::Wire, RST, 0, 0, 0, INVALID),
        (Port::Wire, RST, 100, 0, 0, VALID),
        (Port::Wire, SYN | FIN, 501, 0, 0, BAD),
        (HOST, FIN | ACK, 1001, 501, 0, CHANGED),
        (Port::Wire, ACK, 501, 1002, 0, CHANGED),
        (Port::Wire, FIN | ACK, 501, 1002, 20, CHANGED),
        (HOST, ACK, 1002, 522, 0, CHANGED),
        (HOST, SYN, 90_000, 0, 0, INVALID),
    ];
    for profile in [CONNECTX_6_DX, BLUEFIELD_2, CONNECTX_7, BLUEFIELD_3] {
        play(profile, (f::REGISTER_C_3, 3), |queue, object, outcome| {
            assert_eq!(outcome(HOST, &frame(HOST, ACK, 1, 1, 0)), UNTRACKED, "nobody has written it");
            assert_eq!(queue.post(&write(object, &answered())), 0);
            assert_eq!(queue.read(object), answered());
            for (number, (from, flags, sent, acknowledged, bytes, expected)) in story.into_iter().enumerate() {
                let frame = frame(from, flags, sent, acknowledged, bytes);
                assert_eq!(outcome(from, &frame), expected, "segment {number}: {:x?}", queue.read(object));
            }
            const TIME_WAIT: u32 = 5 << 28;
            const ASSURED: u32 = 1 << 14;
            let ended = queue.read(object);
            assert_eq!(ended[15], 1 << 31 | TIME_WAIT | ASSURED);
            assert_eq!(ended[7], OUT + 1002, "the end of what the initiator has sent");
            assert_eq!(ended[3], BACK.wrapping_add(522), "and of the responder");
            assert_eq!(queue.read(object), ended, "what reads does not write");
            assert_eq!(queue.read(object - 1), [0; WORDS]);
        });
    }
}

#[test]
fn a_reset_ends_a_connection_and_one_that_is_frozen_or_no_tcp_is_not_followed() {
    for profile in [BLUEFIELD_2, CONNECTX_7] {
        play(profile, (f::REGISTER_C_5, 5), |queue, object, outcome| {
            assert_eq!(queue.post(&write(object, &answered())), 0);
            assert_eq!(outcome(HOST, &crate::frames::udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 80)), BAD);
            assert_eq!(outcome(HOST, &frame(HOST, ACK, 1, 1, 0)), CHANGED);
            let mut frozen = queue.read(object);
            frozen[15] |= 1 << 27;
            assert_eq!(queue.post(&write(object, &frozen)), 0);
            assert_eq!(outcome(Port::Wire, &frame(Port::Wire, RST | ACK, 1, 1, 0)), UNTRACKED);
            frozen[15] ^= 1 << 27;
            assert_eq!(queue.post(&write(object, &frozen)), 0);
            assert_eq!(outcome(Port::Wire, &frame(Port::Wire, RST | ACK, 1, 1, 0)), CHANGED);
            assert_eq!(outcome(HOST, &frame(HOST, ACK, 1, 1, 0)), VALID, "as after a close");
        });
    }
}

#[test]
fn an_action_that_is_changed_leads_rules_to_come_to_another_object() {
    play_in_switch(BLUEFIELD_2, |plugged, context, domain, first| {
        let (_pd, pd) = object(context, 0x800, &[], 16);
        let (block, _) = connections(context, pd, 6).unwrap();
        for (offset, flags, register) in
            [(64, INITIATOR, 3), (0, 0, 3), (0, 3, 3), (0, INITIATOR, 2), (0, INITIATOR, 7)]
        {
            assert!(domain.aso(&block, offset, flags, register).is_err(), "{offset} {flags} {register}");
        }
        let action = domain.aso(&block, 9, INITIATOR, 3).unwrap();
        for (offset, flags, register) in [(64, INITIATOR, 3), (0, 0, 3), (0, 3, 3), (0, INITIATOR, 2)] {
            assert!(action.change_aso(offset, flags, register).is_err(), "{offset} {flags} {register}");
        }
        let second = domain.table(2).unwrap();
        let onward = Action::to_table(&second).unwrap();
        let of = |port| exactly(&[(f::IP_VERSION, 4), (f::PROTOCOL, 6), (f::TCP_DESTINATION, port)]);
        let matcher = first.matcher(0, &of(80).0).unwrap();
        let _before = matcher.rule(&of(80).1, &[&action, &onward]).unwrap();
        action.change_aso(17, RESPONDER, 5).unwrap();
        let _after = matcher.rule(&of(1000).1, &[&action, &onward]).unwrap();
        domain.sync().unwrap();
        for (from, by) in [(HOST, "initiator of ASO 0x9"), (Port::Wire, "responder of ASO 0x11")] {
            let way = walk(plugged, from, &frame(from, ACK, 1, 1, 0)).to_string();
            assert!(way.contains(&format!("untracked from the {by}")), "{way}");
        }
    });
}

#[test]
fn requests_for_what_cannot_be_come_back_with_errors() {
    const ERROR: u32 = 0xd;
    let mut wrong = [answered(); 3];
    (wrong[0][15], wrong[1][11], wrong[2][12]) = (0xf << 28, 3, 1);
    let plugged = device(CONNECTX_7);
    let context = open(&plugged);
    {
        let (_pd, pd) = object(&context, 0x800, &[], 16);
        let (_other, other) = object(&context, 0x800, &[], 16);
        let (block, number) = connections(&context, pd, 6).unwrap();
        assert!(connections(&context, pd, 5).is_err(), "less than 64");
        assert!(connections(&context, pd + 100, 6).is_err(), "no such domain");
        let requests = wrong.map(|data| (pd, write(number, &data)));
        let more = [(pd, write(number + 64, &answered())), (other, write(number, &answered()))];
        let protection = context.protection_domain().unwrap();
        for (pd, request) in requests.into_iter().chain(more) {
            let pages = Pages::new();
            assert_eq!(Queue::new(&context, &pages, &protection, pd).post(&request), ERROR);
        }
        assert_eq!(told(&block, number), [0; WORDS]);
        let pages = Pages::new();
        assert_eq!(Queue::new(&context, &pages, &protection, pd).post(&write(number, &answered())), 0);
        assert_eq!(told(&block, number), answered());
    }
    drop(context);
    let complaints = plugged.device().with(|hca| hca.complaints().join("\n"));
    for why in [
        "state of a connection 0x7",
        "last_index 0x3",
        "a reserved bit of conn_track_aso",
        "does not exist",
        "is of PD",
    ] {
        assert!(complaints.contains(why), "{why} in\n{complaints}");
    }
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}
