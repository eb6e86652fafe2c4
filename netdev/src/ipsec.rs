//! Policies of IPsec: which packets the kernel encrypts on their way, or lets pass only if they came encrypted
//! (`include/uapi/linux/xfrm.h`).

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;

use crate::control::{Control, ROOM, receive};
use crate::error::LinkError;
use crate::netlink::attribute::{Attributes, Fields, Malformed, Writer};
use crate::netlink::message::Message;

/// `XFRM_MSG_NEWPOLICY` and `XFRM_MSG_GETPOLICY`
const NEW_POLICY: u16 = 0x13;
const GET_POLICY: u16 = 0x15;
/// `XFRM_MSG_GETDEFAULT`, since Linux 5.15. Also what the kernel notifies of another default as.
const GET_DEFAULT: u16 = 0x28;
/// `XFRMNLGRP_POLICY`
const GROUP: u32 = 4;
/// Bytes of `struct xfrm_userpolicy_info`, behind which attributes follow; and where in it the direction is.
const POLICY: usize = 168;
const DIRECTION: usize = 160;
/// Of packets that end here, that leave, and that are forwarded (`XFRM_POLICY_IN`, `XFRM_POLICY_OUT` and `XFRM_POLICY_FWD`).
const IN: u8 = 0;
const OUT: u8 = 1;
const FORWARD: u8 = 2;
/// `IPPROTO_UDP`
const UDP: u8 = 17;
/// `XFRM_USERPOLICY_BLOCK`
const BLOCK: u8 = 1;
/// `XFRM_POLICY_ALLOW`
const ALLOW: u8 = 0;
/// `XFRMA_TMPL`, `XFRMA_MARK` and `XFRMA_IF_ID`
const TEMPLATES: u16 = 5;
const MARK: u16 = 21;
const INTERFACE: u16 = 31;

/// The policies of the network namespace of the thread that opened it.
pub struct IpsecPolicies {
    /// Of changes, and for requests; none of a kernel that has no policies.
    sockets: Option<(Socket, Control)>,
    policies: PolicyList,
    /// Something has changed since they were read.
    is_behind: bool,
    buffer: Vec<u8>,
}

/// The policies of one time, which any thread may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyList(Vec<Policy>);

/// Packets that this host sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Where they come from.
    pub source: Addresses,
    /// Where they go.
    pub destination: Addresses,
    /// Of IP.
    pub protocol: u8,
    /// Where datagrams of UDP go; `None` if that is not known, and of other protocols.
    pub udp_port: Option<u16>,
}

/// Addresses that are alike under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// All of both versions of IP.
    Any,
    /// Those that are like this one under a mask, in whose last 32 bits that of an address of IPv4 is.
    Like(IpAddr, u128),
}

/// Packets without a mark of an ordinary device, and what they must not do in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Policy {
    direction: u8,
    source: Prefix,
    destination: Prefix,
    /// 0 is any.
    protocol: u8,
    /// The port that datagrams go to, and its mask.
    port: (u16, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Prefix {
    address: IpAddr,
    length: u8,
}

impl IpsecPolicies {
    /// Reads them, and listens to changes.
    pub fn open() -> Result<Self, LinkError> {
        let sockets = match open() {
            Ok(sockets) => Some(sockets),
            Err(LinkError::Socket { source, .. })
                if source.raw_os_error() == Some(Errno::PROTONOSUPPORT.raw_os_error()) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        let (policies, is_behind) = (PolicyList::default(), true);
        let mut policies = Self { sockets, policies, is_behind, buffer: vec![0; ROOM] };
        policies.read()?;
        Ok(policies)
    }

    /// Becomes readable when something has changed, if the kernel has policies.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().map(|(notifications, _)| notifications.as_fd())
    }

    /// Follows what has changed, if anything has, and says so. Does not wait. After an error, the next call reads what this one could not.
    pub fn renew(&mut self) -> Result<bool, LinkError> {
        let Some((notifications, _)) = &self.sockets else { return Ok(false) };
        loop {
            match receive(notifications, &mut self.buffer) {
                Ok(None) => break,
                Ok(Some(_)) => self.is_behind = true,
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => self.is_behind = true,
                Err(source) => return Err(LinkError::Socket { step: "listen", source }),
            }
        }
        let has_changed = self.is_behind;
        if has_changed {
            self.read()?;
        }
        Ok(has_changed)
    }

    /// Returns them as they are known now.
    pub const fn list(&self) -> &PolicyList {
        &self.policies
    }

    /// Whether a policy may be for packets of a protocol from one address to another that leave or are forwarded. Their ports are not looked at.
    pub fn cover(&self, source: IpAddr, destination: IpAddr, protocol: u8) -> bool {
        let [source, destination] = [source, destination].map(Addresses::one);
        let packets = Packets { source, destination, protocol, udp_port: None };
        self.policies.cover(&[OUT, FORWARD], &packets)
    }

    fn read(&mut self) -> Result<(), LinkError> {
        if let Some((_, control)) = &mut self.sockets {
            let each = |found: &mut Vec<Policy>, message: &Message<'_>| {
                found.extend(policy(message)?);
                Ok(())
            };
            let mut found = control.dump("list the policies of IPsec", GET_POLICY, |_| (), each)?;
            found.extend(defaults(control)?);
            self.policies = PolicyList(found);
        }
        self.is_behind = false;
        Ok(())
    }
}

impl PolicyList {
    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns those that are in one of two lists only: what has come and what has gone between two times.
    pub fn difference(&self, other: &Self) -> Self {
        let [these, those] = [self, other].map(|list| list.0.iter().copied().collect::<HashSet<_>>());
        Self(these.symmetric_difference(&those).copied().collect())
    }

    /// Whether a policy may be for packets that this host sends, so that it does not send all of them as they are.
    pub fn cover_sent(&self, packets: &Packets) -> bool {
        self.cover(&[OUT], packets)
    }

    /// Whether a policy may be for packets that end at this host, so that it does not take all of them that come as they are.
    pub fn cover_received(&self, packets: &Packets) -> bool {
        self.cover(&[IN], packets)
    }

    /// Source ports are not looked at: those of packets of tunnels are different for each.
    fn cover(&self, directions: &[u8], packets: &Packets) -> bool {
        let Packets { source, destination, protocol, udp_port } = packets;
        let goes_there = |(port, mask): (u16, u16)| udp_port.is_none_or(|other| (port ^ other) & mask == 0);
        self.0.iter().any(|policy| {
            directions.contains(&policy.direction)
                && (policy.protocol == 0 || policy.protocol == *protocol)
                && (*protocol != UDP || goes_there(policy.port))
                && policy.source.meets(source)
                && policy.destination.meets(destination)
        })
    }
}

impl Addresses {
    /// Only this one.
    pub const fn one(address: IpAddr) -> Self {
        Self::Like(address, u128::MAX)
    }
}

impl Prefix {
    /// Whether it has one of these addresses.
    fn meets(&self, addresses: &Addresses) -> bool {
        let Addresses::Like(address, mask) = addresses else { return true };
        let (bits, differs) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (32, u128::from(own.to_bits() ^ other.to_bits())),
            (IpAddr::V6(own), IpAddr::V6(other)) => (128, own.to_bits() ^ other.to_bits()),
            _ => return false,
        };
        let beyond = u32::saturating_sub(bits, self.length.into());
        (differs & mask).checked_shr(beyond).unwrap_or(0) == 0
    }
}

fn open() -> Result<(Socket, Control), LinkError> {
    let failed = |step| move |source| LinkError::Socket { step, source };
    let mut socket = Socket::new(NETLINK_XFRM).map_err(failed("open"))?;
    socket.bind(&SocketAddr::new(0, 0)).map_err(failed("bind"))?;
    socket.add_membership(GROUP).map_err(failed("join a multicast group"))?;
    Ok((socket, Control::ipsec()?))
}

/// What packets that no policy is for must not do in the clear (`ip xfrm policy setdefault`).
fn defaults(control: &mut Control) -> Result<Vec<Policy>, LinkError> {
    let mut found = Vec::new();
    // `struct xfrm_userpolicy_default`
    let body = |writer: &mut Writer<'_>| writer.raw(&[0; 3]);
    let asked = control.request("look up the default policies of IPsec", GET_DEFAULT, 0, body, |message| {
        found.extend(default_policies(message)?);
        Ok(())
    });
    match asked {
        // Linux before 5.15 has none.
        Err(LinkError::Refused { reason, .. }) if reason.errno == Errno::INVAL => Ok(found),
        asked => asked.map(|()| found),
    }
}

/// Reads the defaults. One that lets nothing pass is a policy for all packets: which of them have one of their own does not matter then.
fn default_policies(message: &Message<'_>) -> Result<Vec<Policy>, Malformed> {
    if message.header.kind != GET_DEFAULT {
        return Ok(Vec::new());
    }
    let of_directions: [u8; 3] = Fields::new(message.payload, "default policies of IPsec").bytes()?;
    let blocked = of_directions.into_iter().zip([IN, FORWARD, OUT]).filter(|(default, _)| *default == BLOCK);
    let families: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let all = |direction| {
        families.map(|address| {
            let all = Prefix { address, length: 0 };
            Policy { direction, source: all, destination: all, protocol: 0, port: (0, 0) }
        })
    };
    Ok(blocked.flat_map(|(_, direction)| all(direction)).collect())
}

/// Reads a policy; `None` of one that lets packets pass as they are. Those with a number of an interface or a mark are for packets that
/// a device of IPsec has, which is no port.
fn policy(message: &Message<'_>) -> Result<Option<Policy>, Malformed> {
    let place = "policy of IPsec";
    if message.header.kind != NEW_POLICY {
        return Ok(None);
    }
    let mut fields = Fields::new(message.payload, place);
    let (destination, source): ([u8; 16], [u8; 16]) = (fields.bytes()?, fields.bytes()?);
    let [high, low, mask_high, mask_low, ..]: [u8; 8] = fields.bytes()?;
    let family = fields.u16()?;
    let [to, from, protocol] = fields.bytes()?;
    let rest = message.payload.get(DIRECTION..).unwrap_or_default();
    let [direction, action] = Fields::new(rest, place).bytes()?;
    let (mut changes, mut is_of_device) = (action != ALLOW, false);
    for attribute in Attributes::new(message.payload.get(POLICY..).unwrap_or_default(), place) {
        let attribute = attribute?;
        match attribute.kind {
            TEMPLATES => changes |= !attribute.payload.is_empty(),
            // A value, which packets without a mark have only if it is 0, and a mask.
            MARK => is_of_device |= Fields::new(attribute.payload, place).u32()? != 0,
            INTERFACE => is_of_device |= attribute.u32()? != 0,
            _ => {}
        }
    }
    // Those of sockets have directions of their own.
    let is_of_all = matches!(direction, IN | OUT | FORWARD);
    if !changes || is_of_device || !is_of_all {
        return Ok(None);
    }
    let prefix = |address: [u8; 16], length| {
        let [a, b, c, d, ..] = address;
        let address = if family == 2 { [a, b, c, d].into() } else { address.into() };
        Prefix { address, length }
    };
    let port = (u16::from_be_bytes([high, low]), u16::from_be_bytes([mask_high, mask_low]));
    let (source, destination) = (prefix(source, from), prefix(destination, to));
    Ok(Some(Policy { direction, source, destination, protocol, port }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::{Header, Messages, write};

    const TCP: u8 = 6;

    /// What is read of a policy from 10.1.0.0/16 to 10.9.0.0/20 of any protocol, in a direction, with an action and attributes.
    fn read(direction: u8, action: u8, attributes: impl FnOnce(&mut Writer<'_>)) -> Option<Policy> {
        let mut bytes = Vec::new();
        let header = Header { kind: NEW_POLICY, flags: 0, sequence: 0, port: 0 };
        write(&mut bytes, header, |writer| {
            let mut info = [0; POLICY];
            info[..4].copy_from_slice(&[10, 9, 0, 0]);
            info[16..20].copy_from_slice(&[10, 1, 0, 0]);
            info[40..42].copy_from_slice(&2u16.to_ne_bytes());
            info[42..45].copy_from_slice(&[20, 16, 0]);
            info[160..162].copy_from_slice(&[direction, action]);
            writer.raw(&info);
            attributes(writer);
        })
        .unwrap();
        policy(&Messages::new(&bytes).next().unwrap().unwrap()).unwrap()
    }

    /// `struct xfrm_user_tmpl`
    fn templates(writer: &mut Writer<'_>) {
        writer.put(TEMPLATES, &[0; 64]);
    }

    fn marked(writer: &mut Writer<'_>, value: u32, mask: u32) {
        templates(writer);
        writer.put(MARK, &[value.to_ne_bytes(), mask.to_ne_bytes()].concat());
    }

    #[test]
    fn a_policy_covers_what_is_forwarded_between_its_prefixes_in_its_direction() {
        let policy = read(OUT, ALLOW, templates).unwrap();
        assert_eq!(read(FORWARD, ALLOW, templates), Some(Policy { direction: FORWARD, ..policy }));
        assert_eq!(read(OUT, 1, |_| ()), Some(policy), "it lets nothing pass");
        let covers = |source: [u8; 4], destination: [u8; 4], protocol| {
            let list = PolicyList(vec![Policy { protocol, ..policy }]);
            let policies = IpsecPolicies { sockets: None, policies: list, is_behind: false, buffer: vec![] };
            assert!(!policies.cover("fd01::1".parse().unwrap(), "fd09::1".parse().unwrap(), TCP));
            policies.cover(source.into(), destination.into(), TCP)
        };
        assert!(covers([10, 1, 255, 1], [10, 9, 15, 1], 0) && covers([10, 1, 0, 1], [10, 9, 0, 1], TCP));
        assert!(!covers([10, 2, 0, 1], [10, 9, 0, 1], 0) && !covers([10, 1, 0, 1], [10, 9, 16, 1], 0));
        assert!(!covers([10, 9, 0, 1], [10, 1, 0, 1], 0), "the other direction has one of its own");
        assert!(!covers([10, 1, 0, 1], [10, 9, 0, 1], UDP));
    }

    #[test]
    fn datagrams_are_covered_by_where_they_go_and_what_is_not_known_of_packets_may_be_anything() {
        let datagrams = |port: u16| {
            let mut policy = read(OUT, ALLOW, templates).unwrap();
            (policy.protocol, policy.port) = (UDP, (port, u16::MAX));
            PolicyList(vec![policy])
        };
        let [source, destination] =
            [[10, 1, 0, 1], [10, 9, 0, 1]].map(|address: [u8; 4]| Addresses::one(address.into()));
        let packets = Packets { source, destination, protocol: UDP, udp_port: Some(4789) };
        assert!(datagrams(4789).cover_sent(&packets) && !datagrams(4790).cover_sent(&packets));
        assert!(datagrams(4790).cover_sent(&Packets { udp_port: None, ..packets }));
        assert!(!datagrams(4789).cover_received(&packets), "the other direction has one of its own");
        let received = PolicyList(vec![read(IN, ALLOW, templates).unwrap()]);
        assert!(received.cover_received(&packets) && !received.cover_sent(&packets));
        // Of GRE, what is in the place of ports is its key.
        let mut keyed = datagrams(7);
        keyed.0[0].protocol = 47;
        assert!(keyed.cover_sent(&Packets { protocol: 47, udp_port: None, ..packets }));
        let like = |address: [u8; 4], mask| Packets { source: Addresses::Like(address.into(), mask), ..packets };
        assert!(received.cover_received(&like([10, 0, 0, 9], 0xff00_00ff)));
        assert!(!received.cover_received(&like([11, 0, 0, 9], 0xff00_00ff)));
        assert!(received.cover_received(&Packets { source: Addresses::Any, ..packets }));
    }

    #[test]
    fn lists_differ_in_what_has_come_and_in_what_has_gone() {
        let [out, forward] = [OUT, FORWARD].map(|direction| read(direction, ALLOW, templates).unwrap());
        let [before, after] = [vec![out, out], vec![forward, out]].map(PolicyList);
        let came = PolicyList(vec![forward]);
        assert_eq!([before.difference(&after), after.difference(&before)], [came.clone(), came]);
        assert_eq!(PolicyList::default().difference(&PolicyList(vec![out])), PolicyList(vec![out]));
        assert!(after.difference(&PolicyList(vec![out, forward])).is_empty(), "their order is nothing");
    }

    #[test]
    fn policies_that_leave_packets_as_they_are_or_are_for_devices_of_ipsec_are_passed_over() {
        assert_eq!(read(OUT, ALLOW, |_| ()), None, "a bypass");
        assert_eq!(read(IN, ALLOW, |_| ()), None);
        assert_eq!(read(3, ALLOW, templates), None, "of a socket");
        assert_eq!(read(OUT, ALLOW, |writer| marked(writer, 7, u32::MAX)), None);
        assert!(read(OUT, ALLOW, |writer| marked(writer, 0, 0)).is_some());
        let of_interface = |number: u32| {
            read(OUT, ALLOW, |writer| {
                templates(writer);
                writer.put(INTERFACE, &number.to_ne_bytes());
            })
        };
        assert_eq!(of_interface(3), None);
        assert!(of_interface(0).is_some());
    }

    #[test]
    fn a_default_that_lets_nothing_pass_is_a_policy_for_all_packets_of_its_direction() {
        let defaults = |of_directions: &[u8; 3]| {
            let mut bytes = Vec::new();
            let header = Header { kind: GET_DEFAULT, flags: 0, sequence: 0, port: 0 };
            write(&mut bytes, header, |writer| writer.raw(of_directions)).unwrap();
            PolicyList(default_policies(&Messages::new(&bytes).next().unwrap().unwrap()).unwrap())
        };
        let packets = |source: &str, destination: &str| Packets {
            source: Addresses::one(source.parse().unwrap()),
            destination: Addresses::one(destination.parse().unwrap()),
            protocol: UDP,
            udp_port: Some(4789),
        };
        let accepts = 2;
        assert!(defaults(&[accepts; 3]).is_empty());
        for packets in [packets("192.0.2.1", "198.51.100.1"), packets("fd01::1", "fd02::1")] {
            let covered = |list: &PolicyList| {
                [list.cover_received(&packets), list.cover(&[FORWARD], &packets), list.cover_sent(&packets)]
            };
            assert_eq!(covered(&defaults(&[BLOCK, accepts, accepts])), [true, false, false]);
            assert_eq!(covered(&defaults(&[accepts, BLOCK, accepts])), [false, true, false]);
            assert_eq!(covered(&defaults(&[0, accepts, BLOCK])), [false, false, true]);
        }
    }

    #[test]
    fn prefixes_of_any_length_have_the_addresses_that_begin_so() {
        let has = |prefix: &str, length, address: &str| {
            Prefix { address: prefix.parse().unwrap(), length }.meets(&Addresses::one(address.parse().unwrap()))
        };
        assert!(has("0.0.0.0", 0, "203.0.113.9") && has("::", 0, "fd01::1"));
        assert!(has("192.0.2.1", 32, "192.0.2.1") && !has("192.0.2.1", 32, "192.0.2.0"));
        assert!(has("fd01::", 64, "fd01::1:2:3:4") && !has("fd01::", 64, "fd01:0:0:1::"));
        assert!(has("fd01::1", 128, "fd01::1") && !has("fd01::1", 128, "fd01::"));
        assert!(!has("0.0.0.0", 0, "::"), "of the other family");
    }
}
