//! How a rule in the device can differ from what the table wants.

use sluice_flow::backend::InstalledRule;
use sluice_flow::table::FlowView;

/// How table and device can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The table says that the flow has a rule, and the device does not.
    Missing,
    /// The rule of the flow is not what was put in.
    Changed,
    /// The flow has a rule, and this is another one.
    Doubled,
    /// The rule is ours, and no flow wants it.
    Stray,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Missing, Self::Changed, Self::Doubled, Self::Stray];

    /// How the rule of a settled flow differs from what is wanted; `None` if it does not.
    pub fn of(view: &FlowView, rule: Option<&InstalledRule>) -> Option<Self> {
        let Some(rule) = rule else { return Some(Self::Missing) };
        let is_as_wanted = rule.is_current && rule.flow.actions == view.flow.actions && rule.flow.is_same(&view.flow);
        (!is_as_wanted).then_some(Self::Changed)
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Doubled => "doubled",
            Self::Stray => "stray",
        }
    }
}
