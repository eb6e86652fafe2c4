//! Helpers of connections, where the kernel's tc attaches them: a data connection of FTP is related to the one that spoke of
//! it.

use sluice_flow::action::{Action, Commit, Conntrack};
use sluice_flow::field::Field;
use sluice_tests::scenario::Scenario;

use crate::flows::{at, output, recirc};
use crate::packets::{Ipv4, tcp_at};

const NEW: u8 = 0x01;
const ESTABLISHED: u8 = 0x02;
const RELATED: u8 = 0x04;
const TRACKED: u8 = 0x20;
const ZONE: u16 = 7;
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];

pub(crate) fn scenarios() -> Vec<Scenario> {
    let scenario = |name: &str, helper: Option<&str>| {
        let track = |commit, helper: Option<&str>| {
            Action::Conntrack(Box::new(Conntrack {
                commit,
                zone: ZONE,
                helper: helper.map(Into::into),
                ..Conntrack::default()
            }))
        };
        let next =
            |port: u32, state: u8, mask: u8| at(port).chain(1).ipv4(6).masked(Field::CtState, state, mask).done();
        let mut scenario = Scenario::new(format!("ct helper: {name}"));
        for end in [1, 2] {
            scenario = scenario
                .flow(at(end).ipv4(6).done(), [track(Commit::No, None), recirc(1)])
                .flow(next(end, TRACKED | NEW, TRACKED | NEW | RELATED), [track(Commit::Yes, helper), output(3)])
                .flow(next(end, TRACKED | RELATED, TRACKED | RELATED), [track(Commit::Yes, None), output(4)])
                .flow(next(end, TRACKED | ESTABLISHED, TRACKED | ESTABLISHED), [output(5)]);
        }
        conversation().into_iter().fold(scenario, |scenario, (port, frame)| scenario.packet(port, frame))
    };
    vec![scenario("a data connection of ftp is related", Some("ftp")), scenario("without one it is not", None)]
}

/// A control connection in which the server opens a port, and a first packet to that port.
fn conversation() -> Vec<(u32, Vec<u8>)> {
    const SYN: u16 = 0x02;
    const ACK: u16 = 0x10;
    const PSH: u16 = 0x08;
    let (client, server) = ((CLIENT, 40000), (SERVER, 21));
    let segment = |from: ([u8; 4], u16), to: ([u8; 4], u16), flags, numbers, data: &[u8]| {
        Ipv4 { source: from.0, target: to.0, ..Ipv4::default() }.frame(6, &tcp_at(from.1, to.1, flags, numbers, data))
    };
    let out = |flags, numbers, data: &[u8]| (1, segment(client, server, flags, numbers, data));
    let back = |flags, numbers, data: &[u8]| (2, segment(server, client, flags, numbers, data));
    let (greeting, passive) = (&b"220 ready\r\n"[..], &b"227 Entering Passive Mode (10,0,0,2,195,80)\r\n"[..]);
    vec![
        out(SYN, (1000, 0), b""),
        back(SYN | ACK, (5000, 1001), b""),
        out(ACK, (1001, 5001), b""),
        back(PSH | ACK, (5001, 1001), greeting),
        out(PSH | ACK, (1001, 5012), b"PASV\r\n"),
        back(PSH | ACK, (5012, 1007), passive),
        (1, segment((CLIENT, 40001), (SERVER, 195 << 8 | 80), SYN, (9000, 0), b"")),
    ]
}
