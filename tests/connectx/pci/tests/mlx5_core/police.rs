//! Policers, as the driver makes meters in ASO objects of them: what they let pass by the device's clock, what is counted of the
//! rest, and what there is left when they are gone.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use sluice_connectx::steering::Port;

use crate::agent::{Agent, flow_of, ufid};
use crate::driver::{DEVICE, go_to_switchdev};
use crate::packet::{Packet, TCP, UDP};
use crate::rows::{Installed, marked};
use crate::{HOST_PF, MANAGER, VF0, VF1, World};

/// The bytes of a TCP packet from [`Packet::v4`], from its IP header on.
const IP: u64 = 58;
/// And all of it.
const FRAME: u64 = IP + 14;
/// 1,953,125 bytes a second, which has a mantissa and an exponent of its own; and 10,240 at once: tc loses some of what it is told.
const BYTES: &str = "police rate 15625kbit burst 10300 conform-exceed drop/pipe";
/// What of [`BYTES`] passes at once.
const AT_ONCE: u64 = 10_240 / IP;
/// What then passes after a millisecond, which brings 1,953 bytes to those that were left.
const LATER: u64 = (10_240 % IP + 1_953) / IP;

const MILLISECOND: Duration = Duration::from_millis(1);

/// How many of `count` packets go to a port; the others go nowhere.
#[track_caller]
fn pass(world: &World, from: Port, packet: &Packet, count: u64, to: Port, becomes: &Packet) -> u64 {
    let (frame, wanted) = (packet.frame(), becomes.frame());
    let mut passed = 0;
    for _ in 0..count {
        let walk = world.receive(from, &frame);
        match walk.sent.as_slice() {
            [] => {}
            [(port, frame)] if (*port, frame) == (to, &wanted) => passed += 1,
            _ => panic!("{walk}"),
        }
    }
    passed
}

/// A rule, a packet for it, where that goes and what becomes of it, and how many pass: of a full bucket, and a millisecond later.
struct Row {
    actions: String,
    packet: Packet,
    to: Port,
    becomes: fn(Packet) -> Packet,
    passes: [u64; 2],
}

fn row(actions: String, packet: Packet, to: Port, passes: [u64; 2]) -> Row {
    Row { actions, packet, to, becomes: |packet| packet, passes }
}

fn rows() -> Vec<Row> {
    let tcp = || Packet::v4(TCP);
    let redirect = |police: &str| format!("{police} mirred egress redirect dev p0");
    let packets = "police pkts_rate 15625 pkts_burst 20 conform-exceed drop/pipe";
    vec![
        row(redirect(BYTES), tcp(), Port::Wire, [AT_ONCE, LATER]),
        // The length is that of the IP packet, with a tag as without.
        row(redirect(BYTES), Packet { tags: vec![(0x8100, 100)], ..tcp() }, Port::Wire, [AT_ONCE, LATER]),
        row(redirect(packets), tcp(), Port::Wire, [20, 15]),
        row(redirect(packets), Packet::v6(UDP), Port::Wire, [20, 15]),
        // The tighter of two.
        row(redirect(&format!("{BYTES} {packets}")), tcp(), Port::Wire, [20, 15]),
        Row {
            becomes: |packet| Packet { tags: vec![(0x8100, 100)], ..packet },
            ..row(redirect(&format!("{packets} vlan push id 100 pipe")), tcp(), Port::Wire, [20, 15])
        },
        Row {
            becomes: |packet| Packet { ttl: packet.ttl - 1, ..packet },
            ..row(
                redirect(&format!("pedit ex munge ip ttl dec pipe csum ip4h pipe {packets}")),
                tcp(),
                Port::Wire,
                [20, 15],
            )
        },
        // To a chain without rules, and so up to the driver.
        row(format!("{packets} action goto chain 1"), tcp(), MANAGER, [20, 15]),
    ]
}

pub(crate) fn policers_let_pass_what_was_agreed_by_the_devices_clock(world: &World) {
    let rows = rows();
    let protocol = |packet: &Packet| match (packet.tags.is_empty(), packet.source.is_ipv4()) {
        (false, _) => "802.1q",
        (_, true) => "ip",
        (_, false) => "ipv6",
    };
    let installed =
        Installed::put_in(world, "pf0vf0", rows.iter().map(|row| (protocol(&row.packet), "", row.actions.as_str())));
    assert_eq!(world.hca.lock().steering().written_meters(), rows.len() + 1, "one has two");
    for (number, (Row { actions, packet, to, becomes, passes, .. }, count)) in
        rows.iter().flat_map(|row| [(row, 500), (row, 100)]).enumerate()
    {
        let (place, late) = (number / 2, number % 2);
        if late == 1 {
            world.hca.lock().pass_time(MILLISECOND);
        }
        let packet = marked(packet, place);
        let becomes = becomes(packet.clone());
        assert_eq!(pass(world, VF0, &packet, count, *to, &becomes), passes[late], "{actions}: {late}");
    }
    // A long time brings no more than there is room for.
    world.hca.lock().pass_time(Duration::from_secs(3_600));
    let packet = marked(&rows[0].packet, 0);
    assert_eq!(pass(world, VF0, &packet, 500, Port::Wire, &packet), AT_ONCE);
    // What is dropped is not counted: the driver has a counter behind the meter, and tells of that for all actions.
    let mut counts: Vec<_> = rows.iter().map(|row| row.passes.iter().sum()).collect();
    counts[0] += AT_ONCE;
    installed.count(&counts);
    installed.take_out();
    no_meter_is_left(world);
}

/// In front of several destinations the rule is split by the driver; in a chain it lies in another table.
pub(crate) fn policers_work_in_chains_and_in_front_of_several_ports(world: &World) {
    world.guest.run(
        "for port in p0 pf0hpf pf0vf0 pf0vf1; do tc qdisc add dev $port ingress; done
         tc filter add dev p0 ingress protocol ip pref 1 flower skip_sw ip_proto tcp action goto chain 5
         tc filter add dev p0 ingress protocol ip pref 1 chain 5 flower skip_sw src_ip 10.0.0.1 \
             action police pkts_rate 15625 pkts_burst 20 conform-exceed drop/pipe \
             action mirred egress mirror dev pf0vf1 pipe action mirred egress redirect dev pf0vf0",
    );
    let shown = world.guest.run("tc filter show dev p0 ingress");
    assert_eq!(shown.matches("in_hw in_hw_count 1").count(), 2, "{shown}");
    let frame = Packet::v4(TCP).frame();
    for number in 0..100 {
        let sent = world.receive(Port::Wire, &frame).sent;
        let expected = if number < 20 { vec![(VF0, frame.clone()), (VF1, frame.clone())] } else { vec![] };
        assert_eq!(sent.into_iter().collect::<BTreeSet<_>>(), expected.into_iter().collect());
    }
    let stranger = Packet { source: [10, 0, 0, 2].into(), ..Packet::v4(TCP) };
    assert_eq!(pass(world, Port::Wire, &stranger, 5, MANAGER, &stranger), 5, "it is no rule's in the chain");
    world.guest.run("for port in p0 pf0hpf pf0vf0 pf0vf1; do tc qdisc del dev $port ingress; done");
    no_meter_is_left(world);
}

/// The kernel lets go of a rule's actions some time after the rule.
#[track_caller]
fn no_meter_is_left(world: &World) {
    world.guest.eventually("no policer is left", "tc -j actions list action police", |said| !said.contains("index"));
    assert_eq!(world.hca.lock().steering().written_meters(), 0, "{}", world.hca.lock().steering().dump());
}

/// A policer of its own, as tc tells of it.
fn policer(said: &str) -> Value {
    let lists: Vec<Value> = serde_json::from_str(said).expect("a list");
    lists.iter().find_map(|list| list["actions"].get(0)).unwrap_or_else(|| panic!("no action: {said}")).clone()
}

pub(crate) fn a_policer_that_rules_share_counts_all_of_their_packets_and_can_be_changed(world: &World) {
    let guest = &world.guest;
    guest.run(&format!(
        "tc actions add action {BYTES} index 7 skip_sw
         for port in pf0vf0 pf0vf1; do
             tc qdisc add dev $port ingress
             tc filter add dev $port ingress protocol ip pref 1 flower skip_sw ip_proto tcp \
                 action police index 7 mirred egress redirect dev p0
         done"
    ));
    let shown = "tc -s -j actions get action police index 7";
    let before = policer(&guest.run(shown));
    assert_eq!((&before["in_hw"], &before["in_hw_count"]), (&true.into(), &1.into()), "{before}");
    assert_eq!(world.hca.lock().steering().written_meters(), 1);

    let packet = Packet::v4(TCP);
    let send = |from, count| pass(world, from, &packet, count, Port::Wire, &packet);
    assert_eq!((send(VF0, 100), send(VF1, 100)), (100, AT_ONCE - 100));
    let counted = |packets: u64, dropped: u64| {
        let is_so = |said: &str| {
            let stats = &policer(said)["stats"];
            (stats["hw_packets"].as_u64(), stats["hw_bytes"].as_u64(), stats["drops"].as_u64())
                == (Some(packets), Some(packets * FRAME), Some(dropped))
        };
        guest.eventually(&format!("{packets} packets, {dropped} dropped"), shown, is_so);
    };
    counted(200, 200 - AT_ONCE);

    // A new rate begins with a full bucket, in the rules that there are.
    guest
        .run("tc actions replace action police pkts_rate 15625 pkts_burst 20 conform-exceed drop/pipe index 7 skip_sw");
    assert_eq!((send(VF0, 5), send(VF1, 100)), (5, 15));
    counted(305, 305 - AT_ONCE - 20);

    let used = guest.attempt("tc actions del action police index 7");
    assert!(used.code != 0 && used.err.contains("Failed to delete TC action"), "{used:?}");
    guest.run("for port in pf0vf0 pf0vf1; do tc qdisc del dev $port ingress; done");
    assert_eq!(world.hca.lock().steering().written_meters(), 1, "it stays without rules");
    guest.eventually("it can go", "tc actions del action police index 7 2>&1 || true", str::is_empty);
    no_meter_is_left(world);
}

pub(crate) fn many_policers_are_in_the_device_and_leave_it_again(world: &World) {
    // More than two blocks of 64 objects with two meters each.
    const MANY: u32 = 300;
    let mut rules = String::new();
    for number in 1..=MANY {
        rules.push_str(&format!(
            "filter add dev pf0vf0 ingress protocol ip pref 1 handle {number} flower skip_sw dst_ip 10.9.{}.{} \
             action police pkts_rate 15625 pkts_burst {} conform-exceed drop/pipe mirred egress redirect dev p0\n",
            number / 256,
            number % 256,
            20 + number
        ));
    }
    world
        .guest
        .run(&format!("tc qdisc add dev pf0vf0 ingress; cat >/tmp/rules <<'END'\n{rules}END\ntc -batch /tmp/rules"));
    let in_hardware = world.guest.run("tc filter show dev pf0vf0 ingress | grep -c 'in_hw in_hw_count 1'");
    assert_eq!(in_hardware.trim(), MANY.to_string());
    assert_eq!(world.hca.lock().steering().written_meters(), MANY as usize);
    for number in [1_u32, 2, 127, 128, 129, 281, 300] {
        let [.., high, low] = number.to_be_bytes();
        let packet = Packet { destination: [10, 9, high, low].into(), ..Packet::v4(TCP) };
        let passed = pass(world, VF0, &packet, 500, Port::Wire, &packet);
        assert_eq!(passed, cut(20 + u64::from(number)), "rule {number}");
    }
    world.guest.run("tc qdisc del dev pf0vf0 ingress");
    no_meter_is_left(world);
}

/// Packets of a burst that is written with a mantissa of 8 bits: of 128 bytes each, the lower bits of more than 255 are lost.
fn cut(packets: u64) -> u64 {
    let lost = 64 - packets.leading_zeros().min(56) - 8;
    packets >> lost << lost
}

/// What the driver and the kernel do not take, with their reasons.
const REFUSED: &[(&str, &str)] = &[
    (
        "police rate 1mbit burst 10k conform-exceed pipe/pipe",
        "mlx5_core: Offload not supported when exceed action is not drop",
    ),
    ("police rate 1mbit burst 10k", "Offload not supported when conform/exceed action is \"reclassify\""),
    (
        "police rate 1mbit burst 10k conform-exceed drop/continue",
        "mlx5_core: Offload not supported when conform action is not pipe or ok",
    ),
    (
        "police rate 1mbit burst 10k conform-exceed drop/drop",
        "mlx5_core: Offload not supported when conform action is not pipe or ok",
    ),
    (
        "police rate 1mbit burst 10k conform-exceed drop/ok mirred egress redirect dev p0",
        "mlx5_core: Offload not supported when conform action is ok, but action is not last",
    ),
    (
        "police rate 1mbit burst 10k conform-exceed drop/ok",
        "mlx5_core: Rule must have at least one forward/drop action.",
    ),
    (
        "police rate 1mbit burst 10k peakrate 2mbit mtu 2000 conform-exceed drop/pipe mirred egress redirect dev p0",
        "mlx5_core: Offload not supported when peakrate/avrate/overhead is configured",
    ),
    (
        "police rate 1mbit burst 10k overhead 20 conform-exceed drop/pipe mirred egress redirect dev p0",
        "mlx5_core: Offload not supported when peakrate/avrate/overhead is configured",
    ),
    // Without words: no rate at all.
    ("police mtu 1000 conform-exceed drop/pipe mirred egress redirect dev p0", ""),
];

pub(crate) fn policers_that_the_driver_does_not_take_are_told(world: &World) {
    world.guest.run("tc qdisc add dev pf0vf0 ingress");
    for (actions, reason) in REFUSED {
        let ran = world
            .guest
            .attempt(&format!("tc filter add dev pf0vf0 ingress protocol ip pref 1 flower skip_sw action {actions}"));
        assert!(ran.code != 0 && ran.err.contains(reason), "{actions}: {ran:?}");
    }
    world.guest.run("tc qdisc del dev pf0vf0 ingress");
    no_meter_is_left(world);
}

/// The driver looks at the completion of a write, says what it found, and goes on as if nothing were wrong (`mlx5_aso_poll_cq`).
pub(crate) fn a_write_of_a_meter_that_fails_is_logged_and_the_rule_taken(world: &World) {
    let guest = &world.guest;
    world.hca.lock().fail_write(1);
    guest.run(&format!(
        "tc qdisc add dev pf0vf0 ingress
         tc filter add dev pf0vf0 ingress protocol ip pref 1 flower skip_sw ip_proto tcp \
             action {BYTES} mirred egress redirect dev p0"
    ));
    let said = guest.run("dmesg | tail -20; tc filter show dev pf0vf0 ingress");
    assert!(said.contains("Bad OP in ASOSQ CQE: 0xd") && said.contains("in_hw in_hw_count 1"), "{said}");
    let walk = world.receive(VF0, &Packet::v4(TCP).frame());
    assert!(walk.sent.is_empty() && walk.to_string().contains("nobody has written the meter"), "{walk}");
    // The queue of such writes stays in error until there is a new one.
    guest.run(&format!("tc qdisc del dev pf0vf0 ingress; devlink dev eswitch set $({DEVICE}) mode legacy"));
    go_to_switchdev(guest);
}

pub(crate) fn meters_of_the_agent_police_in_hardware(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    // 12,500 bytes at once, of which a mantissa of 8 bits keeps 12,480.
    agent.sluice("add-meter 1 --kbps 15625 --burst 100");
    agent.sluice("add-meter 2 --pps 15625 --burst 20");
    for (number, port, meter) in [(1, "pf0vf0", 1), (2, "pf0vf1", 1), (3, "pf0hpf", 2)] {
        let key = format!("{},in_port({port}),eth_type(0x0800),ipv4(proto=6,frag=no)", ufid(number));
        agent.add(&key, &format!("meter({meter}),p0"));
    }
    let flows = agent.flows();
    assert!(flows.iter().all(|flow| flow["placement"] == "hardware"), "{flows:#?}");
    assert_eq!(world.hca.lock().steering().written_meters(), 2);
    let packet = Packet::v4(TCP);
    let send = |from, count| pass(world, from, &packet, count, Port::Wire, &packet);
    assert_eq!((send(VF0, 100), send(VF1, 200)), (100, 12_480 / IP - 100));
    assert_eq!(send(HOST_PF, 100), 20);
    world.hca.lock().pass_time(MILLISECOND);
    assert_eq!(send(HOST_PF, 100), 15);
    // Flows have what passed, meters all.
    agent.eventually("conforming packets are counted", |flows| {
        let counted = |number, packets: u64| flow_of(flows, number)["packets"] == packets;
        counted(1, 100) && counted(2, 12_480 / IP - 100) && counted(3, 35)
    });
    let told = |meter: usize, packets: u64, dropped| {
        format!(
            "meter:{meter}, unit:{}, packets:{packets}, bytes:{}, dropped:{dropped}",
            ["kbps", "pps"][meter - 1],
            packets * FRAME
        )
    };
    let meters = [told(1, 300, 300 - 12_480 / IP), told(2, 200, 165)];
    let show = "/tmp/sluice --run-dir /tmp/agent/run show-meters";
    world.guest.eventually("all packets are counted", show, |said| meters.iter().all(|meter| said.contains(meter)));

    // Others at the new rate, from a full bucket on.
    agent.sluice("add-meter 1 --pps 15625 --burst 20");
    assert_eq!((send(VF0, 5), send(VF1, 100)), (5, 15));
    let used = agent.attempt("del-meter 1");
    assert!(used.code == 2 && used.err.contains("meter 1 is used by installed rules"), "{used:?}");
    agent.sluice("del-flows");
    agent.sluice("del-meter 1");
    agent.sluice("del-meter 2");
    agent.stop();
    no_meter_is_left(world);
}

/// A device that polices, at its port to the wire.
pub(crate) fn is_done(world: &World, to: Port) {
    world.guest.run(
        "tc qdisc add dev p0 ingress
         tc filter add dev p0 ingress protocol ip pref 1 flower skip_sw ip_proto tcp \
             action police pkts_rate 15625 pkts_burst 20 conform-exceed drop/pipe action goto chain 1",
    );
    let packet = Packet::v4(TCP);
    assert_eq!(pass(world, Port::Wire, &packet, 100, to, &packet), 20);
    world.guest.run("tc qdisc del dev p0 ingress");
    no_meter_is_left(world);
}

/// A device that does not.
pub(crate) fn is_refused(world: &World) {
    world.guest.run("tc qdisc add dev p0 ingress");
    let refused = world.guest.attempt(
        "tc filter add dev p0 ingress protocol ip pref 1 flower skip_sw ip_proto tcp \
             action police pkts_rate 15625 pkts_burst 20 conform-exceed drop/pipe action goto chain 1",
    );
    assert!(refused.code != 0 && refused.err.contains("Operation not supported"), "{refused:?}");
    world.guest.run("tc qdisc del dev p0 ingress");
}
