//! Fields that flower matches and OVS does not have: who hits each, and who misses it by one bit. The module that is the judge of
//! other fields knows none of these, so that they are held against flower alone.

use sluice_flow::field::Field;
use sluice_tests::scenario::Scenario;

use crate::flows::{Matching, anywhere, at, output};
use crate::keys::{Kind, cut_short, of_a_kind, one_bit_off};
use crate::packets::{Ipv4, Ipv6, ethernet, tagged, udp};

const NUMBER: u32 = 0xcafe_babf;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let kinds = kinds();
    let mut all: Vec<_> = kinds.iter().flat_map(|kind| of_a_kind(kind, &kinds)).collect();
    all.extend(numbers_of_tags());
    all
}

fn kinds() -> Vec<Kind> {
    let kind = |name, frame, needs, fields: &[(Field, u128)]| Kind { name, frame, needs, fields: fields.to_vec() };
    let (ip4, ip6) = (Ipv4::default(), Ipv6::default());
    let packet = ip4.packet(17, &udp(1000, 2000, b"inner"));
    let (carried, control) = (pppoe(0x1235, 0x0021, &packet), pppoe(0x1235, 0xc021, &[9, 1, 0, 8, 1, 2, 3, 4]));
    let message = ethernet(0x8902, &[0xa0, 1, 4, 70, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7]);
    let number = NUMBER.to_be_bytes();
    let session = [&number[..], &[7; 12]].concat();
    let security = [&number[..], &[0, 0, 0, 1], &[7; 24]].concat();
    let authentication = [&[17, 4, 0, 0][..], &number, &[0, 0, 0, 1], &[7; 12], &udp(1000, 2000, b"inner")].concat();
    let of_session = |protocol| [(Field::PppoeSession, 0x1235), (Field::PppProtocol, protocol)];
    let of_message = [(Field::CfmLevel, 5), (Field::CfmOpcode, 1)];
    let number_of = |field| [(field, NUMBER.into())];
    vec![
        kind("pppoe", carried.clone(), at(1).eth_type(0x8864), &of_session(0x0021)),
        kind("pppoe of control", control.clone(), at(1).eth_type(0x8864), &of_session(0xc021)),
        kind(
            "pppoe behind a tag",
            tagged(0x8100, 0x6123, &carried),
            at(1).tag(0x8100).eth_type(0x8864),
            &[&of_session(0x0021)[..], &[(Field::NumOfVlans, 1)]].concat(),
        ),
        kind(
            "pppoe behind two tags",
            tagged(0x88a8, 0x6123, &tagged(0x8100, 0xa456, &control)),
            at(1).tag(0x88a8).inner_tag(0x8100).eth_type(0x8864),
            &[&of_session(0xc021)[..], &[(Field::NumOfVlans, 2)]].concat(),
        ),
        kind("cfm", message.clone(), at(1).eth_type(0x8902), &of_message),
        kind(
            "cfm behind a tag",
            tagged(0x8100, 0x6123, &message),
            at(1).tag(0x8100).eth_type(0x8902),
            &[&of_message[..], &[(Field::NumOfVlans, 1)]].concat(),
        ),
        kind("l2tpv3", ip4.frame(115, &session), at(1).ipv4(115), &number_of(Field::L2tpv3Session)),
        kind("l2tpv3 over ipv6", ip6.frame(115, &session), at(1).ipv6(115), &number_of(Field::L2tpv3Session)),
        kind("esp", ip4.frame(50, &security), at(1).ipv4(50), &number_of(Field::IpsecSpi)),
        kind("esp over ipv6", ip6.frame(50, &security), at(1).ipv6(50), &number_of(Field::IpsecSpi)),
        kind("ah", ip4.frame(51, &authentication), at(1).ipv4(51), &number_of(Field::IpsecSpi)),
    ]
}

/// A session packet of PPPoE.
fn pppoe(session: u16, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(2 + payload.len()).unwrap();
    let header = [0x1100, session, length, protocol].map(u16::to_be_bytes).concat();
    ethernet(0x8864, &[&header, payload].concat())
}

/// So many tags and no others, whatever they are; and the same behind a tag that is matched.
fn numbers_of_tags() -> Vec<Scenario> {
    const MOST: u8 = 4;
    /// Linux counts no further.
    const LIMIT: u8 = 16;
    let inner = Ipv4::default().frame(17, &udp(1000, 2000, b"inner"));
    let with = |tags: u8| {
        (0..tags).fold(inner.clone(), |frame, tag| {
            tagged(if tag + 1 == tags { 0x88a8 } else { 0x8100 }, 0x6120 | u16::from(tag), &frame)
        })
    };
    let all: Vec<_> = (0..=MOST).map(with).collect();
    let scenario = |name: String, matching: Matching, frames: Vec<Vec<u8>>| {
        Scenario::new(name).flow(matching.done(), [output(2)]).packets(1, [all.clone(), frames].concat())
    };
    let any = (0..=MOST).chain([LIMIT]).map(|tags| {
        let matching = anywhere(1).is(Field::NumOfVlans, tags);
        scenario(format!("key num_of_vlans: any {tags}"), matching, [LIMIT - 1, LIMIT, LIMIT + 1].map(with).into())
    });
    let matched = (1..=3u8).flat_map(|tags| {
        let frames = [one_bit_off(&with(tags)), cut_short(&with(tags))].concat();
        // The outermost is of 802.1ad, and all others are of 802.1Q.
        let outer = anywhere(1).tag(0x88a8).is(Field::NumOfVlans, tags);
        let one = scenario(format!("key num_of_vlans: {tags} behind 802.1ad"), outer, frames.clone());
        let inner = (tags > 1).then(|| {
            let matching = outer.inner_tag(0x8100);
            scenario(format!("key num_of_vlans: {tags} behind 802.1ad and 802.1Q"), matching, frames)
        });
        std::iter::once(one).chain(inner)
    });
    any.chain(matched).collect()
}
