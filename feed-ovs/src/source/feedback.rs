//! What was counted for the flows of a datapath, on its way back to ovs-vswitchd.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sluice_feedback::{ClosedDoor, CreateError, Event, Handover, Publisher, Setting, Totals};
use sluice_flow::Ufid;
use sluice_flow::source::Standing;

use crate::wire::now;

/// A library that tells of meters asks within so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why ovs-vswitchd could not be heard or told anything.
#[derive(Debug, thiserror::Error)]
pub enum FeedbackError {
    /// There is no memory to share.
    #[error("the shared memory of the feedback: {0}")]
    Memory(#[from] CreateError),
    /// It could not connect.
    #[error("cannot make the socket {}: {source}", path.display())]
    Socket {
        /// Where it should be.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Makes a socket at which nobody can connect yet.
pub(super) fn closed_door(path: &Path) -> Result<ClosedDoor, FeedbackError> {
    ClosedDoor::new(path).map_err(|source| FeedbackError::Socket { path: path.to_owned(), source })
}

/// What the feedback needs, while nobody can ask for it yet.
pub(super) struct PreparedFeedback {
    publisher: Publisher,
    door: ClosedDoor,
    wants_meters: bool,
}

impl PreparedFeedback {
    /// Makes the memory for so many flows, and a socket at which the library asks for it, which may be what tells of meters.
    pub(super) fn new(socket: &Path, flows: usize, wants_meters: bool) -> Result<Self, FeedbackError> {
        let epoch = u64::try_from(now().as_nanos()).unwrap_or_default();
        Ok(Self { publisher: Publisher::create(flows, epoch)?, door: closed_door(socket)?, wants_meters })
    }

    /// Lets the library ask.
    pub(super) fn open(self) -> io::Result<Feedback> {
        let Self { publisher, door, wants_meters } = self;
        let handover = Handover::at(door.open()?);
        let (was_asked, is_full, told) = Default::default();
        Ok(Feedback { publisher, handover, begun: Instant::now(), was_asked, told, is_full, wants_meters })
    }
}

/// The agent's end of the feedback.
pub(super) struct Feedback {
    publisher: Publisher,
    handover: Handover,
    begun: Instant,
    /// A library has asked, and has given the memory of an earlier agent back if it had one, so that what that has published is known.
    was_asked: bool,
    told: HashMap<Ufid, Told>,
    is_full: bool,
    /// Whether meters are known by the library alone.
    wants_meters: bool,
}

/// Who tells of meters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Teller {
    /// Nobody, so that none is known.
    Nobody,
    /// A library, and so often it has told something new.
    Library(u64),
}

/// What this agent has told of a flow.
struct Told {
    /// What was published before its counts began.
    base: Totals,
    /// How much of its counts was told of in a life that is over.
    over: Count,
    /// Its last count.
    last: Count,
}

/// What the device has counted of a flow.
#[derive(Clone, Copy, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Feedback {
    /// Answers the library. Never waits.
    pub(super) fn serve(&mut self) {
        for event in self.handover.serve(&mut self.publisher) {
            match event {
                Event::Asked { .. } => self.was_asked = true,
                Event::Taken { pid, tells_meters } => {
                    tracing::info!("process {pid} adds what is counted here to the kernel's counters");
                    if self.wants_meters && !tells_meters {
                        tracing::warn!(
                            "process {pid} has an older library: until it is restarted, flows with meters are left to Open vSwitch"
                        );
                    }
                }
                Event::Refused { pid, why } => {
                    let why =
                        why.map_or_else(|| "for a reason that is not known here".to_owned(), |why| why.to_string());
                    tracing::warn!("process {pid} does not take the feedback: {why}");
                }
                Event::Denied { uid } => tracing::warn!("user {uid} asked for the feedback and may not have it"),
                Event::Garbage { pid } => tracing::warn!("process {pid} asked for the feedback in no known words"),
                Event::Gone { pid } => tracing::info!("process {pid} takes no feedback any more"),
            }
        }
    }

    /// Whether a process takes it.
    pub(super) fn is_taken(&self) -> bool {
        self.handover.connected() > 0
    }

    /// Whether it is known what an earlier agent has published. Nothing is told before that, which nobody would hear either.
    pub(super) const fn may_tell(&self) -> bool {
        self.was_asked
    }

    /// Who tells of meters now, if that has been known before or is now.
    pub(super) fn meter_teller(&self, before: Option<Teller>) -> Option<Teller> {
        match self.handover.tells_meters() {
            Some(true) => Some(Teller::Library(self.publisher.meter_changes())),
            Some(false) if before.is_some() || self.begun.elapsed() >= PATIENCE => Some(Teller::Nobody),
            Some(false) | None => before,
        }
    }

    /// The meters that are told of. `None` if one of them changes just now.
    pub(super) fn meters(&self) -> Option<Vec<(u32, Setting)>> {
        self.publisher.meters()
    }

    /// Whether a flow could not be told of for want of memory.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Publishes what was counted for a flow, if that may be told yet.
    pub(super) fn tell(&mut self, standing: &Standing) {
        if !self.may_tell() {
            return;
        }
        let now = milliseconds();
        if self.publisher.is_deleted(standing.ufid) {
            // This agent has missed the end of that life, and the device counts on.
            let last = self.told.get(&standing.ufid).map_or_else(Count::default, |told| told.last);
            self.end(standing.ufid);
            self.told.insert(standing.ufid, Told { base: Totals::default(), over: last, last });
        }
        let begin = || {
            let base = self.publisher.get(standing.ufid).unwrap_or_default();
            Told { base, over: Count::default(), last: Count::default() }
        };
        let told = self.told.entry(standing.ufid).or_insert_with(begin);
        if standing.packets < told.last.packets {
            // The rule was deleted by a command and is another one now, of the same flow of Open vSwitch.
            *told = begin();
        }
        told.last = Count { packets: standing.packets, bytes: standing.bytes };
        let Told { base, over, .. } = *told;
        let used = standing
            .idle
            .filter(|_| standing.packets > over.packets)
            .map_or(0, |idle| now.saturating_sub(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)).max(1));
        let totals = Totals {
            packets: base.packets + standing.packets.saturating_sub(over.packets),
            bytes: base.bytes + standing.bytes.saturating_sub(over.bytes),
            used: used.max(base.used),
            tcp_flags: base.tcp_flags | standing.tcp_flags.to_le_bytes()[0],
        };
        let is_full = self.publisher.publish(standing.ufid, totals).is_err();
        if is_full && !self.is_full {
            tracing::error!(
                "Open vSwitch hears nothing of some flows: there is memory for {} only",
                self.publisher.capacity()
            );
        }
        self.is_full |= is_full;
    }

    /// A flow is gone, for which this was counted at last.
    pub(super) fn end_with(&mut self, ufid: Ufid, last: Option<&Standing>) {
        // Once ovs-vswitchd has its answer, it would take what is published for another life's.
        if let Some(standing) = last.filter(|_| !self.publisher.is_deleted(ufid)) {
            self.tell(standing);
        }
        self.end(ufid);
    }

    /// A flow is gone.
    pub(super) fn end(&mut self, ufid: Ufid) {
        self.told.remove(&ufid);
        self.publisher.withdraw(ufid, milliseconds());
    }

    /// Takes back all that is published of flows that are not there.
    pub(super) fn retain(&mut self, is_there: impl Fn(Ufid) -> bool) {
        if !self.may_tell() {
            return;
        }
        let gone: Vec<_> = self.publisher.iter().map(|(ufid, _)| ufid).filter(|ufid| !is_there(*ufid)).collect();
        gone.into_iter().for_each(|ufid| self.end(ufid));
    }
}

fn milliseconds() -> u64 {
    u64::try_from(now().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    use sluice_feedback::protocol::{Message, send};
    use sluice_feedback::{Attachment, answer};
    use sluice_flow::FlowState;
    use sluice_netdev::netlink::message::{Header, Messages, write};

    use super::*;
    use crate::wire::FlowMessage;

    const UFID: Ufid = Ufid(7);

    /// `enum ovs_flow_cmd`
    const DELETE: u8 = 2;
    const GET: u8 = 3;

    fn standing(packets: u64) -> Standing {
        let (state, waits_for, idle, tcp_flags) = (FlowState::Offloaded, None, None, 0);
        Standing { ufid: UFID, state, waits_for, packets, bytes: 60 * packets, idle, tcp_flags }
    }

    /// One that may tell.
    fn asked(folder: &Path) -> Feedback {
        let mut feedback = PreparedFeedback::new(&folder.join("feedback"), 16, false).unwrap().open().unwrap();
        feedback.was_asked = true;
        feedback
    }

    /// The packets and bytes that ovs-vswitchd reads of the flow, of which the kernel has counted nothing, in the answer to a command.
    fn answered(feedback: &Feedback, command: u8) -> (u64, u64) {
        const FAMILY: u16 = 0x1f;
        let attachment = Attachment::new(feedback.publisher.file().try_clone_to_owned().unwrap()).unwrap();
        let mut told = Vec::new();
        write(&mut told, Header { kind: FAMILY, flags: 0, sequence: 0, port: 0 }, |message| {
            message.raw(&[command, 1, 0, 0, 0, 0, 0, 0]);
            message.put(9, &FlowMessage::name(&UFID));
        })
        .unwrap();
        let mut received = told.clone();
        received.resize(1024, 0);
        let buffers = &mut [IoSliceMut::new(&mut received)];
        let length = answer::change(&mut told, buffers, FAMILY, &attachment, milliseconds());
        let message = Messages::new(&received[..length]).next().unwrap().unwrap();
        let statistics = FlowMessage::read(message.payload, now()).unwrap().statistics;
        (statistics.packets, statistics.bytes)
    }

    #[test]
    fn a_life_whose_end_was_not_heard_of_is_told_once_and_the_next_one_begins_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut feedback = asked(folder.path());
        feedback.tell(&standing(500));
        assert_eq!(answered(&feedback, DELETE), (500, 30_000));
        // The rule stays, for it is the same flow that is there again.
        feedback.tell(&standing(500));
        assert_eq!(answered(&feedback, GET), (0, 0));
        feedback.tell(&standing(503));
        assert_eq!((answered(&feedback, GET), answered(&feedback, DELETE)), ((3, 180), (3, 180)));
        feedback.tell(&standing(504));
        assert_eq!(answered(&feedback, GET), (1, 60));
        // The rule is another one.
        feedback.tell(&standing(2));
        assert_eq!(answered(&feedback, GET), (3, 180));
    }

    #[test]
    fn the_end_of_a_flow_is_told_once_whoever_hears_of_it_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut feedback = asked(folder.path());
        feedback.tell(&standing(500));
        assert_eq!(answered(&feedback, DELETE), (500, 30_000), "ovs-vswitchd is first");
        feedback.end_with(UFID, Some(&standing(502)));
        assert_eq!(answered(&feedback, DELETE), (0, 0), "a life of which nothing was told yet");

        feedback.tell(&standing(5));
        feedback.end_with(UFID, Some(&standing(7)));
        assert_eq!(answered(&feedback, DELETE), (7, 420), "the agent is first");
        assert_eq!(answered(&feedback, DELETE), (0, 0));
    }

    #[test]
    fn what_is_counted_before_a_library_gives_the_memory_of_an_earlier_agent_back_comes_on_top_of_that() {
        let mut earlier = Publisher::create(16, 1).unwrap();
        earlier.publish(UFID, Totals { packets: 10, bytes: 600, ..Totals::default() }).unwrap();

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feedback");
        let mut feedback = PreparedFeedback::new(&path, 16, false).unwrap().open().unwrap();
        // However late it comes.
        feedback.begun = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        feedback.tell(&standing(3));
        let library = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
        connect(&library, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert!(send(&library, Message::Hello { tells_meters: true }, Some(earlier.file())));
        feedback.serve();
        feedback.tell(&standing(4));
        let told = feedback.publisher.get(UFID).map(|totals| (totals.packets, totals.bytes));
        assert_eq!(told, Some((14, 840)));
    }
}
