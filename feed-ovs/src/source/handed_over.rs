//! Flows that ovs-vswitchd hands over instead of keeping them: an Open vSwitch that was built with `deploy/ovs/dpif-offload-sluice.c`.
//!
//! It connects to a socket of the agent and tells of its datapath, ports and flows in the kernel's messages. The agent answers with the UFIDs
//! of flows that it does not have, refused or lost, which ovs-vswitchd then puts into its own datapath. It gets what was counted by
//! [`sluice_feedback`], as a library that is loaded into it would. When it ends, its rules stay until the next one is at work.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use sluice_feedback::{ClosedDoor, Door, MeterCount, Peer};
use sluice_flow::source::{Intake, Source, SourceReport, Standing};
use sluice_flow::{Cause, FlowState, Origin, Ufid};

use super::feedback::{Feedback, PreparedFeedback, closed_door};
use super::flows::Flows;
use super::follower::{BEGINS_AGAIN, Follower, GOES_ON, Looked};
use super::left::Left;
use super::meters::Meters;
use super::ports::Ports;
use super::refusals::Refusals;
use super::session::{Trouble, can_go_on};
use super::{FeedbackError, Options, open_feedback, prepare_feedback, take_out, take_out_meters};
use crate::families::{Families, Family};
use crate::kernel::{Kernel, KernelError};
use crate::listener::{Change, Listener, Notification};
use crate::wire::FlowMessage;

/// The numbers of families in its messages.
const FAMILIES: Families = Families {
    datapath: Family { number: 0x10, group: 0 },
    vport: Family { number: 0x11, group: 0 },
    flow: Family { number: 0x12, group: 0 },
    meter: Some(0x13),
};
/// How often it is looked who else wants something, and whether the source is to stop, at least.
const LOOK: Duration = Duration::from_millis(250);
/// How long it is waited at least. So long has ovs-vswitchd for its answer to an answer, before it gets the next one.
const SOON: Duration = Duration::from_millis(2);
/// How long a flow may wait for the way to its next hop. The kernel has asked a neighbour twice by then (`retrans_time_ms`).
const NEXT_HOP: Duration = Duration::from_secs(2);
/// How long answers may wait for room. ovs-vswitchd reads at least twice a second.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many UFIDs go into one answer.
const ANSWER: usize = 1024;
/// At most so many connections are turned away at a time: the rest waits for the next.
const MAX_AT_ONCE: usize = 16;
/// Why there are no flows.
const NOBODY: &str = "no ovs-vswitchd hands flows over";
/// Why none are new.
const LEFT: &str = "ovs-vswitchd is gone: packets go as it has left them, until the next one is at work";

/// The flows that an ovs-vswitchd hands over.
pub struct HandedOverSource {
    options: Options,
    /// Until it runs, as the next.
    door: Option<ClosedDoor>,
    feedback: Option<PreparedFeedback>,
    report: SourceReport,
}

impl HandedOverSource {
    /// Makes a socket, at which nobody can connect before it runs.
    ///
    /// # Errors
    /// Fails if there can be none, or if the feedback cannot be shared.
    pub fn new(options: Options, socket: &Path) -> Result<Self, FeedbackError> {
        let report = SourceReport { subject: options.datapath.clone(), ..SourceReport::default() };
        let feedback = prepare_feedback(&options, false)?;
        Ok(Self { options, door: Some(closed_door(socket)?), feedback, report })
    }

    /// Waits for an ovs-vswitchd. Rules of an earlier one stay meanwhile, unless another one is at work elsewhere.
    fn next(
        &mut self,
        (door, refusals, feedback): (&Door, &Refusals, &mut Option<Feedback>),
        left: &mut Option<Left>,
        intake: &dyn Intake,
        stops: &dyn Fn() -> bool,
    ) -> Option<Peer> {
        while !stops() {
            wait_for([door.as_fd()], LOOK);
            match door.next() {
                Some(Ok(peer)) => return Some(peer),
                Some(Err(uid)) => tracing::warn!("user {uid} wanted to hand flows over and may not"),
                None => {}
            }
            if left.as_mut().is_some_and(Left::are_anothers) {
                tracing::warn!(
                    "an ovs-vswitchd is at work that hands nothing over: the rules of the one before are taken out"
                );
                *left = None;
                end_all(feedback.as_mut(), intake);
                self.tell_trouble(NOBODY, intake);
            }
            // Nobody is to be told.
            drop(refusals.take());
            if left.is_none() {
                // The device has kept those that its rules still used.
                take_out_meters(intake);
            }
        }
        None
    }

    fn tell_trouble(&mut self, trouble: &str, intake: &dyn Intake) {
        self.report.trouble = Some(trouble.to_owned());
        intake.report(self.report.clone());
    }
}

impl Source for HandedOverSource {
    fn origin(&self) -> Origin {
        Origin::OpenVswitch
    }

    fn run(&mut self, intake: &dyn Intake, stops: &dyn Fn() -> bool) {
        // First: who hands flows over asks for it at once.
        let mut feedback = open_feedback(self.feedback.take());
        let Some(door) = self.door.take() else { return };
        let (door, refusals) = match door.open().and_then(|door| Ok((door, Refusals::of(intake)?))) {
            Ok(both) => both,
            Err(error) => return self.tell_trouble(&format!("nobody can hand flows over: {error}"), intake),
        };
        let mut left = None;
        loop {
            self.tell_trouble(if left.is_some() { LEFT } else { NOBODY }, intake);
            let next = self.next((&door, &refusals, &mut feedback), &mut left, intake, stops);
            let Some(Peer { socket, pid, process }) = next else { break };
            tracing::info!("process {pid} hands flows over");
            self.report.trouble = None;
            let listener = Listener::of_program(socket, FAMILIES);
            let follower = Follower {
                options: &self.options,
                report: &mut self.report,
                feedback: feedback.as_mut(),
                intake,
                datapath: 0,
                flows: Flows::new(false, intake),
                ports: Ports::default(),
                meters: Meters::default(),
                must_compare: false,
                told: None,
                is_gone: false,
                has_told_all: false,
            };
            let told = Instant::now();
            let (waiting, given_back) = Default::default();
            let session = Session { door: &door, refusals: &refusals, listener, follower, waiting, given_back, told };
            left = session.run(stops).err().and_then(|trouble| {
                tracing::warn!("no flows are handed over any more: {trouble}");
                process.filter(|_| trouble.is_silence()).and_then(|process| Left::by(&process))
            });
            if left.is_none() {
                end_all(feedback.as_mut(), intake);
            }
            (self.report.flows, self.report.flows_left_out) = (0, 0);
        }
        end_all(feedback.as_mut(), intake);
    }
}

/// Takes out all flows and meters, of which nothing is told any more.
fn end_all(feedback: Option<&mut Feedback>, intake: &dyn Intake) {
    if let Some(feedback) = feedback {
        // An ovs-vswitchd that outlives the agent still reads what meters have counted.
        feedback.retain(|name| MeterCount::meter_of(name).is_some());
    }
    take_out(intake);
    take_out_meters(intake);
}

/// An ovs-vswitchd, from the moment that it has connected to its end.
struct Session<'a> {
    door: &'a Door,
    refusals: &'a Refusals,
    listener: Listener,
    follower: Follower<'a>,
    waiting: Waiting,
    given_back: GivenBack,
    told: Instant,
}

/// Flows that the device does not take until it knows the way to their next hop, which may be a matter of milliseconds.
#[derive(Default)]
struct Waiting {
    /// Since when, the oldest first.
    flows: VecDeque<(Ufid, Instant)>,
    /// Those, each once: that one is refused may be heard more than once.
    names: HashSet<Ufid>,
}

/// Flows that the agent has no more, of which ovs-vswitchd is still to be told.
#[derive(Default)]
struct GivenBack {
    names: VecDeque<Ufid>,
    /// Since when there is no room for an answer.
    stuck: Option<Instant>,
}

impl Session<'_> {
    fn run(mut self, stops: &dyn Fn() -> bool) -> Result<(), Trouble> {
        let mut looked = Instant::now();
        while !stops() {
            let is_rung = self.wait();
            let left_out = self.hear()?;
            self.settle(left_out, is_rung);
            self.answer()?;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.follower.ports.rest();
                self.follower.ports.end_earlier(self.follower.options.underlay.as_deref(), self.follower.intake);
                turn_away(self.door);
                if let Some(feedback) = &mut self.follower.feedback {
                    feedback.serve();
                }
            }
            if self.told.elapsed() >= self.follower.intake.poll_interval() {
                self.tell();
            }
        }
        Ok(())
    }

    /// Waits for something to do. Returns whether flows were refused.
    fn wait(&self) -> bool {
        let at_most = if self.given_back.names.is_empty() { LOOK } else { SOON };
        let until_told = self.follower.intake.poll_interval().saturating_sub(self.told.elapsed());
        let [_, is_rung] = wait_for([self.listener.socket(), self.refusals.bell()], at_most.min(until_told).max(SOON));
        is_rung
    }

    /// Takes what ovs-vswitchd tells. Returns flows that the agent has not taken on.
    fn hear(&mut self) -> Result<Vec<Ufid>, Trouble> {
        let Self { listener, follower, .. } = self;
        let (mut left_out, mut failed) = (vec![], None);
        listener.receive(Duration::ZERO, &mut |notification| match take(follower, notification) {
            Ok(put) => left_out.extend(put.filter(|ufid| !follower.flows.has_taken(*ufid))),
            Err(reason) => failed = Some(reason),
        })?;
        // It is one program, whose flows nobody else knows.
        failed.map_or(Ok(left_out), Err)
    }

    /// Gives flows back that the agent has not taken on, or that the device has refused, if it has any.
    fn settle(&mut self, mut left_out: Vec<Ufid>, is_rung: bool) {
        let intake = self.follower.intake;
        let refused = if is_rung { self.refusals.take() } else { vec![] };
        for standing in refused.into_iter().filter_map(|ufid| intake.standing(ufid)) {
            if standing.state == FlowState::Refused && !self.waiting.lets_wait(&standing) {
                left_out.push(standing.ufid);
            }
        }
        left_out.extend(self.waiting.take_refused(intake));
        self.give_back(&left_out);
    }

    /// Tells what was counted, and gives flows back that the device has lost, or that somebody has deleted by a command.
    fn tell(&mut self) {
        self.told = Instant::now();
        let Looked { refused, misses_some } = self.follower.tell();
        let mut lost: Vec<Ufid> =
            refused.iter().filter(|standing| !self.waiting.lets_wait(standing)).map(|standing| standing.ufid).collect();
        if misses_some {
            let mut wanted = HashSet::new();
            self.follower.intake.visit(&mut |standing| _ = wanted.insert(standing.ufid));
            lost.extend(self.follower.flows.taken_names().filter(|ufid| !wanted.contains(ufid)));
        }
        self.give_back(&lost);
    }

    fn give_back(&mut self, ufids: &[Ufid]) {
        for ufid in ufids {
            // It may be named twice, or be gone already.
            if self.follower.flows.has(*ufid) {
                self.follower.flows.end(Some(*ufid), self.follower.intake);
                self.given_back.names.push_back(*ufid);
            }
        }
    }

    /// Tells ovs-vswitchd of some flows that are given back. It answers each with a deletion, for which it waits for room: so these are heard
    /// before it is told of more, and nobody waits for room here.
    fn answer(&mut self) -> Result<(), Trouble> {
        let GivenBack { names, stuck } = &mut self.given_back;
        let flows = &self.follower.flows;
        // Not those that it has put again meanwhile.
        let ufids: Vec<_> = names.drain(..names.len().min(ANSWER)).filter(|ufid| !flows.has(*ufid)).collect();
        if ufids.is_empty() {
            *stuck = None;
            return Ok(());
        }
        let answer: Vec<u8> = ufids.iter().flat_map(FlowMessage::name).collect();
        match send(self.listener.socket(), &answer, SendFlags::NOSIGNAL) {
            Ok(_) => *stuck = None,
            Err(Errno::AGAIN) if stuck.get_or_insert_with(Instant::now).elapsed() < PATIENCE => {
                ufids.into_iter().rev().for_each(|ufid| names.push_front(ufid));
                return Ok(());
            }
            Err(errno) => return Err(KernelError::from(io::Error::from(errno)).into()),
        }
        if let Some(feedback) = &mut self.follower.feedback {
            ufids.into_iter().for_each(|ufid| feedback.end(ufid));
        }
        Ok(())
    }
}

impl Waiting {
    /// Lets a refused flow wait for the way to its next hop, if that is what it waits for. Returns whether it does.
    fn lets_wait(&mut self, standing: &Standing) -> bool {
        let waits = matches!(standing.waits_for, Some(Cause::Neighbour(_)));
        if waits && self.names.insert(standing.ufid) {
            self.flows.push_back((standing.ufid, Instant::now()));
        }
        waits
    }

    /// Takes those that have waited for long enough, and that are still refused, or that somebody has deleted.
    fn take_refused(&mut self, intake: &dyn Intake) -> Vec<Ufid> {
        let is_refused =
            |ufid: &Ufid| intake.standing(*ufid).is_none_or(|standing| standing.state == FlowState::Refused);
        let over = std::iter::from_fn(|| self.flows.pop_front_if(|(_, since)| since.elapsed() >= NEXT_HOP));
        over.map(|(ufid, _)| ufid).inspect(|ufid| _ = self.names.remove(ufid)).filter(is_refused).collect()
    }
}

/// Hangs up on another ovs-vswitchd, which would wait for rules: its flows go to its own datapath.
fn turn_away(door: &Door) {
    // Anybody may connect, and without end.
    for Peer { pid, .. } in std::iter::from_fn(|| door.next()).take(MAX_AT_ONCE).flatten() {
        tracing::warn!("process {pid} wants to hand flows over, and another one does so already");
    }
}

/// Waits until there is something at one of these, at most so long. Says at which.
fn wait_for<const N: usize>(sockets: [BorrowedFd<'_>; N], at_most: Duration) -> [bool; N] {
    let timeout = Timespec::try_from(at_most).ok();
    let mut sockets = sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN));
    // Whatever it is that fails shows when the socket is used.
    let _ = poll(&mut sockets, timeout.as_ref());
    sockets.map(|socket| !socket.revents().is_empty())
}

/// Takes what ovs-vswitchd tells. Returns the flow that it puts or changes, if it does.
fn take(follower: &mut Follower<'_>, notification: Notification<'_>) -> Result<Option<Ufid>, Trouble> {
    let put = match notification {
        Notification::Flow(change, payload) => {
            let name = FlowMessage::read_name(payload)?.1;
            match (change, name) {
                // All of them.
                (Change::Deleted, None) => {
                    if let Some(feedback) = &mut follower.feedback {
                        feedback.retain(|name| MeterCount::meter_of(name).is_some());
                    }
                    follower.flows = Flows::new(follower.flows.go_on(), follower.intake);
                    take_out(follower.intake);
                    return Ok(None);
                }
                (Change::Deleted, Some(_)) => None,
                (Change::New | Change::Set, name) => name,
            }
        }
        Notification::Vport(..) | Notification::Meter(..) => None,
        // With which it begins. What the one before has left is not its own.
        Notification::Datapath(..) => {
            if let Some(feedback) = &mut follower.feedback {
                feedback.retain(|_| false);
            }
            take_out(follower.intake);
            follower.meters = Meters::begin(follower.intake);
            follower.ports = Ports::begin(follower.intake);
            None
        }
    };
    follower.take(notification)?;
    if let Some(datapath) = follower.told.take() {
        // Of ovs-vswitchd, or by the agent of the kernel, where it is known by its name.
        let asks_kernel = || {
            let mut kernel = Kernel::open().ok()?;
            let known = kernel.datapath(&datapath.name).ok()??;
            Some(can_go_on(&mut kernel, &known))
        };
        let go_on = follower.options.shares_recirculation
            && (datapath.shares_recirculation() || asks_kernel().unwrap_or_default());
        follower.flows = Flows::new(go_on, follower.intake);
        follower.report.subject.clone_from(&datapath.name);
        follower.report.chain_miss =
            follower.options.shares_recirculation.then_some(if go_on { GOES_ON } else { BEGINS_AGAIN });
    }
    Ok(put)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with};

    use super::*;

    #[test]
    fn who_connects_without_end_is_turned_away_a_few_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows");
        let door = Door::open(&path).unwrap();
        let address = SocketAddrUnix::new(&path).unwrap();
        let mut clients: Vec<OwnedFd> = Vec::new();
        loop {
            let client = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
            if connect(&client, &address).is_err() {
                break;
            }
            clients.push(client);
        }
        let waiting = || {
            clients.iter().filter(|client| recv(client, &mut [0; 1], RecvFlags::empty()) == Err(Errno::AGAIN)).count()
        };
        assert!(waiting() > MAX_AT_ONCE);
        let before = waiting();
        turn_away(&door);
        assert_eq!(waiting(), before - MAX_AT_ONCE);
        turn_away(&door);
        assert_eq!(waiting(), before.saturating_sub(2 * MAX_AT_ONCE));
    }
}
