//! Sluice in front of an unmodified Open vSwitch that keeps its flows in the kernel's datapath (`hw-offload=false`), and with one that hands them
//! over: by the kernel's tc and past it, hardware forwards what Open vSwitch has forwarded once, and Open vSwitch what hardware does not know.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_connectx::steering::{Port, Walk};

use crate::direct::{Agent, Eswitch, direct};
use crate::frames::{tcp, udp};
use crate::tunnels::{KINDS, Kind, SET_UP, TAKE_DOWN, goes_to_wire, own_address};
use crate::vswitchd::{
    RULES, Vswitchd, cases, first_packets_have_come, packets_go_by_hardware, query, send_first_packets,
};
use crate::{VF0, World, ovn};

/// How many packets go by hardware.
pub(crate) const TIMES: usize = 5;

/// How long a packet may take by software, and hardware until it knows of something.
const SOON: Duration = Duration::from_secs(30);

/// A host behind a function, one behind the wire, and the ports of connections between them.
pub(crate) const HERE: [u8; 4] = [10, 0, 0, 6];
pub(crate) const THERE: [u8; 4] = [10, 9, 9, 9];
pub(crate) const FROM: u16 = 1000;
const TO: u16 = 60;

/// The port that packets of tunnels take, beside the ports of the datapath, which has its own numbers.
pub(crate) const UNDERLAY: &str = "[[port]]\nnumber = 1000\nname = \"p0\"\n";

/// OpenFlow rules for connections between the two that the kernel tracks.
fn tracked(protocol: &str) -> String {
    format!(
        "table=0,in_port=pf0vf0,{protocol},nw_src=10.0.0.6,ct_state=-trk,actions=ct(zone=7,table=1)\n\
         table=0,in_port=p0,{protocol},nw_dst=10.0.0.6,ct_state=-trk,actions=ct(zone=7,table=1)\n\
         table=1,in_port=pf0vf0,{protocol},ct_state=+trk+new,actions=ct(commit,zone=7),output:p0\n\
         table=1,in_port=pf0vf0,{protocol},ct_state=+trk+est,actions=output:p0\n\
         table=1,in_port=p0,{protocol},ct_state=+trk+est,actions=output:pf0vf0\n"
    )
}

pub(crate) fn openvswitch_goes_on_in_hardware_by_tc_and_past_it(eswitch: &Eswitch<'_>) {
    let world = eswitch.world;
    world.guest.bring("libsluice_ovs_feedback.so");
    let tc = "backend = \"tc\"\ntc.policy = \"skip_sw\"".to_owned();
    for (backend, is_direct) in [(tc, false), (tracked_past_tc(), true)] {
        let more = |vswitchd: &Vswitchd<'_>| {
            if is_direct {
                connections_that_the_kernel_tracks_go_by_hardware(eswitch, vswitchd);
            }
            its_meters_are_in_hardware(eswitch, vswitchd);
        };
        let (vswitchd, source) = keeps_flows(eswitch);
        go_on_by(eswitch, (&backend, is_direct), vswitchd, source, more);
        if let Some((vswitchd, source)) = hands_flows_over(eswitch) {
            go_on_by(eswitch, (&backend, is_direct), vswitchd, source, more);
        }
    }
    KINDS.iter().filter(|kind| kind.vswitchd.is_some()).for_each(|kind| its_tunnels_are_in_hardware(eswitch, kind));
    if world.ovn {
        ovn::workloads_go_by_hardware_past_tc(eswitch, &tracked_past_tc());
    }
}

/// With a backend, from the first packet to the end of the agent. `more` is what it does besides.
fn go_on_by(
    eswitch: &Eswitch<'_>,
    (backend, is_direct): (&str, bool),
    vswitchd: Vswitchd<'_>,
    source: &str,
    more: impl FnOnce(&Vswitchd<'_>),
) {
    let agent = Agent::start_beside(eswitch, backend, source);
    its_flows_are_in_hardware_and_it_counts_their_packets(eswitch, &vswitchd, &agent);
    hardware_follows_when_its_rules_change(eswitch, &vswitchd);
    if is_direct {
        it_forwards_while_no_agent_runs(eswitch, &agent);
    } else {
        rules_forward_while_no_agent_runs(eswitch, &agent);
    }
    more(&vswitchd);
    agent.end("TERM");
    it_forwards_itself(eswitch);
    vswitchd.stop();
    leave_no_qdisc(eswitch);
}

/// Takes the queueing disciplines away that an Open vSwitch or an agent has left.
pub(crate) fn leave_no_qdisc(eswitch: &Eswitch<'_>) {
    let guest = &eswitch.world.guest;
    guest.run("for port in p0 pf0hpf pf0vf0 pf0vf1; do tc qdisc del dev $port ingress 2>/dev/null || true; done");
}

/// An unmodified Open vSwitch, and the agent's source in front of it.
pub(crate) fn keeps_flows<'a>(eswitch: &'a Eswitch<'_>) -> (Vswitchd<'a>, &'static str) {
    (start_vswitchd(eswitch), "[source.ovs]\n")
}

/// One that hands its flows over, if there is one, and the agent's source for that.
pub(crate) fn hands_flows_over<'a>(eswitch: &'a Eswitch<'_>) -> Option<(Vswitchd<'a>, &'static str)> {
    let World { guest, native, .. } = eswitch.world;
    let settings = "hw-offload=true hw-offload-priority=sluice sluice-run-dir=/tmp/agent/run min-revalidate-pps=0";
    let vswitchd = Vswitchd::start_of(native.as_ref()?, guest, settings);
    Some((vswitchd, "[source.ovs]\nhanded_over = true\n"))
}

fn start_vswitchd<'a>(eswitch: &'a Eswitch<'_>) -> Vswitchd<'a> {
    Vswitchd::start(
        &eswitch.world.guest,
        "hw-offload=false min-revalidate-pps=0",
        "LD_PRELOAD=/tmp/libsluice_ovs_feedback.so SLUICE_OVS_FEEDBACK=/tmp/agent/run/ovs-feedback.sock",
    )
}

fn its_flows_are_in_hardware_and_it_counts_their_packets(
    eswitch: &Eswitch<'_>,
    vswitchd: &Vswitchd<'_>,
    agent: &Agent<'_>,
) {
    let world = eswitch.world;
    let shown = agent.sluice("show");
    for (name, kind) in [("p0", "physical"), ("pf0hpf", "representor"), ("pf0vf0", "representor")] {
        let is_its = |line: &str| line.split_whitespace().skip(1).take(2).eq([name, kind]);
        assert!(shown.lines().any(is_its), "{shown}");
    }
    vswitchd.add_rules(RULES);
    send_first_packets(world);
    all_are_in_hardware(agent);
    first_packets_have_come(world);
    packets_go_by_hardware(world, TIMES);
    vswitchd.has_counted("it has counted what hardware has forwarded", |shown| {
        shown.matches(&format!("n_packets={}, ", TIMES + 1)).count() == cases().len()
    });
}

#[track_caller]
fn all_are_in_hardware(agent: &Agent<'_>) {
    let is_in_hardware = |flow: &&Value| flow["state"] == "offloaded" && flow["placement"] == "hardware";
    agent.eventually("its flows are in hardware", |flows| {
        let of_vswitchd = flows.iter().filter(|flow| flow["source"] == "ovs");
        of_vswitchd.filter(is_in_hardware).count() == cases().len()
    });
}

fn hardware_follows_when_its_rules_change(eswitch: &Eswitch<'_>, vswitchd: &Vswitchd<'_>) {
    let world = eswitch.world;
    for (actions, leaves) in [("drop", vec![]), ("output:p0", vec![(Port::Wire, query(53))])] {
        vswitchd.add_rules(&format!("in_port=pf0vf0,udp,tp_dst=53,actions={actions}\n"));
        goes_by_hardware(world, (VF0, &query(53)), &leaves);
    }
}

fn connections_that_the_kernel_tracks_go_by_hardware(eswitch: &Eswitch<'_>, vswitchd: &Vswitchd<'_>) {
    let world = eswitch.world;
    world.hca.lock().take_sent();
    // Those of an Open vSwitch before.
    vswitchd.forget_connections();
    let begin = connections_go_by_hardware(eswitch, vswitchd);
    // Software sees who begins anew.
    world.pass(VF0, &begin, &[(eswitch.manager, &begin)]);
}

/// A stream of UDP and a connection of TCP, from their begin until hardware forwards them. Returns the first packet of the latter.
pub(crate) fn connections_go_by_hardware(eswitch: &Eswitch<'_>, vswitchd: &Vswitchd<'_>) -> Vec<u8> {
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let world = eswitch.world;
    let [to_wire, from_wire] = [udp(HERE, THERE, FROM, TO), udp(THERE, HERE, TO, FROM)];
    vswitchd.add_rules(&tracked("udp"));
    world.receive(VF0, &to_wire);
    has_left(world, Port::Wire, &to_wire);
    one_rule_counts_each_packet(eswitch, vswitchd, "udp", 0, [&to_wire, &from_wire]);

    let (client, server) = ((HERE, FROM), (THERE, TO));
    let begin = tcp(client, server, [100, 0], SYN);
    let accept = tcp(server, client, [500, 101], SYN | ACK);
    let [to_wire, from_wire] = [tcp(client, server, [101, 501], ACK), tcp(server, client, [501, 101], ACK)];
    vswitchd.add_rules(&tracked("tcp"));
    for (from, frame, to) in [(VF0, &begin, Port::Wire), (Port::Wire, &accept, VF0), (VF0, &to_wire, Port::Wire)] {
        world.receive(from, frame);
        has_left(world, to, frame);
    }
    one_rule_counts_each_packet(eswitch, vswitchd, "tcp", 1, [&to_wire, &from_wire]);
    begin
}

/// Packets of a connection go both ways by hardware, once it knows of it; each is counted by a rule of the second table, of which `before` in each
/// direction went by software.
fn one_rule_counts_each_packet(
    eswitch: &Eswitch<'_>,
    vswitchd: &Vswitchd<'_>,
    protocol: &str,
    before: usize,
    [to_wire, from_wire]: [&Vec<u8>; 2],
) {
    let world = eswitch.world;
    let answers = goes_by_hardware(world, (Port::Wire, from_wire), &[(VF0, from_wire.clone())]);
    let asks = goes_by_hardware(world, (VF0, to_wire), &[(Port::Wire, to_wire.clone())]);
    for _ in 0..TIMES {
        world.pass(VF0, to_wire, &[(Port::Wire, to_wire)]);
        world.pass(Port::Wire, from_wire, &[(VF0, from_wire)]);
    }
    vswitchd.has_counted("each packet of the connection is counted by one rule", |shown| {
        let counted = |from: &str, packets: usize| {
            let of = [&format!("+est+trk,{protocol},{from} "), &format!("n_packets={packets}, ")];
            shown.lines().any(|line| of.iter().all(|words| line.contains(words.as_str())))
        };
        counted("in_port=pf0vf0", before + asks + TIMES) && counted("in_port=p0", before + answers + TIMES)
    });
}

fn its_meters_are_in_hardware(eswitch: &Eswitch<'_>, vswitchd: &Vswitchd<'_>) {
    let world = eswitch.world;
    vswitchd.add_meter("meter=1,pktps,burst,bands=type=drop,rate=1000000,burst_size=1000000");
    vswitchd.add_rules("in_port=pf0vf0,udp,tp_dst=57,actions=meter:1,output:p0\n");
    let asks = goes_by_hardware(world, (VF0, &query(57)), &[(Port::Wire, query(57))]);
    for _ in 0..TIMES {
        world.pass(VF0, &query(57), &[(Port::Wire, &query(57))]);
    }
    let counted = format!("packet_in_count:{} ", asks + TIMES);
    vswitchd.has_metered("the meter has counted each packet once", |shown| shown.contains(&counted));
}

/// What the agent had in the device goes with it.
fn it_forwards_while_no_agent_runs(eswitch: &Eswitch<'_>, agent: &Agent<'_>) {
    agent.end("KILL");
    it_forwards_itself(eswitch);
    agent.run();
    goes_by_hardware(eswitch.world, (VF0, &query(53)), &[(Port::Wire, query(53))]);
}

fn rules_forward_while_no_agent_runs(eswitch: &Eswitch<'_>, agent: &Agent<'_>) {
    agent.end("KILL");
    packets_go_by_hardware(eswitch.world, TIMES);
    agent.run();
    all_are_in_hardware(agent);
    packets_go_by_hardware(eswitch.world, TIMES);
}

fn it_forwards_itself(eswitch: &Eswitch<'_>) {
    let world = eswitch.world;
    world.hca.lock().take_sent();
    world.pass(VF0, &query(53), &[(eswitch.manager, &query(53))]);
    has_left(world, Port::Wire, &query(53));
}

/// What goes into a tunnel and comes out of it, past the kernel's tc, which takes no rules for hardware alone at a tunnel's device.
fn its_tunnels_are_in_hardware(eswitch: &Eswitch<'_>, kind: &Kind<'_>) {
    let world = eswitch.world;
    let vswitchd = start_vswitchd(eswitch);
    vswitchd.configure(&format!(
        "del-port br0 p0 -- add-port br0 tunnel -- set interface tunnel type={} options:remote_ip=192.0.2.2 options:key=42",
        kind.vswitchd.expect("it is one of Open vSwitch's")
    ));
    world.guest.run(SET_UP);
    let agent = Agent::start_beside(eswitch, &direct("p0"), &format!("{UNDERLAY}[source.ovs]\nunderlay = \"p0\"\n"));
    vswitchd.add_rules("in_port=pf0vf0,ip,actions=output:tunnel\nin_port=tunnel,ip,actions=output:pf0vf0\n");
    let [to_wire, from_wire] = [udp(HERE, THERE, FROM, TO), udp(THERE, HERE, TO, FROM)];
    let mut wrapped = kind.wrapped(&from_wire);
    wrapped[..6].copy_from_slice(&own_address(world));
    let asks = until(world, (VF0, &to_wire), goes_to_wire);
    let answers = goes_by_hardware(world, (Port::Wire, &wrapped), &[(VF0, from_wire.clone())]);
    for _ in 0..TIMES {
        kind.carries(world, &to_wire);
        world.pass(Port::Wire, &wrapped, &[(VF0, &from_wire)]);
    }
    vswitchd.has_counted("what goes into the tunnel and what comes out of it is counted", |shown| {
        let counted = |from: &str, packets: usize| {
            let is_it = |line: &str| line.contains(from) && line.contains(&format!("n_packets={packets}, "));
            shown.lines().any(is_it)
        };
        counted("in_port=pf0vf0", asks + TIMES) && counted("in_port=tunnel", answers + TIMES)
    });
    agent.end("TERM");
    vswitchd.stop();
    world.guest.run(TAKE_DOWN);
}

/// The dv backend, which has connections that the kernel tracks in the device.
pub(crate) fn tracked_past_tc() -> String {
    format!("{}\ndv.connections = \"kernel\"", direct("p0"))
}

/// Sends a packet until hardware alone does with it what is expected. Returns how many it took.
#[track_caller]
pub(crate) fn goes_by_hardware(world: &World, at: (Port, &[u8]), leaves: &[(Port, Vec<u8>)]) -> usize {
    until(world, at, |walk| walk.sent == leaves)
}

/// Sends a packet until hardware does with it what is expected. Returns how many it took.
#[track_caller]
pub(crate) fn until(world: &World, (from, frame): (Port, &[u8]), is_so: impl Fn(&Walk) -> bool) -> usize {
    let deadline = Instant::now() + SOON;
    for sent in 1.. {
        let walk = world.receive(from, frame);
        if is_so(&walk) {
            return sent;
        }
        assert!(Instant::now() < deadline, "{walk}");
        thread::sleep(Duration::from_millis(100));
    }
    unreachable!("there are not so many packets")
}

/// Waits until the kernel has sent a frame out of a port.
#[track_caller]
pub(crate) fn has_left(world: &World, port: Port, frame: &[u8]) {
    one_has_left(world, port, |sent| sent == frame);
}

/// Waits until the kernel has sent such a frame out of a port.
#[track_caller]
pub(crate) fn one_has_left(world: &World, port: Port, is_it: impl Fn(&[u8]) -> bool) {
    let deadline = Instant::now() + SOON;
    while !world.hca.lock().take_sent().iter().any(|(to, sent)| *to == port && is_it(sent)) {
        assert!(Instant::now() < deadline, "nothing has left by {port}");
        thread::sleep(Duration::from_millis(20));
    }
}
