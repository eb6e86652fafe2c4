//! Plays a scenario to both sides and compares.

use std::fmt;

use sluice_flow::action::ActionList;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use super::mask::mask;
use super::{Kernel, Sent, neighbour, ports};
use crate::openvswitch::NotInstalled;
use crate::scenario::{Scenario, hex};
use crate::soft::Soft;

/// What came of a scenario.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Both did the same; so many frames came out.
    Equal(usize),
    /// They did not.
    Differs(Difference),
    /// The kernel did not want a flow; what the software NIC said to it.
    RefusedByKernel(NotInstalled, Result<(), Refusal>),
    /// Only the software NIC did not want a flow.
    RefusedByOurs(Refusal),
}

/// The first packet of which something else came.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Which packet, from 0.
    pub packet: usize,
    /// What the kernel sent.
    pub kernel: Sent,
    /// What the software NIC sent.
    pub ours: Sent,
}

/// The two sides.
pub struct Judge {
    kernel: Kernel,
}

/// The two sides with the flows of a scenario.
pub struct Sides<'a> {
    kernel: &'a mut Kernel,
    soft: Soft,
}

/// A scenario with the flows that both take, and those that were left out.
pub struct Sifted {
    /// What is left.
    pub scenario: Scenario,
    /// What the kernel refused, with its words.
    pub by_kernel: Vec<((Match, ActionList), String)>,
    /// What the software NIC alone refused.
    pub by_ours: Vec<((Match, ActionList), Refusal)>,
}

impl Judge {
    /// Sets up what all scenarios share.
    pub fn open() -> Self {
        Self { kernel: Kernel::open() }
    }

    /// Flows as the kernel took them, see [`Kernel::dump`].
    pub fn dump(&mut self, flows: &[(Match, ActionList)]) -> String {
        self.kernel.dump(flows)
    }

    /// Leaves out of a scenario the flows that one of both refuses, each tried after those before it.
    pub fn sift(&mut self, scenario: Scenario) -> Sifted {
        let flows = scenario.flows.clone();
        let mut sifted =
            Sifted { scenario: Scenario { flows: Vec::new(), ..scenario }, by_kernel: Vec::new(), by_ours: Vec::new() };
        let ours = Soft::refusals(&ports(), &flows).expect("the software NIC has these ports");
        let kernel = self.kernel.refusals(&flows);
        for ((flow, kernel), ours) in flows.into_iter().zip(kernel).zip(ours) {
            match (kernel, ours) {
                (Some(reason), _) => sifted.by_kernel.push((flow, reason.to_string())),
                (None, Some(refusal)) => sifted.by_ours.push((flow, refusal)),
                (None, None) => sifted.scenario.flows.push(flow),
            }
        }
        sifted
    }

    /// Plays a scenario.
    pub fn play(&mut self, scenario: &Scenario) -> Outcome {
        let mut sides = match self.set_up(scenario) {
            Ok(sides) => sides,
            Err(outcome) => return *outcome,
        };
        let mut frames = 0;
        for (packet, (port, frame)) in scenario.packets.iter().enumerate() {
            let [kernel, ours] = sides.inject(*port, [frame.as_slice(); 2]);
            if masked(&kernel) != masked(&ours) {
                return Outcome::Differs(Difference { packet, kernel, ours });
            }
            frames += count(&ours);
        }
        Outcome::Equal(frames)
    }

    /// Puts a scenario's flows in on both sides; its packets are left to the caller. One of the two refusals comes back
    /// if they are not taken.
    pub fn set_up(&mut self, scenario: &Scenario) -> Result<Sides<'_>, Box<Outcome>> {
        let there = ports();
        for port in &scenario.ports {
            let is_there = there.iter().any(|other| (other.number, &other.kind) == (port.number, &port.kind));
            assert!(is_there, "{}: the lab has no {} port {}", scenario.name, port.kind.name(), port.number);
        }
        let soft = Soft::set_up(&there, scenario);
        if let Err(reason) = self.kernel.set_up(scenario) {
            return Err(Box::new(Outcome::RefusedByKernel(reason, soft.map(drop))));
        }
        let soft = soft.map_err(|refusal| Box::new(Outcome::RefusedByOurs(refusal)))?;
        neighbour::introduce(&soft);
        Ok(Sides { kernel: &mut self.kernel, soft })
    }
}

impl Sides<'_> {
    /// Lets a frame into the kernel's datapath and one into the software NIC, and says what each sent.
    pub fn inject(&mut self, port: PortNumber, [kernel, ours]: [&[u8]; 2]) -> [Sent; 2] {
        let ours = self.soft.inject(port, ours);
        [self.kernel.inject(port, kernel, count(&ours)), ours]
    }
}

fn count(sent: &Sent) -> usize {
    sent.values().map(Vec::len).sum()
}

/// What was sent, without what the sender is free to choose.
pub fn masked(sent: &Sent) -> Sent {
    sent.iter().map(|(port, frames)| (*port, frames.iter().map(|frame| mask(*port, frame)).collect())).collect()
}

/// Both outputs in hexadecimal, a line for each frame.
impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (who, sent) in [("kernel", &self.kernel), ("ours", &self.ours)] {
            let frames = sent.iter().flat_map(|(port, frames)| frames.iter().map(move |frame| (port, frame)));
            let mut is_silent = true;
            for (port, frame) in frames {
                is_silent = false;
                writeln!(out, "  packet {}: {who:6} sent out of {port}: {}", self.packet, hex(frame))?;
            }
            if is_silent {
                writeln!(out, "  packet {}: {who:6} sent nothing", self.packet)?;
            }
        }
        Ok(())
    }
}
