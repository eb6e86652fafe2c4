//! Meters in ASO objects of type flow meter: two to an object. Entries have a packet colored by one and go on to another table that
//! looks at the color; requests of send queues (`ACCESS_ASO`) write what a meter is made of.
//!
//! These readings are ours: drivers write no tokens and the time 0, which is long ago, so that a meter begins with full buckets
//! whenever it is written; and a packet at a meter that nobody has written yet ends there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::bucket::{Buckets, Length, PARAMETERS, Parameters};
use crate::packet::Headers;
use crate::steering::failure::{Failure, Refusal};
use crate::steering::meter::Color;

/// Objects in a block, as a power of two: a ConnectX's capability says so.
pub(crate) const LOG_BLOCK: u64 = 6;
/// All objects that there are, as a power of two; the same says that.
pub(crate) const LOG_ALL: u64 = 23;

/// Meters in one object.
const METERS: usize = 2;
/// Bytes of an object that requests write.
pub(crate) const OBJECT: usize = METERS * PARAMETERS;

/// All objects, in blocks by the number of their first.
#[derive(Debug, Default)]
pub(crate) struct MeterObjects {
    next: u32,
    blocks: BTreeMap<u32, Block>,
}

#[derive(Debug)]
struct Block {
    /// The DevX user context that made it; 0 is the kernel.
    uid: u16,
    /// The protection domain of queues that may write.
    domain: u32,
    /// How many entries lead through its meters.
    uses: u32,
    meters: Vec<Option<Meter>>,
}

/// A meter that was written.
#[derive(Debug, Clone, Copy)]
struct Meter {
    written: [u8; PARAMETERS],
    buckets: Buckets,
}

/// A meter as an entry names it, and where its color goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metered {
    /// The object's number.
    pub(crate) object: u32,
    /// Which of its meters.
    pub(crate) meter: usize,
    /// Register C.
    pub(crate) register: usize,
}

impl MeterObjects {
    /// Makes a block of 2^`log` objects of meters that queues of a protection domain may write: the number of the first. What is
    /// given for the two meters of an object holds for all of them; what is all zero is not written yet.
    pub(in crate::steering) fn create(
        &mut self,
        uid: u16,
        domain: u32,
        log: u64,
        given: &[u8; OBJECT],
        now: Duration,
    ) -> Result<u32, Failure> {
        if log != LOG_BLOCK {
            let value = u32::try_from(log).unwrap_or(u32::MAX);
            let problem = "is not what log_meter_aso_granularity and log_meter_aso_max_alloc allow";
            return Err(Refusal::Value { what: "log_obj_range", value, problem }.into());
        }
        let (first, end) = (self.next, self.next + (1 << LOG_BLOCK));
        if end > 1 << LOG_ALL {
            return Err(Refusal::Full { what: "ASO objects of meters", limit: 1 << LOG_ALL }.into());
        }
        let object = given
            .as_chunks::<PARAMETERS>()
            .0
            .iter()
            .map(|written| written.iter().any(|byte| *byte != 0).then(|| Meter::new(*written, now)).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let block = Block { uid, domain, uses: 0, meters: object.repeat(1 << LOG_BLOCK) };
        self.next = end;
        self.blocks.insert(first, block);
        Ok(first)
    }

    /// Takes a block back, unless entries lead through its meters.
    pub(in crate::steering) fn destroy(&mut self, uid: u16, first: u32) -> Result<(), Failure> {
        const WHAT: &str = "block of ASO objects of meters";
        match self.blocks.get(&first) {
            Some(block) if uid == 0 || block.uid == uid => {
                if block.uses > 0 {
                    return Err(Refusal::InUse { what: WHAT, id: first, uses: block.uses }.into());
                }
                self.blocks.remove(&first);
                Ok(())
            }
            _ => Err(Refusal::Unknown { what: WHAT, id: first }.into()),
        }
    }

    /// An object's protection domain, and its meters as they were written last.
    pub(in crate::steering) fn query(&mut self, uid: u16, object: u32) -> Result<(u32, [u8; OBJECT]), Failure> {
        self.check(uid, object)?;
        let (domain, meters) = self.meters(object)?;
        let mut bytes = [0; OBJECT];
        for (bytes, meter) in bytes.chunks_mut(PARAMETERS).zip(meters) {
            bytes.copy_from_slice(&meter.map_or([0; PARAMETERS], |meter| meter.written));
        }
        Ok((domain, bytes))
    }

    /// Writes those bytes of an object that a mask names: its highest bit the first byte. What is not written stays; a meter of
    /// which anything is written begins anew.
    pub(in crate::steering) fn write(
        &mut self,
        (domain, object): (u32, u32),
        mask: u64,
        data: &[u8; OBJECT],
        now: Duration,
    ) -> Result<(), String> {
        let (owner, meters) = self.meters(object).map_err(|refusal| refusal.to_string())?;
        if owner != domain {
            return Err(format!("object {object:#x} is of PD {owner:#x}, and the queue of {domain:#x}"));
        }
        let mut new = meters.to_vec();
        for (number, (meter, data)) in new.iter_mut().zip(data.chunks(PARAMETERS)).enumerate() {
            let mut written = meter.map_or([0; PARAMETERS], |meter| meter.written);
            let is_named = |byte: usize| mask << (number * PARAMETERS + byte) >> 63 == 1;
            if !(0..PARAMETERS).any(is_named) {
                continue;
            }
            for byte in (0..PARAMETERS).filter(|byte| is_named(*byte)) {
                written[byte] = data[byte];
            }
            let made = Meter::new(written, now);
            *meter = Some(made.map_err(|refusal| format!("meter {number} of {object:#x}: {refusal}"))?);
        }
        meters.copy_from_slice(&new);
        Ok(())
    }

    /// Has a meter color a packet. None if nobody has written it.
    pub(in crate::steering) fn color(
        &mut self,
        metered: Metered,
        frame: &[u8],
        headers: &Headers,
        now: Duration,
    ) -> Option<Color> {
        let meter = self.meter(metered.object, metered.meter)?;
        Some(meter.buckets.color(Length::of(frame, headers), now))
    }

    /// How many meters have been written and not freed with their blocks.
    pub(in crate::steering) fn written(&self) -> usize {
        self.blocks.values().flat_map(|block| &block.meters).filter(|meter| meter.is_some()).count()
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The first number of the block that an object is in, and the place of its meters there.
    fn find(&self, object: u32) -> Result<(u32, Range<usize>), Refusal> {
        let unknown = Refusal::Unknown { what: "ASO object of meters", id: object };
        let (first, block) = self.blocks.range(..=object).next_back().ok_or(unknown.clone())?;
        let place = usize::try_from(object - first).unwrap_or(usize::MAX).saturating_mul(METERS);
        if place < block.meters.len() { Ok((*first, place..place + METERS)) } else { Err(unknown) }
    }

    fn block(&mut self, object: u32) -> Option<&mut Block> {
        let (first, _) = self.find(object).ok()?;
        self.blocks.get_mut(&first)
    }

    fn meter(&mut self, object: u32, meter: usize) -> Option<&mut Meter> {
        let (first, place) = self.find(object).ok()?;
        self.blocks.get_mut(&first)?.meters.get_mut(place)?.get_mut(meter)?.as_mut()
    }

    /// Whether a user context sees an object.
    pub(in crate::steering) fn check(&self, uid: u16, object: u32) -> Result<(), Refusal> {
        let (first, _) = self.find(object)?;
        let seen = self.blocks.get(&first).is_some_and(|block| uid == 0 || block.uid == uid);
        if seen { Ok(()) } else { Err(Refusal::Unknown { what: "ASO object of meters", id: object }) }
    }

    pub(in crate::steering) fn hold(&mut self, object: u32) {
        if let Some(block) = self.block(object) {
            block.uses += 1;
        }
    }

    pub(in crate::steering) fn release(&mut self, object: u32) {
        if let Some(block) = self.block(object) {
            block.uses = block.uses.saturating_sub(1);
        }
    }

    fn meters(&mut self, object: u32) -> Result<(u32, &mut [Option<Meter>]), Refusal> {
        let (first, place) = self.find(object)?;
        let block = self.blocks.get_mut(&first).and_then(|block| Some((block.domain, block.meters.get_mut(place)?)));
        block.ok_or(Refusal::Unknown { what: "ASO object of meters", id: object })
    }
}

impl Meter {
    fn new(written: [u8; PARAMETERS], now: Duration) -> Result<Self, Refusal> {
        // Between the flags and the sizes; tokens and time, which come behind the sizes.
        const NOTHING: [(&str, Range<usize>); 3] =
            [("flow_meter_parameters", 1..8), ("tokens of a meter", 12..16), ("tokens and time of a meter", 20..32)];
        for (what, bytes) in NOTHING {
            if let Some(value) = written[bytes].iter().find(|byte| **byte != 0) {
                return Err(Refusal::NotModelled { what, value: u32::from(*value) });
            }
        }
        Ok(Self { written, buckets: Buckets::full(Parameters::decode(&written)?, now) })
    }
}
