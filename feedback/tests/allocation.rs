//! What the library does with an answer allocates nothing.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
#![allow(unsafe_code, reason = "an allocator that counts is one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::IoSliceMut;

use sluice_feedback::answer::{change, family};
use sluice_feedback::{Attachment, Publisher, Totals};
use sluice_flow::ufid::Ufid;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller promises what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

const FAMILY: u16 = 0x1f;

fn message(ufid: u8) -> Vec<u8> {
    let mut message = vec![44, 0, 0, 0];
    message.extend(FAMILY.to_ne_bytes());
    message.extend([0; 18]);
    message.extend([20u16.to_ne_bytes(), 9u16.to_ne_bytes()].concat());
    message.extend([u32::from(ufid), 0, 0, 0].map(u32::to_ne_bytes).concat());
    message[..4].copy_from_slice(&44u32.to_ne_bytes());
    message
}

#[test]
fn an_answer_is_changed_without_an_allocation() {
    let mut publisher = Publisher::create(100, 1).unwrap();
    let totals = Totals { packets: 7, bytes: 700, used: 5, tcp_flags: 1 };
    (0..100).for_each(|ufid| publisher.publish(Ufid(ufid << 96), totals).unwrap());
    let attachment = Attachment::new(publisher.file().try_clone_to_owned().unwrap()).unwrap();
    let mut datagram: Vec<u8> = (0..200).flat_map(message).collect();
    let (mut first, mut second) = (vec![0; 4096], vec![0; 65_536]);
    let before = ALLOCATIONS.get();
    assert!(before > 0, "they are counted");
    let buffers = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let length = datagram.len();
    let changed = change(&mut datagram, buffers, FAMILY, &attachment, 1000);
    let family = family(&datagram, b"ovs_flow\0");
    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!((changed - length, family), (100 * (20 + 12 + 8), None));
    assert_eq!((publisher.counters().messages, publisher.counters().changed), (200, 100));
}
