//! Parts of a flow as text.

use sluice_flow::Timestamp;
use sluice_flow::port::PortMap;
use sluice_flow::table::FlowView;
use sluice_flow::text::{self, Statistics, Style};

/// The match of a flow.
pub(super) fn key_text(view: &FlowView, ports: &PortMap) -> String {
    let mut text = String::new();
    let style = Style { more: false, names: Some(ports) };
    // Writing to a string does not fail.
    let _ = text::write_key(&mut text, &view.flow.matching(), &style);
    text
}

/// The actions of a flow.
pub(super) fn actions_text(view: &FlowView, ports: &PortMap) -> String {
    let mut text = String::new();
    let style = Style { more: false, names: Some(ports) };
    let _ = text::write_actions(&mut text, &view.flow.actions, &style);
    text
}

/// What a flow has counted.
pub(super) fn statistics(view: &FlowView, now: Timestamp) -> Statistics {
    Statistics {
        packets: view.counters.packets,
        bytes: view.counters.bytes,
        used: view.counters.used.map(|used| now.since(used)),
        tcp_flags: view.counters.tcp_flags,
    }
}

/// The statistics alone, as `-s` of a change prints them.
pub(super) fn statistics_line(view: &FlowView, now: Timestamp) -> String {
    let Statistics { packets, bytes, used, .. } = statistics(view, now);
    let used = used.map_or("never".to_owned(), |ago| format!("{:.3}s", ago.as_secs_f64()));
    format!("packets:{packets}, bytes:{bytes}, used:{used}")
}
