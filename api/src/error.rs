//! Errors as `google.rpc` writes them.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use prost_types::Any;

use crate::rpc::{ErrorInfo, RetryInfo, Status};

/// Who defines the kinds of our errors.
pub const DOMAIN: &str = "sluice";

/// What a program reads of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The kind of the error, in capitals; empty if it is none of ours.
    pub reason: String,
    /// What belongs to it, by name.
    pub metadata: HashMap<String, String>,
    /// When the same request may succeed, if it may.
    pub retry_after: Option<Duration>,
}

impl Details {
    /// What is known of a kind of error.
    pub fn new(reason: impl Into<String>, metadata: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let metadata = metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { reason: reason.into(), metadata, retry_after: None }
    }

    /// The same of an error that is gone later.
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    /// The error of a code, in words for people.
    pub fn status(self, code: tonic::Code, message: impl Into<String>) -> Status {
        let Self { reason, metadata, retry_after } = self;
        let info = ErrorInfo { reason, domain: DOMAIN.to_owned(), metadata };
        let retry = retry_after.map(|delay| RetryInfo { retry_delay: delay.try_into().ok() }.pack());
        Status { code: code.into(), message: message.into(), details: [info.pack()].into_iter().chain(retry).collect() }
    }

    /// What an error says for programs.
    pub fn of(status: &Status) -> Self {
        let mut details = Self::default();
        for detail in &status.details {
            if let Some(ErrorInfo { reason, domain, metadata }) = ErrorInfo::unpack(detail) {
                if domain == DOMAIN {
                    (details.reason, details.metadata) = (reason, metadata);
                }
            } else if let Some(RetryInfo { retry_delay: Some(delay) }) = RetryInfo::unpack(detail) {
                details.retry_after = delay.try_into().ok();
            }
        }
        details
    }
}

impl Status {
    /// Bytes that it takes in a message.
    pub fn size(&self) -> usize {
        self.encoded_len()
    }

    /// The same error in as few bytes as programs need: without words for people, and without particulars.
    #[must_use]
    pub fn brief(&self) -> Self {
        let details = Details { metadata: HashMap::new(), ..Details::of(self) };
        details.status(tonic::Code::from_i32(self.code), "")
    }
}

/// The error of a whole call. Its details travel as the protocol of gRPC has it, in `grpc-status-details-bin`.
impl From<Status> for tonic::Status {
    fn from(status: Status) -> Self {
        let details = status.encode_to_vec();
        Self::with_details(tonic::Code::from_i32(status.code), status.message, details.into())
    }
}

/// What a call failed with.
impl From<&tonic::Status> for Status {
    fn from(status: &tonic::Status) -> Self {
        let plain = || Self { code: status.code().into(), message: status.message().to_owned(), details: Vec::new() };
        if status.details().is_empty() { plain() } else { Self::decode(status.details()).unwrap_or_else(|_| plain()) }
    }
}

/// What is packed into the details of an error.
trait Detail: Message + Default {
    /// Its type, as `google.protobuf.Any` names it.
    const TYPE_URL: &str;

    fn pack(&self) -> Any {
        Any { type_url: Self::TYPE_URL.to_owned(), value: self.encode_to_vec() }
    }

    fn unpack(any: &Any) -> Option<Self> {
        (any.type_url == Self::TYPE_URL).then(|| Self::decode(any.value.as_slice()).ok())?
    }
}

impl Detail for ErrorInfo {
    const TYPE_URL: &str = "type.googleapis.com/google.rpc.ErrorInfo";
}

impl Detail for RetryInfo {
    const TYPE_URL: &str = "type.googleapis.com/google.rpc.RetryInfo";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_what_was_written() {
        let written = Details::new("LIMIT", [("limit", "7".to_owned())]).retry_after(Duration::from_millis(250));
        let call = tonic::Status::from(written.clone().status(tonic::Code::ResourceExhausted, "seven are enough"));
        assert_eq!((call.code(), call.message()), (tonic::Code::ResourceExhausted, "seven are enough"));
        assert_eq!(Details::of(&Status::from(&call)), written);
    }

    #[test]
    fn a_brief_error_has_code_and_kind_and_when_to_try_again() {
        let metadata = [("words", "seven flows wait already".repeat(100))];
        let details = Details::new("BUSY", metadata).retry_after(Duration::from_millis(250));
        let written = details.clone().status(tonic::Code::ResourceExhausted, "seven flows wait".repeat(100));
        let brief = written.brief();
        assert_eq!((brief.code, Details::of(&brief)), (written.code, Details { metadata: HashMap::new(), ..details }));
        assert!(brief.size() < 150 && brief.size() < written.size(), "{} bytes", brief.size());
    }

    #[test]
    fn what_others_say_is_no_kind_of_ours() {
        let other = ErrorInfo { reason: "X".to_owned(), domain: "example".to_owned(), ..ErrorInfo::default() };
        let status = Status { details: vec![other.pack(), Any::default()], ..Status::default() };
        assert_eq!(Details::of(&status), Details::default());
        let plain = tonic::Status::not_found("no such flow");
        assert_eq!(Status::from(&plain).message, "no such flow");
    }
}
