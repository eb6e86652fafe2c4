//! What is published is found, in memory of any content, and goes from one agent to the next.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use sluice_feedback::{Full, Publisher, Totals};
use sluice_flow::ufid::Ufid;

fn totals(packets: u64) -> Totals {
    Totals { packets, bytes: packets * 100, used: packets, tcp_flags: 0x10 }
}

/// As good as random.
fn ufid(number: u64) -> Ufid {
    let mixed = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Ufid(mixed ^ mixed >> 61)
}

#[test]
fn as_many_flows_as_the_memory_is_for_are_published_and_one_more_is_not() {
    let mut publisher = Publisher::create(100_000, 7).unwrap();
    for number in 0..100_000 {
        assert_eq!(publisher.publish(ufid(number), totals(number)), Ok(()), "{number}");
    }
    assert_eq!(publisher.publish(ufid(100_000), totals(1)), Err(Full::Flows(100_000)));
    assert_eq!(publisher.publish(ufid(5), totals(200_000)), Ok(()), "one that is there");
    for number in (0..100_000).filter(|number| *number != 5) {
        assert_eq!(publisher.get(ufid(number)), Some(totals(number)));
    }
    assert_eq!(publisher.get(ufid(100_000)), None);
    assert_eq!(publisher.iter().count(), 100_000);
}

#[test]
fn flows_that_come_and_go_never_fill_the_memory() {
    let mut publisher = Publisher::create(100, 7).unwrap();
    for number in 0..100_000 {
        assert_eq!(publisher.publish(ufid(number), totals(number)), Ok(()), "{number}");
        if number >= 99 {
            assert_eq!(publisher.withdraw(ufid(number - 99), number), Some(totals(number - 99)));
        }
    }
    assert_eq!(publisher.len(), 99);
    let mut left: Vec<_> = publisher.iter().map(|(_, totals)| totals.packets).collect();
    left.sort_unstable();
    assert_eq!(left, (99_901..100_000).collect::<Vec<_>>());
}

#[test]
fn counters_never_run_backwards_until_a_flow_begins_anew() {
    let mut publisher = Publisher::create(10, 7).unwrap();
    publisher.publish(ufid(1), totals(100)).unwrap();
    publisher.publish(ufid(1), Totals { packets: 90, bytes: 20_000, used: 80, tcp_flags: 0x02 }).unwrap();
    let highest = Totals { packets: 100, bytes: 20_000, used: 100, tcp_flags: 0x12 };
    assert_eq!(publisher.get(ufid(1)), Some(highest));
    assert_eq!(publisher.withdraw(ufid(1), 200), Some(highest));
    assert_eq!((publisher.get(ufid(1)), publisher.withdraw(ufid(1), 200)), (None, None));
    publisher.publish(ufid(1), totals(1)).unwrap();
    assert_eq!(publisher.get(ufid(1)), Some(totals(1)));
    assert_eq!(publisher.len(), 1);
}

#[test]
fn names_that_all_want_the_same_slot_are_refused_before_they_make_looks_long() {
    let mut publisher = Publisher::create(200, 0).unwrap();
    // As the epoch is known, so are names that are alike but for what the mixing cancels: every one has the same home.
    let outcomes: Vec<_> = (0..100_000u64)
        .filter(|number| home(*number, 512) == 0)
        .map(|number| publisher.publish(Ufid(word_first(number)), totals(number)))
        .take(200)
        .collect();
    let kept = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert!(outcomes.len() > 150 && kept == 128, "{kept} of {}", outcomes.len());
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(()) | Err(Full::Neighbours))));
}

/// A UFID whose first word in memory is this and the other zero.
fn word_first(number: u64) -> u128 {
    let bytes = number.to_ne_bytes();
    let half = |at: usize| u128::from(u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap()));
    half(0) << 96 | half(4) << 64
}

fn home(number: u64, slots: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ mixed >> 32) & (slots - 1)
}
