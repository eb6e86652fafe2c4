//! Expiry at warped time on devices whose counters lag: never early, and how late at most.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::time::Duration;

use proptest::prelude::*;
use sluice_tests::simulation::ageing::{Lag, Scenario, run};

const SECOND: Duration = Duration::from_secs(1);

fn scenario() -> Scenario {
    Scenario {
        flows: 200,
        lifetimes: 2_000,
        idle_timeout: SECOND * 5,
        poll_interval: Duration::from_millis(500),
        lag: Lag::Known(Duration::ZERO),
        tells_use: true,
        read_takes: Duration::from_nanos(200),
        jitter: Duration::from_millis(5),
        fails_one_in: None,
        stops: None,
        seed: 1,
    }
}

#[test]
fn a_poll_at_the_deadline_makes_expiry_exact_to_fifty_milliseconds() {
    let outcome = run(&scenario());
    assert_eq!(outcome.early, 0);
    assert!(outcome.latest() <= Duration::from_millis(50), "{:?}", outcome.latest());
}

#[test]
fn a_device_of_known_lag_adds_the_lag_and_no_more() {
    let outcome = run(&Scenario { lag: Lag::Known(SECOND), tells_use: false, ..scenario() });
    assert_eq!(outcome.early, 0);
    assert!(outcome.lateness(0.001) >= SECOND, "what the device has not shown cannot be known");
    assert!(outcome.latest() <= SECOND + Duration::from_millis(550), "{:?}", outcome.latest());
}

#[test]
fn deadlines_that_cost_too_much_are_left_to_the_usual_polls() {
    // A round of 200 flows takes 100 ms, so one at a deadline may follow after a second only.
    let slow = Scenario { read_takes: Duration::from_micros(500), ..scenario() };
    let outcome = run(&slow);
    assert_eq!(outcome.early, 0);
    let usual = outcome.took.as_secs_f64() / slow.poll_interval.as_secs_f64();
    assert!(outcome.rounds as f64 <= usual * 1.01, "{} rounds", outcome.rounds);
    assert!(outcome.latest() <= slow.poll_interval * 2 + Duration::from_millis(200), "{:?}", outcome.latest());
}

#[test]
fn polling_at_deadlines_takes_a_tenth_of_the_time_at_most() {
    let busy = Scenario { read_takes: Duration::from_micros(25), ..scenario() };
    let outcome = run(&busy);
    let round = busy.read_takes * 200;
    assert!(outcome.rounds as f64 * round.as_secs_f64() <= outcome.took.as_secs_f64() * 0.1);
    assert!(outcome.latest() <= round * 12 + Duration::from_millis(10), "{:?}", outcome.latest());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_flow_goes_early_whatever_lag_jitter_and_failures(
        seed: u64,
        timeout in 50_u64..20_000,
        poll in 10_u64..2_000,
        lag in 0_u64..3_000,
        is_known: bool,
        read_microseconds in 0_u64..2_000,
        jitter in 0_u64..1_000,
        tells_use: bool,
        fails_one_in in prop::option::of(2_u64..20),
    ) {
        let lag = Duration::from_millis(lag);
        let scenario = Scenario {
            flows: 40,
            lifetimes: 200,
            idle_timeout: Duration::from_millis(timeout),
            poll_interval: Duration::from_millis(poll),
            lag: if is_known { Lag::Known(lag) } else { Lag::Unknown(lag) },
            tells_use,
            read_takes: Duration::from_micros(read_microseconds),
            jitter: Duration::from_millis(jitter),
            fails_one_in,
            stops: None,
            seed,
        };
        let outcome = run(&scenario);
        prop_assert_eq!(outcome.early, 0);
        if fails_one_in.is_none() {
            // Two polls, the lag, and the lag once more where the device does not tell when it counted; then the round
            // itself has to end.
            let round = scenario.read_takes * 40;
            let lags = if is_known { lag } else { lag * 2 };
            let bound = outcome.longest_period * 2 + lags + round + Duration::from_millis(1);
            prop_assert!(outcome.latest() <= bound, "{:?} > {:?}", outcome.latest(), bound);
        }
    }

    #[test]
    fn no_flow_goes_early_by_what_the_agent_and_the_traffic_stood_still_together(
        seed: u64,
        timeout in 1_000_u64..20_000,
        poll in 200_u64..1_000,
        lag in 0_u64..1_000,
        tells_use: bool,
        one_in in 12_u64..60,
        // A shorter one may be taken for lateness.
        stop in 2_100_u64..60_000,
    ) {
        let scenario = Scenario {
            flows: 40,
            lifetimes: 200,
            idle_timeout: Duration::from_millis(timeout),
            poll_interval: Duration::from_millis(poll),
            lag: Lag::Known(Duration::from_millis(lag)),
            tells_use,
            jitter: Duration::ZERO,
            stops: Some((one_in, Duration::from_millis(stop))),
            seed,
            ..scenario()
        };
        prop_assert_eq!(run(&scenario).early, 0);
    }
}
