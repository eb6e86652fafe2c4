//! Packets walked through the rules without being let in.

use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::trace::{Trace, Tracer};

use crate::conntrack::Conntrack;
use crate::engine::record::Recorder;
use crate::nic::Nic;

/// A device as it was when the tracer was made, as far as packets change it.
pub(crate) struct Shadow<'a> {
    nic: &'a Nic,
    conntrack: Conntrack,
    recorder: Recorder,
}

impl<'a> Shadow<'a> {
    pub(crate) fn new(nic: &'a Nic) -> Self {
        Self { nic, conntrack: nic.conntrack.fork(nic.clock.now()), recorder: Recorder::new(nic.random.fork()) }
    }
}

impl Tracer for Shadow<'_> {
    fn trace(&mut self, port: PortNumber, frame: &[u8]) -> Result<Trace, Refusal> {
        let verdict = self.nic.pass(port, frame, &self.conntrack, Some(&mut self.recorder))?;
        Ok(Trace { steps: std::mem::take(&mut self.recorder.steps), verdict })
    }
}
