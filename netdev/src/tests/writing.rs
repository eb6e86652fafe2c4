//! What is written, byte by byte. What the kernel makes of it is shown in `tests/tests/tc_links`.

use std::num::NonZeroU16;

use super::written;
use crate::device::Ifindex;
use crate::ingress::IngressQdisc;
use crate::message;
use crate::touched_filters::Block;
use crate::tunnel_device::{WantedProtocol, WantedTunnel};

#[test]
fn a_queueing_discipline_is_written_with_its_blocks() {
    let qdisc = IngressQdisc::CLSACT.with_ingress_block(Block(7)).with_egress_block(Block(8));
    let expected = [
        &[0, 0, 0, 0][..],
        &3_u32.to_ne_bytes(),
        &0xffff_0000_u32.to_ne_bytes(),
        &0xffff_fff1_u32.to_ne_bytes(),
        &[0; 4],
        &attribute(1, b"clsact\0"),
        &attribute(13, &7_u32.to_ne_bytes()),
        &attribute(14, &8_u32.to_ne_bytes()),
    ]
    .concat();
    assert_eq!(written(|writer| qdisc.emit(Ifindex(3), writer)), expected);
}

#[test]
fn a_request_for_a_link_asks_for_no_counters() {
    const SKIP_STATISTICS: u32 = 1 << 3;
    let expected = [&[0; 16][..], &attribute(29, &SKIP_STATISTICS.to_ne_bytes()), &attribute(3, b"eth0\0")].concat();
    assert_eq!(written(|writer| message::emit_get_link(Some("eth0"), writer)), expected);
}

#[test]
fn a_tunnel_device_is_written_with_port_and_mode() {
    let protocol = WantedProtocol::Vxlan { udp_port: NonZeroU16::new(4790).unwrap(), group_policy: true };
    let vxlan = WantedTunnel { name: "vx".into(), protocol };
    let options = [attribute(25, &[1]), attribute(7, &[0]), attribute(15, &4790_u16.to_be_bytes()), attribute(23, &[])];
    let info = [attribute(1, b"vxlan\0"), attribute(2, &options.concat())].concat();
    let expected = [&[0; 16][..], &attribute(3, b"vx\0"), &attribute(18, &info)].concat();
    assert_eq!(written(|writer| message::emit_link(&vxlan.request(), writer)), expected);
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
