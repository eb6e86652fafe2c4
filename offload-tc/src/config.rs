//! How the classifier is configured.

use serde::{Deserialize, Serialize};
use sluice_flow::backend::{BackendKind, MissPolicy, Need};

/// The kernel's flower classifier, with the NICs behind it.
pub const KIND: BackendKind = BackendKind {
    name: "tc",
    device: "tc0",
    canonical: str::to_owned,
    chain_miss: MissPolicy::Kernel,
    is_in_network_namespace: true,
    mirrors_to_ports_only: false,
    former_keys: &["policy", "tunnel_flags"],
    needs: NEEDS,
};

const NEEDS: &[Need] = &[
    Need::Capability { name: "CAP_NET_ADMIN", bit: 12 },
    option("CONFIG_NET_CLS_ACT", true, "filters with actions"),
    option("CONFIG_NET_CLS_FLOWER", true, "the classifier that flows become"),
    option("CONFIG_NET_SCH_INGRESS", true, "the queueing discipline that filters hang at"),
    option("CONFIG_NET_ACT_GACT", true, "drop, and jumps to other chains"),
    option("CONFIG_NET_ACT_MIRRED", true, "output"),
    option("CONFIG_NET_ACT_VLAN", false, "flows with push_vlan and pop_vlan"),
    option("CONFIG_NET_ACT_PEDIT", false, "flows with set()"),
    option("CONFIG_NET_ACT_CSUM", false, "flows with set() of IP, TCP and UDP"),
    option("CONFIG_NET_ACT_TUNNEL_KEY", false, "flows into tunnels"),
    option("CONFIG_NET_ACT_CT", false, "flows with ct()"),
    option("CONFIG_NET_ACT_POLICE", false, "meters"),
    option("CONFIG_NET_ACT_SAMPLE", false, "sample()"),
    option("CONFIG_NET_ACT_MPLS", false, "flows with push_mpls and pop_mpls"),
    option("CONFIG_NET_TC_SKB_EXT", false, "going on in Open vSwitch where a chain ended, instead of from the start"),
    of_mlx5("CONFIG_MLX5_CLS_ACT", "any rule in the hardware of an mlx5 NIC"),
    of_mlx5("CONFIG_MLX5_TC_CT", "ct() in the hardware of an mlx5 NIC"),
    of_mlx5("CONFIG_MLX5_TC_SAMPLE", "sample() in the hardware of an mlx5 NIC"),
    Need::NetworkDevices,
    Need::TrafficControl,
];

const fn option(name: &'static str, is_required: bool, purpose: &'static str) -> Need {
    Need::KernelOption { name, driver: None, is_required, purpose }
}

/// Newer kernels make these depend on `CONFIG_NET_TC_SKB_EXT`, which Debian leaves off, so that Debian 13 has none of them.
const fn of_mlx5(name: &'static str, purpose: &'static str) -> Need {
    Need::KernelOption { name, driver: Some("mlx5_core"), is_required: false, purpose }
}

/// The table `[tc]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, expecting = "expected a table")]
pub struct Config {
    /// Where rules go. Default `"none"`.
    pub policy: OffloadPolicy,
    /// How the flags `df` and `csum` of outer headers are treated if the kernel can neither match nor set them. Default `"auto"`.
    pub tunnel_flags: TunnelFlags,
}

/// Where rules go, as `tc-policy` of OVS has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum OffloadPolicy {
    /// `"none"`: into the kernel, and into hardware if hardware takes them.
    #[default]
    #[serde(rename = "none")]
    Any,
    /// `"skip_sw"`: into hardware only; what it refuses is refused.
    #[serde(rename = "skip_sw")]
    SkipSoftware,
    /// `"skip_hw"`: into the kernel only.
    #[serde(rename = "skip_hw")]
    SkipHardware,
}

/// What becomes of flags of an outer header that the running kernel knows nothing of: `df` and `csum` in a match before Linux
/// 6.11, and `df` in `set(tunnel(…))` before Linux 6.3. OVS writes them into each of its tunnel flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelFlags {
    /// `"auto"`: those of a match are passed over as long as no other flow differs only in them; where one does, both are refused.
    /// Those that are to be set are passed over.
    #[default]
    Auto,
    /// `"exact"`: the flow is refused.
    Exact,
    /// `"as_ovs"`: they are passed over, as OVS's own tc offload does, and the rule says so.
    AsOvs,
}
