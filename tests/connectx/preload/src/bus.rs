//! The devices of this process, and the files that are open on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use parking_lot::RwLock;
use sluice_connectx::profile::Profile;
use sluice_connectx_uverbs::{ContextId, Device, Privileges, sysfs};

use crate::{control, ports};

/// What `connectx run` tells the program's process: which device.
pub const PROFILE_VARIABLE: &str = "CONNECTX_PROFILE";

/// And, if this is set, that it has no privileges.
pub const UNPRIVILEGED_VARIABLE: &str = "CONNECTX_UNPRIVILEGED";

/// And a folder for both ends of its packets.
pub const PORTS_VARIABLE: &str = "CONNECTX_PORTS";

/// And, if this is set, that it is never ahead of its device.
pub const IN_STEP_VARIABLE: &str = "CONNECTX_IN_STEP";

/// Where libibverbs looks for devices.
const SYSFS_VARIABLE: &str = "SYSFS_PATH";

/// And a socket by which it is told what is to go wrong.
pub const CONTROL_VARIABLE: &str = "CONNECTX_CONTROL";

pub(crate) static BUS: RwLock<Bus> =
    RwLock::new(Bus { root: None, devices: BTreeMap::new(), files: BTreeMap::new(), is_unplugged: false });

/// Files that are devices, so that a call on any other file takes no lock. Zero is none.
pub(crate) static FILES: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

/// All devices of this process.
pub(crate) struct Bus {
    /// The folder that stands for `/sys`.
    pub(crate) root: Option<PathBuf>,
    pub(crate) devices: BTreeMap<u32, Device>,
    pub(crate) files: BTreeMap<i32, (Device, ContextId)>,
    /// Whether the device that was promised has been there and was taken out.
    is_unplugged: bool,
}

/// The device behind a path such as `/dev/infiniband/uverbs0`.
pub(crate) fn device_at(path: &[u8]) -> Option<Device> {
    let number = path.strip_prefix(b"/dev/infiniband/uverbs")?;
    let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
    let mut bus = BUS.write();
    if bus.devices.is_empty() && number == 0 && !bus.is_unplugged {
        bus.plug_from_environment();
    }
    bus.devices.get(&number).cloned()
}

impl Bus {
    /// The device that `connectx run` has promised.
    fn plug_from_environment(&mut self) {
        let Some(profile) = std::env::var(PROFILE_VARIABLE).ok().and_then(|name| Profile::named(&name)) else { return };
        let unprivileged = std::env::var_os(UNPRIVILEGED_VARIABLE).is_some();
        let privileges = if unprivileged { Privileges::NONE } else { Privileges::ALL };
        let device = Device::new(profile, privileges);
        let device = device.and_then(|device| {
            if profile.eswitch_manager { device.open_slow_path().map(|()| device) } else { Ok(device) }
        });
        match device {
            Ok(device) => {
                if std::env::var_os(IN_STEP_VARIABLE).is_some() {
                    device.keep_in_step();
                }
                if let Some(folder) = std::env::var_os(PORTS_VARIABLE)
                    && let Err(error) = ports::open(Path::new(&folder), &device)
                {
                    eprintln!("connectx: {}: {error}", Path::new(&folder).display());
                }
                if let Some(socket) = std::env::var_os(CONTROL_VARIABLE)
                    && let Err(error) = control::open(Path::new(&socket), &device)
                {
                    eprintln!("connectx: {}: {error}", Path::new(&socket).display());
                }
                self.devices.insert(0, device);
            }
            Err(reason) => eprintln!("connectx: {reason}"),
        }
    }
}

/// Takes the device out that `connectx run` has promised: its files go, and those that are open on it are good for nothing.
pub(crate) fn unplug(device: &Device) -> Result<(), Errno> {
    let mut bus = BUS.write();
    bus.devices.remove(&0);
    bus.is_unplugged = true;
    drop(bus);
    if let Some(root) = std::env::var_os(SYSFS_VARIABLE) {
        sysfs::remove(Path::new(&root), 0)
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
    }
    device.vanish()
}

/// Notes that a file is a device; fails if too many are.
pub(crate) fn opened(file: i32, device: &Device) -> Result<(), Errno> {
    let free = FILES.iter().find(|place| place.compare_exchange(0, file, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if free.is_none() {
        return Err(Errno::EMFILE);
    }
    BUS.write().files.insert(file, (device.clone(), device.open()));
    Ok(())
}

/// Whether a file is a device.
pub(crate) fn is_device(file: i32) -> bool {
    file > 0 && FILES.iter().any(|place| place.load(Ordering::Acquire) == file)
}

/// A file that is a device is about to be closed.
pub(crate) fn closing(file: i32) {
    let (entry, is_last) = {
        let mut bus = BUS.write();
        let entry = bus.files.remove(&file);
        let is_last =
            entry.as_ref().is_some_and(|(closed, _)| !bus.files.values().any(|(device, _)| device.is(closed)));
        (entry, is_last)
    };
    for place in &FILES {
        let _ = place.compare_exchange(file, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
    if let Some((device, context)) = entry {
        device.close(context);
        // What others have open is not left yet.
        if is_last && std::env::var_os(PROFILE_VARIABLE).is_some() {
            report(&device);
        }
    }
}

/// Tells the devices that something may be posted to them.
pub(crate) fn posted() {
    if FILES.iter().all(|place| place.load(Ordering::Relaxed) == 0) {
        return;
    }
    // Where a device is just opened or closed it finds out by itself.
    if let Some(bus) = BUS.try_read() {
        bus.files.values().for_each(|(device, _)| device.posted());
    }
}

/// Tells who has started a program by `connectx run` what went wrong.
pub(crate) fn report(device: &Device) {
    for line in device.refusals().iter().chain(&device.with(|hca| hca.complaints().to_vec())).chain(&device.left()) {
        eprintln!("connectx: {line}");
    }
}

/// A request on a file that is a device.
pub(crate) fn request(file: i32, argument: u64) -> Result<(), Errno> {
    let entry = BUS.read().files.get(&file).cloned();
    let (device, context) = entry.ok_or(Errno::EBADF)?;
    device.ioctl(context, argument)
}
