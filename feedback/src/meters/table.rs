//! Settings of meters, in words that threads of two processes read and one writes.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use sluice_flow::meter::MeterUnit;

use super::{COUNT, Setting, SettingKind};

/// Words of a setting: datapath (32 bits), life (16), kind (8) and sequence (8); rate (32) and burst (32); lowest bits last.
const SETTING_WORDS: usize = 2;
/// Words of a table.
pub(crate) const WORDS: usize = SETTING_WORDS * COUNT as usize;
/// How often a setting is read again that changes under the reader.
const ATTEMPTS: usize = 8;

const KILOBITS: u8 = 1;
const PACKETS: u8 = 2;
const OTHER: u8 = 3;

/// Settings by the number of the meter.
#[derive(Clone, Copy)]
pub(crate) struct MeterTable<'a>(pub(crate) &'a [AtomicU64]);

impl<'a> MeterTable<'a> {
    /// What is there. `None` if it was changed at each attempt to read it, or has no place.
    pub(crate) fn get(self, meter: u32) -> Option<Setting> {
        let (first, second) = self.words(meter)?;
        for _ in 0..ATTEMPTS {
            let before = first.load(Ordering::Acquire);
            let limits = second.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if before & 1 == 0 && first.load(Ordering::Relaxed) == before {
                return Some(read(before, limits));
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Puts it in the place of what is there. One thread does so at a time.
    pub(crate) fn set(self, meter: u32, setting: Setting) {
        let Some((first, second)) = self.words(meter) else { return };
        let odd = first.load(Ordering::Relaxed) | 1;
        first.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        let (head, limits) = words(setting);
        second.store(limits, Ordering::Relaxed);
        first.store(head | (odd.wrapping_add(1) & 0xff), Ordering::Release);
    }

    fn words(self, meter: u32) -> Option<(&'a AtomicU64, &'a AtomicU64)> {
        let at = usize::try_from(meter).ok()?.checked_mul(SETTING_WORDS)?;
        Some((self.0.get(at)?, self.0.get(at.wrapping_add(1))?))
    }
}

/// The two words of a setting, without a sequence.
fn words(setting: Setting) -> (u64, u64) {
    let (kind, rate, burst) = match setting.kind {
        SettingKind::None => (0, 0, 0),
        SettingKind::Band { unit: MeterUnit::Kilobits, rate, burst } => (KILOBITS, rate, burst),
        SettingKind::Band { unit: MeterUnit::Packets, rate, burst } => (PACKETS, rate, burst),
        SettingKind::Other => (OTHER, 0, 0),
    };
    let head = u64::from(setting.datapath) << 32 | u64::from(setting.life) << 16 | u64::from(kind) << 8;
    (head, u64::from(rate) << 32 | u64::from(burst))
}

/// The reverse, of whatever is there.
#[allow(clippy::cast_possible_truncation, reason = "each part is cut out")]
fn read(head: u64, limits: u64) -> Setting {
    let band = |unit| SettingKind::Band { unit, rate: (limits >> 32) as u32, burst: limits as u32 };
    let kind = match (head >> 8) as u8 {
        0 => SettingKind::None,
        KILOBITS => band(MeterUnit::Kilobits),
        PACKETS => band(MeterUnit::Packets),
        _ => SettingKind::Other,
    };
    Setting { datapath: (head >> 32) as u32, life: (head >> 16) as u16, kind }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn new() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn setting(number: u32) -> Setting {
        let unit = if number.is_multiple_of(2) { MeterUnit::Kilobits } else { MeterUnit::Packets };
        let kind = SettingKind::Band { unit, rate: number, burst: !number };
        Setting { datapath: number, life: u16::try_from(number & 0xffff).expect("it is cut"), kind }
    }

    #[test]
    fn a_setting_reads_as_it_was_set_and_numbers_without_a_place_have_none() {
        let words = new();
        let table = MeterTable(&words);
        for number in [0, 1, 7, COUNT - 1] {
            table.set(number, setting(number + 1));
            assert_eq!(table.get(number), Some(setting(number + 1)));
        }
        assert_eq!(table.get(2), Some(Setting::default()));
        let other = Setting { kind: SettingKind::Other, ..setting(9) };
        table.set(2, other);
        assert_eq!(table.get(2), Some(other));
        for number in [COUNT, u32::MAX] {
            table.set(number, setting(1));
            assert_eq!(table.get(number), None);
        }
    }

    #[test]
    fn nobody_reads_half_of_one_setting_and_half_of_another() {
        let (words, is_over) = (new(), AtomicBool::new(false));
        let table = MeterTable(&words);
        table.set(5, setting(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..200_000).for_each(|number| table.set(5, setting(number)));
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                if let Some(read) = table.get(5) {
                    assert_eq!(read, setting(read.datapath));
                }
            }
        });
    }
}
