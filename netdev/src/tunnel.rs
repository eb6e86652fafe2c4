//! Tunnel devices, as the kernel describes them.

use std::fmt;

use netlink_packet_route::link::{InfoData, InfoGeneve, InfoGre, InfoGre6, InfoKind, InfoVxlan};

/// A device that puts packets into others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tunnel {
    /// Into which.
    pub kind: TunnelKind,
    /// Whether each packet says where to (`external` in iproute2), so that one device does for all.
    pub collects_metadata: bool,
    /// The UDP port on which it listens, where the tunnel is over UDP.
    pub udp_port: Option<u16>,
    /// Whether it reads and writes the group of VXLAN-GBP.
    pub group_policy: bool,
}

/// What a tunnel device speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TunnelKind {
    /// Virtual eXtensible LAN (RFC 7348).
    Vxlan,
    /// Geneve (RFC 8926).
    Geneve,
    /// Ethernet in GRE over IPv4.
    Gretap,
    /// Ethernet in GRE over IPv6.
    Ip6Gretap,
    /// ERSPAN over IPv4.
    Erspan,
    /// ERSPAN over IPv6.
    Ip6Erspan,
    /// Packets of layer 3 in GRE over IPv4.
    Gre,
    /// Packets of layer 3 in GRE over IPv6.
    Ip6Gre,
    /// GTP-U.
    Gtp,
}

/// UDP port of GTP-U (3GPP TS 29.281); the kernel's device has no other.
const GTP_PORT: u16 = 2152;

impl TunnelKind {
    /// The name of the driver (`IFLA_INFO_KIND`).
    pub const fn driver(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Gretap => "gretap",
            Self::Ip6Gretap => "ip6gretap",
            Self::Erspan => "erspan",
            Self::Ip6Erspan => "ip6erspan",
            Self::Gre => "gre",
            Self::Ip6Gre => "ip6gre",
            Self::Gtp => "gtp",
        }
    }

    pub(crate) const fn of(kind: &InfoKind) -> Option<Self> {
        Some(match kind {
            InfoKind::Vxlan => Self::Vxlan,
            InfoKind::Geneve => Self::Geneve,
            InfoKind::GreTap => Self::Gretap,
            InfoKind::GreTap6 => Self::Ip6Gretap,
            InfoKind::ErSpan => Self::Erspan,
            InfoKind::Ip6ErSpan => Self::Ip6Erspan,
            InfoKind::GreTun => Self::Gre,
            InfoKind::GreTun6 => Self::Ip6Gre,
            InfoKind::Gtp => Self::Gtp,
            _ => return None,
        })
    }
}

impl Tunnel {
    pub(crate) fn new(kind: TunnelKind, data: Option<&InfoData>) -> Self {
        let mut tunnel = Self { kind, collects_metadata: false, udp_port: None, group_policy: false };
        match data {
            Some(InfoData::Vxlan(options)) => {
                for option in options {
                    match option {
                        InfoVxlan::Port(port) => tunnel.udp_port = Some(*port),
                        InfoVxlan::CollectMetadata(is_so) => tunnel.collects_metadata = *is_so,
                        InfoVxlan::Gbp => tunnel.group_policy = true,
                        _ => {}
                    }
                }
            }
            Some(InfoData::Geneve(options)) => {
                for option in options {
                    match option {
                        InfoGeneve::Port(port) => tunnel.udp_port = Some(*port),
                        InfoGeneve::CollectMetadata => tunnel.collects_metadata = true,
                        _ => {}
                    }
                }
            }
            Some(InfoData::GreTap(options) | InfoData::GreTun(options) | InfoData::ErSpan(options)) => {
                tunnel.collects_metadata = options.contains(&InfoGre::CollectMetadata);
            }
            Some(InfoData::GreTap6(options) | InfoData::GreTun6(options) | InfoData::Ip6ErSpan(options)) => {
                tunnel.collects_metadata = options.contains(&InfoGre6::CollectMetadata);
            }
            Some(InfoData::Gtp(_)) => tunnel.udp_port = Some(GTP_PORT),
            _ => {}
        }
        tunnel
    }

    /// In what this device is not the one that is wanted.
    pub fn mismatch(&self, wanted: &Self) -> Option<Mismatch> {
        if self.kind != wanted.kind {
            Some(Mismatch::Kind { found: self.kind })
        } else if self.collects_metadata != wanted.collects_metadata {
            Some(Mismatch::Metadata { found: self.collects_metadata })
        } else if self.udp_port != wanted.udp_port {
            Some(Mismatch::UdpPort { found: self.udp_port })
        } else if self.group_policy != wanted.group_policy {
            Some(Mismatch::GroupPolicy { found: self.group_policy })
        } else {
            None
        }
    }
}

/// In what a tunnel device is not the one that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It speaks something else.
    Kind {
        /// What it speaks.
        found: TunnelKind,
    },
    /// It is for one tunnel and not for all, or the other way round.
    Metadata {
        /// Whether it is for all.
        found: bool,
    },
    /// It listens on another port.
    UdpPort {
        /// On which.
        found: Option<u16>,
    },
    /// It has the group policy, or lacks it.
    GroupPolicy {
        /// Whether it has.
        found: bool,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { found } => write!(out, "it is a {} device", found.driver()),
            Self::Metadata { found: true } => out.write_str("it is in collect-metadata mode"),
            Self::Metadata { found: false } => out.write_str("it is not in collect-metadata mode"),
            Self::UdpPort { found: Some(port) } => write!(out, "its UDP port is {port}"),
            Self::UdpPort { found: None } => out.write_str("it has no UDP port"),
            Self::GroupPolicy { found: true } => out.write_str("it has the group policy of VXLAN-GBP"),
            Self::GroupPolicy { found: false } => out.write_str("it lacks the group policy of VXLAN-GBP"),
        }
    }
}
