//! How the classifier is configured.

use serde::{Deserialize, Serialize};
use sluice_flow::backend::BackendKind;

/// The kernel's flower classifier, with the NICs behind it.
pub const KIND: BackendKind = BackendKind {
    name: "tc",
    device: "tc0",
    canonical: str::to_owned,
    is_in_network_namespace: true,
    mirrors_to_ports_only: false,
    former_keys: &["policy", "tunnel_flags"],
};

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
