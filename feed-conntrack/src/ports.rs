//! The ports of the agent by the names of their devices.

use std::collections::{HashMap, HashSet};

use sluice_flow::port::PortNumber;

/// Ports as far as the agent was asked for them. A device may be none.
#[derive(Default)]
pub(crate) struct Ports(HashMap<String, Option<PortNumber>>);

impl Ports {
    /// The number of the port that a device is, for which the agent is asked the first time.
    pub(crate) fn number(&mut self, device: &str, ask: impl FnOnce(&str) -> Option<PortNumber>) -> Option<PortNumber> {
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
}
