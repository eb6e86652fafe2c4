//! Our own part of an installation, on this machine and without a kernel behind it: the processor time of the thread.

use std::time::Duration;

use sluice_flow::Flow;
use sluice_offload_tc::install::BATCH;
use sluice_tests::bench::cpu_timed;

use crate::rules::{Maker, Ports};

/// From text to a flow, from a flow to a request, and from a request to the bytes of its message.
pub(crate) const STAGES: [&str; 3] = ["text to flow", "flow to request", "request to message"];

/// The time of each stage for some lines.
pub(crate) fn stages(lines: &str) -> [Duration; STAGES.len()] {
    let mut maker = Maker::new(Ports { receiver: 3, sender: 4 });
    let (reading, flows) = cpu_timed(|| lines.lines().map(|line| maker.flow(line)).collect::<Vec<Flow>>());
    // In batches, as a worker does: the memory of one is that of the next.
    let (mut translation, mut writing) = (Duration::ZERO, Duration::ZERO);
    let mut requests = Vec::with_capacity(BATCH);
    let mut buffer = Vec::with_capacity(1 << 17);
    for (batch, first) in flows.chunks(BATCH).zip((1..).step_by(BATCH)) {
        let (spent, ()) = cpu_timed(|| {
            requests.clear();
            requests.extend((first..).zip(batch).map(|(handle, flow)| maker.request_of(flow, handle).expect("a rule")));
        });
        translation += spent;
        let (spent, ()) = cpu_timed(|| {
            buffer.clear();
            for (sequence, request) in (first..).zip(&requests) {
                request.emit(&mut buffer, 0, sequence).expect("a message");
            }
        });
        std::hint::black_box(&buffer);
        writing += spent;
    }
    [reading, translation, writing]
}
