//! Requests for sessions, read as two flows.

use std::time::Duration;

use sluice_api::openoffload::v2 as opi;
use sluice_api::openoffload::v2::{ActionType, IpVersion, ProtocolId};
use sluice_flow::field::{ETH_P_IP, ETH_P_IPV6, FRAGMENT_NO};
use sluice_flow::ufid::Seed;
use sluice_flow::{Action, ActionList, Expiry, Field, Flow, MaskedKey, Match, PortNumber, Priority};

use crate::api::errors::InputError;
use crate::service::Session;
use crate::sessions::name::{Direction, OWNER, SessionFlow, SessionId};

/// FIN, SYN and RST. Packets with one of them begin or end a connection, and stay with who keeps its state.
const CONTROL_FLAGS: u128 = 0x007;

/// The addresses of a session, those of its source first.
#[derive(Clone, Copy)]
enum Addresses {
    V4(u32, u32),
    V6(u128, u128),
}

#[derive(Clone, Copy)]
enum Protocol {
    Tcp,
    Udp,
}

/// Where packets come from and go to.
#[derive(Clone, Copy)]
struct Tuple {
    in_port: PortNumber,
    out_port: PortNumber,
    addresses: Addresses,
    protocol: Protocol,
    source_port: u16,
    destination_port: u16,
}

/// Reads a session.
pub(super) fn read_session(request: &opi::SessionRequest, seed: &Seed) -> Result<Session, InputError> {
    if request.session_id == 0 {
        return Err(InputError::new("session_id", "it is missing"));
    }
    let tuple = Tuple {
        in_port: read_port("in_lif", request.in_lif)?,
        out_port: read_port("out_lif", request.out_lif)?,
        addresses: read_addresses(request)?,
        protocol: read_protocol(request.protocol_id)?,
        source_port: read_transport_port("source_port", request.source_port)?,
        destination_port: read_transport_port("destination_port", request.destination_port)?,
    };
    let is_forwarded = read_action(request.action.as_ref())?;
    // Without a timeout of its own it has that of the configuration, as every flow.
    let idle = (request.cache_timeout > 0).then(|| Duration::from_secs(request.cache_timeout.into()));
    let expiry = Expiry { idle, ..Expiry::default() };
    let id = SessionId(request.session_id);
    let flow = |direction, tuple: Tuple| {
        let actions: ActionList = if is_forwarded { [Action::Output(tuple.out_port)].into() } else { [].into() };
        let ufid = SessionFlow { session: id, direction }.ufid();
        let matching = tuple.matching();
        let flow = Flow::new(Some(ufid), MaskedKey::new(&matching), actions, Priority::default(), expiry, seed);
        flow.with_origin(OWNER)
    };
    let (forward, reverse) = (flow(Direction::Forward, tuple), flow(Direction::Reverse, tuple.turned()));
    if forward.is_same(&reverse) {
        return Err(InputError::new("destination_port", "packets back to the source are those from it"));
    }
    Ok(Session { id, forward, reverse })
}

fn read_port(place: &'static str, number: i32) -> Result<PortNumber, InputError> {
    u32::try_from(number).map(PortNumber).map_err(|_| InputError::new(place, format!("{number} is no port")))
}

fn read_addresses(request: &opi::SessionRequest) -> Result<Addresses, InputError> {
    let other = |place| Err(InputError::new(place, "it is not of ip_version"));
    match IpVersion::try_from(request.ip_version) {
        Ok(IpVersion::Ipv4) if !request.source_ipv6.is_empty() => other("source_ipv6"),
        Ok(IpVersion::Ipv4) if !request.destination_ipv6.is_empty() => other("destination_ipv6"),
        // The bytes lie in the memory of the client in network byte order, and all that have been seen are little-endian.
        Ok(IpVersion::Ipv4) => Ok(Addresses::V4(request.source_ip.swap_bytes(), request.destination_ip.swap_bytes())),
        Ok(IpVersion::Ipv6) if request.source_ip != 0 => other("source_ip"),
        Ok(IpVersion::Ipv6) if request.destination_ip != 0 => other("destination_ip"),
        Ok(IpVersion::Ipv6) => Ok(Addresses::V6(
            read_ipv6("source_ipv6", &request.source_ipv6)?,
            read_ipv6("destination_ipv6", &request.destination_ipv6)?,
        )),
        Err(_) => Err(InputError::new("ip_version", format!("there is no {}", request.ip_version))),
    }
}

fn read_ipv6(place: &'static str, bytes: &[u8]) -> Result<u128, InputError> {
    let known: Result<[u8; 16], _> = bytes.try_into();
    known.map(u128::from_be_bytes).map_err(|_| InputError::new(place, format!("it has {} bytes, not 16", bytes.len())))
}

fn read_protocol(number: i32) -> Result<Protocol, InputError> {
    match ProtocolId::try_from(number) {
        Ok(ProtocolId::Tcp) => Ok(Protocol::Tcp),
        Ok(ProtocolId::Udp) => Ok(Protocol::Udp),
        Ok(ProtocolId::Hopopt) | Err(_) => {
            Err(InputError::new("protocol_id", format!("{number} is neither TCP (6) nor UDP (17)")))
        }
    }
}

fn read_transport_port(place: &'static str, number: u32) -> Result<u16, InputError> {
    number.try_into().map_err(|_| InputError::new(place, format!("{number} is more than {}", u16::MAX)))
}

/// Says whether packets are forwarded.
fn read_action(action: Option<&opi::ActionParameters>) -> Result<bool, InputError> {
    // What is left out would be `_DROP`.
    let number = action.ok_or_else(|| InputError::new("action", "it is missing"))?.action_type;
    match ActionType::try_from(number) {
        // Neither has a next hop. Clients of OPI put one in nevertheless, and mean nothing by it.
        Ok(ActionType::Drop) => Ok(false),
        Ok(ActionType::Forward) => Ok(true),
        Ok(kind @ (ActionType::Mirror | ActionType::Snoop)) => {
            let reason = "the copy would go to a collector with an IP address, and flows send copies to ports";
            Err(InputError::new("action", format!("{}: {reason}", kind.as_str_name())))
        }
        Err(_) => Err(InputError::new("action", format!("there is no action_type {number}"))),
    }
}

impl Tuple {
    /// That of packets back to the source.
    const fn turned(self) -> Self {
        let addresses = match self.addresses {
            Addresses::V4(source, destination) => Addresses::V4(destination, source),
            Addresses::V6(source, destination) => Addresses::V6(destination, source),
        };
        Self {
            in_port: self.out_port,
            out_port: self.in_port,
            addresses,
            protocol: self.protocol,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }

    /// Whole packets of it without a VLAN tag.
    fn matching(self) -> Match {
        let mut matching = Match::default();
        matching.set_exact(Field::RecircId, 0);
        matching.set_exact(Field::InPort, self.in_port.0.into());
        matching.set_exact(Field::VlanPresent, 0);
        let protocol = match self.protocol {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        };
        match self.addresses {
            Addresses::V4(source, destination) => {
                matching.set_exact(Field::EthType, ETH_P_IP.into());
                matching.set_exact(Field::Ipv4Src, source.into());
                matching.set_exact(Field::Ipv4Dst, destination.into());
                matching.set_exact(Field::Ipv4Proto, protocol);
                matching.set_exact(Field::Ipv4Frag, FRAGMENT_NO.into());
            }
            Addresses::V6(source, destination) => {
                matching.set_exact(Field::EthType, ETH_P_IPV6.into());
                matching.set_exact(Field::Ipv6Src, source);
                matching.set_exact(Field::Ipv6Dst, destination);
                matching.set_exact(Field::Ipv6Proto, protocol);
                matching.set_exact(Field::Ipv6Frag, FRAGMENT_NO.into());
            }
        }
        match self.protocol {
            Protocol::Tcp => {
                matching.set_exact(Field::TcpSrc, self.source_port.into());
                matching.set_exact(Field::TcpDst, self.destination_port.into());
                matching.set(Field::TcpFlags, 0, CONTROL_FLAGS);
            }
            Protocol::Udp => {
                matching.set_exact(Field::UdpSrc, self.source_port.into());
                matching.set_exact(Field::UdpDst, self.destination_port.into());
            }
        }
        matching
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;
    use prost::Message;
    use sluice_flow::Port;
    use sluice_flow::backend::{BackendConfig as _, Checker};
    use sluice_flow::port::{PortKind, PortNumber};
    use sluice_flow::text::{Style, parse_key, write_actions, write_key};

    use super::*;

    const SEED: Seed = Seed([7; 16]);

    fn request() -> opi::SessionRequest {
        let address = |text: &str| u32::from_le_bytes(text.parse::<Ipv4Addr>().unwrap().octets());
        opi::SessionRequest {
            session_id: 1001,
            in_lif: 1,
            out_lif: 2,
            source_ip: address("10.0.0.1"),
            source_port: 12_345,
            destination_ip: address("10.1.0.3"),
            destination_port: 80,
            protocol_id: ProtocolId::Tcp.into(),
            action: Some(action(ActionType::Forward.into())),
            cache_timeout: 30,
            ..opi::SessionRequest::default()
        }
    }

    fn action(action_type: i32) -> opi::ActionParameters {
        opi::ActionParameters { action_type, action_next_hop: 7, ..opi::ActionParameters::default() }
    }

    /// Match and actions of a flow.
    fn text(flow: &Flow) -> (String, String) {
        let (mut key, mut actions) = (String::new(), String::new());
        write_key(&mut key, &flow.matching(), &Style::default()).unwrap();
        write_actions(&mut actions, &flow.actions, &Style::default()).unwrap();
        (key, actions)
    }

    #[test]
    fn a_session_is_a_flow_for_each_direction() {
        let Session { id, forward, reverse } = read_session(&request(), &SEED).unwrap();
        assert_eq!(id, SessionId(1001));
        let key = |text: &str| MaskedKey::new(&parse_key(text, &()).unwrap().matching);
        let expected = "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.1.0.3,proto=6,frag=no),\
                        tcp(src=12345,dst=80),tcp_flags(-fin-syn-rst)";
        assert_eq!((forward.matching(), text(&forward).1), (key(expected), "2".to_owned()));
        let expected = "in_port(2),eth_type(0x0800),ipv4(src=10.1.0.3,dst=10.0.0.1,proto=6,frag=no),\
                        tcp(src=80,dst=12345),tcp_flags(-fin-syn-rst)";
        assert_eq!((reverse.matching(), text(&reverse).1), (key(expected), "1".to_owned()));
        for (flow, direction) in [(&forward, Direction::Forward), (&reverse, Direction::Reverse)] {
            assert_eq!(SessionFlow::of(flow), Some(SessionFlow { session: id, direction }));
            assert_eq!(flow.expiry, Expiry { idle: Some(Duration::from_secs(30)), ..Expiry::default() });
        }
    }

    fn ipv6_dropped() -> opi::SessionRequest {
        opi::SessionRequest {
            ip_version: IpVersion::Ipv6.into(),
            source_ip: 0,
            destination_ip: 0,
            source_ipv6: vec![0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            destination_ipv6: vec![0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            protocol_id: ProtocolId::Udp.into(),
            action: Some(action(ActionType::Drop.into())),
            cache_timeout: 0,
            ..request()
        }
    }

    #[test]
    fn a_session_of_ipv6_and_udp_that_drops_has_the_timeout_of_the_configuration() {
        let Session { forward, reverse, .. } = read_session(&ipv6_dropped(), &SEED).unwrap();
        let (key, actions) = text(&forward);
        assert!(key.contains("ipv6(src=2001:db8::1,dst=2001:db8::2,proto=17,frag=no),udp(src=12345,dst=80)"), "{key}");
        assert_eq!((actions.as_str(), text(&reverse).1.as_str()), ("drop", "drop"));
        assert_eq!(forward.expiry, Expiry::default());
    }

    /// Whether a backend would ask its device for the flows of sessions.
    fn takes(mut checker: Box<dyn Checker>) {
        for (number, name) in [(1, "client"), (2, "server")] {
            let port = Port { number: PortNumber(number), name: name.parse().unwrap(), kind: PortKind::Representor };
            checker.port(&port).unwrap();
        }
        for request in [request(), ipv6_dropped()] {
            let Session { forward, reverse, .. } = read_session(&request, &SEED).unwrap();
            for flow in [forward, reverse] {
                checker.flow(&flow).unwrap();
            }
        }
    }

    #[test]
    fn every_backend_takes_sessions() {
        takes(sluice_offload_tc::Config::default().checker());
        takes(sluice_offload_dv::Config::default().checker());
        takes(sluice_offload_soft::Config::default().checker());
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_message_or_a_reason_or_two_flows(bytes: Vec<u8>, place in 0..40_usize, byte: u8) {
            let mut changed = request().encode_to_vec();
            if let Some(place) = changed.get_mut(place) {
                *place = byte;
            }
            for bytes in [bytes, changed] {
                let Ok(request) = opi::SessionRequest::decode(bytes.as_slice()) else { continue };
                let Ok(session) = read_session(&request, &SEED) else { continue };
                let ports = |flow: &Flow| [Field::InPort, Field::TcpSrc, Field::TcpDst].map(|field| flow.matching().get(field).0);
                let [in_port, source, destination] = ports(&session.forward);
                prop_assert_eq!([in_port, source], [u128::try_from(request.in_lif).unwrap(), request.source_port.into()]);
                prop_assert_eq!(ports(&session.reverse), [u128::try_from(request.out_lif).unwrap(), destination, source]);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_the_name_of_its_field() {
        let wrong = |change: &dyn Fn(&mut opi::SessionRequest)| {
            let mut request = request();
            change(&mut request);
            read_session(&request, &SEED).unwrap_err().to_string()
        };
        let mirror =
            "action: _MIRROR: the copy would go to a collector with an IP address, and flows send copies to ports";
        assert_eq!(wrong(&|request| request.action = Some(action(ActionType::Mirror.into()))), mirror);
        for (place, reason) in [
            ("session_id: ", wrong(&|request| request.session_id = 0)),
            ("in_lif: ", wrong(&|request| request.in_lif = -1)),
            ("out_lif: ", wrong(&|request| request.out_lif = i32::MIN)),
            ("ip_version: ", wrong(&|request| request.ip_version = 2)),
            ("source_ipv6: ", wrong(&|request| request.source_ipv6 = vec![0; 16])),
            ("destination_ipv6: ", wrong(&|request| request.destination_ipv6 = vec![0])),
            ("source_ip: ", wrong(&|request| request.ip_version = IpVersion::Ipv6.into())),
            ("source_port: ", wrong(&|request| request.source_port = 65_536)),
            ("destination_port: ", wrong(&|request| request.destination_port = u32::MAX)),
            ("protocol_id: 1 is", wrong(&|request| request.protocol_id = 1)),
            ("protocol_id: 0 is", wrong(&|request| request.protocol_id = 0)),
            ("action: it is missing", wrong(&|request| request.action = None)),
            ("action: _SNOOP", wrong(&|request| request.action = Some(action(ActionType::Snoop.into())))),
            ("action: there is no", wrong(&|request| request.action = Some(action(4)))),
        ] {
            assert!(reason.starts_with(place), "{reason}");
        }
        let to_itself = wrong(&|request| {
            request.out_lif = request.in_lif;
            (request.destination_ip, request.destination_port) = (request.source_ip, request.source_port);
        });
        assert!(to_itself.starts_with("destination_port: "), "{to_itself}");
    }
}
