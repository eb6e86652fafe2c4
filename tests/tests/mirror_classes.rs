//! The classes of control traffic: the flow keys that the agent installs and the packet filters that the sender attaches take the same
//! frames. The filters run in the kernel, the keys in the NIC in software.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use sluice_control::mirror::{Class, MAX_TAGS, filter};
use sluice_flow::backend::{Backend, Injector, Mirrors, OpenConfig};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::text::parse_key;
use sluice_flow::time::MonotonicClock;
use sluice_offload_soft::SoftNic;
use sluice_tests::control_frames::{Sample, samples};
use socket2::{SockFilter, SockRef};

/// Whether the kernel lets a frame through the filter of a class.
struct Filter(UnixDatagram, UnixDatagram);

impl Filter {
    fn of(class: Class) -> Self {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        let program: Vec<_> = filter::program(class)
            .into_iter()
            .map(|one| SockFilter::new(one.code, one.jump_true, one.jump_false, one.operand))
            .collect();
        SockRef::from(&receiver).attach_filter(&program).expect("the kernel takes the program");
        receiver.set_nonblocking(true).unwrap();
        Self(sender, receiver)
    }

    fn takes(&self, frame: &[u8]) -> bool {
        // What a filter keeps out is refused, or is dropped in silence.
        let _ = self.0.send(frame);
        let mut buffer = vec![0; 1 << 16];
        match self.1.recv(&mut buffer) {
            Ok(length) => {
                assert_eq!(&buffer[..length], frame, "whole");
                true
            }
            Err(_) => false,
        }
    }
}

/// A NIC with a mirror for a class, whose copies go to the second port.
fn nic(class: Class) -> SoftNic {
    let nic = SoftNic::new(&OpenConfig::new("test", Arc::new(MonotonicClock::new())));
    for number in 1..3 {
        let name = format!("p{number}").parse().unwrap();
        nic.attach_port(&Port { number: PortNumber(number), name, kind: PortKind::Physical }).unwrap();
    }
    let keys = class.flow_keys(MAX_TAGS);
    let matches = keys.iter().map(|key| parse_key(&format!("in_port(1),{key}"), &()).unwrap().matching).collect();
    nic.set_mirror(&Mirror::of_any("class", matches, vec![PortNumber(2)]).unwrap()).unwrap();
    nic
}

#[test]
fn filters_and_flow_keys_take_the_frames_of_their_class_and_no_others() {
    let samples = samples();
    for class in Class::ALL.into_iter().filter(|class| *class != Class::Flow) {
        let (filter, nic) = (Filter::of(class), nic(class));
        let mut taken = 0;
        for Sample { name, class: wanted, frame } in &samples {
            let is_of_class = *wanted == Some(class);
            assert_eq!(filter.takes(frame), is_of_class, "filter of {class}: {name} {frame:02x?}");
            let copies = nic.inject(PortNumber(1), frame).unwrap().sent;
            let wanted = if is_of_class { vec![(PortNumber(2), frame.clone())] } else { vec![] };
            assert_eq!(copies, wanted, "keys of {class}: {name}, copied once or not at all");
            taken += usize::from(is_of_class);
        }
        assert!(taken > 0, "{class}");
    }
}

#[test]
fn a_frame_that_is_cut_off_anywhere_is_in_no_two_classes() {
    let filters = Class::ALL.map(Filter::of);
    for Sample { name, frame, .. } in samples().into_iter().filter(|sample| sample.frame.len() < 200) {
        for length in 1..frame.len() {
            let taken = filters.iter().zip(Class::ALL).filter(|(filter, _)| filter.takes(&frame[..length]));
            let classes: Vec<_> = taken.map(|(_, class)| class).filter(|class| *class != Class::Flow).collect();
            assert!(classes.len() <= 1, "{name} of {length} bytes: {classes:?}");
        }
    }
}

#[test]
fn the_filter_of_flows_takes_everything() {
    let filter = Filter::of(Class::Flow);
    assert!(samples().iter().all(|sample| filter.takes(&sample.frame)));
}
