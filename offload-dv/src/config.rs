//! How the backend is configured.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use sluice_flow::backend::{BackendKind, MissPolicy, Need};

use crate::device;

/// An mlx5 NIC whose tables are written from userspace.
pub const KIND: BackendKind = BackendKind {
    name: "dv",
    device: "mlx5_0",
    canonical: device::canonical,
    chain_miss: MissPolicy::Representor,
    is_in_network_namespace: false,
    mirrors_to_ports_only: true,
    former_keys: &[],
    needs: &[
        Need::Capability { name: "CAP_NET_ADMIN", bit: 12 },
        Need::Capability { name: "CAP_NET_RAW", bit: 13 },
        Need::Library { name: "libibverbs.so.1", folder: "", package: "libibverbs1" },
        Need::Library { name: "libmlx5.so.1", folder: "", package: "ibverbs-providers" },
        Need::Library { name: "libmlx5-rdmav", folder: "libibverbs", package: "ibverbs-providers" },
        Need::PinnedMemory,
        Need::OwnEswitch,
        Need::NetworkDevices,
    ],
};

/// Who tracks connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionsOf {
    /// The kernel, in the network namespace of the agent.
    Kernel,
    /// Whoever runs the command `add-connection`.
    Commands,
}

/// The table `[dv]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, expecting = "expected a table")]
pub struct Config {
    /// Whether the agent takes the traffic of the eswitch: from its start to its end packets come to its tables first, and to the
    /// kernel's tc and to Open vSwitch only if they match nothing there. Default `false`: it does not start.
    pub takeover: bool,
    /// Who tracks connections: flows with `ct()` take packets of those that it tells of. Default none: such flows are refused.
    pub connections: Option<ConnectionsOf>,
    /// Vports by the names of ports, for ports whose network device does not tell, or that have none here. 65535 is the uplink.
    pub vports: BTreeMap<String, u16>,
    /// By which port packets with outer headers leave that the host's routes send to another network device, by the names of both. So it is where an
    /// internal port of Open vSwitch has the address of this end of tunnels, and Open vSwitch sends what leaves there on to the uplink as it is.
    /// A device that puts a tag of a VLAN on is refused.
    /// Default none: routes must lead to the port that is the tunnel's underlay.
    pub leaves_by: BTreeMap<String, String>,
    /// How long a call of libmlx5 may take, in seconds. One that takes longer means that the device has failed: the agent ends with exit
    /// code 3, and the next one installs the flows of the log. Default 4.
    pub stuck_after: NonZeroU16,
}

impl Default for Config {
    fn default() -> Self {
        const STUCK_AFTER: NonZeroU16 = NonZeroU16::MIN.saturating_add(3);
        let (vports, leaves_by) = Default::default();
        Self { takeover: false, connections: None, vports, leaves_by, stuck_after: STUCK_AFTER }
    }
}
