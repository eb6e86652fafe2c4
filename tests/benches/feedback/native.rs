//! What the library does with the answers of a dump, without the kernel and ovs-vswitchd around it.

use std::hint::black_box;
use std::io::IoSliceMut;

use sluice_feedback::answer::change;
use sluice_feedback::{Attachment, Publisher, Totals};
use sluice_flow::ufid::Ufid;
use sluice_tests::bench::cpu_timed;

const FAMILY: u16 = 0x1f;
/// Bytes of key, mask and actions of a flow of TCP, as the kernel's dump has them.
const REST: usize = 300;
/// The kernel puts so many bytes into a datagram of a dump.
const DATAGRAM: usize = 32_768;
/// ovs-vswitchd's buffers.
const BUFFERS: [usize; 2] = [4096, 65_536];

/// Processor time for a flow of a dump, each of which has a record.
pub(crate) fn nanoseconds_a_flow(flows: usize) -> f64 {
    let mut publisher = Publisher::create(flows, 7).expect("memory");
    let totals = Totals { packets: 1000, bytes: 64_000, used: 1, tcp_flags: 0 };
    let ufids: Vec<_> = (0..flows).map(ufid).collect();
    ufids.iter().for_each(|ufid| publisher.publish(*ufid, totals).expect("there is room"));
    let file = publisher.file().try_clone_to_owned().expect("a file");
    let attachment = Attachment::new(file).expect("a memory");
    let length = message(ufids[0]).len();
    let datagrams: Vec<Vec<u8>> =
        ufids.chunks(DATAGRAM / length).map(|some| some.iter().flat_map(|ufid| message(*ufid)).collect()).collect();
    let (mut first, mut second) = (vec![0; BUFFERS[0]], vec![0; BUFFERS[1]]);
    let mut space = vec![0; DATAGRAM];
    let mut pass = || {
        for datagram in &datagrams {
            // As the library, which gathers what came into the buffers.
            space[..datagram.len()].copy_from_slice(datagram);
            let buffers = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            black_box(change(&mut space[..datagram.len()], buffers, FAMILY, &attachment, 1_000_000));
        }
    };
    // The first finds pages that were never looked at.
    pass();
    let (spent, ()) = cpu_timed(pass);
    assert_eq!(publisher.counters().changed, 2 * flows as u64, "all have changed");
    spent.as_nanos() as f64 / flows as f64
}

/// As good as random, as OVS's are.
fn ufid(number: usize) -> Ufid {
    let mixed = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Ufid(mixed ^ mixed >> 61)
}

/// An answer about a flow that the kernel has counted nothing for.
fn message(ufid: Ufid) -> Vec<u8> {
    let mut message = vec![0; 24];
    let id = ufid.0.to_be_bytes();
    let words = id.as_chunks::<4>().0.iter().flat_map(|word| u32::from_be_bytes(*word).to_ne_bytes());
    message.extend([20u16.to_ne_bytes(), 9u16.to_ne_bytes()].concat());
    message.extend(words);
    for kind in [1u16, 7, 2] {
        let part = REST / 3 / 4 * 4;
        message.extend([u16::try_from(part).expect("short").to_ne_bytes(), kind.to_ne_bytes()].concat());
        message.resize(message.len() + part - 4, 0);
    }
    let length = u32::try_from(message.len()).expect("short").to_ne_bytes();
    message[..4].copy_from_slice(&length);
    message[4..6].copy_from_slice(&FAMILY.to_ne_bytes());
    message
}
