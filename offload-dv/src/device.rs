//! The names of a device: that of its RDMA device (`mlx5_0`), its address on the bus, and those of its network devices (`p0`) all mean
//! the same NIC, which one agent has at a time.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel describes devices, unless libibverbs looks elsewhere, too.
const SYSFS: &str = "/sys";
/// By which libibverbs takes another folder (`ibv_get_sysfs_path`).
const OTHER_SYSFS: &str = "SYSFS_PATH";

/// What a device is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// On its bus, such as `0000:03:00.0`. `None` if there is no such device.
    pub(crate) address: Option<String>,
    /// By libibverbs; what was given, if the kernel has no RDMA device for it.
    pub(crate) rdma: String,
}

/// Returns the one name by which a device is locked: its address on the bus. One that is not there keeps the name that was given.
pub(crate) fn canonical(given: &str) -> String {
    names(given).address.unwrap_or_else(|| given.to_owned())
}

/// Returns all names of the device that has the one that is given.
pub(crate) fn names(given: &str) -> Names {
    let sysfs = env::var_os(OTHER_SYSFS).map_or_else(|| PathBuf::from(SYSFS), PathBuf::from);
    names_in(&sysfs, given)
}

fn names_in(sysfs: &Path, given: &str) -> Names {
    let rdma_devices = sysfs.join("class/infiniband");
    let Some(function) = function(sysfs, &rdma_devices, given) else {
        return Names { address: None, rdma: given.to_owned() };
    };
    let is_its =
        |name: &String| fs::canonicalize(rdma_devices.join(name).join("device")).is_ok_and(|at| at == function);
    // Of several, as there are with subfunctions, the given one; else the first by name.
    let mut rdma: Vec<String> = entries(&rdma_devices).into_iter().filter(is_its).collect();
    rdma.sort_unstable_by_key(|name| (name != given, name.clone()));
    Names {
        address: function.file_name().map(|address| address.to_string_lossy().into_owned()),
        rdma: rdma.into_iter().next().unwrap_or_else(|| given.to_owned()),
    }
}

/// The folder of the function on its bus.
fn function(sysfs: &Path, rdma_devices: &Path, given: &str) -> Option<PathBuf> {
    // A name is the last part of a path here, and no way to another folder.
    if given.is_empty() || given.contains('/') || given.starts_with('.') {
        return None;
    }
    let functions = sysfs.join("bus/pci/devices");
    let by_network_device = || {
        let has_it = |address: &String| functions.join(address).join("net").join(given).exists();
        entries(&functions).into_iter().find(has_it).map(|address| functions.join(address))
    };
    let by_name = [rdma_devices.join(given).join("device"), functions.join(given)].into_iter();
    by_name.chain(by_network_device()).find_map(|folder| fs::canonicalize(folder).ok())
}

/// The names in a folder; none if there is no such folder.
fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// Two NICs, of which the second one has no RDMA device.
    fn machine() -> TempDir {
        let sysfs = TempDir::new().unwrap();
        let root = sysfs.path();
        for folder in ["bus/pci/devices", "class/infiniband/mlx5_0", "devices/pci0/0000:03:00.0/net/p0"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::create_dir_all(root.join("devices/pci0/0000:03:00.1/net/p1")).unwrap();
        for address in ["0000:03:00.0", "0000:03:00.1"] {
            symlink(root.join("devices/pci0").join(address), root.join("bus/pci/devices").join(address)).unwrap();
        }
        symlink(root.join("devices/pci0/0000:03:00.0"), root.join("class/infiniband/mlx5_0/device")).unwrap();
        sysfs
    }

    #[test]
    fn all_names_of_a_device_lead_to_one() {
        let sysfs = machine();
        for name in ["mlx5_0", "0000:03:00.0", "p0"] {
            let names = names_in(sysfs.path(), name);
            assert_eq!((names.address.as_deref(), names.rdma.as_str()), (Some("0000:03:00.0"), "mlx5_0"), "{name}");
        }
        let other = names_in(sysfs.path(), "p1");
        assert_eq!((other.address.as_deref(), other.rdma.as_str()), (Some("0000:03:00.1"), "p1"));
    }

    #[test]
    fn a_name_that_nothing_has_stays_as_it_is() {
        let sysfs = machine();
        for name in ["mlx5_7", "", "..", "../net/p0", "0000:03:00.0/net", "."] {
            assert_eq!(names_in(sysfs.path(), name), Names { address: None, rdma: name.to_owned() });
        }
    }
}
