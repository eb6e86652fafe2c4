//! Address translation: into what a new connection is translated, so that its answers can be told from all others.
//!
//! The choice is that of `get_unique_tuple` in `net/netfilter/nf_nat_core.c`. The address is the very one that Linux
//! chooses (on a machine with the least significant byte first); the port where a clash is avoided is not, since
//! Linux draws it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::action::{NatSide, PortPick, Translation};

use crate::packet::ip_proto;

use super::tuple::{DCCP, GRE, Tuple, UDP_LITE};

/// Ports that are tried from one starting point.
const MAX_ATTEMPTS: u32 = 128;
/// Below so many there is no other starting point.
const MIN_ATTEMPTS: u32 = 16;

/// What a side of a connection may be translated into (`struct nf_nat_range2`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    side: NatSide,
    first: IpAddr,
    last: IpAddr,
    ports: Option<(u16, u16)>,
    persistent: bool,
    pick: PortPick,
}

impl Range {
    /// The range that an action gives; `None` for the address that the connection has already.
    pub(crate) fn new(translation: &Translation) -> Option<Self> {
        let (first, last) = translation.addresses?;
        let ports = translation.ports.map(|(a, b)| (a.min(b), a.max(b)));
        let Translation { side, persistent, pick, .. } = *translation;
        Some(Self { side, first, last, ports, persistent, pick })
    }

    /// The address that it has already: only clashes of ports are resolved (`nf_nat_alloc_null_binding`).
    pub(crate) fn own(side: NatSide, current: &Tuple) -> Self {
        let address = match side {
            NatSide::Source => current.source,
            NatSide::Destination => current.destination,
        };
        Self::to(side, address, None)
    }

    /// One address, and perhaps one port.
    pub(crate) fn to(side: NatSide, address: IpAddr, port: Option<u16>) -> Self {
        let ports = port.map(|port| (port, port));
        Self { side, first: address, last: address, ports, persistent: false, pick: PortPick::Default }
    }

    fn has_source(&self, tuple: &Tuple) -> bool {
        let has_port = self.ports.is_none_or(|ports| has_port(tuple, NatSide::Source, ports));
        (self.first..=self.last).contains(&tuple.source) && has_port
    }
}

/// The table as far as a choice depends on it.
pub(crate) struct Surroundings<'a> {
    pub(crate) zone: u16,
    /// Whether another connection has these answers already.
    pub(crate) is_taken: &'a dyn Fn(&Tuple) -> bool,
    /// The answers to other connections of the same host and port.
    pub(crate) alike: &'a dyn Fn(&Tuple) -> Vec<Tuple>,
    /// A number that is hard to guess.
    pub(crate) random: &'a dyn Fn() -> u16,
}

/// The original direction as it leaves after translation. It may clash all the same when there is nothing else left.
pub(crate) fn choose(current: &Tuple, range: &Range, surroundings: &Surroundings<'_>) -> Tuple {
    let is_used = |tuple: &Tuple| tuple.inverse().is_some_and(|answers| (surroundings.is_taken)(&answers));
    let keeps_ports = range.pick == PortPick::Default;
    if range.side == NatSide::Source && keeps_ports {
        if range.has_source(current) {
            if !is_used(current) {
                return *current;
            }
        } else if let Some(alike) = like_before(current, range, surroundings)
            && !is_used(&alike)
        {
            return alike;
        }
    }
    let mut tuple = *current;
    let address = pick_address(current, range, surroundings.zone);
    match range.side {
        NatSide::Source => tuple.source = address,
        NatSide::Destination => tuple.destination = address,
    }
    if keeps_ports {
        let is_good = match range.ports {
            Some(ports) => has_port(&tuple, range.side, ports) && (ports.0 == ports.1 || !is_used(&tuple)),
            None => !is_used(&tuple),
        };
        if is_good {
            return tuple;
        }
    }
    pick_port(tuple, range, surroundings.random, &is_used)
}

/// Translated as another connection of the same host and port is (`find_appropriate_src`).
fn like_before(current: &Tuple, range: &Range, surroundings: &Surroundings<'_>) -> Option<Tuple> {
    (surroundings.alike)(current).iter().filter_map(Tuple::inverse).find_map(|other| {
        let alike = Tuple { destination: current.destination, destination_port: current.destination_port, ..other };
        range.has_source(&alike).then_some(alike)
    })
}

/// Whether the part of a tuple that is translated lies within ports; always, if its protocol has none.
fn has_port(tuple: &Tuple, side: NatSide, (first, last): (u16, u16)) -> bool {
    let port = match (tuple.protocol, side) {
        // Its call is compared, but not replaced.
        (GRE, NatSide::Source) => Some(tuple.source_port),
        (GRE, NatSide::Destination) => Some(tuple.destination_port),
        _ => part(tuple, side),
    };
    port.is_none_or(|port| (first..=last).contains(&port))
}

/// The port, or the identifier of ICMP, that is translated; `None` if the protocol has none.
fn part(tuple: &Tuple, side: NatSide) -> Option<u16> {
    match (tuple.protocol, side) {
        (ip_proto::ICMP | ip_proto::ICMPV6, _) => Some(tuple.source_port),
        (ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP | DCCP | UDP_LITE, NatSide::Source) => Some(tuple.source_port),
        (ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP | DCCP | UDP_LITE, NatSide::Destination) => {
            Some(tuple.destination_port)
        }
        _ => None,
    }
}

/// A free port of the range; the last one that was tried if none was found (`nf_nat_l4proto_unique_tuple`).
fn pick_port(mut tuple: Tuple, range: &Range, random: &dyn Fn() -> u16, is_used: &dyn Fn(&Tuple) -> bool) -> Tuple {
    let is_icmp = matches!(tuple.protocol, ip_proto::ICMP | ip_proto::ICMPV6);
    let Some(port) = part(&tuple, range.side) else {
        return tuple;
    };
    let (first, last) = match (range.ports, port) {
        (Some(ports), _) => ports,
        (None, _) if is_icmp => (0, u16::MAX),
        // Who asks for a service at a port finds it nowhere else.
        (None, _) if range.side == NatSide::Destination => return tuple,
        // Ports below 512 vouch for their owner, and those up to 1023 for less.
        (None, 0..512) => (1, 511),
        (None, 512..1024) => (600, 1023),
        (None, _) => (1024, u16::MAX),
    };
    let size = u32::from(last - first) + 1;
    let mut attempts = size.min(MAX_ATTEMPTS);
    loop {
        let start = u32::from(match range.pick {
            PortPick::Hash => spread(&tuple),
            PortPick::Default | PortPick::Random => random(),
        });
        for attempt in 0..attempts {
            let offset = u16::try_from((start + attempt) % size).unwrap_or_default();
            let port = first + offset;
            if is_icmp || range.side == NatSide::Source {
                tuple.source_port = port;
            } else {
                tuple.destination_port = port;
            }
            if !is_used(&tuple) {
                return tuple;
            }
        }
        if attempts >= size || attempts < MIN_ATTEMPTS {
            return tuple;
        }
        attempts /= 2;
    }
}

/// An address of the range by the hash of both ends, so that a server sees a client under the same one again
/// (`find_best_ips_proto`).
fn pick_address(current: &Tuple, range: &Range, zone: u16) -> IpAddr {
    if range.first == range.last {
        return range.first;
    }
    let source = words(current.source);
    let mut destination = words(current.destination);
    let last_word = if current.source.is_ipv4() { 0 } else { 3 };
    let seed = if range.persistent { 0 } else { raw(destination[last_word]) ^ u32::from(zone) };
    let mut hash = jhash2(source.map(raw), seed);
    let (first, last) = (words(range.first), words(range.last));
    let mut chosen = [0; 4];
    let mut is_inside = false;
    for index in 0..=last_word {
        let (low, distance) = if is_inside {
            (0, u32::MAX)
        } else {
            (first[index], last[index].wrapping_sub(first[index]).wrapping_add(1))
        };
        chosen[index] = low.wrapping_add(scale(hash, distance));
        is_inside |= chosen[index] != last[index];
        if range.side == NatSide::Destination {
            destination[index] = chosen[index];
        }
        if !range.persistent {
            hash ^= raw(destination[index]);
        }
    }
    if current.source.is_ipv4() {
        return Ipv4Addr::from(chosen[0]).into();
    }
    let bits = chosen.iter().fold(0u128, |bits, word| bits << 32 | u128::from(*word));
    Ipv6Addr::from(bits).into()
}

/// An address as four words, as Linux stores it; of IPv4 the first.
fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [address.to_bits(), 0, 0, 0],
        IpAddr::V6(address) => {
            let bytes = address.octets();
            let (words, _) = bytes.as_chunks::<4>();
            std::array::from_fn(|index| u32::from_be_bytes(words[index]))
        }
    }
}

/// The number that the bytes of a word are on a machine with the least significant byte first.
fn raw(word: u32) -> u32 {
    word.swap_bytes()
}

/// `reciprocal_scale`: a number below `end` from one of all numbers.
fn scale(value: u32, end: u32) -> u32 {
    ((u64::from(value) * u64::from(end)) >> 32) as u32
}

/// A starting port that is the same for the same connection.
fn spread(tuple: &Tuple) -> u16 {
    let ports = u32::from(tuple.source_port) << 16 | u32::from(tuple.destination_port);
    let seed = jhash2(words(tuple.source), ports);
    #[expect(clippy::cast_possible_truncation, reason = "any 16 bits of the hash will do")]
    let port = jhash2(words(tuple.destination), seed) as u16;
    port
}

/// Bob Jenkins' hash (lookup3, May 2006) of four words, with Linux's starting value (`include/linux/jhash.h`).
fn jhash2(words: [u32; 4], seed: u32) -> u32 {
    const START: u32 = 0xdead_beef;
    let start = START.wrapping_add(16).wrapping_add(seed);
    let [mut a, mut b, mut c] = [words[0], words[1], words[2]].map(|word| start.wrapping_add(word));
    for rotations in [[4, 6, 8], [16, 19, 4]] {
        a = a.wrapping_sub(c) ^ c.rotate_left(rotations[0]);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(rotations[1]);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(rotations[2]);
        b = b.wrapping_add(a);
    }
    a = a.wrapping_add(words[3]);
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::frames::tuple;
    use std::cell::Cell;

    fn range(side: NatSide, addresses: &str, ports: Option<(u16, u16)>) -> Range {
        let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
        let addresses = Some((first.parse().unwrap(), last.parse().unwrap()));
        let pick = PortPick::Default;
        Range::new(&Translation { side, addresses, ports, persistent: false, pick }).unwrap()
    }

    fn choose_among(current: &Tuple, range: &Range, taken: &[Tuple]) -> Tuple {
        let next = Cell::new(0u16);
        let random = || {
            next.set(next.get().wrapping_add(40_503));
            next.get()
        };
        let is_taken = |answers: &Tuple| taken.contains(answers);
        let surroundings = Surroundings { zone: 0, is_taken: &is_taken, alike: &|_| vec![], random: &random };
        choose(current, range, &surroundings)
    }

    #[test]
    fn the_port_is_kept_while_it_is_free() {
        let current = tuple(6, "10.0.0.1:40000", "192.0.2.9:80");
        let chosen = choose_among(&current, &range(NatSide::Source, "198.51.100.1", None), &[]);
        assert_eq!(chosen, tuple(6, "198.51.100.1:40000", "192.0.2.9:80"));
    }

    #[test]
    fn a_port_that_is_taken_is_replaced_by_one_of_its_class() {
        for (port, class) in [(40_000u16, 1024..=u16::MAX), (700, 600..=1023), (22, 1..=511)] {
            let current = tuple(17, &format!("10.0.0.1:{port}"), "192.0.2.9:53");
            let wanted = tuple(17, &format!("198.51.100.1:{port}"), "192.0.2.9:53");
            let range = range(NatSide::Source, "198.51.100.1", None);
            let chosen = choose_among(&current, &range, &[wanted.inverse().unwrap()]);
            assert_ne!(chosen.source_port, port);
            assert!(class.contains(&chosen.source_port), "{port} became {}", chosen.source_port);
        }
    }

    #[test]
    fn every_port_of_a_small_range_is_found_and_none_beyond_it() {
        let range = range(NatSide::Source, "198.51.100.1", Some((5000, 5003)));
        let mut taken = vec![];
        for port in 0..4 {
            let current = tuple(17, &format!("10.0.0.1:{}", 1000 + port), "192.0.2.9:53");
            let chosen = choose_among(&current, &range, &taken);
            let answers = chosen.inverse().unwrap();
            assert!((5000..=5003).contains(&chosen.source_port) && !taken.contains(&answers));
            taken.push(answers);
        }
        let current = tuple(17, "10.0.0.1:2000", "192.0.2.9:53");
        let exhausted = choose_among(&current, &range, &taken).inverse().unwrap();
        assert!(taken.contains(&exhausted), "there is nothing left, which the table finds out");
    }

    #[test]
    fn a_destination_port_is_not_changed_unless_asked_for() {
        let current = tuple(6, "10.0.0.1:40000", "192.0.2.9:80");
        let plain = range(NatSide::Destination, "10.1.0.7", None);
        let wanted = tuple(6, "10.0.0.1:40000", "10.1.0.7:80");
        assert_eq!(choose_among(&current, &plain, &[wanted.inverse().unwrap()]), wanted);
        let to_port = range(NatSide::Destination, "10.1.0.7", Some((8080, 8080)));
        assert_eq!(choose_among(&current, &to_port, &[]), tuple(6, "10.0.0.1:40000", "10.1.0.7:8080"));
    }

    #[test]
    fn a_host_is_translated_as_before_if_that_is_within_the_range() {
        let range = range(NatSide::Source, "198.51.100.1-198.51.100.200", None);
        let current = tuple(17, "10.0.0.1:4000", "192.0.2.9:53");
        let before = tuple(17, "192.0.2.8:53", "198.51.100.77:4000");
        let surroundings = Surroundings { zone: 0, is_taken: &|_| false, alike: &|_| vec![before], random: &|| 0 };
        assert_eq!(choose(&current, &range, &surroundings), tuple(17, "198.51.100.77:4000", "192.0.2.9:53"));
    }

    #[test]
    fn an_address_of_a_range_is_always_within_it() {
        let v4 = range(NatSide::Source, "198.51.100.250-198.51.101.5", None);
        let v6 = range(NatSide::Source, "2001:db8::10-2001:db8::ff00", None);
        let prefix = range(NatSide::Source, "2001:db8::-2001:db8:0:ffff:ffff:ffff:ffff:ffff", None);
        for host in 1..200 {
            let chosen = choose_among(&tuple(17, &format!("10.0.0.{host}:1"), "192.0.2.9:53"), &v4, &[]);
            assert!(v4.has_source(&chosen), "{chosen:?}");
            for range in [&v6, &prefix] {
                let chosen = choose_among(&tuple(17, &format!("[fd00::{host}]:1"), "[2001:db8::5]:53"), range, &[]);
                assert!(range.has_source(&chosen), "{chosen:?}");
            }
        }
    }

    #[test]
    fn the_hash_is_that_of_linux() {
        // `hashlittle` of lookup3.c over the same sixteen bytes.
        assert_eq!(jhash2([1, 2, 3, 4], 0), 0x6649_1246);
    }

    #[test]
    fn a_persistent_address_does_not_depend_on_the_destination() {
        let mut range = range(NatSide::Source, "198.51.100.1-198.51.100.200", None);
        range.persistent = true;
        let to = |destination: &str| choose_among(&tuple(17, "10.0.0.1:4000", destination), &range, &[]).source;
        assert_eq!(to("192.0.2.9:53"), to("203.0.113.77:443"));
    }

    #[test]
    fn a_hashed_port_depends_on_the_connection_alone_and_a_random_one_is_drawn() {
        let current = tuple(17, "10.0.0.1:4000", "192.0.2.9:53");
        let choose_with = |pick, drawn: u16| {
            let range = Range { pick, ..range(NatSide::Source, "198.51.100.1", Some((5000, 5999))) };
            let surroundings = Surroundings { zone: 0, is_taken: &|_| false, alike: &|_| vec![], random: &|| drawn };
            choose(&current, &range, &surroundings).source_port
        };
        assert_eq!(choose_with(PortPick::Hash, 1), choose_with(PortPick::Hash, 2));
        assert_eq!([7, 1007].map(|drawn| choose_with(PortPick::Random, drawn)), [5007, 5007]);
        assert_eq!(choose_with(PortPick::Random, 8), 5008);
    }

    #[test]
    fn an_echo_gets_another_identifier() {
        let echo = Tuple { destination_port: 0x0800, ..tuple(1, "10.0.0.1:7", "192.0.2.9:0") };
        let wanted = Tuple { source: "198.51.100.1".parse().unwrap(), ..echo };
        let range = range(NatSide::Source, "198.51.100.1", None);
        let chosen = choose_among(&echo, &range, &[wanted.inverse().unwrap()]);
        assert_ne!(chosen.source_port, 7);
        assert_eq!(chosen.destination_port, 0x0800);
    }
}
