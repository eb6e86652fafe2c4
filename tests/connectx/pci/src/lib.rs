//! The device as a function on a guest's PCI bus: a vfio-user server, behind QEMU's `vfio-user-pci`.

mod bar;
mod config;
mod guest;
mod health;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_connectx::command;
use sluice_connectx::command::queue::{ENTRY, Entry, Undelivered};
use sluice_connectx::hca::{Hca, Trouble};
use sluice_connectx::profile::Profile;
use sluice_connectx::steering::{Port, Walk};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use bar::{Action, Bar};
use config::Config;
use guest::Guest;
use health::Health;

pub use health::Syndrome;

/// Why the device could not be offered, or went away.
#[derive(Debug, thiserror::Error)]
#[error("vfio-user: {0}")]
pub struct Error(#[from] vfio_user::Error);

/// A socket at which a virtual machine finds the device.
pub struct Slot {
    server: Server,
    bus: Arc<Mutex<Bus>>,
}

/// What the machine has set up for the device: memory, and event descriptors of interrupt vectors. Who locks the device, too, locks
/// that first.
#[derive(Default)]
struct Bus {
    guest: Guest,
    vectors: BTreeMap<u32, File>,
    health: Health,
    /// How often another device came into the slot.
    exchanges: u32,
    /// Commands that were lost, with their places in the queue.
    lost: Vec<(Entry, u32)>,
}

/// The ports of a device that has a machine: of what comes in there, the machine's own driver gets its part.
#[derive(Clone)]
pub struct Ports {
    hca: Arc<Mutex<Hca>>,
    bus: Arc<Mutex<Bus>>,
}

impl Ports {
    /// A packet comes in, as with [`Hca::receive`]; frames for the driver go into its receive queues.
    pub fn receive(&self, from: Port, frame: &[u8]) -> Walk {
        let mut hca = self.hca.lock();
        let walk = hca.receive(from, frame);
        let mut bus = self.bus.lock();
        hca.hand_over(&bus.guest, &walk.received);
        bus.interrupt(&mut hca);
        walk
    }

    /// Has the counter stand still, or go on, by which the driver sees that the device lives.
    pub fn hold_health_counter(&self, is_held: bool) {
        self.bus.lock().health.counter_is_held = is_held;
    }

    /// Has the device be ill, or well again. A reset heals it, too.
    pub fn set_syndrome(&self, syndrome: Option<Syndrome>) {
        self.bus.lock().health.syndrome = syndrome;
    }

    /// Has the link to the device be lost, or be there again: then the function has been reset.
    pub fn set_offline(&self, is_offline: bool) {
        let mut hca = self.hca.lock();
        let mut bus = self.bus.lock();
        bus.health.is_offline = is_offline;
        if !is_offline {
            bus.reset(&mut hca);
        }
    }

    /// Has another device be in the slot, while no driver has it. The kernel sees it when it looks for devices.
    pub fn exchange(&self, profile: Profile) {
        let mut hca = self.hca.lock();
        let mut bus = self.bus.lock();
        hca.exchange(profile);
        bus.reset(&mut hca);
        bus.health.is_disabled = false;
        bus.exchanges += 1;
    }

    /// Sets how many virtual functions the host has, at most as many as there can be, and tells the driver, if one runs. Linux takes
    /// note of a number that becomes none, or was it.
    pub fn set_host_vfs(&self, number: u16) {
        let mut hca = self.hca.lock();
        let mut bus = self.bus.lock();
        hca.set_host_vfs(&bus.guest, number);
        bus.interrupt(&mut hca);
    }

    /// Answers the commands that were lost with an internal error, as a device does that comes to itself. Until then the driver
    /// has their places in the queue no more, and waits for them when it is removed.
    pub fn answer_lost(&self) {
        const INTERNAL_ERROR: u8 = 0x01;
        let lost = std::mem::take(&mut self.bus.lock().lost);
        for (entry, number) in lost {
            self.finish(entry, &command::refusal_bytes(INTERNAL_ERROR, 0), number);
        }
    }

    /// Gives a command back after a while, in a thread of its own.
    fn finish_late(self, by: Duration, entry: Entry, output: Vec<u8>, number: u32) {
        thread::spawn(move || {
            thread::sleep(by);
            self.finish(entry, &output, number);
        });
    }

    fn finish(&self, entry: Entry, output: &[u8], number: u32) {
        let mut hca = self.hca.lock();
        let mut bus = self.bus.lock();
        if let Err(undelivered) = entry.finish(&bus.guest, output) {
            complain_undelivered(&mut hca, number, undelivered);
        }
        if hca.tells_commands() {
            hca.commands_done(&bus.guest, 1 << number);
        }
        bus.interrupt(&mut hca);
    }
}

impl Bus {
    /// What is reset with the device: it is well, and answers no former command.
    fn reset(&mut self, hca: &mut Hca) {
        hca.reset();
        self.lost.clear();
        self.health.syndrome = None;
        self.health.is_disabled = true;
    }

    /// Raises the interrupts that are due.
    fn interrupt(&mut self, hca: &mut Hca) {
        for vector in hca.take_interrupts() {
            match self.vectors.get_mut(&vector).map(|event| event.write_all(&1u64.to_ne_bytes())) {
                Some(Ok(())) => {}
                Some(Err(error)) => hca.complain(format!("interrupt {vector}: {error}")),
                None => hca.complain(format!("interrupt {vector}, which nobody has set up")),
            }
        }
    }
}

impl Slot {
    /// Makes the socket. It goes with the slot.
    ///
    /// # Errors
    /// If something is at `path`, or it cannot be made.
    pub fn new(path: &Path) -> Result<Self, Error> {
        Ok(Self { server: Server::new(path, true, interrupts(), regions())?, bus: Arc::default() })
    }

    /// The ports of the device that is served here.
    #[must_use]
    pub fn ports(&self, hca: &Arc<Mutex<Hca>>) -> Ports {
        Ports { hca: Arc::clone(hca), bus: Arc::clone(&self.bus) }
    }

    /// Waits for a virtual machine and serves it until it goes, or unplugs the device. Then it can be served again: the device
    /// starts anew. Whatever the driver does wrong goes to `report`, a line each.
    ///
    /// # Errors
    /// If the connection breaks in the middle of a message.
    pub fn serve(&self, hca: &Arc<Mutex<Hca>>, report: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let (profile, reported) = {
            let mut hca = hca.lock();
            hca.reset();
            (*hca.profile(), (hca.refusals().len(), hca.complaints().len()))
        };
        let mut function = Function {
            hca: Arc::clone(hca),
            report,
            reported,
            config: Config::new(&profile),
            bar: Bar::new(&profile),
            exchanges: self.bus.lock().exchanges,
            bus: Arc::clone(&self.bus),
        };
        let outcome = self.server.run(&mut function);
        *self.bus.lock() = Bus::default();
        Ok(outcome?)
    }
}

struct Function<'a> {
    hca: Arc<Mutex<Hca>>,
    report: &'a mut dyn FnMut(&str),
    /// How many refusals and complaints have been reported.
    reported: (usize, usize),
    config: Config,
    bar: Bar,
    /// Those that registers and configuration space know of.
    exchanges: u32,
    bus: Arc<Mutex<Bus>>,
}

impl Function<'_> {
    /// Has other registers if there is another device.
    fn renew(&mut self) {
        let exchanges = self.bus.lock().exchanges;
        if exchanges != self.exchanges {
            let profile = *self.hca.lock().profile();
            (self.exchanges, self.config, self.bar) = (exchanges, Config::with_functions(&profile), Bar::new(&profile));
        }
    }

    fn commands(&mut self, entries: u32, queue: u64) {
        let mut hca = self.hca.lock();
        let mut bus = self.bus.lock();
        let Bus { guest: memory, lost, health, .. } = &mut *bus;
        for number in (0..u32::BITS).filter(|number| entries >> number & 1 == 1) {
            // The command that makes the first queue of events is still waited for by polling.
            let told = hca.tells_commands();
            let done = match Entry::take(memory, queue + u64::from(number) * ENTRY) {
                Ok(None) => Ok(()),
                Ok(Some(entry)) if !health.takes_commands() => {
                    lost.push((entry, number));
                    continue;
                }
                Ok(Some(entry)) => match hca.delivery(&entry.input) {
                    Some(Trouble::Lost) => {
                        lost.push((entry, number));
                        continue;
                    }
                    Some(Trouble::Late(by)) => {
                        let output = hca.execute(memory, &entry.input);
                        self.ports().finish_late(by, entry, output, number);
                        continue;
                    }
                    _ => {
                        let output = hca.execute(memory, &entry.input);
                        entry.finish(memory, &output)
                    }
                },
                Err(undelivered) => Err(undelivered),
            };
            if let Err(undelivered) = done {
                complain_undelivered(&mut hca, number, undelivered);
            }
            if told {
                hca.commands_done(memory, 1 << number);
            }
        }
    }

    fn ports(&self) -> Ports {
        Ports { hca: Arc::clone(&self.hca), bus: Arc::clone(&self.bus) }
    }

    /// Raises the interrupts that are due, and reports what went wrong.
    fn settle(&mut self) {
        let mut hca = self.hca.lock();
        self.bus.lock().interrupt(&mut hca);
        let (refusals, complaints) = (hca.refusals(), hca.complaints());
        for refusal in &refusals[self.reported.0..] {
            (self.report)(&refusal.to_string());
        }
        for complaint in &complaints[self.reported.1..] {
            (self.report)(complaint);
        }
        self.reported = (refusals.len(), complaints.len());
    }
}

impl ServerBackend for Function<'_> {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.renew();
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => self.bar.read(offset, data, &self.bus.lock().health),
            VFIO_PCI_CONFIG_REGION_INDEX if self.bus.lock().health.is_offline => data.fill(0xff),
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.read(usize::try_from(offset).map_err(io::Error::other)?, data),
            _ => return Err(no_region(region)),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        self.renew();
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                let action = self.bar.write(offset, data, &mut self.bus.lock().health);
                match action {
                    Action::None => {}
                    Action::Reset => {
                        let mut hca = self.hca.lock();
                        self.bus.lock().reset(&mut hca);
                    }
                    Action::Commands { entries, queue } => self.commands(entries, queue),
                    Action::Doorbell { page, offset } => {
                        let mut hca = self.hca.lock();
                        hca.doorbell(&self.bus.lock().guest, page, offset, data);
                    }
                }
                self.settle();
            }
            VFIO_PCI_CONFIG_REGION_INDEX => {
                self.config.write(usize::try_from(offset).map_err(io::Error::other)?, data);
            }
            _ => return Err(no_region(region)),
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        // Without a descriptor it is read-only memory of the machine, where no driver puts a queue.
        let Some(file) = file else { return Ok(()) };
        self.bus.lock().guest.map(address, size, file, offset, flags.contains(DmaMapFlags::WRITE))
    }

    fn dma_unmap(&mut self, _: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.bus.lock().guest.unmap(address, size);
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        let mut hca = self.hca.lock();
        let mut bus = self.bus.lock();
        bus.reset(&mut hca);
        bus.health.is_disabled = false;
        self.bar = Bar::new(hca.profile());
        self.config = Config::with_functions(hca.profile());
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, files: Vec<File>) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        let vectors = &mut self.bus.lock().vectors;
        if count == 0 {
            vectors.clear();
        }
        for vector in start..start.saturating_add(count) {
            vectors.remove(&vector);
        }
        vectors.extend((start..).zip(files));
        Ok(())
    }
}

fn no_region(region: u32) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("there is no region {region}"))
}

/// Bytes of what tells about a region.
const REGION_INFO: u32 = 32;
const _: () = assert!(size_of::<vfio_region_info>() == 32);

fn regions() -> Vec<ServerRegion> {
    let size = |index| match index {
        VFIO_PCI_BAR0_REGION_INDEX => bar::SIZE,
        VFIO_PCI_CONFIG_REGION_INDEX => config::SIZE as u64,
        _ => 0,
    };
    let region = |index| vfio_region_info {
        argsz: REGION_INFO,
        flags: if size(index) > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 },
        index,
        size: size(index),
        ..Default::default()
    };
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| ServerRegion { region_info: region(index), sparse_areas: Vec::new(), mmap_fd: None })
        .collect()
}

fn interrupts() -> Vec<IrqInfo> {
    let count = |index| if index == VFIO_PCI_MSIX_IRQ_INDEX { u32::from(config::VECTORS) } else { 0 };
    let flags = |index| if count(index) > 0 { VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE } else { 0 };
    (0..VFIO_PCI_NUM_IRQS).map(|index| IrqInfo { index, flags: flags(index), count: count(index) }).collect()
}

fn complain_undelivered(hca: &mut Hca, number: u32, reason: Undelivered) {
    hca.complain(format!("entry {number} of the command queue: {reason}"));
}
