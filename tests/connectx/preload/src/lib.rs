//! Emulated ConnectX devices for the program that this is linked into, or loaded into by `LD_PRELOAD`.
//!
//! Functions of libc that libibverbs and libmlx5 call are replaced (`interpose.rs`): `/dev/infiniband/uverbsN` opens as a
//! [`Device`] of `sluice-connectx`, and everything else goes on to the kernel. A test plugs devices in by [`plug`]; a program that
//! `connectx run` has started finds one that is made as its environment says.
//!
//! What is here is process-wide because functions of libc are.

mod bus;
mod control;
mod interpose;
mod nldev;
mod ports;

use std::fs::remove_dir_all;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_connectx::profile::Profile;
use sluice_connectx_uverbs::{Device, Privileges, sysfs};

use bus::BUS;
pub use bus::{CONTROL_VARIABLE, IN_STEP_VARIABLE, PORTS_VARIABLE, PROFILE_VARIABLE, UNPRIVILEGED_VARIABLE};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A device that is plugged in until this goes.
#[derive(Debug)]
pub struct Plugged {
    number: u32,
    device: Device,
}

impl Plugged {
    /// As libibverbs names it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("mlx5_{}", self.number)
    }

    /// The device itself.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for Plugged {
    fn drop(&mut self) {
        let mut bus = BUS.write();
        bus.devices.remove(&self.number);
        if let Some(root) = &bus.root {
            // It is in a folder for temporary files; what stays there harms nobody.
            let removed = if bus.devices.is_empty() { remove_dir_all(root) } else { sysfs::remove(root, self.number) };
            let _ = removed;
        }
    }
}

/// Plugs a device in. Nobody may have called libibverbs in this process before the first.
///
/// # Errors
/// If there is no place for its files, or the profile cannot be initialized.
pub fn plug(profile: Profile, privileges: Privileges) -> Result<Plugged, String> {
    interpose::keep();
    let device = Device::new(profile, privileges)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut bus = BUS.write();
    let root = match &bus.root {
        Some(root) => root.clone(),
        None => {
            let root = std::env::temp_dir().join(format!("connectx-{}", std::process::id()));
            interpose::set_sysfs(&root);
            bus.root = Some(root.clone());
            root
        }
    };
    sysfs::add(&root, number, &profile).map_err(|error| format!("{}: {error}", root.display()))?;
    bus.devices.insert(number, device.clone());
    Ok(Plugged { number, device })
}
