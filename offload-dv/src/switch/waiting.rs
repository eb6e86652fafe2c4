//! The same for a caller that has nothing else to do, and listens itself.

use sluice_flow::meter::MeterId;
use sluice_flow::refusal::Refusal;

use super::core::Switch;
use super::counters::{Count, Told};
use super::rule_id::RuleId;

impl Switch {
    /// Removes rules, and returns what each counted: every packet that it took.
    pub fn remove(&mut self, ids: &[RuleId]) -> Result<Vec<Count>, Refusal> {
        let mut found = vec![None; ids.len()];
        self.remove_later(ids, 0)?;
        self.wait(ids.len(), |told| {
            let Told::Last { counts, .. } = told else { return 0 };
            counts.iter().for_each(|(position, count)| found[*position] = *count);
            counts.len()
        })?;
        let known = found.into_iter().map(|count| count.ok_or_else(|| unknown("the device has not told a count")));
        known.collect()
    }

    /// Reads the counters of a bulk.
    pub fn read(&mut self, bulk: usize, visit: &mut dyn FnMut(RuleId, Count)) -> Result<(), Refusal> {
        self.ask(bulk, 0);
        self.wait(1, |told| usize::from(matches!(told, Told::Bulk { is_done: true, .. })))?;
        self.counts(bulk).for_each(|(id, count)| visit(id, count));
        Ok(())
    }

    /// Returns what a mirror copied up to now; `None` if there is none of that name.
    pub fn read_mirror(&mut self, name: &str) -> Result<Option<Count>, Refusal> {
        let Some(bulk) = self.bulk_of_mirror(name) else { return Ok(None) };
        self.read(bulk, &mut |_, _| ())?;
        Ok(self.mirror_count(name))
    }

    /// Returns what passed a meter up to now and what did not; `None` if there is none of that number.
    pub fn read_meter(&mut self, id: MeterId) -> Result<Option<[Count; 2]>, Refusal> {
        for bulk in self.bulks_of_meter(id).into_iter().flatten() {
            self.read(bulk, &mut |_, _| ())?;
        }
        Ok(self.meter_counts(id))
    }

    /// Waits until so much is told of what is `wanted`.
    fn wait(&mut self, number: usize, mut wanted: impl FnMut(&Told) -> usize) -> Result<(), Refusal> {
        let failed = |error: std::io::Error| unknown(&error.to_string());
        let mut listener = self.listener().map_err(failed)?;
        let mut left = number;
        while left > 0 {
            let told = self.told();
            left = left.saturating_sub(told.iter().map(&mut wanted).sum());
            if left > 0 && self.oldest_query().is_none() {
                return Err(unknown("the device does not tell"));
            }
            if left > 0 {
                let answer = listener.wait().map_err(failed)?;
                self.answered(answer);
            }
        }
        Ok(())
    }
}

fn unknown(reason: &str) -> Refusal {
    Refusal::Device { reason: reason.to_owned().into() }
}
