//! Why a flow has no rule, and a rule no flow.

use sluice_flow::action::ActionKind;
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use crate::context::{Context, Device};

/// The rule is no flow's of this agent: somebody changed it, or a later version wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub &'static str);

/// Refuses what a flow matches or sets.
pub(super) fn refuse(field: Field, reason: &'static str) -> Refusal {
    Refusal::Field { field, reason: reason.into() }
}

/// Refuses what a flow does.
pub(super) fn refuse_action(action: ActionKind, reason: &'static str) -> Refusal {
    Refusal::Action { action, reason: reason.into() }
}

/// The device of a port that a flow names, which is refused without one.
pub(super) fn device_of(port: PortNumber, context: &dyn Context) -> Result<Device, Refusal> {
    context.device(port).ok_or_else(|| match context.absent(port) {
        Some(name) => {
            Refusal::Port { port: name.to_owned(), number: Some(port), reason: "its device is not there".into() }
        }
        None => Refusal::no_port(port),
    })
}
