//! Rules go out of the kernel, and what they counted comes back.

use sluice_flow::refusal::Refusal;

use super::counted::Counted;
use super::failure;
use super::ledger::record::Entry;
use crate::install::{Done, Installer, Request};
use crate::wire::filter::FilterId;

/// Takes rules out, and then their guards, so that no packet meets a rule without its guard. Says of each what its flow counted in
/// all; nothing if it was gone already. One that is still there has its guard still.
pub(super) fn take_out(installer: &mut Installer, entries: &[&Entry]) -> Vec<Result<Option<Counted>, Refusal>> {
    let ids: Vec<_> = entries.iter().map(|entry| entry.id()).collect();
    let rules = delete(installer, &ids);
    let is_gone = |result: &Result<Option<Counted>, Refusal>| result.is_ok();
    let guards = entries.iter().zip(&rules).filter(|(_, rule)| is_gone(rule)).filter_map(|(entry, _)| entry.guard_id());
    let guards: Vec<_> = guards.collect();
    let mut guards = delete(installer, &guards).into_iter();
    let total = |(entry, rule): (&&Entry, Result<Option<Counted>, Refusal>)| {
        let by_rule = rule?;
        let by_guard = match entry.guard_id() {
            Some(_) => guards.next().transpose()?.flatten().or(entry.record.guard()),
            None => None,
        };
        Ok(by_rule.map(|by_rule| entry.record.carried().plus(by_rule).plus(by_guard.unwrap_or_default())))
    };
    entries.iter().zip(rules).map(total).collect()
}

/// Takes rules out. Says of each what it counted; nothing if it was gone already.
fn delete(installer: &mut Installer, ids: &[FilterId]) -> Vec<Result<Option<Counted>, Refusal>> {
    if ids.is_empty() {
        return Vec::new();
    }
    let requests: Vec<_> = ids.iter().copied().map(Request::Delete).collect();
    let results = installer.submit(&requests);
    ids.iter().zip(results).map(|(id, result)| deleted(installer, *id, result)).collect()
}

/// What became of a rule that was to be taken out: what it counted; nothing if it was gone already.
pub(super) fn deleted(
    installer: &mut Installer,
    id: FilterId,
    result: Result<Done, Refusal>,
) -> Result<Option<Counted>, Refusal> {
    match result {
        Ok(done) => Ok(done.report.map(|report| Counted::reported(&report, &id))),
        // Somebody was quicker, or the device is gone.
        Err(refusal) if failure::is_absence(&refusal) && matches!(installer.find(id), Ok(None)) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}
