//! IP packets into tunnels and out of them: what is put on takes the place of Ethernet, and what is taken off gets Ethernet again.

use sluice_connectx::profile::CONNECTX_5;
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::Reformat;

use crate::actions::{REGISTER_C_0, copy, rewritten, set, walked};
use crate::fields::tunnel;
use crate::frames::{HOST, ROUTER, ethernet, ipv4};
use crate::packet::{Packet, TCP};
use crate::rig::{GENERATIONS, play_in_switch};

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

const GTPU_ENDPOINT: u64 = 0x6e;

#[test]
fn the_endpoint_of_gtpu_is_rewritten_where_there_is_one() {
    const TTL: u64 = 0x0a;
    let inside = Packet::v4(TCP).frame();
    let gtpu = |endpoint: u32| {
        let header = [&[0x30, 0xff, 0, 58][..], &endpoint.to_be_bytes()].concat();
        tunnel(2152, &header, &inside[ETHERNET..])
    };
    for profile in GENERATIONS.into_iter().filter(|profile| *profile != CONNECTX_5) {
        let sent = |frame: &[u8], actions: &[u64]| {
            let (_, frame) = rewritten(profile, frame, Port::Vport(0), |domain| {
                vec![domain.modify_header(actions).unwrap(), domain.to_vport(0xffff).unwrap()]
            })
            .unwrap();
            frame
        };
        let one = gtpu(0xdead_beef);
        assert_eq!(sent(&one, &[set(GTPU_ENDPOINT, 0, 32, 0x0102_0304)]), gtpu(0x0102_0304));
        assert_eq!(sent(&one, &[set(GTPU_ENDPOINT, 8, 16, 0x5678)]), gtpu(0xde56_78ef));
        let copied = [set(REGISTER_C_0, 0, 32, 0x2222_3333), copy(REGISTER_C_0, GTPU_ENDPOINT)];
        assert_eq!(sent(&one, &copied), gtpu(0x2222_3333));
        // In a list with a field of another header.
        let mut both = gtpu(7);
        both[ETHERNET + 8] = 9;
        let sum = crate::frames::checksum(
            &[&both[ETHERNET..ETHERNET + 10], &[0, 0], &both[ETHERNET + 12..ETHERNET + 20]].concat(),
        );
        both[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(sent(&one, &[set(TTL, 0, 8, 9), set(GTPU_ENDPOINT, 0, 32, 7)]), both);
        let vxlan = tunnel(4789, &[8, 0, 0, 0, 0, 0, 42, 0], &inside);
        assert_eq!(sent(&vxlan, &[set(GTPU_ENDPOINT, 0, 32, 1)]), vxlan, "no header of GTP-U");
    }
    play_in_switch(CONNECTX_5, |_, _, domain, _| {
        assert!(domain.modify_header(&[set(GTPU_ENDPOINT, 0, 32, 1)]).is_err(), "format 0 has no place for it");
    });
}
