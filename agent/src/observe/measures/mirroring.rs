//! The numbers of the mirror of control traffic.

use sluice_control::mirror::Class;

use super::measure::Measure;
use super::measure::Read::{Each, One};
use super::number::Number;
use super::reading::Reading;
use super::table::{counter, gauge};
use crate::mirroring::{CopiedByDevice, Loss};

/// The rows, which are there only if something is mirrored.
pub(super) static MIRRORING: &[Measure] = &[
    gauge("sluice_control_mirrors", "Mirrors of control traffic, by what has come of them.", Each("state", mirrors))
        .only_if(is_on)
        .stats("mirroring.states"),
    counter(
        "sluice_control_mirror_packets_total",
        "Packets of control traffic that the device copied.",
        Each("class", |now| copied(now, CopiedByDevice::packets, handed_out)),
    )
    .only_if(is_on)
    .stats("mirroring.packets"),
    counter(
        "sluice_control_mirror_bytes_total",
        "Bytes of packets of control traffic that the device copied.",
        Each("class", |now| copied(now, CopiedByDevice::bytes, handed_out_bytes)),
    )
    .only_if(is_on)
    .stats("mirroring.bytes"),
    gauge(
        "sluice_mirror_socket_clients",
        "Clients of the mirror socket.",
        One(|now| now.agent.mirroring.handout().clients().into()),
    )
    .only_if(is_on)
    .stats("mirroring.clients"),
    counter(
        "sluice_mirror_socket_frames_total",
        "Copies that were written to a client of the mirror socket.",
        Each("class", sent),
    )
    .only_if(is_on)
    .stats("mirroring.sent"),
    socket_drops("no_client", |now| lost(now, Loss::NoClient)).stats("mirroring.drops.no_client"),
    socket_drops("queue_full", |now| lost(now, Loss::QueueFull)).stats("mirroring.drops.queue_full"),
    socket_drops("disconnected", |now| lost(now, Loss::Disconnected)).stats("mirroring.drops.disconnected"),
    socket_drops("too_long", |now| lost(now, Loss::TooLong)).stats("mirroring.drops.too_long"),
];

const fn socket_drops(cause: &'static str, read: fn(&Reading<'_>) -> Vec<(String, Number)>) -> Measure {
    counter(
        "sluice_mirror_socket_drops_total",
        "Copies that a client of the mirror socket did not get.",
        Each("class", read),
    )
    .label("cause", cause)
    .only_if(is_on)
}

/// Whether anything is mirrored.
fn is_on(now: &Reading<'_>) -> bool {
    now.agent.config().mirroring.is_some()
}

/// The mirrors by what has come of them.
fn mirrors(now: &Reading<'_>) -> Vec<(String, Number)> {
    let shown = now.agent.mirroring.shown();
    let refused = shown.iter().filter(|mirror| mirror.refused.is_some()).count();
    [("set", shown.len() - refused), ("refused", refused)].map(|(state, count)| (state.into(), count.into())).into()
}

/// What the device copied of each class that is mirrored or was, as of the last poll. The copies of flows are counted where they are handed
/// out.
fn copied(
    now: &Reading<'_>,
    read: fn(&CopiedByDevice, Class) -> u64,
    handed_out: fn(&Reading<'_>, Class) -> u64,
) -> Vec<(String, Number)> {
    let shown = now.agent.mirroring.shown();
    let of_class = |class: Class| {
        let number = match class {
            Class::Flow => handed_out(now, class),
            _ => read(now.agent.mirroring.copied(), class),
        };
        let is_there = class == Class::Flow || number > 0 || shown.iter().any(|mirror| mirror.class == class);
        is_there.then(|| (class.name().to_owned(), number.into()))
    };
    Class::ALL.into_iter().filter_map(of_class).collect()
}

/// Copies of each class that were written to clients of the mirror socket.
fn sent(now: &Reading<'_>) -> Vec<(String, Number)> {
    let counts = now.agent.mirroring.handout().counts();
    Class::ALL.map(|class| (class.name().to_owned(), counts.sent(class).into())).into()
}

/// Copies of each class that a client of the mirror socket did not get.
fn lost(now: &Reading<'_>, loss: Loss) -> Vec<(String, Number)> {
    let counts = now.agent.mirroring.handout().counts();
    Class::ALL.map(|class| (class.name().to_owned(), counts.lost(class, loss).into())).into()
}

fn handed_out(now: &Reading<'_>, class: Class) -> u64 {
    now.agent.mirroring.handout().counts().copied(class)
}

fn handed_out_bytes(now: &Reading<'_>, class: Class) -> u64 {
    now.agent.mirroring.handout().counts().copied_bytes(class)
}
