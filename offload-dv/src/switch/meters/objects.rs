//! Meters by their numbers, each in an object of the device, with what it counts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sluice_flow::Cause;
use sluice_flow::action::ActionKind;
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::refusal::Refusal;

use super::queue::{Ground, Queue};
use crate::mlx5::{Action, Context, Domain, Object};
use crate::switch::command::{command, create};
use crate::switch::counters::Counters;
use crate::switch::refusal::refuse;
use crate::switch::rule_id::RuleId;
use crate::translate::registers::COLOR;
use crate::translate::{METER_PARAMETERS, meter_parameters};

/// `CREATE_GENERAL_OBJECT` of a block of `FLOW_METER_ASO`, with the length of the object.
const CREATE_GENERAL_OBJECT: u16 = 0xa00;
const FLOW_METER_ASO: u32 = 0x24;
const INPUT: usize = 0x10 + 0x80;
/// Meters in an object.
const EACH: usize = 2;

/// The meters of an eswitch.
pub(in crate::switch) struct Meters {
    /// Objects come in blocks of so many, as a power of two; `None` if the device has none.
    log_block: Option<u32>,
    meters: HashMap<MeterId, Metering>,
    blocks: Vec<Block>,
    free: Vec<Place>,
    /// `None` before the first meter, and once a write has failed: a queue carries nothing out any more then.
    queue: Option<Queue>,
    /// What objects and queues are part of. There with the first meter.
    ground: Option<Ground>,
    context: Context,
    domain: Domain,
}

struct Metering {
    place: Place,
    action: Action,
    /// The places of its counters.
    passed: RuleId,
    dropped: RuleId,
}

struct Block {
    object: Object,
    /// The number of its first object.
    first: u32,
}

/// A meter among all.
#[derive(Clone, Copy)]
struct Place {
    block: usize,
    /// Among those of the block.
    meter: usize,
}

/// What rules do with packets of a meter.
pub(in crate::switch) struct MeterActions {
    /// Colors them.
    pub(in crate::switch) color: Action,
    /// Counts those that pass.
    pub(in crate::switch) passed: Action,
    /// Counts those that do not.
    pub(in crate::switch) dropped: Action,
}

impl Meters {
    pub(in crate::switch) fn new(log_block: Option<u32>, context: &Context, domain: &Domain) -> Self {
        Self {
            log_block,
            meters: HashMap::new(),
            blocks: Vec::new(),
            free: Vec::new(),
            queue: None,
            ground: None,
            context: context.clone(),
            domain: domain.clone(),
        }
    }

    /// Makes a meter, or changes it: rules follow, and its counters go on. Returns whether it is new. Fails if the device has no such
    /// meter; then it is as it was.
    pub(in crate::switch) fn set(&mut self, meter: &Meter, counters: &mut Counters) -> Result<bool, Refusal> {
        let parameters = meter_parameters(meter)?;
        if let Some(Metering { place, .. }) = self.meters.get(&meter.id) {
            let place = *place;
            return self.write(place, &parameters).map(|()| false);
        }
        let place = self.take()?;
        let made = self.write(place, &parameters).and_then(|()| self.make(place, counters));
        match made {
            Ok(metering) => {
                self.meters.insert(meter.id, metering);
                Ok(true)
            }
            Err(refusal) => {
                self.free.push(place);
                Err(refusal)
            }
        }
    }

    /// Removes a meter. Fails if a rule uses it, or there is none.
    pub(in crate::switch) fn remove(&mut self, id: MeterId, counters: &mut Counters) -> Result<(), Refusal> {
        let Entry::Occupied(found) = self.meters.entry(id) else { return Err(unknown(id)) };
        if found.get().action.is_shared() {
            let reason = format!("meter {id} is used by installed rules").into();
            return Err(Refusal::Action { action: ActionKind::Meter, reason });
        }
        let Metering { place, passed, dropped, .. } = found.remove();
        self.free.push(place);
        counters.rest([passed, dropped]);
        Ok(())
    }

    /// Returns the places of a meter's counters: of packets that pass, and of others. `None` if there is none of that number.
    pub(in crate::switch) fn counters(&self, id: MeterId) -> Option<[RuleId; 2]> {
        self.meters.get(&id).map(|metering| [metering.passed, metering.dropped])
    }

    /// Returns what rules do with packets of a meter.
    pub(in crate::switch) fn actions(&self, id: MeterId, counters: &Counters) -> Result<MeterActions, Refusal> {
        let Metering { action, passed, dropped, .. } = self.meters.get(&id).ok_or_else(|| unknown(id))?;
        let (passed, dropped) = (counters.action(*passed)?, counters.action(*dropped)?);
        Ok(MeterActions { color: action.clone(), passed, dropped })
    }

    fn make(&mut self, place: Place, counters: &mut Counters) -> Result<Metering, Refusal> {
        let register = u8::try_from(COLOR.register()).unwrap_or_default();
        let offset = u32::try_from(place.meter).unwrap_or(u32::MAX);
        let action = Action::meter(&self.domain, &self.blocks[place.block].object, offset, register).map_err(refuse)?;
        let passed = counters.take()?;
        let dropped = counters.take().inspect_err(|_| counters.give_back(passed))?;
        Ok(Metering { place, action, passed, dropped })
    }

    fn write(&mut self, place: Place, parameters: &[u8; METER_PARAMETERS]) -> Result<(), Refusal> {
        let number = self.blocks[place.block].first + u32::try_from(place.meter / EACH).unwrap_or_default();
        let ground = ground(&mut self.ground, &self.context)?;
        let queue = match &mut self.queue {
            Some(queue) => queue,
            none => none.insert(Queue::open(&self.context, ground)?),
        };
        let written = queue.write(number, place.meter % EACH, parameters);
        if written.is_err() {
            self.queue = None;
        }
        written
    }

    /// Takes a meter that nobody has.
    fn take(&mut self) -> Result<Place, Refusal> {
        let Some(log) = self.log_block else {
            let reason = "this device has no meters that rules have packets pass".into();
            return Err(Refusal::Action { action: ActionKind::Meter, reason });
        };
        if self.free.is_empty() {
            let domain = ground(&mut self.ground, &self.context)?.domain();
            let words = [(4, FLOW_METER_ASO), (12, log << 24), (0x20, domain)];
            let (object, first) = create(&self.context, &command::<INPUT>(CREATE_GENERAL_OBJECT, &words))?;
            let block = self.blocks.len();
            self.blocks.push(Block { object, first });
            self.free.extend((0..EACH << log).rev().map(|meter| Place { block, meter }));
        }
        self.free.pop().ok_or_else(|| Refusal::Device { reason: "there is no meter".into() })
    }
}

fn ground<'a>(known: &'a mut Option<Ground>, context: &Context) -> Result<&'a Ground, Refusal> {
    match known {
        Some(known) => Ok(known),
        none => Ok(none.insert(Ground::allocate(context)?)),
    }
}

fn unknown(id: MeterId) -> Refusal {
    let reason = format!("there is no meter {id}").into();
    Refusal::Action { action: ActionKind::Meter, reason }.until(Cause::Meter)
}
