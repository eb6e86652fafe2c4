//! The numbers of the mirror of control traffic.

use sluice_control::mirror::Class;
use sluice_flow::backend::MirrorCounters;

use super::number::Number;
use super::reading::Reading;
use crate::mirroring::Loss;

/// Whether anything is mirrored.
pub(super) fn is_on(now: &Reading<'_>) -> bool {
    now.agent.config().mirroring.is_some()
}

/// The mirrors by what has come of them.
pub(super) fn mirrors(now: &Reading<'_>) -> Vec<(String, Number)> {
    let shown = now.agent.mirroring.shown();
    let refused = shown.iter().filter(|mirror| mirror.refused.is_some()).count();
    [("set", shown.len() - refused), ("refused", refused)].map(|(state, count)| (state.into(), count.into())).into()
}

/// What the device copied of each class, as of the last poll. The copies of flows are counted where they are handed out.
pub(super) fn copied(
    now: &Reading<'_>,
    read: fn(&MirrorCounters) -> u64,
    handed_out: fn(&Reading<'_>, Class) -> u64,
) -> Vec<(String, Number)> {
    let shown = now.agent.mirroring.shown();
    let of_class = |class: Class| {
        let mut mirrors = shown.iter().filter(|mirror| mirror.class == class).peekable();
        let number = match (class, mirrors.peek()) {
            (Class::Flow, _) => handed_out(now, class),
            (_, None) => return None,
            _ => mirrors.filter_map(|mirror| now.device.mirror(&mirror.name)).map(|found| read(&found)).sum(),
        };
        Some((class.name().to_owned(), number.into()))
    };
    Class::ALL.into_iter().filter_map(of_class).collect()
}

/// Copies of each class that were written to clients of the mirror socket.
pub(super) fn sent(now: &Reading<'_>) -> Vec<(String, Number)> {
    let counts = now.agent.mirroring.handout().counts();
    Class::ALL.map(|class| (class.name().to_owned(), counts.sent(class).into())).into()
}

/// Copies of each class that a client of the mirror socket did not get.
pub(super) fn lost(now: &Reading<'_>, loss: Loss) -> Vec<(String, Number)> {
    let counts = now.agent.mirroring.handout().counts();
    Class::ALL.map(|class| (class.name().to_owned(), counts.lost(class, loss).into())).into()
}
