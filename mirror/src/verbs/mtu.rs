//! Lengths of packets.

use rdma_sys as sys;

/// Bytes of data in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
#[allow(missing_docs)] // Each says all.
pub enum Mtu {
    Bytes256 = sys::ibv_mtu::IBV_MTU_256,
    Bytes512 = sys::ibv_mtu::IBV_MTU_512,
    Bytes1024 = sys::ibv_mtu::IBV_MTU_1024,
    Bytes2048 = sys::ibv_mtu::IBV_MTU_2048,
    Bytes4096 = sys::ibv_mtu::IBV_MTU_4096,
}

impl Mtu {
    const ALL: [Self; 5] = [Self::Bytes256, Self::Bytes512, Self::Bytes1024, Self::Bytes2048, Self::Bytes4096];

    /// The number that the standard gives it, from 1 on.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The one of that number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.number() == number)
    }

    pub(crate) fn of_raw(raw: sys::ibv_mtu::Type) -> Self {
        u8::try_from(raw).ok().and_then(Self::of_number).unwrap_or(Self::Bytes256)
    }
}
