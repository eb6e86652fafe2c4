//! IP packets into tunnels and out of them: what is put on takes the place of Ethernet, and what is taken off gets Ethernet again.

use sluice_connectx::profile::CONNECTX_5;
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::Reformat;

use crate::actions::{rewritten, walked};
use crate::frames::{HOST, ROUTER, ethernet, ipv4};
use crate::packet::{Packet, TCP};
use crate::rig::GENERATIONS;

const GRE: u8 = 47;
const ETHERNET: usize = 14;

/// An IP packet in GRE, and the headers in front of it.
fn in_gre(packet: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let gre = [0, 0, 0x08, 0x00];
    let whole = ethernet(0x0800, &ipv4([172, 16, 0, 1], [172, 16, 0, 2], GRE, &[&gre, packet].concat()));
    let headers = whole[..whole.len() - packet.len()].to_vec();
    (whole, headers)
}

#[test]
fn ip_packets_are_put_into_tunnels_and_taken_out_of_them() {
    let inside = Packet::v4(TCP).frame();
    let (whole, headers) = in_gre(&inside[ETHERNET..]);
    let addresses = [&HOST[..], &ROUTER, &[0x08, 0x00]].concat();
    for profile in GENERATIONS {
        let out = rewritten(profile, &inside, Port::Vport(0), |domain| {
            vec![domain.reformat(Reformat::EncapOfIp, &headers).unwrap(), domain.to_vport(0xffff).unwrap()]
        });
        assert_eq!(out, Some((Port::Wire, whole.clone())));
        let back = rewritten(profile, &whole, Port::Wire, |domain| {
            vec![domain.reformat(Reformat::DecapToEthernet, &addresses).unwrap(), domain.to_vport(0).unwrap()]
        });
        assert_eq!(back, Some((Port::Vport(0), [&addresses, &inside[ETHERNET..]].concat())));
    }
}

#[test]
fn what_comes_out_of_a_tunnel_may_get_a_tag_except_where_the_entry_cannot_be_understood() {
    let inside = Packet::v4(TCP).frame();
    let (whole, _) = in_gre(&inside[ETHERNET..]);
    let tagged = [&HOST[..], &ROUTER, &[0x81, 0x00, 0x20, 0x64, 0x08, 0x00]].concat();
    for profile in GENERATIONS {
        let walk = walked(profile, &whole, Port::Wire, |domain| {
            vec![domain.reformat(Reformat::DecapToEthernet, &tagged).unwrap(), domain.to_vport(0).unwrap()]
        });
        if profile == CONNECTX_5 {
            assert!(walk.to_string().contains("decapsulation of IP into a tagged frame is not modelled"), "{walk}");
        } else {
            assert_eq!(walk.sent, [(Port::Vport(0), [&tagged, &inside[ETHERNET..]].concat())]);
        }
    }
}
