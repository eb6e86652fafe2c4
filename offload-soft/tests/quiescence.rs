//! Pins, and who waits for them, on real threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_offload_soft::quiescence::{PLACES, Quiescence};

#[test]
fn waiting_ends_when_the_pins_from_before_are_gone_in_whatever_place_they_are() {
    let quiescence = Quiescence::new();
    for place in 0..PLACES {
        let released = AtomicBool::new(false);
        let mut pins: Vec<_> = (0..PLACES).map(|_| quiescence.pin()).collect();
        let pin = pins.swap_remove(place);
        drop(pins);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                quiescence.wait();
                assert!(released.load(Ordering::SeqCst), "the pin was still held");
            });
            std::thread::sleep(Duration::from_millis(2));
            let _later = quiescence.pin();
            released.store(true, Ordering::SeqCst);
            drop(pin);
        });
    }
}

#[test]
fn more_pins_than_one_can_be_held() {
    let quiescence = Quiescence::new();
    let pins: Vec<_> = (0..PLACES).map(|_| quiescence.pin()).collect();
    drop(pins);
    quiescence.wait();
}
