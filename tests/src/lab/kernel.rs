//! The kernel's side: wires, tunnels and a datapath.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use sluice_flow::action::ActionList;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;

use super::wire::Wires;
use super::{
    ERSPAN, GENEVE, GRE, OWN_IP, OWN_IPV6, OWN_MAC, PEER_IP, PEER_IPV6, PEER_MAC, Sent, UNDERLAY, VXLAN, VXLAN_GBP,
    WIRES,
};
use crate::openvswitch::{Datapath, NotInstalled, forget_connections};
use crate::scenario::Scenario;

const MODULES: &[&str] = &[
    "tun",
    "openvswitch",
    "nf_conntrack",
    "nf_conntrack_netlink",
    "nf_conntrack_ftp",
    "nf_nat",
    "nf_nat_ftp",
    "vxlan",
    "geneve",
    "ip_gre",
];

/// The datapath of the kernel's module, and the wires on its ports.
pub struct Kernel {
    datapath: Datapath,
    wires: Wires,
    /// Meters of the scenario that is set up.
    meters: Vec<sluice_flow::meter::MeterId>,
}

impl Kernel {
    /// Sets all up.
    pub fn open() -> Self {
        run("modprobe", &[&["--all"], MODULES].concat());
        for setting in [
            // Nobody but the scenarios shall talk: no IPv6 on the wires, and no packet is turned away for its route.
            "net.ipv6.conf.default.disable_ipv6=1",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
            "net.ipv4.conf.default.arp_ignore=8",
            // What the module logs is the only reason that it gives.
            "net.core.message_cost=0",
        ] {
            run("sysctl", &["--quiet", "--write", setting]);
        }
        let wires = Wires::new(WIRES.chain([UNDERLAY]).map(|number| (PortNumber(number), name(number))));
        let mut datapath = Datapath::create("lab");
        for number in WIRES {
            run("ip", &["link", "set", &name(number), "mtu", "9000", "multicast", "off", "up"]);
            datapath.add_port(PortNumber(number), &name(number));
        }
        open_underlay();
        for (number, kind) in [
            (VXLAN, "vxlan external nolearning dstport 4789 udp6zerocsumrx"),
            (GENEVE, "geneve external dstport 6081 udp6zerocsumrx"),
            (GRE, "gretap external"),
            (ERSPAN, "erspan external"),
            (VXLAN_GBP, "vxlan external nolearning dstport 4790 gbp udp6zerocsumrx"),
        ] {
            let words: Vec<_> = kind.split(' ').collect();
            run("ip", &[&["link", "add", &name(number), "type"], words.as_slice()].concat());
            run("ip", &["link", "set", &name(number), "up"]);
            datapath.add_port(PortNumber(number), &name(number));
        }
        Self { datapath, wires, meters: vec![] }
    }

    /// Puts a scenario's flows in, in place of those of the last one.
    pub fn set_up(&mut self, scenario: &Scenario) -> Result<(), NotInstalled> {
        self.datapath.flush();
        for meter in self.meters.drain(..) {
            self.datapath.remove_meter(meter);
        }
        forget_connections();
        for meter in &scenario.meters {
            self.datapath.set_meter(meter);
            self.meters.push(meter.id);
        }
        for (number, (matching, actions)) in scenario.flows.iter().enumerate() {
            self.datapath.add_flow(number as u128 + 1, matching, actions)?;
        }
        self.wires.collect();
        Ok(())
    }

    /// Which of some flows the module refuses.
    pub fn refusals(&mut self, flows: &[(Match, ActionList)]) -> Vec<Option<NotInstalled>> {
        self.datapath.flush();
        let numbered = (1..).zip(flows);
        numbered.map(|(ufid, (matching, actions))| self.datapath.add_flow(ufid, matching, actions).err()).collect()
    }

    /// Lets a frame in, and waits for as many to come out as are expected, but not for long.
    pub fn inject(&mut self, port: PortNumber, frame: &[u8], expected: usize) -> Sent {
        self.wires.inject(port, frame, expected)
    }

    /// Puts flows in, numbered from 1 in their UFIDs, and has Open vSwitch's own tool read back what was taken.
    pub fn dump(&mut self, flows: &[(Match, ActionList)]) -> String {
        self.datapath.flush();
        for (ufid, (matching, actions)) in (1..).zip(flows) {
            // A flow that is refused is not in the dump.
            let _ = self.datapath.add_flow(ufid, matching, actions);
        }
        let words = run("ovs-dpctl", &["--more", "--no-names", "dump-flows", "system@lab"]);
        String::from_utf8_lossy(&words).into_owned()
    }
}

/// Gives the underlay its addresses and its only neighbour.
fn open_underlay() {
    let device = name(UNDERLAY);
    let dotted = |address: [u8; 4]| Ipv4Addr::from(address).to_string();
    let colons = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let conf = |setting: &str| format!("net.ipv6.conf.{device}.{setting}");
    for setting in ["disable_ipv6=0", "accept_ra=0", "accept_dad=0", "router_solicitations=0", "addr_gen_mode=1"] {
        run("sysctl", &["--quiet", "--write", &conf(setting)]);
    }
    run("ip", &["link", "set", &device, "address", &colons(OWN_MAC), "up"]);
    run("ip", &["addr", "add", &format!("{}/24", dotted(OWN_IP)), "dev", &device]);
    run("ip", &["-6", "addr", "add", &format!("{}/64", Ipv6Addr::from(OWN_IPV6)), "dev", &device, "nodad"]);
    for peer in [&dotted(PEER_IP), &Ipv6Addr::from(PEER_IPV6).to_string()] {
        run("ip", &["neigh", "replace", peer, "lladdr", &colons(PEER_MAC), "dev", &device, "nud", "permanent"]);
    }
}

/// The network device of a port.
fn name(number: u32) -> String {
    format!("lab{number}")
}

/// Runs a program that must succeed, and gives what it prints.
pub(super) fn run(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {words}", arguments.join(" "));
    output.stdout
}
