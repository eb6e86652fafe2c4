//! `userspace(…)`: packets that go up to a process, with a note.

use crate::port::PortNumber;

/// The arguments of a `userspace` action (`enum ovs_userspace_attr` in `include/uapi/linux/openvswitch.h`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Userspace {
    /// The netlink port that hears of the packet.
    pub pid: u32,
    /// The note. Where there is none, OVS prints none, but reads one of 48 zeros.
    pub data: Option<UserData>,
    /// Whether the flow's actions go up, too.
    pub actions: bool,
    /// The tunnel port whose outer header goes up, too.
    pub tunnel_port: Option<PortNumber>,
}

/// The note of a `userspace` action (`struct user_action_cookie` in `ofproto/ofproto-dpif-upcall.h`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UserData {
    /// `sFlow(vid=,pcp=,output=)`.
    SFlow {
        /// VLAN number.
        vid: u16,
        /// VLAN priority.
        pcp: u8,
        /// The output, in sFlow's own encoding.
        output: u32,
    },
    /// `slow_path(reason|reason)`: bits of [`SLOW_PATH_REASONS`]. OVS prints commas between them, but reads bars only;
    /// both are read here, and bars written.
    SlowPath(u32),
    /// `flow_sample(…)`.
    FlowSample(FlowSample),
    /// `ipfix(output_port=)`.
    Ipfix {
        /// The port, [`u32::MAX`] for none.
        output_port: PortNumber,
    },
    /// `controller(…)`.
    Controller(ToController),
    /// `userdata(hex)`: anything else. OVS puts zeros behind fewer than 8 bytes. It takes 48 bytes for one of the other
    /// notes if they begin like that; here they stay what they were written as.
    Bytes(Box<[u8]>),
}

/// `flow_sample(probability=,collector_set_id=,obs_domain_id=,obs_point_id=,output_port=[,ingress|egress])`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowSample {
    /// One in 65536.
    pub probability: u16,
    /// Who collects.
    pub collector_set_id: u32,
    /// Observation domain.
    pub obs_domain_id: u32,
    /// Observation point.
    pub obs_point_id: u32,
    /// The port to which the packet goes, [`u32::MAX`] for none.
    pub output_port: PortNumber,
    /// Whether it is taken on its way in or out; `None` where it is not said.
    pub direction: Option<SampleDirection>,
}

/// Where a sample is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleDirection {
    /// On its way in.
    Ingress,
    /// On its way out.
    Egress,
}

/// `controller(reason=,dont_send=,continuation=,recirc_id=,rule_cookie=,controller_id=,max_len=)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ToController {
    /// Why (`enum ofp_packet_in_reason`).
    pub reason: u16,
    /// Whether the packet is only counted.
    pub dont_send: bool,
    /// Whether the pipeline waits for an answer.
    pub continuation: bool,
    /// Where the frozen state is.
    pub recirc_id: u32,
    /// The cookie of the OpenFlow rule.
    pub rule_cookie: u64,
    /// The connection.
    pub controller_id: u16,
    /// How much of the packet is sent.
    pub max_len: u16,
}

/// Why a packet takes the slow path (`SLOW_PATH_REASONS` in `lib/odp-util.h`).
pub const SLOW_PATH_REASONS: &[(&str, u32)] = &[
    ("cfm", 1 << 0),
    ("bfd", 1 << 1),
    ("lacp", 1 << 2),
    ("stp", 1 << 3),
    ("lldp", 1 << 4),
    ("action", 1 << 5),
    ("match", 1 << 6),
];
