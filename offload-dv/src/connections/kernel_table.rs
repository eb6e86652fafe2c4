//! The kernel's table of connections, as operators see and change it: by ctnetlink and `net.netfilter.nf_conntrack_*`.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use sluice_ctnetlink::{BATCH, Mark, Requests};
use sluice_flow::connection::{Connection, Selection};

use super::source::SourceError;
use super::table::ConnectionTable;

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

    fn flush(&self, of: &Selection, show: &mut dyn FnMut(&[Connection])) -> Result<usize, SourceError> {
        let mut selected = Vec::new();
        self.visit(&mut |connection| {
            if of.has(&connection) {
                selected.push(connection);
            }
        })?;
        let mut requests = Requests::open()?;
        for some in selected.chunks(BATCH) {
            let removed = requests.remove(some);
            // Also if one of them could not be removed: the others are.
            show(some);
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

fn read<T: FromStr>(file: impl AsRef<Path>) -> Result<T, SourceError> {
    let file = file.as_ref();
    let failed = |reason: &dyn std::fmt::Display| SourceError::Failed(format!("{}: {reason}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failed(&error))?;
    text.trim().parse().map_err(|_| failed(&"there is no number in it"))
}
