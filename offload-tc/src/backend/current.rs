//! Whether installed rules are what would be installed now.

use crate::config::OffloadPolicy;

use super::core::Core;
use super::ipsec;
use super::read_back::rule::ShownRule;
use crate::context::Context;
use crate::label::Label;
use crate::marks::Format;
use crate::translate;
use crate::wire::flower::flag;

impl Core {
    /// Whether a rule would be installed like this now: the format of its notes, the policy, also those of IPsec, and the flags of outer
    /// headers that it leaves out.
    pub(super) fn is_current(&self, rule: &ShownRule, guard: Option<&ShownRule>) -> bool {
        const FOR_WHOM: u32 = flag::SKIP_HW | flag::SKIP_SW;
        let exposure = rule.content.as_ref().and_then(|content| self.ports.load().exposure(&content.flow));
        // A rule that would be refused is not current.
        let Ok(wanted) = ipsec::flags(self.policy, exposure) else { return false };
        let is_for_same = |rule: &ShownRule| (rule.filter.flower.flags ^ wanted) & FOR_WHOM == 0;
        // If hardware refused the guard, the rule is kept in software.
        let follows_guard = |guard: &ShownRule| {
            let is_in_software = rule.filter.flower.flags & FOR_WHOM == flag::SKIP_HW;
            is_for_same(guard) && self.policy == OffloadPolicy::Any && is_in_software
        };
        let is_for_same = guard.is_none_or(is_for_same) && is_for_same(rule) || guard.is_some_and(follows_guard);
        self.has_written(rule, guard) && is_for_same && self.leaves_out_the_same(rule)
    }

    /// Whether a rule leaves out of its flow what it would leave out now.
    fn leaves_out_the_same(&self, rule: &ShownRule) -> bool {
        let Some((label, content)) = Label::of(&rule.filter.flower).zip(rule.content.as_ref()) else { return true };
        if !label.spelling.leaves_out() {
            return true;
        }
        let now = translate::rules(&content.flow, self.agent, &**self.ports.load());
        now.ok().and_then(|now| Label::of(&now.rule.flower)).is_some_and(|now| now.spelling == label.spelling)
    }

    /// Whether this agent wrote the notes of these rules, in the current format.
    fn has_written(&self, rule: &ShownRule, guard: Option<&ShownRule>) -> bool {
        let is_ours = |label: Label| label.agent == self.agent && label.format == Format::CURRENT;
        std::iter::once(rule).chain(guard).all(|rule| Label::of(&rule.filter.flower).is_some_and(is_ours))
    }
}
