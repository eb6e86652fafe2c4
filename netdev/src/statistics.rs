//! What the kernel counts at a device (`struct rtnl_link_stats64`).
//!
//! By `RTM_GETSTATS`, which answers with that alone. `RTM_GETLINK` tells all else of the device as well, of which `netlink-packet-route` makes
//! values and texts: about a sixth of what a poll of some hundred rules took.

use rustix::io::Errno;

use crate::control::Control;
use crate::device::Ifindex;
use crate::error::LinkError;
use crate::kind;
use crate::netlink::attribute::{Attributes, Malformed, Writer};

/// `IFLA_STATS_LINK_64` (linux/if_link.h).
const LINK_64: u16 = 1;
/// `IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64)`: nothing but that.
const ONLY_LINK_64: u32 = 1 << (LINK_64 - 1);
/// Bytes of `struct if_stats_msg`: family and padding, the device, and what is wanted.
const HEADER: usize = 12;

/// Packets and bytes at a device. Bytes are with Ethernet headers as far as the driver has it so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Bytes that came in.
    pub rx_bytes: u64,
    /// Packets that went out.
    pub tx_packets: u64,
    /// Bytes that went out.
    pub tx_bytes: u64,
}

impl Statistics {
    /// Reads the first fields of `struct rtnl_link_stats64`.
    fn read(counted: &[u8]) -> Option<Self> {
        let field = |number: usize| counted.get(number * 8..)?.first_chunk().copied().map(u64::from_ne_bytes);
        Some(Self { rx_packets: field(0)?, tx_packets: field(1)?, rx_bytes: field(2)?, tx_bytes: field(3)? })
    }
}

/// Reads the counters of a device; `None` if it is gone.
pub fn statistics(control: &mut Control, ifindex: Ifindex) -> Result<Option<Statistics>, LinkError> {
    let mut found = None;
    let body = |writer: &mut Writer<'_>| {
        writer.raw(&[0; 4]);
        writer.raw(&ifindex.0.to_ne_bytes());
        writer.raw(&ONLY_LINK_64.to_ne_bytes());
    };
    let answer = control.request("read counters of a device", kind::GET_STATISTICS, 0, body, |message| {
        let place = "counters of a device";
        for attribute in Attributes::new(message.payload.get(HEADER..).ok_or(Malformed::Truncated { place })?, place) {
            let attribute = attribute?;
            if attribute.kind == LINK_64 {
                found = Some(Statistics::read(attribute.payload).ok_or(Malformed::Truncated { place })?);
            }
        }
        Ok(())
    });
    match answer {
        Err(error) if error.is(Errno::NODEV) => Ok(None),
        answer => answer.map(|()| found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_the_kernel_and_a_device_that_is_not_there_has_none() {
        let loopback = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = |name: &str| -> u64 {
            std::fs::read_to_string(format!("/sys/class/net/lo/statistics/{name}")).unwrap().trim().parse().unwrap()
        };
        let mut control = Control::open().unwrap();
        let before = ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes"].map(file);
        for _ in 0..3 {
            socket.send_to(&[0; 1_000], socket.local_addr().unwrap()).unwrap();
        }
        let counted = statistics(&mut control, Ifindex(loopback)).unwrap().unwrap();
        let after = ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes"].map(file);
        // Others use the loopback meanwhile.
        let read = [counted.rx_packets, counted.tx_packets, counted.rx_bytes, counted.tx_bytes];
        for (number, value) in read.into_iter().enumerate() {
            assert!((before[number] + 3..=after[number]).contains(&value), "{number}: {value}");
        }
        assert!(counted.rx_bytes - before[2] >= 3_000);
        assert_eq!(statistics(&mut control, Ifindex(i32::MAX as u32)).unwrap(), None);
    }

    #[test]
    fn counters_that_are_cut_short_are_none() {
        let whole: Vec<u8> = [1_u64, 2, 3, 4].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(
            Statistics::read(&whole),
            Some(Statistics { rx_packets: 1, tx_packets: 2, rx_bytes: 3, tx_bytes: 4 })
        );
        assert_eq!(Statistics::read(&whole[..31]), None);
    }
}
