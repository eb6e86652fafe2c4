use super::sample::{
    ethernet, ipv4, ipv6, tagged, tcp, tcp_frame, transport_checksum, udp, vxlan_frame, with_checksum,
};
use super::{Fragment, Headers, Transport, TunnelKind, TunnelPorts, edit};

fn parse(frame: &[u8]) -> Headers {
    Headers::parse(frame, &TunnelPorts::default())
}

#[test]
fn a_tcp_segment_shows_its_addresses_ports_and_flags() {
    let headers = parse(&tcp_frame());
    let ip = headers.outer.ip.unwrap();
    assert_eq!((ip.version, ip.ttl, ip.protocol, ip.source, ip.destination), (4, 64, 6, 0x0a00_0001, 0x0a00_0002));
    let Some(Transport::Tcp { source, destination, flags, sequence, acknowledgement, .. }) = headers.outer.transport
    else {
        panic!("{headers:?}")
    };
    assert_eq!((source, destination, flags, sequence, acknowledgement), (1000, 80, 0x12, 0x0102_0304, 0x0506_0708));
    assert_eq!((headers.tunnel, headers.inner), (None, None));
}

#[test]
fn two_vlan_tags_are_seen_and_a_third_is_payload() {
    let packet = ipv4([1, 1, 1, 1], [2, 2, 2, 2], 17, &udp(1, 2, b""));
    let twice = parse(&ethernet(0x88a8, &tagged(0x2005, 0x8100, &tagged(7, 0x0800, &packet)))).outer;
    assert_eq!(
        twice.vlans.iter().map(|vlan| (vlan.ethertype, vlan.tci)).collect::<Vec<_>>(),
        [(0x88a8, 0x2005), (0x8100, 7)]
    );
    assert_eq!((twice.ethertype, twice.ip.is_some()), (0x0800, true));
    let thrice = ethernet(0x8100, &tagged(1, 0x8100, &tagged(2, 0x8100, &tagged(3, 0x0800, &packet))));
    let thrice = parse(&thrice).outer;
    assert_eq!((thrice.vlans.len(), thrice.ethertype, thrice.ip), (2, 0x8100, None));
}

#[test]
fn a_later_fragment_has_no_ports() {
    let mut frame = tcp_frame();
    frame[14 + 6] = 0x20;
    let first = parse(&frame).outer;
    assert_eq!((first.ip.unwrap().fragment, first.transport.is_some()), (Fragment::First, true));
    frame[14 + 7] = 1;
    let later = parse(&frame).outer;
    assert_eq!((later.ip.unwrap().fragment, later.transport), (Fragment::Later, None));
}

#[test]
fn ipv6_extension_headers_are_stepped_over() {
    let mut payload = vec![44, 0, 0, 0, 0, 0, 0, 0];
    payload.extend([17, 0, 0, 1, 0, 0, 0, 9]);
    payload.extend(udp(5, 6, b"x"));
    let layer = parse(&ethernet(0x86dd, &ipv6(1, 2, 0, &payload))).outer;
    let ip = layer.ip.unwrap();
    assert_eq!((ip.version, ip.protocol, ip.fragment), (6, 17, Fragment::First));
    assert!(matches!(layer.transport, Some(Transport::Udp { source: 5, destination: 6, .. })));
}

#[test]
fn vxlan_shows_its_vni_and_the_frame_inside() {
    let headers = parse(&vxlan_frame());
    assert_eq!(headers.tunnel.unwrap().kind, TunnelKind::Vxlan { vni: 42 });
    assert_eq!(headers.inner.unwrap().ip.unwrap().destination, 0x0a00_0002);
    let other_port = ethernet(0x0800, &ipv4([1; 4], [2; 4], 17, &udp(1, 8472, &[8, 0, 0, 0, 0, 0, 7, 0])));
    assert_eq!(parse(&other_port).tunnel, None);
    let added = TunnelPorts { vxlan: vec![4789, 8472], ..TunnelPorts::default() };
    assert_eq!(Headers::parse(&other_port, &added).tunnel.unwrap().kind, TunnelKind::Vxlan { vni: 7 });
}

#[test]
fn geneve_options_are_stepped_over() {
    let mut header = vec![0x02, 0x80, 0x65, 0x58, 0, 0, 9, 0];
    header.extend([0; 8]);
    header.extend(tcp_frame());
    let headers = parse(&ethernet(0x0800, &ipv4([1; 4], [2; 4], 17, &udp(1, 6081, &header))));
    let expected = TunnelKind::Geneve { vni: 9, protocol: 0x6558, options: 2, oam: true, option: None };
    assert_eq!(headers.tunnel.unwrap().kind, expected);
    assert!(matches!(headers.inner.unwrap().transport, Some(Transport::Tcp { destination: 80, .. })));
}

#[test]
fn gre_with_a_key_carries_frames_packets_and_mpls() {
    let over_gre = |protocol: u16, payload: &[u8]| {
        let header = [&[0x20, 0][..], &protocol.to_be_bytes(), &0x1234_5678_u32.to_be_bytes(), payload].concat();
        parse(&ethernet(0x0800, &ipv4([1; 4], [2; 4], 47, &header)))
    };
    let packet = &tcp_frame()[14..];
    let labelled = [&[0, 0, 0x11, 0x40][..], packet].concat();
    for (protocol, payload, mpls) in
        [(0x6558, tcp_frame(), None), (0x0800, packet.to_vec(), None), (0x8847, labelled, Some(0x1140))]
    {
        let headers = over_gre(protocol, &payload);
        let TunnelKind::Gre { key, mpls: entry, .. } = headers.tunnel.unwrap().kind else { panic!("{headers:?}") };
        assert_eq!((key, entry), (Some(0x1234_5678), mpls));
        assert_eq!(headers.inner.unwrap().ip.unwrap().source, 0x0a00_0001);
    }
}

#[test]
fn gtpu_vxlan_gpe_mpls_in_udp_and_ip_in_ip_are_tunnels() {
    let packet = &tcp_frame()[14..];
    let in_udp = |port, header: &[u8]| {
        parse(&ethernet(0x0800, &ipv4([1; 4], [2; 4], 17, &udp(1, port, &[header, packet].concat()))))
    };
    let gtpu = [0x34, 255, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0x85, 1, 0x10, 9, 0];
    let headers = in_udp(2152, &gtpu);
    let expected = TunnelKind::Gtpu { first: 0x34ff_0000, teid: 77, third: Some(0x85), extension: Some(0x0110_0900) };
    assert_eq!(headers.tunnel.unwrap().kind, expected);
    assert!(headers.inner.is_some());
    let headers = in_udp(4790, &[0x0c, 0, 0, 1, 0, 0, 5, 0]);
    assert_eq!(headers.tunnel.unwrap().kind, TunnelKind::VxlanGpe { vni: 5, next: 1, flags: 0x0c });
    assert!(headers.inner.is_some());
    let headers = in_udp(6635, &[0, 0, 0x20, 0x40, 0, 0, 0x31, 0x40]);
    assert_eq!(headers.tunnel.unwrap().kind, TunnelKind::MplsInUdp { entry: 0x2040 });
    assert!(headers.inner.is_some());
    let headers = parse(&ethernet(0x0800, &ipv4([1; 4], [2; 4], 4, packet)));
    assert_eq!(headers.tunnel.unwrap().kind, TunnelKind::IpInIp);
    assert!(headers.inner.is_some());
}

#[test]
fn esp_icmp_and_mpls_show_their_fields() {
    let esp = parse(&ethernet(0x0800, &ipv4([1; 4], [2; 4], 50, &[0, 0, 1, 2, 0, 0, 0, 1])));
    assert!(matches!(esp.outer.transport, Some(Transport::Esp { spi: 0x102, .. })));
    let icmp = parse(&ethernet(0x0800, &ipv4([1; 4], [2; 4], 1, &[8, 3, 0, 0, 0, 1, 0, 2])));
    assert!(matches!(icmp.outer.transport, Some(Transport::Icmp { kind: 8, code: 3, data: 0x1_0002, .. })));
    let icmpv6 = parse(&ethernet(0x86dd, &ipv6(1, 2, 58, &[135, 0, 0, 0, 0, 0, 0, 0])));
    assert!(matches!(icmpv6.outer.transport, Some(Transport::Icmpv6 { kind: 135, .. })));
    let mpls = parse(&ethernet(0x8847, &[0, 0, 0x11, 0x40, 0x45])).outer;
    assert_eq!((mpls.mpls, mpls.ip), (Some(0x1140), None));
}

#[test]
fn a_frame_cut_anywhere_still_parses() {
    for frame in [tcp_frame(), vxlan_frame()] {
        for length in 0..=frame.len() {
            let headers = parse(&frame[..length]);
            assert!(headers.outer.ip.is_none_or(|ip| ip.payload <= length));
        }
    }
}

#[test]
fn an_overwritten_address_leaves_both_checksums_right() {
    let mut frame = tcp_frame();
    let headers = parse(&frame);
    assert!(edit::overwrite(&mut frame, &headers, 14 + 12, &[172, 16, 9, 8]));
    assert!(edit::overwrite(&mut frame, &headers, 14 + 8, &[63]));
    assert!(edit::overwrite(&mut frame, &headers, 14 + 20 + 3, &[81]));
    assert_eq!(edit::checksum(&frame[14..34]), 0);
    assert_eq!(transport_checksum(&frame[34..], [172, 16, 9, 8], [10, 0, 0, 2], 6), 0);
}

#[test]
fn an_absent_udp_checksum_stays_absent_and_an_outer_one_follows_the_inside() {
    let addresses = ([1, 1, 1, 1], [2, 2, 2, 2]);
    let inside = ethernet(0x0800, &ipv4(addresses.0, addresses.1, 17, &udp(1, 2, b"data")));
    let datagram = with_checksum(udp(1, 4789, &super::sample::vxlan(1, &inside)), 6, addresses, 17);
    let mut frame = ethernet(0x0800, &ipv4(addresses.0, addresses.1, 17, &datagram));
    let headers = parse(&frame);
    let ttl = headers.inner.as_ref().unwrap().ip.unwrap().at + 8;
    assert!(edit::overwrite(&mut frame, &headers, ttl, &[7]));
    assert_eq!(transport_checksum(&frame[34..], addresses.0, addresses.1, 17), 0);
    let inner_udp = ttl - 8 + 20;
    assert_eq!(frame[inner_udp + 6..inner_udp + 8], [0, 0]);
}

#[test]
fn a_udp_checksum_that_becomes_zero_is_written_as_ones() {
    let addresses = ([10, 0, 0, 8], [10, 0, 0, 1]);
    let datagram = with_checksum(udp(80, 4801, b"data"), 6, addresses, 17);
    let mut frame = ethernet(0x0800, &ipv4(addresses.0, addresses.1, 17, &datagram));
    let headers = parse(&frame);
    assert!(edit::overwrite(&mut frame, &headers, 14 + 12, &[10, 0, 0, 2]));
    assert_eq!(frame[40..42], [0xff, 0xff]);
    // It is still there for the next change.
    assert!(edit::overwrite(&mut frame, &headers, 34, &2222_u16.to_be_bytes()));
    assert_eq!(frame[40..42], [0xf7, 0xa1]);
    assert_eq!(transport_checksum(&frame[34..], [10, 0, 0, 2], addresses.1, 17), 0);
}

#[test]
fn encapsulation_completes_lengths_checksum_and_source_port() {
    let template = ethernet(0x0800, &ipv4([3; 4], [4; 4], 17, &udp(0, 4789, &super::sample::vxlan(5, b""))));
    let mut frame = tcp_frame();
    let inside = frame.clone();
    assert!(edit::encapsulate(&mut frame, &template, 0, &TunnelPorts::default()));
    let headers = parse(&frame);
    let Some(Transport::Udp { at, source, .. }) = headers.outer.transport else { panic!("{headers:?}") };
    assert!(source >= 0xc000);
    assert_eq!(frame[at + 4..at + 6], u16::try_from(frame.len() - at).unwrap().to_be_bytes());
    assert_eq!(frame[16..18], u16::try_from(frame.len() - 14).unwrap().to_be_bytes());
    assert_eq!(edit::checksum(&frame[14..34]), 0);
    assert_eq!(frame[template.len()..], inside);
}

#[test]
fn flags_of_a_bare_segment_include_ns() {
    let frame = ethernet(0x0800, &ipv4([1; 4], [2; 4], 6, &tcp(1, 2, 0x100)));
    assert!(matches!(parse(&frame).outer.transport, Some(Transport::Tcp { flags: 0x100, .. })));
}
