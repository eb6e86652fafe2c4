//! Objects that survive a restart: a file in the state folder, which each change replaces as a whole before it is answered.
//!
//! A file of its own, and not records in the log of flows: objects are few, so that writing all of them anew costs little, and
//! there is nothing to compact. Each line has its own checksum and the first line their number, so that damage is told, and costs
//! no more than the lines that it hits. What came from the configuration file is not kept, but for what its ports are called:
//! flows are bound to ports, and the next run may give their numbers to others.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use sluice_flow::port::{GonePort, PortMap};
use sluice_flow::{Backend, Port};

use super::{Absence, Held, Object, Objects, Origin, Step, make, words};
use crate::config;
use sluice_host::own_folder::{FolderError, OwnFolder};

const HEADER: &str = "sluice-objects 1 ";

const NAME: &str = "objects";

/// The file.
pub struct Kept {
    folder: OwnFolder,
    /// Where a damaged file is put.
    aside: PathBuf,
}

/// What the last run left.
#[derive(Debug, Default)]
pub struct Saved {
    /// The objects that were in force, each behind those that it may refer to; of the configuration file's, the ports.
    pub objects: Vec<Held>,
    /// Why some are missing; `None` if all are there.
    pub damage: Option<String>,
}

/// Why objects are not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The folder is not for the agent alone, or the system says no.
    #[error("state_dir: {0}")]
    Folder(#[from] FolderError),
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Kept {
    /// Reads the file of a state folder, if there is one. A damaged one is put aside, and what of it is whole is taken.
    pub fn open(state_dir: &Path) -> Result<(Self, Saved), KeptError> {
        let folder = OwnFolder::claim(state_dir, 0o755)?;
        let path = state_dir.join(NAME);
        let mut saved = match config::read_bounded(&path) {
            Ok(text) => read(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Saved::default(),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Saved { damage: Some("it is no text".to_owned()), ..Saved::default() }
            }
            Err(source) => return Err(KeptError::Read { path, source }),
        };
        let aside = path.with_extension("damaged");
        if let Some(damage) = &mut saved.damage {
            fs::rename(&path, &aside).map_err(|source| KeptError::Read { path: path.clone(), source })?;
            *damage = format!("{}: {damage}; it is kept as {}", path.display(), aside.display());
        }
        Ok((Self { folder, aside }, saved))
    }

    /// Whether a file of this run or an earlier one was damaged, and what to do, until somebody has done it.
    pub fn damage(&self) -> Option<String> {
        self.aside.exists().then(|| {
            format!(
                "ports, meters, mirrors or timeout policies that were set at run time are lost: {} is what was left of them; once what \
                 is missing is set again, remove that file",
                self.aside.display()
            )
        })
    }

    /// Replaces the file: on return it is on the disk.
    pub fn save(&self, objects: &Objects) -> Result<(), KeptError> {
        Ok(self.folder.replace(NAME, write(objects).as_bytes(), Mode::RUSR | Mode::WUSR)?)
    }
}

/// Has what came at run time in the last run be in force again, beside what the configuration file says, which wins. Gives the
/// ports of the last run, too, that are not there any more.
pub fn restore(backend: &dyn Backend, file: Objects, saved: Saved) -> (Objects, Vec<GonePort>) {
    if let Some(damage) = &saved.damage {
        tracing::error!("ports, meters, mirrors and timeout policies of the last run: {damage}");
    }
    let mut objects = file;
    for Held { object, .. } in saved.objects.iter().filter(|held| held.origin == Origin::RunTime) {
        let id = object.id();
        match objects.get(&id) {
            Some(known) if known.object == *object => {}
            Some(_) => {
                tracing::warn!("{id} is as the configuration file says, and no longer as it was set at run time")
            }
            None => match make(backend, &objects, vec![Step::Put(object.clone(), Origin::RunTime)], Absence::Tolerated)
            {
                Ok(after) => objects = after,
                Err(error) => tracing::error!("{id}, which was set at run time, is not in force any more: {error}"),
            },
        }
    }
    let gone = saved.objects.into_iter().filter_map(|held| match held.object {
        Object::Port(Port { number, name, .. }) => Some(GonePort { number, name }),
        _ => None,
    });
    let is_there = |port: &GonePort| objects.ports().get(port.number).is_some_and(|there| there.name == port.name);
    let gone = gone.filter(|port| !is_there(port)).collect();
    (objects, gone)
}

fn write(objects: &Objects) -> String {
    let is_kept = |held: &&Held| held.origin == Origin::RunTime || matches!(held.object, Object::Port(_));
    let lines: Vec<_> = objects.iter().filter(is_kept).map(line).collect();
    let mut text = format!("{HEADER}{}\n", lines.len());
    for line in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:08x} {line}", crc32c::crc32c(line.as_bytes()));
    }
    text
}

fn line(held: &Held) -> String {
    let origin = if held.origin == Origin::File { "file" } else { "run-time" };
    format!("{origin} {}", words::write(&held.object))
}

fn read(text: &str) -> Saved {
    let mut lines = text.lines();
    let Some(count) = lines.next().and_then(|first| first.strip_prefix(HEADER)?.parse::<usize>().ok()) else {
        return Saved { damage: Some("it does not begin as a file of objects".to_owned()), ..Saved::default() };
    };
    let (mut saved, mut ports) = (Saved::default(), PortMap::default());
    // A tunnel may stand before its underlay, which has to be known: it is read in the second round.
    let mut left: Vec<_> = lines.collect();
    for _ in 0..2 {
        left.retain(|line| {
            let Some(held) = read_line(line, &ports) else { return true };
            if let Object::Port(port) = &held.object {
                // Of two with one name the second one is turned away when it is to be in force.
                let _ = ports.insert(port.clone());
            }
            saved.objects.push(held);
            false
        });
    }
    let lost = count.saturating_sub(saved.objects.len()).max(left.len());
    if lost > 0 {
        saved.damage = Some(format!("it is damaged, and {lost} of {count} objects are lost"));
    }
    saved
}

fn read_line(line: &str, ports: &PortMap) -> Option<Held> {
    let (checksum, line) = line.split_once(' ')?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32c::crc32c(line.as_bytes()) {
        return None;
    }
    let (origin, object) = line.split_once(' ')?;
    let origin = match origin {
        "file" => Origin::File,
        "run-time" => Origin::RunTime,
        _ => return None,
    };
    Some(Held { object: words::read(object, ports).ok()?, origin })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn objects() -> Objects {
        let mut objects = Objects::default();
        for (line, origin) in [
            ("port 3 low physical", Origin::File),
            ("port 9 up physical", Origin::RunTime),
            ("port 5 vx vxlan 4789 9", Origin::RunTime),
            ("meter 1 pps 5:0", Origin::RunTime),
            ("meter 2 pps 5:0", Origin::File),
        ] {
            objects.put(words::read(line, objects.ports()).unwrap(), origin);
        }
        objects
    }

    #[test]
    fn what_is_saved_is_read_back() {
        let scratch = TempDir::new().unwrap();
        let (kept, saved) = Kept::open(scratch.path()).unwrap();
        assert!(saved.objects.is_empty() && saved.damage.is_none());
        kept.save(&objects()).unwrap();
        kept.save(&objects()).unwrap();
        let saved = Kept::open(scratch.path()).unwrap().1;
        let lines: Vec<_> = saved.objects.iter().map(line).collect();
        // Behind its underlay, and without the meter of the configuration file.
        let expected = ["file port 3 low physical", "run-time port 9 up physical", "run-time meter 1 pps 5:0"];
        assert_eq!(lines[..3], expected);
        assert_eq!((lines[3].as_str(), saved.damage), ("run-time port 5 vx vxlan 4789 9", None));
    }

    #[test]
    fn every_flipped_bit_is_told_and_costs_no_more_than_its_line() {
        let text = write(&objects());
        let whole = read(&text).objects;
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(damaged) = String::from_utf8(bytes) else { continue };
            let saved = read(&damaged);
            // A greater number of objects, or one in other words of the same meaning, is all that is no loss.
            let is_header = bit / 8 < HEADER.len() + 2;
            assert!(saved.damage.is_some() || saved.objects == whole, "bit {bit}: {damaged}");
            assert!(is_header || saved.objects.len() + 3 >= whole.len(), "bit {bit}: {damaged}");
            assert!(saved.objects.iter().all(|held| whole.contains(held)), "bit {bit}: {damaged}");
        }
    }

    #[test]
    fn a_damaged_file_is_kept_aside() {
        let scratch = TempDir::new().unwrap();
        let (kept, _) = Kept::open(scratch.path()).unwrap();
        kept.save(&objects()).unwrap();
        let path = scratch.path().join("objects");
        let damaged = fs::read_to_string(&path).unwrap().replace("port 9 up", "port 8 up");
        fs::write(&path, &damaged).unwrap();
        assert_eq!(kept.damage(), None);
        let (kept, saved) = Kept::open(scratch.path()).unwrap();
        assert!(saved.damage.unwrap().contains("2 of 4 objects are lost; it is kept as"));
        assert_eq!(saved.objects.len(), 2);
        let aside = scratch.path().join("objects.damaged");
        assert_eq!(fs::read_to_string(&aside).unwrap(), damaged);
        kept.save(&objects()).unwrap();
        let (kept, saved) = Kept::open(scratch.path()).unwrap();
        assert!(saved.damage.is_none() && kept.damage().is_some(), "said until somebody has seen to it");
        fs::remove_file(aside).unwrap();
        assert_eq!(kept.damage(), None);
    }
}
