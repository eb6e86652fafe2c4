//! `[source]`: where flows come from besides commands.

use std::time::Duration;

use serde::Deserialize;
use sluice_feed_conntrack::Mark;

use super::forms;

/// The sources that are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct Sources {
    /// `[source.ovs]`: the kernel's Open vSwitch datapath.
    pub ovs: Option<OvsSource>,
    /// `[source.conntrack]`: established connections that the kernel forwards.
    pub conntrack: Option<ConntrackSource>,
}

/// Connections that the kernel tracks, routes and translates between ports of this agent. Once one is established, both of its directions are
/// flows, which end with it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct ConntrackSource {
    /// How many connections have flows, at most; others are left to the kernel. Default 10000.
    #[serde(deserialize_with = "forms::positive")]
    pub connections: usize,
    /// Which connections may have flows, by their mark (`ct mark` of nftables): `"VALUE"` or `"VALUE/MASK"`, as in `"0x10/0x10"`. Rules of
    /// nftables pick them so, such as those that have had more than 20 packets. Default: all.
    #[serde(deserialize_with = "forms::mark")]
    pub mark: Mark,
    /// How long a connection that begins is left to the kernel before it has flows, 0 to 60 s. One that is over by then costs no rule; one
    /// that was there before the agent has flows at once. Default 0.
    #[serde(deserialize_with = "forms::up_to_a_minute")]
    pub after: Duration,
    /// Whether connections that the kernel translates (NAT) have flows. Default: yes, but with `tc` only if its `policy` is `"skip_sw"` at
    /// the start. The kernel's act_csum passes over what is still to be cut into segments (GRO, TSO), so that rules in software leave a
    /// wrong checksum there, which TCP survives slowly.
    pub translated: Option<bool>,
    /// The bytes of notifications of the kernel that wait for the agent at most, 64 KiB to 1 GiB. When more come, they are lost, and all
    /// connections are compared. Default 8388608.
    #[serde(deserialize_with = "forms::queue_bytes")]
    pub queue_bytes: usize,
}

impl Default for ConntrackSource {
    fn default() -> Self {
        Self {
            connections: 10_000,
            mark: Mark::default(),
            after: Duration::ZERO,
            translated: None,
            queue_bytes: 8 << 20,
        }
    }
}

/// Flows of an Open vSwitch that runs on the kernel's datapath and knows nothing of this agent. It keeps all of them; the agent forwards what
/// its device takes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct OvsSource {
    /// The datapath of the kernel. Its ports become ports of the agent, under their names and numbers. Default `"ovs-system"`.
    pub datapath: String,
    /// Whether ovs-vswitchd hands its flows over and keeps only those that the device refuses, for which it has to be built with
    /// `deploy/ovs/dpif-offload-sluice.c`. Default `false`: Open vSwitch keeps all of them, and knows nothing of this agent.
    pub handed_over: bool,
    /// The name of the port that packets of tunnels take. Without one, which is the default, ports of tunnels and their flows are left to
    /// Open vSwitch.
    pub underlay: Option<String>,
    /// What Open vSwitch hears of the packets that are forwarded here: `"shared"` (default), all that is counted, by shared memory, if our
    /// library is loaded into ovs-vswitchd; or `"none"`. Without that library, flows that name a meter are left to an Open vSwitch that does
    /// not hand them over.
    pub feedback: Feedback,
    /// The bytes of notifications of the kernel that wait for the agent at most, 64 KiB to 1 GiB. When more come, they are lost, and all flows
    /// are compared. Default 8388608, some 10,000 new flows.
    #[serde(deserialize_with = "forms::queue_bytes")]
    pub queue_bytes: usize,
}

impl Default for OvsSource {
    fn default() -> Self {
        Self {
            datapath: "ovs-system".to_owned(),
            handed_over: false,
            underlay: None,
            feedback: Feedback::Shared,
            queue_bytes: 8 << 20,
        }
    }
}

/// Whether Open vSwitch hears of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Feedback {
    /// Of all that is counted.
    Shared,
    /// Of none.
    None,
}
