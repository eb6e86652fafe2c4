//! Lives of TCP connections, segment by segment.

use std::time::Duration;

use crate::conntrack::frames;
use crate::conntrack::tcp::{Circumstances, Tcp};
use crate::conntrack::tcp_segment::Segment;
use crate::conntrack::timeouts::{self, Timeouts};
use crate::conntrack::tracker::Verdict;
use crate::conntrack::tuple::Direction::{self, Original, Reply};

const TIMEOUTS: timeouts::Tcp = Timeouts::DEFAULT.tcp;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A tracker with what its connection knows.
struct Life {
    tracker: Tcp,
    circumstances: Circumstances,
}

/// Sequence number, acknowledgement, window and payload of a segment.
type Numbers = (u32, u32, u16, usize);

fn bytes(flags: u8, (seq, ack, window, length): Numbers) -> Vec<u8> {
    frames::tcp(1000, 80, flags, seq, ack, window, &vec![0; length])
}

impl Life {
    fn begin(flags: u8, numbers: Numbers) -> Self {
        let bytes = bytes(flags, numbers);
        let tracker = Tcp::new(&Segment::read(&bytes).unwrap()).unwrap();
        let circumstances = Circumstances {
            seen_reply: false,
            assured: false,
            remaining: Duration::ZERO,
            timeouts: TIMEOUTS,
            shift: 0,
        };
        let mut life = Self { tracker, circumstances };
        life.see(Original, flags, numbers);
        life
    }

    fn see(&mut self, direction: Direction, flags: u8, numbers: Numbers) -> Verdict {
        self.see_bytes(direction, &bytes(flags, numbers))
    }

    fn see_bytes(&mut self, direction: Direction, bytes: &[u8]) -> Verdict {
        let verdict = self.tracker.follow(direction, &Segment::read(bytes).unwrap(), self.circumstances);
        if let Verdict::Refresh { timeout, assures } = verdict {
            self.circumstances.assured |= assures;
            self.circumstances.remaining = timeout;
        }
        if direction == Reply && !matches!(verdict, Verdict::Invalid(_)) {
            self.circumstances.seen_reply = true;
        }
        verdict
    }

    /// A connection after its handshake: the client goes on at 101, the server at 501.
    fn established() -> Self {
        let mut life = Self::begin(SYN, (100, 0, 1000, 0));
        assert_eq!(life.see(Reply, SYN | ACK, (500, 101, 2000, 0)), lives(TIMEOUTS.syn_received));
        let verdict = life.see(Original, ACK, (101, 501, 1000, 0));
        assert_eq!(verdict, Verdict::Refresh { timeout: TIMEOUTS.established, assures: true });
        life
    }
}

fn lives(timeout: Duration) -> Verdict {
    Verdict::Refresh { timeout, assures: false }
}

fn is_invalid(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Invalid(_))
}

#[test]
fn three_segments_make_a_connection_that_is_remembered_for_days() {
    assert!(Life::established().tracker.is_established());
}

#[test]
fn each_step_of_a_close_has_its_own_time() {
    let mut life = Life::established();
    assert_eq!(life.see(Original, FIN | ACK, (101, 501, 1000, 0)), lives(TIMEOUTS.fin_wait));
    assert_eq!(life.see(Reply, ACK, (501, 102, 2000, 0)), lives(TIMEOUTS.close_wait));
    assert_eq!(life.see(Reply, FIN | ACK, (501, 102, 2000, 0)), lives(TIMEOUTS.last_ack));
    assert_eq!(life.see(Original, ACK, (102, 502, 1000, 0)), lives(TIMEOUTS.time_wait));
}

#[test]
fn a_syn_after_a_close_begins_a_new_connection() {
    let mut life = Life::established();
    life.see(Original, FIN | ACK, (101, 501, 1000, 0));
    life.see(Reply, FIN | ACK, (501, 102, 2000, 0));
    life.see(Original, ACK, (102, 502, 1000, 0));
    assert_eq!(life.see(Original, SYN, (9000, 0, 1000, 0)), Verdict::Reopen);
    assert_eq!(life.see(Reply, SYN, (9000, 0, 1000, 0)), Verdict::Reopen, "the ends may change roles");
}

#[test]
fn a_refusal_ends_an_unanswered_connection_at_once() {
    let mut life = Life::begin(SYN, (100, 0, 1000, 0));
    assert_eq!(life.see(Reply, RST | ACK, (0, 101, 0, 0)), Verdict::End);
}

#[test]
fn a_reset_at_the_right_place_closes() {
    let mut life = Life::established();
    assert_eq!(life.see(Reply, RST, (501, 0, 0, 0)), lives(TIMEOUTS.close));
    assert_eq!(life.see(Reply, SYN, (9, 0, 100, 0)), Verdict::Invalid(None));
}

#[test]
fn a_reset_before_what_was_acknowledged_is_invalid() {
    let mut life = Life::established();
    assert!(is_invalid(life.see(Reply, RST, (400, 0, 0, 0))));
    assert!(life.tracker.is_established());
}

#[test]
fn a_reset_that_is_not_exact_leaves_the_connection_for_a_challenge() {
    let mut life = Life::established();
    assert_eq!(life.see(Reply, RST, (600, 0, 0, 0)), lives(TIMEOUTS.close));
    assert!(life.tracker.is_established(), "only its time is short");
}

#[test]
fn a_retransmitted_syn_does_not_prolong_the_connection() {
    let mut life = Life::begin(SYN, (100, 0, 1000, 0));
    assert_eq!(life.see(Original, SYN, (100, 0, 1000, 0)), Verdict::Accept);
}

#[test]
fn two_syns_that_meet_open_a_connection() {
    let mut life = Life::begin(SYN, (100, 0, 1000, 0));
    assert_eq!(life.see(Reply, SYN, (500, 0, 2000, 0)), Verdict::Accept);
    assert_eq!(life.see(Original, SYN | ACK, (100, 501, 1000, 0)), lives(TIMEOUTS.syn_received));
    let verdict = life.see(Reply, ACK, (501, 101, 2000, 0));
    assert_eq!(verdict, Verdict::Refresh { timeout: TIMEOUTS.established, assures: true });
}

#[test]
fn a_connection_is_picked_up_in_the_middle() {
    let mut life = Life::begin(ACK, (7000, 9000, 500, 100));
    assert_eq!(life.circumstances.remaining, TIMEOUTS.unacknowledged);
    // Scaling is unknown, so that even much more than the window passes.
    assert!(!is_invalid(life.see(Reply, ACK, (9000, 7100, 500, 1400))));
    assert!(!is_invalid(life.see(Original, ACK, (90_000, 10_400, 500, 1400))));
    assert!(life.circumstances.assured);
}

#[test]
fn a_connection_does_not_begin_with_its_end_or_its_answer() {
    for flags in [FIN | ACK, RST, SYN | ACK] {
        let bytes = bytes(flags, (1, 1, 1, 0));
        assert!(Tcp::new(&Segment::read(&bytes).unwrap()).is_none(), "{flags:#x}");
    }
}

#[test]
fn a_segment_beyond_the_window_is_invalid_until_the_tracker_is_liberal() {
    let mut life = Life::established();
    assert!(is_invalid(life.see(Original, ACK, (101 + 5000, 501, 1000, 10))));
    life.tracker.be_liberal();
    assert!(!is_invalid(life.see(Original, ACK, (101 + 5000, 501, 1000, 10))));
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_invalid() {
    let mut life = Life::established();
    assert!(is_invalid(life.see(Original, ACK, (101, 501 + 100, 1000, 0))));
}

#[test]
fn the_window_is_scaled_only_if_both_ends_offer_it() {
    let scaled = |flags, seq, ack, options: &[u8]| {
        let mut bytes = frames::tcp(1000, 80, flags, seq, ack, 1000, options);
        bytes[12] = if options.is_empty() { 0x50 } else { 0x60 };
        bytes
    };
    for (answer, passes) in [(&[3, 3, 7, 1][..], true), (&[], false)] {
        let syn = scaled(SYN, 100, 0, &[3, 3, 7, 1]);
        let tracker = Tcp::new(&Segment::read(&syn).unwrap()).unwrap();
        let circumstances = Circumstances {
            seen_reply: false,
            assured: false,
            remaining: Duration::ZERO,
            timeouts: TIMEOUTS,
            shift: 0,
        };
        let mut life = Life { tracker, circumstances };
        life.see_bytes(Original, &syn);
        life.see_bytes(Reply, &scaled(SYN | ACK, 500, 101, answer));
        life.see(Original, ACK, (101, 501, 1000, 0));
        let verdict = life.see(Reply, ACK, (501 + 20_000, 101, 1000, 10));
        assert_eq!(!is_invalid(verdict), passes);
    }
}

#[test]
fn unacknowledged_data_and_a_closed_window_shorten_the_time() {
    let mut life = Life::established();
    assert_eq!(life.see(Original, ACK, (101, 501, 1000, 50)), lives(TIMEOUTS.unacknowledged));
    assert_eq!(life.see(Reply, ACK, (501, 151, 2000, 0)), lives(TIMEOUTS.established));
    assert_eq!(life.see(Reply, ACK, (501, 151, 0, 0)), lives(TIMEOUTS.retransmission));
}

#[test]
fn retransmissions_without_an_answer_shorten_the_time() {
    let mut life = Life::established();
    for _ in 0..2 {
        assert_eq!(life.see(Original, ACK, (101, 501, 1000, 0)), lives(TIMEOUTS.established));
    }
    assert_eq!(life.see(Original, ACK, (101, 501, 1000, 0)), lives(TIMEOUTS.retransmission));
}

#[test]
fn a_connection_that_was_lost_track_of_is_found_again_by_its_handshake() {
    let mut life = Life::established();
    assert_eq!(life.see(Original, SYN, (70_000, 0, 800, 0)), Verdict::Accept, "the server will say");
    let verdict = life.see(Reply, SYN | ACK, (90_000, 70_001, 900, 0));
    assert_eq!(verdict, lives(TIMEOUTS.syn_received));
    assert_eq!(life.see(Original, ACK, (70_001, 90_001, 800, 0)), lives(TIMEOUTS.established));
}

#[test]
fn a_challenge_in_the_middle_of_closing_is_not_the_last_acknowledgement() {
    let mut life = Life::established();
    life.see(Original, FIN | ACK, (101, 501, 1000, 0));
    life.see(Reply, FIN | ACK, (501, 102, 2000, 0));
    assert_eq!(life.see(Original, SYN, (5000, 0, 1000, 0)), Verdict::Accept);
    assert_eq!(life.see(Reply, ACK, (502, 102, 2000, 0)), Verdict::Accept);
    assert_eq!(life.see(Original, ACK, (102, 502, 1000, 0)), lives(TIMEOUTS.time_wait));
}

#[test]
fn ends_that_close_out_of_the_window_are_not_remembered_for_days() {
    let mut life = Life::established();
    assert_eq!(life.see(Original, FIN | ACK, (900_000, 501, 1000, 0)), Verdict::Invalid(None));
    let verdict = life.see(Reply, FIN | ACK, (900_000, 101, 1000, 0));
    assert_eq!(verdict, Verdict::Invalid(Some(TIMEOUTS.unacknowledged)));
}
