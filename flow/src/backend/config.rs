//! What a backend is opened with.

use std::path::PathBuf;
use std::sync::Arc;

use crate::time::Clock;

/// What a backend is opened with.
pub struct OpenConfig {
    /// The device, in the backend's own naming.
    pub device: String,
    /// Where the backend takes the time from.
    pub clock: Arc<dyn Clock>,
    /// Who is to take rules, where the device leaves the choice.
    pub policy: OffloadPolicy,
    /// What becomes of flags of outer headers that the kernel does not know, where the device is the kernel's.
    pub tunnel_flags: TunnelFlags,
    /// Whose rules they are, where the device keeps them beyond the life of the agent.
    pub owner: Owner,
    /// Where a backend may keep what it has to know in its next run; `None` where nothing is kept.
    pub state_dir: Option<PathBuf>,
}

impl OpenConfig {
    /// A device with the default policies, for an owner whose rules nobody will look for.
    pub fn new(device: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        let (policy, tunnel_flags, owner, state_dir) = Default::default();
        Self { device: device.into(), clock, policy, tunnel_flags, owner, state_dir }
    }
}

/// Who is to take rules, as `tc-policy` of OVS has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffloadPolicy {
    /// Hardware if it can, and software.
    #[default]
    Any,
    /// Hardware only: what it refuses is refused.
    SkipSoftware,
    /// Software only.
    SkipHardware,
}

impl OffloadPolicy {
    /// All, with their names in the configuration.
    pub const ALL: [(Self, &str); 3] =
        [(Self::Any, "none"), (Self::SkipSoftware, "skip_sw"), (Self::SkipHardware, "skip_hw")];

    /// The one with this name in the configuration.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(policy, known)| (known == name).then_some(policy))
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(policy, name)| (policy == self).then_some(name)).unwrap_or_default()
    }
}

/// What becomes of flags of an outer header that the running kernel knows nothing of: `df` and `csum` in a match before Linux
/// 6.11, and `df` in `set(tunnel(…))` before Linux 6.3. OVS writes them into each of its tunnel flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TunnelFlags {
    /// Those of a match are passed over as long as no other flow differs only in them; where one does, both are refused. Those
    /// that are to be set are passed over.
    #[default]
    Auto,
    /// The flow is refused.
    Exact,
    /// They are passed over, as OVS's own tc offload does, and the rule says so.
    AsOvs,
}

impl TunnelFlags {
    /// All, with their names in the configuration.
    pub const ALL: [(Self, &str); 3] = [(Self::Auto, "auto"), (Self::Exact, "exact"), (Self::AsOvs, "as_ovs")];

    /// The one with this name in the configuration.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(flags, known)| (known == name).then_some(flags))
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(flags, name)| (flags == self).then_some(name)).unwrap_or_default()
    }
}

/// An agent, the same over its restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

impl Owner {
    /// As much of it as there is room for in a device's notes. It is random, so that two agents of a machine that share it need not
    /// be feared.
    #[expect(clippy::cast_possible_truncation, reason = "half of it")]
    pub const fn mark(self) -> u32 {
        self.0 as u32
    }
}
