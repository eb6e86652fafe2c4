//! Reads the counters of all rules, several bulks at a time.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use sluice_flow::backend::CounterReader;
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::refusal::Refusal;
use sluice_flow::time::Clock;

use crate::desk::Ask;
use crate::owner::Owner;

/// Bulks that are asked for at a time: as many as the device is given queries, and one that the thread of the device has in hand.
const AT_ONCE: usize = 5;

type Told = Result<(Vec<Reading>, Sampled), Refusal>;

pub(crate) struct Reader {
    owner: Arc<Owner>,
    clock: Arc<dyn Clock>,
    /// Room for readings, which goes to the thread of the device and back.
    rooms: Vec<Vec<Reading>>,
}

impl Reader {
    pub(crate) fn new(owner: Arc<Owner>, clock: Arc<dyn Clock>) -> Self {
        Self { owner, clock, rooms: Vec::new() }
    }

    fn ask(&mut self, bulk: usize, tell: &Sender<Told>) -> Result<(), Refusal> {
        let (clock, earliest) = (self.clock.clone(), self.clock.now());
        let ask = Ask { bulk, clock, earliest, readings: self.rooms.pop().unwrap_or_default(), tell: tell.clone() };
        self.owner.post(move |desk| desk.ask(ask))
    }

    fn take(&self, told: &Receiver<Told>) -> Told {
        self.owner.wait(told)?
    }
}

impl CounterReader for Reader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        let bulks = self.owner.call(|desk| desk.rules.bulks())?;
        // What an earlier round has left unread is none of this one's.
        let (tell, told) = unbounded();
        for bulk in 0..bulks.min(AT_ONCE) {
            self.ask(bulk, &tell)?;
        }
        for next in AT_ONCE..AT_ONCE + bulks {
            let (readings, sampled) = self.take(&told)?;
            if next < bulks {
                self.ask(next, &tell)?;
            }
            if !readings.is_empty() {
                visit(&readings, sampled);
            }
            self.rooms.push(readings);
        }
        Ok(())
    }
}
