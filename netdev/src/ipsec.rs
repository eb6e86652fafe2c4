//! Policies of IPsec: which packets the kernel encrypts on their way, or lets pass only if they came encrypted
//! (`include/uapi/linux/xfrm.h`).

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;

use crate::control::{Control, ROOM, receive};
use crate::error::LinkError;
use crate::netlink::attribute::{Attributes, Fields, Malformed};
use crate::netlink::message::Message;

/// `XFRM_MSG_NEWPOLICY` and `XFRM_MSG_GETPOLICY`
const NEW_POLICY: u16 = 0x13;
const GET_POLICY: u16 = 0x15;
/// `XFRMNLGRP_POLICY`
const GROUP: u32 = 4;
/// Bytes of `struct xfrm_userpolicy_info`, behind which attributes follow; and where in it the direction is.
const POLICY: usize = 168;
const DIRECTION: usize = 160;
/// Of packets that leave, and of those that are forwarded (`XFRM_POLICY_OUT` and `XFRM_POLICY_FWD`).
const OUT: u8 = 1;
const FORWARD: u8 = 2;
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
    policies: Vec<Policy>,
    buffer: Vec<u8>,
}

/// Packets without a mark that leave by an ordinary device, and what they must not do in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    source: Prefix,
    destination: Prefix,
    /// 0 is any.
    protocol: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        let mut policies = Self { sockets, policies: Vec::new(), buffer: vec![0; ROOM] };
        policies.read()?;
        Ok(policies)
    }

    /// Becomes readable when something has changed, if the kernel has policies.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.as_ref().map(|(notifications, _)| notifications.as_fd())
    }

    /// Follows what has changed, if anything has, and says so. Does not wait.
    pub fn renew(&mut self) -> Result<bool, LinkError> {
        let Some((notifications, _)) = &self.sockets else { return Ok(false) };
        let mut has_changed = false;
        loop {
            match receive(notifications, &mut self.buffer) {
                Ok(None) => break,
                Ok(Some(_)) => has_changed = true,
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => has_changed = true,
                Err(source) => return Err(LinkError::Socket { step: "listen", source }),
            }
        }
        if has_changed {
            self.read()?;
        }
        Ok(has_changed)
    }

    /// Whether a policy may be for packets of a protocol from one address to another. Their ports are not looked at.
    pub fn cover(&self, source: IpAddr, destination: IpAddr, protocol: u8) -> bool {
        self.policies.iter().any(|policy| {
            (policy.protocol == 0 || policy.protocol == protocol)
                && policy.source.has(source)
                && policy.destination.has(destination)
        })
    }

    fn read(&mut self) -> Result<(), LinkError> {
        if let Some((_, control)) = &mut self.sockets {
            let each = |found: &mut Vec<Policy>, message: &Message<'_>| {
                found.extend(policy(message)?);
                Ok(())
            };
            self.policies = control.dump("list the policies of IPsec", GET_POLICY, |_| (), each)?;
        }
        Ok(())
    }
}

impl Prefix {
    fn has(&self, address: IpAddr) -> bool {
        let (bits, differs) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (32, u128::from(own.to_bits() ^ other.to_bits())),
            (IpAddr::V6(own), IpAddr::V6(other)) => (128, own.to_bits() ^ other.to_bits()),
            _ => return false,
        };
        let beyond = u32::saturating_sub(bits, self.length.into());
        differs.checked_shr(beyond).unwrap_or(0) == 0
    }
}

fn open() -> Result<(Socket, Control), LinkError> {
    let failed = |step| move |source| LinkError::Socket { step, source };
    let mut socket = Socket::new(NETLINK_XFRM).map_err(failed("open"))?;
    socket.bind(&SocketAddr::new(0, 0)).map_err(failed("bind"))?;
    socket.add_membership(GROUP).map_err(failed("join a multicast group"))?;
    Ok((socket, Control::ipsec()?))
}

/// Reads a policy; `None` of one that lets what is forwarded pass as it is. Those with a number of an interface or a mark are for packets that
/// a device of IPsec has, which is no port.
fn policy(message: &Message<'_>) -> Result<Option<Policy>, Malformed> {
    let place = "policy of IPsec";
    if message.header.kind != NEW_POLICY {
        return Ok(None);
    }
    let mut fields = Fields::new(message.payload, place);
    let (destination, source): ([u8; 16], [u8; 16]) = (fields.bytes()?, fields.bytes()?);
    let _ports: [u8; 8] = fields.bytes()?;
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
    let is_forwarded = matches!(direction, OUT | FORWARD);
    if !changes || is_of_device || !is_forwarded {
        return Ok(None);
    }
    let prefix = |address: [u8; 16], length| {
        let [a, b, c, d, ..] = address;
        let address = if family == 2 { [a, b, c, d].into() } else { address.into() };
        Prefix { address, length }
    };
    Ok(Some(Policy { source: prefix(source, from), destination: prefix(destination, to), protocol }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute::Writer;
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
        assert_eq!(read(FORWARD, ALLOW, templates), Some(policy));
        assert_eq!(read(OUT, 1, |_| ()), Some(policy), "it lets nothing pass");
        let mut policies = IpsecPolicies { sockets: None, policies: vec![policy], buffer: vec![] };
        let mut covers = |source: [u8; 4], destination: [u8; 4], protocol| {
            policies.policies[0].protocol = protocol;
            policies.cover(source.into(), destination.into(), TCP)
        };
        assert!(covers([10, 1, 255, 1], [10, 9, 15, 1], 0) && covers([10, 1, 0, 1], [10, 9, 0, 1], TCP));
        assert!(!covers([10, 2, 0, 1], [10, 9, 0, 1], 0) && !covers([10, 1, 0, 1], [10, 9, 16, 1], 0));
        assert!(!covers([10, 9, 0, 1], [10, 1, 0, 1], 0), "the other direction has one of its own");
        assert!(!covers([10, 1, 0, 1], [10, 9, 0, 1], 17));
        assert!(!policies.cover("fd01::1".parse().unwrap(), "fd09::1".parse().unwrap(), TCP));
    }

    #[test]
    fn policies_that_leave_packets_as_they_are_or_are_for_devices_of_ipsec_are_passed_over() {
        assert_eq!(read(OUT, ALLOW, |_| ()), None, "a bypass");
        assert_eq!(read(0, ALLOW, templates), None, "what ends here is not forwarded");
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
    fn prefixes_of_any_length_have_the_addresses_that_begin_so() {
        let has = |prefix: &str, length, address: &str| {
            Prefix { address: prefix.parse().unwrap(), length }.has(address.parse().unwrap())
        };
        assert!(has("0.0.0.0", 0, "203.0.113.9") && has("::", 0, "fd01::1"));
        assert!(has("192.0.2.1", 32, "192.0.2.1") && !has("192.0.2.1", 32, "192.0.2.0"));
        assert!(has("fd01::", 64, "fd01::1:2:3:4") && !has("fd01::", 64, "fd01:0:0:1::"));
        assert!(has("fd01::1", 128, "fd01::1") && !has("fd01::1", 128, "fd01::"));
        assert!(!has("0.0.0.0", 0, "::"), "of the other family");
    }
}
