//! What is played to two datapaths: flows and packets in, packets out.

use std::fmt;

use sluice_flow::action::ActionList;
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::meter::Meter;
use sluice_flow::port::{Port, PortNumber};
use sluice_flow::text::{Style, write_actions, write_key};

/// Flows and packets, and what to call them.
///
/// Flows have priority 0 and do not overlap.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// What it shows, or for a generated one how to make it again.
    pub name: String,
    /// The ports that it is about; empty for all that the datapath has, of which they must be.
    pub ports: Vec<Port>,
    /// Meters that the flows use.
    pub meters: Vec<Meter>,
    /// Match and actions of each flow.
    pub flows: Vec<(Match, ActionList)>,
    /// The port at which each packet comes in, and its bytes without FCS.
    pub packets: Vec<(PortNumber, Vec<u8>)>,
}

impl Scenario {
    /// One without flows and packets.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The same with one more flow.
    #[must_use]
    pub fn flow(mut self, matching: Match, actions: impl Into<ActionList>) -> Self {
        self.flows.push((matching, actions.into()));
        self
    }

    /// The same with one more packet.
    #[must_use]
    pub fn packet(mut self, port: u32, frame: Vec<u8>) -> Self {
        self.packets.push((PortNumber(port), frame));
        self
    }

    /// The same with more packets, all at one port.
    #[must_use]
    pub fn packets(mut self, port: u32, frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.packets.extend(frames.into_iter().map(|frame| (PortNumber(port), frame)));
        self
    }

    /// The same with one more meter.
    #[must_use]
    pub fn meter(mut self, meter: Meter) -> Self {
        self.meters.push(meter);
        self
    }
}

/// The flows as text and the packets in hexadecimal.
impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.name)?;
        for meter in &self.meters {
            writeln!(out, "  {meter:?}")?;
        }
        for (matching, actions) in &self.flows {
            writeln!(out, "  flow {}", flow_text(matching, actions))?;
        }
        for (number, (port, frame)) in self.packets.iter().enumerate() {
            writeln!(out, "  packet {number} at port {port}: {}", hex(frame))?;
        }
        Ok(())
    }
}

/// A flow as `dpctl` would write it.
pub fn flow_text(matching: &Match, actions: &ActionList) -> String {
    let mut text = String::new();
    let _ = write_key(&mut text, &MaskedKey::new(matching), &Style::default());
    text.push_str(", actions:");
    let _ = write_actions(&mut text, actions, &Style::default());
    text
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
