//! What is told of a damaged log, and to whom.
//!
//! A damaged file gets a second name, `N.log.damaged`, under which it stays when the log is compacted. What it has cost is in a
//! file beside it, `damage-M.txt`, with the flows that are in doubt in a form that `sluice del-flows` takes. As long as that
//! report is there the agent is not ready: who has read it moves it away.

use std::fmt::{self, Write as _};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use sluice_flow::Flow;
use sluice_flow::text::{Style, write_actions, write_key};
use sluice_flow::ufid::Seed;

use super::error::{JournalError, failed};
use super::folder::{Folder, create};
use super::load::Log;
use super::loss::Loss;

/// Flows in doubt that a report lists; more are only counted.
const LISTED: u64 = 100_000;

/// What damage to the log has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Flows that were wanted, and of which it is not known what they were to do: they are gone.
    pub lost_flows: u64,
    /// Changes of which nothing is known: so many flows at most were accepted, changed or deleted by them.
    pub lost_changes: u64,
    /// Flows that are wanted again and that such a change may have deleted or changed.
    pub doubtful_flows: u64,
}

/// Damage to the log of flows to which nobody has seen yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    /// What it has cost; `None` if an earlier start has found it.
    pub damage: Option<Damage>,
    /// Where to read more.
    pub report: PathBuf,
    /// Why that could not be written, so that it is not there though nobody has moved it away.
    pub unwritten: Option<String>,
}

impl fmt::Display for DamageReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { damage, report, unwritten } = self;
        match damage {
            None => write!(out, "the log of flows was damaged before an earlier start")?,
            Some(Damage { lost_flows, lost_changes, doubtful_flows }) => {
                write!(out, "the log of flows was damaged: {lost_flows} flows are lost")?;
                if *lost_changes > 0 {
                    write!(
                        out,
                        ", and at most {lost_changes} changes, which may concern {doubtful_flows} other flows"
                    )?;
                }
            }
        }
        match unwritten {
            None => write!(out, "; read {} and move it away", report.display()),
            Some(error) => {
                write!(out, "; the report of it could not be written ({error}), so that this is said until a restart")
            }
        }
    }
}

impl Folder {
    /// Keeps every damaged file aside.
    pub(super) fn keep_damaged_aside(&self, loss: &Loss) {
        let mut last: Option<&Path> = None;
        for damage in &loss.damages {
            tracing::error!(
                "{}, at byte {}: {}; {} bytes are not records, {} records are missing",
                damage.path.display(),
                damage.at,
                damage.reason,
                damage.bytes,
                damage.records
            );
            if last != Some(&damage.path) {
                match self.keep_aside(&damage.path) {
                    Ok(aside) => tracing::error!("{} is kept as {}", damage.path.display(), aside.display()),
                    Err(error) => tracing::error!("a damaged file of the log of flows cannot be kept aside: {error}"),
                }
            }
            last = Some(&damage.path);
        }
    }
}

/// Writes the report of what was lost and of the flows that are in doubt.
pub(super) fn write_report(path: &Path, loss: &Loss, log: &Log, seed: &Seed) -> Result<(), JournalError> {
    let wrong = failed("write", path);
    let mut out = BufWriter::new(match create(path) {
        Ok(file) => file,
        Err(error) => return Err(wrong(error)),
    });
    let mut listed = 0;
    let mut written = write_head(&mut out, loss);
    let mut list = |flow: Flow| {
        listed += 1;
        if listed <= LISTED && written.is_ok() {
            written = out.write_all(line(&flow).as_bytes());
        }
    };
    let read = log.visit_doubtful(seed, &mut list);
    if listed > LISTED {
        written = written.and_then(|()| writeln!(out, "# and {} more", listed - LISTED));
    }
    written.and_then(|()| out.flush()).and_then(|()| out.get_ref().sync_data()).map_err(wrong)?;
    read
}

fn write_head(out: &mut impl Write, loss: &Loss) -> std::io::Result<()> {
    writeln!(
        out,
        "# The log of flows was damaged. Move this file away when it is read: until then the agent is not ready."
    )?;
    for damage in &loss.damages {
        let (path, at, bytes, records) = (damage.path.display(), damage.at, damage.bytes, damage.records);
        writeln!(
            out,
            "# {path}, at byte {at}: {}; {bytes} bytes are no records, {records} records are missing",
            damage.reason
        )?;
    }
    writeln!(out, "#\n# Lost: {} flows that were wanted, by their last accepted change.", loss.flows.len())?;
    for ufid in &loss.flows {
        writeln!(out, "#   ufid:{ufid}")?;
    }
    if loss.changes > 0 {
        writeln!(
            out,
            "#\n# At most {} changes are lost of which nothing is known. They may have deleted or changed some of the {} flows\n\
             # below, which are wanted again. `sluice del-flows FILE` deletes those that a file lists.",
            loss.changes, loss.doubtful
        )?;
    }
    Ok(())
}

/// A flow as a line that is read back, and is found again by its UFID.
fn line(flow: &Flow) -> String {
    let mut line = format!("ufid:{}, ", flow.ufid);
    let style = Style::default();
    let written = write_key(&mut line, &flow.matching(), &style)
        .and_then(|()| line.write_str(", actions:"))
        .and_then(|()| write_actions(&mut line, &flow.actions, &style));
    match written {
        Ok(()) => line + "\n",
        Err(_) => format!("# ufid:{}\n", flow.ufid),
    }
}
