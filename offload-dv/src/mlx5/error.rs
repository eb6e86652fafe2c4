//! Why a device cannot be used, and why a call failed.

use std::io;

/// Why there is no device to make rules in. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// A library is not installed, or not for this machine.
    #[error("{library} cannot be loaded ({reason}); it comes with rdma-core, in Debian by ibverbs-providers")]
    NoLibrary {
        /// Its file.
        library: &'static str,
        /// In the words of the dynamic linker.
        reason: String,
    },
    /// A library is too old.
    #[error("{library} has no {function}: rdma-core 44 or newer is needed")]
    NoFunction {
        /// Its file.
        library: &'static str,
        /// What is missing.
        function: &'static str,
    },
    /// The devices cannot be listed.
    #[error("RDMA devices cannot be listed: {0}")]
    NoList(io::Error),
    /// There is no device at all.
    #[error("there is no RDMA device: is mlx5_ib loaded?")]
    NoDevices,
    /// There are others.
    #[error("there is no RDMA device {name}, only {}", present.join(", "))]
    NoSuchDevice {
        /// What was asked for.
        name: String,
        /// Those that there are.
        present: Vec<String>,
    },
    /// It is somebody else's device.
    #[error("{name} is no mlx5 device")]
    NotMlx5 {
        /// The device.
        name: String,
    },
    /// The kernel does not let us.
    #[error("{name} cannot be opened with DevX: {source}")]
    NotOpened {
        /// The device.
        name: String,
        /// Its reason.
        source: io::Error,
    },
    /// It opens, and has no tables for us.
    #[error(
        "{name} has no switch whose tables software may write ({source}); that needs CAP_NET_RAW and CAP_SYS_RAWIO, the eswitch \
         manager's function, and a firmware with software steering"
    )]
    NoSteering {
        /// The device.
        name: String,
        /// libmlx5's reason.
        source: io::Error,
    },
    /// It has tables, and no counters for them.
    #[error("{name} has no flow counters: {reason}")]
    NoCounters {
        /// The device.
        name: String,
        /// What it refused.
        reason: String,
    },
}

/// A call that libmlx5 or the device refused.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct CallError {
    /// The function.
    pub call: &'static str,
    /// The error number that it left.
    pub source: io::Error,
}

impl CallError {
    pub(super) fn last(call: &'static str) -> Self {
        Self { call, source: io::Error::last_os_error() }
    }

    /// Of functions that return 0, an error number, or -1 and leave one.
    pub(super) fn check(call: &'static str, code: i32) -> Result<(), Self> {
        match code {
            0 => Ok(()),
            -1 => Err(Self::last(call)),
            code => Err(Self { call, source: io::Error::from_raw_os_error(code.abs()) }),
        }
    }
}
