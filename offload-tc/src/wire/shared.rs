//! Actions that rules share: `struct tcamsg` with its attributes (`include/uapi/linux/rtnetlink.h`), and the requests that
//! make, change, delete and list them (`tc_ctl_action` in `net/sched/act_api.c`).

use sluice_netdev::netlink::attribute::{Attribute, Attributes, Malformed, TooLong, Writer};
use sluice_netdev::netlink::message::{self, Header};

use super::action::{Action, COUNTED, flag};

/// An action exists, or is to be made (`RTM_NEWACTION`).
pub const NEW_ACTION: u16 = 48;
/// An action is to be deleted.
pub const DELETE_ACTION: u16 = 49;
/// An action is asked for, or with [`message::flag::DUMP`] all of a kind.
pub const GET_ACTION: u16 = 50;

const ACTIONS: u16 = 1;
const FLAGS: u16 = 2;
const KIND: u16 = 1;
const INDEX: u16 = 3;
/// `TCA_ACT_FLAGS`
const PLACEMENT: u16 = 7;
/// `TCA_ACT_FLAG_LARGE_DUMP_ON`: as many actions in a message as fit.
const LARGE_DUMP: u32 = 1;
/// Bytes of `struct tcamsg`.
const FIXED: usize = 4;

/// Writes a request to make an action, or with [`message::flag::REPLACE`] to change it. `placement` is bits of
/// [`action::flag`](super::action::flag).
pub fn emit(buffer: &mut Vec<u8>, action: &Action, placement: u32, flags: u16, sequence: u32) -> Result<(), TooLong> {
    write(buffer, NEW_ACTION, flags, sequence, |writer| {
        writer.nest(ACTIONS, |writer| action.emit(1, placement, writer));
    })
}

/// Writes a request with the name of an action only: [`DELETE_ACTION`] or [`GET_ACTION`].
pub fn emit_name(
    buffer: &mut Vec<u8>,
    request: u16,
    kind: &str,
    index: u32,
    flags: u16,
    sequence: u32,
) -> Result<(), TooLong> {
    write(buffer, request, flags, sequence, |writer| {
        writer.nest(ACTIONS, |writer| {
            writer.nest(1, |writer| {
                writer.put_text(KIND, kind);
                writer.put(INDEX, &index.to_ne_bytes());
            });
        });
    })
}

/// Writes a request for all actions of a kind, including those of single rules.
pub fn emit_dump(buffer: &mut Vec<u8>, kind: &str, sequence: u32) -> Result<(), TooLong> {
    write(buffer, GET_ACTION, message::flag::DUMP, sequence, |writer| {
        writer.nest(ACTIONS, |writer| writer.nest(1, |writer| writer.put_text(KIND, kind)));
        writer.put(FLAGS, &[LARGE_DUMP.to_ne_bytes(), LARGE_DUMP.to_ne_bytes()].concat());
    })
}

fn write(
    buffer: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    sequence: u32,
    body: impl FnOnce(&mut Writer<'_>),
) -> Result<(), TooLong> {
    let header = Header { kind, flags: message::flag::REQUEST | flags, sequence, port: 0 };
    message::write(buffer, header, |writer| {
        writer.raw(&[0; FIXED]);
        body(writer);
    })
}

/// An action as the kernel sends it, not parsed: its kind or options may be unknown to us.
#[derive(Clone, Copy, Debug)]
pub struct ActionView<'a> {
    nest: Attribute<'a>,
    /// The note on it; empty if there is none.
    pub cookie: &'a [u8],
    /// Bits of [`action::flag`](super::action::flag).
    pub placement: u32,
}

impl<'a> ActionView<'a> {
    /// Reads what follows the header of a message about actions.
    pub fn all(payload: &'a [u8]) -> impl Iterator<Item = Result<Self, Malformed>> {
        let place = "actions";
        let whole = Attributes::new(payload.get(FIXED..).unwrap_or_default(), place);
        whole.flat_map(move |attribute| {
            let (error, nest) = match attribute {
                Ok(attribute) if attribute.kind == ACTIONS => (None, attribute.nested(place)),
                Ok(_) => (None, Attributes::new(&[], place)),
                Err(error) => (Some(Err(error)), Attributes::new(&[], place)),
            };
            error.into_iter().chain(nest.map(|nest| Self::new(nest?)))
        })
    }

    /// Parses the action.
    pub fn parse(&self) -> Result<Action, Malformed> {
        Action::parse(&self.nest)
    }

    fn new(nest: Attribute<'a>) -> Result<Self, Malformed> {
        let [.., cookie] = COUNTED;
        let mut found = Self { nest, cookie: &[], placement: 0 };
        for attribute in nest.nested("action") {
            let attribute = attribute?;
            if attribute.kind == cookie {
                found.cookie = attribute.payload;
            } else if attribute.kind == PLACEMENT {
                // `struct nla_bitfield32`: values, and which bits are valid.
                let bits = attribute.payload.first_chunk().map_or(0, |bits| u32::from_ne_bytes(*bits));
                found.placement = bits & (flag::SKIP_HW | flag::SKIP_SW);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::action::{Control, Operation, Police};
    use super::*;
    use sluice_netdev::netlink::message::Messages;

    const POLICE: Police = Police { conform: Control::Pipe, rate: Some(1000), burst: 7, mtu: 1500, packets: None };

    fn written(police: Police) -> Vec<u8> {
        let action = Action {
            index: 0x2000_0001,
            cookie: Some([7; 16].into()),
            ..Action::new(Operation::Police(Box::new(police)), Control::Shot)
        };
        let mut message = vec![];
        emit(&mut message, &action, flag::SKIP_HW, message::flag::REPLACE, 1).unwrap();
        message
    }

    #[test]
    fn an_action_is_read_as_it_was_written_and_its_note_without_taking_it_apart() {
        let message = written(POLICE);
        let message = Messages::new(&message).next().unwrap().unwrap();
        assert_eq!((message.header.kind, message.header.flags), (NEW_ACTION, 0x101));
        let views: Vec<_> = ActionView::all(message.payload).map(Result::unwrap).collect();
        let [view] = views[..] else { panic!("{views:?}") };
        assert_eq!((view.cookie, view.placement), (&[7; 16][..], flag::SKIP_HW));
        let action = view.parse().unwrap();
        assert_eq!((action.index, action.control), (0x2000_0001, Control::Shot));
        assert_eq!(action.operation, Operation::Police(Box::new(POLICE)));
    }

    #[test]
    fn what_refers_to_an_action_cannot_make_one() {
        let average_rate = |police| written(police).windows(8).any(|bytes| bytes == [8, 0, 4, 0, 1, 0, 0, 0]);
        assert!(average_rate(Police::reference(Control::Pipe)), "for which the kernel wants an estimator");
        assert!(!average_rate(POLICE));
    }

    #[test]
    fn messages_cut_short_are_errors_and_never_panics() {
        let message = written(POLICE);
        let payload = &message[message::HEADER..];
        let is_read = |payload| ActionView::all(payload).all(|view| view.is_ok_and(|view| view.parse().is_ok()));
        let whole = (FIXED + 1..payload.len()).filter(|length| is_read(&payload[..*length]));
        assert_eq!(whole.count(), 0);
    }
}
