//! Frames put by hand into a NIC in software.

use sluice_flow::PortNumber;
use sluice_flow::backend::Injector;
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use super::ports;
use crate::service::AgentView;

/// `sluice/inject PORT FRAME...`: answers what became of them.
pub(super) fn inject(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let Packets { injector, port, frames } = Packets::parse(agent, arguments)?;
    let (mut hit, mut missed, mut missed_later, mut sent) = (0, 0, 0, 0);
    for (index, frame) in frames.iter().enumerate() {
        let refused = |refusal| Failure::new(format_args!("frame {index}: {refusal}; those before it were let in"));
        let verdict = injector.inject(port, frame).map_err(refused)?;
        // As the metrics count them: a packet that a flow took in chain 0 is no miss, whatever becomes of it behind a recirc().
        match (verdict.hits.is_empty(), verdict.missed.is_some()) {
            (true, true) => missed += 1,
            (true, false) => {}
            (false, is_missed) => {
                hit += 1;
                missed_later += usize::from(is_missed);
            }
        }
        sent += verdict.sent.len();
    }
    let count = frames.len();
    Ok(writeln!(out, "frames:{count} hit:{hit} missed:{missed} missed_later:{missed_later} sent:{sent}")?)
}

/// What a command is given that is about packets: a port, and frames in hexadecimal.
pub(super) struct Packets<'a> {
    pub(super) injector: &'a dyn Injector,
    pub(super) port: PortNumber,
    pub(super) frames: Vec<Vec<u8>>,
}

impl<'a> Packets<'a> {
    /// Reads and checks all of them before the first is used, so that a mistake changes nothing and is told before any output.
    pub(super) fn parse(agent: &'a AgentView, arguments: &Arguments) -> Result<Self, Failure> {
        let [name, frames @ ..] = arguments.rest.as_slice() else { return Err(Failure::new("a port is needed")) };
        let port = ports::port(agent, name)?;
        let injector = agent.injector().ok_or_else(|| {
            Failure::new(format_args!("packets can be put into a NIC in software only, not into {}", agent.datapath()))
        })?;
        let bytes = |(index, frame): (usize, &String)| {
            from_hex(frame).ok_or_else(|| Failure::new(format_args!("frame {index}: not hexadecimal")))
        };
        let frames: Vec<_> = frames.iter().enumerate().map(bytes).collect::<Result<_, _>>()?;
        for (index, frame) in frames.iter().enumerate() {
            let refused = |refusal| Failure::new(format_args!("frame {index}: {refusal}"));
            injector.check(port, frame).map_err(refused)?;
        }
        Ok(Self { injector, port, frames })
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|p| p.len() == 2)?, 16).ok()).collect()
}
