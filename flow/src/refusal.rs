//! Why a flow is not in the device: a typed reason that prints as one sentence.

use std::borrow::Cow;

use crate::action::ActionKind;
use crate::backend::Facet;
use crate::cause::Cause;
use crate::chain::ChainId;
use crate::field::Field;
use crate::port::{PortName, PortNumber};

/// A reason for "no".
///
/// It stands in the dump, in `explain`, in the log, and is counted under [`Refusal::label`], a closed set. What could change it
/// is its [`cause`](Refusal::cause).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The device cannot do an action, or not in this form.
    #[error("action {}: {reason}", action.name())]
    Action {
        /// Which action.
        action: ActionKind,
        /// What about it.
        reason: Cow<'static, str>,
    },
    /// The agent or the device has too much to do now; the same request may succeed later.
    #[error("busy: {reason}")]
    Busy {
        /// What is too much.
        reason: Cow<'static, str>,
    },
    /// Each part is possible, all together are not.
    #[error("combination: {reason}")]
    Combination {
        /// What does not go together.
        reason: Cow<'static, str>,
    },
    /// Packets would go on in a chain whose flows come one by one, from a [source](crate::source::Source), and one that misses there could
    /// neither go on in the source's own datapath where it stands, nor [begin again](crate::Flow::lets_begin_again).
    #[error(
        "continuation: a packet that misses in chain {:#x} can neither go on there in the datapath that the flow comes from, nor begin again",
        chain.0
    )]
    Continuation {
        /// The chain that the flow is in or sends packets to.
        chain: ChainId,
    },
    /// The device itself failed or is not there.
    #[error("device: {reason}")]
    Device {
        /// In the device's or driver's words.
        reason: Cow<'static, str>,
    },
    /// The device cannot match a field, or not under this mask.
    #[error("field {field}: {reason}")]
    Field {
        /// Which field.
        field: Field,
        /// What about it.
        reason: Cow<'static, str>,
    },
    /// The kernel said no.
    #[error("kernel: {message} (errno {errno})")]
    Kernel {
        /// The error number, positive.
        errno: i32,
        /// The extended acknowledgement, or the text of the error number.
        message: String,
    },
    /// A number that has an end has reached it.
    #[error("limit: {what} (at most {limit})")]
    Limit {
        /// What there would be too much of.
        what: Cow<'static, str>,
        /// How much there may be.
        limit: u64,
    },
    /// A port that the flow was accepted for is gone. Another port of its number is another port.
    #[error("port {number}: {name}, for which the flow was accepted, is gone")]
    PortGone {
        /// The number that the flow names.
        number: PortNumber,
        /// The name that the port had.
        name: PortName,
    },
    /// A port that the flow names cannot be used.
    #[error("port {port}: {reason}")]
    Port {
        /// The port's number or name.
        port: String,
        /// Its number, if that is known.
        number: Option<PortNumber>,
        /// What about it.
        reason: Cow<'static, str>,
    },
    /// The backend lacks the facet that the request needs.
    #[error("unsupported: {}", facet.missing())]
    Unsupported {
        /// Which facet.
        facet: Facet,
    },
    /// A refusal that says by itself nothing of what could change it.
    #[error("{refusal}")]
    Until {
        /// What could.
        cause: Cause,
        /// The refusal, which is none of these.
        refusal: Box<Self>,
    },
}

impl Refusal {
    /// There is no port of this number.
    pub fn no_port(number: PortNumber) -> Self {
        Self::Port { port: number.to_string(), number: Some(number), reason: "there is no such port".into() }
    }

    /// All labels, for metrics that show a reason even before it occurred.
    pub const LABELS: &[&str] =
        &["action", "busy", "combination", "continuation", "device", "field", "kernel", "limit", "port", "unsupported"];

    /// The word under which the refusal is counted.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Action { .. } => "action",
            Self::Busy { .. } => "busy",
            Self::Combination { .. } => "combination",
            Self::Continuation { .. } => "continuation",
            Self::Device { .. } => "device",
            Self::Field { .. } => "field",
            Self::Kernel { .. } => "kernel",
            Self::Limit { .. } => "limit",
            Self::Port { .. } | Self::PortGone { .. } => "port",
            Self::Unsupported { .. } => "unsupported",
            Self::Until { refusal, .. } => refusal.label(),
        }
    }
}
