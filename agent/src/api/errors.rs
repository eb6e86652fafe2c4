//! Errors and refusals, as `google.rpc` writes them: a code, words for people, and kind and particulars for programs.

use std::time::Duration;

use sluice_api::{Details, rpc};
use sluice_flow::text::ParseError;
use sluice_flow::{Field, Refusal, Ufid};
use tokio::task::JoinError;
use tonic::Code;

use crate::service::Error;

/// When a request that was refused as busy is worth another try: a worker has looked at thousands of flows by then.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// When a call is worth another try that was turned away because so many like it go on: they last for seconds at least.
const TURN_DELAY: Duration = Duration::from_secs(1);

/// Why a request cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub(super) struct InputError {
    /// The member of the message that is wrong, as `match` or `actions`.
    place: &'static str,
    reason: String,
    offset: Option<usize>,
    field: Option<Field>,
}

impl InputError {
    pub(super) fn new(place: &'static str, reason: impl Into<String>) -> Self {
        Self { place, reason: reason.into(), offset: None, field: None }
    }

    /// A text is not of the grammar.
    pub(super) fn text(place: &'static str, error: &ParseError) -> Self {
        Self { offset: Some(error.offset), ..Self::new(place, error.to_string()) }
    }

    /// A field cannot be matched so.
    pub(super) fn field(field: Field, reason: impl Into<String>) -> Self {
        Self { field: Some(field), ..Self::new("match", format!("{field}: {}", reason.into())) }
    }
}

impl From<InputError> for rpc::Status {
    fn from(error: InputError) -> Self {
        let offset = error.offset.map(|offset| ("offset", offset.to_string()));
        let field = error.field.map(|field| ("field", field.to_string()));
        let metadata = [("place", error.place.to_owned())].into_iter().chain(offset).chain(field);
        Details::new("INVALID_REQUEST", metadata).status(Code::InvalidArgument, error.to_string())
    }
}

impl From<InputError> for tonic::Status {
    fn from(error: InputError) -> Self {
        rpc::Status::from(error).into()
    }
}

/// What a request failed with.
pub(super) fn of_error(error: &Error) -> rpc::Status {
    let ufid = |ufid: &Ufid| ("ufid", ufid.to_string());
    let (code, details) = match error {
        Error::InPortMissing => {
            let field = ("field", Field::InPort.to_string());
            (Code::InvalidArgument, Details::new("IN_PORT_MISSING", [("place", "match".to_owned()), field]))
        }
        Error::Exists(existing) => (Code::AlreadyExists, Details::new("EXISTS", [ufid(existing)])),
        Error::NotFound => (Code::NotFound, Details::new("NOT_FOUND", [])),
        Error::OtherPriority { found, .. } => {
            let found: Vec<_> = found.iter().map(|priority| priority.get().to_string()).collect();
            (Code::NotFound, Details::new("OTHER_PRIORITY", [("priorities", found.join(","))]))
        }
        Error::OtherMatch(existing) => (Code::FailedPrecondition, Details::new("OTHER_MATCH", [ufid(existing)])),
        Error::OtherOrigin(existing, owner) => {
            let owner = ("owner", owner.to_string());
            (Code::PermissionDenied, Details::new("OTHER_OWNER", [ufid(existing), owner]))
        }
        Error::Overtaken(owner) => (Code::Aborted, Details::new("OVERTAKEN", [("owner", owner.to_string())])),
        Error::Busy(refusal) | Error::Refused(refusal) => return of_refusal(refusal),
        Error::NotDurable(_) => (Code::Unavailable, Details::new("NOT_DURABLE", [])),
        Error::Unanswered { .. } => (Code::DeadlineExceeded, Details::new("UNANSWERED", [])),
        Error::NotListed(refusal) => return of_refusal(refusal),
        Error::LeftInDevice { rules, .. } => {
            (Code::Internal, Details::new("LEFT_IN_DEVICE", [("rules", rules.to_string())]))
        }
        Error::Object(_) => (Code::FailedPrecondition, Details::new("OBJECT", [])),
    };
    details.status(code, error.to_string())
}

/// Why the device or a limit refuses.
pub(super) fn of_refusal(refusal: &Refusal) -> rpc::Status {
    let details = |metadata: Vec<(&'static str, String)>| Details::new(refusal.label().to_uppercase(), metadata);
    let (code, details) = match refusal {
        Refusal::Until { refusal, .. } => return of_refusal(refusal),
        Refusal::Action { action, reason } => (
            Code::FailedPrecondition,
            details(vec![("action", action.name().to_owned()), ("words", reason.to_string())]),
        ),
        Refusal::Busy { reason } => {
            let words = details(vec![("words", reason.to_string())]);
            (Code::ResourceExhausted, words.retry_after(RETRY_DELAY))
        }
        Refusal::Continuation { chain } => {
            (Code::FailedPrecondition, details(vec![("recirc_id", format!("{:#x}", chain.0))]))
        }
        Refusal::Field { field, reason } => {
            (Code::FailedPrecondition, details(vec![("field", field.to_string()), ("words", reason.to_string())]))
        }
        Refusal::Kernel { errno, message } => {
            (Code::FailedPrecondition, details(vec![("errno", errno.to_string()), ("words", message.clone())]))
        }
        Refusal::Limit { what, limit } => {
            (Code::ResourceExhausted, details(vec![("limit", limit.to_string()), ("words", what.to_string())]))
        }
        Refusal::Port { port, number, reason } => {
            let number = number.map(|number| ("number", number.to_string()));
            let named = [("port", port.clone()), ("words", reason.to_string())];
            (Code::FailedPrecondition, details(named.into_iter().chain(number).collect()))
        }
        Refusal::PortGone { number, name } => {
            (Code::FailedPrecondition, details(vec![("port", name.to_string()), ("number", number.to_string())]))
        }
        Refusal::Unsupported { facet } => (Code::Unimplemented, details(vec![("facet", facet.name().to_owned())])),
        Refusal::Combination { reason } | Refusal::Device { reason } => {
            (Code::FailedPrecondition, details(vec![("words", reason.to_string())]))
        }
        _ => (Code::FailedPrecondition, details(Vec::new())),
    };
    details.status(code, refusal.to_string())
}

/// The errors of a message that has many of them. So many bytes of these are whole, and of the rest each is [brief](rpc::Status::brief): so the
/// message stays below the 4 MiB that any client takes.
pub(super) struct Errors {
    room: usize,
}

impl Default for Errors {
    fn default() -> Self {
        Self { room: 2 << 20 }
    }
}

impl Errors {
    /// The error as it fits.
    pub(super) fn fit(&mut self, error: rpc::Status) -> rpc::Status {
        match self.room.checked_sub(error.size()) {
            Some(left) => {
                self.room = left;
                error
            }
            None => error.brief(),
        }
    }
}

/// As many calls of a kind go on as may at a time.
pub(super) fn too_many(words: &str) -> tonic::Status {
    let details = Details::new("BUSY", [("words", words.to_owned())]).retry_after(TURN_DELAY);
    details.status(Code::ResourceExhausted, words).into()
}

/// A call fails as a whole, for a reason of the interface itself.
pub(super) fn call_ended(
    kind: &str,
    code: Code,
    metadata: impl IntoIterator<Item = (&'static str, String)>,
    words: impl Into<String>,
) -> tonic::Status {
    Details::new(kind, metadata).status(code, words).into()
}

/// What should answer a call has panicked, of which the log has more.
pub(super) fn cut_off(error: &JoinError) -> tonic::Status {
    call_ended("FAULT", Code::Internal, [], format!("the call was cut off: {error}"))
}

/// The same for a reason of the service.
pub(super) fn call_failed(error: &Error) -> tonic::Status {
    of_error(error).into()
}
