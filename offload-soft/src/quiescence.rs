//! Knowing when nobody can still use what was unlinked.
//!
//! A packet holds a [`Pin`] from its first lookup to its last count. Who removes a rule unlinks it, waits
//! ([`Quiescence::wait`]) until every pin is gone that may have been taken before, and then reads last counters that
//! are exact. Pins never wait for who waits, and two that wait do not wait for each other.
//!
//! Why it is right: pinning, unlinking, looking up and waiting use sequentially consistent operations, so for any pin
//! either the one who waits sees it, or its lookups see what was unlinked. `offload-soft/tests/quiescence_model.rs` tries it.

use super::sync::{AtomicU64, Ordering, spin_loop, yield_now};

/// Packets that may be under way at once without one waiting for a place.
pub const PLACES: usize = 64;

/// The pins of one device.
pub struct Quiescence {
    epoch: AtomicU64,
    places: Box<[Place]>,
}

/// The epoch in which the pin was taken; 0 when free. On a cache line of its own, since each is written per packet.
#[repr(align(64))]
struct Place(AtomicU64);

/// Keeps what was unlinked later from being freed.
pub struct Pin<'a>(&'a Place);

impl Quiescence {
    /// Nobody pins.
    pub fn new() -> Self {
        Self { epoch: AtomicU64::new(1), places: (0..PLACES).map(|_| Place(AtomicU64::new(0))).collect() }
    }

    /// Begins to use what is linked.
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        let epoch = self.epoch.load(Ordering::SeqCst);
        let mut hint = stack_hint();
        loop {
            for _ in 0..PLACES {
                let place = &self.places[hint % PLACES];
                if place.0.load(Ordering::Relaxed) == 0
                    && place.0.compare_exchange(0, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok()
                {
                    return Pin(place);
                }
                hint += 1;
            }
            yield_now();
        }
    }

    /// Returns when every pin is gone that was taken before the call. Never call it while holding a pin.
    pub fn wait(&self) {
        let next = self.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        for place in &self.places {
            let mut rounds = 0u32;
            while (1..next).contains(&place.0.load(Ordering::SeqCst)) {
                rounds += 1;
                if rounds < 64 { spin_loop() } else { yield_now() }
            }
        }
    }
}

impl Default for Quiescence {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

/// A number that mostly differs between threads and mostly stays the same within one: where its stack is.
#[inline]
fn stack_hint() -> usize {
    let here = 0u8;
    (std::ptr::from_ref(&here).addr() >> 14).wrapping_mul(0x9e37_79b9) >> 7
}
