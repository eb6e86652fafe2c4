//! Packets of tunnel ports: by which outer headers they are known, and what a flow may match of these.
//!
//! Such a packet stays as it is until the last rule: the keys of all its flows are inside, and a miss shows it as it came in.

use sluice_flow::consume::Remainder;
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::port::{PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::refusal::Refusal;

use super::bits::Bits;
use super::geneve::{self, GeneveOption};
use super::places::{
    CVLAN_TAG, DST_IPV4, DST_IPV6, ETHERTYPE, FRAGMENT, GENEVE_OAM, GENEVE_OPT_LEN, GENEVE_PROTOCOL_TYPE, GENEVE_VNI,
    GRE_C_PRESENT, GRE_K_PRESENT, GRE_KEY, GRE_PROTOCOL, IP_DSCP_ECN, IP_PROTOCOL, IP_VERSION, Place, SOURCE_PORT,
    SRC_IPV4, SRC_IPV6, SVLAN_TAG, TTL_HOPLIMIT, TUNNEL_HEADER_0, TUNNEL_HEADER_1, UDP_DPORT, UDP_SPORT,
};
use super::vports::{UPLINK, Vports};
use crate::mlx5::MatchParameter;

/// Ethernet type, version and protocol numbers of IP.
const VERSIONS: [(u128, u128); 2] = [(0x0800, 4), (0x86dd, 6)];
const IPPROTO_UDP: u8 = 17;
const IPPROTO_GRE: u8 = 47;
/// Transparent Ethernet bridging: a frame with its Ethernet header is inside.
const ETH_P_TEB: u128 = 0x6558;

/// The bits of [`sluice_flow::field::TUNNEL_FLAGS`].
const DONT_FRAGMENT: u128 = 1;
const CHECKSUM: u128 = 2;
const KEY: u128 = 4;
const CONTROL: u128 = 8;

/// First words of VXLAN headers that Linux takes (`vxlan_rcv`), under their masks: without a group policy, and with one.
const VXLAN_WORDS: [(u128, u128); 2] = [(0xffff_ffff, 0x0800_0000), (0xff00_0000, 0x8800_0000)];
/// The bit that says that there is a group policy.
const VXLAN_GBP: u128 = 0x8000_0000;
/// What a group policy has besides its id: do not learn, and policy applied (`struct vxlanhdr_gbp`).
const POLICY_FLAGS: u128 = 0x48;

/// The outer headers by which packets of a tunnel port are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entrance {
    /// The vport that they come from.
    pub underlay: u16,
    /// The encapsulation.
    pub protocol: Protocol,
}

/// An encapsulation that the device looks into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RFC 7348 with the group policy extension.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// Ethernet in GRE (RFC 2784, RFC 2890).
    Gre,
}

impl Entrance {
    /// Returns that of a tunnel port. Fails for a tunnel that the device does not look into.
    pub fn of(port: PortNumber, tunnel: &Tunnel, vports: &dyn Vports) -> Result<Self, Refusal> {
        let refuse =
            |reason: String| Refusal::Port { port: port.to_string(), number: Some(port), reason: reason.into() };
        let protocol = Protocol::of(tunnel).map_err(refuse)?;
        let underlay = vports.vport(tunnel.underlay)?;
        if underlay != UPLINK {
            return Err(refuse("the device takes tunnel headers off packets from the uplink only".to_owned()));
        }
        Ok(Self { underlay, protocol })
    }

    /// Returns masks and values of such packets that hardware can unpack.
    ///
    /// Not of them are those with a checksum of GRE, which would have to be right, with fields that Linux does not take, and those whose
    /// mark of congestion would have to be taken over into the packet inside (RFC 6040): if its last bit is set.
    pub fn matches(self) -> Vec<(MatchParameter, MatchParameter)> {
        VERSIONS.iter().flat_map(|version| self.of_version(*version)).collect()
    }

    /// Returns masks and values of all such packets. Those with a tag and those in fragments are not of the tunnel.
    pub fn all(self) -> Vec<(MatchParameter, MatchParameter)> {
        let of_version = |version: &(u128, u128)| {
            let (mut mask, mut value) = (MatchParameter::default(), MatchParameter::default());
            self.put(*version, &mut Bits { mask: &mut mask, value: &mut value });
            (mask, value)
        };
        VERSIONS.iter().map(of_version).collect()
    }

    fn put(self, (eth_type, version): (u128, u128), bits: &mut Bits<'_>) {
        bits.put_exact(SOURCE_PORT, self.underlay.into());
        bits.put_exact(ETHERTYPE, eth_type);
        bits.put(IP_VERSION, version, version);
        [CVLAN_TAG, SVLAN_TAG, FRAGMENT].into_iter().for_each(|place| bits.put_exact(place, 0));
        bits.put_exact(IP_PROTOCOL, self.protocol.number().into());
        if let Some(port) = self.protocol.udp_port() {
            bits.put_exact(UDP_DPORT, port.into());
        }
    }

    fn of_version(self, version: (u128, u128)) -> Vec<(MatchParameter, MatchParameter)> {
        let (mut mask, mut value) = (MatchParameter::default(), MatchParameter::default());
        let mut bits = Bits { mask: &mut mask, value: &mut value };
        self.put(version, &mut bits);
        bits.put(IP_DSCP_ECN, 1, 0);
        match self.protocol {
            Protocol::Vxlan => {
                bits.put(TUNNEL_HEADER_1, 0xff, 0);
                let with = |(word_mask, word): &(u128, u128)| {
                    let (mut mask, mut value) = (mask, value);
                    Bits { mask: &mut mask, value: &mut value }.put(TUNNEL_HEADER_0, *word_mask, *word);
                    (mask, value)
                };
                return VXLAN_WORDS.iter().map(with).collect();
            }
            Protocol::Geneve => bits.put_exact(GENEVE_PROTOCOL_TYPE, ETH_P_TEB),
            Protocol::Gre => {
                bits.put_exact(GRE_PROTOCOL, ETH_P_TEB);
                bits.put_exact(GRE_C_PRESENT, 0);
            }
        }
        vec![(mask, value)]
    }
}

impl Protocol {
    /// Returns that of a tunnel port, or why there is none.
    pub fn of(tunnel: &Tunnel) -> Result<Self, String> {
        let protocol = match tunnel.protocol {
            TunnelProtocol::Vxlan => Self::Vxlan,
            TunnelProtocol::Geneve => Self::Geneve,
            TunnelProtocol::Gre => Self::Gre,
            other => return Err(format!("the device does not look into {}", other.name())),
        };
        match tunnel.udp_port {
            port if port == protocol.udp_port() => Ok(protocol),
            _ => Err(format!("the device finds {} at its assigned UDP port only", tunnel.protocol.name())),
        }
    }

    /// Returns the number of the protocol in IP.
    pub const fn number(self) -> u8 {
        match self {
            Self::Vxlan | Self::Geneve => IPPROTO_UDP,
            Self::Gre => IPPROTO_GRE,
        }
    }

    /// Returns the UDP port at which the device finds it.
    pub const fn udp_port(self) -> Option<u16> {
        match self {
            Self::Vxlan => Some(4789),
            Self::Geneve => Some(6081),
            Self::Gre => None,
        }
    }
}

/// Returns a match without what the device does not look at in outer headers: the kind of an option of Geneve that may be any, and flags. OVS writes
/// the latter into each flow of a tunnel, and passes over them where a device or the kernel does not know them (`parse_tc_flower_to_match` and its
/// reverse in `lib/netdev-offload-tc.c`).
pub fn as_seen(full: &Match) -> Match {
    let mut seen = geneve::without_any_kind(*full);
    let mask = seen.mask.get(Field::TunnelFlags) & !(DONT_FRAGMENT | CHECKSUM);
    seen.set(Field::TunnelFlags, seen.key.get(Field::TunnelFlags), mask);
    seen
}

/// Takes what a match says of outer headers. Returns the option that it is about, if it is about one.
pub(super) fn matched(
    entrance: Option<Entrance>,
    rest: &mut Remainder,
    bits: &mut Bits<'_>,
) -> Result<Option<GeneveOption>, Refusal> {
    let Some(Entrance { protocol, .. }) = entrance else {
        let fields = Attribute::Tunnel.fields().map(|spec| spec.field);
        return nothing(rest, fields, "packets at this port have no outer header").map(|()| None);
    };
    Outer { protocol, rest, bits }.take()
}

/// Takes fields that are zero for certain.
fn nothing(rest: &mut Remainder, fields: impl Iterator<Item = Field>, reason: &'static str) -> Result<(), Refusal> {
    for field in fields {
        if rest.take(field).is_some_and(|(value, mask)| value & mask != 0) {
            return Err(refuse(field, reason));
        }
    }
    Ok(())
}

struct Outer<'a, 'b> {
    protocol: Protocol,
    rest: &'a mut Remainder,
    bits: &'a mut Bits<'b>,
}

impl Outer<'_, '_> {
    fn take(mut self) -> Result<Option<GeneveOption>, Refusal> {
        self.certain(Field::TunnelPresent, 1, "all packets at this port have an outer header")?;
        let has_version = self.addresses()?;
        self.of_version(Field::TunnelTos, IP_DSCP_ECN, has_version)?;
        self.of_version(Field::TunnelTtl, TTL_HOPLIMIT, has_version)?;
        match self.protocol.udp_port() {
            Some(port) => {
                self.of_version(Field::TunnelTpSrc, UDP_SPORT, has_version)?;
                self.certain(Field::TunnelTpDst, port.into(), "packets at this port go to another UDP port")?;
            }
            None => {
                let ports = [Field::TunnelTpSrc, Field::TunnelTpDst];
                nothing(self.rest, ports.into_iter(), "a tunnel in GRE has no UDP port")?;
            }
        }
        let option = match self.protocol {
            Protocol::Vxlan => self.vxlan().map(|()| None)?,
            Protocol::Geneve => self.geneve()?,
            Protocol::Gre => self.gre().map(|()| None)?,
        };
        let others = Attribute::Tunnel.fields().map(|spec| spec.field);
        nothing(self.rest, others, "the tunnel of this port does not have it")?;
        Ok(option)
    }

    /// Returns whether they say the version of IP.
    fn addresses(&mut self) -> Result<bool, Refusal> {
        let four = [(Field::TunnelIpv4Src, SRC_IPV4), (Field::TunnelIpv4Dst, DST_IPV4)];
        let six = [(Field::TunnelIpv6Src, SRC_IPV6), (Field::TunnelIpv6Dst, DST_IPV6)];
        let mut found = None;
        for ((field, place), version) in four.map(|row| (row, 4)).into_iter().chain(six.map(|row| (row, 6))) {
            let Some((value, mask)) = self.rest.take(field) else { continue };
            // Packets of the other version have none.
            if found.is_some_and(|found| found != version) {
                return Err(refuse(field, "addresses of both versions of IP are matched"));
            }
            found = Some(version);
            self.bits.put(IP_VERSION, version, version);
            self.bits.put(place, mask, value);
        }
        Ok(found.is_some())
    }

    fn vxlan(&mut self) -> Result<(), Refusal> {
        // It is in front of a byte that is zero.
        self.identifier(24, TUNNEL_HEADER_1, 8)?;
        self.flags(KEY, CHECKSUM | DONT_FRAGMENT)?;
        let is_there = |value| if value == 0 { 0 } else { VXLAN_GBP };
        let present = self.rest.take(Field::VxlanGbpPresent).map(|(value, _)| (is_there(value), VXLAN_GBP));
        let group = self.rest.take(Field::VxlanGbpId);
        let flags = self.rest.take(Field::VxlanGbpFlags);
        if flags.is_some_and(|(value, mask)| value & mask & !POLICY_FLAGS != 0) {
            return Err(refuse(Field::VxlanGbpFlags, "there are only 0x8 (applied) and 0x40 (do not learn)"));
        }
        let flags = flags.map(|(value, mask)| (value << 16, (mask & POLICY_FLAGS) << 16));
        let parts = [present, group, flags].into_iter().flatten();
        let (value, mask) = parts.fold((0, 0), |(value, mask), part| (value | part.0 & part.1, mask | part.1));
        self.bits.put(TUNNEL_HEADER_0, mask, value);
        Ok(())
    }

    fn geneve(&mut self) -> Result<Option<GeneveOption>, Refusal> {
        self.identifier(24, GENEVE_VNI, 0)?;
        if let Some((value, mask)) = self.rest.take(Field::TunnelFlags) {
            check_flags(value, mask & !CONTROL, KEY, CHECKSUM | DONT_FRAGMENT)?;
            if mask & CONTROL != 0 {
                self.bits.put_exact(GENEVE_OAM, u128::from(value & CONTROL != 0));
            }
        }
        self.certain(Field::GenevePresent, 1, "all packets at this port have a header of Geneve")?;
        let length = self.rest.take_exact(Field::GeneveLength)?;
        if let Some(length) = length {
            // In words of 4 bytes.
            if length % 4 != 0 {
                return Err(refuse(Field::GeneveLength, "it is a multiple of 4"));
            }
            self.bits.put_exact(GENEVE_OPT_LEN, length / 4);
        }
        geneve::matched(length, self.rest, self.bits)
    }

    /// A key of zero and no key are told apart by the flag alone.
    fn gre(&mut self) -> Result<(), Refusal> {
        let (value, mask) = self.rest.take(Field::TunnelFlags).unwrap_or_default();
        check_flags(value, mask & !KEY, 0, DONT_FRAGMENT)?;
        if mask & KEY != 0 {
            self.bits.put_exact(GRE_K_PRESENT, u128::from(value & KEY != 0));
        }
        if mask & value & KEY != 0 {
            return self.identifier(32, GRE_KEY, 0);
        }
        match self.rest.take(Field::TunnelId) {
            Some((value, id_mask)) if mask & KEY == 0 || value & id_mask != 0 => {
                Err(refuse(Field::TunnelId, "it is matched with flags(+key) only"))
            }
            _ => Ok(()),
        }
    }

    fn identifier(&mut self, width: usize, place: Place, shift: usize) -> Result<(), Refusal> {
        let Some((value, mask)) = self.rest.take(Field::TunnelId) else { return Ok(()) };
        if (value & mask) >> width != 0 {
            return Err(refuse(Field::TunnelId, "the tunnel of this port has fewer bits of it"));
        }
        let low = mask & (u128::MAX >> (128 - width));
        self.bits.put(place, low << shift, value << shift);
        Ok(())
    }

    /// Takes flags of which all packets at the port have those of `set`, and of which the device does not tell those of `unseen`.
    fn flags(&mut self, set: u128, unseen: u128) -> Result<(), Refusal> {
        let (value, mask) = self.rest.take(Field::TunnelFlags).unwrap_or_default();
        check_flags(value, mask, set, unseen)
    }

    /// Takes a field that is elsewhere in each version of IP, or behind it.
    fn of_version(&mut self, field: Field, place: Place, has_version: bool) -> Result<(), Refusal> {
        let Some((value, mask)) = self.rest.take(field) else { return Ok(()) };
        if !has_version {
            return Err(refuse(field, "no outer address is matched, which says the version of IP"));
        }
        self.bits.put(place, mask, value);
        Ok(())
    }

    /// Takes a field that all packets at the port have.
    fn certain(&mut self, field: Field, known: u128, reason: &'static str) -> Result<(), Refusal> {
        match self.rest.take(field) {
            Some((value, mask)) if (value ^ known) & mask != 0 => Err(refuse(field, reason)),
            _ => Ok(()),
        }
    }
}

fn check_flags(value: u128, mask: u128, set: u128, unseen: u128) -> Result<(), Refusal> {
    if (value ^ set) & mask & !unseen != 0 {
        return Err(refuse(Field::TunnelFlags, "no packet of this tunnel that hardware unpacks has such flags"));
    }
    Ok(())
}

fn refuse(field: Field, reason: &'static str) -> Refusal {
    Refusal::Field { field, reason: reason.into() }
}
