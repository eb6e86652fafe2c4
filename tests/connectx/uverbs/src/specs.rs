//! What flows of verbs match and do, as programs say it: a list of headers and actions, which mlx5_ib makes a match parameter of
//! (`parse_flow_attr`, `is_valid_ethertype`). What it refuses is refused with the same error.

use nix::errno::Errno;

use super::request::{Native, Refused};
use super::tables::MATCH;

/// Types of `enum ib_flow_spec_type`.
mod kind {
    pub(crate) const ETHERNET: u32 = 0x20;
    pub(crate) const V4: u32 = 0x30;
    pub(crate) const V6: u32 = 0x31;
    pub(crate) const ESP: u32 = 0x34;
    pub(crate) const TCP: u32 = 0x40;
    pub(crate) const UDP: u32 = 0x41;
    pub(crate) const VXLAN: u32 = 0x50;
    pub(crate) const GRE: u32 = 0x51;
    pub(crate) const MPLS: u32 = 0x60;
    pub(crate) const INNER: u32 = 0x100;
    pub(crate) const TAG: u32 = 0x1000;
    pub(crate) const DROP: u32 = 0x1001;
    pub(crate) const HANDLE: u32 = 0x1002;
    pub(crate) const COUNT: u32 = 0x1003;
}

/// Bytes of a match parameter: fields of a header of the outer packet, and how much further on those of the inner one are.
mod at {
    pub(crate) const SOURCE_MAC: usize = 0;
    pub(crate) const ETHERTYPE: usize = 6;
    pub(crate) const DESTINATION_MAC: usize = 8;
    pub(crate) const TCI: usize = 14;
    pub(crate) const PROTOCOL: usize = 16;
    pub(crate) const TOS: usize = 17;
    pub(crate) const FLAGS: usize = 18;
    pub(crate) const TCP_PORTS: usize = 20;
    pub(crate) const UDP_PORTS: usize = 28;
    pub(crate) const SOURCE: usize = 32;
    pub(crate) const DESTINATION: usize = 48;
    pub(crate) const INNER: usize = 128;
    pub(crate) const GRE_PROTOCOL: usize = 78;
    pub(crate) const GRE_KEY: usize = 80;
    pub(crate) const VXLAN_VNI: usize = 84;
    pub(crate) const FLOW_LABEL: usize = 92;
    pub(crate) const INNER_FLOW_LABEL: usize = 96;
}

/// In the byte of flags: that there is a customer's tag, and where the version of IP is.
const CUSTOMER_TAG: u8 = 0x80;
const VERSION: u32 = 1;
const EVERY_VERSION: u8 = 0xf;

/// What a flow matches and does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Specs {
    pub(crate) mask: [u8; MATCH],
    pub(crate) value: [u8; MATCH],
    pub(crate) tag: Option<u32>,
    pub(crate) drops: bool,
    /// Handles of flow actions.
    pub(crate) actions: Vec<u32>,
    /// Handle of counters.
    pub(crate) counters: Option<u32>,
    /// It can only be for multicast.
    pub(crate) is_multicast: bool,
}

fn invalid(reason: impl Into<String>) -> Refused {
    Refused::new(Errno::EINVAL, reason)
}

fn unsupported(reason: impl Into<String>) -> Refused {
    Refused::new(Errno::EOPNOTSUPP, reason)
}

/// Halves of a filter: what is matched, and which bits of it.
type Filter<'a> = (&'a [u8], &'a [u8]);

impl Specs {
    /// Reads `count` headers and actions, which must be all that there is.
    pub(crate) fn parse(mut bytes: &[u8], count: u8) -> Result<Self, Refused> {
        const HEADER: usize = 8;
        let mut specs = Self::everything();
        let mut types = Ethertypes::default();
        for number in 0..count {
            let native = Native(bytes);
            let (Some(kind), Some(size), Some(0)) = (native.u32(0), native.u16(4), native.u16(6)) else {
                return Err(invalid("a list of specs that ends too early"));
            };
            let body =
                bytes.get(HEADER..usize::from(size)).ok_or_else(|| invalid(format!("a spec of {size} bytes")))?;
            if kind >= kind::TAG {
                specs.act(kind, body)?;
            } else {
                let (value, mask) = body.split_at(body.len() / 2);
                if number == 0 {
                    specs.is_multicast = is_multicast(kind, (value, mask));
                }
                types.see(kind, (value, mask));
                specs.narrow(kind, (value, mask))?;
            }
            bytes = &bytes[usize::from(size)..];
        }
        if !bytes.is_empty() {
            return Err(invalid(format!("{} bytes behind {count} specs", bytes.len())));
        }
        types.check()?;
        Ok(specs)
    }

    /// What matches every packet and does nothing.
    pub(crate) fn everything() -> Self {
        Self {
            mask: [0; MATCH],
            value: [0; MATCH],
            tag: None,
            drops: false,
            actions: Vec::new(),
            counters: None,
            is_multicast: false,
        }
    }

    /// What matches by the bit of a destination that says whether it is of a group.
    pub(crate) fn of_groups(groups: bool) -> Self {
        let mut specs = Self::everything();
        specs.mask[at::DESTINATION_MAC] = 1;
        specs.value[at::DESTINATION_MAC] = u8::from(groups);
        specs
    }

    /// Which parts of a packet it looks at, as groups of entries say it.
    pub(crate) fn criteria(&self) -> u64 {
        const PART: usize = 64;
        // Outer headers, the first of various fields, inner headers.
        let parts = self.mask.chunks(PART).take(3).enumerate();
        parts.filter(|(_, part)| part.iter().any(|byte| *byte != 0)).fold(0, |criteria, (bit, _)| criteria | 1 << bit)
    }

    fn act(&mut self, kind: u32, body: &[u8]) -> Result<(), Refused> {
        let length = if kind == kind::DROP { 0 } else { 8 };
        if body.len() != length {
            return Err(invalid(format!("an action {kind:#x} of {} bytes", body.len())));
        }
        let number = Native(body).u32(0).unwrap_or_default();
        match kind {
            kind::TAG if number >> 24 != 0 => return Err(invalid(format!("tag {number:#x} has more than 24 bits"))),
            kind::TAG => self.tag = Some(number),
            kind::DROP => self.drops = true,
            kind::HANDLE => self.actions.push(number),
            kind::COUNT if self.counters.is_some() => return Err(invalid("counters twice")),
            kind::COUNT => self.counters = Some(number),
            other => return Err(invalid(format!("there is no action {other:#x}"))),
        }
        Ok(())
    }

    fn narrow(&mut self, kind: u32, filter: Filter<'_>) -> Result<(), Refused> {
        let is_inner = kind & kind::INNER != 0;
        let base = if is_inner { at::INNER } else { 0 };
        let length = match kind & !kind::INNER {
            kind::ETHERNET => 16,
            kind::V4 => 12,
            kind::V6 => 40,
            kind::TCP | kind::UDP | kind::VXLAN => 4,
            kind::GRE => 8,
            kind::ESP | kind::MPLS => return Err(unsupported(format!("the device has no match for {kind:#x}"))),
            _ => return Err(invalid(format!("there is no header {kind:#x}"))),
        };
        if filter.0.len() != length || filter.1.len() != length {
            return Err(invalid(format!("a header {kind:#x} of twice {} bytes", filter.1.len())));
        }
        match kind & !kind::INNER {
            kind::ETHERNET => {
                self.copy(filter, 0..6, base + at::DESTINATION_MAC);
                self.copy(filter, 6..12, base + at::SOURCE_MAC);
                self.copy(filter, 12..14, base + at::ETHERTYPE);
                if filter.1[14..] != [0, 0] {
                    self.set(base + at::FLAGS, CUSTOMER_TAG, CUSTOMER_TAG);
                    self.copy(filter, 14..16, base + at::TCI);
                }
                Ok(())
            }
            kind::V4 => {
                // Time to live, and flags.
                none(filter, 10..12)?;
                self.set(base + at::FLAGS, EVERY_VERSION << VERSION, 4 << VERSION);
                self.copy(filter, 0..4, base + at::SOURCE + 12);
                self.copy(filter, 4..8, base + at::DESTINATION + 12);
                self.copy(filter, 9..10, base + at::TOS);
                self.protocol(base, filter.1[8], filter.0[8])
            }
            kind::V6 => {
                // Hop limit, and what is reserved.
                none(filter, 38..40)?;
                if filter.0[32] != 0 || filter.1[32] != 0 || filter.0[33] >> 4 != 0 || filter.1[33] >> 4 != 0 {
                    return Err(invalid("a flow label of more than 20 bits"));
                }
                self.set(base + at::FLAGS, EVERY_VERSION << VERSION, 6 << VERSION);
                self.copy(filter, 0..16, base + at::SOURCE);
                self.copy(filter, 16..32, base + at::DESTINATION);
                self.copy(filter, 37..38, base + at::TOS);
                self.copy(filter, 32..36, if is_inner { at::INNER_FLOW_LABEL } else { at::FLOW_LABEL });
                self.protocol(base, filter.1[36], filter.0[36])
            }
            kind @ (kind::TCP | kind::UDP) => {
                let (ports, protocol) = if kind == kind::TCP { (at::TCP_PORTS, 6) } else { (at::UDP_PORTS, 17) };
                self.protocol(base, u8::MAX, protocol)?;
                self.copy(filter, 0..2, base + ports + 2);
                self.copy(filter, 2..4, base + ports);
                Ok(())
            }
            kind::VXLAN if is_inner => Err(invalid("a tunnel in a tunnel")),
            kind::VXLAN => {
                if filter.0[0] != 0 || filter.1[0] != 0 {
                    return Err(invalid("a VNI of more than 24 bits"));
                }
                self.copy(filter, 1..4, at::VXLAN_VNI);
                Ok(())
            }
            _ => {
                // Flags and version.
                none(filter, 0..2)?;
                self.protocol(base, u8::MAX, 47)?;
                self.copy(filter, 2..4, at::GRE_PROTOCOL);
                self.copy(filter, 4..8, at::GRE_KEY);
                Ok(())
            }
        }
    }

    /// A protocol that has been said already stays.
    fn protocol(&mut self, base: usize, mask: u8, value: u8) -> Result<(), Refused> {
        let place = base + at::PROTOCOL;
        let said = (self.mask[place], self.value[place]);
        if mask != 0 && said.0 != 0 && said != (mask, value) {
            return Err(invalid(format!("protocol {value}, and {}", said.1)));
        }
        if mask != 0 {
            (self.mask[place], self.value[place]) = (mask, value & mask);
        }
        Ok(())
    }

    fn copy(&mut self, (value, mask): Filter<'_>, from: std::ops::Range<usize>, to: usize) {
        for (place, number) in (to..).zip(from) {
            self.set(place, mask[number], value[number]);
        }
    }

    fn set(&mut self, place: usize, mask: u8, value: u8) {
        self.mask[place] |= mask;
        self.value[place] |= value & mask;
    }
}

fn none((_, mask): Filter<'_>, fields: std::ops::Range<usize>) -> Result<(), Refused> {
    if mask[fields].iter().all(|byte| *byte == 0) { Ok(()) } else { Err(unsupported("a field that is not matched")) }
}

/// `flow_is_multicast_only`, of the first header.
fn is_multicast(kind: u32, (value, mask): Filter<'_>) -> bool {
    match kind {
        kind::V4 => value.get(4).is_some_and(|byte| byte >> 4 == 0xe),
        kind::ETHERNET => [value, mask].iter().all(|half| half.first().is_some_and(|byte| byte & 1 == 1)),
        _ => false,
    }
}

/// Types that Ethernet headers say, and IP headers that follow them, outer and inner.
#[derive(Debug, Default)]
struct Ethertypes([Seen; 2]);

/// Of one of the packet's layers.
#[derive(Debug, Default)]
struct Seen {
    /// Mask and value of the Ethernet type.
    ethertype: Option<(u16, u16)>,
    /// The spec of the IP header.
    ip: Option<u32>,
}

impl Ethertypes {
    fn see(&mut self, kind: u32, (value, mask): Filter<'_>) {
        let Seen { ethertype, ip } = &mut self.0[usize::from(kind & kind::INNER != 0)];
        let number = |half: &[u8]| half.get(12..14).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        match kind & !kind::INNER {
            kind::ETHERNET if number(mask) != 0 => *ethertype = Some((number(mask), number(value))),
            kind @ (kind::V4 | kind::V6) => *ip = Some(kind),
            _ => {}
        }
    }

    fn check(&self) -> Result<(), Refused> {
        const MPLS: [u16; 2] = [0x8847, 0x8848];
        for seen in &self.0 {
            let Seen { ethertype: Some((mask, ethertype)), ip: Some(ip) } = *seen else { continue };
            let agrees = (ethertype, ip) == (0x0800, kind::V4) || (ethertype, ip) == (0x86dd, kind::V6);
            if mask != u16::MAX || !(agrees || MPLS.contains(&ethertype)) {
                return Err(invalid(format!("a header {ip:#x} behind Ethernet type {ethertype:#x}/{mask:#x}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(8 + body.len()).unwrap();
        [&kind.to_le_bytes()[..], &size.to_le_bytes(), &[0, 0], body].concat()
    }

    fn header(kind: u32, value: &[u8], mask: &[u8]) -> Vec<u8> {
        spec(kind, &[value, mask].concat())
    }

    fn parsed(list: &[Vec<u8>]) -> Result<Specs, Errno> {
        Specs::parse(&list.concat(), u8::try_from(list.len()).unwrap()).map_err(|refused| refused.errno)
    }

    const NONE: [u8; 12] = [0; 12];

    #[test]
    fn headers_go_where_the_match_parameter_has_them() {
        let ethernet = [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0][..], &[0x20, 0x64]].concat();
        let v4 = [10, 0, 0, 1, 10, 0, 0, 2, 17, 0x28, 0, 0];
        let mask = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc, 0, 0];
        let specs = parsed(&[
            header(kind::ETHERNET, &ethernet, &[0xff; 16]),
            header(kind::V4, &v4, &mask),
            header(kind::UDP, &[0x12, 0xb5, 0, 0], &[0xff, 0xff, 0, 0]),
            header(kind::VXLAN, &[0, 0, 0, 77], &[0, 0xff, 0xff, 0xff]),
            header(kind::TCP | kind::INNER, &[0, 80, 0, 0], &[0, 0xff, 0, 0]),
        ])
        .unwrap();
        assert_eq!(specs.value[..18], [7, 8, 9, 10, 11, 12, 8, 0, 1, 2, 3, 4, 5, 6, 0x20, 0x64, 17, 0x28]);
        assert_eq!((specs.mask[17], specs.mask[18], specs.value[18]), (0xfc, 0x9e, 0x88));
        assert_eq!((&specs.value[28..32], &specs.mask[28..32]), (&[0, 0, 0x12, 0xb5][..], &[0, 0, 0xff, 0xff][..]));
        assert_eq!((&specs.value[44..48], &specs.value[60..64]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
        assert_eq!((&specs.value[84..87], specs.mask[87]), (&[0, 0, 77][..], 0));
        assert_eq!((specs.value[144], &specs.value[150..152], specs.mask[150]), (6, &[0, 80][..], 0));
        assert_eq!((specs.criteria(), specs.is_multicast), (0b111, true));
    }

    #[test]
    fn what_the_kernel_refuses_is_refused_with_its_error() {
        let long_life = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let v6 = |at: usize, value| {
            let mut bytes = [0; 40];
            bytes[at] = value;
            bytes
        };
        let ethertype = |value: [u8; 2], mask: [u8; 2]| {
            header(kind::ETHERNET, &[&NONE[..], &value, &[0; 2]].concat(), &[&NONE[..], &mask, &[0; 2]].concat())
        };
        let v4 = || header(kind::V4, &NONE, &NONE);
        let tcp = || header(kind::TCP, &[0; 4], &[0; 4]);
        let udp = || header(kind::UDP, &[0; 4], &[0; 4]);
        for (list, errno) in [
            (vec![header(kind::V4, &NONE, &long_life)], Errno::EOPNOTSUPP),
            (vec![header(kind::V6, &[0; 40], &v6(38, 1))], Errno::EOPNOTSUPP),
            (vec![header(kind::V6, &[0; 40], &v6(33, 0x10))], Errno::EINVAL),
            (vec![header(kind::V4, &NONE[..11], &NONE[..11])], Errno::EINVAL),
            (vec![header(kind::VXLAN, &[0; 4], &[1, 0, 0, 0])], Errno::EINVAL),
            (vec![header(kind::VXLAN | kind::INNER, &[0; 4], &[0; 4])], Errno::EINVAL),
            (vec![header(kind::GRE, &[0; 8], &[0x80, 0, 0, 0, 0, 0, 0, 0])], Errno::EOPNOTSUPP),
            (vec![header(kind::ESP, &[0; 8], &[0; 8])], Errno::EOPNOTSUPP),
            (vec![header(0x21, &[0; 8], &[0; 8])], Errno::EINVAL),
            (vec![tcp(), udp()], Errno::EINVAL),
            (vec![ethertype([0x86, 0xdd], [0xff, 0xff]), v4()], Errno::EINVAL),
            (vec![ethertype([8, 0], [0xff, 0]), v4()], Errno::EINVAL),
            (vec![spec(kind::TAG, &[0, 0, 0, 1, 0, 0, 0, 0])], Errno::EINVAL),
            (vec![spec(kind::DROP, &[0; 8])], Errno::EINVAL),
            (vec![spec(kind::COUNT, &[1, 0, 0, 0, 0, 0, 0, 0]); 2], Errno::EINVAL),
            (vec![spec(0x1004, &[0; 8])], Errno::EINVAL),
        ] {
            assert_eq!(parsed(&list).unwrap_err(), errno, "{list:?}");
        }
        assert!(parsed(&[ethertype([8, 0], [0xff, 0xff]), v4(), tcp(), tcp()]).is_ok());
        assert!(Specs::parse(&tcp(), 0).is_err(), "more than there is said to be");
        assert!(Specs::parse(&tcp(), 2).is_err(), "less");
    }
}
