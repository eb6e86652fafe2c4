//! Matchers with many rules are laid out anew, a few rules at a time, while packets and changes go on.
//!
//! Each rule is made in the new matcher, which is asked first, and then goes from the old one: a packet meets one of the two, and both
//! count with the same counter.

use sluice_flow::refusal::Refusal;

use super::core::Switch;
use super::rule_id::RuleId;
use super::tables::MatcherId;

/// Rules that are moved, and places that are looked at, before anything else has its turn.
const MOVED: usize = 64;
const LOOKED_AT: usize = 4_096;

/// A growth that goes on.
pub(super) struct Growth {
    matcher: MatcherId,
    /// The first place that was not looked at.
    next: usize,
}

impl Switch {
    /// Returns whether there is work that [`go_on`](Self::go_on) does.
    pub fn has_more_to_do(&self) -> bool {
        self.growth.is_some() || !self.crowded.is_empty()
    }

    /// Returns how many matchers have a fixed layout.
    pub fn fixed_layouts(&self) -> usize {
        self.tables.fixed_layouts()
    }

    /// Does some of the work that can wait. If it fails, rules stay in the matcher where they are, which takes no more growth.
    pub fn go_on(&mut self) -> Result<(), Refusal> {
        let Some(Growth { matcher, next: first }) = self.growth.take().or_else(|| self.begin_growth()) else {
            return Ok(());
        };
        let mut moved = Vec::with_capacity(MOVED);
        let mut next = first;
        while next < self.rules.len().min(first + LOOKED_AT) && moved.len() < MOVED {
            if let Some(rule) = self.move_rule(next, matcher)? {
                moved.push((next, rule));
            }
            next += 1;
        }
        if !moved.is_empty() {
            // Rings are written side by side: what is new must be there before what is old goes.
            self.sync()?;
        }
        for (place, rule) in moved {
            if let Some(installed) = &mut self.rules[place] {
                installed.rule = rule;
            }
        }
        if next < self.rules.len() {
            self.growth = Some(Growth { matcher, next });
        } else if self.tables.end_growth(matcher) {
            self.crowded.push_back(matcher);
        }
        Ok(())
    }

    fn begin_growth(&mut self) -> Option<Growth> {
        let id = self.crowded.pop_front()?;
        let matcher = self.tables.begin_growth(id)?;
        self.kinds.move_to(id, &matcher);
        Some(Growth { matcher: id, next: 0 })
    }

    /// Makes a rule once more, if it is one of the old matcher.
    fn move_rule(&self, place: usize, matcher: MatcherId) -> Result<Option<crate::mlx5::Rule>, Refusal> {
        let Some(installed) = &self.rules[place] else { return Ok(None) };
        let Some(id) = installed.kind else { return Ok(None) };
        let kind = self.kinds.get(id).filter(|kind| kind.matcher == matcher);
        let Some(kind) = kind.filter(|kind| !installed.rule.is_beside(&kind.shape)) else { return Ok(None) };
        let value = kind.template.value(&installed.flow);
        let counter = self.counters.counter(RuleId(u32::try_from(place).unwrap_or(u32::MAX)));
        self.kinds.rule(id, &value, counter).map(Some)
    }
}
