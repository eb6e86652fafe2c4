//! Next hops of tunnels: found by the kernel's routes and neighbours, waited for, and followed.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sluice_flow::backend::{
    Backend, Change, Completion, DeviceEvent, EventStream, InstallQueue, OpenConfig, Operation, Outcome,
};
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::refusal::Refusal;
use sluice_flow::time::{Clock, ManualClock, MonotonicClock};
use sluice_flow::{Cause, Flow};
use sluice_offload_dv::switch::Way;
use sluice_offload_dv::{Config, DvNic};
use sluice_tests::mlx5::{Out, in_network_namespace, on_device, with_options};
use sluice_tests::world::eventually;

use crate::frames::{Packet, UDP};
use crate::rig::{Rig, flow};

pub(crate) const KEY: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(tos=0/0x3,frag=no)";
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 7, 1];

pub(crate) fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

/// The uplink, the host's function, and a tunnel.
pub(crate) fn open() -> DvNic {
    open_at(Arc::new(MonotonicClock::new()))
}

fn open_at(clock: Arc<dyn Clock>) -> DvNic {
    let vports = BTreeMap::from([("p0".to_owned(), 0xffff), ("host".to_owned(), 0)]);
    let config = Config { takeover: true, vports, ..Config::default() };
    let nic = DvNic::open(&config, &OpenConfig::new("mlx5_0", clock)).unwrap();
    let tunnel = Tunnel { protocol: TunnelProtocol::Vxlan, udp_port: Some(4789), underlay: PortNumber(1) };
    let ports = [("p0", PortKind::Physical), ("host", PortKind::Representor), ("vx", PortKind::Tunnel(tunnel))];
    for (number, (name, kind)) in (1..).zip(ports) {
        nic.attach_port(&Port { number: PortNumber(number), name: name.parse().unwrap(), kind }).unwrap();
    }
    nic
}

pub(crate) struct Installer {
    pub(crate) queue: Box<dyn InstallQueue>,
}

impl Installer {
    pub(crate) fn add(&mut self, slot: u32, flow: &Flow) -> Result<(), Refusal> {
        self.done(slot, Operation::Install(flow.clone())).map(drop)
    }

    /// Has a flow come and go again that leads to no next hop.
    fn add_and_remove(&mut self) {
        let other = flow("in_port(2),eth(dst=02:00:00:00:00:77)", "1");
        let Ok(Outcome::InPlace { handle, .. }) = self.done(77, Operation::Install(other)) else {
            panic!("it is there")
        };
        self.done(77, Operation::Remove(handle)).unwrap();
    }

    pub(crate) fn done(&mut self, slot: u32, operation: Operation) -> Result<Outcome, Refusal> {
        let change = Change { flow: FlowId { slot, incarnation: 1 }, generation: Generation(1), operation };
        let mut done: Vec<Completion> = vec![];
        self.queue.submit(&mut vec![change], &mut done);
        eventually("the flow is done with", || {
            self.queue.poll(&mut done);
            !done.is_empty()
        });
        done.remove(0).result
    }
}

/// Returns the causes that have changed by the time that one has.
pub(crate) fn changes(events: &EventStream, awaited: Cause) -> Vec<Cause> {
    let mut found = vec![];
    eventually("the change is told", || {
        found.extend(events.drain().into_iter().filter_map(|event| match event {
            DeviceEvent::Changed { cause } => Some(cause),
            _ => None,
        }));
        found.contains(&awaited)
    });
    found
}

pub(crate) fn next(out: &Out) -> Vec<u8> {
    let mut frame = None;
    eventually("a frame comes out", || {
        frame = out.at_once();
        frame.is_some()
    });
    frame.unwrap()
}

/// Makes a network device that leads to 172.16.0.0/24.
pub(crate) fn make_uplink() {
    ip("link add p0 address 02:00:00:00:07:01 type veth peer name far");
    ip("link set p0 up");
    ip("link set far up");
    ip("address add 172.16.0.1/24 dev p0");
}

/// What flows wait for that go by this address of that network.
pub(crate) fn neighbour(last: u8) -> Cause {
    Cause::Neighbour(Some([172, 16, 0, last].into()))
}

#[test]
fn a_flow_waits_for_its_neighbour_alone_and_follows_it() {
    let name = "ways::a_flow_waits_for_its_neighbour_alone_and_follows_it";
    in_network_namespace("bluefield-3", name, |ports| {
        make_uplink();
        let nic = open();
        let (events, mut installer) = (nic.events(), Installer { queue: nic.install_queue().unwrap() });
        let to = |last: u8, source: &str| {
            let key = KEY.replace("frag=no", &format!("dst=10.0.0.{last},frag=no"));
            flow(&key, &format!("set(tunnel(tun_id=0x5,{source}dst=172.16.0.{last},ttl=64,flags(key))),3"))
        };
        for last in [8, 9] {
            let refusal = installer.add(last.into(), &to(last, "")).unwrap_err();
            assert_eq!(refusal.cause(), Some(neighbour(last)), "{refusal}");
        }
        ip("neighbour replace 172.16.0.9 lladdr 02:00:00:00:07:09 dev p0 nud permanent");
        let changed = changes(&events, neighbour(9));
        assert!(!changed.contains(&neighbour(8)), "{changed:?}");
        installer.add(9, &to(9, "")).unwrap();
        let (wire, frame) = (ports.out("wire"), Packet { to: 9, ..Packet::v4(UDP) }.frame());
        ports.send("vport-0", &frame);
        let sent = next(&wire);
        assert_eq!(sent[..12], [[2, 0, 0, 0, 7, 9], OWN_MAC].concat());
        // The address at this end is that of the route.
        assert_eq!(sent[26..34], [172, 16, 0, 1, 172, 16, 0, 9]);
        assert_eq!(sent[50..], frame);
        // The neighbour has another address.
        ip("neighbour replace 172.16.0.9 lladdr 02:00:00:00:07:99 dev p0 nud permanent");
        changes(&events, neighbour(9));
        ports.send("vport-0", &frame);
        assert_eq!(next(&wire)[..6], [2, 0, 0, 0, 7, 0x99]);
        // The other one is behind a gateway now.
        ip("route add 172.16.0.8/32 via 172.16.0.9 dev p0");
        changes(&events, neighbour(8));
        installer.add(8, &to(8, "src=172.16.0.1,")).unwrap_err();
        changes(&events, neighbour(8));
        installer.add(8, &to(8, "src=172.16.0.1,")).unwrap();
    });
}

#[test]
fn a_next_hop_of_flows_that_were_flushed_is_not_followed_any_more() {
    let name = "ways::a_next_hop_of_flows_that_were_flushed_is_not_followed_any_more";
    in_network_namespace("bluefield-3", name, |_| {
        make_uplink();
        let nic = open();
        let (events, mut installer) = (nic.events(), Installer { queue: nic.install_queue().unwrap() });
        let to = |last: u8| {
            flow(KEY, &format!("set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.{last},ttl=64,flags(key))),3"))
        };
        let answers_at = |last: u8, mac: u8| {
            ip(&format!("neighbour replace 172.16.0.{last} lladdr 02:00:00:00:07:{mac:02x} dev p0 nud permanent"));
        };
        let mut ask = |last: u8| {
            installer.add(last.into(), &to(last)).unwrap_err();
            answers_at(last, 1);
            changes(&events, neighbour(last));
            installer.add(last.into(), &to(last)).unwrap();
        };
        ask(9);
        assert_eq!(nic.flush().unwrap(), 1);
        // What is asked for later is heard later.
        ask(8);
        answers_at(9, 2);
        answers_at(8, 2);
        let changed = changes(&events, neighbour(8));
        assert!(!changed.contains(&neighbour(9)), "{changed:?}");
    });
}

#[test]
fn a_flow_that_waits_for_a_neighbour_that_nothing_has_asked_for_lately_asks_again() {
    let name = "ways::a_flow_that_waits_for_a_neighbour_that_nothing_has_asked_for_lately_asks_again";
    in_network_namespace("bluefield-3", name, |_| {
        make_uplink();
        let clock = Arc::new(ManualClock::default());
        let nic = open_at(clock.clone());
        let (events, mut installer) = (nic.events(), Installer { queue: nic.install_queue().unwrap() });
        let neighbour = Cause::Neighbour(Some([172, 16, 0, 9].into()));
        let waiting = flow(KEY, "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(key))),3");
        assert_eq!(installer.add(9, &waiting).unwrap_err().cause(), Some(neighbour));
        // It is asked for in the first minute, and not in the second.
        for _ in 0..2 {
            let told = events
                .drain()
                .into_iter()
                .any(|event| matches!(event, DeviceEvent::Changed { cause } if cause == neighbour));
            assert!(!told, "nothing has changed for it");
            clock.advance(Duration::from_secs(60));
            installer.add_and_remove();
        }
        changes(&events, neighbour);
        assert_eq!(installer.add(9, &waiting).unwrap_err().cause(), Some(neighbour));
        ip("neighbour replace 172.16.0.9 lladdr 02:00:00:00:07:09 dev p0 nud permanent");
        changes(&events, neighbour);
        installer.add(9, &waiting).unwrap();
    });
}

/// A way to a next hop by the last byte of its address.
fn way(last: u8) -> Way {
    Way { egress_mac: OWN_MAC, mac: [2, 0, 0, 0, 7, last], source: [172, 16, 0, 1].into() }
}

/// A flow into a tunnel, one of many.
fn wrapped(number: u32) -> Flow {
    let [.., a, b] = number.to_be_bytes();
    let key = KEY.replace("frag=no", &format!("dst=10.1.{a}.{b},frag=no"));
    flow(&key, "set(tunnel(tun_id=0x5,src=172.16.0.1,dst=172.16.0.9,ttl=64,flags(key))),10")
}

#[test]
fn a_next_hop_is_kept_until_flows_that_wait_for_it_had_time_to_be_tried_again() {
    let name = "ways::a_next_hop_is_kept_until_flows_that_wait_for_it_had_time_to_be_tried_again";
    on_device("bluefield-3", name, |ports| {
        let mut rig = Rig::open(ports);
        rig.add(&wrapped(0)).unwrap_err();
        let hop = rig.switch.take_asked().remove(0);
        rig.switch.set_way(hop, Ok(way(9))).unwrap();
        assert_eq!(rig.switch.forget_unused(), []);
        let id = rig.add(&wrapped(0)).unwrap();
        assert_eq!(rig.switch.forget_unused(), []);
        // It leads there whatever is said of the way.
        rig.switch.set_way(hop, Err("it does not answer".to_owned())).unwrap();
        (0..2).for_each(|_| assert_eq!(rig.switch.forget_unasked(), []));
        rig.switch.set_way(hop, Ok(way(9))).unwrap();
        rig.switch.remove(&[id]).unwrap();
        assert_eq!(rig.switch.forget_unused(), [hop]);
        assert_eq!(rig.switch.take_asked(), []);
    });
}

#[test]
fn a_next_hop_that_no_flow_asks_for_any_more_is_let_go_whether_there_is_a_way_or_not() {
    let name = "ways::a_next_hop_that_no_flow_asks_for_any_more_is_let_go_whether_there_is_a_way_or_not";
    on_device("bluefield-3", name, |ports| {
        let mut rig = Rig::open(ports);
        for told in [None, Some(Err("it does not answer".to_owned())), Some(Ok(way(9)))] {
            rig.add(&wrapped(0)).unwrap_err();
            let hop = rig.switch.take_asked().remove(0);
            told.into_iter().for_each(|way| drop(rig.switch.set_way(hop, way).unwrap()));
            assert_eq!(rig.switch.forget_unasked(), []);
            assert_eq!(rig.switch.forget_unused(), []);
            assert_eq!(rig.switch.forget_unasked(), [hop]);
        }
    });
}

#[test]
fn packets_do_not_go_to_an_old_neighbour_if_the_device_has_no_room_for_the_new_one() {
    /// CREATE_GENERAL_OBJECT, by which libmlx5 gets memory for rules and rewrites.
    const MEMORY: &str = "0xa00";
    const REFUSED: &[&str] = &["had status 0x8", "refused with"];
    let name = "ways::packets_do_not_go_to_an_old_neighbour_if_the_device_has_no_room_for_the_new_one";
    with_options("bluefield-3", &[], REFUSED, name, |ports| {
        let mut rig = Rig::open(ports);
        rig.add(&wrapped(0)).unwrap_err();
        let hop = rig.switch.take_asked().remove(0);
        rig.switch.set_way(hop, Ok(way(9))).unwrap();
        rig.add(&wrapped(0)).unwrap();
        let mut packet = Packet::v4(UDP).frame();
        packet[30..34].copy_from_slice(&[10, 1, 0, 0]);
        assert_eq!(rig.inject(2, &packet)[0].1[..6], [2, 0, 0, 0, 7, 9]);
        // Rewrites, each of another kind and as long as that to the next hop, until there is no room.
        ports.control().ask(&format!("refuse {MEMORY} 0 3 0x8 0x1234"));
        let rewriting = |number: u32| {
            let [.., a, b] = number.to_be_bytes();
            let key = format!("in_port(2),eth(),eth_type(0x0800),ipv4(dst=10.2.{a}.{b},proto=17,frag=no)");
            let addresses = format!("src=02:00:00:01:{a:02x}:{b:02x},dst=02:00:00:02:{a:02x}:{b:02x}");
            flow(&key, &format!("set(eth({addresses})),3"))
        };
        assert!((0..20_000).any(|number| rig.add(&rewriting(number)).is_err()));
        let led = rig.switch.set_way(hop, Ok(way(8))).unwrap();
        assert!(led.is_used && led.refused.is_some(), "{led:?}");
        assert_eq!(rig.inject(2, &packet), [], "nobody gets it");
        // The next flow leads all of them there, once there is room.
        rig.add(&wrapped(1)).unwrap();
        assert_eq!(rig.inject(2, &packet)[0].1[..6], [2, 0, 0, 0, 7, 8]);
    });
}

#[test]
fn a_neighbour_that_changes_costs_the_same_however_many_flows_lead_to_it() {
    const FLOWS: u32 = 50_000;
    let name = "ways::a_neighbour_that_changes_costs_the_same_however_many_flows_lead_to_it";
    on_device("bluefield-3", name, |ports| {
        let mut rig = Rig::open(ports);
        rig.add(&wrapped(0)).unwrap_err();
        let hop = rig.switch.take_asked().remove(0);
        rig.switch.set_way(hop, Ok(way(9))).unwrap();
        for number in 0..FLOWS {
            rig.put(&wrapped(number)).unwrap();
        }
        rig.switch.sync().unwrap();
        let began = clock_gettime(ClockId::ProcessCPUTime);
        rig.switch.set_way(hop, Ok(way(8))).unwrap();
        let ended = clock_gettime(ClockId::ProcessCPUTime);
        let spent = Duration::try_from(ended).unwrap() - Duration::try_from(began).unwrap();
        println!("a neighbour that changes under {FLOWS} flows costs {spent:?} of processor time");
        assert!(spent <= Duration::from_millis(10), "{spent:?}");
        let mut packet = Packet::v4(UDP).frame();
        packet[30..34].copy_from_slice(&[10, 1, 0xc3, 0x4f]);
        let sent = rig.inject(2, &packet);
        assert_eq!(sent[0].1[..6], [2, 0, 0, 0, 7, 8]);
        // Nobody answers any more: packets are dropped, as by the kernel.
        rig.switch.set_way(hop, Err("it does not answer".to_owned())).unwrap();
        assert_eq!(rig.inject(2, &packet), []);
        rig.switch.set_way(hop, Ok(way(9))).unwrap();
        assert_eq!(rig.inject(2, &packet)[0].1[..6], [2, 0, 0, 0, 7, 9]);
    });
}
