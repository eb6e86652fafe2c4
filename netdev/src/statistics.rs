//! What the kernel counts at a device (`struct rtnl_link_stats64`).

use netlink_packet_core::Parseable;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use rustix::io::Errno;

use crate::control::Control;
use crate::device::Ifindex;
use crate::error::LinkError;
use crate::netlink::attribute::{Malformed, Writer};
use crate::{kind, message};

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

/// Reads the counters of a device; `None` if it is gone.
pub fn statistics(control: &mut Control, ifindex: Ifindex) -> Result<Option<Statistics>, LinkError> {
    let mut request = LinkMessage::default();
    request.header.index = ifindex.0;
    let mut found = None;
    let body = |writer: &mut Writer<'_>| message::emit_link(&request, writer);
    let answer = control.request("read counters of a device", kind::GET_LINK, 0, body, |message| {
        let place = "link";
        let link = LinkMessage::parse(message.payload).map_err(|_| Malformed::Truncated { place })?;
        found = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(counted) => Some(Statistics {
                rx_packets: counted.rx_packets,
                rx_bytes: counted.rx_bytes,
                tx_packets: counted.tx_packets,
                tx_bytes: counted.tx_bytes,
            }),
            _ => None,
        });
        Ok(())
    });
    match answer {
        Err(error) if error.is(Errno::NODEV) => Ok(None),
        answer => answer.map(|()| found),
    }
}
