//! Objects that survive a restart: a file in the state folder, which is replaced as a whole: by a change of somebody who asks for one
//! before it is answered, and by one of a source soon afterwards.
//!
//! A file of its own, and not records in the log of flows: objects are few, so that writing all of them anew costs little, and
//! there is nothing to compact. Each line has its own checksum and the first line their number, so that damage is told, and costs
//! no more than the lines that it hits. What came from the configuration file is not kept, but for what its ports are called:
//! flows are bound to ports, and the next run may give their numbers to others.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Mode;
use sluice_flow::port::PortNames;
use sluice_flow::{Port, PortNumber};
use sluice_host::bounded::read_bounded;
use sluice_host::own_folder::{FolderError, OwnFolder};

use super::registry::{Entry, ObjectKind, Origin};
use super::set::{Objects, for_each_kind};

const HEADER: &str = "sluice-objects 1 ";

const NAME: &str = "objects";

/// The size of the file at most: some ten thousand ports fit. What is larger is neither read nor written.
const MOST_BYTES: u64 = 4 << 20;

/// The file.
pub struct ObjectsFile {
    folder: OwnFolder,
    /// Where a damaged file is put.
    aside: PathBuf,
    /// Whether there was one when it was last looked.
    is_damaged: AtomicBool,
}

/// What the last run left.
#[derive(Debug, Default)]
pub struct Saved {
    /// The objects that were in force or refused; of the configuration file's, the ports alone.
    pub objects: Objects,
    /// Why some are missing; `None` if all are there.
    pub damage: Option<String>,
}

/// Why objects do not survive.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsFileError {
    /// The folder is not for the agent alone, or the system says no.
    #[error("state_dir: {0}")]
    Folder(#[from] FolderError),
    /// The next start could not read the file.
    #[error("all of them together take {bytes} bytes of the state folder, and {MOST_BYTES} are the most")]
    TooLarge {
        /// What would have to be written.
        bytes: usize,
    },
    /// The system says no.
    #[error("cannot {doing} {}: {source}", path.display())]
    Failed {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl ObjectsFile {
    /// Reads the file of a state folder, if there is one. A damaged one is put aside, and what of it is whole is taken.
    pub fn open(state_dir: &Path) -> Result<(Self, Saved), ObjectsFileError> {
        let folder = OwnFolder::claim(state_dir, 0o755)?;
        let path = state_dir.join(NAME);
        let mut saved = match read_bounded(&path, MOST_BYTES) {
            Ok(text) => read(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Saved::default(),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Saved { damage: Some("it is no text".to_owned()), ..Saved::default() }
            }
            Err(source) => return Err(ObjectsFileError::Failed { doing: "read", path, source }),
        };
        let aside = path.with_extension("damaged");
        if let Some(damage) = &mut saved.damage {
            let doing = "put the damaged file aside,";
            fs::rename(&path, &aside).map_err(|source| ObjectsFileError::Failed {
                doing,
                path: path.clone(),
                source,
            })?;
            *damage = format!("{}: {damage}; it is kept as {}", path.display(), aside.display());
        }
        let is_damaged = AtomicBool::new(aside.exists());
        Ok((Self { folder, aside, is_damaged }, saved))
    }

    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// Whether a file of this run or an earlier one was damaged, and what to do, until somebody has done it and that was
    /// [looked at](Self::look_at_damage). Does not wait for the disk.
    pub fn damage(&self) -> Option<String> {
        self.is_damaged.load(Ordering::Relaxed).then(|| {
            format!(
                "ports, meters, mirrors or timeout policies that were set at run time are lost: {} is what was left of them; once what \
                 is missing is set again, remove that file",
                self.aside.display()
            )
        })
    }

    /// Looks on the disk whether somebody has removed the damaged file.
    pub fn look_at_damage(&self) {
        // Not while it cannot be known, as on a disk that fails.
        if self.is_damaged.load(Ordering::Relaxed) && matches!(self.aside.try_exists(), Ok(false)) {
            self.is_damaged.store(false, Ordering::Relaxed);
            tracing::info!("{} was removed: the damage is dealt with", self.aside.display());
        }
    }

    /// Replaces the file: on return it is on the disk. Fails if [`open`](Self::open) would not read it.
    pub fn save(&self, objects: &Objects) -> Result<(), ObjectsFileError> {
        let text = write(objects);
        if text.len() as u64 > MOST_BYTES {
            return Err(ObjectsFileError::TooLarge { bytes: text.len() });
        }
        Ok(self.folder.replace(NAME, text.as_bytes(), Mode::RUSR | Mode::WUSR)?)
    }
}

fn write(objects: &Objects) -> String {
    let mut lines = Vec::new();
    for_each_kind!(Kind => {
        let is_kept = |entry: &&Entry<Kind>| entry.origin != Origin::File || Kind::KEY == Port::KEY;
        lines.extend(objects.of::<Kind>().iter().filter(is_kept).map(line));
    });
    let mut text = format!("{HEADER}{}\n", lines.len());
    for line in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:08x} {line}", crc32c::crc32c(line.as_bytes()));
    }
    text
}

fn line<T: ObjectKind>(Entry { object, origin }: &Entry<T>) -> String {
    let word = Origin::NAMES.iter().find(|(known, _)| known == origin).map_or("", |(_, word)| word);
    format!("{word} {} {}", T::KEY, object.write())
}

fn read(text: &str) -> Saved {
    let mut lines = text.lines();
    let Some(count) = lines.next().and_then(|first| first.strip_prefix(HEADER)?.parse::<usize>().ok()) else {
        return Saved { damage: Some("it does not begin as a file of objects".to_owned()), ..Saved::default() };
    };
    let mut objects = Objects::default();
    let (mut found, mut unread) = (0, 0);
    for line in lines {
        match read_line(line, &mut objects) {
            Some(()) => found += 1,
            None => unread += 1,
        }
    }
    let lost = count.saturating_sub(found).max(unread);
    let damage = (lost > 0).then(|| format!("it is damaged, and {lost} of {count} objects are lost"));
    Saved { objects, damage }
}

fn read_line(line: &str, objects: &mut Objects) -> Option<()> {
    let (checksum, line) = line.split_once(' ')?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32c::crc32c(line.as_bytes()) {
        return None;
    }
    let mut words = line.split(' ');
    let word = words.next()?;
    let (origin, _) = *Origin::NAMES.iter().find(|(_, known)| *known == word)?;
    let key = words.next()?;
    let words: Vec<_> = words.map(str::to_owned).collect();
    for_each_kind!(Kind => {
        if key == Kind::KEY {
            Kind::registry_mut(objects).put(Kind::read(&words, &Numbers).ok()?, origin);
            return Some(());
        }
    });
    None
}

/// Ports as the file names them: by numbers, whether or not there are such ports by now. Whoever makes an object sees to that.
struct Numbers;

impl PortNames for Numbers {
    fn number(&self, _: &str) -> Option<PortNumber> {
        None
    }

    fn name(&self, _: PortNumber) -> Option<&str> {
        Some("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::meter::{Meter, MeterId, MeterUnit};
    use sluice_flow::mirror::Mirror;
    use sluice_flow::port::PortMap;
    use tempfile::TempDir;

    fn objects() -> Objects {
        read_all(&[
            "file port 3 low physical",
            "run-time port 9 up physical",
            "run-time port 5 vx vxlan 4789 9",
            "run-time meter 1 pps 5:0",
            "file meter 2 pps 5:0",
        ])
    }

    fn read_all(lines: &[&str]) -> Objects {
        let mut objects = Objects::default();
        lines.iter().for_each(|line| read_line(&checked(line), &mut objects).unwrap());
        objects
    }

    fn checked(line: &str) -> String {
        format!("{:08x} {line}", crc32c::crc32c(line.as_bytes()))
    }

    fn lines(objects: &Objects) -> Vec<String> {
        let mut lines = Vec::new();
        for_each_kind!(Kind => { lines.extend(objects.of::<Kind>().iter().map(line)); });
        lines
    }

    #[test]
    fn every_object_is_read_as_it_is_written() {
        let all = [
            "run-time port 1 p0 physical",
            "run-time port 2 vf0 representor",
            "run-time port 3 br0 internal",
            "run-time port 4 vx0 vxlan 4789 1",
            "run-time port 5 gre0 gre 1",
            "run-time port 6 tap mirror",
            "run-time meter 1 kbps 1000:0 5:7",
            "run-time meter 4294967295 pps 1:2",
            "run-time ct_timeout empty",
            "run-time ct_timeout short tcp_syn_sent=5 udp_single=7",
        ];
        let objects = read_all(&all);
        assert_eq!(lines(&objects), all);
        let mut ports = PortMap::default();
        objects.ports.objects().for_each(|port| ports.insert(port.clone()).unwrap());
        let words = ["m", "in_port(p0),eth_type(0x0800),ipv4(proto=6,frag=no),tcp(dst=80)", "tap,2"].map(str::to_owned);
        let mirror = Mirror::read(&words, &ports).unwrap();
        let written: Vec<_> = mirror.write().split(' ').map(str::to_owned).collect();
        assert_eq!(Mirror::read(&written, &PortMap::default()).unwrap_err(), "there is no port 6");
        assert_eq!(Mirror::read(&written, &ports).unwrap(), mirror);
        assert_eq!(Mirror::read(&written, &Numbers).unwrap(), mirror);
    }

    #[test]
    fn what_is_saved_is_read_back() {
        let scratch = TempDir::new().unwrap();
        let (file, saved) = ObjectsFile::open(scratch.path()).unwrap();
        assert!(lines(&saved.objects).is_empty() && saved.damage.is_none());
        file.save(&objects()).unwrap();
        file.save(&objects()).unwrap();
        let saved = ObjectsFile::open(scratch.path()).unwrap().1;
        // Without the meter of the configuration file. The tunnel stands before its underlay in the file.
        let expected = [
            "file port 3 low physical",
            "run-time port 5 vx vxlan 4789 9",
            "run-time port 9 up physical",
            "run-time meter 1 pps 5:0",
        ];
        assert_eq!((lines(&saved.objects), saved.damage), (expected.map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn a_tunnel_is_read_wherever_its_underlay_stands() {
        let objects = read_all(&[
            "run-time port 3 up physical",
            "run-time port 2 gre0 gre 3",
            "run-time port 1 vx0 vxlan 4789 2",
        ]);
        let saved = read(&write(&objects));
        assert_eq!((lines(&saved.objects), saved.damage), (lines(&objects), None));
    }

    #[test]
    fn what_names_a_port_that_is_not_there_is_read() {
        let objects = read_all(&["run-time port 1 vx0 vxlan 4789 2", "run-time mirror m in_port(1) 3"]);
        let saved = read(&write(&objects));
        assert_eq!((lines(&saved.objects), saved.damage), (lines(&objects), None));
    }

    #[test]
    fn no_file_is_saved_that_the_next_start_would_not_read() {
        const MANY: u32 = 150_000;
        let scratch = TempDir::new().unwrap();
        let (file, _) = ObjectsFile::open(scratch.path()).unwrap();
        file.save(&objects()).unwrap();
        let mut many = Objects::default();
        (1..=MANY)
            .for_each(|id| many.meters.put(Meter::simple(MeterId(id), MeterUnit::Packets, 1, 0), Origin::RunTime));
        let error = file.save(&many).unwrap_err().to_string();
        assert!(error.ends_with(" bytes of the state folder, and 4194304 are the most"), "{error}");
        assert_eq!(
            lines(&ObjectsFile::open(scratch.path()).unwrap().1.objects).len(),
            4,
            "what was kept before is there"
        );
        (MANY / 2 + 1..=MANY).for_each(|id| many.meters.remove(&MeterId(id)));
        file.save(&many).unwrap();
        let saved = ObjectsFile::open(scratch.path()).unwrap().1;
        assert_eq!((saved.objects.meters().count(), saved.damage), (MANY as usize / 2, None));
    }

    #[test]
    fn every_flipped_bit_is_told_and_costs_no_more_than_its_line() {
        let text = write(&objects());
        let whole = lines(&read(&text).objects);
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(damaged) = String::from_utf8(bytes) else { continue };
            let saved = read(&damaged);
            let left = lines(&saved.objects);
            // A greater number of objects, or one in other words of the same meaning, is all that is no loss.
            let is_header = bit / 8 < HEADER.len() + 2;
            assert!(saved.damage.is_some() || left == whole, "bit {bit}: {damaged}");
            assert!(is_header || left.len() + 3 >= whole.len(), "bit {bit}: {damaged}");
            assert!(left.iter().all(|line| whole.contains(line)), "bit {bit}: {damaged}");
        }
    }

    #[test]
    fn a_damaged_file_is_kept_aside() {
        let scratch = TempDir::new().unwrap();
        let (file, _) = ObjectsFile::open(scratch.path()).unwrap();
        file.save(&objects()).unwrap();
        let path = scratch.path().join("objects");
        let damaged =
            fs::read_to_string(&path).unwrap().replace("port 9 up", "port 8 up").replace("meter 1", "meter 2");
        fs::write(&path, &damaged).unwrap();
        assert_eq!(file.damage(), None);
        let (file, saved) = ObjectsFile::open(scratch.path()).unwrap();
        assert!(saved.damage.unwrap().contains("2 of 4 objects are lost; it is kept as"));
        assert_eq!(lines(&saved.objects).len(), 2);
        let aside = scratch.path().join("objects.damaged");
        assert_eq!(fs::read_to_string(&aside).unwrap(), damaged);
        file.save(&objects()).unwrap();
        let (file, saved) = ObjectsFile::open(scratch.path()).unwrap();
        assert!(saved.damage.is_none() && file.damage().is_some(), "said until somebody has seen to it");
        file.look_at_damage();
        assert!(file.damage().is_some());
        fs::remove_file(aside).unwrap();
        assert!(file.damage().is_some(), "whoever asks does not wait for the disk");
        file.look_at_damage();
        assert_eq!(file.damage(), None);
    }
}
