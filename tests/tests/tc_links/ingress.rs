//! Queueing disciplines that filters hang on.

use sluice_netdev::{
    Attachment, Block, Control, Ifindex, IngressError, IngressQdisc, NotRemoved, Ownership, ensure_ingress,
    remove_ingress,
};

use crate::space::{Space, ifindex};
use crate::stories;

stories![
    what_is_missing_is_made_and_what_is_ours_and_empty_is_removed,
    what_is_there_and_serves_is_adopted_and_left,
    what_does_not_serve_is_refused_and_left,
    what_filters_hang_on_is_not_removed,
    what_somebody_replaced_or_removed_is_not_removed,
    a_block_outlives_a_device_that_shared_it,
    what_the_kernel_refuses_comes_in_its_words,
];

/// Makes a device.
fn device(space: &Space, name: &str) -> (Control, Ifindex) {
    space.run(&format!("ip link add {name} type dummy"));
    (space.control(), ifindex(&space.monitor(), name))
}

fn what_is_missing_is_made_and_what_is_ours_and_empty_is_removed(space: &Space) {
    let (mut control, at) = device(space, "dummy0");
    for (wanted, words) in [
        (IngressQdisc::INGRESS, "qdisc ingress ffff: parent ffff:fff1"),
        (IngressQdisc::CLSACT, "qdisc clsact ffff: parent ffff:fff1"),
        (
            IngressQdisc::CLSACT.with_ingress_block(Block(3)).with_egress_block(Block(4)),
            "qdisc clsact ffff: parent ffff:fff1 ingress_block 3 egress_block 4",
        ),
    ] {
        let (made, ownership) = ensure_ingress(&mut control, at, wanted).unwrap();
        assert_eq!((made, ownership), (wanted, Ownership::Made));
        let said = space.run("tc qdisc show dev dummy0");
        assert!(said.contains(words), "{words} is not in {said}");
        remove_ingress(&mut control, at, made, ownership).unwrap().unwrap();
        assert!(!space.run("tc qdisc show dev dummy0").contains("ffff:"));
    }
}

fn what_is_there_and_serves_is_adopted_and_left(space: &Space) {
    let (mut control, at) = device(space, "dummy0");
    space.run("tc qdisc add dev dummy0 clsact");
    // Filters for what is received can hang on either.
    for wanted in [IngressQdisc::CLSACT, IngressQdisc::INGRESS] {
        let (found, ownership) = ensure_ingress(&mut control, at, wanted).unwrap();
        assert_eq!((found, ownership), (IngressQdisc::CLSACT, Ownership::Adopted));
        let left = remove_ingress(&mut control, at, found, ownership).unwrap();
        assert_eq!(left, Err(NotRemoved::Adopted));
    }
    assert!(space.run("tc qdisc show dev dummy0").contains("clsact"));
}

fn what_does_not_serve_is_refused_and_left(space: &Space) {
    let (mut control, at) = device(space, "dummy0");
    space.run("tc qdisc add dev dummy0 ingress_block 5 ingress");
    let there = IngressQdisc::INGRESS.with_ingress_block(Block(5));
    for wanted in [
        IngressQdisc::CLSACT,
        IngressQdisc::CLSACT.with_ingress_block(Block(5)),
        IngressQdisc::INGRESS,
        IngressQdisc::INGRESS.with_ingress_block(Block(6)),
    ] {
        let refused = ensure_ingress(&mut control, at, wanted).unwrap_err();
        assert!(matches!(&refused, IngressError::Taken { found, .. } if *found == there), "{refused}");
    }
    assert_eq!(ensure_ingress(&mut control, at, there).unwrap(), (there, Ownership::Adopted));
}

fn what_filters_hang_on_is_not_removed(space: &Space) {
    let (mut control, at) = device(space, "dummy0");
    let (made, ownership) = ensure_ingress(&mut control, at, IngressQdisc::CLSACT).unwrap();
    for (side, attachment) in [("ingress", Attachment::Ingress(at)), ("egress", Attachment::Egress(at))] {
        space.run(&format!("tc filter add dev dummy0 {side} protocol ip prio 5 chain 3 flower action drop"));
        let left = remove_ingress(&mut control, at, made, ownership).unwrap();
        assert_eq!(left, Err(NotRemoved::InUse(attachment)));
        space.run(&format!("tc filter del dev dummy0 {side} chain 3"));
    }
    remove_ingress(&mut control, at, made, ownership).unwrap().unwrap();
}

fn what_somebody_replaced_or_removed_is_not_removed(space: &Space) {
    let (mut control, at) = device(space, "dummy0");
    let (made, ownership) = ensure_ingress(&mut control, at, IngressQdisc::CLSACT).unwrap();
    space.run("tc qdisc del dev dummy0 clsact");
    assert_eq!(remove_ingress(&mut control, at, made, ownership).unwrap(), Err(NotRemoved::Gone));
    space.run("tc qdisc add dev dummy0 ingress");
    let replaced = NotRemoved::Replaced(IngressQdisc::INGRESS);
    assert_eq!(remove_ingress(&mut control, at, made, ownership).unwrap(), Err(replaced));
    space.run("ip link del dummy0");
    assert_eq!(remove_ingress(&mut control, at, made, ownership).unwrap(), Err(NotRemoved::Gone));
}

fn a_block_outlives_a_device_that_shared_it(space: &Space) {
    let (mut control, first) = device(space, "dummy0");
    let (_, second) = device(space, "dummy1");
    let wanted = IngressQdisc::INGRESS.with_ingress_block(Block(11));
    for at in [first, second] {
        assert_eq!(ensure_ingress(&mut control, at, wanted).unwrap(), (wanted, Ownership::Made));
    }
    space.run("tc filter add block 11 protocol ip prio 5 flower action drop");
    remove_ingress(&mut control, first, wanted, Ownership::Made).unwrap().unwrap();
    assert!(space.run("tc filter show block 11").contains("flower"));
    let left = remove_ingress(&mut control, second, wanted, Ownership::Made).unwrap();
    assert_eq!(left, Err(NotRemoved::InUse(Attachment::Block(Block(11)))));
    space.run("tc filter del block 11");
    remove_ingress(&mut control, second, wanted, Ownership::Made).unwrap().unwrap();
}

fn what_the_kernel_refuses_comes_in_its_words(space: &Space) {
    let (mut control, at) = device(space, "dummy0");
    let wanted = IngressQdisc::INGRESS.with_egress_block(Block(1));
    let refused = ensure_ingress(&mut control, at, wanted).unwrap_err().to_string();
    assert!(refused.ends_with(": Egress block sharing is not supported"), "{refused}");
    let nobody = ensure_ingress(&mut control, Ifindex(9999), IngressQdisc::CLSACT).unwrap_err().to_string();
    assert!(nobody.starts_with("add queueing discipline: No such device"), "{nobody}");
}
