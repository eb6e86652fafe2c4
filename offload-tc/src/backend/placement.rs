//! Placement: whether hardware, software or both have a rule.

use crate::config::OffloadPolicy;
use sluice_flow::backend::Placement;

use crate::install::Report;
use crate::wire::flower::flag;

/// Where the kernel says that a rule is. Where it was not asked, taking the rule was the answer, as only one side may have
/// it.
pub(super) fn of_rule(policy: OffloadPolicy, report: Option<&Report>) -> Placement {
    match (report, policy) {
        (Some(report), _) => of_flags(report.flags),
        (None, OffloadPolicy::SkipSoftware) => Placement::Hardware,
        (None, OffloadPolicy::SkipHardware) => Placement::Software,
        (None, OffloadPolicy::Any) => Placement::Unknown,
    }
}

/// The placement by the flags of the rule.
pub(super) const fn of_flags(flags: u32) -> Placement {
    match (flags & flag::IN_HW != 0, flags & flag::NOT_IN_HW != 0, flags & flag::SKIP_SW != 0) {
        (true, _, true) => Placement::Hardware,
        (true, _, false) => Placement::Both,
        (false, true, false) => Placement::Software,
        (false, ..) => Placement::Unknown,
    }
}

/// The placement of a flow with two rules: in hardware only if both are.
pub(super) const fn of_both(one: Placement, other: Placement) -> Placement {
    match (one, other) {
        (Placement::Unknown, _) | (_, Placement::Unknown) => Placement::Unknown,
        (Placement::Software, _) | (_, Placement::Software) => Placement::Software,
        (Placement::Hardware, Placement::Hardware) => Placement::Hardware,
        (Placement::Both | Placement::Hardware, _) => Placement::Both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::statistics::Count;

    #[test]
    fn a_rule_is_where_the_kernel_says_and_not_where_it_was_wished() {
        let report = |flags| Report { flags, software: Count::default(), hardware: Count::default() };
        let at = |flags| of_rule(OffloadPolicy::Any, Some(&report(flags)));
        assert_eq!(at(flag::IN_HW), Placement::Both);
        assert_eq!(at(flag::IN_HW | flag::SKIP_SW), Placement::Hardware);
        assert_eq!(at(flag::NOT_IN_HW | flag::SKIP_HW), Placement::Software);
        assert_eq!(at(flag::NOT_IN_HW | flag::SKIP_SW), Placement::Unknown, "nobody has it");
        assert_eq!(at(0), Placement::Unknown);
        assert_eq!(of_rule(OffloadPolicy::SkipSoftware, Some(&report(flag::NOT_IN_HW))), Placement::Software);
    }

    #[test]
    fn a_flow_is_in_hardware_if_both_its_rules_are() {
        use Placement::{Both, Hardware, Software, Unknown};
        assert_eq!([of_both(Hardware, Hardware), of_both(Both, Both)], [Hardware, Both]);
        for (place, word) in Placement::ALL {
            assert_eq!(of_both(Software, place), of_both(place, Software), "{word}");
            assert_eq!(of_both(Unknown, place), Unknown, "{word}");
        }
        assert_eq!([of_both(Software, Both), of_both(Hardware, Software)], [Software; 2]);
        assert_eq!(of_both(Hardware, Both), Both);
    }
}
