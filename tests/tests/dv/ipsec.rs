//! Policies of IPsec in the kernel: packets of tunnels that one is for neither leave nor enter by the device.

use sluice_flow::backend::{Backend, DeviceEvent, EventStream, Handle, Operation, Outcome};
use sluice_flow::port::PortNumber;
use sluice_flow::{Cause, Flow};
use sluice_offload_dv::DvNic;
use sluice_tests::mlx5::{Out, Ports, in_network_namespace};
use sluice_tests::world::eventually;

use crate::frames::{Packet, UDP};
use crate::rig::{MARKER, flow, flow_at, marker, wait_for};
use crate::ways::{Installer, KEY, changes, ip, make_uplink, neighbour, next, open};
use crate::wrapped::Outer;

/// The number of the tunnel port.
const TUNNEL: PortNumber = PortNumber(3);
const SENT: &str = "a policy of IPsec is for the packets of the tunnel, and the device would send them in the clear";
const RECEIVED: &str = "field in_port: a policy of IPsec lets packets of the tunnel in only if they come encrypted, and the device sees those that do not";

/// The device, two other ends of the tunnel, and who sends packets there.
struct Wrapped<'a> {
    nic: DvNic,
    events: EventStream,
    installer: Installer,
    ports: &'a Ports,
    wire: Out,
    representor: Out,
}

impl<'a> Wrapped<'a> {
    fn open(ports: &'a Ports) -> Self {
        make_uplink();
        for last in [8, 9] {
            ip(&format!("neighbour replace 172.16.0.{last} lladdr 02:00:00:00:07:{last:02x} dev p0 nud permanent"));
        }
        let nic = open();
        let (events, mut installer) = (nic.events(), Installer { queue: nic.install_queue().unwrap() });
        let (wire, representor) = (ports.out("wire"), ports.out("vport-65534"));
        installer.add(1, &flow_at(7, "in_port(2),eth(dst=02:ff:ff:ff:ff:ff)", "1")).unwrap();
        Self { nic, events, installer, ports, wire, representor }
    }

    /// Adds the flow to one of the other ends, which waits for its neighbour at first.
    fn add(&mut self, last: u8) -> Handle {
        self.installer.add(last.into(), &to(last)).unwrap_err();
        changes(&self.events, neighbour(last));
        self.put(last, &to(last))
    }

    fn put(&mut self, last: u8, flow: &Flow) -> Handle {
        match self.installer.done(last.into(), Operation::Install(flow.clone())).unwrap() {
            Outcome::InPlace { handle, .. } => handle,
            other => panic!("{other:?}"),
        }
    }

    /// Does as the agent when it hears that a port has changed: the rule is made anew, and goes if that is refused. Returns why it went.
    fn redo(&mut self, last: u8, flow: &Flow, handle: Handle) -> Option<String> {
        let refusal = self.installer.done(last.into(), Operation::Modify(handle, flow.clone())).err()?;
        self.installer.done(last.into(), Operation::Remove(handle)).unwrap();
        Some(refusal.to_string())
    }

    fn waits_for(&self, wanted: &DeviceEvent) {
        eventually("the change is told", || self.events.drain().contains(wanted));
    }

    /// Returns what comes out of the wire when a packet is sent to one of the other ends.
    fn sent_to(&self, last: u8) -> Option<Vec<u8>> {
        self.ports.send("vport-0", &Packet { to: last, ..Packet::v4(UDP) }.frame());
        self.ports.send("vport-0", &marker(MARKER));
        let first = next(&self.wire);
        if first == marker(MARKER) {
            return None;
        }
        wait_for(&self.wire, &marker(MARKER));
        Some(first)
    }
}

/// A flow into the tunnel.
fn to(last: u8) -> Flow {
    let key = KEY.replace("frag=no", &format!("dst=10.0.0.{last},frag=no"));
    flow(&key, &format!("set(tunnel(tun_id=0x5,dst=172.16.0.{last},ttl=64,flags(key))),3"))
}

/// A flow out of the tunnel.
fn from(last: u8) -> Flow {
    let tunnel = format!("tunnel(tun_id=0x5,src=172.16.0.{last},dst=172.16.0.1,flags(+key))");
    flow(&format!("{tunnel},in_port(3),eth(),eth_type(0x0800),ipv4(frag=no)"), "2")
}

fn policy(verb: &str, last: u8, port: u16, direction: &str) {
    let (own, other) = ("172.16.0.1".to_owned(), format!("172.16.0.{last}"));
    let (source, destination) = if direction == "in" { (other, own) } else { (own, other) };
    let selector = format!("src {source}/32 dst {destination}/32 proto udp dport {port} dir {direction}");
    let template = format!(" tmpl src {source} dst {destination} proto esp mode transport");
    ip(&format!("xfrm policy {verb} {selector}{}", if verb == "add" { &template } else { "" }));
}

#[test]
fn a_flow_into_a_tunnel_that_a_policy_is_for_leaves_the_device_and_comes_back() {
    let name = "ipsec::a_flow_into_a_tunnel_that_a_policy_is_for_leaves_the_device_and_comes_back";
    in_network_namespace("bluefield-3", name, |ports| {
        let mut wrapped = Wrapped::open(ports);
        let [encrypted, other] = [9, 8].map(|last| wrapped.add(last));
        assert!(wrapped.sent_to(9).is_some() && wrapped.sent_to(8).is_some());
        // One for datagrams of Geneve is none for those of VXLAN.
        policy("add", 8, 6081, "out");
        policy("add", 9, 4789, "out");
        wrapped.waits_for(&DeviceEvent::PortChanged(TUNNEL));
        // The flow is still there, and nothing leaves in the clear.
        assert_eq!(wrapped.sent_to(9), None);
        assert!(wrapped.sent_to(8).is_some());
        let why = Some(format!("action set(tunnel): 172.16.0.9: {SENT}"));
        assert_eq!(wrapped.nic.explain(&to(9)).map_err(|refusal| refusal.to_string()).err(), why);
        assert_eq!(wrapped.redo(9, &to(9), encrypted), why);
        assert_eq!(wrapped.redo(8, &to(8), other), None);
        // The kernel has it.
        let frame = Packet { to: 9, ..Packet::v4(UDP) }.frame();
        ports.send("vport-0", &frame);
        wait_for(&wrapped.representor, &frame);
        let refusal = wrapped.installer.add(9, &to(9)).unwrap_err();
        assert_eq!((Some(refusal.to_string()), refusal.cause()), (why, Some(neighbour(9))));
        policy("delete", 9, 4789, "out");
        changes(&wrapped.events, neighbour(9));
        wrapped.put(9, &to(9));
        assert!(wrapped.sent_to(9).is_some());
    });
}

#[test]
fn flows_of_tunnels_leave_the_device_while_the_kernel_lets_nothing_pass_that_no_policy_is_for() {
    let name = "ipsec::flows_of_tunnels_leave_the_device_while_the_kernel_lets_nothing_pass_that_no_policy_is_for";
    in_network_namespace("bluefield-3", name, |ports| {
        let mut wrapped = Wrapped::open(ports);
        let there = wrapped.add(9);
        let back = wrapped.put(8, &from(8));
        ip("xfrm policy setdefault out block");
        wrapped.waits_for(&DeviceEvent::PortChanged(TUNNEL));
        assert_eq!(wrapped.sent_to(9), None);
        assert!(wrapped.redo(9, &to(9), there).is_some_and(|reason| reason.ends_with(SENT)));
        assert_eq!(wrapped.redo(8, &from(8), back), None);
        ip("xfrm policy setdefault in block out accept");
        changes(&wrapped.events, neighbour(9));
        wrapped.put(9, &to(9));
        assert!(wrapped.sent_to(9).is_some());
        eventually("what comes in the clear is the kernel's", || {
            wrapped.nic.explain(&from(8)).is_err_and(|refusal| refusal.to_string() == RECEIVED)
        });
    });
}

#[test]
fn a_flow_that_is_added_while_a_policy_is_for_its_packets_is_refused_and_says_so() {
    let name = "ipsec::a_flow_that_is_added_while_a_policy_is_for_its_packets_is_refused_and_says_so";
    in_network_namespace("bluefield-3", name, |ports| {
        policy("add", 9, 4789, "out");
        policy("add", 9, 4789, "in");
        let mut wrapped = Wrapped::open(ports);
        wrapped.installer.add(9, &to(9)).unwrap_err();
        changes(&wrapped.events, neighbour(9));
        let refusal = wrapped.installer.add(9, &to(9)).unwrap_err().to_string();
        assert!(refusal.ends_with(SENT), "{refusal}");
        assert_eq!(wrapped.installer.add(10, &from(9)).unwrap_err().to_string(), RECEIVED);
        // Packets from anybody may be from there, too.
        let from_any = "tunnel(tun_id=0x5,dst=172.16.0.1,flags(+key)),in_port(3),eth(),eth_type(0x0800),ipv4(frag=no)";
        assert_eq!(wrapped.installer.add(11, &flow(from_any, "2")).unwrap_err().to_string(), RECEIVED);
        wrapped.installer.add(12, &from(8)).unwrap();
    });
}

#[test]
fn a_flow_out_of_a_tunnel_whose_packets_must_come_encrypted_leaves_the_device_and_comes_back() {
    let name = "ipsec::a_flow_out_of_a_tunnel_whose_packets_must_come_encrypted_leaves_the_device_and_comes_back";
    in_network_namespace("bluefield-3", name, |ports| {
        let mut wrapped = Wrapped::open(ports);
        let [encrypted, other] = [9, 8].map(|last| wrapped.put(last, &from(last)));
        policy("add", 9, 6081, "in");
        policy("add", 9, 4789, "in");
        wrapped.waits_for(&DeviceEvent::PortChanged(TUNNEL));
        assert_eq!(
            wrapped.nic.explain(&from(9)).map_err(|refusal| refusal.to_string()).err().as_deref(),
            Some(RECEIVED)
        );
        assert_eq!(wrapped.redo(9, &from(9), encrypted).as_deref(), Some(RECEIVED));
        assert_eq!(wrapped.redo(8, &from(8), other), None);
        // What comes in the clear is at the representor as it came in, where the kernel drops it.
        let clear = Outer::vxlan(5).around(&Packet::v4(UDP).frame());
        ports.send("wire", &clear);
        wait_for(&wrapped.representor, &clear);
        let refusal = wrapped.installer.add(9, &from(9)).unwrap_err();
        assert_eq!(refusal.cause(), Some(Cause::Module));
        policy("delete", 9, 4789, "in");
        changes(&wrapped.events, Cause::Module);
        wrapped.put(9, &from(9));
        let function = ports.out("vport-0");
        ports.send("wire", &clear);
        assert_eq!(next(&function), Packet::v4(UDP).frame());
    });
}

#[test]
fn a_flow_whose_packets_leave_by_another_device_from_now_on_leaves_the_device_and_comes_back() {
    let name = "ipsec::a_flow_whose_packets_leave_by_another_device_from_now_on_leaves_the_device_and_comes_back";
    in_network_namespace("bluefield-3", name, |ports| {
        let mut wrapped = Wrapped::open(ports);
        let handle = wrapped.add(9);
        ip("link add p1 address 02:00:00:00:08:01 type veth peer name far1");
        ip("link set p1 up");
        ip("link set far1 up");
        ip("neighbour replace 172.16.0.9 lladdr 02:00:00:00:08:09 dev p1 nud permanent");
        ip("route add 172.16.0.9/32 dev p1");
        wrapped.waits_for(&DeviceEvent::PortChanged(TUNNEL));
        let reason = wrapped.redo(9, &to(9), handle).unwrap();
        assert!(reason.contains("packets leave by p1, not by p0"), "{reason}");
        // The kernel sends it.
        let frame = Packet { to: 9, ..Packet::v4(UDP) }.frame();
        ports.send("vport-0", &frame);
        wait_for(&wrapped.representor, &frame);
        ip("route delete 172.16.0.9/32 dev p1");
        changes(&wrapped.events, neighbour(9));
        wrapped.put(9, &to(9));
        assert!(wrapped.sent_to(9).is_some());
    });
}
