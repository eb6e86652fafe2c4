//! Tunnels in hardware: headers put on and taken off, for every kind that the driver takes.
//!
//! Rules at a tunnel's device are without `skip_sw`, which Linux refuses there before any driver is asked: such a device has no
//! offload of its own (`nooffloaddevcnt` in `tc_setup_cb_add` of net/sched/cls_api.c).

use sluice_connectx::steering::{Port, Walk};

use crate::agent::{Agent, flow_of, ufid};
use crate::frames::{checksum, ethernet, ipv4};
use crate::packet::{Packet, TCP};
use crate::{MANAGER, VF0, World};

const NEIGHBOUR: [u8; 6] = [0x02, 0, 0, 0, 0, 0x22];
const HERE: [u8; 4] = [192, 0, 2, 1];
const THERE: [u8; 4] = [192, 0, 2, 2];

pub(crate) const SET_UP: &str = "
    ip link set p0 up
    ip address add 192.0.2.1/24 dev p0
    ip neigh replace 192.0.2.2 lladdr 02:00:00:00:00:22 dev p0 nud permanent";
pub(crate) const TAKE_DOWN: &str = "ip neigh del 192.0.2.2 dev p0; ip address del 192.0.2.1/24 dev p0";

/// A kind of tunnel with network 42: how iproute2 makes its device, its UDP port, and what is between IP, or UDP, and the frame.
pub(crate) struct Kind<'a> {
    device: &'static str,
    link: &'static str,
    /// What Open vSwitch calls it.
    pub(crate) vswitchd: Option<&'static str>,
    udp_port: Option<u16>,
    header: &'a [u8],
}

pub(crate) const KINDS: [Kind<'static>; 3] = [
    Kind {
        device: "vx",
        link: "vxlan external dstport 4789",
        vswitchd: Some("vxlan"),
        udp_port: Some(4789),
        header: &[8, 0, 0, 0, 0, 0, 42, 0],
    },
    Kind {
        device: "gnv",
        link: "geneve external dstport 6081",
        vswitchd: Some("geneve"),
        udp_port: Some(6081),
        header: &[0, 0, 0x65, 0x58, 0, 0, 42, 0],
    },
    Kind {
        device: "gre",
        link: "gretap external",
        vswitchd: None,
        udp_port: None,
        header: &[0x20, 0, 0x65, 0x58, 0, 0, 0, 42],
    },
];

impl<'a> Kind<'a> {
    /// Geneve with another header.
    pub(crate) const fn geneve(header: &'a [u8]) -> Self {
        let [_, geneve, _] = KINDS;
        Self { header, ..geneve }
    }

    /// Takes the outer headers of a frame off, which must be right to the byte, and gives what was in them.
    #[track_caller]
    pub(crate) fn opened<'b>(&self, world: &World, frame: &'b [u8]) -> &'b [u8] {
        let own = own_address(world);
        assert_eq!((&frame[..6], &frame[6..12], &frame[12..14]), (&NEIGHBOUR[..], &own[..], &[8, 0][..]));
        let ip = &frame[14..34];
        assert_eq!((ip[0], checksum(ip)), (0x45, 0), "{ip:x?}");
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), frame.len() - 14);
        assert_eq!((&ip[12..16], &ip[16..]), (&HERE[..], &THERE[..]));
        let rest = match self.udp_port {
            Some(port) => {
                assert_eq!((ip[9], &frame[36..38]), (17, &port.to_be_bytes()[..]));
                assert_eq!(usize::from(u16::from_be_bytes([frame[38], frame[39]])), frame.len() - 34);
                &frame[42..]
            }
            None => {
                assert_eq!(ip[9], 47);
                &frame[34..]
            }
        };
        assert_eq!(&rest[..self.header.len()], self.header);
        &rest[self.header.len()..]
    }

    /// A frame in this tunnel, as the neighbour sends it.
    pub(crate) fn wrapped(&self, frame: &[u8]) -> Vec<u8> {
        let payload = [self.header, frame].concat();
        let (protocol, payload) = match self.udp_port {
            Some(port) => {
                let length = u16::try_from(8 + payload.len()).unwrap();
                let header = [0xc123, port, length, 0].map(u16::to_be_bytes).concat();
                (17, [header, payload].concat())
            }
            None => (47, payload),
        };
        ethernet(0x0800, &ipv4(THERE, HERE, protocol, &payload))
    }

    /// Where the number of the network ends in a frame of [`Self::wrapped`].
    fn last_bit_of_network(&self) -> usize {
        match self.udp_port {
            Some(_) => 14 + 20 + 8 + 6,
            None => 14 + 20 + 7,
        }
    }

    /// A frame comes in from a function, and goes out at the wire in this tunnel.
    #[track_caller]
    pub(crate) fn carries(&self, world: &World, frame: &[u8]) {
        let walk = world.receive(VF0, frame);
        assert!(goes_to_wire(&walk), "{walk}");
        assert_eq!(self.opened(world, &walk.sent[0].1), frame, "{walk}");
    }
}

/// The Ethernet address of the end of tunnels.
pub(crate) fn own_address(world: &World) -> Vec<u8> {
    address_of(world, "p0")
}

/// The Ethernet address of a network device.
pub(crate) fn address_of(world: &World, device: &str) -> Vec<u8> {
    let own = world.guest.run(&format!("cat /sys/class/net/{device}/address"));
    own.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).expect("an address")).collect()
}

/// Whether one frame leaves, and at the wire.
pub(crate) fn goes_to_wire(walk: &Walk) -> bool {
    matches!(&walk.sent[..], [(Port::Wire, _)])
}

pub(crate) fn tunnels_begin_in_hardware(world: &World) {
    world.guest.run(SET_UP);
    let frame = Packet::v4(TCP).frame();
    for kind in &KINDS {
        let port = kind.udp_port.map_or(String::new(), |port| format!("dst_port {port}"));
        let shown = world.guest.run(&format!(
            "ip link add {0} type {1}; ip link set {0} up; tc qdisc add dev pf0vf0 ingress
             tc filter add dev pf0vf0 ingress protocol ip pref 1 flower skip_sw src_mac 02:00:00:00:00:01 ip_proto tcp \
                 action tunnel_key set src_ip 192.0.2.1 dst_ip 192.0.2.2 id 42 {port} nocsum \
                 pipe mirred egress redirect dev {0}
             tc filter show dev pf0vf0 ingress",
            kind.device, kind.link
        ));
        assert!(shown.contains("in_hw in_hw_count 1"), "{shown}");
        kind.carries(world, &frame);
        world.guest.run(&format!("tc qdisc del dev pf0vf0 ingress; ip link del {}", kind.device));
    }
    world.guest.run(TAKE_DOWN);
}

pub(crate) fn tunnels_end_in_hardware(world: &World) {
    world.guest.run(SET_UP);
    let frame = Packet::v4(TCP).frame();
    for kind in &KINDS {
        let port = kind.udp_port.map_or(String::new(), |port| format!("enc_dst_port {port}"));
        let shown = world.guest.run(&format!(
            "ip link add {0} type {1}; ip link set {0} up; tc qdisc add dev {0} ingress
             tc filter add dev {0} ingress protocol ip pref 1 flower verbose enc_src_ip 192.0.2.2 enc_dst_ip 192.0.2.1 enc_key_id 42 {port} \
                 dst_ip 10.9.9.9 ip_proto tcp dst_port 80 action tunnel_key unset pipe mirred egress redirect dev pf0vf0
             tc filter show dev {0} ingress",
            kind.device, kind.link
        ));
        assert!(shown.contains("in_hw in_hw_count 1"), "{shown}{}", world.guest.run("dmesg | tail -5"));
        let wrapped = kind.wrapped(&frame);
        world.pass(Port::Wire, &wrapped, &[(VF0, &frame)]);
        // Another network, another end, another inner address.
        for byte in [kind.last_bit_of_network(), 33, wrapped.len() - frame.len() + 33] {
            let mut other = wrapped.clone();
            other[byte] ^= 1;
            world.pass(Port::Wire, &other, &[(MANAGER, &other)]);
        }
        world.guest.run(&format!("tc qdisc del dev {0} ingress; ip link del {0}", kind.device));
    }
    world.guest.run(TAKE_DOWN);
}

/// A header of Geneve for network 42 with an option as OVN has it, for packets to one of its ports.
fn with_option(port: u8) -> [u8; 16] {
    [2, 0, 0x65, 0x58, 0, 0, 42, 0, 0x01, 0x02, 0x80, 1, 0, 1, 0, port]
}

pub(crate) fn flows_into_and_out_of_tunnels_are_in_hardware(world: &World) {
    world.guest.run(SET_UP);
    let ports = "[[port]]\nnumber = 9\nname = \"gnv\"\nkind = \"geneve\"\nunderlay = \"p0\"\n";
    let agent = Agent::start_with(world, "none", ports);
    let [_, geneve, _] = &KINDS;
    agent.add(
        &format!("{},in_port(pf0vf0),eth_type(0x0800),ipv4(src=10.0.0.1,proto=6,frag=no)", ufid(1)),
        "set(tunnel(tun_id=0x2a,src=192.0.2.1,dst=192.0.2.2,ttl=64,tp_dst=6081,flags(key))),gnv",
    );
    agent.add(
        &format!(
            "{},tunnel(tun_id=0x2a,src=192.0.2.2,dst=192.0.2.1,geneve({{class=0x102,type=0x80,len=4,0x10002}})),\
             in_port(gnv),eth_type(0x0800),ipv4(dst=10.9.9.9,proto=6,frag=no)",
            ufid(2)
        ),
        "pf0vf0",
    );
    let flows = agent.flows();
    assert!(flows.iter().all(|flow| flow["placement"] == "hardware and software"), "{flows:#?}");
    assert_eq!(world.rules(), 2);
    let frame = Packet::v4(TCP).frame();
    let [wrapped, other] = [2, 3].map(|port| Kind::geneve(&with_option(port)).wrapped(&frame));
    for _ in 0..5 {
        geneve.carries(world, &frame);
        world.pass(Port::Wire, &wrapped, &[(VF0, &frame)]);
        world.pass(Port::Wire, &other, &[(MANAGER, &other)]);
    }
    agent.eventually("what goes into the tunnel and comes out of it is counted", |flows| {
        [1, 2].iter().all(|number| flow_of(flows, *number)["hardware"]["packets"] == 5)
    });
    assert_eq!(agent.sluice("audit"), "2 rules, all as wanted (listed by the device)\n");
    agent.stop();
    // Made by the agent, and left for the next one.
    world.guest.run(&format!("ip link del gnv; {TAKE_DOWN}"));
}
