use super::connection::State;
use super::*;
use crate::packet::{TunnelPorts, sample};

const DOMAIN: u32 = 7;
const INITIATOR: u32 = 1000;
const RESPONDER: u32 = u32::MAX - 100;
const WINDOW: u16 = 500;

const FIN: u16 = 0x01;
const SYN: u16 = 0x02;
const RST: u16 = 0x04;
const ACK: u16 = 0x10;

const VALID: Outcome = Outcome::Valid { changed: false };
const CHANGED: Outcome = Outcome::Valid { changed: true };

use Direction::{Initiator as Out, Responder as Back};

/// An object of a connection whose SYN was answered: the initiator's numbers begin at 1000, the responder's just before they begin
/// anew; each offers 500 bytes, and scales later windows by 2.
fn answered() -> [u8; OBJECT] {
    let mut bytes = [0; OBJECT];
    // Responder, then initiator: max_ack, max_win, reply_end, sent_end.
    let (initiator, responder) = (INITIATOR + 1, RESPONDER.wrapping_add(1));
    let window = u32::from(WINDOW);
    let words =
        [initiator, window, responder.wrapping_add(window), responder, 0, window, initiator + window, initiator];
    for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    // Last of all the responder's SYN-ACK.
    bytes[0x2f] = 2;
    // Scales, and an acknowledgement of the responder's was seen.
    (bytes[0x38], bytes[0x3a]) = (0x11, 0x10);
    // Valid and SYN received; acknowledgements as old as two windows; no retransmission counts.
    (bytes[0x3c], bytes[0x3e], bytes[0x3f]) = (0x80, 0x01, 0x07);
    bytes
}

/// A device with one object.
struct Rig(Connections);

fn rig(bytes: &[u8; OBJECT]) -> Rig {
    let mut connections = Connections::default();
    assert_eq!(connections.create(0, DOMAIN, LOG_GRANULARITY).unwrap(), 0);
    connections.write(DOMAIN, 9, u64::MAX, bytes).unwrap();
    Rig(connections)
}

/// A segment by its numbers, from the beginning of both ends: `sent` bytes sent before, and `got` bytes acknowledged.
#[derive(Clone, Copy)]
struct Sent {
    direction: Direction,
    flags: u16,
    sent: u32,
    got: u32,
    bytes: usize,
}

const fn sent(direction: Direction, flags: u16, sent: u32, got: u32, bytes: usize) -> Sent {
    Sent { direction, flags, sent, got, bytes }
}

impl Sent {
    fn frame(self, options: &[u8]) -> Vec<u8> {
        let (own, other) = match self.direction {
            Out => (INITIATOR, RESPONDER),
            Back => (RESPONDER, INITIATOR),
        };
        let mut segment = sample::tcp(1000, 80, self.flags);
        segment[4..8].copy_from_slice(&own.wrapping_add(self.sent).to_be_bytes());
        let got = if self.flags & ACK == 0 { 0 } else { other.wrapping_add(self.got) };
        segment[8..12].copy_from_slice(&got.to_be_bytes());
        segment[12] += u8::try_from(options.len() / 4 * 16).unwrap();
        segment[14..16].copy_from_slice(&WINDOW.to_be_bytes());
        segment.extend(options);
        segment.resize(segment.len() + self.bytes, 0x55);
        let mut frame = sample::ethernet(0x0800, &sample::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 6, &segment));
        // What Ethernet fills up is not data.
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

impl Rig {
    fn frame(&mut self, direction: Direction, frame: &[u8]) -> Outcome {
        let headers = Headers::parse(frame, &TunnelPorts::default());
        self.0.track(Tracked { object: 9, direction, register: 1 }, frame, &headers).unwrap()
    }

    fn track(&mut self, sent: Sent) -> Outcome {
        self.frame(sent.direction, &sent.frame(&[]))
    }

    fn all(&mut self, story: &[(Sent, Outcome)]) {
        for (number, (sent, outcome)) in story.iter().enumerate() {
            assert_eq!(self.track(*sent), *outcome, "segment {number}: {:?}", self.connection());
        }
    }

    fn bytes(&self) -> [u8; OBJECT] {
        self.0.read(DOMAIN, 9).unwrap()
    }

    fn connection(&self) -> Connection {
        Connection::decode(&self.bytes()).unwrap().unwrap()
    }
}

#[test]
fn a_connection_is_opened_used_and_closed_and_its_object_says_how_far_it_is() {
    let mut rig = rig(&answered());
    rig.all(&[
        (sent(Out, SYN, 0, 0, 0), VALID),
        (sent(Back, SYN | ACK, 0, 1, 0), VALID),
        (sent(Out, ACK, 1, 1, 0), CHANGED),
        (sent(Out, ACK, 1, 1, 200), VALID),
    ]);
    let opened = rig.connection();
    assert_eq!((opened.state, opened.assured), (State::Established, true));
    assert!(opened.initiator.data_unacked && opened.initiator.max_ack_seen);
    assert_eq!(opened.initiator.sent_end, INITIATOR + 201);
    assert_eq!(opened.initiator.max_win, 2 * u32::from(WINDOW), "scaled");
    assert_eq!(opened.responder.reply_end, RESPONDER.wrapping_add(1 + 1000));
    rig.all(&[(sent(Back, ACK, 1, 201, 300), VALID), (sent(Out, ACK, 201, 301, 0), VALID)]);
    let used = rig.connection();
    assert!(!used.initiator.data_unacked && !used.responder.data_unacked);
    assert_eq!((used.responder.max_ack, used.initiator.max_ack), (INITIATOR + 201, RESPONDER.wrapping_add(301)));
    rig.all(&[
        (sent(Out, FIN | ACK, 201, 301, 0), CHANGED),
        (sent(Back, ACK, 301, 202, 0), CHANGED),
        (sent(Back, FIN | ACK, 301, 202, 0), CHANGED),
        (sent(Out, ACK, 202, 302, 0), CHANGED),
        (sent(Out, ACK, 202, 302, 0), VALID),
        (sent(Out, SYN, 0, 0, 0), Outcome::Invalid),
    ]);
    let closed = rig.connection();
    assert_eq!(closed.state, State::TimeWait);
    assert!(closed.initiator.close_initiated && closed.responder.close_initiated);
    assert_eq!((closed.last.seq, closed.last.kind as u32), (INITIATOR + 202, 8));
}

/// As after the handshake.
fn established() -> Rig {
    let mut rig = rig(&answered());
    rig.all(&[(sent(Out, ACK, 1, 1, 0), CHANGED), (sent(Back, ACK, 1, 1, 0), VALID)]);
    rig
}

#[test]
fn a_segment_outside_of_one_of_the_four_bounds_is_invalid_and_changes_nothing() {
    // The last one inside, and the first one outside. Each end has offered 1,000 bytes by now, and two windows are 2,000.
    let bounds = [
        (sent(Out, ACK, 1001, 1, 0), sent(Out, ACK, 1002, 1, 0)),
        (sent(Out, ACK, 1_u32.wrapping_sub(1000), 1, 0), sent(Out, ACK, 1_u32.wrapping_sub(1001), 1, 0)),
        (sent(Out, ACK, 1, 1, 0), sent(Out, ACK, 1, 2, 0)),
        (sent(Out, ACK, 1, 1_u32.wrapping_sub(2000), 0), sent(Out, ACK, 1, 1_u32.wrapping_sub(2001), 0)),
        (sent(Back, ACK, 1001, 1, 0), sent(Back, ACK, 1002, 1, 0)),
    ];
    for (inside, outside) in bounds {
        let mut rig = established();
        let before = rig.bytes();
        assert_eq!(rig.track(outside), Outcome::Invalid);
        assert_eq!(rig.bytes(), before);
        assert_eq!(rig.track(inside), VALID);
    }
    // The same is said to be valid where windows are not looked at, and moves nothing but what was seen last.
    for (_, outside) in bounds {
        let mut rig = established();
        rig.0.written.get_mut(&9).unwrap()[0x38] |= 0x04;
        rig.0.written.get_mut(&9).unwrap()[0x3a] |= 0x04;
        let before = rig.connection();
        assert_eq!(rig.track(outside), VALID);
        assert_eq!((rig.connection().initiator, rig.connection().responder), (before.initiator, before.responder));
    }
}

#[test]
fn a_reset_ends_a_connection_where_the_next_byte_is_expected_and_else_may_be_challenged() {
    let mut rig = established();
    rig.all(&[(sent(Back, RST, 0, 0, 0), Outcome::Invalid), (sent(Back, RST, 5, 0, 0), VALID)]);
    assert_eq!((rig.connection().state, rig.connection().challenge_acked), (State::Established, false));
    rig.all(&[(sent(Out, ACK, 1, 1, 0), VALID)]);
    assert!(rig.connection().challenge_acked, "the other end has answered it");
    rig.all(&[(sent(Back, RST, 1, 0, 0), CHANGED), (sent(Back, RST | ACK, 1, 0, 0), VALID)]);
    assert_eq!(rig.connection().state, State::TimeWait);
    // Right behind data of the same end.
    let mut rig = established();
    rig.all(&[(sent(Back, ACK, 1, 1, 20), VALID), (sent(Back, RST, 21, 0, 0), CHANGED)]);
}

#[test]
fn a_syn_within_a_connection_passes_and_its_answer_is_a_challenge() {
    let mut rig = established();
    let before = rig.connection();
    rig.all(&[
        (sent(Out, SYN, 70_000, 0, 0), VALID),
        (sent(Back, SYN, 0, 0, 0), Outcome::Invalid),
        (sent(Out, SYN | ACK, 0, 0, 0), Outcome::Invalid),
    ]);
    assert_eq!(rig.connection(), Connection { last: rig.connection().last, ..before });
    assert_eq!((rig.connection().last.kind as u32, rig.connection().last.seq), (1, INITIATOR + 70_000));
    rig.all(&[(sent(Back, ACK, 1, 1, 0), VALID)]);
    assert!(rig.connection().challenge_acked);
}

#[test]
fn acknowledgements_again_count_up_to_what_the_field_holds() {
    let mut rig = established();
    for count in [0, 1, 2, 3, 4, 5, 6, 7, 7] {
        assert_eq!(rig.track(sent(Out, ACK, 1, 1, 10)), VALID);
        assert_eq!(rig.connection().retransmissions, count);
    }
    assert!(!rig.connection().retransmission_limit_exceeded, "the limit is seven");
    rig.all(&[(sent(Out, ACK, 11, 1, 10), VALID)]);
    assert_eq!(rig.connection().retransmissions, 0);
}

#[test]
fn blocks_that_are_acknowledged_selectively_count_if_both_ends_agreed_to_that() {
    // Two that fill up, and two blocks of which the second ends 60 bytes after the beginning.
    let block = |end: u32| [INITIATOR + end - 10, INITIATOR + end].map(u32::to_be_bytes).concat();
    let options = [&[1, 1, 5, 18][..], &block(40), &block(60)].concat();
    for permitted in [false, true] {
        let mut rig = established();
        rig.0.written.get_mut(&9).unwrap()[0x3e] |= u8::from(permitted) << 5;
        rig.all(&[(sent(Out, ACK, 1, 1, 59), VALID)]);
        assert_eq!(rig.frame(Back, &sent(Back, ACK, 1, 1, 0).frame(&options)), VALID);
        let expected = INITIATOR + 1000 + if permitted { 60 } else { 1 };
        assert_eq!(rig.connection().initiator.reply_end, expected);
    }
    // A block that was never sent is not one of this connection.
    let mut rig = established();
    rig.0.written.get_mut(&9).unwrap()[0x3e] |= 1 << 5;
    assert_eq!(rig.frame(Back, &sent(Back, ACK, 1, 1, 0).frame(&options)), Outcome::Invalid);
}

#[test]
fn what_is_not_tcp_or_makes_no_sense_is_bad_and_what_is_frozen_or_not_written_is_untracked() {
    let mut rig = established();
    let before = rig.bytes();
    let datagram = sample::ethernet(0x0800, &sample::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &sample::udp(1, 2, &[])));
    let good = sent(Out, ACK, 1, 1, 10).frame(&[]);
    let (mut short, mut long) = (good.clone(), good.clone());
    short[46] = 0x40;
    long[46] = 0xf0;
    let (mut cut, mut flags) = (good.clone(), good.clone());
    cut.truncate(60);
    flags[47] = 0x03;
    for bad in [&datagram, &short, &long, &cut, &flags] {
        assert_eq!(rig.frame(Out, bad), Outcome::Bad);
    }
    assert_eq!(rig.bytes(), before);
    rig.0.written.get_mut(&9).unwrap()[0x3c] |= 0x08;
    let frozen = rig.bytes();
    assert_eq!([rig.frame(Out, &good), rig.frame(Out, &datagram)], [Outcome::Untracked; 2]);
    assert_eq!(rig.bytes(), frozen);
    rig.0.write(DOMAIN, 9, u64::MAX, &[0; OBJECT]).unwrap();
    assert_eq!(rig.frame(Out, &good), Outcome::Untracked);
    let headers = Headers::parse(&good, &TunnelPorts::default());
    let other = Tracked { object: 64, direction: Out, register: 1 };
    assert!(rig.0.track(other, &good, &headers).unwrap_err().contains("does not exist"));
}

#[test]
fn an_outcome_is_the_low_byte_of_a_register() {
    let outcomes = [VALID, CHANGED, Outcome::Invalid, Outcome::Untracked, Outcome::Bad];
    let bits = outcomes.map(|outcome| {
        let mut register = 0xdead_beef;
        outcome.put(&mut register);
        register
    });
    assert_eq!(bits, [0xdead_be00, 0xdead_be02, 0xdead_be40, 0xdead_be80, 0xdead_be41]);
}

#[test]
fn objects_come_in_blocks_and_what_is_written_into_them_is_checked() {
    let mut connections = Connections::default();
    for log in [0, LOG_GRANULARITY - 1, LOG_MAX_ALLOCATION + 1, 31] {
        let refused = connections.create(0, DOMAIN, log).unwrap_err();
        assert!(refused.reason.contains("log_conn_track_granularity"), "{refused}");
    }
    let first = connections.create(3, DOMAIN, LOG_GRANULARITY).unwrap();
    let second = connections.create(3, DOMAIN, LOG_MAX_ALLOCATION).unwrap();
    assert_eq!((first, second), (0, 64));
    for _ in 1..16 {
        let _ = connections.create(0, DOMAIN, LOG_MAX_ALLOCATION);
    }
    assert!(connections.create(0, DOMAIN, LOG_MAX_ALLOCATION).unwrap_err().reason.contains("room for"));
    let mut wrong = |at: usize, value: u8| {
        let mut bytes = answered();
        bytes[at] = value;
        connections.write(DOMAIN, first, u64::MAX, &bytes).unwrap_err()
    };
    assert!(wrong(0x3c, 0xe0).contains("state of a connection 0x6 is not modelled"));
    assert!(wrong(0x2f, 3).contains("last_index 0x3 is not modelled"));
    for (at, bit) in
        [(0x2e, 0x40), (0x2f, 0x40), (0x30, 1), (0x37, 1), (0x39, 1), (0x3b, 1), (0x3d, 1), (0x3e, 0x80), (0x3f, 0x80)]
    {
        assert!(wrong(at, bit).contains("a reserved bit"), "{at:#x}");
    }
    let data = answered();
    for (domain, object, why) in [(DOMAIN + 1, first, "is of PD 0x7"), (DOMAIN, u32::MAX, "does not exist")] {
        assert!(connections.write(domain, object, u64::MAX, &data).unwrap_err().contains(why));
        assert!(connections.read(domain, object).unwrap_err().contains(why));
    }
    assert_eq!(connections.query(3, first).unwrap(), (DOMAIN, [0; OBJECT]));
    assert!(connections.query(4, first).is_err() && connections.destroy(4, first).is_err());
    // The first four bytes alone.
    connections.write(DOMAIN, first, 0xf << 60, &data).unwrap();
    let mut written = [0; OBJECT];
    written[..4].copy_from_slice(&data[..4]);
    assert_eq!(connections.query(0, first).unwrap(), (DOMAIN, written));
    connections.destroy(3, first).unwrap();
    assert!(connections.destroy(3, first).is_err() && connections.query(0, first).is_err());
    assert!(connections.written.is_empty());
}
