//! Counters of rules, by software and by hardware.

use sluice_flow::counters::Counters;

use crate::install::Report;
use crate::wire::filter::FilterId;
use crate::wire::rule_view::RuleView;
use crate::wire::statistics::Count;

/// Packets and bytes that software and hardware counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) software: Count,
    pub(super) hardware: Count,
}

impl Counted {
    /// The counters of a rule that the kernel reported.
    pub(super) const fn reported(report: &Report, id: &FilterId) -> Self {
        Self { software: id.with_headers(report.software), hardware: report.hardware }
    }

    /// The counters of a rule in a listing.
    pub(super) const fn listed(rule: &RuleView<'_>) -> Self {
        Self { software: rule.id.with_headers(rule.software), hardware: rule.hardware }
    }

    /// Software and hardware together.
    pub(super) fn total(self) -> Counters {
        let all = self.software.plus(self.hardware);
        Counters { packets: all.packets, bytes: all.bytes, ..Counters::default() }
    }

    pub(super) const fn plus(self, other: Self) -> Self {
        Self { software: self.software.plus(other.software), hardware: self.hardware.plus(other.hardware) }
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self { software: self.software.max(other.software), hardware: self.hardware.max(other.hardware) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::filter::Hook;

    #[test]
    fn counters_go_on_from_what_was_carried_over() {
        let hook = Hook::Ingress { interface: 3 };
        let id = FilterId { hook, chain: 0, priority: 1000, protocol: 0x0800, handle: 1 };
        let count = |packets, bytes| Count { packets, bytes };
        let report = Report { flags: 0, software: count(2, 100), hardware: count(3, 300) };
        let once = Counted::reported(&report, &id);
        assert_eq!(once, Counted { software: count(2, 128), hardware: count(3, 300) });
        let twice = once.plus(Counted::reported(&report, &id));
        assert_eq!((twice.total().packets, twice.total().bytes), (10, 856));
    }
}
