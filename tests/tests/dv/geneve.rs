//! Packets with options of Geneve, of which the device finds one.

use sluice_offload_dv::translate::translate;
use sluice_tests::mlx5::on_device;

use crate::rig::{Rig, Vport, flow};
use crate::tunnels::{Case, PROFILES, compare, inner, open};
use crate::wrapped::{Header, Outer};

/// Class, type and length of an option with one word of data, and the data.
const HIT: [u8; 8] = [0x01, 0x02, 0x80, 1, 0x00, 0x01, 0x00, 0x02];
const OTHER: [u8; 8] = [0x01, 0x02, 0x81, 1, 0x00, 0x01, 0x00, 0x02];

/// Options without data, which are as long together as one with a word of it.
const TWO_THAT_ARE_EMPTY: [u8; 8] = [0x01, 0x02, 0x80, 0, 0x01, 0x02, 0x82, 0];

fn key(option: &str) -> String {
    format!("tunnel(tun_id=0x5,geneve({option}),flags(+key)),in_port(11)")
}

fn frame(options: &[u8]) -> Vec<u8> {
    Outer { tunnel: Header::Geneve(false, 5, options.to_vec()), ..Outer::vxlan(0) }.around(&inner())
}

/// A case without the frame of which the device knows less than the NIC in software.
fn without_two_that_are_empty(mut case: Case) -> Case {
    case.frames.retain(|other| *other != frame(&TWO_THAT_ARE_EMPTY));
    case
}

/// Every option that differs in one bit.
fn near_misses(option: [u8; 8]) -> impl Iterator<Item = [u8; 8]> {
    let bits = (0..64).filter(|bit| !LENGTH.contains(bit));
    bits.map(move |bit| (u64::from_be_bytes(option) ^ 1 << (63 - bit)).to_be_bytes())
}

/// The reserved bits and the length, by their places. A header that says another length than there is is not one.
const LENGTH: std::ops::Range<u32> = 24..32;

fn case(option: &str, hit: [u8; 8]) -> Case {
    let longer = [&[0x01, 0x02, 0x80, 2][..], &hit[4..], &[0; 4]].concat();
    let others =
        [vec![], OTHER.to_vec(), TWO_THAT_ARE_EMPTY.to_vec(), [OTHER, hit].concat(), [hit, OTHER].concat(), longer];
    let all = [hit].into_iter().chain(near_misses(hit)).map(|option| option.to_vec()).chain(others);
    Case { flows: vec![(key(option), "2")], from: 1, frames: all.map(|options| frame(&options)).collect() }
}

#[test]
fn an_option_is_matched_to_the_bit_as_in_the_nic_in_software() {
    for profile in PROFILES {
        on_device(profile, "geneve::an_option_is_matched_to_the_bit_as_in_the_nic_in_software", |ports| {
            let whole = case("{class=0x102,type=0x80,len=4,0x10002}", HIT);
            // As OVN has it: the ports that a packet comes from and goes to.
            let part = case("{class=0x102,type=0x80,len=4,0x10002/0x7fff00ff}", HIT);
            compare(ports, vec![whole, part]);
        });
    }
}

#[test]
fn of_an_option_of_any_kind_the_length_of_all_options_counts() {
    let name = "geneve::of_an_option_of_any_kind_the_length_of_all_options_counts";
    on_device("bluefield-3", name, |ports| {
        compare(ports, vec![without_two_that_are_empty(case("{len=4}", HIT))]);
        let mut rig = open(ports);
        rig.add(&flow(&key("{len=4}"), "2")).unwrap();
        assert_eq!(rig.inject(1, &frame(&TWO_THAT_ARE_EMPTY)), [(2, inner())]);
    });
}

#[test]
fn an_option_of_zeros_is_told_from_none() {
    const ZEROS: [u8; 8] = [0x01, 0x02, 0x80, 1, 0, 0, 0, 0];
    on_device("bluefield-3", "geneve::an_option_of_zeros_is_told_from_none", |ports| {
        let any = case("{class=0x102,type=0x80,len=4,0/0}", HIT);
        compare(ports, vec![case("{class=0x102,type=0x80,len=4,0}", ZEROS), any]);
    });
}

#[test]
fn a_device_that_does_not_tell_an_option_of_zeros_from_none_says_so() {
    on_device("bluefield-2", "geneve::a_device_that_does_not_tell_an_option_of_zeros_from_none_says_so", |ports| {
        let refusal = open(ports).add(&flow(&key("{class=0x102,type=0x80,len=4,0}"), "2")).unwrap_err();
        let reason = "field tunnel.geneve[0]: this device does not tell an option of zeros from none";
        assert_eq!(refusal.to_string(), reason);
    });
}

#[test]
fn the_device_looks_for_one_option_from_the_first_flow_that_matches_it_to_the_last() {
    let name = "geneve::the_device_looks_for_one_option_from_the_first_flow_that_matches_it_to_the_last";
    on_device("bluefield-3", name, |ports| {
        let mut rig = open(ports);
        let add = |rig: &mut Rig<'_>, option: &str| rig.add(&flow(&key(option), "2"));
        let one = "{class=0x102,type=0x80,len=4,0x10002}";
        let another = "{class=0x102,type=0x81,len=4,0x10002}";
        let looked_for = || ports.control().left().get("options-of-Geneve").copied();
        assert_eq!(looked_for(), None);
        let first = add(&mut rig, one).unwrap();
        let second = add(&mut rig, "{class=0x102,type=0x80,len=4,0x3/0xff}").unwrap();
        assert_eq!(looked_for(), Some(1));
        let refusal = add(&mut rig, another).unwrap_err();
        let reason =
            "the device looks for one option of Geneve at a time, and that of class 0x102 and type 0x80 is in use";
        assert_eq!(refusal.to_string(), format!("field tunnel.geneve[0]: {reason}"));
        rig.switch.remove(&[first]).unwrap();
        assert!(add(&mut rig, another).is_err());
        rig.switch.remove(&[second]).unwrap();
        assert_eq!(looked_for(), None);
        assert_eq!(rig.inject(1, &frame(&OTHER)), [(0, frame(&OTHER))]);
        add(&mut rig, another).unwrap();
        assert_eq!(rig.inject(1, &frame(&OTHER)), [(2, inner())]);
        assert_eq!(rig.inject(1, &frame(&HIT)), [(0, frame(&HIT))]);
    });
}

#[test]
fn what_the_device_does_not_find_of_options_is_refused_by_name() {
    const ONE_WORD: &str = "the device finds one option, of one word of data";
    let cases = [
        ("{class=0x102,type=0x80,len=8,0x1000200000003}", ONE_WORD),
        ("{class=0x102,type=0x80,len=4,0x10002},{class=0x102,type=0x81,len=4,0x3}", ONE_WORD),
        ("{class=0x102,type=0x80,len=0}", ONE_WORD),
        (
            "{class=0x102,type=0x80,len=0},{class=0x102,type=0x81,len=0}",
            "the device finds options of one word of data only",
        ),
        ("{class=0x102/0xff,type=0x80,len=4,0x1}", "the device finds an option by its whole class and type"),
        ("{class=0x102,type=0/0,len=4,0x1}", "the device finds an option by its whole class and type"),
    ];
    for (option, reason) in cases {
        let refusal = translate(&flow(&key(option), "2"), &Vport).unwrap_err();
        assert_eq!(refusal.to_string(), format!("field tunnel.geneve[0]: {reason}"), "{option}");
    }
}

#[test]
fn explain_says_the_option_that_the_device_is_to_look_for() {
    let rule = translate(&flow(&key("{class=0x102,type=0x80,len=4,0x10002/0xffff}"), "2"), &Vport).unwrap();
    let said = rule.describe(&|vport| vport.to_string());
    let wanted = "misc3.geneve_tlv_option_0_data=0x2/0xffff misc.geneve_opt_len=0x2 of option 0x102:0x80;";
    assert!(said.contains(wanted), "{said}");
}
