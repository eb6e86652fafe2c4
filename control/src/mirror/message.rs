//! The messages of the mirror socket.

use super::error::MessageError;
use super::frame::{FRAME_HEADER, FrameView};
use super::header::Kind;
use super::losses::Losses;
use super::plan::{MAX_TAPS, Plan};

/// As many bytes as a message has at most: a plan with all its taps, or a frame of 64 KiB.
pub const MAX_MESSAGE: usize = {
    let plan = 4 + 5 + 255 + MAX_TAPS * (9 + 255 + 255);
    let frame = FRAME_HEADER + (1 << 16);
    if plan > frame { plan } else { frame }
};

/// A message of the agent to a client of the mirror socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// What is mirrored from now on.
    Plan(Plan),
    /// A copied frame.
    Frame(FrameView<'a>),
    /// What the client did not get.
    Losses(Losses),
    /// Something of a later agent, which a client skips: the kind.
    Unknown(u8),
}

impl<'a> Message<'a> {
    /// Reads a message as it was received. Fails, and says why, if it is none of this version.
    pub fn parse(message: &'a [u8]) -> Result<Self, MessageError> {
        let (kind, body) = Kind::split(message)?;
        match kind {
            Kind::PLAN => Plan::parse(body).map(Self::Plan),
            Kind::FRAME => FrameView::parse(body).map(Self::Frame),
            Kind::LOSSES => Losses::parse(body).map(Self::Losses),
            Kind(other) => Ok(Self::Unknown(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Class, ClassSet, FrameRepr, Tap};
    use super::*;

    fn classes() -> impl Strategy<Value = ClassSet> {
        prop::collection::vec(0..Class::ALL.len(), 0..9)
            .prop_map(|codes| codes.into_iter().map(|code| Class::ALL[code]).collect())
    }

    fn tap() -> impl Strategy<Value = Tap> {
        (any::<Option<u32>>(), ".{0,60}", prop::option::of(".{1,15}"), classes())
            .prop_map(|(in_port, name, netdev, classes)| Tap { in_port, name, netdev, classes })
    }

    fn plan() -> impl Strategy<Value = Plan> {
        (".{0,60}", classes(), prop::collection::vec(tap(), 0..5)).prop_map(|(collector, classes, taps)| Plan {
            collector,
            classes,
            taps,
        })
    }

    fn frame() -> impl Strategy<Value = (FrameRepr, Vec<u8>)> {
        let facts = (0..Class::ALL.len(), any::<Option<u32>>(), any::<Option<u128>>(), any::<u64>(), 0_u32..100);
        (facts, prop::collection::vec(any::<u8>(), 0..100)).prop_map(|((class, in_port, ufid, time, more), frame)| {
            let original_length = u32::try_from(frame.len()).unwrap() + more;
            (FrameRepr { class: Class::ALL[class], in_port, ufid, time, original_length }, frame)
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(plan in plan(), (repr, frame) in frame(), losses: [u64; 9]) {
            let message = plan.message();
            prop_assert_eq!(Message::parse(&message), Ok(Message::Plan(plan)));
            let message = repr.message(&frame);
            let Ok(Message::Frame(view)) = Message::parse(&message) else { panic!("no frame") };
            prop_assert_eq!((view.repr(), view.frame()), (repr, &frame[..]));
            let message = Losses(losses).message();
            prop_assert_eq!(Message::parse(&message), Ok(Message::Losses(Losses(losses))));
        }

        #[test]
        fn any_bytes_are_refused_or_are_what_they_would_be_written_as(
            kind in 0_u8..5,
            body in prop::collection::vec(any::<u8>(), 0..120),
            small in any::<bool>(),
        ) {
            // Small numbers are lengths and codes more often.
            let body = body.into_iter().map(|byte| if small { byte % 4 } else { byte });
            let message: Vec<u8> = [1, kind, 0, 0].into_iter().chain(body).collect();
            match Message::parse(&message) {
                Ok(Message::Plan(plan)) => prop_assert_eq!(plan.message(), message),
                Ok(Message::Frame(view)) => prop_assert_eq!(view.repr().message(view.frame()), message),
                Ok(Message::Losses(losses)) => prop_assert_eq!(losses.message(), message),
                Ok(Message::Unknown(unknown)) => prop_assert_eq!(unknown, kind),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn a_message_that_is_cut_anywhere_is_refused(plan in plan(), at: prop::sample::Index) {
            let message = plan.message();
            prop_assert!(Message::parse(&message[..at.index(message.len())]).is_err());
        }

        #[test]
        fn no_bytes_at_all_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Message::parse(&bytes);
        }
    }

    #[test]
    fn another_version_is_refused_and_another_kind_is_named() {
        assert_eq!(Message::parse(&[2, 1, 0, 0]), Err(MessageError::Version(2)));
        assert_eq!(Message::parse(&[1, 77, 0, 0, 5]), Ok(Message::Unknown(77)));
        assert_eq!(
            Message::parse(&[1]).unwrap_err().to_string(),
            "a message of 1 bytes has another length than its fields say"
        );
    }
}
