//! Our own part of an installation, on this machine and without a kernel behind it: the processor time of the thread.

use std::time::Duration;

use sluice_flow::Flow;
use sluice_offload_tc::install::Request;
use sluice_offload_tc::wire::message::flag;
use sluice_tests::bench::cpu_timed;

use crate::rules::{self, Maker, Ports};

/// From text to a flow, from a flow to a rule, and from a rule to the octets of its message.
pub(crate) const STAGES: [&str; 3] = ["text to flow", "flow to rule", "rule to message"];

/// The time of each stage for some lines.
pub(crate) fn stages(lines: &str) -> [Duration; STAGES.len()] {
    let ports = Ports { receiver: 3, sender: 4 };
    let mut maker = Maker::new(ports);
    let (reading, flows) = cpu_timed(|| lines.lines().map(|line| maker.flow(line)).collect::<Vec<Flow>>());
    // In batches, as a worker does: the memory of one is that of the next.
    let (mut translation, mut writing) = (Duration::ZERO, Duration::ZERO);
    let mut buffer = Vec::with_capacity(1 << 17);
    let mut handle = 0;
    for batch in flows.chunks(sluice_offload_tc::install::BATCH) {
        let (spent, requests) = cpu_timed(|| {
            let request = |flow| {
                handle += 1;
                rules::request(flow, handle, ports).expect("a rule")
            };
            batch.iter().map(request).collect::<Vec<_>>()
        });
        translation += spent;
        let (spent, ()) = cpu_timed(|| {
            buffer.clear();
            for request in &requests {
                let Request::Add(filter) = request else { continue };
                filter.emit(&mut buffer, flag::CREATE | flag::EXCLUSIVE, handle).expect("a message");
            }
        });
        std::hint::black_box(&buffer);
        writing += spent;
    }
    [reading, translation, writing]
}
