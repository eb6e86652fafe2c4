//! The ports of the agent by the names of their devices, and where the kernel's ways pass by them.

use std::collections::{HashMap, HashSet};

use sluice_flow::port::PortNumber;
use sluice_netdev::NextHop;

use crate::judge::Reason;
use crate::plan::Tags;

/// Ports as far as the agent was asked for them. A device may be none.
#[derive(Default)]
pub(crate) struct Ports(HashMap<String, Option<PortNumber>>);

/// Where packets pass by a port on the way to a next hop, or on the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) port: PortNumber,
    /// Those of the devices of VLANs that are above the port.
    pub(crate) tags: Tags,
    /// One of these devices gives tags a priority, which depends on the packet.
    pub(crate) gives_priorities: bool,
}

impl Ports {
    /// Where a way passes by a port: at the device by which its packets leave, or at the first one below that is a port, if it is one of a VLAN.
    pub(crate) fn passage(
        &mut self,
        way: &NextHop,
        ask: impl Fn(&str) -> Option<PortNumber>,
    ) -> Result<Passage, Reason> {
        let (mut device, mut vlans) = (&*way.egress, way.vlans.iter());
        let (mut tags, mut gives_priorities) = (Tags::NONE, false);
        loop {
            if let Some(port) = self.number(device, &ask) {
                return Ok(Passage { port, tags, gives_priorities });
            }
            let vlan = vlans.next().ok_or(Reason::NoPort)?;
            tags = tags.within(vlan.tag).ok_or(Reason::NoPort)?;
            gives_priorities |= vlan.gives_priorities;
            device = vlan.lower.as_deref().ok_or(Reason::NoPort)?;
        }
    }

    /// The number of the port that a device is, for which the agent is asked the first time.
    fn number(&mut self, device: &str, ask: impl FnOnce(&str) -> Option<PortNumber>) -> Option<PortNumber> {
        if let Some(port) = self.0.get(device) {
            return *port;
        }
        let port = ask(device);
        self.0.insert(device.to_owned(), port);
        port
    }

    /// Asks the agent again. Returns whether some device is another port now, or none any more.
    pub(crate) fn renew(&mut self, ask: impl Fn(&str) -> Option<PortNumber>) -> bool {
        let mut has_changed = false;
        for (device, port) in &mut self.0 {
            let now = ask(device);
            has_changed |= std::mem::replace(port, now) != now;
        }
        has_changed
    }

    /// Forgets all other devices: those of containers and tunnels come and go under ever new names.
    pub(crate) fn retain(&mut self, devices: &HashSet<&str>) {
        self.0.retain(|device, _| devices.contains(device.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use sluice_netdev::{Ifindex, VlanDevice, VlanTag};

    use super::*;

    #[test]
    fn the_agent_is_asked_once_for_each_device_that_is_in_use_until_it_has_other_ports() {
        let mut ports = Ports::default();
        let nobody = |_: &str| panic!("it is known");
        for (device, port) in [("lan", Some(PortNumber(1))), ("veth1", None), ("veth2", None)] {
            assert_eq!(ports.number(device, |asked| port.filter(|_| asked == device)), port);
            assert_eq!(ports.number(device, nobody), port);
        }
        ports.retain(&HashSet::from(["lan", "veth2"]));
        assert_eq!(ports.0.len(), 2);
        let lan_alone = |device: &str| (device == "lan").then_some(PortNumber(1));
        assert!(!ports.renew(lan_alone));
        assert!(ports.renew(|device| (device == "veth2").then_some(PortNumber(2))));
        assert_eq!(["lan", "veth2"].map(|device| ports.number(device, nobody)), [None, Some(PortNumber(2))]);
        assert!(ports.renew(lan_alone), "both are others again");
    }

    /// A way by a device of two VLANs, 9 inside 8, above p0.
    fn stacked() -> NextHop {
        let device = |protocol, id, lower: &str, gives_priorities| VlanDevice {
            tag: VlanTag { protocol, id },
            gives_priorities,
            lower: Some(lower.to_owned()),
        };
        NextHop {
            egress: "p0.8.9".to_owned(),
            egress_index: Ifindex(7),
            egress_mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            egress_mtu: 1500,
            vlans: [device(0x8100, 9, "p0.8", true), device(0x88a8, 8, "p0", false)].into(),
            mac: [2, 0, 0, 0, 0, 2],
            source: [192, 0, 2, 1].into(),
        }
    }

    #[test]
    fn a_way_passes_by_the_first_port_below_with_the_tags_of_what_is_above_it() {
        let passage = |port: &str, way: &NextHop| {
            Ports::default().passage(way, |device| (device == port).then_some(PortNumber(1)))
        };
        let (inner, outer) = (VlanTag { protocol: 0x8100, id: 9 }, VlanTag { protocol: 0x88a8, id: 8 });
        let one = Tags::NONE.within(inner).unwrap();
        let both = one.within(outer).unwrap();
        let at = |tags, gives_priorities| Ok(Passage { port: PortNumber(1), tags, gives_priorities });
        let way = stacked();
        assert_eq!(passage("p0.8.9", &way), at(Tags::NONE, false));
        assert_eq!(passage("p0.8", &way), at(one, true));
        assert_eq!(passage("p0", &way), at(both, true));
        assert_eq!(passage("p1", &way), Err(Reason::NoPort));
        let elsewhere = |device: usize| {
            let mut vlans = way.vlans.to_vec();
            vlans[device].lower = None;
            NextHop { vlans: vlans.into(), ..way.clone() }
        };
        assert_eq!(passage("p0", &elsewhere(1)), Err(Reason::NoPort));
        assert_eq!(passage("p0.8", &elsewhere(1)), at(one, true));
        let third = VlanDevice { lower: Some("p1".to_owned()), ..way.vlans[1].clone() };
        let three = NextHop { vlans: way.vlans.iter().cloned().chain([third]).collect(), ..way.clone() };
        assert_eq!(passage("p1", &three), Err(Reason::NoPort), "no flow matches three tags");
    }
}
