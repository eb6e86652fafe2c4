//! The queueing disciplines that this agent made, across restarts.
//!
//! The kernel keeps no note on a queueing discipline, so a file in the state folder lists those that agents with this state
//! made. Devices are named by their index, which is not reused during the life of a network namespace, and the namespace by
//! its inode and the boot id. A running agent hears when others remove or replace one, and removes it from the list. It does
//! not hear what happens while no agent runs: an empty queueing discipline that somebody put in the place of one of these is
//! taken for it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use sluice_netdev::{Ifindex, IngressQdisc};

use super::device::qdisc_of_lag;

const FILE: &str = "tc-qdiscs";

/// The list.
pub(crate) struct MadeQdiscs {
    /// `None` if the list is not kept.
    file: Option<PathBuf>,
    /// Boot and network namespace.
    place: String,
    /// The queueing discipline of each device, as text.
    qdiscs: Mutex<BTreeMap<u32, String>>,
}

impl MadeQdiscs {
    /// Reads the list in a folder, without entries of other boots or network namespaces.
    pub(crate) fn open(folder: Option<&Path>) -> io::Result<Self> {
        let place = match folder {
            Some(_) => place()?,
            None => String::new(),
        };
        let file = folder.map(|folder| folder.join(FILE));
        let text = match file.as_ref().map(fs::read_to_string) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Some(Ok(text)) => text,
            _ => String::new(),
        };
        let read = |line: &str| {
            let (number, qdisc) = line.strip_prefix(&*place)?.strip_prefix(' ')?.split_once(' ')?;
            Some((number.parse().ok()?, qdisc.to_owned()))
        };
        Ok(Self { qdiscs: Mutex::new(text.lines().filter_map(read).collect()), file, place })
    }

    /// Adds one that was made for a device.
    pub(crate) fn add(&self, device: Ifindex, qdisc: IngressQdisc) {
        self.change(|qdiscs| qdiscs.insert(device.0, qdisc.to_string()) != Some(qdisc.to_string()));
    }

    /// Removes one that is gone, or that somebody replaced.
    pub(crate) fn remove(&self, device: Ifindex) {
        self.change(|qdiscs| qdiscs.remove(&device.0).is_some());
    }

    /// Keeps those of devices that are still there.
    pub(crate) fn retain(&self, is_there: impl Fn(Ifindex) -> bool) {
        self.change(|qdiscs| {
            let before = qdiscs.len();
            qdiscs.retain(|device, _| is_there(Ifindex(*device)));
            qdiscs.len() != before
        });
    }

    /// Whether it was made here.
    pub(crate) fn has(&self, device: Ifindex, qdisc: IngressQdisc) -> bool {
        self.qdiscs.lock().get(&device.0).is_some_and(|made| *made == qdisc.to_string())
    }

    /// The devices for which one was made.
    pub(crate) fn devices(&self) -> Vec<Ifindex> {
        self.qdiscs.lock().keys().copied().map(Ifindex).collect()
    }

    /// The devices for which one was made as for a member of a LAG, each with the LAG.
    pub(crate) fn of_lags(&self) -> Vec<(Ifindex, Ifindex)> {
        let lag = |qdisc: &String| {
            let (_, number) = qdisc.rsplit_once(' ')?;
            let lag = Ifindex(number.parse().ok()?);
            (qdisc_of_lag(lag).to_string() == *qdisc).then_some(lag)
        };
        let qdiscs = self.qdiscs.lock();
        qdiscs.iter().filter_map(|(device, qdisc)| Some((Ifindex(*device), lag(qdisc)?))).collect()
    }

    /// Writes the list if it changes. If it cannot be written, the next agent leaves what this one made.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<u32, String>) -> bool) {
        let mut qdiscs = self.qdiscs.lock();
        if change(&mut qdiscs)
            && let Some(file) = &self.file
        {
            let lines = qdiscs.iter().map(|(device, qdisc)| format!("{} {device} {qdisc}\n", self.place));
            let _ = write(file, &lines.collect::<String>());
        }
    }
}

/// Replaces a file, so that a reader sees the old or the new one as a whole.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(new, path)
}

/// The boot, and the network namespace of the thread.
fn place() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(format!("{} {namespace}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_netdev::Block;

    #[test]
    fn the_next_agent_knows_what_this_one_made_and_what_it_is() {
        let folder = std::env::temp_dir().join(format!("sluice-made-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let shared = IngressQdisc::INGRESS.with_ingress_block(Block(7));
        let made = MadeQdiscs::open(Some(&folder)).unwrap();
        for (device, qdisc) in [(3, IngressQdisc::CLSACT), (5, IngressQdisc::INGRESS), (7, shared)] {
            made.add(Ifindex(device), qdisc);
        }
        made.remove(Ifindex(5));
        let next = MadeQdiscs::open(Some(&folder)).unwrap();
        assert_eq!(next.devices(), [Ifindex(3), Ifindex(7)]);
        assert!(next.has(Ifindex(3), IngressQdisc::CLSACT) && next.has(Ifindex(7), shared));
        assert!(!next.has(Ifindex(3), IngressQdisc::INGRESS) && !next.has(Ifindex(7), IngressQdisc::INGRESS));
        assert_eq!(next.of_lags(), [(Ifindex(7), Ifindex(7))]);
        next.retain(|device| device == Ifindex(3));
        assert_eq!(MadeQdiscs::open(Some(&folder)).unwrap().devices(), [Ifindex(3)], "also in the file");
        // After another boot, an index is another device.
        let file = folder.join(FILE);
        let lines = fs::read_to_string(&file).unwrap();
        fs::write(&file, lines.replace('-', "+")).unwrap();
        assert_eq!(MadeQdiscs::open(Some(&folder)).unwrap().devices(), []);
        assert!(MadeQdiscs::open(None).unwrap().devices().is_empty());
        fs::remove_dir_all(folder).unwrap();
    }
}
