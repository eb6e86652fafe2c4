//! Meters as policers that rules share (`act_police`), one object of the network namespace each.
//!
//! An object carries a note with its agent and meter, so that a restarted agent recognizes it and keeps its index: installed
//! rules go on being metered. The kernel differs from OVS's own meters: in software the Ethernet header is not counted at
//! ingress; dropped bytes are not reported; and a bucket of packets begins empty and fills at its rate, where one of bits
//! begins full (`tcf_police_init` sets `tcfp_toks` only).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use sluice_flow::action::ActionKind;
use sluice_flow::backend::{MeterCounters, MeterFault};
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::refusal::Refusal;
use sluice_netdev::netlink::attribute::TooLong;
use sluice_netdev::netlink::message::{Answer, flag};

use crate::config::OffloadPolicy;
use crate::drops::Drops;
use crate::install::result;
use crate::marks::{self, AgentId, Mark};
use crate::socket::{Next, Socket, SocketError};
use crate::wire::action::{Action, Control, Operation, Police, flag as placement};
use crate::wire::shared::{self, ActionView, DELETE_ACTION, GET_ACTION};
use crate::wire::statistics::Statistics;

/// Our first index. OVS's end at 0x1fff_ffff (`METER_POLICE_IDS_MAX` in `lib/tc.h`), and the kernel's own choice begins at
/// 1.
const FIRST: u32 = 0x2000_0000;
/// Our last index.
const LAST: u32 = 0x2fff_ffff;
/// How long a rule that was deleted may still hold a meter.
const LET_GO: Duration = Duration::from_secs(1);
const POLICE: &str = "police";
/// The kernel's ticks per second for bursts (`PSCHED_SHIFT`: 64 ns each).
const TICKS: u128 = 1_000_000_000 / 64;
/// The longest burst in ticks, more than a hundred years, with which the kernel still computes without overflow.
const LONGEST: u64 = 1 << 56;

/// The meters of an agent. Changes are made one at a time; looking up an index waits for none of them.
pub struct Meters {
    agent: AgentId,
    policy: OffloadPolicy,
    kernel: Mutex<Kernel>,
    numbers: RwLock<Numbers>,
}

/// The socket, and what is not known about the objects behind it.
struct Kernel {
    socket: Socket,
    buffer: Vec<u8>,
    /// An answer was lost, so objects may have come or gone without our knowledge.
    is_unsure: bool,
    /// Indexes of objects that another object has replaced.
    superseded: Vec<u32>,
    drops: Drops,
}

#[derive(Default)]
struct Numbers {
    of_meters: HashMap<MeterId, Object>,
    meters: HashMap<u32, MeterId>,
}

#[derive(Clone, Copy)]
struct Object {
    index: u32,
    /// What this run has set it to.
    set: Option<Police>,
    /// An earlier run made it, and this one has not set it yet.
    is_left: bool,
    /// It is for rules of the current policy.
    is_of_policy: bool,
}

/// The outcome of deleting an object.
enum Removal {
    Done,
    IsUsed,
}

impl Meters {
    /// Opens a socket and looks for objects of an earlier run of this agent. Meters must have the same policy as the rules
    /// that use them.
    pub fn open(agent: AgentId, policy: OffloadPolicy) -> Result<Self, SocketError> {
        let (buffer, superseded, drops) = Default::default();
        let kernel = Kernel { socket: Socket::open()?, buffer, is_unsure: true, superseded, drops };
        let meters = Self { agent, policy, kernel: Mutex::new(kernel), numbers: RwLock::default() };
        meters.refresh(&mut meters.kernel.lock())?;
        Ok(meters)
    }

    /// Makes a meter, or changes it; its counters go on. An object of an earlier run is adopted with the rules that use it.
    pub fn set(&self, meter: &Meter) -> Result<(), Refusal> {
        let police = police(meter)?;
        let mut kernel = self.kernel.lock();
        self.refresh(&mut kernel).map_err(|error| device(&error))?;
        let known = self.numbers.read().of_meters.get(&meter.id).copied();
        let index = match known {
            Some(object) if object.is_of_policy => {
                self.put(&mut kernel, meter.id, object.index, &police, flag::REPLACE)?;
                object.index
            }
            // A rule can share only an object of its own policy (`tcf_action_init`), which cannot be changed.
            other => {
                let index = self.make(&mut kernel, meter.id, &police)?;
                kernel.superseded.extend(other.map(|object| object.index));
                index
            }
        };
        self.numbers.write().insert(meter.id, Object { index, set: Some(police), is_left: false, is_of_policy: true });
        Ok(())
    }

    /// The netlink port id of the socket through which meters are made and changed.
    pub(crate) fn socket(&self) -> u32 {
        self.kernel.lock().socket.port()
    }

    /// Compares meters with the kernel and, if asked, restores them: others can change the rate of a policer, and remove one
    /// that no rule uses.
    pub fn check(&self, mends: bool) -> Result<Vec<MeterFault>, Refusal> {
        let mut kernel = self.kernel.lock();
        self.refresh(&mut kernel).map_err(|error| device(&error))?;
        let mut wanted: Vec<_> = {
            let numbers = self.numbers.read();
            let set = numbers.of_meters.iter().filter_map(|(meter, object)| Some((*meter, object.index, object.set?)));
            set.collect()
        };
        wanted.sort_unstable_by_key(|(meter, ..)| *meter);
        self.remove_superseded(&mut kernel);
        let mut faults = Vec::new();
        for (meter, index, police) in wanted {
            let found = kernel.look(index).map_err(|error| device(&error))?;
            if found.as_ref().is_some_and(|(found, _)| is_as_set(found, &police)) {
                continue;
            }
            let mut put = || match &found {
                Some((_, note)) if is_of_another(self.agent, note) => {
                    Err(refuse(format!("the policer of meter {meter}, {index}, is another agent's")))
                }
                Some(_) => self.put(&mut kernel, meter, index, &police, flag::REPLACE),
                None => self.put(&mut kernel, meter, index, &police, 0),
            };
            let mended = if mends { Some(put()) } else { None };
            faults.push(MeterFault { meter, is_there: found.is_some(), mended });
        }
        Ok(faults)
    }

    /// Deletes replaced objects once no rule uses them.
    fn remove_superseded(&self, kernel: &mut Kernel) {
        for index in std::mem::take(&mut kernel.superseded) {
            match kernel.delete(index) {
                Ok(Removal::Done) => drop(self.numbers.write().meters.remove(&index)),
                Ok(Removal::IsUsed) | Err(_) => kernel.superseded.push(index),
            }
        }
    }

    /// Removes a meter that no rule uses and releases its index. The kernel releases the actions of a deleted rule some time
    /// later (`tcf_queue_work`), so a meter that looks used is tried again for `LET_GO`.
    pub fn remove(&self, meter: MeterId) -> Result<(), Refusal> {
        let start = Instant::now();
        loop {
            match self.try_to_remove(meter)? {
                Removal::Done => return Ok(()),
                Removal::IsUsed if start.elapsed() < LET_GO => std::thread::sleep(LET_GO / 50),
                Removal::IsUsed => return Err(refuse(format!("meter {meter} is used by installed rules"))),
            }
        }
    }

    fn try_to_remove(&self, meter: MeterId) -> Result<Removal, Refusal> {
        let mut kernel = self.kernel.lock();
        self.refresh(&mut kernel).map_err(|error| device(&error))?;
        let index = self.index_of(meter).ok_or_else(|| refuse(format!("there is no meter {meter}")))?;
        let removal = kernel.delete(index)?;
        if matches!(removal, Removal::Done) {
            self.numbers.write().remove(meter);
        }
        Ok(removal)
    }

    /// The counters of a meter; `None` if there is no such meter, also in the kernel. The hook leaves `link_header` bytes
    /// out of each packet that software metered.
    pub fn counters(&self, meter: MeterId, link_header: u64) -> Result<Option<MeterCounters>, SocketError> {
        let mut kernel = self.kernel.lock();
        let Some(index) = self.index_of(meter) else { return Ok(None) };
        let mut found = None;
        kernel.query(
            |buffer, sequence| shared::emit_name(buffer, GET_ACTION, POLICE, index, flag::ACK, sequence),
            &mut |view| {
                found = view.parse()?.statistics;
                Ok(())
            },
        )?;
        Ok(found.map(|found| counters(&found, kernel.drops.add(index, &found), link_header)))
    }

    /// The kernel's index of a meter's policer.
    pub fn index_of(&self, meter: MeterId) -> Option<u32> {
        self.numbers.read().of_meters.get(&meter).map(|object| object.index)
    }

    /// The meter of an index.
    pub fn meter_of(&self, index: u32) -> Option<MeterId> {
        self.numbers.read().meters.get(&index).copied()
    }

    /// Meters that an earlier run of this agent made and that this one has not set. They can be removed once no rule uses
    /// them.
    pub fn left(&self) -> Vec<MeterId> {
        let numbers = self.numbers.read();
        let mut left: Vec<_> =
            numbers.of_meters.iter().filter(|(_, object)| object.is_left).map(|(meter, _)| *meter).collect();
        left.sort_unstable();
        left
    }

    /// All meters, in order.
    pub(crate) fn all(&self) -> Vec<MeterId> {
        let mut all: Vec<_> = self.numbers.read().of_meters.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The marks on meters of other agents, and on this agent's that a newer build made.
    pub(crate) fn of_others(&self) -> Result<Vec<Mark>, SocketError> {
        let mut marks = Vec::new();
        self.kernel.lock().query(|buffer, sequence| shared::emit_dump(buffer, POLICE, sequence), &mut |view| {
            let mark = Mark::of_meter(view.cookie);
            marks.extend(mark.filter(|mark| mark.agent != self.agent || mark.format.is_later()));
            Ok(())
        })?;
        Ok(marks)
    }

    /// Removes the meters of another agent that no rule uses, and returns their number.
    pub(crate) fn remove_of(&self, agent: AgentId) -> Result<usize, Refusal> {
        let start = Instant::now();
        loop {
            let mut indexes = Vec::new();
            let mut kernel = self.kernel.lock();
            kernel
                .query(|buffer, sequence| shared::emit_dump(buffer, POLICE, sequence), &mut |view| {
                    if read(agent, view.cookie).is_some() {
                        indexes.push(view.parse()?.index);
                    }
                    Ok(())
                })
                .map_err(|error| device(&error))?;
            let (mut count, mut is_used) = (0, false);
            for index in indexes {
                match kernel.delete(index)? {
                    Removal::Done => count += 1,
                    Removal::IsUsed => is_used = true,
                }
            }
            drop(kernel);
            if !is_used || start.elapsed() >= LET_GO {
                return Ok(count);
            }
            std::thread::sleep(LET_GO / 50);
        }
    }

    /// Makes an object at the first free index.
    fn make(&self, kernel: &mut Kernel, meter: MeterId, police: &Police) -> Result<u32, Refusal> {
        for index in FIRST..=LAST {
            if self.meter_of(index).is_some() {
                continue;
            }
            match self.put(kernel, meter, index, police, 0) {
                // Another agent of this network namespace has it.
                Err(Refusal::Kernel { errno, .. }) if errno == Errno::EXIST.raw_os_error() => {}
                other => return other.map(|()| index),
            }
        }
        Err(Refusal::Limit { what: "meters of all agents".into(), limit: (LAST - FIRST).into() })
    }

    fn put(&self, kernel: &mut Kernel, meter: MeterId, index: u32, police: &Police, flags: u16) -> Result<(), Refusal> {
        let object = Action {
            index,
            cookie: Some(note(self.agent, meter).into()),
            is_counted_once: false,
            ..Action::new(Operation::Police(Box::new(*police)), Control::Shot)
        };
        let placement = self.placement();
        let done =
            kernel.ask(|buffer, sequence| shared::emit(buffer, &object, placement, flag::ACK | flags, sequence))?;
        if done.is_ok() && flags & flag::REPLACE == 0 {
            kernel.drops.forget(index);
        }
        done
    }

    /// The flags of objects: for hardware, software or both.
    const fn placement(&self) -> u32 {
        match self.policy {
            OffloadPolicy::Any => 0,
            OffloadPolicy::SkipSoftware => placement::SKIP_SW,
            OffloadPolicy::SkipHardware => placement::SKIP_HW,
        }
    }

    /// Lists all objects if something may have been missed.
    fn refresh(&self, kernel: &mut Kernel) -> Result<(), SocketError> {
        if !kernel.is_unsure {
            return Ok(());
        }
        let mut found = Numbers::default();
        kernel.query(|buffer, sequence| shared::emit_dump(buffer, POLICE, sequence), &mut |view| {
            if let Some(meter) = read(self.agent, view.cookie) {
                let is_of_policy = view.placement == self.placement();
                let object = Object { index: view.parse()?.index, set: None, is_left: true, is_of_policy };
                if is_of_policy || !found.of_meters.contains_key(&meter) {
                    found.insert(meter, object);
                } else {
                    found.meters.insert(object.index, meter);
                }
            }
            Ok(())
        })?;
        let mut numbers = self.numbers.write();
        for (meter, object) in &mut found.of_meters {
            let known = numbers.of_meters.get(meter);
            object.is_left = known.is_none_or(|known| known.is_left);
            object.set = known.and_then(|known| known.set);
        }
        // A meter that somebody else removed is still wanted.
        for (meter, known) in numbers.of_meters.iter().filter(|(_, known)| known.set.is_some()) {
            if !found.of_meters.contains_key(meter) {
                found.insert(*meter, *known);
            }
        }
        let is_superseded = |(index, meter): &(&u32, &MeterId)| {
            found.of_meters.get(*meter).is_some_and(|object| object.index != **index)
        };
        kernel.superseded = found.meters.iter().filter(is_superseded).map(|(index, _)| *index).collect();
        *numbers = found;
        kernel.is_unsure = false;
        Ok(())
    }
}

impl Numbers {
    fn insert(&mut self, meter: MeterId, object: Object) {
        self.of_meters.insert(meter, object);
        self.meters.insert(object.index, meter);
    }

    fn remove(&mut self, meter: MeterId) {
        if let Some(object) = self.of_meters.remove(&meter) {
            self.meters.remove(&object.index);
        }
    }
}

impl Kernel {
    /// Deletes an object, unless rules use it.
    fn delete(&mut self, index: u32) -> Result<Removal, Refusal> {
        let done =
            self.ask(|buffer, sequence| shared::emit_name(buffer, DELETE_ACTION, POLICE, index, flag::ACK, sequence))?;
        match done {
            Err(Refusal::Kernel { errno, .. }) if errno == Errno::PERM.raw_os_error() => Ok(Removal::IsUsed),
            // Somebody else deleted it.
            Err(Refusal::Kernel { errno, .. }) if errno == Errno::NOENT.raw_os_error() => Ok(Removal::Done),
            other => other.map(|()| Removal::Done),
        }
    }

    /// Sends a request and returns its outcome.
    fn ask(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, u32) -> Result<(), TooLong>,
    ) -> Result<Result<(), Refusal>, Refusal> {
        let sequence = self.socket.sequences(1);
        self.buffer.clear();
        write(&mut self.buffer, sequence).map_err(|error| device(&error.into()))?;
        let mut outcome = Ok(());
        let heard = self.socket.send(&self.buffer).and_then(|()| {
            self.socket.receive(|answer, _| match answer {
                Answer::Acknowledgement(found) if found.sequence == sequence => {
                    outcome = result(&found).map(|_| ());
                    Ok(Next::Enough)
                }
                _ => Ok(Next::More),
            })
        });
        self.keep(heard).map_err(|error| device(&error))?;
        Ok(outcome)
    }

    /// The object at an index, and the note on it.
    fn look(&mut self, index: u32) -> Result<Option<(Action, Vec<u8>)>, SocketError> {
        let mut found = None;
        self.query(
            |buffer, sequence| shared::emit_name(buffer, GET_ACTION, POLICE, index, flag::ACK, sequence),
            &mut |view| {
                found = Some((view.parse()?, view.cookie.to_vec()));
                Ok(())
            },
        )?;
        Ok(found)
    }

    /// Shows the objects that a request asks for.
    fn query(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, u32) -> Result<(), TooLong>,
        see: &mut dyn FnMut(&ActionView<'_>) -> Result<(), SocketError>,
    ) -> Result<(), SocketError> {
        let sequence = self.socket.sequences(1);
        self.buffer.clear();
        write(&mut self.buffer, sequence)?;
        let heard = self.socket.send(&self.buffer).and_then(|()| {
            self.socket.receive(|answer, _| {
                match answer {
                    Answer::Content(message) if message.header.sequence == sequence => {
                        for view in ActionView::all(message.payload) {
                            see(&view?)?;
                        }
                    }
                    Answer::Done(0) => return Ok(Next::Enough),
                    Answer::Done(errno) => return Err(std::io::Error::from_raw_os_error(errno).into()),
                    // That there is no such object is an answer, too.
                    Answer::Acknowledgement(found) if found.sequence == sequence => {
                        let errno = found.errno;
                        return match errno {
                            0 => Ok(Next::Enough),
                            _ if errno == Errno::NOENT.raw_os_error() => Ok(Next::Enough),
                            _ => Err(std::io::Error::from_raw_os_error(errno).into()),
                        };
                    }
                    _ => {}
                }
                Ok(Next::More)
            })
        });
        self.keep(heard)
    }

    /// After an error a late answer would be taken for another's, and the request may have been done.
    fn keep(&mut self, heard: Result<(), SocketError>) -> Result<(), SocketError> {
        if heard.is_err() {
            self.is_unsure = true;
            self.socket = Socket::open()?;
        }
        heard
    }
}

/// The policer of a meter.
fn police(meter: &Meter) -> Result<Police, Refusal> {
    let [MeterBand { rate, burst }] = meter.bands[..] else {
        return Err(refuse(format!("a policer of tc has one band, and meter {} has {}", meter.id, meter.bands.len())));
    };
    if rate == 0 {
        return Err(refuse(format!("meter {} would let nothing pass: its rate is zero", meter.id)));
    }
    // Without a burst, what the rate lets through in a second. Ticks are rounded up, so that a burst passes as a whole.
    let burst = if burst == 0 { rate } else { burst };
    let ticks = (u128::from(burst) * TICKS).div_ceil(u128::from(rate));
    // A length of 0 would mean 2,040 bytes.
    let unlimited = Police { mtu: u32::MAX, ..Police::reference(Control::Pipe) };
    Ok(match meter.unit {
        MeterUnit::Packets => {
            let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
            Police { packets: Some((rate, ticks.min(LONGEST))), ..unlimited }
        }
        MeterUnit::Kilobits => {
            const BYTES: u64 = 1000 / 8;
            let rate = rate.checked_mul(BYTES).ok_or_else(|| limit("kilobits a second", u64::MAX / BYTES))?;
            let seconds = u128::from(u32::MAX) / TICKS;
            let too_many = || limit("seconds at its rate in the burst of a meter", u64::try_from(seconds).unwrap_or(0));
            Police { rate: Some(rate), burst: u32::try_from(ticks).map_err(|_| too_many())?, ..unlimited }
        }
    })
}

/// Whether tc can have such a meter.
pub fn check(meter: &Meter) -> Result<(), Refusal> {
    police(meter).map(|_| ())
}

/// Whether an object is what a meter was set to.
fn is_as_set(found: &Action, set: &Police) -> bool {
    // The kernel shows an unlimited length as 0.
    let shown = Police { mtu: 0, ..*set };
    found.control == Control::Shot && found.operation == Operation::Police(Box::new(shown))
}

/// What a policer counted, and dropped in all, as that of a meter, whose bytes are counted as those of flows.
fn counters(found: &Statistics, drops: u64, link_header: u64) -> MeterCounters {
    let left_out = found.software().packets.saturating_mul(link_header);
    MeterCounters {
        packets: found.total.packets,
        bytes: found.total.bytes.saturating_add(left_out),
        dropped_packets: drops,
        dropped_bytes: None,
        bands: vec![drops],
    }
}

/// The note on an object.
fn note(agent: AgentId, meter: MeterId) -> [u8; 16] {
    let mut note = [0; 16];
    note[..4].copy_from_slice(&marks::METER);
    note[4..8].copy_from_slice(&meter.0.to_be_bytes());
    note[8..].copy_from_slice(&marks::write_agent(agent));
    note
}

/// The meter that a note of an agent is about; `None` if it is not one of its notes.
fn read(agent: AgentId, note: &[u8]) -> Option<MeterId> {
    let (head, rest) = note.split_first_chunk::<8>()?;
    let [a, b, c, d, meter @ ..] = *head;
    let is_ours = [a, b, c, d] == marks::METER && marks::known_agent(rest) == Some(agent);
    is_ours.then(|| MeterId(u32::from_be_bytes(meter)))
}

/// Whether a note says that an object is another agent's.
fn is_of_another(agent: AgentId, note: &[u8]) -> bool {
    Mark::of_meter(note).is_some_and(|mark| mark.agent != agent || mark.format.is_later())
}

fn limit(what: &'static str, limit: u64) -> Refusal {
    Refusal::Limit { what: what.into(), limit }
}

fn refuse(reason: String) -> Refusal {
    Refusal::Action { action: ActionKind::Meter, reason: reason.into() }
}

fn device(error: &SocketError) -> Refusal {
    Refusal::Device { reason: error.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simple(unit: MeterUnit, rate: u64, burst: u64) -> Result<Police, Refusal> {
        police(&Meter::simple(MeterId(1), unit, rate, burst))
    }

    #[test]
    fn rates_and_bursts_become_those_of_the_kernel() {
        let bits = simple(MeterUnit::Kilobits, 8000, 4000).unwrap();
        assert_eq!((bits.rate, bits.burst, bits.packets), (Some(1_000_000), 7_812_500, None), "half a second");
        let packets = simple(MeterUnit::Packets, 1000, 0).unwrap();
        assert_eq!((packets.rate, packets.packets), (None, Some((1000, 15_625_000))), "a second");
        assert!([bits, packets].iter().all(|police| police.mtu == u32::MAX), "of any length");
    }

    #[test]
    fn what_a_policer_cannot_be_is_refused_by_name() {
        let two = Meter {
            bands: vec![MeterBand { rate: 1, burst: 1 }; 2],
            ..Meter::simple(MeterId(7), MeterUnit::Packets, 1, 1)
        };
        let refusal = police(&two).unwrap_err();
        assert_eq!((refusal.label(), refusal.to_string().contains("meter 7 has 2")), ("action", true), "{refusal}");
        assert!(police(&Meter { bands: vec![], ..two }).is_err());
        assert_eq!(simple(MeterUnit::Packets, 0, 1).unwrap_err().label(), "action");
        assert_eq!(simple(MeterUnit::Kilobits, u64::MAX, 1).unwrap_err().label(), "limit");
        assert!(simple(MeterUnit::Kilobits, 1, 274).is_ok());
        let Err(Refusal::Limit { limit, .. }) = simple(MeterUnit::Kilobits, 1, 275) else { panic!("it does not fit") };
        assert_eq!(limit, 274);
        assert!(simple(MeterUnit::Packets, 1, u64::MAX).is_ok(), "as many as there is room for");
    }

    #[test]
    fn a_note_is_known_by_its_agent_alone() {
        let note = note(AgentId(5), MeterId(9));
        assert_eq!(read(AgentId(5), &note), Some(MeterId(9)));
        assert_eq!(read(AgentId(6), &note), None);
        assert_eq!(read(AgentId(5), &note[..15]), None);
        assert_eq!(read(AgentId(5), &[0; 16]), None);
    }
}
