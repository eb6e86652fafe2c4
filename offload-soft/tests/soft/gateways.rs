//! FTP and TFTP through a device: `ct(helper=…)`, with and without address translation.

use sluice_flow::action::{Action, Commit, Conntrack, Nat, NatSide, PortPick, Translation};
use sluice_flow::backend::Verdict;
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;

use crate::frames::{Ip4, tcp, udp, verify};
use crate::harness::{Device, flow, is_ipv4, output, recirc};

const NEW: u128 = 0x01;
const ESTABLISHED: u128 = 0x02;
const RELATED: u128 = 0x04;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 9];
const OUTSIDE: [u8; 4] = [198, 51, 100, 100];

const SYN: u16 = 0x02;
const ACK: u16 = 0x10;

/// A router between the client at port 1 and the server at port 2. Who is inside may begin connections of a protocol,
/// which a gateway reads, and what it announces may begin from either side; nothing else passes.
fn router(protocol: u8, helper: &str, hides: bool) -> Device {
    let mut device = Device::new();
    for chain in [1, 2] {
        device.open_chain(ChainId(chain));
    }
    let address = std::net::Ipv4Addr::from(OUTSIDE).into();
    let translation = Translation {
        side: NatSide::Source,
        addresses: Some((address, address)),
        ports: None,
        persistent: false,
        pick: PortPick::Default,
    };
    let existing = hides.then_some(Nat::Existing);
    let look = Conntrack { zone: 5, nat: existing.clone(), ..Conntrack::default() };
    let begin = Conntrack {
        commit: Commit::Yes,
        helper: Some(helper.into()),
        nat: hides.then_some(Nat::New(translation)),
        ..look.clone()
    };
    let fulfil = Conntrack { commit: Commit::Yes, nat: existing, ..look.clone() };
    let ct = |action: &Conntrack| Action::Conntrack(Box::new(action.clone()));
    let seen = |chain: u32, value: u128, mask: u128| {
        move |full: &mut Match| {
            is_ipv4(full);
            full.set_exact(Field::Ipv4Proto, protocol.into());
            full.set_exact(Field::RecircId, chain.into());
            full.set(Field::CtState, value, mask);
        }
    };
    for port in [1, 2] {
        let from = move |full: &mut Match| {
            is_ipv4(full);
            full.set_exact(Field::InPort, port.into());
        };
        device.add(flow(from, vec![ct(&look), recirc(port)])).unwrap();
        let out = output(3 - port);
        let whole = NEW | ESTABLISHED | RELATED;
        device.add(flow(seen(port, ESTABLISHED, NEW | ESTABLISHED), vec![out.clone()])).unwrap();
        device.add(flow(seen(port, NEW | RELATED, whole), vec![ct(&fulfil), out.clone()])).unwrap();
        let alone = if port == 1 { vec![ct(&begin), out] } else { vec![] };
        device.add(flow(seen(port, NEW, whole), alone)).unwrap();
    }
    device
}

/// The only frame that left at a port, with its checksums verified.
fn sent(verdict: Verdict, port: u32) -> Vec<u8> {
    let [(number, frame)] = <[_; 1]>::try_from(verdict.sent).unwrap();
    assert_eq!(number, PortNumber(port));
    verify(&frame);
    frame
}

type End = ([u8; 4], u16);

fn segment([source, destination]: [End; 2], flags: u16, [seq, ack]: [u32; 2], options: &[u8], text: &[u8]) -> Vec<u8> {
    let mut segment = tcp(source.1, destination.1, flags, &[options, text].concat());
    segment[4..8].copy_from_slice(&seq.to_be_bytes());
    segment[8..12].copy_from_slice(&ack.to_be_bytes());
    segment[12] = u8::try_from((20 + options.len()) / 4).unwrap() << 4;
    Ip4 { source: source.0, destination: destination.0, ..Ip4::default() }.frame(6, &segment)
}

/// A control connection through a router.
struct Control<'a> {
    device: &'a Device,
    /// The client as the server sees it.
    seen_as: End,
}

const CONTROL: End = (SERVER, 21);
const INSIDE: End = (CLIENT, 40_000);

impl<'a> Control<'a> {
    /// Both ends have said a line: the client goes on at 1016, the server at 5013.
    fn open(device: &'a Device, seen_as: [u8; 4]) -> Self {
        let control = Self { device, seen_as: (seen_as, 40_000) };
        control.same(1, SYN, [999, 0], "");
        control.same(2, SYN | ACK, [4999, 1000], "");
        control.same(1, ACK, [1000, 5000], "");
        control.same(2, ACK, [5000, 1000], "220 Welcome\r\n");
        control.same(1, ACK, [1000, 5013], "USER anonymous\r\n");
        control
    }

    /// What is said at a port and what leaves at the other one; numbers and texts.
    fn says(&self, port: u32, flags: u16, [before, after]: [([u32; 2], &str); 2], options: [&[u8]; 2]) {
        let ends = |client| if port == 1 { [client, CONTROL] } else { [CONTROL, client] };
        let clients = if port == 1 { [INSIDE, self.seen_as] } else { [self.seen_as, INSIDE] };
        let said = segment(ends(clients[0]), flags, before.0, options[0], before.1.as_bytes());
        let heard = segment(ends(clients[1]), flags, after.0, options[1], after.1.as_bytes());
        assert_eq!(sent(self.device.inject(port, &said), 3 - port), heard, "{}", before.1);
    }

    fn same(&self, port: u32, flags: u16, numbers: [u32; 2], text: &str) {
        self.says(port, flags, [(numbers, text); 2], [&[]; 2]);
    }

    /// A connection that begins at a port with ends that are seen otherwise behind the router, and is answered.
    fn data(&self, port: u32, before: [End; 2], after: [End; 2]) {
        let back = |[source, destination]: [End; 2]| [destination, source];
        let begin = |ends| segment(ends, SYN, [1, 0], &[], b"");
        let answer = |ends| segment(back(ends), SYN | ACK, [7, 2], &[], b"");
        let next = |ends| segment(ends, ACK, [2, 8], &[], b"data");
        assert_eq!(sent(self.device.inject(port, &begin(before)), 3 - port), begin(after));
        assert_eq!(sent(self.device.inject(3 - port, &answer(after)), port), answer(before));
        assert_eq!(sent(self.device.inject(port, &next(before)), 3 - port), next(after));
    }
}

#[test]
fn active_ftp_passes_a_router_that_hides_nobody() {
    let device = router(6, "ftp", false);
    let control = Control::open(&device, CLIENT);
    let data = [(SERVER, 20), (CLIENT, 5001)];
    assert!(device.inject(2, &segment(data, SYN, [1, 0], &[], b"")).sent.is_empty(), "nobody spoke of it");
    control.same(1, ACK, [1016, 5013], "PORT 10,0,0,1,19,137\r\n");
    control.data(2, data, data);
    assert_eq!(device.nic.conntrack().len(), 2);
}

#[test]
fn passive_ftp_passes_a_router_that_hides_nobody() {
    let device = router(6, "ftp", false);
    let control = Control::open(&device, CLIENT);
    control.same(2, ACK, [5013, 1016], "227 Entering Passive Mode (192,0,2,9,78,32).\r\n");
    let data = [(CLIENT, 40_001), (SERVER, 20_000)];
    control.data(1, data, data);
}

#[test]
fn active_ftp_passes_a_router_that_hides_the_client_with_all_numbers_shifted() {
    let device = router(6, "ftp", true);
    let control = Control::open(&device, OUTSIDE);
    let command = ["PORT 10,0,0,1,19,137\r\n", "PORT 198,51,100,100,19,137\r\n"];
    control.says(1, ACK, [([1016, 5013], command[0]), ([1016, 5013], command[1])], [&[]; 2]);
    control.says(2, ACK, [([5013, 1044], "200 Fine\r\n"), ([5013, 1038], "200 Fine\r\n")], [&[]; 2]);
    control.says(1, ACK, [([1038, 5023], "LIST\r\n"), ([1044, 5023], "LIST\r\n")], [&[]; 2]);
    let sack = |left: u32, right: u32| [&[1, 1, 5, 10][..], &left.to_be_bytes(), &right.to_be_bytes()].concat();
    let (before, after) = (sack(1050, 1060), sack(1044, 1054));
    control.says(2, ACK, [([5023, 1044], ""), ([5023, 1038], "")], [&before, &after]);
    control.data(2, [(SERVER, 20), (OUTSIDE, 5001)], [(SERVER, 20), (CLIENT, 5001)]);
    // A second transfer, after which both changes count.
    let command = ["EPRT |1|10.0.0.1|6000|\r\n", "EPRT |1|198.51.100.100|6000|\r\n"];
    control.says(1, ACK, [([1044, 5023], command[0]), ([1050, 5023], command[1])], [&[]; 2]);
    control.says(1, ACK, [([1068, 5023], "QUIT\r\n"), ([1080, 5023], "QUIT\r\n")], [&[]; 2]);
    control.data(2, [(SERVER, 20), (OUTSIDE, 6000)], [(SERVER, 20), (CLIENT, 6000)]);
}

#[test]
fn passive_ftp_passes_a_router_that_hides_the_client() {
    let device = router(6, "ftp", true);
    let control = Control::open(&device, OUTSIDE);
    control.same(2, ACK, [5013, 1016], "229 Entering Extended Passive Mode (|||20000|)\r\n");
    control.data(1, [(CLIENT, 40_001), (SERVER, 20_000)], [(OUTSIDE, 40_001), (SERVER, 20_000)]);
}

#[test]
fn tftp_passes_a_router_that_hides_the_client() {
    let device = router(17, "tftp", true);
    let datagram = |[source, destination]: [End; 2], text: &[u8]| {
        let datagram = udp(source.1, destination.1, text);
        Ip4 { source: source.0, destination: destination.0, ..Ip4::default() }.frame(17, &datagram)
    };
    let request = b"\x00\x01file\x00byte\x00";
    let there = sent(device.inject(1, &datagram([(CLIENT, 3000), (SERVER, 69)], request)), 2);
    assert_eq!(there, datagram([(OUTSIDE, 3000), (SERVER, 69)], request));
    let block = b"\x00\x03\x00\x01content";
    let here = sent(device.inject(2, &datagram([(SERVER, 50_000), (OUTSIDE, 3000)], block)), 1);
    assert_eq!(here, datagram([(SERVER, 50_000), (CLIENT, 3000)], block));
    let acknowledgement = b"\x00\x04\x00\x01";
    let there = sent(device.inject(1, &datagram([(CLIENT, 3000), (SERVER, 50_000)], acknowledgement)), 2);
    assert_eq!(there, datagram([(OUTSIDE, 3000), (SERVER, 50_000)], acknowledgement));
}
