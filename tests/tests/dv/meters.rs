//! Meters: what passes is what the NIC in software lets pass, by a clock that both are told.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::Cause;
use sluice_flow::backend::{Backend, Injector};
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::port::PortNumber;
use sluice_flow::time::ManualClock;
use sluice_offload_dv::mlx5::Library;
use sluice_offload_dv::switch::{RuleId, Switch};
use sluice_offload_dv::translate::translate;
use sluice_tests::mlx5::{Control, Ports, on_device, with_options};

use crate::frames::{Packet, TCP, UDP};
use crate::reference::Reference;
use crate::rig::{Rig, Vport, flow};

const PROFILES: [&str; 2] = ["bluefield-2", "bluefield-3"];
/// What flows wait for that have no meter.
const METER: Option<Cause> = Some(Cause::Meter);
const IPV4: &str = "in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,proto=17,frag=no)";

/// The device and the NIC in software, with the same meters and flows.
struct World<'a> {
    rig: Rig<'a>,
    soft: Reference,
    clock: Arc<ManualClock>,
    control: Control,
}

impl<'a> World<'a> {
    fn open(ports: &'a Ports) -> Self {
        let (rig, clock) = (Rig::open(ports), Arc::new(ManualClock::default()));
        let soft = Reference::open(&clock);
        Self { rig, soft, clock, control: ports.control() }
    }

    fn set(&mut self, unit: MeterUnit, rate: u64, burst: u64) {
        let meter = Meter::simple(MeterId(1), unit, rate, burst);
        self.soft.nic.meters().unwrap().set_meter(&meter).unwrap();
        self.rig.switch.set_meter(&meter).unwrap();
    }

    fn add(&mut self, key: &str, actions: &str) -> RuleId {
        self.soft.add(&flow(key, actions));
        self.rig.add(&flow(key, actions)).unwrap_or_else(|refusal| panic!("{key} {actions}: {refusal}"))
    }

    /// Lets time go on for both.
    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.control.ask(&format!("pass {}", time.as_nanos()));
    }

    /// Lets a packet in, which comes out of both or of neither. Returns whether it did.
    fn passes(&mut self, port: u32, packet: &Packet) -> bool {
        let frame = packet.frame();
        let verdict = self.soft.nic.inject(PortNumber(port), &frame).unwrap();
        let mut wanted: Vec<_> = verdict.sent.into_iter().map(|(port, frame)| (port.0, frame)).collect();
        wanted.sort();
        assert_eq!(self.rig.inject(port as usize, &frame), wanted, "{packet:?}");
        !wanted.is_empty()
    }

    /// Has the NIC in software have no flow and no meter.
    fn forget(&mut self) {
        self.soft.nic.flush().unwrap();
        self.soft.nic.meters().unwrap().remove_meter(MeterId(1)).unwrap();
        self.rig.switch.remove_meter(MeterId(1)).unwrap();
    }

    /// Compares what both have counted of the meter.
    fn counts(&mut self) -> [u64; 2] {
        let soft = self.soft.nic.meters().unwrap().meter_counters(MeterId(1)).unwrap();
        let [passed, dropped] = self.rig.switch.read_meter(MeterId(1)).unwrap().unwrap();
        assert_eq!(passed.packets + dropped.packets, soft.packets);
        assert_eq!(passed.bytes + dropped.bytes, soft.bytes);
        assert_eq!((dropped.packets, Some(dropped.bytes)), (soft.dropped_packets, soft.dropped_bytes));
        [passed.packets, dropped.packets]
    }
}

#[test]
fn packets_pass_as_they_do_in_the_nic_in_software() {
    for profile in PROFILES {
        on_device(profile, "meters::packets_pass_as_they_do_in_the_nic_in_software", |ports| {
            let mut world = World::open(ports);
            // A rate that the device has to the bit: a packet each 512 ns.
            world.set(MeterUnit::Packets, 1_953_125, 5);
            let id = world.add(IPV4, "meter(1),1");
            let packet = Packet::v4(UDP);
            assert_eq!((0..8).filter(|_| world.passes(2, &packet)).count(), 5, "the burst");
            world.pass(Duration::from_nanos(511));
            assert!(!world.passes(2, &packet), "a nanosecond too early");
            world.pass(Duration::from_nanos(1));
            assert!(world.passes(2, &packet));
            world.pass(Duration::from_secs(1));
            assert_eq!((0..8).filter(|_| world.passes(2, &packet)).count(), 5, "no more than the burst is saved up");
            assert_eq!(world.counts(), [11, 7]);
            assert_eq!(world.rig.switch.remove(&[id]).unwrap()[0].packets, 18, "the flow counts all of them");
        });
    }
}

#[test]
fn bytes_pass_as_they_do_in_the_nic_in_software() {
    for profile in PROFILES {
        on_device(profile, "meters::bytes_pass_as_they_do_in_the_nic_in_software", |ports| {
            let mut world = World::open(ports);
            // A byte each 512 ns, and 1,000 at once.
            world.set(MeterUnit::Kilobits, 15_625, 8);
            world.add("in_port(1),eth(),eth_type(0x0800),ipv4(frag=no)", "meter(1),2");
            let packet = Packet::v4(TCP);
            let length = packet.frame().len();
            assert_eq!((0..30).filter(|_| world.passes(1, &packet)).count(), 1_000 / length);
            let missing = u64::try_from(length - 1_000 % length).unwrap() * 512;
            world.pass(Duration::from_nanos(missing - 1));
            assert!(!world.passes(1, &packet));
            world.pass(Duration::from_nanos(1));
            assert!(world.passes(1, &packet));
            world.counts();
        });
    }
}

#[test]
fn a_rate_that_the_device_has_not_to_the_bit_is_at_most_one_part_in_128_more() {
    on_device(
        "bluefield-3",
        "meters::a_rate_that_the_device_has_not_to_the_bit_is_at_most_one_part_in_128_more",
        |ports| {
            const PACKETS: u32 = 1_000;
            let mut rig = Rig::open(ports);
            rig.switch.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 1_000, 1)).unwrap();
            let id = rig.add(&flow(IPV4, "meter(1),1")).unwrap();
            let (mut control, frame) = (ports.control(), Packet::v4(UDP).frame());
            let mut passed = 0;
            for _ in 0..PACKETS {
                passed += rig.inject(2, &frame).len();
                // Twice the rate.
                control.ask("pass 500000");
            }
            println!("{passed} of {PACKETS}");
            assert!((500..=504).contains(&passed), "{passed} of {PACKETS}");
            rig.switch.remove(&[id]).unwrap();
        },
    );
}

#[test]
fn a_meter_sees_packets_as_they_are_then_and_what_passes_goes_on() {
    const TAGGED: &str =
        "in_port(2),eth(),eth_type(0x8100),vlan(vid=100,pcp=0),encap(eth_type(0x0800),ipv4(proto=17,frag=no))";
    for profile in PROFILES {
        on_device(profile, "meters::a_meter_sees_packets_as_they_are_then_and_what_passes_goes_on", |ports| {
            let mut world = World::open(ports);
            let tagged = || Packet { tags: vec![(0x8100, 100)], ..Packet::v4(UDP) };
            for (key, actions, packet) in [
                (IPV4, "1,set(ipv4(ttl=9)),meter(1),3,push_vlan(vid=5,pcp=0),4", Packet::v4(UDP)),
                (IPV4, "push_vlan(vid=5,pcp=0),meter(1),1", Packet::v4(UDP)),
                (IPV4, "meter(1),push_vlan(vid=5,pcp=0),1,3", Packet::v4(UDP)),
                (TAGGED, "meter(1),pop_vlan,1", tagged()),
                (TAGGED, "pop_vlan,meter(1),1", tagged()),
                (IPV4, "meter(1),meter(1),1", Packet::v4(UDP)),
            ] {
                world.set(MeterUnit::Packets, 1_953_125, 2);
                println!("{actions}");
                let id = world.add(key, actions);
                for _ in 0..8 {
                    world.passes(2, &packet);
                    world.pass(Duration::from_nanos(200));
                }
                let soft = world.soft.nic.meters().unwrap().meter_counters(MeterId(1)).unwrap();
                let counts = world.rig.switch.read_meter(MeterId(1)).unwrap().unwrap();
                let [passed, dropped] = counts.map(|count| count.packets);
                assert_eq!((passed + dropped, dropped), (soft.packets, soft.dropped_packets));
                assert_eq!(world.rig.switch.remove(&[id]).unwrap()[0].packets, 8);
                world.forget();
            }
        });
    }
}

#[test]
fn bytes_of_all_tags_count() {
    on_device("bluefield-3", "meters::bytes_of_all_tags_count", |ports| {
        let mut rig = Rig::open(ports);
        let frame = Packet::v4(UDP).frame();
        for (actions, length) in
            [("push_vlan(vid=5,pcp=0),meter(1),1", frame.len() + 4), ("meter(1),push_vlan(vid=5,pcp=0),1", frame.len())]
        {
            rig.switch.set_meter(&Meter::simple(MeterId(1), MeterUnit::Kilobits, 8, 8)).unwrap();
            let id = rig.add(&flow(IPV4, actions)).unwrap();
            let passed = (0..30).filter(|_| !rig.inject(2, &frame).is_empty()).count();
            assert_eq!(passed, 1_000 / length, "{actions}");
            rig.switch.remove(&[id]).unwrap();
        }
    });
}

#[test]
fn flows_share_a_meter_and_what_passes_goes_to_another_chain() {
    on_device("bluefield-3", "meters::flows_share_a_meter_and_what_passes_goes_to_another_chain", |ports| {
        let mut world = World::open(ports);
        world.set(MeterUnit::Packets, 1_953_125, 3);
        world.add("recirc_id(0x1),in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,frag=no)", "set(ipv4(ttl=9)),1");
        let of = |protocol| format!("recirc_id(0),in_port(2),eth(),eth_type(0x0800),ipv4(proto={protocol},frag=no)");
        world.add(&of(17), "meter(1),recirc(1)");
        world.add(&of(6), "meter(1),3");
        let (udp, tcp) = (Packet::v4(UDP), Packet::v4(TCP));
        assert!([&udp, &tcp, &udp].into_iter().all(|packet| world.passes(2, packet)));
        assert!([&udp, &tcp].into_iter().all(|packet| !world.passes(2, packet)));
        world.pass(Duration::from_nanos(512));
        // It misses in the other chain.
        let other = Packet { ttl: 63, ..udp }.frame();
        assert_eq!(world.rig.inject(2, &other), [(0, other.clone())]);
        let [passed, dropped] = world.rig.switch.read_meter(MeterId(1)).unwrap().unwrap();
        assert_eq!((passed.packets, dropped.packets), (4, 2));
    });
}

#[test]
fn a_meter_changes_under_its_flows_and_stays_as_long_as_one_uses_it() {
    on_device("bluefield-3", "meters::a_meter_changes_under_its_flows_and_stays_as_long_as_one_uses_it", |ports| {
        let mut world = World::open(ports);
        let refusal = world.rig.add(&flow(IPV4, "meter(1),1")).unwrap_err();
        assert_eq!((refusal.to_string(), refusal.cause()), ("action meter: there is no meter 1".to_owned(), METER));
        let mut ids = vec![];
        // More than there are in a block of the device.
        for id in 2..200 {
            world.rig.switch.set_meter(&Meter::simple(MeterId(id), MeterUnit::Packets, 1, 1)).unwrap();
            ids.push(MeterId(id));
        }
        world.set(MeterUnit::Packets, 1_953_125, 2);
        let used = world.add(IPV4, "meter(1),1");
        let packet = Packet::v4(UDP);
        let passed = |world: &mut World<'_>| (0..5).filter(|_| world.passes(2, &packet)).count();
        assert_eq!(passed(&mut world), 2);
        world.set(MeterUnit::Packets, 1_953_125, 4);
        assert_eq!(passed(&mut world), 4, "it has the new burst, and begins with all of it");
        assert_eq!(world.counts(), [6, 4]);
        let too_many = Meter { id: MeterId(1), unit: MeterUnit::Packets, bands: vec![] };
        world.rig.switch.set_meter(&too_many).unwrap_err();
        assert_eq!(passed(&mut world), 0, "it is as it was");
        let refusal = world.rig.switch.remove_meter(MeterId(1)).unwrap_err();
        assert_eq!(refusal.to_string(), "action meter: meter 1 is used by installed rules");
        world.rig.switch.remove(&[used]).unwrap();
        ids.push(MeterId(1));
        for id in ids {
            world.rig.switch.remove_meter(id).unwrap();
            assert_eq!(world.rig.switch.read_meter(id).unwrap(), None);
            world.rig.switch.remove_meter(id).unwrap_err();
        }
        // The place of one that is gone counts from zero.
        world.rig.switch.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 1, 1)).unwrap();
        let counts = world.rig.switch.read_meter(MeterId(1)).unwrap().unwrap();
        assert_eq!(counts.map(|count| count.packets), [0, 0]);
    });
}

#[test]
fn a_meter_that_could_not_be_written_is_written_once_the_device_writes_again() {
    const REFUSED: &[&str] = &["a write that was to fail"];
    let name = "meters::a_meter_that_could_not_be_written_is_written_once_the_device_writes_again";
    with_options("bluefield-3", &[], REFUSED, name, |ports| {
        let mut world = World::open(ports);
        world.set(MeterUnit::Packets, 1_953_125, 2);
        world.add(IPV4, "meter(1),1");
        // What libmlx5 wrote before is carried out once this is.
        world.set(MeterUnit::Packets, 1_953_125, 3);
        world.control.ask("fail-write 1");
        let other = Meter::simple(MeterId(1), MeterUnit::Packets, 1_953_125, 4);
        let refusal = world.rig.switch.set_meter(&other).unwrap_err();
        assert_eq!(refusal.to_string(), "device: the device did not write the meter");
        world.set(MeterUnit::Packets, 1_953_125, 4);
        let packet = Packet::v4(UDP);
        assert_eq!((0..5).filter(|_| world.passes(2, &packet)).count(), 4);
        // Another one has its place in the same objects.
        world.rig.switch.set_meter(&Meter::simple(MeterId(2), MeterUnit::Packets, 1, 1)).unwrap();
    });
}

#[test]
fn what_a_meter_is_not_for_is_refused_and_its_rules_are_explained() {
    let rule = |key: &str, actions: &str| translate(&flow(key, actions), &Vport);
    for (key, actions, reason) in [
        (
            IPV4,
            "meter(1),ct(zone=1),1",
            "ct: a meter was passed before, and a packet of no connection would pass it again",
        ),
        (
            IPV4,
            "set(ipv4(ttl=9)),meter(1),recirc(5)",
            "recirc: the packet was changed before a meter, and may miss there",
        ),
        (
            "tunnel(tun_id=5,flags(+key)),in_port(10)",
            "meter(1),recirc(5)",
            "meter: a packet goes to another chain with its tunnel headers, which the meter is not to count",
        ),
    ] {
        assert_eq!(rule(key, actions).unwrap_err().to_string(), format!("action {reason}"), "{actions}");
    }
    let actions = |key: &str, actions: &str| {
        let text = rule(key, actions).unwrap().describe(&|vport| vport.to_string());
        text.split_once("; actions ").unwrap().1.to_owned()
    };
    assert_eq!(
        actions(IPV4, "push_vlan(vid=5,pcp=0),meter(7),1"),
        "count, push_vlan(0x8100 0x0005), to a later rule; then: meter(7), of those that pass, to a later rule; then: to 65535"
    );
    assert_eq!(
        actions("tunnel(tun_id=5,flags(+key)),in_port(10)", "meter(7),2"),
        "count, decap, to a later rule; then: meter(7), of those that pass, to a later rule; then: to 0"
    );
}

#[test]
fn a_device_without_meters_says_so() {
    on_device("connectx-5", "meters::a_device_without_meters_says_so", |_| {
        let mut switch = Switch::open(&Library::load().unwrap(), "mlx5_0").unwrap();
        assert!(!switch.has_meters());
        let refusal = switch.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 1, 1)).unwrap_err();
        assert_eq!(refusal.to_string(), "action meter: this device has no meters that rules have packets pass");
    });
}
