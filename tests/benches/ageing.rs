//! How early or late flows expire: ten million lifetimes at warped time, on devices whose counters lag.
//!
//! Beside OVS's figure: it polls every 500 ms and counters of offloaded flows are up to 2 s old
//! (`offloaded-stats-delay`), so an expiry is up to 2.5 s late. Writes `target/bench/ageing.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::time::Duration;

use serde_json::json;
use sluice_tests::bench;
use sluice_tests::simulation::ageing::{Lag, Scenario, run};

const SECOND: Duration = Duration::from_secs(1);
const PEER: Duration = Duration::from_millis(2_500);

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let many = Scenario {
        flows: 100_000,
        lifetimes: 3_000_000,
        idle_timeout: SECOND * 3,
        poll_interval: SECOND / 2,
        lag: Lag::Known(SECOND),
        tells_use: false,
        // A round takes 25 ms, so that polls at deadlines follow each other after 250 ms at the earliest.
        read_takes: Duration::from_nanos(250),
        jitter: Duration::from_millis(5),
        fails_one_in: None,
        stops: None,
        seed: 1,
    };
    let few = Scenario { flows: 4_000, lifetimes: 500_000, idle_timeout: SECOND * 2, tells_use: true, ..many };
    let polls = SECOND;
    let scenarios = [
        ("many flows, lag of 1 s", many, polls + SECOND),
        (
            "many flows, age unknown up to 1 s",
            Scenario { lag: Lag::Unknown(SECOND), seed: 2, ..many },
            polls + SECOND * 2,
        ),
        (
            "the same, one poll in 50 fails, woken late",
            Scenario { fails_one_in: Some(50), jitter: SECOND / 10, lag: Lag::Unknown(SECOND), seed: 3, ..many },
            polls * 3 + SECOND * 2,
        ),
        (
            "few flows, no lag: polled at deadlines",
            Scenario { lag: Lag::Known(Duration::ZERO), seed: 4, ..few },
            SECOND / 20,
        ),
        ("few flows, lag of 1 s: polled at deadlines", Scenario { seed: 5, ..few }, SECOND + SECOND / 20),
    ];
    let title = "expiry, ms late";
    println!("{title:<44} {:>9} {:>6} {:>8} {:>8} {:>8} {:>8}", "flows", "early", "p50", "p99", "most", "allowed");
    let mut rows = Vec::new();
    let mut all = 0;
    for (name, scenario, allowed) in scenarios {
        let outcome = run(&scenario);
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        let (p50, p99, most) = (ms(outcome.lateness(0.5)), ms(outcome.lateness(0.99)), ms(outcome.latest()));
        let (expired, early, allowed) = (outcome.expired, outcome.early, ms(allowed));
        println!("{name:<44} {expired:>9} {early:>6} {p50:>8.1} {p99:>8.1} {most:>8.1} {allowed:>8.0}");
        assert_eq!(early, 0, "never early");
        all += expired;
        rows.push(json!({
            "name": name, "unit": "ms late at most", "ours": most, "p50": p50, "p99": p99, "early": early,
            "expired": expired, "rounds": outcome.rounds, "peer": ms(PEER), "ratio": ms(PEER) / most,
            "to_reach": allowed, "reached": most <= allowed,
        }));
    }
    println!("{all} lifetimes, none of which ended early");
    bench::write("ageing", &json!({ "lifetimes": all, "rows": rows }));
}
