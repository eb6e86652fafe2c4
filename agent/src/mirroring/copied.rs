//! How much the device has copied of each class, over all mirrors that there ever were.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sluice_control::mirror::{CLASSES, Class};
use sluice_flow::backend::MirrorCounters;

use super::stage::Shown;

/// Totals that never go back: what a mirror had copied stays in them when it goes.
#[derive(Debug, Default)]
pub struct CopiedByDevice(Mutex<Totals>);

#[derive(Debug, Default)]
struct Totals {
    /// Packets and bytes of each class.
    of_class: [(u64, u64); CLASSES],
    /// Packets and bytes of each mirror, as of its last reading.
    read: BTreeMap<String, (u64, u64)>,
}

impl CopiedByDevice {
    /// Takes what the device says of each mirror that there is. One that it says nothing of now goes on from its last reading.
    pub(crate) fn note(&self, mirrors: &[Shown], read: impl Fn(&str) -> Option<MirrorCounters>) {
        let mut totals = self.0.lock();
        let Totals { of_class, read: last } = &mut *totals;
        last.retain(|name, _| mirrors.iter().any(|mirror| mirror.name == *name));
        for Shown { name, class, .. } in mirrors {
            let Some(MirrorCounters { packets, bytes, .. }) = read(name) else { continue };
            let (packets_before, bytes_before) = last.insert(name.clone(), (packets, bytes)).unwrap_or_default();
            // One that counts less than before was made anew, and began at zero.
            let is_same = packets >= packets_before && bytes >= bytes_before;
            let (packets_before, bytes_before) = if is_same { (packets_before, bytes_before) } else { (0, 0) };
            let (all_packets, all_bytes) = &mut of_class[class.index()];
            *all_packets = all_packets.saturating_add(packets - packets_before);
            *all_bytes = all_bytes.saturating_add(bytes - bytes_before);
        }
    }

    /// Packets of a class.
    pub fn packets(&self, class: Class) -> u64 {
        self.0.lock().of_class[class.index()].0
    }

    /// Bytes of these packets.
    pub fn bytes(&self, class: Class) -> u64 {
        self.0.lock().of_class[class.index()].1
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::backend::Placement;
    use sluice_flow::port::PortNumber;

    use super::*;

    fn mirror(class: Class, port: u32) -> Shown {
        let (name, port) = (format!("~{class}.{port}"), PortNumber(port));
        Shown { name, class, port, to: String::new(), mirror: None, refused: None }
    }

    #[test]
    fn totals_go_on_when_a_mirror_goes_is_made_anew_or_is_not_answered_for() {
        let copied = CopiedByDevice::default();
        let both = [mirror(Class::Arp, 1), mirror(Class::Arp, 2)];
        let note = |mirrors: &[Shown], packets: [Option<u64>; 2]| {
            copied.note(mirrors, |name| {
                let packets = packets[usize::from(name.ends_with('2'))]?;
                Some(MirrorCounters { packets, bytes: packets * 100, placement: Placement::Software })
            });
            (copied.packets(Class::Arp), copied.bytes(Class::Arp), copied.packets(Class::Bfd))
        };
        assert_eq!(note(&both, [Some(5), Some(10)]), (15, 1_500, 0));
        assert_eq!(note(&both, [Some(6), None]), (16, 1_600, 0));
        assert_eq!(note(&both, [Some(6), Some(11)]), (17, 1_700, 0));
        assert_eq!(note(&both[..1], [Some(7), None]), (18, 1_800, 0));
        assert_eq!(note(&both, [Some(2), Some(40)]), (60, 6_000, 0), "both are new");
        assert_eq!(note(&[], [None, None]), (60, 6_000, 0));
    }
}
