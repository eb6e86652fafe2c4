//! The parts of `/sys` that libibverbs and DPDK read, as plain files in a folder of their own.
//!
//! libibverbs takes the folder's path from `SYSFS_PATH`, and DPDK that of the PCI devices from `SYSFS_PCI_DEVICES`. The device's
//! number is that of `/dev/null`, since that is what a program gets where it opens the device's file.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use sluice_connectx::profile::{Profile, VPORT_UPLINK};

use super::device::{node_guid, ports as ports_of};

/// Version of the kernel's interface, and of the driver's part of it.
const ABI: &str = "6\n";
const DRIVER_ABI: &str = "1\n";
/// What a PCI device has of memory and ports, and what one line says of one that it does not have.
const RESOURCES: usize = 13;
const NO_RESOURCES: &str = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
const FIRST_BUS: u32 = 3;
const NULL_DEVICE: &str = "1:3\n";
const VENDOR: u16 = 0x15b3;
const SUBSYSTEM: u16 = 0x0001;

/// Where the PCI devices are.
#[must_use]
pub fn pci_devices(root: &Path) -> PathBuf {
    root.join("bus/pci/devices")
}

/// Writes the files of device `number`: `mlx5_NUMBER`, behind `/dev/infiniband/uverbsNUMBER`.
///
/// # Errors
/// If one of them cannot be written.
pub fn add(root: &Path, number: u32, profile: &Profile) -> io::Result<()> {
    let verbs = root.join("class/infiniband_verbs");
    let file = verbs.join(format!("uverbs{number}"));
    let device = device(root, number);
    let function = pci_devices(root).join(slot(number));
    let name = format!("mlx5_{number}\n");
    let id = profile.device_id;
    let modalias = format!("pci:v{VENDOR:08X}d{id:08X}sv{VENDOR:08X}sd{SUBSYSTEM:08X}bc02sc00i00\n");
    let (major, minor, subminor) = profile.firmware;
    let guid = format!("{:016x}", node_guid());
    let guid: Vec<&str> = [0..4, 4..8, 8..12, 12..16].into_iter().filter_map(|part| guid.get(part)).collect();
    let files = [
        (verbs.join("abi_version"), ABI.to_owned()),
        (file.join("ibdev"), name.clone()),
        (file.join("dev"), NULL_DEVICE.to_owned()),
        (file.join("abi_version"), DRIVER_ABI.to_owned()),
        (device.join("node_type"), "1: CA\n".to_owned()),
        (device.join("node_guid"), format!("{}\n", guid.join(":"))),
        (device.join("fw_ver"), format!("{major}.{minor}.{subminor}\n")),
        (device.join("ports/1/link_layer"), "Ethernet\n".to_owned()),
        (device.join("ports/1/state"), "4: ACTIVE\n".to_owned()),
        (function.join("modalias"), modalias),
        (function.join("vendor"), format!("{VENDOR:#06x}\n")),
        (function.join("device"), format!("{id:#06x}\n")),
        (function.join("subsystem_vendor"), format!("{VENDOR:#06x}\n")),
        (function.join("subsystem_device"), format!("{SUBSYSTEM:#06x}\n")),
        (function.join("class"), "0x020000\n".to_owned()),
        (function.join("resource"), NO_RESOURCES.repeat(RESOURCES)),
        (function.join("uevent"), format!("DRIVER=mlx5_core\nPCI_SLOT_NAME={}\n", slot(number))),
    ];
    for (path, text) in files {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)?;
    }
    for link in [file, device] {
        symlink(&function, link.join("device"))?;
    }
    let driver = root.join("bus/pci/drivers/mlx5_core");
    fs::create_dir_all(&driver)?;
    symlink(driver, function.join("driver"))?;
    Ok(())
}

/// Says which network device is the one of device `number`.
///
/// # Errors
/// If that cannot be written.
pub fn add_netdev(root: &Path, number: u32, name: &str) -> io::Result<()> {
    let folder = pci_devices(root).join(slot(number)).join("net").join(name);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("dev_port"), "0\n")
}

/// Says which network device stands for a vport of device `number`, as the kernel does in switchdev mode: all of the device's ports
/// are there from then on.
///
/// # Errors
/// If that cannot be written, or there is no such vport.
pub fn add_representor(root: &Path, number: u32, profile: &Profile, vport: u16, name: &str) -> io::Result<()> {
    let ports = device(root, number).join("ports");
    let vports = ports_of(profile);
    for port in 1..=vports.len() {
        fs::create_dir_all(ports.join(port.to_string()).join("gid_attrs/ndevs"))?;
    }
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("there is no vport {vport}"));
    let port = 1 + vports.iter().position(|other| *other == vport).ok_or_else(missing)?;
    fs::write(ports.join(port.to_string()).join("gid_attrs/ndevs/0"), format!("{name}\n"))?;
    // The host's functions are those of another controller where the switch is that of an embedded processor.
    let controller = if profile.embedded_cpu { "c1" } else { "" };
    let port_name = match vport {
        VPORT_UPLINK => "p0".to_owned(),
        0 => format!("{controller}pf0"),
        function => format!("{controller}pf0vf{}", function - 1),
    };
    let netdev = root.join("class/net").join(name);
    fs::create_dir_all(&netdev)?;
    fs::write(netdev.join("phys_port_name"), format!("{port_name}\n"))?;
    fs::write(netdev.join("phys_switch_id"), format!("{:016x}\n", node_guid()))
}

/// Takes the files of a device away.
///
/// # Errors
/// If they cannot be removed.
pub fn remove(root: &Path, number: u32) -> io::Result<()> {
    fs::remove_dir_all(root.join(format!("class/infiniband_verbs/uverbs{number}")))?;
    fs::remove_dir_all(device(root, number))?;
    fs::remove_dir_all(pci_devices(root).join(slot(number)))
}

/// PCI address.
fn slot(number: u32) -> String {
    format!("0000:{:02x}:00.0", FIRST_BUS + number)
}

fn device(root: &Path, number: u32) -> PathBuf {
    root.join(format!("class/infiniband/mlx5_{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_connectx::profile::BLUEFIELD_2;

    #[test]
    fn a_device_is_a_few_files_that_go_with_it() {
        let root = std::env::temp_dir().join(format!("connectx-sysfs-{}", std::process::id()));
        add(&root, 3, &BLUEFIELD_2).unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        assert_eq!(read("class/infiniband_verbs/uverbs3/ibdev"), "mlx5_3\n");
        assert!(read("class/infiniband/mlx5_3/device/modalias").starts_with("pci:v000015B3d0000A2D6sv"));
        assert_eq!(read("bus/pci/devices/0000:06:00.0/device"), "0xa2d6\n");
        assert_eq!(read("class/infiniband_verbs/uverbs3/device/vendor"), "0x15b3\n");
        add_representor(&root, 3, &BLUEFIELD_2, 2, "vf1").unwrap();
        assert_eq!(read("class/infiniband/mlx5_3/ports/4/gid_attrs/ndevs/0"), "vf1\n");
        assert_eq!(read("class/net/vf1/phys_port_name"), "c1pf0vf1\n");
        assert!(add_representor(&root, 3, &BLUEFIELD_2, 9, "vf8").is_err(), "there are eight at most");
        remove(&root, 3).unwrap();
        assert!(!root.join("class/infiniband/mlx5_3").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
