//! The kernel's table of connections, as operators see and change it: by ctnetlink and `net.netfilter.nf_conntrack_*`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use sluice_ctnetlink::wire::{Name, Told};
use sluice_ctnetlink::{BATCH, Mark, Requests};
use sluice_flow::connection::{Connection, Selection};

use super::source::SourceError;
use super::table::ConnectionTable;
use crate::switch::ConnectionChange;

/// How many connections there are, and how many there may be (`Documentation/networking/nf_conntrack-sysctl.rst`). The former is of the
/// network namespace of who reads it.
const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const LIMIT: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// The table of this network namespace. Each call has a socket of its own, so that callers do not wait for each other.
pub(super) struct KernelTable;

impl ConnectionTable for KernelTable {
    fn visit(&self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError> {
        Ok(Requests::open()?.all(Mark::default(), &mut |told| visit(told.connection), &mut || Ok(()))?)
    }

    fn add(&self, _: Connection) -> Result<(), SourceError> {
        Err(SourceError::Failed("the kernel tracks them itself (`connections = \"kernel\"` in [dv])".to_owned()))
    }

    fn flush(&self, of: &Selection, show: &mut dyn FnMut(Vec<ConnectionChange>)) -> Result<usize, SourceError> {
        let mut selected = Vec::new();
        self.visit(&mut |connection| {
            if of.has(&connection) {
                selected.push(connection);
            }
        })?;
        let mut requests = Requests::open()?;
        for some in selected.chunks(BATCH) {
            let removed = requests.remove(some);
            let names: Vec<_> = some.iter().map(Name::of).collect();
            // If that is not known, those go by software that have begun since, until all are listed again.
            let later = requests.some(&names).unwrap_or_default();
            // Also if one of them could not be removed: the others are.
            show(ends(some, &later));
            removed?;
        }
        Ok(selected.len())
    }

    fn count(&self) -> Result<usize, SourceError> {
        read(COUNT)
    }

    fn limit(&self) -> Result<u32, SourceError> {
        read(LIMIT)
    }

    fn set_limit(&self, limit: u32) -> Result<(), SourceError> {
        fs::write(LIMIT, limit.to_string()).map_err(|error| SourceError::Failed(format!("{LIMIT}: {error}")))
    }
}

/// How the device is to forget connections that were removed, where the kernel has later ones in the place of some. It may know one of before
/// them, by another number, of whose end the kernel has told nobody (`nf_conntrack_events`).
fn ends(removed: &[Connection], later: &[Told]) -> Vec<ConnectionChange> {
    let later: HashSet<_> = later.iter().map(|told| Name::of(&told.connection)).collect();
    let end = |connection: &Connection| ConnectionChange::Gone {
        zone: connection.zone,
        original: connection.original,
        id: later.contains(&Name::of(connection)).then_some(connection.id),
    };
    removed.iter().map(end).collect()
}

fn read<T: FromStr>(file: impl AsRef<Path>) -> Result<T, SourceError> {
    let file = file.as_ref();
    let failed = |reason: &dyn std::fmt::Display| SourceError::Failed(format!("{}: {reason}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failed(&error))?;
    text.trim().parse().map_err(|_| failed(&"there is no number in it"))
}

#[cfg(test)]
mod tests {
    use super::super::begun_from;
    use super::*;

    fn connection(port: u16, id: u32) -> Connection {
        Connection { id, ..begun_from(port) }
    }

    #[test]
    fn a_flushed_connection_is_forgotten_by_whatever_number_it_is_known_unless_there_is_a_later_one() {
        let removed = [connection(1, 11), connection(2, 12)];
        let later = Told { connection: connection(2, 13), has_timeout: true, has_zone: true };
        let ids: Vec<_> = ends(&removed, &[later])
            .into_iter()
            .map(|change| match change {
                ConnectionChange::Gone { zone: 7, original, id } => (original.source_port, id),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, [(1, None), (2, Some(12))]);
    }
}
