//! What a kind of backend needs of its host, as data: whoever looks for it knows no backend.

/// Something that a backend needs of the host on which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A capability of the process, by its name and its bit in `/proc/PID/status` (capabilities(7), `linux/capability.h`).
    Capability {
        /// Such as `CAP_NET_ADMIN`.
        name: &'static str,
        /// Its number.
        bit: u8,
    },
    /// An option with which the kernel is built, in the kernel or as a module.
    KernelOption {
        /// Such as `CONFIG_NET_CLS_FLOWER`.
        name: &'static str,
        /// The driver of ports that need it; `None` for all.
        driver: Option<&'static str>,
        /// Whether the backend works without it.
        is_required: bool,
        /// What is missing without it.
        purpose: &'static str,
    },
    /// A file of rdma-core, looked for where the dynamic linker and libibverbs look.
    Library {
        /// How its name begins.
        name: &'static str,
        /// The folder below those of libraries, empty for these themselves.
        folder: &'static str,
        /// The package of Debian and Ubuntu that has it.
        package: &'static str,
    },
    /// Memory that is pinned for the device, without a limit.
    PinnedMemory,
    /// A network device for each port.
    NetworkDevices,
    /// Filters can hang at the network devices of ports, and their driver takes filters over.
    TrafficControl,
    /// An mlx5 NIC whose eswitch is in switchdev mode, with nobody else's filters in its hardware.
    OwnEswitch,
}
