//! An Open vSwitch on a kernel whose driver tracks connections in hardware and says where a packet missed there (`CONFIG_MLX5_TC_CT`), as those of
//! vendors do: connections go by hardware, also translated ones, and what misses in a later chain goes on in Open vSwitch in that chain. Hardware hears
//! of a connection once tc has seen it in software, so that rules are in both.

use sluice_connectx::steering::Port;

use crate::beside::{
    FROM, HERE, THERE, TIMES, connections_go_by_hardware, goes_by_hardware, hands_flows_over, has_left, keeps_flows,
    leave_no_qdisc,
};
use crate::direct::{Agent, Eswitch};
use crate::frames::{checksum, udp};
use crate::guest::Guest;
use crate::vswitchd::Vswitchd;
use crate::{HOST_PF, MANAGER, VF0, VF1, World, ovn};

const BACKEND: &str = "backend = \"tc\"\ntc.policy = \"none\"";

/// Whether the guest's kernel is such a one.
pub(crate) fn is_possible(guest: &Guest) -> bool {
    guest.attempt("zgrep -qx CONFIG_MLX5_TC_CT=y /proc/config.gz").code == 0
}

pub(crate) fn connections_go_by_hardware_where_the_driver_tracks_them(world: &World) {
    let guest = &world.guest;
    world.end_agent();
    ["sluiced", "sluice", "libsluice_ovs_feedback.so"].iter().for_each(|name| guest.bring(name));
    let ports = [("p0", Port::Wire), ("pf0hpf", HOST_PF), ("pf0vf0", VF0), ("pf0vf1", VF1)];
    let eswitch = Eswitch { world, manager: MANAGER, ports };
    play(&eswitch, keeps_flows(&eswitch));
    if let Some(handing_over) = hands_flows_over(&eswitch) {
        play(&eswitch, handing_over);
    }
    if world.ovn {
        ovn::workloads_go_by_hardware_by_tc(&eswitch, BACKEND);
    }
    guest.run("rm -r /tmp/agent");
}

fn play(eswitch: &Eswitch<'_>, (vswitchd, source): (Vswitchd<'_>, &str)) {
    let agent = Agent::start_beside(eswitch, BACKEND, source);
    let shown = agent.sluice("show");
    assert!(shown.contains("a packet that misses in a later chain goes on in Open vSwitch"), "{shown}");
    eswitch.world.hca.lock().take_sent();
    vswitchd.forget_connections();
    connections_go_by_hardware(eswitch, &vswitchd);
    what_misses_in_a_later_chain_goes_on_there(eswitch, &vswitchd);
    translated_connections_go_by_hardware(eswitch, &vswitchd);
    agent.end("TERM");
    vswitchd.stop();
    leave_no_qdisc(eswitch);
}

/// Packets of a connection that is in hardware, and of a kind of service that no flow of its second chain has seen.
fn what_misses_in_a_later_chain_goes_on_there(eswitch: &Eswitch<'_>, vswitchd: &Vswitchd<'_>) {
    const TO: u16 = 62;
    let world = eswitch.world;
    vswitchd.add_rules(
        "table=0,priority=40000,in_port=pf0vf0,udp,tp_dst=62,ct_state=-trk,actions=ct(zone=8,table=2)\n\
         table=0,priority=40000,in_port=p0,udp,tp_src=62,ct_state=-trk,actions=ct(zone=8,table=2)\n\
         table=2,in_port=pf0vf0,udp,ct_state=+trk+new,actions=ct(commit,zone=8),output:p0\n\
         table=2,in_port=pf0vf0,udp,nw_tos=0,ct_state=+trk+est,actions=output:p0\n\
         table=2,in_port=pf0vf0,udp,nw_tos=32,ct_state=+trk+est,actions=output:pf0vf1\n\
         table=2,in_port=p0,udp,ct_state=+trk+est,actions=output:pf0vf0\n",
    );
    let [to_wire, from_wire] = [udp(HERE, THERE, FROM, TO), udp(THERE, HERE, TO, FROM)];
    world.receive(VF0, &to_wire);
    has_left(world, Port::Wire, &to_wire);
    goes_by_hardware(world, (Port::Wire, &from_wire), &[(VF0, from_wire.clone())]);
    let plain = goes_by_hardware(world, (VF0, &to_wire), &[(Port::Wire, to_wire.clone())]);

    let marked = of_service(to_wire, 32);
    world.pass(VF0, &marked, &[(eswitch.manager, &marked)]);
    has_left(world, VF1, &marked);
    let more = goes_by_hardware(world, (VF0, &marked), &[(VF1, marked.clone())]);
    has_counted(vswitchd, "table=2,", "nw_tos=0 ", plain);
    has_counted(vswitchd, "table=2,", "nw_tos=32 ", 1 + more);
    // The one that missed, too, once.
    has_counted(vswitchd, "table=0,", "tp_dst=62 ", 1 + plain + 1 + more);
}

fn translated_connections_go_by_hardware(eswitch: &Eswitch<'_>, vswitchd: &Vswitchd<'_>) {
    const TO: u16 = 63;
    const TRANSLATED: u16 = 7000;
    let world = eswitch.world;
    vswitchd.add_rules(&format!(
        "table=0,priority=40000,in_port=pf0vf0,udp,tp_dst=63,ct_state=-trk,actions=ct(zone=9,nat,table=3)\n\
         table=0,priority=40000,in_port=p0,udp,tp_src=63,ct_state=-trk,actions=ct(zone=9,nat,table=3)\n\
         table=3,in_port=pf0vf0,udp,ct_state=+trk+new,actions=ct(commit,zone=9,nat(src=10.0.0.6:{TRANSLATED})),output:p0\n\
         table=3,in_port=pf0vf0,udp,ct_state=+trk+est,actions=output:p0\n\
         table=3,in_port=p0,udp,ct_state=+trk+est,actions=output:pf0vf0\n",
    ));
    let (asked, there) = (udp(HERE, THERE, FROM, TO), udp(HERE, THERE, TRANSLATED, TO));
    let (answered, back) = (udp(THERE, HERE, TO, TRANSLATED), udp(THERE, HERE, TO, FROM));
    world.receive(VF0, &asked);
    has_left(world, Port::Wire, &there);
    let answers = goes_by_hardware(world, (Port::Wire, &answered), &[(VF0, back.clone())]);
    let asks = goes_by_hardware(world, (VF0, &asked), &[(Port::Wire, there.clone())]);
    for _ in 0..TIMES {
        world.pass(VF0, &asked, &[(Port::Wire, &there)]);
        world.pass(Port::Wire, &answered, &[(VF0, &back)]);
    }
    for (rule, packets) in [("tp_dst=63 ", 1 + asks + TIMES), ("tp_src=63 ", answers + TIMES)] {
        has_counted(vswitchd, "table=0,", rule, packets);
    }
}

/// Waits until Open vSwitch has counted so many packets for the rule of a table whose match ends so.
#[track_caller]
fn has_counted(vswitchd: &Vswitchd<'_>, table: &str, rule: &str, packets: usize) {
    vswitchd.has_counted(&format!("{table} {rule}: {packets} packets"), |shown| {
        let words = [table, rule, &format!("n_packets={packets}, ")];
        shown.lines().any(|line| words.iter().all(|words| line.contains(words)))
    });
}

/// A frame of IPv4 with another type of service.
fn of_service(mut frame: Vec<u8>, service: u8) -> Vec<u8> {
    frame[15] = service;
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}
