//! What was made for ports, and could not be removed with them, or was left by a run that was killed.

use std::path::{Path, PathBuf};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use sluice_flow::backend::InstalledRule;
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
use sluice_offload_tc::OffloadPolicy;

use crate::device::{Device, OWNER};
use crate::network::{Network, eventually};
use crate::ports::tunnel;
use crate::stories;

stories![
    what_cannot_be_removed_with_its_port_does_not_keep_the_port_and_goes_later,
    what_was_made_for_a_port_that_left_the_configuration_while_no_agent_ran_is_removed,
    a_tunnel_port_has_another_name_or_udp_port_after_a_restart,
    a_tap_that_a_killed_run_has_not_marked_is_used,
];

/// Does something without the right to change networks, for which the kernel looks at the thread that asks.
fn without_rights<T>(act: impl FnOnce() -> T) -> T {
    let all = capabilities(None).unwrap();
    let effective = all.effective.difference(CapabilitySet::NET_ADMIN);
    set_capabilities(None, CapabilitySets { effective, ..all }).unwrap();
    let done = act();
    set_capabilities(None, all).unwrap();
    done
}

/// A folder for what the next run shall know, which goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A run with these ports, which has taken over what there was.
fn run(folder: &Path, ports: &[&Port]) -> Device {
    let device = Device::with_state(OffloadPolicy::SkipHardware, OWNER, Some(folder.into()));
    ports.iter().for_each(|port| device.backend.attach_port(port).unwrap());
    device.adoption().adopt(&mut |_: &InstalledRule| panic!("there is no rule")).unwrap();
    device
}

fn what_cannot_be_removed_with_its_port_does_not_keep_the_port_and_goes_later(network: &Network) {
    let mut device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    let vxlan = tunnel(5, "vx0", TunnelProtocol::Vxlan);
    let is_there = || network.run("ip -br link").contains("vx0");
    device.attach(1);
    device.backend.attach_port(&vxlan).unwrap();
    for _ in 0..2 {
        without_rights(|| device.backend.detach_port(PortNumber(5))).unwrap();
        assert!(is_there());
        assert_eq!(device.backend.detach_port(PortNumber(5)).unwrap_err().label(), "port", "there is no such port");
        device.backend.attach_port(&vxlan).unwrap();
    }
    without_rights(|| [1, 5].map(|number| device.backend.detach_port(PortNumber(number)).unwrap()));
    let has_qdisc = || network.run("tc qdisc show dev p1").contains("ingress");
    assert!(is_there() && has_qdisc());
    eventually("both are removed", || !is_there() && !has_qdisc());
}

fn what_was_made_for_a_port_that_left_the_configuration_while_no_agent_ran_is_removed(network: &Network) {
    let folder = Folder::new("left");
    let p1 = crate::device::port(1);
    let (vxlan, gre) = (tunnel(5, "vx0", TunnelProtocol::Vxlan), tunnel(6, "gre9", TunnelProtocol::Gre));
    drop(run(&folder.0, &[&p1, &vxlan, &gre]));
    network.run("ip link add vx9 type vxlan external dstport 4790");
    network.run("tc qdisc add dev p2 ingress");
    drop(run(&folder.0, &[&gre]));
    let links = network.run("ip -br link");
    assert!(!links.contains("vx0") && links.contains("gre9") && links.contains("vx9"), "{links}");
    assert!(!network.run("tc qdisc show dev p1").contains("ingress"));
    assert!(network.run("tc qdisc show dev p2").contains("ingress"), "it is somebody else's");
}

fn a_tunnel_port_has_another_name_or_udp_port_after_a_restart(network: &Network) {
    let folder = Folder::new("tunnels");
    let port = |name: &str, udp_port| {
        let tunnel = Tunnel { protocol: TunnelProtocol::Vxlan, udp_port: Some(udp_port), underlay: PortNumber(1) };
        Port { number: PortNumber(5), name: name.parse().expect("a name"), kind: PortKind::Tunnel(tunnel) }
    };
    for (name, udp_port) in [("vx0", 4789), ("vx0", 4790), ("vx1", 4790)] {
        drop(run(&folder.0, &[&port(name, udp_port)]));
        let shown = network.run("ip -d link show type vxlan");
        assert_eq!(shown.matches("vxlan external").count(), 1, "{shown}");
        assert!(shown.contains(&format!(" {name}: ")) && shown.contains(&format!("dstport {udp_port} ")), "{shown}");
    }
    network.run("ip link del vx1");
    network.run("ip link add vx1 type vxlan external dstport 4789");
    let device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    let refusal = device.backend.attach_port(&port("vx1", 4790)).unwrap_err();
    assert_eq!(refusal.to_string(), "port vx1: vx1 is there, but its UDP port is 4789", "somebody else's stays");
}

fn a_tap_that_a_killed_run_has_not_marked_is_used(network: &Network) {
    let tap = |name: &str| Port {
        number: PortNumber::FIRST_TAP,
        name: name.parse().expect("a name"),
        kind: PortKind::Mirror,
    };
    let device = Device::bare(OffloadPolicy::SkipHardware, OWNER);
    network.run("ip link add slm5eed-2 type dummy");
    network.run("ip link set slm5eed-2 up");
    let refusal = device.backend.attach_port(&tap("slm5eed-2")).unwrap_err();
    assert_eq!(refusal.to_string(), "port slm5eed-2: slm5eed-2 is there and was not made here");
    network.run("ip link add slm5eed-1 type dummy");
    device.backend.attach_port(&tap("slm5eed-1")).unwrap();
    assert!(network.run("ip link show slm5eed-1").contains("alias sluice "));
    device.backend.detach_port(PortNumber::FIRST_TAP).unwrap();
    let links = network.run("ip -br link");
    assert!(!links.contains("slm5eed-1") && links.contains("slm5eed-2"), "{links}");
}
