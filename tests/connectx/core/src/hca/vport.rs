//! A port of the switch: what the commands set in it, and what went through it.

pub(super) const UP: u8 = 1;

const DEFAULT_MTU: u16 = 1500;

pub(super) const SYSTEM_IMAGE_GUID: u64 = 0x0200_0000_0000_0000;

/// A vport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vport {
    pub(super) permanent_address: u64,
    pub(super) mtu: u16,
    pub(super) port_guid: u64,
    pub(super) node_guid: u64,
    /// Down, up, or as the wire is.
    pub(super) admin_state: u8,
    /// All, multicast, unicast, as in the context.
    pub(super) promiscuous: u8,
    pub(super) min_inline: u8,
    pub(super) disable_local_loopback: (bool, bool),
    /// Remote memory access over Ethernet is on.
    pub(super) roce: bool,
    /// Whether a change raises an event, and which ones.
    pub(super) change_event: (bool, u8),
    /// Unicast addresses, multicast addresses, VLANs.
    pub(super) lists: [Vec<u64>; 3],
    /// Which registers C survive the way to the vport, and whether they do at all.
    pub(super) registers: (bool, u8),
    pub(super) counters: Counters,
}

/// Packets and bytes: unicast, multicast, broadcast.
pub(crate) type ByKind = [(u64, u64); 3];

/// What went through a vport.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) received: ByKind,
    pub(super) transmitted: ByKind,
}

/// Which way a packet goes, as the switch sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the vport into the switch.
    In,
    /// Out of the switch to the vport.
    Out,
}

impl Vport {
    pub(crate) fn new(number: u16) -> Self {
        let guid = SYSTEM_IMAGE_GUID | 0x100_0000 | u64::from(number);
        Self {
            permanent_address: 0x0200_00aa_0000 | u64::from(number),
            mtu: DEFAULT_MTU,
            port_guid: guid,
            node_guid: guid,
            admin_state: UP,
            promiscuous: 0,
            min_inline: 0,
            disable_local_loopback: (false, false),
            roce: false,
            change_event: (false, 0),
            lists: Default::default(),
            registers: (false, 0),
            counters: Counters::default(),
        }
    }
}
