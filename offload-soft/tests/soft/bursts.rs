//! Frames that come in together, and rules that do the same thing.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::backend::{Backend, Injector, Operation};
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::port::{PortKind, PortNumber, Tunnel, TunnelProtocol};

use crate::frames::{Ip4, eth, tcp};
use crate::harness::{Device, flow, flow_at, output, port, recirc, set, v4};

/// A device with rules that send on, send twice, drop, rewrite and jump, that send to where nothing is, and to a tunnel.
fn device() -> Device {
    let mut device = Device::with_tunnels();
    device.open_chain(ChainId(5));
    (5..=6).for_each(|number| device.nic.attach_port(&port(number, PortKind::Physical)).unwrap());
    let to = |destination: u128, actions| {
        flow(
            move |full| {
                v4(6)(full);
                full.set_exact(Field::TcpDst, destination);
            },
            actions,
        )
    };
    let rules = [
        to(1, vec![output(2)]),
        to(2, vec![output(3), output(2)]),
        to(3, vec![]),
        to(4, vec![set(&[(Field::Ipv4Ttl, 9)]), output(2)]),
        to(5, vec![output(4), recirc(5)]),
        to(6, vec![output(5), output(2)]),
        to(7, vec![output(6)]),
        flow_at(2, |full| full.set_exact(Field::EthType, 0x88cc), vec![output(1)]),
    ];
    rules.into_iter().for_each(|rule| _ = device.add(rule).unwrap());
    // One is gone, and another has become a tunnel since.
    (5..=6).for_each(|number| device.nic.detach_port(PortNumber(number)).unwrap());
    let tunnel = Tunnel { protocol: TunnelProtocol::Gre, udp_port: None, underlay: PortNumber(4) };
    device.nic.attach_port(&port(6, PortKind::Tunnel(tunnel))).unwrap();
    device
}

#[test]
fn a_burst_does_what_its_frames_do_one_by_one() {
    let mut frames: Vec<_> = (0..40)
        .map(|number| {
            Ip4::default().frame(6, &tcp(number, number % 9, 0x010 | (number % 8), &[0; 3][..usize::from(number) % 4]))
        })
        .collect();
    frames.push(eth(0x88cc, &[1, 2, 3]));
    // No key can be made of it: a service header that says that it is longer than the frame.
    frames.insert(7, eth(0x894f, &[0x0f, 0xff, 1, 1, 0, 0, 0, 0]));
    // A tunnel runs over port 1, and none over port 3.
    for port in [1, 3] {
        let (one_by_one, together) = (device(), device());
        one_by_one.clock.advance(Duration::from_secs(1));
        together.clock.advance(Duration::from_secs(1));
        let expected: Vec<_> = frames.iter().flat_map(|frame| one_by_one.inject(port, frame).sent).collect();
        assert!(expected.len() > 20);
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        let mut sent = Vec::new();
        let mut rx = together.nic.rx_queue(PortNumber(port));
        rx.receive(&frames, |port, frame| sent.push((port, frame.to_vec()))).unwrap();
        assert_eq!(sent, expected);
        assert_eq!(together.readings(), one_by_one.readings());
        let counted = |device: &Device| {
            let ports: Vec<_> = (1..=4).map(|port| device.nic.port_counters(PortNumber(port))).collect();
            (ports, device.nic.lookup_counters(), device.nic.chain_misses(ChainId(5)))
        };
        assert_eq!(counted(&together), counted(&one_by_one));
    }
}

#[test]
fn a_burst_is_refused_as_a_whole() {
    let device = device();
    let frame = Ip4::default().frame(6, &tcp(1, 1, 0x010, &[]));
    let receive = |number, frames: &[&[u8]]| {
        let mut rx = device.nic.rx_queue(PortNumber(number));
        rx.receive(frames, |_, _| panic!("nothing is let in")).unwrap_err().label()
    };
    assert_eq!(receive(2, &[&frame, &[0; 13]]), "device");
    assert_eq!(receive(99, &[&frame]), "port");
    assert_eq!(receive(10, &[&frame]), "port", "a tunnel port");
    assert!(device.readings().iter().all(|reading| reading.counters.packets == 0));
}

#[test]
fn rules_that_share_what_they_do_come_change_and_go_alone() {
    let mut device = Device::new();
    device.open_chain(ChainId(5));
    let actions: Arc<[_]> = [output(2)].into();
    let rule = |chain: u128, port: u128| {
        let plain = flow(
            move |full| {
                v4(6)(full);
                full.set_exact(Field::RecircId, chain);
                full.set_exact(Field::TcpDst, port);
            },
            vec![],
        );
        plain.with_actions(Arc::clone(&actions))
    };
    let handles: Vec<_> = (0..3).map(|port| device.add(rule(0, port)).unwrap()).collect();
    let in_chain = device.add(rule(5, 1)).unwrap();
    let sent = |device: &Device, port| {
        let verdict = device.nic.inject(PortNumber(1), &Ip4::default().frame(6, &tcp(9, port, 0x010, &[]))).unwrap();
        verdict.sent.into_iter().map(|(port, _)| port.0).collect::<Vec<_>>()
    };
    let changed = rule(0, 1).with_actions([output(3)].into());
    device.submit(Operation::Modify(handles[1], changed)).unwrap();
    assert_eq!([0, 1, 2].map(|port| sent(&device, port)), [[2], [3], [2]]);
    device.remove(handles[0]);
    device.remove(in_chain);
    assert_eq!([0, 1, 2].map(|port| sent(&device, port)), [vec![], vec![3], vec![2]]);
    device.close_chain(ChainId(5));
    assert_eq!(device.nic.chain_misses(ChainId(5)), None, "what is shared keeps no chain");
    device.remove(handles[2]);
    let handle = device.add(rule(0, 2)).unwrap();
    assert_eq!(sent(&device, 2), [2]);
    device.remove(handle);
    assert_eq!(sent(&device, 2), []);
}
