//! Ports of RDMA devices, as the kernel's netlink interface tells of them (`include/uapi/rdma/rdma_netlink.h`): in switchdev mode an RDMA
//! device has one for each port of the eswitch, and says which network device represents it.

use rustix::io::Errno;

use crate::control::Control;
use crate::device::Ifindex;
use crate::error::LinkError;
use crate::netlink::attribute::{Attributes, Malformed};
use crate::netlink::message::Message;

/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET)` and the same of `RDMA_NLDEV_CMD_PORT_GET`.
const GET: u16 = 5 << 10 | 1;
const GET_PORT: u16 = 5 << 10 | 5;

/// `RDMA_NLDEV_ATTR_*`
mod attribute {
    pub(super) const DEVICE_INDEX: u16 = 1;
    pub(super) const DEVICE_NAME: u16 = 2;
    /// Of a device: how many ports it has.
    pub(super) const PORT_INDEX: u16 = 3;
    pub(super) const NETDEV_INDEX: u16 = 50;
}

/// Returns which port of an RDMA device a network device belongs to, counted from 1; `None` if it is none of that device, or if the
/// kernel has no such interface.
pub fn rdma_port(device: &str, netdev: Ifindex) -> Result<Option<u32>, LinkError> {
    let mut control = match Control::rdma() {
        Err(LinkError::Socket { source, .. }) if is_missing(&source) => return Ok(None),
        control => control?,
    };
    let Some((index, ports)) = find(&mut control, device)? else { return Ok(None) };
    for port in 1..=ports {
        if netdev_of(&mut control, index, port)? == Some(netdev) {
            return Ok(Some(port));
        }
    }
    Ok(None)
}

fn is_missing(error: &std::io::Error) -> bool {
    [Errno::PROTONOSUPPORT, Errno::AFNOSUPPORT]
        .into_iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The number of a device, and how many ports it has.
fn find(control: &mut Control, wanted: &str) -> Result<Option<(u32, u32)>, LinkError> {
    let read = |message: &Message<'_>| -> Result<_, Malformed> {
        let [mut index, mut ports] = [None; 2];
        let mut is_wanted = false;
        for attribute in Attributes::new(message.payload, PLACE) {
            let attribute = attribute?;
            match attribute.kind {
                attribute::DEVICE_INDEX => index = Some(attribute.u32()?),
                attribute::DEVICE_NAME => is_wanted = attribute.text()? == wanted,
                attribute::PORT_INDEX => ports = Some(attribute.u32()?),
                _ => {}
            }
        }
        Ok(index.zip(ports).filter(|_| is_wanted))
    };
    control.dump(
        "list RDMA devices",
        GET,
        |_| (),
        |found: &mut Option<_>, message| {
            *found = found.or(read(message)?);
            Ok(())
        },
    )
}

fn netdev_of(control: &mut Control, device: u32, port: u32) -> Result<Option<Ifindex>, LinkError> {
    let mut netdev = None;
    control.request(
        "ask for an RDMA port",
        GET_PORT,
        0,
        |writer| {
            writer.put(attribute::DEVICE_INDEX, &device.to_ne_bytes());
            writer.put(attribute::PORT_INDEX, &port.to_ne_bytes());
        },
        |message| {
            for attribute in Attributes::new(message.payload, PLACE) {
                let attribute = attribute?;
                if attribute.kind == attribute::NETDEV_INDEX {
                    netdev = Some(Ifindex(attribute.u32()?));
                }
            }
            Ok(())
        },
    )?;
    Ok(netdev)
}

const PLACE: &str = "RDMA device";
