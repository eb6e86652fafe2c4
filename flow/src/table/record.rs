//! What a slot holds: nothing, a flow that no worker has looked at yet or that is in the device as wanted, or a life in which
//! more has happened.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::life::{Installed, Life};
use super::sync::{Mutex, MutexGuard};
use crate::backend::{Change, Handle, Placement};
use crate::cause::Cause;
use crate::event::Wish;
use crate::flow::Flow;
use crate::id::Generation;
use crate::port::{GonePort, PortNumber};
use crate::refusal::Refusal;
use crate::table::FlowState;
use crate::table::chains::Member;
use crate::table::request::{ReplyTo, SharedWaiter};
use crate::table::state::Standing;
use crate::time::Timestamp;
use crate::ufid::Ufid;

/// A slot's current life, if it has one. Lies under the lock of the slot.
///
/// Fields stand in the variants and in no structures of their own, which would take a word more.
#[derive(Default)]
pub(super) enum Record {
    /// No life.
    #[default]
    Free,
    /// What every flow begins as that concerns no chain: its worker is yet to look at it, or the device has yet to answer. A million may
    /// wait so.
    Fresh {
        flow: Flow,
        accepted: Timestamp,
        /// Who wants to hear of the outcome, and of which of its requests it is.
        waiter: Option<SharedWaiter>,
        request: u32,
        /// The installation is with the backend.
        in_flight: bool,
    },
    /// What almost all flows are almost always: in the device as it is wanted, and nobody waits for it. Kept in the slot itself, in as
    /// little as there is to know.
    Settled {
        flow: Flow,
        accepted: Timestamp,
        handle: Handle,
        generation: Generation,
        placement: Placement,
        /// The worker that has just put it there is yet to count it as settled.
        unsettled: bool,
    },
    /// Something is to be done, is being done, was refused or is waited for.
    Unsettled(Box<Life>),
    /// The life of the flow with this UFID is over, and the log has yet to write that.
    Over([u8; 16]),
}

/// A record as it lies in its slot: one byte larger with its lock, and not a word.
#[derive(Default)]
#[repr(Rust, packed)]
pub(super) struct Packed(Record);

/// A record whose slot is locked, taken out of it until the guard goes.
pub(super) struct RecordGuard<'a> {
    record: Record,
    place: MutexGuard<'a, Packed>,
}

impl<'a> RecordGuard<'a> {
    pub(super) fn lock(place: &'a Mutex<Packed>) -> Self {
        let mut place = place.lock();
        let Packed(record) = std::mem::take(&mut *place);
        Self { record, place }
    }
}

impl Drop for RecordGuard<'_> {
    fn drop(&mut self) {
        *self.place = Packed(std::mem::take(&mut self.record));
    }
}

impl Deref for RecordGuard<'_> {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl DerefMut for RecordGuard<'_> {
    fn deref_mut(&mut self) -> &mut Record {
        &mut self.record
    }
}

/// What a worker has to do about a flow whose record is short.
pub(super) enum ShortLook {
    /// Hand this to the device.
    Install(Flow, Generation),
    /// Count it as settled.
    Settle,
    /// Nothing.
    Rest,
}

impl Record {
    /// What is wanted of a flow with which nothing has happened yet.
    const FIRST: Generation = Generation::NONE.next();

    /// A flow that was just accepted.
    pub(super) fn new(flow: Flow, accepted: Timestamp, reply_to: Option<ReplyTo>) -> Self {
        let (waiter, request) = reply_to.map(|reply_to| (reply_to.waiter, reply_to.request)).unzip();
        Self::Fresh { flow, accepted, waiter, request: request.unwrap_or_default(), in_flight: false }
    }

    /// Does something to the life, which is taken out of its short form for that and put into it again if it can be.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Life) -> R) -> Option<R> {
        let mut life = match std::mem::take(self) {
            Self::Free => return None,
            Self::Over(ufid) => {
                *self = Self::Over(ufid);
                return None;
            }
            Self::Fresh { flow, accepted, waiter, request, in_flight } => {
                let reply_to = waiter.map(|waiter| ReplyTo { waiter, request });
                let life = Life::new(flow, accepted, Standing::Pending);
                Box::new(Life { generation: Self::FIRST, in_flight, unsettled: true, reply_to, ..life })
            }
            Self::Settled { flow, accepted, handle, generation, placement, unsettled } => {
                let installed = Some(Installed { flow: flow.clone(), generation, handle, placement });
                let member = Member::of_settled(&flow);
                let life = Life::new(flow, accepted, Standing::Placed(placement));
                Box::new(Life { generation, installed, member, unsettled, ..life })
            }
            Self::Unsettled(life) => life,
        };
        let result = change(&mut life);
        *self = Self::of(life);
        Some(result)
    }

    /// A life in its short form, if nothing is lost by that.
    fn of(life: Box<Life>) -> Self {
        match &life.installed {
            Some(rule) if life.is_settled(rule) => Self::Settled {
                handle: rule.handle,
                placement: rule.placement,
                generation: life.generation,
                accepted: life.accepted,
                flow: life.flow,
                unsettled: false,
            },
            _ => Self::Unsettled(life),
        }
    }

    /// What a worker has to do that looks at a flow with which nothing has happened but what every flow goes through. Such a flow
    /// takes no memory for that.
    pub(super) fn look(&mut self) -> Option<ShortLook> {
        match self {
            Self::Fresh { in_flight: true, .. } => Some(ShortLook::Rest),
            Self::Fresh { flow, in_flight, .. } => {
                *in_flight = true;
                Some(ShortLook::Install(flow.clone(), Self::FIRST))
            }
            Self::Settled { unsettled, .. } => {
                Some(if std::mem::take(unsettled) { ShortLook::Settle } else { ShortLook::Rest })
            }
            _ => None,
        }
    }

    /// Takes note that the device has what such a flow wanted, under this name. Gives the flow, when it was accepted, and who waits for
    /// it; `None` if more has happened meanwhile, or if this is of something else.
    pub(super) fn install(
        &mut self,
        change: &Change,
        handle: Handle,
        placement: Placement,
    ) -> Option<(Flow, Timestamp, Option<ReplyTo>)> {
        if !matches!(self, Self::Fresh { in_flight: true, .. }) || change.generation != Self::FIRST {
            return None;
        }
        let Self::Fresh { flow, accepted, waiter, request, .. } = std::mem::take(self) else { return None };
        let reply_to = waiter.map(|waiter| ReplyTo { waiter, request });
        let installed = flow.clone();
        *self = Self::Settled { flow, accepted, handle, generation: Self::FIRST, placement, unsettled: true };
        Some((installed, accepted, reply_to))
    }

    /// Takes the name of a life out that is over.
    pub(super) fn take_over(&mut self) -> Option<Ufid> {
        let Self::Over(ufid) = *self else { return None };
        *self = Self::Free;
        Some(Ufid(u128::from_ne_bytes(ufid)))
    }

    /// Has what is wanted written down.
    pub(super) fn write(&mut self, write: impl FnOnce(Wish<'_>)) {
        match self {
            Self::Unsettled(life) if life.end.is_some() => {
                if std::mem::take(&mut life.is_end_unwritten) {
                    write(Wish::Unwanted(life.flow.ufid));
                }
            }
            other => match (other.flow(), other.gone_ports()) {
                (None, _) => {}
                (Some(flow), []) => write(Wish::Wanted(flow)),
                (Some(flow), gone_ports) => write(Wish::Withheld(flow, gone_ports)),
            },
        }
    }

    /// Takes a life out that is on its way out.
    pub(super) fn take_ended(&mut self) -> Option<Box<Life>> {
        match std::mem::take(self) {
            Self::Unsettled(life) if life.end.is_some() => Some(life),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The flow as it is wanted.
    pub(super) fn flow(&self) -> Option<&Flow> {
        match self {
            Self::Free | Self::Over(_) => None,
            Self::Fresh { flow, .. } | Self::Settled { flow, .. } => Some(flow),
            Self::Unsettled(life) => Some(&life.flow),
        }
    }

    /// Whether there is a flow that is not on its way out.
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Self::Free | Self::Over(_) => false,
            Self::Fresh { .. } | Self::Settled { .. } => true,
            Self::Unsettled(life) => life.end.is_none(),
        }
    }

    /// Whether this port is named by what is wanted, or perhaps by a rule that is in the device or on its way there.
    pub(super) fn may_name_port(&self, port: PortNumber) -> bool {
        match self {
            Self::Unsettled(life) => life.may_name_port(port),
            // The rule of any other is what is wanted.
            other => other.flow().is_some_and(|flow| flow.names_port(port)),
        }
    }

    /// How far the flow has come; meaningless without one.
    pub(super) fn state(&self) -> FlowState {
        match self {
            Self::Free | Self::Over(_) => FlowState::Deleting,
            Self::Fresh { .. } => FlowState::Pending,
            Self::Settled { placement, .. } => Standing::Placed(*placement).state(),
            Self::Unsettled(life) => life.state(),
        }
    }

    /// Where the rule is, if there is one.
    pub(super) fn placement(&self) -> Option<Placement> {
        match self {
            Self::Free | Self::Over(_) | Self::Fresh { .. } => None,
            Self::Settled { placement, .. } => Some(*placement),
            Self::Unsettled(life) => life.installed.as_ref().map(|rule| rule.placement),
        }
    }

    /// The device's name for the rule, if there is one.
    pub(super) fn handle(&self) -> Option<Handle> {
        match self {
            Self::Free | Self::Over(_) | Self::Fresh { .. } => None,
            Self::Settled { handle, .. } => Some(*handle),
            Self::Unsettled(life) => life.installed.as_ref().map(|rule| rule.handle),
        }
    }

    /// What is wanted, by the count of its changes.
    pub(super) fn generation(&self) -> Generation {
        match self {
            Self::Free | Self::Over(_) => Generation::NONE,
            Self::Fresh { .. } => Self::FIRST,
            Self::Settled { generation, .. } => *generation,
            Self::Unsettled(life) => life.generation,
        }
    }

    /// Why the flow is refused, or the last refusal.
    pub(super) fn refusal(&self) -> Option<&Arc<Refusal>> {
        match self {
            Self::Unsettled(life) => life.reason(),
            _ => None,
        }
    }

    /// The ports that the flow was accepted for and that are gone.
    pub(super) fn gone_ports(&self) -> &[GonePort] {
        match self {
            Self::Unsettled(life) => life.gone_ports(),
            _ => &[],
        }
    }

    /// What the flow waits for if it was refused, and not for good.
    pub(super) fn awaited(&self) -> Option<Cause> {
        match self {
            Self::Unsettled(life) => life.awaited(),
            // Of nothing else was anything refused.
            _ => None,
        }
    }

    /// When the flow was accepted; meaningless without one.
    pub(super) fn accepted(&self) -> Timestamp {
        match self {
            Self::Free | Self::Over(_) => Timestamp::default(),
            Self::Fresh { accepted, .. } | Self::Settled { accepted, .. } => *accepted,
            Self::Unsettled(life) => life.accepted,
        }
    }
}
