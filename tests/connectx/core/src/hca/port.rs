//! The port to the wire.

const DEFAULT_MTU: u16 = 1522;

/// 25GBASE-CR, in the mask of Ethernet protocols.
pub(super) const PROTOCOLS: u32 = 1 << 27;

/// The port to the wire, as its registers show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PhysicalPort {
    pub(super) admin_up: bool,
    pub(super) mtu: u16,
    pub(super) protocols: u32,
    pub(super) pause: (bool, bool),
}

impl Default for PhysicalPort {
    fn default() -> Self {
        Self { admin_up: true, mtu: DEFAULT_MTU, protocols: PROTOCOLS, pause: (false, false) }
    }
}

impl PhysicalPort {
    pub(crate) fn is_up(&self) -> bool {
        self.admin_up
    }
}
