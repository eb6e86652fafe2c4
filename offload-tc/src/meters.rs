//! Meters as policers that rules share (`act_police`), one object of the network namespace each.
//!
//! An object carries a note that says whose meter it is, so that after a restart of the agent it is known again and keeps its
//! number: rules that are there go on being metered. What the kernel does otherwise than OVS's own meters: in software the
//! Ethernet header at ingress is not counted; nothing is told of dropped bytes; and a bucket of packets begins empty and fills
//! at its rate, where one of bits begins full (`tcf_police_init` sets `tcfp_toks` alone).

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
use crate::install::result;
use crate::marks::{self, Mark};
use crate::rule::AgentId;
use crate::socket::{Next, Socket, SocketError};
use crate::wire::action::{Action, Control, Operation, Police, flag as placement};
use crate::wire::shared::{self, ActionView, DELETE_ACTION, GET_ACTION};
use crate::wire::statistics::Statistics;

/// The first number that is ours. Those of OVS end at 0x1fff_ffff (`METER_POLICE_IDS_MAX` in `lib/tc.h`), and the kernel's
/// own choice begins at 1.
const FIRST: u32 = 0x2000_0000;
/// The last one.
const LAST: u32 = 0x2fff_ffff;
/// For how long a meter may look used by a rule that is gone.
const LET_GO: Duration = Duration::from_secs(1);
const POLICE: &str = "police";
/// Ticks in which the kernel counts bursts in a second (`PSCHED_SHIFT`: 64 ns each).
const TICKS: u128 = 1_000_000_000 / 64;
/// A burst of more than a hundred years, with which the kernel still computes without overflow.
const LONGEST: u64 = 1 << 56;

/// The meters of an agent. Changes are made one at a time; who asks for a number waits for none of them.
pub struct Meters {
    agent: AgentId,
    policy: OffloadPolicy,
    kernel: Mutex<Kernel>,
    numbers: RwLock<Numbers>,
}

/// The socket, and what is not known of the objects behind it.
struct Kernel {
    socket: Socket,
    buffer: Vec<u8>,
    /// An answer was lost, so that an object may be there, or gone, without our knowledge.
    is_unsure: bool,
    /// Numbers of objects in whose place a meter has another one.
    superseded: Vec<u32>,
}

#[derive(Default)]
struct Numbers {
    of_meters: HashMap<MeterId, Object>,
    meters: HashMap<u32, MeterId>,
}

#[derive(Clone, Copy)]
struct Object {
    index: u32,
    /// What it was set to in this run.
    set: Option<Police>,
    /// It was made by an earlier run, and not asked for in this one yet.
    is_left: bool,
    /// It is for rules of the policy that there is now.
    is_of_policy: bool,
}

/// What came of the wish that an object be gone.
enum Removal {
    Done,
    IsUsed,
}

impl Meters {
    /// Opens a socket, and looks for what an earlier run of this agent has left. Rules and meters must be for the same, so
    /// that the policy is that of the rules.
    pub fn open(agent: AgentId, policy: OffloadPolicy) -> Result<Self, SocketError> {
        let kernel = Kernel { socket: Socket::open()?, buffer: Vec::new(), is_unsure: true, superseded: Vec::new() };
        let meters = Self { agent, policy, kernel: Mutex::new(kernel), numbers: RwLock::default() };
        meters.make_sure(&mut meters.kernel.lock())?;
        Ok(meters)
    }

    /// Makes a meter, or changes it: counters go on. One that is left from an earlier run is
    /// taken over, with the rules that use it.
    pub fn set(&self, meter: &Meter) -> Result<(), Refusal> {
        let police = police(meter)?;
        let mut kernel = self.kernel.lock();
        self.make_sure(&mut kernel).map_err(|error| device(&error))?;
        let known = self.numbers.read().of_meters.get(&meter.id).copied();
        let index = match known {
            Some(object) if object.is_of_policy => {
                self.put(&mut kernel, meter.id, object.index, &police, flag::REPLACE)?;
                object.index
            }
            // A rule shares only an object that is for the same as it (`tcf_action_init`), and none can be changed in that.
            other => {
                let index = self.make(&mut kernel, meter.id, &police)?;
                kernel.superseded.extend(other.map(|object| object.index));
                index
            }
        };
        self.numbers.write().insert(meter.id, Object { index, set: Some(police), is_left: false, is_of_policy: true });
        Ok(())
    }

    /// The socket by which meters are made and changed.
    pub(crate) fn socket(&self) -> u32 {
        self.kernel.lock().socket.port()
    }

    /// Compares meters with what there is in the kernel, and puts them right if that is wanted: others can change the rate of a
    /// policer, and remove one that no rule uses.
    pub fn check(&self, mends: bool) -> Result<Vec<MeterFault>, Refusal> {
        let mut kernel = self.kernel.lock();
        self.make_sure(&mut kernel).map_err(|error| device(&error))?;
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

    /// Takes objects out that others have taken the place of, as soon as no rule uses them.
    fn remove_superseded(&self, kernel: &mut Kernel) {
        for index in std::mem::take(&mut kernel.superseded) {
            match kernel.delete(index) {
                Ok(Removal::Done) => drop(self.numbers.write().meters.remove(&index)),
                Ok(Removal::IsUsed) | Err(_) => kernel.superseded.push(index),
            }
        }
    }

    /// Removes a meter that no rule uses, and gives its number back. The kernel lets go of the actions of a rule that was
    /// removed some time later (`tcf_queue_work`), so that one that looks used is tried again for a while (`LET_GO`).
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
        self.make_sure(&mut kernel).map_err(|error| device(&error))?;
        let index = self.index_of(meter).ok_or_else(|| refuse(format!("there is no meter {meter}")))?;
        let removal = kernel.delete(index)?;
        if matches!(removal, Removal::Done) {
            self.numbers.write().remove(meter);
        }
        Ok(removal)
    }

    /// What a meter counted; `None` if there is no such meter, in the kernel either. Of each packet that software metered, its hook left
    /// `link_header` octets out.
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
        Ok(found.map(|found| counters(&found, link_header)))
    }

    /// The number that the kernel has a meter under.
    pub fn index_of(&self, meter: MeterId) -> Option<u32> {
        self.numbers.read().of_meters.get(&meter).map(|object| object.index)
    }

    /// The meter that the kernel has under a number.
    pub fn meter_of(&self, index: u32) -> Option<MeterId> {
        self.numbers.read().meters.get(&index).copied()
    }

    /// Meters that an earlier run of this agent made and that were not set in this one. They can be removed when no rule
    /// uses them any more.
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

    /// The marks on the meters of other agents, and of this one's that a newer build has made.
    pub(crate) fn of_others(&self) -> Result<Vec<Mark>, SocketError> {
        let mut marks = Vec::new();
        self.kernel.lock().query(|buffer, sequence| shared::emit_dump(buffer, POLICE, sequence), &mut |view| {
            let mark = Mark::of_meter(view.cookie);
            marks.extend(mark.filter(|mark| mark.agent != self.agent || mark.format.is_later()));
            Ok(())
        })?;
        Ok(marks)
    }

    /// Removes the meters of another agent, but for those that rules use. Says how many there were.
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

    /// Makes an object under the first number that nobody has.
    fn make(&self, kernel: &mut Kernel, meter: MeterId, police: &Police) -> Result<u32, Refusal> {
        for index in FIRST..=LAST {
            if self.meter_of(index).is_some() {
                continue;
            }
            match self.put(kernel, meter, index, police, 0) {
                // Of another agent in this network namespace.
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
        kernel.ask(|buffer, sequence| shared::emit(buffer, &object, placement, flag::ACK | flags, sequence))?
    }

    /// For whom objects are.
    const fn placement(&self) -> u32 {
        match self.policy {
            OffloadPolicy::Any => 0,
            OffloadPolicy::SkipSoftware => placement::SKIP_SW,
            OffloadPolicy::SkipHardware => placement::SKIP_HW,
        }
    }

    /// Looks at all objects if need be.
    fn make_sure(&self, kernel: &mut Kernel) -> Result<(), SocketError> {
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
        // One that somebody has removed is wanted all the same.
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
            // Somebody else was quicker.
            Err(Refusal::Kernel { errno, .. }) if errno == Errno::NOENT.raw_os_error() => Ok(Removal::Done),
            other => other.map(|()| Removal::Done),
        }
    }

    /// Asks for something to be done, and says what became of it.
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

    /// The object under a number, and the note on it.
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

    /// Asks for objects, and shows them.
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

    /// After an error what comes late would be taken for an answer to something else, and what was asked for may be done.
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
    // Without a burst, what the rate brings in a second. A tick is not cut off, so that a burst passes as a whole.
    let burst = if burst == 0 { rate } else { burst };
    let ticks = (u128::from(burst) * TICKS).div_ceil(u128::from(rate));
    // A length of 0 would be 2,040 octets.
    let unlimited = Police { mtu: u32::MAX, ..Police::reference(Control::Pipe) };
    Ok(match meter.unit {
        MeterUnit::Packets => {
            let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
            Police { packets: Some((rate, ticks.min(LONGEST))), ..unlimited }
        }
        MeterUnit::Kilobits => {
            const OCTETS: u64 = 1000 / 8;
            let rate = rate.checked_mul(OCTETS).ok_or_else(|| limit("kilobits a second", u64::MAX / OCTETS))?;
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
    // The kernel shows so that a length is unlimited.
    let shown = Police { mtu: 0, ..*set };
    found.control == Control::Shot && found.operation == Operation::Police(Box::new(shown))
}

/// What a policer counted, as that of a meter, whose bytes are counted as those of flows.
fn counters(found: &Statistics, link_header: u64) -> MeterCounters {
    let left_out = found.software().packets.saturating_mul(link_header);
    MeterCounters {
        packets: found.total.packets,
        bytes: found.total.bytes.saturating_add(left_out),
        dropped_packets: found.drops.into(),
        dropped_bytes: None,
        bands: vec![found.drops.into()],
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
