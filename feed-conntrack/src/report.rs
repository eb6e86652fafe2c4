//! What the source tells of itself.

use std::collections::BTreeMap;

use sluice_flow::source::SourceReport;

use crate::judge::Reason;
use crate::kernel;
use crate::table::Table;

/// What a person should know where the kernel is set so.
const SILENT: &str = "net.netfilter.nf_conntrack_events is 0, so that the kernel tells nothing of connections: flows outlive them by seconds";

/// Counts directions of connections that are forwarded and have not ended, and reasons of those without flows.
pub(crate) fn fill(report: &mut SourceReport, table: &Table) {
    let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
    // Nobody wants flows of the others.
    let is_candidate = |reason| !matches!(reason, Some(Reason::NotEstablished | Reason::NotForwarded));
    let sides = table.connections.values().flat_map(|connection| &connection.sides);
    let candidates: Vec<_> = sides.filter(|side| is_candidate(side.reason)).collect();
    for side in candidates.iter().filter(|side| !side.has_flow()) {
        // Without a reason its next hop is being looked up.
        *reasons.entry(side.reason.unwrap_or(Reason::NoNeighbour)).or_default() += 1;
    }
    report.flows = candidates.len();
    report.flows_left_out = reasons.values().sum();
    report.reasons = reasons.into_iter().map(|(reason, count)| (reason.to_string(), count)).collect();
    report.caveat = kernel::is_silent().then(|| SILENT.to_owned());
}
