//! What the kernel's policies of IPsec mean for rules of tunnels.
//!
//! In software the kernel asks them: for what a tunnel device sends (`ip_route_output_flow`), and for what comes to one (`__xfrm_policy_check`).
//! A driver asks nobody. The header that mlx5 puts on is of a route that it looks up without a protocol (`mlx5e_tc_tun_create_header_ipv4`), for
//! which the kernel has no policy, and what it takes off has come in the clear. So rules of such packets are kept out of hardware.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use sluice_flow::Cause;
use sluice_flow::action::{Action, ActionKind, visit};
use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::port::{PortNumber, Tunnel};
use sluice_flow::refusal::Refusal;
use sluice_netdev::{Addresses, Packets, PolicyList};

use super::ports::table::PortTable;
use crate::config::OffloadPolicy;
use crate::install;
use crate::rule::Exposure;

/// `IPPROTO_UDP` and `IPPROTO_GRE`
const UDP: u8 = 17;
const GRE: u8 = 47;

/// The policies of one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Policies {
    Known(Arc<PolicyList>),
    /// They could not be read, and why. There may be one for all packets.
    Unknown(Arc<str>),
}

impl Default for Policies {
    fn default() -> Self {
        Self::Known(Arc::default())
    }
}

impl Policies {
    /// What hardware would do with packets of a flow against the policies.
    pub(crate) fn exposure(&self, flow: &Flow, ports: &PortTable) -> Option<Exposure> {
        match self {
            Self::Known(list) if list.is_empty() => None,
            Self::Known(list) if sent(flow, ports).iter().any(|packets| list.cover_sent(packets)) => {
                Some(Exposure::Sent)
            }
            Self::Known(list) => {
                received(flow, ports).filter(|packets| list.cover_received(packets)).map(|_| Exposure::Taken)
            }
            Self::Unknown(_) => {
                let is_of_tunnel = received(flow, ports).is_some() || !sent(flow, ports).is_empty();
                is_of_tunnel.then_some(Exposure::Unknown)
            }
        }
    }

    /// Whether flows of a tunnel may have another [exposure](Self::exposure) than under the policies of another time.
    pub(crate) fn differ(&self, other: &Self, tunnel: &Tunnel) -> bool {
        match (self, other) {
            (Self::Known(these), Self::Known(those)) => may_be_for(&these.difference(those), tunnel),
            (Self::Unknown(_), Self::Unknown(_)) => false,
            _ => true,
        }
    }
}

/// Returns the flags of a flow's rules. Where they may be in hardware and in software, those with an exposure are in software only; where they
/// may be in hardware only, the flow is refused.
pub(super) fn flags(policy: OffloadPolicy, exposure: Option<Exposure>) -> Result<u32, Refusal> {
    match (policy, exposure) {
        (OffloadPolicy::SkipSoftware, Some(exposure)) => Err(refusal(exposure)),
        (OffloadPolicy::Any, Some(_)) => Ok(install::flags(OffloadPolicy::SkipHardware)),
        (policy, _) => Ok(install::flags(policy)),
    }
}

fn refusal(exposure: Exposure) -> Refusal {
    let reason = exposure.to_string().into();
    let refusal = match exposure {
        Exposure::Sent => Refusal::Action { action: ActionKind::SetTunnel, reason },
        Exposure::Taken => Refusal::Field { field: Field::InPort, reason },
        Exposure::Unknown => Refusal::Combination { reason },
    };
    refusal.until(Cause::Module)
}

/// Says which tunnels have no rules in hardware because of policies, or some of whose rules are not there.
pub(super) fn note(ports: &PortTable) -> Option<String> {
    let concerns = |tunnel: &Tunnel| match &ports.policies {
        Policies::Known(list) => may_be_for(list, tunnel),
        Policies::Unknown(_) => true,
    };
    let tunnels = ports.iter().filter(|attached| attached.tunnel().is_some_and(concerns));
    let names: Vec<_> = tunnels.map(|attached| &*attached.port.name).collect();
    let names = Some(names.join(", ")).filter(|names| !names.is_empty())?;
    Some(match &ports.policies {
        Policies::Known(_) => format!(
            "flows of {names} are kept out of hardware where a policy of IPsec is for their packets: hardware neither encrypts nor decrypts"
        ),
        Policies::Unknown(reason) => {
            format!("flows of {names} are kept out of hardware, because the policies of IPsec cannot be read: {reason}")
        }
    })
}

/// Whether a policy may be for some packets of a tunnel, whatever their addresses are.
fn may_be_for(list: &PolicyList, tunnel: &Tunnel) -> bool {
    let packets = Packets {
        source: Addresses::Any,
        destination: Addresses::Any,
        protocol: protocol(tunnel),
        // A flow may send to another one than the tunnel's.
        udp_port: None,
    };
    list.cover_sent(&packets) || list.cover_received(&packets)
}

/// The packets that a flow sends into tunnels, with each of its outer headers into each of them.
fn sent(flow: &Flow, ports: &PortTable) -> Vec<Packets> {
    let (mut headers, mut tunnels) = (Vec::new(), Vec::new());
    visit(&flow.actions, &mut |action| match action {
        Action::SetTunnel(set) => {
            let value = |field| set.get(field).map_or(0, |(value, _)| value);
            let address = |four, six| match (value(four), value(six)) {
                (0, 0) => Addresses::Any,
                (four, 0) => Addresses::one(ipv4(four)),
                (_, six) => Addresses::one(Ipv6Addr::from_bits(six).into()),
            };
            headers.push((
                address(Field::TunnelIpv4Src, Field::TunnelIpv6Src),
                address(Field::TunnelIpv4Dst, Field::TunnelIpv6Dst),
                u16::try_from(value(Field::TunnelTpDst)).ok().filter(|port| *port != 0),
            ));
        }
        Action::Output(port) => tunnels.extend(ports.tunnel(*port).cloned()),
        _ => {}
    });
    let into = |tunnel: &Tunnel, (source, destination, udp_port): (Addresses, Addresses, Option<u16>)| Packets {
        source,
        destination,
        protocol: protocol(tunnel),
        udp_port: udp_port.or_else(|| self::udp_port(tunnel)),
    };
    let pairs = tunnels.iter().flat_map(|tunnel| headers.iter().map(move |header| into(tunnel, *header)));
    pairs.collect()
}

/// The packets with outer headers that a flow is for; `None` of a flow at another port than that of a tunnel.
fn received(flow: &Flow, ports: &PortTable) -> Option<Packets> {
    let matching = flow.matching();
    let tunnel = ports.tunnel(PortNumber(u32::try_from(matching.get(Field::InPort).0).ok()?))?;
    let addresses = |four, six| match (matching.get(four), matching.get(six)) {
        (_, (six, mask)) if mask != 0 => Addresses::Like(Ipv6Addr::from_bits(six).into(), mask),
        ((four, mask), _) if mask != 0 => Addresses::Like(ipv4(four), mask),
        _ => Addresses::Any,
    };
    Some(Packets {
        source: addresses(Field::TunnelIpv4Src, Field::TunnelIpv6Src),
        destination: addresses(Field::TunnelIpv4Dst, Field::TunnelIpv6Dst),
        protocol: protocol(tunnel),
        udp_port: udp_port(tunnel),
    })
}

const fn protocol(tunnel: &Tunnel) -> u8 {
    if tunnel.protocol.default_udp_port().is_some() { UDP } else { GRE }
}

fn udp_port(tunnel: &Tunnel) -> Option<u16> {
    tunnel.udp_port.or(tunnel.protocol.default_udp_port())
}

/// The address that a field of 32 bits has.
fn ipv4(value: u128) -> IpAddr {
    Ipv4Addr::from_bits(u32::try_from(value).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use sluice_flow::flow::Expiry;
    use sluice_flow::key::MaskedKey;
    use sluice_flow::port::{Port, PortKind, TunnelProtocol};
    use sluice_flow::priority::Priority;
    use sluice_flow::text::{parse_actions, parse_key};
    use sluice_flow::ufid::Seed;

    use super::*;
    use crate::backend::ports::table::Attached;
    use crate::wire::flower::flag;

    const INTO: &str = "set(tunnel(tun_id=0x7,src=192.0.2.1,dst=192.0.2.2,ttl=64,flags(key))),3";
    const HERE: [u8; 4] = [192, 0, 2, 1];
    const THERE: [u8; 4] = [192, 0, 2, 2];

    /// Ports 1 and 2, VXLAN at port 3 and GRE at port 4.
    fn ports() -> PortTable {
        let tunnel = |protocol, udp_port| PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: PortNumber(1) });
        let kinds = [
            ("p1", PortKind::Physical),
            ("p2", PortKind::Representor),
            ("vx0", tunnel(TunnelProtocol::Vxlan, None)),
            ("gre0", tunnel(TunnelProtocol::Gre, None)),
        ];
        (1..).zip(kinds).fold(PortTable::default(), |table, (number, (name, kind))| {
            let port = Port { number: PortNumber(number), name: name.parse().unwrap(), kind };
            table.with(Attached { port, device: None, is_made: false })
        })
    }

    fn flow(key: &str, actions: &str) -> Flow {
        let (key, actions) = (parse_key(key, &()).unwrap().matching, parse_actions(actions, &()).unwrap());
        Flow::new(None, MaskedKey::new(&key), actions, Priority::default(), Expiry::default(), &Seed([7; 16]))
    }

    #[test]
    fn what_a_flow_sends_into_tunnels_is_known_by_its_headers_and_outputs() {
        let sent = |actions: &str| sent(&flow("in_port(1),eth_type(0x0800)", actions), &ports());
        let [source, destination] = [HERE, THERE].map(|address| Addresses::one(address.into()));
        let packets = Packets { source, destination, protocol: UDP, udp_port: Some(4789) };
        assert_eq!(sent(INTO), [packets]);
        assert_eq!(sent(&INTO.replace("ttl=64", "ttl=64,tp_dst=6081")), [Packets { udp_port: Some(6081), ..packets }]);
        assert_eq!(sent(&INTO.replace("src=192.0.2.1,", "")), [Packets { source: Addresses::Any, ..packets }]);
        assert_eq!(sent(&INTO.replace("),3", "),4")), [Packets { protocol: GRE, udp_port: None, ..packets }]);
        let six = INTO.replace("src=192.0.2.1,dst=192.0.2.2", "ipv6_src=fd00::1,ipv6_dst=fd00::2");
        let [source, destination] = ["fd00::1", "fd00::2"].map(|address| Addresses::one(address.parse().unwrap()));
        assert_eq!(sent(&six), [Packets { source, destination, ..packets }]);
        assert_eq!(sent(&format!("clone({INTO}),2")), [packets], "at any depth");
        assert_eq!(sent("2"), []);
        assert_eq!(sent(&INTO.replace("),3", "),2")), [], "no header is put on there");
    }

    #[test]
    fn what_a_flow_takes_out_of_a_tunnel_is_known_by_its_port_and_outer_header() {
        let received = |key: &str| received(&flow(&format!("{key},eth_type(0x0800)"), "1"), &ports());
        let [source, destination] = [THERE, HERE].map(|address| Addresses::Like(address.into(), u32::MAX.into()));
        let packets = Packets { source, destination, protocol: UDP, udp_port: Some(4789) };
        let header = "tunnel(tun_id=0x7,src=192.0.2.2,dst=192.0.2.1,flags(+key))";
        assert_eq!(received(&format!("{header},in_port(3)")), Some(packets));
        let any = Packets { source: Addresses::Any, destination: Addresses::Any, ..packets };
        assert_eq!(received("recirc_id(0x5),in_port(3)"), Some(any));
        assert_eq!(received("in_port(4)"), Some(Packets { protocol: GRE, udp_port: None, ..any }));
        let prefix = header.replace("192.0.2.2", "192.0.0.0/255.255.0.0");
        let like = Addresses::Like([192, 0, 0, 0].into(), 0xffff_0000);
        assert_eq!(received(&format!("{prefix},in_port(3)")), Some(Packets { source: like, ..packets }));
        assert_eq!(received("in_port(1)"), None);
    }

    #[test]
    fn as_long_as_policies_cannot_be_read_rules_of_tunnels_are_kept_out_of_hardware() {
        let mut table = ports();
        let exposure = |table: &PortTable, key: &str, actions: &str| {
            table.policies.exposure(&flow(&format!("{key},eth_type(0x0800)"), actions), table)
        };
        assert_eq!([exposure(&table, "in_port(1)", INTO), exposure(&table, "in_port(3)", "1")], [None; 2]);
        assert_eq!(note(&table), None);
        table.policies = Policies::Unknown("Operation not permitted".into());
        assert_eq!(exposure(&table, "in_port(1)", INTO), Some(Exposure::Unknown));
        assert_eq!(exposure(&table, "in_port(3)", "1"), Some(Exposure::Unknown));
        assert_eq!(exposure(&table, "in_port(1)", "2"), None, "of no tunnel");
        let said = "flows of vx0, gre0 are kept out of hardware, because the policies of IPsec cannot be read: Operation not permitted";
        assert_eq!(note(&table).as_deref(), Some(said));
        let tunnel = table.tunnel(PortNumber(3)).unwrap();
        assert!(table.policies.differ(&Policies::default(), tunnel) && !table.policies.differ(&table.policies, tunnel));
    }

    #[test]
    fn a_rule_that_must_not_be_in_hardware_is_in_software_or_refused_for_as_long() {
        use OffloadPolicy::{Any, SkipHardware, SkipSoftware};
        let exposed = Some(Exposure::Sent);
        assert_eq!([flags(Any, None), flags(Any, exposed)], [Ok(flag::VERBOSE), Ok(flag::SKIP_HW)]);
        assert_eq!(flags(SkipHardware, exposed), Ok(flag::SKIP_HW));
        assert_eq!(flags(SkipSoftware, None), Ok(flag::SKIP_SW));
        let refusal = flags(SkipSoftware, exposed).unwrap_err();
        assert_eq!(refusal.cause(), Some(Cause::Module), "it is tried again when policies change");
        assert!(refusal.to_string().starts_with("action set(tunnel): a policy of IPsec is for"), "{refusal}");
    }
}
