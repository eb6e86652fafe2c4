//! Why a device cannot be used, and why a call failed.

use std::fmt;
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
#[derive(Debug)]
pub struct CallError {
    /// The function.
    pub call: &'static str,
    /// The error number that it left.
    pub source: io::Error,
    /// What the firmware said, if it is known that it refused a command.
    pub answer: Option<FirmwareAnswer>,
}

/// What the firmware said of a command that it refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirmwareAnswer {
    /// Why, as one of a few kinds.
    pub status: u8,
    /// Why exactly, for the firmware's vendor.
    pub syndrome: u32,
}

impl FirmwareAnswer {
    /// Reads the output of a command (`mbox_out` of the PRM); `None` if the firmware did not refuse it.
    fn read(output: &[u8]) -> Option<Self> {
        let [status, _, _, _, syndrome @ ..] = output.first_chunk::<8>()?;
        (*status != 0).then_some(Self { status: *status, syndrome: u32::from_be_bytes(*syndrome) })
    }

    /// Whether the same command may be taken once others have given something back.
    pub const fn is_for_want_of_room(self) -> bool {
        matches!(self.status, EXCEEDS_A_LIMIT | NO_RESOURCES)
    }

    /// The status in words (`MLX5_CMD_STAT_*` of the PRM).
    const fn words(self) -> &'static str {
        match self.status {
            0x01 => "internal error",
            0x02 => "bad operation",
            0x03 => "bad parameter",
            0x04 => "bad system state",
            0x05 => "bad resource",
            0x06 => "resource busy",
            0x07 => "not ready",
            EXCEEDS_A_LIMIT => "limit exceeded",
            0x09 => "bad state of the resource",
            0x0a => "bad index",
            NO_RESOURCES => "no resources",
            0x10 => "bad state of the queue pair",
            0x30 => "bad packet",
            0x40 => "bad size, or too many completions are outstanding",
            0x50 => "bad length of the input",
            0x51 => "bad length of the output",
            _ => "a status that is not known here",
        }
    }
}

const EXCEEDS_A_LIMIT: u8 = 0x08;
const NO_RESOURCES: u8 = 0x0f;

impl fmt::Display for FirmwareAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, status {:#04x}, syndrome {:#x}", self.words(), self.status, self.syndrome)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.answer {
            // The error number says only that there is an answer.
            Some(answer) => write!(out, "{}: the firmware answers {answer}", self.call),
            None => write!(out, "{}: {}", self.call, self.source),
        }
    }
}

impl std::error::Error for CallError {}

impl CallError {
    pub(super) fn last(call: &'static str) -> Self {
        Self { call, source: io::Error::last_os_error(), answer: None }
    }

    /// The same with what the firmware left in the output of a command.
    pub(super) fn with_answer(self, output: &[u8]) -> Self {
        Self { answer: FirmwareAnswer::read(output), ..self }
    }

    /// Of functions that return 0, an error number, or -1 and leave one.
    pub(super) fn check(call: &'static str, code: i32) -> Result<(), Self> {
        match code {
            0 => Ok(()),
            -1 => Err(Self::last(call)),
            code => Err(Self { call, source: io::Error::from_raw_os_error(code.abs()), answer: None }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_the_firmware_refused_is_told_with_its_status_in_words_and_its_syndrome() {
        let refused = || CallError::check("mlx5dv_devx_obj_create", 121).unwrap_err();
        let answer = [0x0f, 0, 0, 0, 0, 0x3b, 0x6f, 0x2e, 0, 0, 0, 0];
        let told = refused().with_answer(&answer);
        let words = "mlx5dv_devx_obj_create: the firmware answers no resources, status 0x0f, syndrome 0x3b6f2e";
        assert_eq!(told.to_string(), words);
        // A kernel that does not give the answer, and a request that never came to the firmware.
        let told = refused().with_answer(&[0; 16]);
        assert_eq!(
            (told.answer, told.to_string()),
            (None, "mlx5dv_devx_obj_create: Remote I/O error (os error 121)".to_owned())
        );
    }
}
