//! What the kernel's driver does with the device before a program comes, and the events that it takes.

use sluice_connectx::command::layouts as l;
use sluice_connectx::hca::Hca;
use sluice_connectx::memory::Memory;
use sluice_connectx::profile::Profile;

use super::command::{Command, made, pages, send};
use super::gids;
use super::process::Process;
use super::request::Refused;
use super::tables::{TYPES, set_root};

/// Pages for the firmware, at addresses that no program has: nothing is ever read there.
const LENT_PAGES: u64 = 68;
const LENT: u64 = 0xffff_8000_0000_0000;
const PAGE: usize = 4096;

/// What the driver itself has made.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) event_queue: u64,
    events: Events,
    /// Page of doorbells for its queues.
    pub(crate) uar: u64,
    /// All of it, in words.
    pub(crate) own: Vec<String>,
}

impl Kernel {
    /// Enables and initializes the function, and makes the queue that all completions' events would go to.
    pub(crate) fn start(profile: Profile) -> Result<(Self, Hca), Refused> {
        let mut hca = Hca::new(profile);
        let own = [(l::function::EMBEDDED_CPU_FUNCTION, u64::from(profile.embedded_cpu))];
        send(&mut hca, &Command::new(0x104, &l::function::LAYOUT, &own))?;
        send(&mut hca, &Command::new(0x10b, &l::set_issi::LAYOUT, &[(l::set_issi::CURRENT_ISSI, 1)]))?;
        lend_pages(&mut hca)?;
        send(&mut hca, &Command::new(0x102, &l::init_hca::LAYOUT, &[]))?;
        // Those of an embedded processor's host are there without it.
        let functions = if profile.embedded_cpu { 0 } else { profile.host_total_vfs };
        for function in 1..=functions {
            let function = [(l::function::FUNCTION_ID, function.into())];
            send(&mut hca, &Command::new(0x104, &l::function::LAYOUT, &function))?;
        }
        let uar = made(&mut hca, &Command::new(0x802, &l::plain::LAYOUT, &[]))?;
        let events = Events::new();
        let queue = [(l::create_eq::LOG_EQ_SIZE, LOG_EVENTS.into()), (l::create_eq::UAR_PAGE, uar)];
        let (list, _) = pages(events.address, (EVENTS * EVENT) as u64);
        let event_queue = made(&mut hca, &Command::new(0x301, &l::create_eq::LAYOUT, &queue).followed_by(&list))?;
        gids::announce(&mut hca)?;
        for table_type in TYPES {
            set_root(&mut hca, table_type, None)?;
        }
        let mut kernel = Self { event_queue, events, uar, own: hca.left() };
        kernel.arm(&mut hca);
        Ok((kernel, hca))
    }

    /// Takes the events that have come: numbers of queues with completions.
    pub(crate) fn take_events(&mut self, hca: &mut Hca) -> Vec<u32> {
        if hca.take_interrupts().is_empty() {
            return Vec::new();
        }
        let completions = std::iter::from_fn(|| self.events.next()).collect();
        self.arm(hca);
        completions
    }

    fn arm(&mut self, hca: &mut Hca) {
        const ARM: u64 = 0x40;
        let value = self.event_queue << 24 | u64::from(self.events.consumer & 0xff_ffff);
        let (value, uar) = (u32::try_from(value).unwrap_or_default(), u32::try_from(self.uar).unwrap_or_default());
        hca.doorbell(&Process, uar, ARM, &value.to_be_bytes());
    }
}

const EVENT: usize = 64;
const LOG_EVENTS: u32 = 8;
const EVENTS: usize = 1 << LOG_EVENTS;

/// A queue of events, in memory of this process that the device writes into.
#[derive(Debug)]
struct Events {
    /// Memory for it and for its alignment, which is only used by way of its address.
    _memory: Vec<u8>,
    address: u64,
    consumer: u32,
}

impl Events {
    fn new() -> Self {
        // Ones, so that no event is there: its last bit is 0 in the first lap.
        let memory = vec![0xff; EVENTS * EVENT + PAGE];
        let address = (memory.as_ptr() as u64).next_multiple_of(PAGE as u64);
        Self { _memory: memory, address, consumer: 0 }
    }

    /// The number of the queue with a completion that the next event is for, if there is one.
    fn next(&mut self) -> Option<u32> {
        let place = self.address + u64::from(self.consumer) % EVENTS as u64 * EVENT as u64;
        let mut event = [0; EVENT];
        Process.read(place, &mut event).ok()?;
        let lap = self.consumer >> LOG_EVENTS & 1;
        if u32::from(event[EVENT - 1]) & 1 != lap {
            return None;
        }
        self.consumer = self.consumer.wrapping_add(1);
        Some(u32::from_be_bytes([0, event[57], event[58], event[59]]))
    }
}

fn lend_pages(hca: &mut Hca) -> Result<Vec<u8>, Refused> {
    let pages: Vec<u8> = (1..=LENT_PAGES).flat_map(|page| (LENT + page * 4096).to_be_bytes()).collect();
    let give = [(l::manage_pages::INPUT_NUM_ENTRIES, LENT_PAGES)];
    send(hca, &Command::new(0x108, &l::manage_pages::LAYOUT, &give).modifier(1).followed_by(&pages))
}
