//! The kernel's datapath and the software NIC side by side, on the same wires.
//!
//! Runs as root in the virtual machine of `tests/lab/run`, nowhere else: it makes network devices and addresses.

pub mod cable;
pub mod iproute;
mod judge;
mod kernel;
mod mask;
mod neighbour;
pub mod netdevsim;
mod peer;
pub mod router;
pub mod soft_roce;
pub mod switch;
mod vswitchd;
mod wire;

use std::process::Command;

use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};

pub use crate::soft::Sent;
pub use judge::{Difference, Judge, Outcome, Sides, masked};
pub use kernel::Kernel;
pub use neighbour::introduce;
pub use peer::{OVS_SPACE, OvsPeer, device as ovs_device};
pub use vswitchd::OffloadingVswitchd;
pub use wire::Wire;

/// The ports 1 to 6 are wires.
pub const WIRES: std::ops::RangeInclusive<u32> = 1..=6;
/// The port through which outer packets come and go; in the kernel it is no port of the datapath but the host's own.
pub const UNDERLAY: u32 = 9;
/// VXLAN on the UDP port 4789.
pub const VXLAN: u32 = 10;
/// Geneve on the UDP port 6081.
pub const GENEVE: u32 = 11;
/// GRE with an Ethernet frame inside.
pub const GRE: u32 = 12;
/// ERSPAN.
pub const ERSPAN: u32 = 13;
/// VXLAN with a group policy on the UDP port 4790.
pub const VXLAN_GBP: u32 = 14;

/// This end of the underlay. The software NIC makes its Ethernet address of the port's number.
pub const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// This end's address.
pub const OWN_IP: [u8; 4] = [172, 31, 0, 1];
/// This end's address of IPv6, fd31::1.
pub const OWN_IPV6: [u8; 16] = [0xfd, 0x31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The Ethernet address of the only neighbour.
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
/// The neighbour's address.
pub const PEER_IP: [u8; 4] = [172, 31, 0, 2];
/// The neighbour's address of IPv6, fd31::2.
pub const PEER_IPV6: [u8; 16] = [0xfd, 0x31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// Runs a program, whose words are separated by spaces. It must succeed.
#[track_caller]
pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().expect("a program")).args(words).output().expect("a program of the system");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The ports that every scenario finds.
pub fn ports() -> Vec<Port> {
    let port = |number: u32, kind| Port {
        number: PortNumber(number),
        name: format!("lab{number}").parse().expect("a name"),
        kind,
    };
    let tunnel = |protocol, udp_port| PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: PortNumber(UNDERLAY) });
    let wires = WIRES.chain([UNDERLAY]).map(|number| port(number, PortKind::Physical));
    let tunnels = [
        (VXLAN, TunnelProtocol::Vxlan, Some(4789)),
        (GENEVE, TunnelProtocol::Geneve, Some(6081)),
        (GRE, TunnelProtocol::Gre, None),
        (ERSPAN, TunnelProtocol::Erspan, None),
        (VXLAN_GBP, TunnelProtocol::Vxlan, Some(4790)),
    ];
    wires.chain(tunnels.map(|(number, protocol, udp_port)| port(number, tunnel(protocol, udp_port)))).collect()
}
