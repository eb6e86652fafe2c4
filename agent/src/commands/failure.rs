//! Why a command failed, in the words of OVS where it has any.

use std::fmt;

use sluice_flow::text::ParseError;

use crate::service::Error;

/// The name under which error texts speak of the agent, as OVS puts its program's name before them.
pub(super) const PROGRAM: &str = "sluiced";

/// Why a command failed; the whole text that the client sees.
#[derive(Debug)]
pub(super) struct Failure(pub(super) String);

impl Failure {
    /// A failure in OVS's form: program, what was attempted, and the text of an error number.
    pub(super) fn os(attempt: impl fmt::Display, error: &str) -> Self {
        Self(format!("{PROGRAM}: {attempt} ({error})"))
    }

    /// A failure in words.
    pub(super) fn new(text: impl fmt::Display) -> Self {
        Self(format!("{PROGRAM}: {text}"))
    }

    /// A text that is not understood, with its place.
    pub(super) fn of_text(what: &str, text: &str, error: &ParseError) -> Self {
        Self(format!("{PROGRAM}: parsing {what} (Invalid argument)\n{}", error.caret(text)))
    }

    /// A request that failed while something was attempted. OVS says no more than the text of the error number.
    pub(super) fn of_request(attempt: &str, error: &Error) -> Self {
        match error {
            Error::InPortMissing => Self::new(format_args!("parsing flow key: {error}")),
            Error::Exists(ufid) => {
                Self::os(format_args!("{attempt}: ufid:{ufid} has this match or UFID"), "File exists")
            }
            Error::NotFound => Self::os(format_args!("{attempt}: there is no such flow"), "No such file or directory"),
            Error::OtherPriority { wanted, found } => {
                let found: Vec<_> = found.iter().map(ToString::to_string).collect();
                let hint = format!("with priority {wanted}, but with priority {}", found.join(", "));
                Self::of_request(attempt, &Error::NotFound)
                    .with_hint(&format!("There is none {hint}; --priority=N says which is meant."))
            }
            Error::OtherMatch(_) => Self::os(format_args!("{attempt}: {error}"), "Invalid argument"),
            Error::OtherOrigin(..) => Self::os(format_args!("{attempt}: {error}"), "Operation not permitted"),
            Error::Busy(refusal) | Error::Refused(refusal) => Self::new(format_args!("{attempt}: refused, {refusal}")),
            Error::Overtaken(_) | Error::Unanswered { .. } | Error::NotListed(_) | Error::LeftInDevice { .. } => {
                Self::new(format_args!("{attempt}: {error}"))
            }
            Error::NotDurable(_) | Error::Object(_) => Self::new(error),
        }
    }

    /// The same with what the caller can do about it.
    pub(super) fn with_hint(self, hint: &str) -> Self {
        Self(format!("{}\n{hint}", self.0))
    }
}

/// The client is gone; nobody will read this.
impl From<fmt::Error> for Failure {
    fn from(_: fmt::Error) -> Self {
        Self("the client is gone".into())
    }
}
