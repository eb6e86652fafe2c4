//! Counts of what flows contained.

use std::collections::BTreeMap;
use std::fmt;

use sluice_flow::action::Action;
use sluice_flow::key::Match;

use super::feature::{Feature, Profile};
use super::{GeneratedFlow, actions, matching};

/// What a flow contains, each thing as often as it does.
pub fn features(full: &Match, list: &[Action]) -> Vec<Feature> {
    let mut found = matching::features(full);
    found.extend(actions::features(list));
    found
}

/// How often each feature was in the flows of a run, and how often it was left out.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    flows: u64,
    hit: BTreeMap<Feature, u64>,
    left_out: BTreeMap<Feature, u64>,
}

impl Hits {
    /// Counts a flow.
    pub fn count(&mut self, flow: &GeneratedFlow) {
        self.flows += 1;
        for feature in features(&flow.matching, &flow.actions) {
            *self.hit.entry(feature).or_default() += 1;
        }
        for feature in &flow.left_out {
            *self.left_out.entry(*feature).or_default() += 1;
        }
    }

    /// Flows counted.
    pub const fn flows(&self) -> u64 {
        self.flows
    }

    /// How often a feature was there.
    pub fn of(&self, feature: Feature) -> u64 {
        self.hit.get(&feature).copied().unwrap_or_default()
    }

    /// How often each rule of the profile left something out.
    pub fn left_out<'a>(
        &'a self,
        profile: &'a Profile,
    ) -> impl Iterator<Item = (&'static str, &'static str, u64)> + 'a {
        profile.rules.iter().map(|rule| {
            let count = rule.features.iter().filter_map(|feature| self.left_out.get(feature)).sum();
            (rule.name, rule.reason, count)
        })
    }

    /// Fails with a list of what the profile allows and was never there, of what it does not allow and was, and of the
    /// rules that left nothing out.
    pub fn assert_complete(&self, profile: &Profile) {
        let missing = Feature::all()
            .filter(|feature| profile.allows(*feature) && self.of(*feature) == 0 && can_be_there(*feature, profile))
            .map(|feature| format!("never there: {feature}"));
        let forbidden = Feature::all()
            .filter(|feature| !profile.allows(*feature) && self.of(*feature) > 0)
            .map(|feature| format!("there though left out: {feature}"));
        let idle = self
            .left_out(profile)
            .filter(|(.., count)| *count == 0)
            .map(|(name, ..)| format!("leaves nothing out: rule {name:?}"));
        let wrong: Vec<_> = missing.chain(forbidden).chain(idle).collect();
        assert!(wrong.is_empty(), "profile {:?}, {} flows:\n{}", profile.name, self.flows, wrong.join("\n"));
    }
}

/// A table: what, how often.
impl fmt::Display for Hits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:<60} {:>8}", "flows", self.flows)?;
        for (feature, count) in &self.hit {
            writeln!(out, "{:<60} {count:>8}", feature.to_string())?;
        }
        Ok(())
    }
}

/// What needs something else that is left out is not there either.
fn can_be_there(feature: Feature, profile: &Profile) -> bool {
    super::feature::needs(feature).iter().all(|needed| profile.allows(*needed) && can_be_there(*needed, profile))
}
