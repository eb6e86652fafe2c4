//! The part of `/sys` that libibverbs reads, as plain files in a folder of their own.
//!
//! libibverbs takes the folder's path from `SYSFS_PATH`. The device's number is that of `/dev/null`, since that is what a program
//! gets where it opens the device's file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::methods::node_guid;
use crate::profile::Profile;

/// Version of the kernel's interface, and of the driver's part of it.
const ABI: &str = "6\n";
const DRIVER_ABI: &str = "1\n";
const NULL_DEVICE: &str = "1:3\n";
const SUBSYSTEM: u16 = 0x15b3;

/// Writes the files of device `number`: `mlx5_NUMBER`, behind `/dev/infiniband/uverbsNUMBER`.
///
/// # Errors
/// If one of them cannot be written.
pub fn add(root: &Path, number: u32, profile: &Profile) -> io::Result<()> {
    let verbs = root.join("class/infiniband_verbs");
    let file = verbs.join(format!("uverbs{number}"));
    let device = device(root, number);
    let name = format!("mlx5_{number}\n");
    let modalias =
        format!("pci:v{:08X}d{:08X}sv{SUBSYSTEM:08X}sd{:08X}bc02sc00i00\n", 0x15b3, profile.device_id, 0x0001);
    let (major, minor, subminor) = profile.firmware;
    let guid = format!("{:016x}", node_guid());
    let guid: Vec<&str> = [0..4, 4..8, 8..12, 12..16].into_iter().filter_map(|part| guid.get(part)).collect();
    let files = [
        (verbs.join("abi_version"), ABI.to_owned()),
        (file.join("ibdev"), name.clone()),
        (file.join("dev"), NULL_DEVICE.to_owned()),
        (file.join("abi_version"), DRIVER_ABI.to_owned()),
        (file.join("device/modalias"), modalias.clone()),
        (device.join("device/modalias"), modalias),
        (device.join("node_type"), "1: CA\n".to_owned()),
        (device.join("node_guid"), format!("{}\n", guid.join(":"))),
        (device.join("fw_ver"), format!("{major}.{minor}.{subminor}\n")),
        (device.join("ports/1/link_layer"), "Ethernet\n".to_owned()),
        (device.join("ports/1/state"), "4: ACTIVE\n".to_owned()),
    ];
    for (path, text) in files {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}

/// Takes the files of a device away.
///
/// # Errors
/// If they cannot be removed.
pub fn remove(root: &Path, number: u32) -> io::Result<()> {
    fs::remove_dir_all(root.join(format!("class/infiniband_verbs/uverbs{number}")))?;
    fs::remove_dir_all(device(root, number))
}

fn device(root: &Path, number: u32) -> PathBuf {
    root.join(format!("class/infiniband/mlx5_{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::BLUEFIELD_2;

    #[test]
    fn a_device_is_a_few_files_that_go_with_it() {
        let root = std::env::temp_dir().join(format!("connectx-sysfs-{}", std::process::id()));
        add(&root, 3, &BLUEFIELD_2).unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        assert_eq!(read("class/infiniband_verbs/uverbs3/ibdev"), "mlx5_3\n");
        assert!(read("class/infiniband/mlx5_3/device/modalias").starts_with("pci:v000015B3d0000A2D6sv"));
        remove(&root, 3).unwrap();
        assert!(!root.join("class/infiniband/mlx5_3").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
