//! What a slot holds: nothing, a flow that no worker has looked at yet or that is in the device as wanted, or a life in which
//! more has happened.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::life::{Installed, Life};
use super::sync::{Mutex, MutexGuard};
use crate::backend::{Handle, Placement};
use crate::cause::Cause;
use crate::event::Wish;
use crate::flow::Flow;
use crate::id::Generation;
use crate::port::GonePort;
use crate::refusal::Refusal;
use crate::table::FlowState;
use crate::table::chains::Member;
use crate::table::state::Standing;
use crate::time::Timestamp;
use crate::ufid::Ufid;

/// A slot's current life, if it has one. Lies under the lock of the slot.
#[derive(Default)]
pub(super) enum Record {
    /// No life.
    #[default]
    Free,
    /// What every flow begins as that concerns no chain and of whose outcome nobody waits to hear: its worker is yet to look at
    /// it. A million may wait so.
    Fresh(Fresh),
    /// What almost all flows are almost always: kept in the slot itself, in as little as there is to know.
    Settled(Settled),
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

/// A flow that was accepted, and with which nothing has happened since.
pub(super) struct Fresh {
    pub(super) flow: Flow,
    pub(super) accepted: Timestamp,
    /// When it came into this table.
    pub(super) asked: Timestamp,
}

/// A flow that is in the device as it is wanted, and about which nobody waits.
pub(super) struct Settled {
    flow: Flow,
    accepted: Timestamp,
    handle: Handle,
    generation: Generation,
    placement: Placement,
}

impl Record {
    /// Does something to the life, which is taken out of its short form for that and put into it again if it can be.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Life) -> R) -> Option<R> {
        let mut life = match std::mem::take(self) {
            Self::Free => return None,
            Self::Over(ufid) => {
                *self = Self::Over(ufid);
                return None;
            }
            Self::Fresh(fresh) => Box::new(fresh.into_life()),
            Self::Settled(settled) => Box::new(settled.into_life()),
            Self::Unsettled(life) => life,
        };
        let result = change(&mut life);
        *self = Settled::of(life);
        Some(result)
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
            Self::Fresh(fresh) => Some(&fresh.flow),
            Self::Settled(settled) => Some(&settled.flow),
            Self::Unsettled(life) => Some(&life.flow),
        }
    }

    /// Whether there is a flow that is not on its way out.
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Self::Free | Self::Over(_) => false,
            Self::Fresh(_) | Self::Settled(_) => true,
            Self::Unsettled(life) => life.end.is_none(),
        }
    }

    /// How far the flow has come; meaningless without one.
    pub(super) fn state(&self) -> FlowState {
        match self {
            Self::Free | Self::Over(_) => FlowState::Deleting,
            Self::Fresh(_) => FlowState::Pending,
            Self::Settled(settled) => Standing::Placed(settled.placement).state(),
            Self::Unsettled(life) => life.state(),
        }
    }

    /// Where the rule is, if there is one.
    pub(super) fn placement(&self) -> Option<Placement> {
        match self {
            Self::Free | Self::Over(_) | Self::Fresh(_) => None,
            Self::Settled(settled) => Some(settled.placement),
            Self::Unsettled(life) => life.installed.as_ref().map(|rule| rule.placement),
        }
    }

    /// The device's name for the rule, if there is one.
    pub(super) fn handle(&self) -> Option<Handle> {
        match self {
            Self::Free | Self::Over(_) | Self::Fresh(_) => None,
            Self::Settled(settled) => Some(settled.handle),
            Self::Unsettled(life) => life.installed.as_ref().map(|rule| rule.handle),
        }
    }

    /// What is wanted, by the count of its changes.
    pub(super) fn generation(&self) -> Generation {
        match self {
            Self::Free | Self::Over(_) => Generation::NONE,
            Self::Fresh(_) => Fresh::GENERATION,
            Self::Settled(settled) => settled.generation,
            Self::Unsettled(life) => life.generation,
        }
    }

    /// Why the flow is refused, or the last refusal.
    pub(super) fn refusal(&self) -> Option<&Arc<Refusal>> {
        match self {
            Self::Free | Self::Over(_) | Self::Fresh(_) | Self::Settled(_) => None,
            Self::Unsettled(life) => life.reason(),
        }
    }

    /// The ports that the flow was accepted for and that are gone.
    pub(super) fn gone_ports(&self) -> &[GonePort] {
        match self {
            Self::Free | Self::Over(_) | Self::Fresh(_) | Self::Settled(_) => &[],
            Self::Unsettled(life) => life.gone_ports(),
        }
    }

    /// What the flow waits for if it was refused, and not for good.
    pub(super) fn awaited(&self) -> Option<Cause> {
        match self {
            // Nothing that is settled was refused.
            Self::Free | Self::Over(_) | Self::Fresh(_) | Self::Settled(_) => None,
            Self::Unsettled(life) => life.awaited(),
        }
    }

    /// When the flow was accepted; meaningless without one.
    pub(super) fn accepted(&self) -> Timestamp {
        match self {
            Self::Free | Self::Over(_) => Timestamp::default(),
            Self::Fresh(fresh) => fresh.accepted,
            Self::Settled(settled) => settled.accepted,
            Self::Unsettled(life) => life.accepted,
        }
    }
}

impl Fresh {
    const GENERATION: Generation = Generation::NONE.next();

    pub(super) fn into_life(self) -> Life {
        let Self { flow, accepted, asked } = self;
        Life { generation: Self::GENERATION, unsettled: true, ..Life::new(flow, accepted, asked, Standing::Pending) }
    }
}

impl Settled {
    /// A life in its short form, if nothing is lost by that.
    fn of(life: Box<Life>) -> Record {
        match &life.installed {
            Some(rule) if life.is_settled(rule) => Record::Settled(Self {
                handle: rule.handle,
                placement: rule.placement,
                generation: life.generation,
                accepted: life.accepted,
                flow: life.flow,
            }),
            _ => Record::Unsettled(life),
        }
    }

    fn into_life(self) -> Life {
        let Self { flow, accepted, handle, generation, placement } = self;
        let installed = Some(Installed { flow: flow.clone(), generation, handle, placement });
        let member = Member::of_settled(&flow);
        Life { generation, installed, member, ..Life::new(flow, accepted, accepted, Standing::Placed(placement)) }
    }
}
