//! Deletes rules and returns what they counted.

use sluice_flow::refusal::Refusal;

use super::counted::Counted;
use super::failure;
use super::ledger::record::Entry;
use crate::install::{Done, Installer, Request};
use crate::wire::filter::FilterId;

/// Deletes rules, and then their guards, so that no packet meets a rule without its guard. Returns for each what its flow
/// counted in all, or nothing if the rule was gone already. If a rule cannot be deleted, its guard stays.
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

/// Deletes rules. Returns for each what it counted, or nothing if it was gone already.
fn delete(installer: &mut Installer, ids: &[FilterId]) -> Vec<Result<Option<Counted>, Refusal>> {
    if ids.is_empty() {
        return Vec::new();
    }
    let requests: Vec<_> = ids.iter().copied().map(Request::Delete).collect();
    let results = installer.submit(&requests);
    ids.iter().zip(results).map(|(id, result)| deleted(installer, *id, result)).collect()
}

/// The outcome of a deletion: what the rule counted, or nothing if it was gone already.
pub(super) fn deleted(
    installer: &mut Installer,
    id: FilterId,
    result: Result<Done, Refusal>,
) -> Result<Option<Counted>, Refusal> {
    match result {
        Ok(done) => Ok(done.report.map(|report| Counted::reported(&report, &id))),
        // Somebody else deleted it, or the device is gone.
        Err(refusal) if failure::is_absence(&refusal) && matches!(installer.find(id), Ok(None)) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}
