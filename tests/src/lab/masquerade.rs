//! Masquerading by nftables, set by netlink: the program `nft` is none of those that the tests need.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use sluice_netdev::netlink::attribute::Writer;
use sluice_netdev::netlink::message::{Answer, Header, Messages, flag, write};

const NAME: &str = "router";
/// `NFNL_SUBSYS_NFTABLES`, and messages of it (`enum nf_tables_msg_types`).
const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = NFTABLES << 8;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const NEW_RULE: u16 = NFTABLES << 8 | 6;
/// `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`
const BEGIN: u16 = 0x10;
const END: u16 = 0x11;
/// `NLM_F_APPEND`
const APPEND: u16 = 0x800;
/// `NF_INET_POST_ROUTING`, and the priority of `nat` there.
const POSTROUTING: u32 = 4;
const SOURCE_NAT: u32 = 100;

/// `AF_INET` and `AF_INET6`, which nftables takes for its families `ip` and `ip6`.
pub(super) const IP: u8 = 2;
pub(super) const IP6: u8 = 10;

/// `nft add rule ip router out masquerade`, or `ip6`, in a new chain `out` of type nat at postrouting, in the namespace of this thread.
pub(super) fn masquerade(family: u8) {
    let mut datagram = Vec::new();
    put(&mut datagram, BEGIN, 0, |writer| writer.raw(&[0, 0, 0, NFTABLES.to_le_bytes()[0]]));
    put(&mut datagram, NEW_TABLE, flag::CREATE, |writer| {
        writer.raw(&[family, 0, 0, 0]);
        writer.put_text(1, NAME);
    });
    put(&mut datagram, NEW_CHAIN, flag::CREATE, |writer| {
        writer.raw(&[family, 0, 0, 0]);
        writer.put_text(1, NAME);
        writer.put_text(3, "out");
        writer.nest(4, |writer| {
            writer.put(1, &POSTROUTING.to_be_bytes());
            writer.put(2, &SOURCE_NAT.to_be_bytes());
        });
        writer.put_text(7, "nat");
    });
    put(&mut datagram, NEW_RULE, flag::CREATE | APPEND, |writer| {
        writer.raw(&[family, 0, 0, 0]);
        writer.put_text(1, NAME);
        writer.put_text(2, "out");
        writer.nest(4, |writer| writer.nest(1, |writer| writer.put_text(1, "masq")));
    });
    put(&mut datagram, END, 0, |writer| writer.raw(&[0, 0, 0, NFTABLES.to_le_bytes()[0]]));

    let family = AddressFamily::NETLINK;
    let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::NETFILTER)).unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(20))).unwrap();
    sendto(&socket, &datagram, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).unwrap();
    let (mut answered, mut buffer) = (0, [0; 1 << 14]);
    while answered < 3 {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty()).unwrap();
        for message in Messages::new(&buffer[..length]) {
            let Answer::Acknowledgement(told) = message.unwrap().answer().unwrap() else { continue };
            assert_eq!(told.errno, 0, "step {} of the rules: {:?}", told.sequence, told.text);
            answered += 1;
        }
    }
}

fn put(datagram: &mut Vec<u8>, kind: u16, flags: u16, body: impl FnOnce(&mut Writer<'_>)) {
    // What begins and ends the batch is not answered.
    let ack = if kind > 0xff { flag::ACK } else { 0 };
    let header = Header { kind, flags: flag::REQUEST | ack | flags, sequence: kind.into(), port: 0 };
    write(datagram, header, body).unwrap();
}
