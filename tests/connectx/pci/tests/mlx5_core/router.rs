//! A Linux router on the ports of an eswitch: connections that it tracks, translates and forwards go by hardware once they are established, by
//! the kernel's tc and past it.

use serde_json::Value;
use sluice_connectx::steering::Port;

use crate::beside::{goes_by_hardware, has_left};
use crate::direct::{Agent, Eswitch, direct};
use crate::frames::{End, HOST, routed, tcp, udp};
use crate::tunnels::address_of;
use crate::{VF0, World};

/// How many packets go by hardware in each direction.
const TIMES: usize = 5;

/// Who asks, behind a function, who answers, behind the wire, and as whom the router asks for the former.
const CLIENT: End = ([10, 0, 0, 6], 1000);
const SERVER: End = ([192, 0, 2, 9], 60);
const TRANSLATED: End = ([192, 0, 2, 1], 1000);
/// Where the server is later.
const ELSEWHERE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x22];

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;

const SET_UP: &str = "
    modprobe --all nf_conntrack_netlink nft_masq nft_chain_nat
    ip link set p0 up
    ip link set pf0vf0 up
    ip addr add 10.0.0.254/24 dev pf0vf0
    ip addr add 192.0.2.1/24 dev p0
    ip neigh add 10.0.0.6 lladdr 02:00:00:00:00:01 dev pf0vf0 nud permanent
    ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:01 dev p0 nud permanent
    sysctl -qw net.ipv4.ip_forward=1
    nft 'table ip router { chain out { type nat hook postrouting priority srcnat; oif p0 masquerade; }; }'";
const TAKE_DOWN: &str = "
    nft delete table ip router
    sysctl -qw net.ipv4.ip_forward=0
    ip addr flush dev pf0vf0
    ip addr flush dev p0
    ip neigh flush dev pf0vf0 nud permanent
    ip neigh flush dev p0 nud permanent
    conntrack --flush";

pub(crate) fn established_connections_of_a_router_go_by_hardware(eswitch: &Eswitch<'_>) {
    let guest = &eswitch.world.guest;
    for backend in ["backend = \"tc\"\ntc.policy = \"skip_sw\"".to_owned(), direct("p0")] {
        guest.run(SET_UP);
        let agent = Agent::start_with_source(eswitch, &backend, "[source.conntrack]\n");
        let ways = Ways::of(eswitch.world);
        a_stream_of_datagrams(eswitch.world, &ways, &agent);
        a_connection_from_its_begin_to_its_end(eswitch.world, &ways, &agent);
        agent.end("TERM");
        guest.run(TAKE_DOWN);
    }
}

/// The router's Ethernet addresses at its two ports.
struct Ways {
    client: Vec<u8>,
    server: Vec<u8>,
}

impl Ways {
    fn of(world: &World) -> Self {
        Self { client: address_of(world, "pf0vf0"), server: address_of(world, "p0") }
    }

    /// What the client sends.
    fn asks(&self, mut frame: Vec<u8>) -> Vec<u8> {
        frame[..6].copy_from_slice(&self.client);
        frame
    }

    /// What the server sends.
    fn answers(&self, mut frame: Vec<u8>) -> Vec<u8> {
        frame[..6].copy_from_slice(&self.server);
        frame
    }

    /// A frame that the router has sent to the server.
    fn to_server(&self, frame: Vec<u8>) -> Vec<u8> {
        routed(frame, &self.server, &HOST)
    }

    /// A frame that the router has sent to the client.
    fn to_client(&self, frame: Vec<u8>) -> Vec<u8> {
        routed(frame, &self.client, &HOST)
    }
}

fn a_stream_of_datagrams(world: &World, ways: &Ways, agent: &Agent<'_>) {
    let datagram = |from: End, to: End| udp(from.0, to.0, from.1, to.1);
    let asked = ways.asks(datagram(CLIENT, SERVER));
    let answered = ways.answers(datagram(SERVER, TRANSLATED));
    world.receive(VF0, &asked);
    has_left(world, Port::Wire, &ways.to_server(datagram(TRANSLATED, SERVER)));
    both_ways_go_by_hardware(
        world,
        (&asked, ways.to_server(datagram(TRANSLATED, SERVER))),
        (&answered, ways.to_client(datagram(SERVER, CLIENT))),
    );
    both_flows_have_counted(agent, "proto=17");
}

fn a_connection_from_its_begin_to_its_end(world: &World, ways: &Ways, agent: &Agent<'_>) {
    let asks = |numbers, flags| {
        (ways.asks(tcp(CLIENT, SERVER, numbers, flags)), ways.to_server(tcp(TRANSLATED, SERVER, numbers, flags)))
    };
    let answers = |numbers, flags| {
        (ways.answers(tcp(SERVER, TRANSLATED, numbers, flags)), ways.to_client(tcp(SERVER, CLIENT, numbers, flags)))
    };
    let by_software = |from, (frame, sent): &(Vec<u8>, Vec<u8>), to| {
        world.receive(from, frame);
        has_left(world, to, sent);
    };
    by_software(VF0, &asks([100, 0], SYN), Port::Wire);
    by_software(Port::Wire, &answers([500, 101], SYN | ACK), VF0);
    let (asked, there) = asks([101, 501], ACK);
    let (answered, back) = answers([501, 101], ACK);
    both_ways_go_by_hardware(world, (&asked, there.clone()), (&answered, back));
    both_flows_have_counted(agent, "proto=6");

    // Who answers is behind another address of Ethernet.
    world.guest.run("ip neigh replace 192.0.2.9 lladdr 02:00:00:00:00:22 dev p0 nud permanent");
    let mut elsewhere = there;
    elsewhere[..6].copy_from_slice(&ELSEWHERE);
    goes_by_hardware(world, (VF0, &asked), &[(Port::Wire, elsewhere)]);
    world.guest.run("ip neigh replace 192.0.2.9 lladdr 02:00:00:00:00:01 dev p0 nud permanent");

    // The kernel sees the end of it.
    by_software(VF0, &asks([101, 501], FIN | ACK), Port::Wire);
    by_software(Port::Wire, &answers([501, 102], FIN | ACK), VF0);
    agent
        .eventually("a connection that is over has no flows", |flows| !flows.iter().any(|flow| is_of(flow, "proto=6")));
    by_software(VF0, &asks([102, 502], ACK), Port::Wire);
}

/// Packets of a connection, and what becomes of them: hardware takes them once it knows of it, and then the router sees none of them.
fn both_ways_go_by_hardware(world: &World, (asked, there): (&[u8], Vec<u8>), (answered, back): (&[u8], Vec<u8>)) {
    // By turns, for the kernel takes a stream for one when both have sent.
    world.receive(Port::Wire, answered);
    has_left(world, VF0, &back);
    goes_by_hardware(world, (VF0, asked), &[(Port::Wire, there.clone())]);
    goes_by_hardware(world, (Port::Wire, answered), &[(VF0, back.clone())]);
    let before = seen_by_router(world);
    for _ in 0..TIMES {
        world.pass(VF0, asked, &[(Port::Wire, &there)]);
        world.pass(Port::Wire, answered, &[(VF0, &back)]);
    }
    assert_eq!(seen_by_router(world), before, "the router has forwarded packets");
}

fn both_flows_have_counted(agent: &Agent<'_>, protocol: &str) {
    agent.eventually("both directions have one flow, which has counted", |flows| {
        let has_counted =
            |flow: &&Value| flow["placement"] == "hardware" && flow["packets"].as_u64() > Some(TIMES as u64);
        let ours = flows.iter().filter(|flow| is_of(flow, protocol));
        ours.clone().count() == 2 && ours.filter(has_counted).count() == 2
    });
}

fn is_of(flow: &Value, protocol: &str) -> bool {
    flow["source"] == "conntrack" && flow["key"].as_str().is_some_and(|key| key.contains(protocol))
}

/// Packets that the kernel has forwarded (`ForwDatagrams` of RFC 4293).
fn seen_by_router(world: &World) -> String {
    world.guest.run("nstat -asz IpForwDatagrams")
}
