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
    next: RuleId,
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
        let (mut moved, mut looked_at, mut next) = (Vec::with_capacity(MOVED), 0, Some(first));
        while let Some(place) = next
            && looked_at < LOOKED_AT
            && moved.len() < MOVED
        {
            if let Some(rule) = self.move_rule(place, matcher)? {
                moved.push((place, rule));
            }
            next = self.rules.after(place);
            looked_at += 1;
        }
        if !moved.is_empty() {
            // Rings are written side by side: what is new must be there before what is old goes.
            self.sync()?;
        }
        for (place, rule) in moved {
            if let Some(installed) = self.rules.get_mut(place).as_mut() {
                installed.rule = rule;
            }
        }
        match next {
            Some(next) => self.growth = Some(Growth { matcher, next }),
            None if self.tables.end_growth(matcher) => self.crowded.push_back(matcher),
            None => {}
        }
        Ok(())
    }

    fn begin_growth(&mut self) -> Option<Growth> {
        let id = self.crowded.pop_front()?;
        let matcher = self.tables.begin_growth(id)?;
        self.kinds.move_to(id, &matcher);
        Some(Growth { matcher: id, next: RuleId::of(0, 0) })
    }

    /// Makes a rule once more, if it is one of the old matcher.
    fn move_rule(&mut self, place: RuleId, matcher: MatcherId) -> Result<Option<crate::mlx5::Rule>, Refusal> {
        let Some(Some(installed)) = self.rules.get(place) else { return Ok(None) };
        let Some(id) = installed.kind else { return Ok(None) };
        let kind = self.kinds.get(id).filter(|kind| kind.matcher == matcher);
        if kind.is_none_or(|kind| installed.rule.is_beside(&kind.shape)) {
            return Ok(None);
        }
        self.kinds.rule(id, &installed.flow, self.counters.counter(place)).map(Some)
    }
}
