//! Fragments through connection tracking: what comes together, what goes on alone, and how it leaves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use sluice_flow::action::{Action, Commit, Conntrack, EthernetAddresses, MplsEntry, NatSide, VlanTag};
use sluice_flow::field::Field;
use sluice_tests::scenario::Scenario;

use crate::conntrack::{CLIENT, INVALID, SERVER, TRACKED, conversation, look_up, nat, track, translation};
use crate::flows::{at, behind, output, recirc};
use crate::packets::{Ipv4, Ipv6, ethernet, icmp, internet_checksum, sctp, tcp, tcp_at, udp};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all: Vec<_> = [Family::V4, Family::V6].into_iter().flat_map(of_both).collect();
    all.extend(of_ipv4());
    all.extend(of_ipv6());
    all.extend(at_two_ports());
    // Fragments wait longer than a scenario takes.
    let numbered = all.into_iter().zip(1..);
    numbered.map(|(draft, number)| draft.done(number)).collect()
}

#[derive(Clone, Copy, Debug)]
enum Family {
    V4,
    V6,
}

/// A scenario whose fragments have no identification yet.
struct Draft {
    scenario: Scenario,
    fragments: Vec<Fragment>,
}

impl Draft {
    fn fragments(mut self, fragments: impl IntoIterator<Item = Fragment>) -> Self {
        self.fragments.extend(fragments);
        self
    }

    fn done(self, number: u16) -> Scenario {
        self.fragments
            .iter()
            .fold(self.scenario, |scenario, fragment| scenario.packet(fragment.port, fragment.frame(number)))
    }
}

/// A whole packet.
#[derive(Clone)]
struct Whole {
    family: Family,
    bytes: Vec<u8>,
    /// Bytes that are in front of every fragment, without its own header.
    headers: usize,
    /// Where in them it is said what follows.
    announced_at: usize,
}

/// A part of a packet.
#[derive(Clone)]
struct Fragment {
    whole: Whole,
    range: Range<usize>,
    is_last: bool,
    /// Put over the type of service or the traffic class.
    congestion: u8,
    /// Put over the flags of IPv4.
    flags: u16,
    /// Bytes that are missing at its end, though its header counts them.
    missing: usize,
    /// Bytes behind its end.
    padding: usize,
    /// Where it comes in.
    port: u32,
}

impl Whole {
    fn v4(ip: &Ipv4, protocol: u8, payload: &[u8]) -> Self {
        let headers = 20 + ip.options.len();
        Self { family: Family::V4, bytes: ip.packet(protocol, payload), headers, announced_at: 9 }
    }

    /// With these extension headers of eight bytes, of which the first so many stand in front of the header of a fragment.
    fn v6(extensions: &[u8], in_front: usize, protocol: u8, payload: &[u8]) -> Self {
        let followers = extensions.iter().skip(1).chain([&protocol]);
        let bytes: Vec<_> =
            extensions.iter().zip(followers).flat_map(|(_, next)| [*next, 0, 1, 4, 0, 0, 0, 0]).collect();
        let extensions = extensions.first().map(|first| (*first, bytes));
        let ip = Ipv6 { extensions, ..Ipv6::default() };
        let announced_at = if in_front == 0 { 6 } else { 40 + 8 * (in_front - 1) };
        let headers = 40 + 8 * in_front;
        Self { family: Family::V6, bytes: ip.packet(protocol, payload), headers, announced_at }
    }

    fn of(family: Family, protocol: u8, payload: &[u8]) -> Self {
        match family {
            Family::V4 => Self::v4(&Ipv4::default(), protocol, payload),
            Family::V6 => Self::v6(&[], 0, protocol, payload),
        }
    }

    fn part(&self, range: Range<usize>) -> Fragment {
        let is_last = self.headers + range.end == self.bytes.len();
        Fragment { whole: self.clone(), range, is_last, congestion: 0, flags: 0, missing: 0, padding: 0, port: 1 }
    }

    /// All of it, cut at these places.
    fn cut(&self, places: &[usize]) -> Vec<Fragment> {
        let end = self.bytes.len() - self.headers;
        let starts = [0].iter().chain(places);
        starts.zip(places.iter().chain([&end])).map(|(start, end)| self.part(*start..*end)).collect()
    }
}

impl Fragment {
    fn frame(&self, identification: u16) -> Vec<u8> {
        let Self { whole: Whole { family, bytes, headers, announced_at }, range, .. } = self;
        let mut packet = bytes[..*headers].to_vec();
        let payload = &bytes[headers + range.start..headers + range.end];
        let eth_type = match family {
            Family::V4 => {
                let more = if self.is_last { 0 } else { 0x2000 };
                let fragment = self.flags | more | u16::try_from(range.start / 8).unwrap();
                packet[1] |= self.congestion;
                packet[2..4].copy_from_slice(&u16::try_from(headers + payload.len()).unwrap().to_be_bytes());
                packet[4..6].copy_from_slice(&identification.to_be_bytes());
                packet[6..8].copy_from_slice(&fragment.to_be_bytes());
                packet[10..12].fill(0);
                let sum = internet_checksum(&[&packet]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
                0x0800
            }
            Family::V6 => {
                let next = std::mem::replace(&mut packet[*announced_at], FRAGMENT);
                let fragment = u16::try_from(range.start).unwrap() | u16::from(!self.is_last);
                packet[1] |= self.congestion << 4;
                packet.extend([next, 0]);
                packet.extend(fragment.to_be_bytes());
                packet.extend(u32::from(identification).to_be_bytes());
                let length = u16::try_from(packet.len() - 40 + payload.len()).unwrap();
                packet[4..6].copy_from_slice(&length.to_be_bytes());
                0x86dd
            }
        };
        packet.extend(payload);
        packet.truncate(packet.len() - self.missing);
        packet.resize(packet.len() + self.padding, 0);
        ethernet(eth_type, &packet)
    }
}

/// What is whole and valid is sent on as `sends` says; all else to a port that tells what it was taken for.
fn draft(name: &str, family: Family, track: Action, sends: &[Action]) -> Draft {
    let (eth_type, field) = match family {
        Family::V4 => (0x0800, Field::Ipv4Frag),
        Family::V6 => (0x86dd, Field::Ipv6Frag),
    };
    let all = at(1).eth_type(eth_type);
    let next = |fragment: u8| all.chain(1).is(field, fragment);
    let scenario = Scenario::new(format!("fragments of {family:?}: {name}"))
        .flow(all.done(), [track, recirc(1)])
        .flow(next(0).masked(Field::CtState, TRACKED, TRACKED | INVALID).done(), sends)
        .flow(next(0).masked(Field::CtState, TRACKED | INVALID, TRACKED | INVALID).done(), [output(4)])
        .flow(next(1).done(), [output(5)])
        .flow(next(2).done(), [output(6)]);
    Draft { scenario, fragments: vec![] }
}

fn translated(family: Family) -> Action {
    let outside = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        Family::V6 => IpAddr::V6(Ipv6Addr::from(0xfd99 << 112 | 1)),
    };
    nat(translation(NatSide::Source, outside, outside))
}

/// Ninety-six bytes of UDP.
fn datagram(family: Family) -> Whole {
    Whole::of(family, 17, &udp(40000, 53, &(0..88).collect::<Vec<_>>()))
}

fn in_order(fragments: Vec<Fragment>, order: &[usize]) -> Vec<Fragment> {
    order.iter().map(|place| fragments[*place].clone()).collect()
}

fn of_both(family: Family) -> Vec<Draft> {
    let plain = |name: &str| draft(name, family, translated(family), &[output(2)]);
    let whole = datagram(family);
    let parts = || whole.cut(&[24, 72]);
    let last = |fragment: Fragment| Fragment { is_last: true, ..fragment };
    let more = |fragment: Fragment| Fragment { is_last: false, ..fragment };
    // The class of all packets has no mark of its own.
    let marked = |first, later| {
        let marks = [first, later, first];
        let parts = parts().into_iter().zip(marks).map(|(part, congestion)| Fragment { congestion, ..part });
        parts.collect::<Vec<_>>()
    };
    let echo = if matches!(family, Family::V4) { (1, 8) } else { (58, 128) };
    let ping = Whole::of(family, echo.0, &icmp(echo.1, 0, &[&[0, 7, 0, 1][..], &[9; 88]].concat()));
    let stream = Whole::of(family, 6, &tcp(40000, 80, 0x002, &[7; 60]));
    let chunks = Whole::of(family, 132, &sctp(40000, 80, &[&[1, 0, 0, 20], &[9; 76][..]].concat()));
    let large = Whole::of(family, 17, &udp(40000, 53, &vec![7; 3000]));
    let mut all = vec![
        plain("in order").fragments(parts()),
        plain("twice").fragments(in_order(parts(), &[0, 0, 1, 1, 2])),
        plain("an overlap").fragments(parts().into_iter().take(1)).fragments([whole.part(16..72)]).fragments(parts()),
        plain("an end that comes too early")
            .fragments([parts()[1].clone(), last(whole.part(0..24))])
            .fragments(parts()),
        plain("two ends").fragments([parts()[2].clone(), last(whole.part(72..88))]).fragments(parts()),
        plain("behind the end").fragments([last(whole.part(24..72)), more(whole.part(72..96))]).fragments(parts()),
        plain("of no bytes").fragments([more(whole.part(24..24))]).fragments(parts()),
        plain("of a length of no multiple of eight").fragments([more(whole.part(0..20))]).fragments(parts()),
        plain("a later one of such a length")
            .fragments([parts()[0].clone(), more(whole.part(24..71))])
            .fragments(parts()),
        plain("of one part").fragments([whole.part(0..96)]),
        plain("padded").fragments(parts().into_iter().map(|part| Fragment { padding: 9, ..part })),
        plain("the last is cut off")
            .fragments(in_order(parts(), &[0, 1]))
            .fragments([Fragment { missing: 3, ..parts()[2].clone() }]),
        plain("an echo").fragments(ping.cut(&[16, 64])),
        plain("a header of tcp in the first").fragments(stream.cut(&[24, 56])),
        plain("eight bytes of tcp in the first").fragments(stream.cut(&[8, 56])),
        plain("eight bytes of sctp in the first").fragments(chunks.cut(&[8, 48])),
        plain("sixteen bytes of sctp in the first").fragments(chunks.cut(&[16, 48])),
        plain("large").fragments(large.cut(&[1400, 2048])),
        draft("to two ports", family, translated(family), &[output(2), output(3)]).fragments(parts()),
        draft("large, to two ports", family, translated(family), &[output(2), output(3)])
            .fragments(large.cut(&[1400, 2048])),
        draft("by a copy", family, translated(family), &[Action::Clone([output(2)].into()), output(3)])
            .fragments(large.cut(&[1400, 2048])),
        draft("cut off on their way out", family, translated(family), &[Action::Trunc(14 + 40 + 60), output(2)])
            .fragments(parts()),
        draft(
            "with a tag pushed",
            family,
            translated(family),
            &[Action::PushVlan(VlanTag { tpid: 0x8100, vid: 5, pcp: 0, cfi: true }), output(2)],
        )
        .fragments(parts()),
        draft("tracked twice", family, look_up(7), &[look_up(8), output(2)]).fragments(parts()),
    ];
    // The largest piece counts, which is shorter than this, and the packet is not.
    let check =
        Action::CheckPacketLength { length: 120, greater: [output(2)].into(), less_or_equal: [output(3)].into() };
    let tag = Action::PushVlan(VlanTag { tpid: 0x8100, vid: 5, pcp: 0, cfi: true });
    let lengths = [
        ("checked for its length", vec![check.clone()]),
        ("checked for its length behind a tag", vec![tag.clone(), check.clone()]),
    ];
    all.extend(lengths.map(|(name, sends)| draft(name, family, translated(family), &sends).fragments(parts())));
    let copied = [Action::Clone([check].into()), output(4)];
    all.push(draft("a copy checked for its length", family, translated(family), &copied).fragments(parts()));
    all.push(
        draft("with two tags pushed", family, translated(family), &[tag.clone(), tag, output(2)]).fragments(parts()),
    );
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        all.push(plain(&format!("in the order {order:?}")).fragments(in_order(parts(), &order)));
    }
    for (first, later) in [(0, 0), (1, 1), (1, 2), (2, 3), (3, 2), (0, 3), (2, 0)] {
        let marks = format!("marks {first} and {later} of congestion");
        all.push(plain(&marks).fragments(marked(first, later)));
    }
    all
}

fn of_ipv4() -> Vec<Draft> {
    let plain = |name: &str| draft(name, Family::V4, translated(Family::V4), &[output(2)]);
    let payload = udp(40000, 53, &[7; 88]);
    // A route that is recorded, and one that is told.
    let options = vec![7, 7, 4, 0, 0, 0, 0, 131, 7, 4, 10, 0, 0, 9, 1, 0];
    let with_options = Whole::v4(&Ipv4 { options, ..Ipv4::default() }, 17, &payload);
    let label = |bos| Action::PushMpls(MplsEntry { label: 5, tc: 3, ttl: 99, bos, eth_type: 0x8847 });
    let in_front = Action::AddMpls(MplsEntry { label: 5, tc: 3, ttl: 99, bos: true, eth_type: 0x8847 });
    let mac = Action::PushEth(EthernetAddresses { source: 0x0200_0000_0001, destination: 0x0200_0000_0002 });
    let tag = Action::PushVlan(VlanTag { tpid: 0x8100, vid: 5, pcp: 0, cfi: true });
    let sends = |name: &str, sends: &[Action]| {
        draft(name, Family::V4, translated(Family::V4), sends).fragments(datagram(Family::V4).cut(&[24, 72]))
    };
    let looked_up = sends("under a label, looked up", &[label(true), recirc(2)]);
    let labelled = behind(2).eth_type(0x8847).done();
    let looked_up = Draft { scenario: looked_up.scenario.flow(labelled, [output(2)]), ..looked_up };
    let unfragmentable = |part: Fragment| Fragment { flags: 0x4000, ..part };
    let parts = || datagram(Family::V4).cut(&[24, 72]);
    vec![
        sends("under a label", &[label(true), output(2)]),
        sends("under a label, to two ports", &[label(true), output(2), output(3)]),
        sends("under three labels and a tag", &[label(true), label(false), label(false), tag.clone(), output(2)]),
        sends("under a label that goes", &[label(true), output(2), Action::PopMpls(0x0800), output(3)]),
        sends("a label in front of all", &[in_front.clone(), mac.clone(), output(2)]),
        sends("a label in front without an ethernet header", &[Action::PopEth, in_front, mac, output(2)]),
        looked_up,
        read_by_a_gateway(),
        plain("with options").fragments(with_options.cut(&[24, 72])),
        draft("with options, to two ports", Family::V4, translated(Family::V4), &[output(2), output(3)])
            .fragments(with_options.cut(&[24, 72])),
        plain("that may not be cut").fragments(parts().into_iter().map(unfragmentable)),
        plain("of which one may not be cut").fragments(
            parts().into_iter().enumerate().map(|(place, part)| if place == 1 { unfragmentable(part) } else { part }),
        ),
    ]
}

/// A segment of FTP, which the module reads as one.
fn read_by_a_gateway() -> Draft {
    let helper = Some("ftp".into());
    let begin = track(Conntrack { commit: Commit::Yes, zone: 7, helper, ..Conntrack::default() });
    let talk = conversation((CLIENT, 40000), (SERVER, 21));
    let scenario = Scenario::new("fragments of V4: read by a gateway")
        .flow(at(1).ipv4(6).done(), [begin, output(2)])
        .flow(at(2).ipv4(6).done(), [look_up(7), output(1)]);
    let scenario = talk.into_iter().take(3).fold(scenario, |scenario, (port, frame)| scenario.packet(port, frame));
    let segment = tcp_at(40000, 21, 0x18, (1001, 5001), format!("SITE {:81}\r\n", "HELP").as_bytes());
    let whole = Whole::of(Family::V4, 6, &segment);
    Draft { scenario, fragments: vec![] }.fragments(whole.cut(&[24, 72]))
}

/// Fragments of which one comes in at another port, to addresses of which each link has its own and to others.
fn at_two_ports() -> Vec<Draft> {
    let cases = [
        ("an address", 0xfd00 << 112 | 2),
        ("a link-local address", 0xfe80 << 112 | 2),
        ("a group", 0xff02 << 112 | 1),
    ];
    let of = |(name, target): (&str, u128)| {
        let ip = Ipv6 { target, ..Ipv6::default() };
        let bytes = ip.packet(17, &udp(40000, 53, &[7; 88]));
        let whole = Whole { family: Family::V6, bytes, headers: 40, announced_at: 6 };
        let draft = draft(&format!("at two ports, to {name}"), Family::V6, translated(Family::V6), &[output(2)]);
        let scenario = draft.scenario.flow(at(2).eth_type(0x86dd).done(), [look_up(7), recirc(2)]);
        let scenario = scenario.flow(behind(2).eth_type(0x86dd).done(), [output(3)]);
        let mut parts = whole.cut(&[24, 72]);
        parts[1].port = 2;
        parts.push(Fragment { port: 1, ..parts[1].clone() });
        Draft { scenario, fragments: parts }
    };
    cases.map(of).into()
}

fn of_ipv6() -> Vec<Draft> {
    let family = Family::V6;
    let plain = |name: &str| draft(name, family, translated(family), &[output(2)]);
    let payload = udp(40000, 53, &[7; 88]);
    let with = |extensions: &[u8], in_front| Whole::v6(extensions, in_front, 17, &payload);
    let more = |fragment: Fragment| Fragment { is_last: false, ..fragment };
    let alone = [
        ("four bytes of udp alone", datagram(family).part(0..4)),
        ("eight bytes of tcp alone", Whole::of(family, 6, &tcp(40000, 80, 2, &[7; 60])).part(0..8)),
        ("four bytes of icmp alone", Whole::of(family, 58, &icmp(128, 0, &[7; 60])).part(0..4)),
        ("an extension header alone", with(&[DESTINATION], 0).part(0..8)),
        ("eleven bytes of udp alone", datagram(family).part(0..11)),
        ("seven bytes of a later one alone", datagram(family).part(24..31)),
    ];
    // What stands behind the first header of a fragment is one again.
    let mut nested = with(&[DESTINATION], 0);
    nested.bytes[6] = FRAGMENT;
    nested.bytes[40..48].copy_from_slice(&[17, 0, 0, 1, 0, 0, 0, 7]);
    let mut route = with(&[ROUTING], 1);
    route.bytes[42..44].copy_from_slice(&[0, 0]);
    let mut too_far = datagram(family).part(72..96);
    too_far.whole.bytes.resize(65_600, 0);
    let mut all = vec![
        plain("behind hop-by-hop options").fragments(with(&[HOP_BY_HOP], 1).cut(&[24, 72])),
        plain("behind destination options").fragments(with(&[DESTINATION], 1).cut(&[24, 72])),
        plain("in front of destination options").fragments(with(&[DESTINATION], 0).cut(&[24, 72])),
        plain("behind a routing header").fragments(route.cut(&[24, 72])),
        plain("behind three headers").fragments(with(&[HOP_BY_HOP, ROUTING, DESTINATION], 3).cut(&[24, 72])),
        plain("between headers").fragments(with(&[HOP_BY_HOP, ROUTING, DESTINATION], 2).cut(&[24, 72])),
        plain("in front of three headers").fragments(with(&[DESTINATION; 3], 0).cut(&[24, 72])),
        plain("a header in two of them").fragments(with(&[DESTINATION; 3], 0).cut(&[16, 72])),
        plain("within each other").fragments(nested.cut(&[24, 72])),
        plain("to their largest offset")
            .fragments(datagram(family).cut(&[24, 72]).into_iter().take(2))
            .fragments([Fragment { range: 65_528..65_536, is_last: true, ..too_far }, datagram(family).part(72..96)]),
    ];
    all.extend(alone.map(|(name, fragment)| plain(name).fragments([more(fragment)])));
    all
}
