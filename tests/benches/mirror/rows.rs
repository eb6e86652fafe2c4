//! What was found: ours and the peer's of each round, and what is to be reached.

use serde_json::{Value, json};
use sluice_tests::bench::{median, quantile};

/// All rows so far, each of which is printed when it is added.
#[derive(Debug, Default)]
pub(crate) struct Rows(Vec<Value>);

/// What is to be reached.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// A ratio of ours to the peer's of so much at the least.
    Least(f64),
    /// So much at the most.
    Most(f64),
    /// It is told, and nothing is asked of it.
    Told,
}

impl Rows {
    /// Adds a row of pairs, ours and the peer's of each round.
    pub(crate) fn add(&mut self, name: &str, unit: &str, pairs: &[[f64; 2]], goal: Goal) {
        let [ours, peer] = [0, 1].map(|side| median(&pairs.iter().map(|pair| pair[side]).collect::<Vec<_>>()));
        let ratios: Vec<_> = pairs.iter().map(|[ours, peer]| ours / peer).collect();
        let (ratio, least, most) = (median(&ratios), quantile(&ratios, 0.0), quantile(&ratios, 1.0));
        let (to_reach, reached) = match goal {
            Goal::Least(least) => (json!(format!(">= {least}")), Some(ratio >= least)),
            Goal::Most(most) => (json!(format!("<= {most}")), Some(ratio <= most)),
            Goal::Told => (Value::Null, None),
        };
        println!(
            "  {name}: {ours:.3} against {peer:.3} {unit}, ratio {ratio:.3} ({least:.3} to {most:.3} in {} rounds), to reach {to_reach}",
            pairs.len()
        );
        self.0.push(json!({
            "name": name, "unit": unit, "ours": ours, "peer": peer, "ratio": ratio, "ratios": ratios, "to_reach": to_reach,
            "reached": reached,
        }));
    }

    pub(crate) fn json(&self) -> &[Value] {
        &self.0
    }
}
