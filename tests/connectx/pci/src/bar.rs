//! The region that the driver maps: initialization segment, then pages of doorbells.

use std::time::Instant;

use sluice_connectx::layout::{Field, layouts};
use sluice_connectx::profile::Profile;

use super::health::Health;

/// Bytes of the region.
pub(crate) const SIZE: u64 = 16 << 20;
/// Bytes of a page of doorbells; page n is at n times this.
const PAGE: u64 = 4096;

const SEGMENT: usize = 0x1020;

/// Entries of the command queue, as logarithm: 32.
const LOG_COMMANDS: u64 = 5;
/// Bytes of an entry, as logarithm.
const LOG_STRIDE: u64 = 6;

const COMMAND_INTERFACE: u64 = 5;

// States of the function's interface to its driver, of three bits.
const INTERFACE_DISABLED: u64 = 1;
const INTERFACE_RESET: u64 = 7;

/// How long the driver waits for the function to initialize, in milliseconds; it is at once.
const INITIALIZATION: u64 = 2_000;
/// How often the health counter moves, in milliseconds.
const HEALTH_PERIOD: u128 = 100;
const CLOCK_KHZ: u128 = 156_250;

layouts! {
    /// PRM, "Initialization Segment".
    segment 0x1020 {
        FW_REV_MINOR 0x0 [31:16], FW_REV_MAJOR 0x0 [15:0], CMD_INTERFACE_REV 0x4 [31:16], FW_REV_SUBMINOR 0x4 [15:0],
        CMDQ_PHY_ADDR 0x10 [63:0], NIC_INTERFACE 0x14 [10:8], LOG_CMDQ_SIZE 0x14 [7:4], LOG_CMDQ_STRIDE 0x14 [3:0],
        COMMAND_DOORBELL 0x18 [31:0], INITIALIZING 0x1fc [31], RESET_SUPPORTED 0x1fc [30],
        EMBEDDED_CPU 0x1fc [23], HEALTH_FW_VER 0x230 [31:0], HEALTH_RESET_REQUESTED 0x238 [31], HEALTH_SYNDROME 0x23c [23:16],
        COMMAND_TIMEOUT 0xff8 [19:0], INITIALIZATION_TIMEOUT 0xffc [19:0], INTERNAL_TIMER 0x1000 [63:0], HEALTH_COUNTER 0x1010 [31:0],
    }
}

/// What a write into the region means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Kept, or of no effect.
    None,
    /// The function is reset.
    Reset,
    /// Commands are there: bit n for entry n, at this address.
    Commands { entries: u32, queue: u64 },
    /// A doorbell in a page.
    Doorbell { page: u32, offset: u64 },
}

/// The region's registers.
#[derive(Debug)]
pub(crate) struct Bar {
    segment: Vec<u8>,
    started: Instant,
}

impl Bar {
    pub(crate) fn new(profile: &Profile) -> Self {
        let mut bar = Self { segment: vec![0; SEGMENT], started: Instant::now() };
        let (major, minor, subminor) = profile.firmware;
        bar.set(segment::FW_REV_MAJOR, major.into());
        bar.set(segment::FW_REV_MINOR, minor.into());
        bar.set(segment::FW_REV_SUBMINOR, subminor.into());
        bar.set(segment::CMD_INTERFACE_REV, COMMAND_INTERFACE);
        bar.set(segment::LOG_CMDQ_SIZE, LOG_COMMANDS);
        bar.set(segment::LOG_CMDQ_STRIDE, LOG_STRIDE);
        bar.set(segment::RESET_SUPPORTED, 1);
        bar.set(segment::EMBEDDED_CPU, profile.embedded_cpu.into());
        // With these the driver asks for all other times, too.
        let milliseconds = u64::try_from(profile.command_timeout.as_millis()).unwrap_or(u64::MAX);
        bar.set(segment::COMMAND_TIMEOUT, milliseconds);
        bar.set(segment::INITIALIZATION_TIMEOUT, INITIALIZATION);
        bar.set(segment::HEALTH_FW_VER, u64::from(major) << 16 | u64::from(subminor));
        bar
    }

    /// Gives what is there.
    pub(crate) fn read(&mut self, offset: u64, data: &mut [u8], health: &Health) {
        if health.is_offline {
            return data.fill(0xff);
        }
        let elapsed = self.started.elapsed().as_millis();
        let low = |value: u128| u64::try_from(value & u128::from(u64::MAX)).unwrap_or_default();
        if !health.counter_is_held {
            self.set(segment::HEALTH_COUNTER, low(elapsed / HEALTH_PERIOD + 1));
        }
        if health.is_disabled {
            self.set(segment::NIC_INTERFACE, INTERFACE_DISABLED);
        }
        let syndrome = health.syndrome;
        self.set(segment::HEALTH_SYNDROME, syndrome.map_or(0, |syndrome| syndrome.code.into()));
        self.set(segment::HEALTH_RESET_REQUESTED, syndrome.is_some_and(|syndrome| syndrome.is_fatal).into());
        self.set(segment::INTERNAL_TIMER, low(elapsed * CLOCK_KHZ));
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, byte) in data.iter_mut().enumerate() {
            *byte = start.checked_add(index).and_then(|at| self.segment.get(at)).copied().unwrap_or_default();
        }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8], health: &mut Health) -> Action {
        const QUEUE_HIGH: u64 = 0x10;
        const QUEUE_LOW: u64 = 0x14;
        const DOORBELL: u64 = 0x18;
        if health.is_offline {
            return Action::None;
        }
        let word = data.get(..4).map(|bytes| bytes.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)));
        match (offset, word) {
            (QUEUE_HIGH | QUEUE_LOW, Some(_)) => {
                let at = usize::try_from(offset).unwrap_or_default();
                self.segment[at..at + 4].copy_from_slice(&data[..4]);
                // The sizes are the device's.
                self.set(segment::LOG_CMDQ_SIZE, LOG_COMMANDS);
                self.set(segment::LOG_CMDQ_STRIDE, LOG_STRIDE);
                let interface = segment::NIC_INTERFACE.read(&self.segment);
                health.is_disabled = matches!(interface, Some(INTERFACE_DISABLED | INTERFACE_RESET));
                if interface == Some(INTERFACE_RESET) { Action::Reset } else { Action::None }
            }
            (DOORBELL, Some(entries)) => {
                let queue = segment::CMDQ_PHY_ADDR.read(&self.segment).unwrap_or_default() & !(PAGE - 1);
                Action::Commands { entries, queue }
            }
            (at, _) if at >= PAGE * 16 && !health.is_disabled => {
                Action::Doorbell { page: u32::try_from(at / PAGE).unwrap_or(u32::MAX), offset: at % PAGE }
            }
            _ => Action::None,
        }
    }

    fn set(&mut self, field: Field, value: u64) {
        field.write(&mut self.segment, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Syndrome;
    use sluice_connectx::profile::{BLUEFIELD_2, CONNECTX_6_DX};

    fn word(bar: &mut Bar, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        bar.read(offset, &mut bytes, &Health::default());
        u32::from_be_bytes(bytes)
    }

    #[test]
    fn the_command_queue_is_where_the_driver_says() {
        let mut bar = Bar::new(&BLUEFIELD_2);
        assert_eq!(word(&mut bar, 0x14), 0x56);
        assert_eq!(bar.write(0x10, &[0, 0, 0, 1], &mut Health::default()), Action::None);
        assert_eq!(bar.write(0x14, &[0x12, 0x34, 0x50, 0], &mut Health::default()), Action::None);
        assert_eq!(word(&mut bar, 0x14), 0x1234_5056);
        let action = bar.write(0x18, &[0x80, 0, 0, 1], &mut Health::default());
        assert_eq!(action, Action::Commands { entries: 0x8000_0001, queue: 0x1_1234_5000 });
    }

    #[test]
    fn only_the_function_of_an_embedded_processor_says_so() {
        assert_eq!(word(&mut Bar::new(&BLUEFIELD_2), 0x1fc), 1 << 30 | 1 << 23);
        assert_eq!(word(&mut Bar::new(&CONNECTX_6_DX), 0x1fc), 1 << 30);
    }

    #[test]
    fn the_health_counter_stands_still_while_it_is_held() {
        let counter = |bar: &mut Bar, counter_is_held| {
            let mut bytes = [0; 4];
            bar.read(0x1010, &mut bytes, &Health { counter_is_held, ..Health::default() });
            u32::from_be_bytes(bytes)
        };
        let mut bar = Bar::new(&BLUEFIELD_2);
        let before = counter(&mut bar, false);
        bar.started -= std::time::Duration::from_secs(10);
        assert_eq!(counter(&mut bar, true), before);
        assert!(counter(&mut bar, false) >= before + 99);
    }

    #[test]
    fn a_device_that_is_ill_says_so_until_it_is_reset() {
        let mut bar = Bar::new(&BLUEFIELD_2);
        let mut health = Health { syndrome: Some(Syndrome { code: 0x1, is_fatal: true }), ..Health::default() };
        let mut bytes = [0; 8];
        bar.read(0x238, &mut bytes, &health);
        assert_eq!(bytes, [0x80, 0, 0, 0, 0, 1, 0, 0]);
        assert!(!health.takes_commands());
        assert_eq!(bar.write(0x14, &[0, 0, 7, 0], &mut health), Action::Reset);
        bar.read(0x10, &mut bytes, &health);
        assert_eq!(bytes[6] & 7, 1, "the interface is disabled");
        assert_eq!(bar.write(0x1_2040, &[0; 4], &mut health), Action::None);
        assert_eq!(bar.write(0x14, &[0, 0, 0x50, 0], &mut health), Action::None);
        assert!(!health.is_disabled);
        health.is_offline = true;
        bar.read(0x238, &mut bytes, &health);
        assert_eq!(bytes, [0xff; 8]);
        assert_eq!(bar.write(0x1_2040, &[0; 4], &mut health), Action::None);
    }

    #[test]
    fn a_write_past_the_first_pages_is_a_doorbell() {
        let mut bar = Bar::new(&BLUEFIELD_2);
        let action = bar.write(0x1_2040, &[0; 4], &mut Health::default());
        assert_eq!(action, Action::Doorbell { page: 0x12, offset: 0x40 });
    }
}
