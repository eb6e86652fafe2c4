//! The network device of a port: what it must be, and the queueing discipline for its filters.

use std::num::NonZeroU16;

use sluice_flow::port::{self, Port, PortKind, TunnelProtocol};
use sluice_flow::refusal::Refusal;
use sluice_netdev::{
    self as netdev, Block, Control, Ifindex, IngressQdisc, Known, Links, Mismatch, Ownership, Role, TunnelError,
    WantedProtocol, WantedTunnel,
};

use super::table::Present;
use crate::backend::failure::{device_refusal, link_refusal};
use crate::context::{Device, DeviceKind};

const NO_GTPU: &str = "the kernel has no collect-metadata device for GTP-U";

/// Whether the kernel can have the device of a port.
pub(crate) fn check_port(port: &Port) -> Result<(), Refusal> {
    if !netdev::is_device_name(&port.name) {
        return Err(refuse(port, "no network device can have this name: at most 15 bytes, without a colon"));
    }
    match &port.kind {
        PortKind::Tunnel(tunnel) if tunnel.protocol == TunnelProtocol::Gtpu => Err(refuse(port, NO_GTPU)),
        _ => Ok(()),
    }
}

/// Makes sure that a device has the queueing discipline that filters need.
pub(crate) fn prepare_device(
    control: &mut Control,
    links: &Links,
    known: &Known,
    port: &Port,
) -> Result<Present, Refusal> {
    let ifindex = known.device.ifindex;
    let kind = match (&port.kind, &known.device.role) {
        (PortKind::Internal, _) => DeviceKind::Internal,
        (PortKind::Tunnel(tunnel), _) => DeviceKind::Tunnel { udp_port: tunnel.udp_port },
        (_, Role::Lag(_)) => DeviceKind::Lag,
        _ => DeviceKind::Wire,
    };
    let wanted = match kind {
        DeviceKind::Internal => IngressQdisc::CLSACT,
        DeviceKind::Lag => qdisc_of_lag(ifindex),
        DeviceKind::Wire | DeviceKind::Tunnel { .. } => IngressQdisc::INGRESS,
    };
    let qdiscs = if kind == DeviceKind::Lag {
        netdev::ensure_lag(control, links, ifindex, wanted).map_err(device_refusal)?
    } else {
        let (qdisc, ownership) = netdev::ensure_ingress(control, ifindex, wanted).map_err(|error| match error {
            netdev::IngressError::Link(error) => link_refusal(error),
            error => refuse(port, error.to_string()),
        })?;
        vec![(ifindex, qdisc, ownership)]
    };
    Ok(Present { device: Device { interface: ifindex.0, kind }, generation: known.generation, qdiscs })
}

/// The queueing discipline that a LAG and all of its members have.
pub(crate) const fn qdisc_of_lag(master: Ifindex) -> IngressQdisc {
    IngressQdisc::INGRESS.with_ingress_block(Block(master.0))
}

/// Finds or makes the device of a tunnel port, in one of the variants that serve. Returns whether it was made here.
pub(crate) fn find_tunnel(
    port: &Port,
    tunnel: &port::Tunnel,
    mut find: impl FnMut(&WantedTunnel) -> Result<Ownership, TunnelError>,
) -> Result<bool, Refusal> {
    let udp_port = || {
        let number = tunnel.udp_port.or(tunnel.protocol.default_udp_port());
        number.and_then(NonZeroU16::new).ok_or_else(|| refuse(port, "there is no UDP port 0"))
    };
    let mut protocol = match tunnel.protocol {
        TunnelProtocol::Vxlan => WantedProtocol::Vxlan { udp_port: udp_port()?, group_policy: true },
        TunnelProtocol::Geneve => WantedProtocol::Geneve { udp_port: udp_port()? },
        TunnelProtocol::Gre => WantedProtocol::Gretap,
        TunnelProtocol::Erspan => WantedProtocol::Erspan,
        TunnelProtocol::Gtpu => return Err(refuse(port, NO_GTPU)),
    };
    loop {
        let wanted = WantedTunnel { name: port.name.to_string(), protocol };
        match find(&wanted) {
            Ok(ownership) => return Ok(ownership == Ownership::Made),
            // A device without the group policy extension serves flows that do not match it.
            Err(TunnelError::Different { mismatch: Mismatch::GroupPolicy { found: false }, .. })
                if matches!(protocol, WantedProtocol::Vxlan { group_policy: true, .. }) =>
            {
                protocol = WantedProtocol::Vxlan { udp_port: udp_port()?, group_policy: false };
            }
            Err(TunnelError::Link(error)) => return Err(link_refusal(error)),
            Err(error) => return Err(refuse(port, error.to_string())),
        }
    }
}

pub(crate) fn refuse(port: &Port, reason: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::Port { port: port.name.to_string(), number: Some(port.number), reason: reason.into() }
}
