//! The library's side: what ovs-vswitchd asks of the kernel, what the kernel agrees to, and how that gets into the memory.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};

use super::{COUNT, MeterCount, MeterTable, Setting, SettingKind, WORDS};
use crate::answer::meter::{Agreed, Request};
use crate::attachment::Attachment;
use crate::layout::Name;
use crate::records::Found;

/// So many requests wait for their answers at most. ovs-vswitchd makes one at a time.
const REQUESTS: usize = 8;
/// A thread that has a table to publish does so again at most so often, if others change it meanwhile.
const AGAIN: usize = 4;

/// What the process that the library is in has set, whether there is a memory or not.
pub struct MeterSetter {
    table: [AtomicU64; WORDS],
    pending: [Pending; REQUESTS],
    /// Where the next request goes.
    next: AtomicUsize,
    /// That of the next meter.
    life: AtomicU16,
    /// The memory may have something else than the table.
    is_changed: AtomicBool,
    /// Held by the thread that publishes. Nobody waits for it.
    is_busy: AtomicBool,
}

/// A request that waits for its answer.
struct Pending {
    /// The socket and the sequence of the message; 0 if there is none.
    key: AtomicU64,
    /// What it asks for, as a table of one setting has it.
    setting: [AtomicU64; 2],
}

impl MeterSetter {
    /// One that has seen nothing.
    #[allow(clippy::new_without_default, reason = "it is for a static")]
    pub const fn new() -> Self {
        Self {
            table: [const { AtomicU64::new(0) }; WORDS],
            pending: [const { Pending { key: AtomicU64::new(0), setting: [const { AtomicU64::new(0) }; 2] } };
                REQUESTS],
            next: AtomicUsize::new(0),
            life: AtomicU16::new(0),
            is_changed: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
        }
    }

    /// Gives the first meter a life that it has in no other process, as far as a number like the time tells them apart.
    pub fn begin(&self, life: u16) {
        self.life.store(life, Ordering::Relaxed);
    }

    /// Keeps a request in mind that is about to be sent.
    pub fn ask(&self, socket: i32, request: &Request) {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % REQUESTS;
        let Some(pending) = self.pending.get(place) else { return };
        pending.key.store(0, Ordering::Relaxed);
        let setting = Setting { datapath: request.datapath, life: 0, kind: request.kind };
        MeterTable(&pending.setting).set(0, setting);
        pending.key.store(key(socket, request.sequence), Ordering::Release);
    }

    /// Takes what the kernel has answered. Whom it refuses something, it answers in another way.
    pub fn take(&self, socket: i32, agreed: Agreed) {
        let wanted = key(socket, agreed.sequence);
        let Some(pending) = self.pending.iter().find(|pending| pending.key.load(Ordering::Acquire) == wanted) else {
            return;
        };
        let asked = MeterTable(&pending.setting).get(0);
        pending.key.store(0, Ordering::Relaxed);
        let (Some(mut setting), Some(before)) = (asked, MeterTable(&self.table).get(agreed.meter)) else { return };
        let goes_on = before.kind != SettingKind::None && before.datapath == setting.datapath;
        setting.life = if goes_on { before.life } else { self.life.fetch_add(1, Ordering::Relaxed) };
        MeterTable(&self.table).set(agreed.meter, setting);
        self.renew();
    }

    /// Has all of it published again, since the memory may be another one.
    pub fn renew(&self) {
        self.is_changed.store(true, Ordering::SeqCst);
    }

    /// Publishes what has changed. Costs nothing if nothing has, and leaves it to another thread that is at it.
    pub fn publish(&self, attachment: &Attachment) {
        for _ in 0..AGAIN {
            if !self.is_changed.load(Ordering::SeqCst) || self.is_busy.swap(true, Ordering::Acquire) {
                return;
            }
            self.is_changed.store(false, Ordering::SeqCst);
            self.publish_all(attachment);
            self.is_busy.store(false, Ordering::Release);
        }
    }

    fn publish_all(&self, attachment: &Attachment) {
        let (own, theirs) = (MeterTable(&self.table), attachment.meters());
        let mut has_changed = false;
        for meter in 0..COUNT {
            let before = theirs.get(meter);
            match own.get(meter) {
                Some(setting) if before == Some(setting) => {}
                Some(setting) => {
                    if before.is_none_or(|before| before.life != setting.life) || setting.kind == SettingKind::None {
                        end_counts(meter, attachment);
                    }
                    theirs.set(meter, setting);
                    has_changed = true;
                }
                None => self.renew(),
            }
        }
        if has_changed {
            attachment.count_meter_change();
        }
    }
}

/// Adds what was counted for a meter to nothing any more: another one has its number.
fn end_counts(meter: u32, attachment: &Attachment) {
    for count in MeterCount::ALL {
        if let Found::At(record) = attachment.records().find(Name::from(count.name(meter))) {
            attachment.marks().set(&record);
        }
    }
}

/// Of a request and its answer. The lowest bit is set, so that it is not that of none.
fn key(socket: i32, sequence: u32) -> u64 {
    u64::from(socket.cast_unsigned()) << 33 | u64::from(sequence) << 1 | 1
}
