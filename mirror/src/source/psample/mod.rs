//! Samples of the kernel (psample, `linux/psample.h`) as a source: what tc's action `sample` takes, in hardware where the driver can.
//!
//! From Linux 6.11 on a sample carries the cookie of its action. A cookie of 16 bytes is the UFID of the flow that took the sample, so that
//! frames of a mirror in hardware have it. Samples of an older kernel have none.
//!
//! The kernel numbers the samples of each group. What is missing between two of them was lost on the way to this socket
//! ([`Cause::SampleFull`]).

mod family;
mod message;

use std::collections::HashMap;
use std::io;

use netlink_sys::{AsyncSocketExt as _, TokioSocket};
use sluice_control::mirror::{Class, Plan};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use self::message::{Sample, samples};
use super::following::{Following, Names};
use super::{Batch, Batcher, Batching, NextBatch, Source, SourceError};
use crate::verbs::{Buffer, ProtectionDomain};
use crate::wire::frames::Frame;
use crate::wire::{Cause, Drops, Port};

/// The kernel's samples of some groups.
pub struct SampleSource {
    socket: TokioSocket,
    groups: HashMap<u32, Group>,
    ports: Vec<Port>,
    revision: u64,
    names: Names,
    following: Option<Following>,
    batcher: Batcher,
    message: Vec<u8>,
}

/// What is known of a group of samples.
#[derive(Debug)]
struct Group {
    class: Class,
    /// The number of the next sample, once there was one.
    next: Option<u32>,
}

/// What the notes begin with that the agent puts on rules of tc (`offload-tc/src/marks.rs`) beside the UFID.
const TC_NOTE: [u8; 4] = *b"slce";
/// Bytes of the socket's buffer. Without `CAP_NET_ADMIN` the kernel gives fewer (`net.core.rmem_max`).
const RECEIVE_BUFFER: usize = 4 << 20;
/// More than any message has: a frame of 64 KiB and its attributes.
const LONGEST: usize = (1 << 16) + 4096;

impl SampleSource {
    /// Subscribes to the samples of these groups, each of which is a class, in the reactor of the tokio runtime that this is called in.
    ///
    /// # Errors
    /// Fails without the module `psample`, without `CAP_NET_ADMIN`, outside of a runtime, or if there is no memory for the batches.
    ///
    /// # Panics
    /// Panics in a runtime without I/O.
    pub fn open(domain: &ProtectionDomain, groups: &[(u32, Class)], batching: Batching) -> Result<Self, SourceError> {
        let failed = |source| SourceError::Io { origin: "the kernel's samples (psample)".to_owned(), source };
        let classes: Vec<Class> =
            Class::ALL.into_iter().filter(|class| groups.iter().any(|(_, of)| of == class)).collect();
        let batcher = Batcher::new(domain, &classes, batching)?;
        let socket = family::subscribe(RECEIVE_BUFFER).map_err(failed)?;
        let names = Names::open().map_err(failed)?;
        let groups = groups.iter().map(|(number, class)| (*number, Group { class: *class, next: None })).collect();
        Ok(Self {
            socket,
            groups,
            ports: Vec::new(),
            revision: 0,
            names,
            following: None,
            batcher,
            message: Vec::with_capacity(LONGEST),
        })
    }

    /// Has it follow the agent's plan while that changes.
    #[must_use]
    pub fn following(mut self, plan: watch::Receiver<Option<Plan>>) -> Self {
        self.following = Some(Following::new(plan));
        self
    }

    /// Takes the ports of the datapath from a plan: a sample names the network device that its frame came in at, which has the name of its
    /// port.
    pub fn follow(&mut self, plan: &Plan) {
        let port = |tap: &sluice_control::mirror::Tap| {
            let ifindex = self.names.ifindex(&tap.name)?;
            Some(Port { number: Some(tap.in_port?), ifindex, name: tap.name.clone() })
        };
        let ports = plan.taps.iter().filter_map(port).collect();
        if self.ports != ports {
            (self.ports, self.revision) = (ports, self.revision + 1);
        }
    }

    async fn batch(&mut self) -> Result<Batch, SourceError> {
        loop {
            if let Some(batch) = self.batcher.next(Instant::now()) {
                return Ok(batch);
            }
            let due = self.batcher.due();
            let came_of_age = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let failed = |source| SourceError::Io { origin: "the kernel's samples (psample)".to_owned(), source };
            tokio::select! {
                () = came_of_age => {}
                plan = next_plan(&mut self.following) => self.follow(&plan),
                received = receive(&self.socket, &mut self.message) => {
                    match received {
                        // Samples found no room in the socket; their numbers are missing.
                        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => continue,
                        outcome => outcome.map_err(failed)?,
                    }
                    let Self { message, groups, ports, batcher, .. } = self;
                    for sample in samples(message) {
                        take(&sample, groups, ports, batcher);
                    }
                }
            }
        }
    }
}

/// Waits until a plan is to be followed, if one ever is.
async fn next_plan(following: &mut Option<Following>) -> Plan {
    match following {
        Some(following) => following.next().await,
        None => std::future::pending().await,
    }
}

async fn receive(socket: &TokioSocket, message: &mut Vec<u8>) -> io::Result<()> {
    message.clear();
    socket.recv(message).await.map(drop)
}

/// The UFID that is the cookie of an action. The agent's other note on a rule of tc, where there was room for that one only, names no flow.
fn ufid(cookie: &[u8]) -> Option<u128> {
    let ufid: [u8; 16] = cookie.try_into().ok()?;
    (!ufid.starts_with(&TC_NOTE)).then(|| u128::from_be_bytes(ufid))
}

/// The port at whose device a frame came in, of whose index samples have the last 16 bits only: a host on which devices come and go has longer
/// ones. Where two ports have the same, it is not known which it was.
fn port(ports: &[Port], ingress: u16) -> Option<&Port> {
    let mut found = ports.iter().filter(|port| port.ifindex & 0xffff == u32::from(ingress));
    found.next().filter(|_| found.next().is_none())
}

/// Adds a sample to its batch, and counts those that are missing before it.
fn take(sample: &Sample<'_>, groups: &mut HashMap<u32, Group>, ports: &[Port], batcher: &mut Batcher) {
    let Some(group) = groups.get_mut(&sample.group) else { return };
    batcher.add_drops(group.class, Cause::SampleFull, group.missing(sample.sequence));
    let frame = Frame {
        in_port: sample.ingress.and_then(|ingress| port(ports, ingress)?.number),
        ufid: sample.cookie.and_then(ufid),
        captured: sample.time_ns,
        length: sample.original_length.max(u32::try_from(sample.frame.len()).unwrap_or(u32::MAX)),
        bytes: sample.frame,
    };
    batcher.push(group.class, &frame);
}

impl Group {
    /// How many samples are missing before the one with this number. A group that is made anew begins with 0 again.
    fn missing(&mut self, sequence: u32) -> u64 {
        let missing = self.next.map_or(0, |next| sequence.wrapping_sub(next));
        self.next = Some(sequence.wrapping_add(1));
        if missing > u32::MAX / 2 { 0 } else { missing.into() }
    }
}

impl Source for SampleSource {
    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(self.batch())
    }

    fn give_back(&mut self, class: Class, buffer: Buffer) {
        self.batcher.give_back(class, buffer);
    }

    fn set_waiting(&mut self, class: Class, is_waiting: bool) {
        self.batcher.set_waiting(class, is_waiting);
    }

    fn drops(&self, class: Class) -> Drops {
        self.batcher.drops(class)
    }

    fn ports(&self) -> Vec<Port> {
        self.ports.clone()
    }

    fn revision(&self) -> u64 {
        self.revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_the_last_bits_of_the_index_of_its_device_unless_another_one_has_them_too() {
        let port_at = |ifindex| Port { number: Some(ifindex), ifindex, name: String::new() };
        let ports = [7, 65_536 + 8, 65_536 + 9, 9].map(port_at);
        let found = [7, 8, 9, 10].map(|ingress| port(&ports, ingress).map(|port| port.ifindex));
        assert_eq!(found, [Some(7), Some(65_536 + 8), None, None]);
    }

    #[test]
    fn samples_that_are_missing_are_counted_and_a_group_may_begin_anew() {
        let mut group = Group { class: Class::Flow, next: None };
        let sequences = [7, 8, 11, 12, u32::MAX - 1, 0, 1, 0, 3];
        let missing = sequences.map(|sequence| group.missing(sequence));
        assert_eq!(missing[..4], [0, 0, 2, 0]);
        // Too far ahead for a loss: it is another group of the same number.
        assert_eq!(missing[4], 0);
        assert_eq!(missing[5..], [1, 0, 0, 2]);
    }
}
