//! Packets that come in at ports, and those that leave.

use super::state::Hca;
use super::vport::Way;
use crate::steering::{Origin, Port, Walk};

impl Hca {
    /// A packet comes in from the wire, or from a vport: walked through the flow tables, and counted where it enters and leaves.
    /// What of it is for the driver itself is in the walk only; whoever serves the device hands it over. What goes to a virtual
    /// function that the host does not have is lost, and from such a one nothing comes.
    pub fn receive(&mut self, from: Port, frame: &[u8]) -> Walk {
        if !self.is_there(from) {
            self.complain(format!("a packet from {from}, whose function is not there"));
            return Walk::default();
        }
        self.walk(Origin { port: from, sqn: 0, metadata: 0 }, frame)
    }

    /// What the driver's own send queues have sent out of ports since the last time.
    pub fn take_sent(&mut self) -> Vec<(Port, Vec<u8>)> {
        std::mem::take(&mut self.sent)
    }

    pub(super) fn walk(&mut self, origin: Origin, frame: &[u8]) -> Walk {
        let mut walk = self.steering.transmit(origin, frame);
        walk.sent.retain(|(to, _)| self.is_there(*to));
        self.count(origin.port, frame, Way::In);
        for (to, frame) in &walk.sent {
            self.count(*to, frame, Way::Out);
        }
        walk
    }

    /// Whether there is somebody at a port.
    fn is_there(&self, port: Port) -> bool {
        match port {
            Port::Vport(number) => number <= self.host_vfs || number > self.profile.host_total_vfs,
            Port::Wire => true,
        }
    }
}
