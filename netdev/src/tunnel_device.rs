//! Making and removing tunnel devices in collect-metadata mode: one device for all tunnels of a kind, each packet says where to.

use std::num::NonZeroU16;

use netlink_packet_route::link::{
    InfoData, InfoGeneve, InfoGre, InfoGre6, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rustix::io::Errno;

use crate::changes;
use crate::control::Control;
use crate::device::{Device, Ifindex, Role, State};
use crate::error::LinkError;
use crate::ingress::Ownership;
use crate::kind;
use crate::message::{self, Notice};
use crate::netlink::attribute::Writer;
use crate::tunnel::{Mismatch, Tunnel, TunnelKind};

/// What is asked of the kernel to remove a device.
const REMOVE: &str = "remove tunnel device";

/// A tunnel device that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTunnel {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// The protocol of the tunnel.
    pub protocol: WantedProtocol,
}

/// The protocols for which the kernel has a device that carries Ethernet and collects metadata. For GTP-U it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WantedProtocol {
    /// Virtual eXtensible LAN (RFC 7348).
    Vxlan {
        /// The UDP port on which it listens.
        udp_port: NonZeroU16,
        /// Whether it reads and writes the group of VXLAN-GBP.
        group_policy: bool,
    },
    /// Geneve (RFC 8926).
    Geneve {
        /// The UDP port on which it listens.
        udp_port: NonZeroU16,
    },
    /// Ethernet in GRE over IPv4.
    Gretap,
    /// Ethernet in GRE over IPv6.
    Ip6Gretap,
    /// ERSPAN over IPv4.
    Erspan,
    /// ERSPAN over IPv6.
    Ip6Erspan,
}

/// Why a tunnel device is not as it is wanted.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// No device may have this name.
    #[error("{name:?} is no name of a device")]
    BadName {
        /// The name.
        name: String,
    },
    /// Another kind of device has the name.
    #[error("{name} is there and is no tunnel device, but a {driver}")]
    Taken {
        /// The name.
        name: String,
        /// The driver of what there is.
        driver: String,
    },
    /// A tunnel device of the name is there, but differs.
    #[error("{name} is there, but {mismatch}")]
    Different {
        /// The name.
        name: String,
        /// In what.
        mismatch: Mismatch,
    },
    /// Somebody else made it.
    #[error("{name} was not made here")]
    Foreign {
        /// The name.
        name: String,
    },
    /// It is not there.
    #[error("{name} is gone")]
    Gone {
        /// The name.
        name: String,
    },
    /// The kernel refused, or could not be asked.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl WantedTunnel {
    /// The request that makes it.
    pub(crate) fn request(&self) -> LinkMessage {
        let (kind, data) = self.protocol.info();
        let mut request = LinkMessage::default();
        request.attributes = vec![
            LinkAttribute::IfName(self.name.clone()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), LinkInfo::Data(data)]),
        ];
        request
    }

    fn check_name(&self) -> Result<(), TunnelError> {
        let name = &self.name;
        if is_device_name(name) { Ok(()) } else { Err(TunnelError::BadName { name: name.clone() }) }
    }
}

/// Returns whether a network device can have this name (`dev_valid_name` in the kernel). Of one with a percent sign the kernel makes another:
/// of `vx%d` it makes `vx0` (`__dev_alloc_name`).
pub fn is_device_name(name: &str) -> bool {
    // To the kernel a byte is a character, and 0xa0 a space (`lib/ctype.c`).
    const ODD: &[u8] = b"/:%\0 \t\n\x0b\x0c\r\xa0";
    (1..16).contains(&name.len()) && ![".", ".."].contains(&name) && !name.bytes().any(|byte| ODD.contains(&byte))
}

impl WantedProtocol {
    /// How the kernel describes such a device.
    fn tunnel(self) -> Tunnel {
        let tunnel = |kind, udp_port: Option<NonZeroU16>, group_policy| Tunnel {
            kind,
            collects_metadata: true,
            udp_port: udp_port.map(NonZeroU16::get),
            group_policy,
        };
        match self {
            Self::Vxlan { udp_port, group_policy } => tunnel(TunnelKind::Vxlan, Some(udp_port), group_policy),
            Self::Geneve { udp_port } => tunnel(TunnelKind::Geneve, Some(udp_port), false),
            Self::Gretap => tunnel(TunnelKind::Gretap, None, false),
            Self::Ip6Gretap => tunnel(TunnelKind::Ip6Gretap, None, false),
            Self::Erspan => tunnel(TunnelKind::Erspan, None, false),
            Self::Ip6Erspan => tunnel(TunnelKind::Ip6Erspan, None, false),
        }
    }

    fn info(self) -> (InfoKind, InfoData) {
        match self {
            Self::Vxlan { udp_port, group_policy } => {
                let port = InfoVxlan::Port(udp_port.get());
                let mut options = vec![InfoVxlan::CollectMetadata(true), InfoVxlan::Learning(false), port];
                options.extend(group_policy.then_some(InfoVxlan::Gbp));
                (InfoKind::Vxlan, InfoData::Vxlan(options))
            }
            Self::Geneve { udp_port } => {
                let options = vec![InfoGeneve::CollectMetadata, InfoGeneve::Port(udp_port.get())];
                (InfoKind::Geneve, InfoData::Geneve(options))
            }
            Self::Gretap => (InfoKind::GreTap, InfoData::GreTap(vec![InfoGre::CollectMetadata])),
            Self::Ip6Gretap => (InfoKind::GreTap6, InfoData::GreTap6(vec![InfoGre6::CollectMetadata])),
            Self::Erspan => (InfoKind::ErSpan, InfoData::ErSpan(vec![InfoGre::CollectMetadata])),
            Self::Ip6Erspan => (InfoKind::Ip6ErSpan, InfoData::Ip6ErSpan(vec![InfoGre6::CollectMetadata])),
        }
    }
}

/// Makes sure that the device is there and up. Returns it, and who made it. One that is made here carries `mark` as its alias
/// (`IFLA_IFALIAS`), by which it is recognized after a restart.
pub fn ensure_tunnel(
    control: &mut Control,
    wanted: &WantedTunnel,
    mark: &str,
) -> Result<(Device, Ownership), TunnelError> {
    wanted.check_name()?;
    let name = &wanted.name;
    if let Some(found) = named(control, name)? {
        let ownership = recognize_tunnel(&found, wanted, mark)?;
        if found.state == State::Off {
            set_up(found.ifindex, None)?;
        }
        return Ok((look_again(control, name)?, ownership));
    }
    changes::add("add tunnel device", wanted.request())?;
    let made = look_again(control, name)?;
    // The kernel takes no alias when it makes a device.
    if let Err(error) = set_up(made.ifindex, Some(mark)) {
        // Without the mark nobody would know it again.
        changes::remove(REMOVE, made.ifindex)?;
        return Err(error.into());
    }
    Ok((look_again(control, name)?, Ownership::Made))
}

/// Returns who made a device, if it is the tunnel device that is wanted.
pub fn recognize_tunnel(found: &Device, wanted: &WantedTunnel, mark: &str) -> Result<Ownership, TunnelError> {
    let name = &wanted.name;
    let Role::Tunnel(there) = &found.role else {
        let driver = found.driver().unwrap_or("device without a driver's name").into();
        return Err(TunnelError::Taken { name: name.clone(), driver });
    };
    if let Some(mismatch) = there.mismatch(&wanted.protocol.tunnel()) {
        return Err(TunnelError::Different { name: name.clone(), mismatch });
    }
    Ok(if found.alias.as_deref() == Some(mark) { Ownership::Made } else { Ownership::Adopted })
}

/// Removes a tunnel device that carries `mark`. Fails if it is gone, or if somebody else made it.
pub fn remove_tunnel(control: &mut Control, name: &str, mark: &str) -> Result<(), TunnelError> {
    let gone = || TunnelError::Gone { name: name.into() };
    let found = named(control, name)?.ok_or_else(gone)?;
    if !matches!(found.role, Role::Tunnel(_)) || found.alias.as_deref() != Some(mark) {
        return Err(TunnelError::Foreign { name: name.into() });
    }
    match changes::remove(REMOVE, found.ifindex) {
        Err(error) if error.is(Errno::NODEV) => Err(gone()),
        result => Ok(result?),
    }
}

fn look_again(control: &mut Control, name: &str) -> Result<Device, TunnelError> {
    named(control, name)?.ok_or_else(|| TunnelError::Gone { name: name.into() })
}

/// The device of a name.
pub(crate) fn named(control: &mut Control, name: &str) -> Result<Option<Device>, LinkError> {
    let mut found = None;
    let body = |writer: &mut Writer<'_>| message::emit_get_link(Some(name), writer);
    let answer = control.request("look up link", kind::GET_LINK, 0, body, |message| {
        if let Some(Notice::Link(device)) = Notice::read(message)? {
            found = Some(*device);
        }
        Ok(())
    });
    match answer {
        Err(error) if error.is(Errno::NODEV) => Ok(None),
        answer => answer.map(|()| found),
    }
}

fn set_up(ifindex: Ifindex, alias: Option<&str>) -> Result<(), LinkError> {
    let mut request = LinkMessage::default();
    request.header.index = ifindex.0;
    request.header.flags = LinkFlags::Up;
    request.header.change_mask = LinkFlags::Up;
    request.attributes.extend(alias.map(|alias| LinkAttribute::IfAlias(alias.into())));
    changes::set("set up tunnel device", request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_the_kernel_takes_and_leaves_as_it_is() {
        for name in ["eth0", "p0.7", "a23456789012345", "büro", "é"] {
            assert!(is_device_name(name), "{name}");
        }
        for name in ["", "a234567890123456", ".", "..", "a/b", "a:b", "a b", "a\tb", "a\x0bb", "vx%d", "100%", "voilà"]
        {
            assert!(!is_device_name(name), "{name:?}");
        }
    }
}
