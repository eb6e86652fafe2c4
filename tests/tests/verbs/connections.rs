//! What both sides of a connection agree on.

use sluice_mirror::verbs::{Ece, Payload, Receives};
use sluice_tests::mlx5::{on_device, with_options};

use crate::rig::{Rig, bytes, message, one, send};

#[test]
fn options_are_offered_set_and_agreed_on() {
    on_device("bluefield-3", "connections::options_are_offered_set_and_agreed_on", |_| {
        let rig = Rig::unconnected(Receives::Own(4));
        let offered = rig.left.ece().unwrap();
        assert_eq!(offered.vendor, 0x15b3);
        assert_ne!(offered.options & 0x0fff_ffff, 0);
        // The other side has one of them, and one that this device has not.
        let lowest = offered.options & 0x0fff_ffff & (offered.options & 0x0fff_ffff).wrapping_neg();
        let theirs = Ece { options: offered.options & 0xf000_0000 | lowest | 1 << 27, ..offered };
        rig.left.set_ece(theirs).unwrap();
        rig.connect(7);
        assert_eq!(rig.left.ece().unwrap().options, offered.options & 0xf000_0000 | lowest);
        assert_eq!(rig.right.ece().unwrap(), offered, "nobody has set any there");
        rig.post_receives(0..1, 16);
        rig.left.send(vec![send(0, Payload::Inline(b"agreed"))]).unwrap();
        assert_eq!(bytes(&message(one(&rig.received))), b"agreed");
    });
}

#[test]
fn options_of_another_vendor_or_version_are_refused() {
    let name = "connections::options_of_another_vendor_or_version_are_refused";
    with_options("bluefield-3", &[], &["are of another version"], name, |_| {
        let rig = Rig::unconnected(Receives::Own(4));
        let offered = rig.left.ece().unwrap();
        assert!(rig.left.set_ece(Ece { vendor: 0x14e4, ..offered }).is_err());
        rig.left.set_ece(Ece { options: 0x2000_0001, ..offered }).unwrap();
        assert!(rig.left.initialize(1, Default::default()).is_err());
    });
}

#[test]
fn the_longest_message_crosses_packets_and_numbers_that_wrap() {
    on_device("bluefield-3", "connections::the_longest_message_crosses_packets_and_numbers_that_wrap", |_| {
        let rig = Rig::new(4);
        // From right to left packets begin with the last but one number.
        rig.left.receive(rig.receives(0..2, 1 << 20)).unwrap();
        let pattern: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        for _ in 0..2 {
            rig.right.send(vec![send(0, Payload::Buffers(vec![rig.buffer(&pattern)]))]).unwrap();
            assert!(bytes(&message(one(&rig.received))) == pattern);
        }
    });
}
