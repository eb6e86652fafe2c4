//! Bonds whose members share their filters.

use sluice_netdev::{Block, Control, IngressError, IngressQdisc, LagError, Monitor, Ownership, ensure_lag};

use crate::space::{Space, events, ifindex};
use crate::stories;

stories![
    a_bond_and_its_members_share_a_block,
    a_member_that_comes_later_gets_the_block_too,
    if_a_member_cannot_have_the_block_none_keeps_it,
];

const WANTED: IngressQdisc = IngressQdisc::INGRESS.with_ingress_block(Block(42));

fn bond(space: &Space) -> (Control, Monitor) {
    space.run("ip link add bond0 type bond");
    for member in ["dummy0", "dummy1"] {
        space.run(&format!("ip link add {member} type dummy"));
        space.run(&format!("ip link set {member} master bond0"));
    }
    (space.control(), space.monitor())
}

fn ensure(control: &mut Control, monitor: &Monitor) -> Result<Vec<(String, Ownership)>, LagError> {
    let name = |ifindex| monitor.links().at(ifindex).unwrap().device.name.clone();
    let done = ensure_lag(control, monitor.links(), ifindex(monitor, "bond0"), WANTED)?;
    Ok(done.into_iter().map(|(ifindex, _, ownership)| (name(ifindex), ownership)).collect())
}

fn a_bond_and_its_members_share_a_block(space: &Space) {
    let (mut control, monitor) = bond(space);
    let made = ["bond0", "dummy0", "dummy1"].map(|name| (name.to_owned(), Ownership::Made));
    assert_eq!(ensure(&mut control, &monitor).unwrap(), made);
    space.run("tc filter add block 42 protocol ip prio 5 flower action drop");
    for device in ["bond0", "dummy0", "dummy1"] {
        assert!(space.run(&format!("tc qdisc show dev {device}")).contains("ingress_block 42"));
    }
    let adopted = ["bond0", "dummy0", "dummy1"].map(|name| (name.to_owned(), Ownership::Adopted));
    assert_eq!(ensure(&mut control, &monitor).unwrap(), adopted);
}

fn a_member_that_comes_later_gets_the_block_too(space: &Space) {
    let (mut control, mut monitor) = bond(space);
    ensure(&mut control, &monitor).unwrap();
    space.run("ip link add dummy2 type dummy");
    space.run("ip link set dummy2 master bond0");
    events(&mut monitor);
    let done = ensure(&mut control, &monitor).unwrap();
    assert_eq!(done.last(), Some(&("dummy2".to_owned(), Ownership::Made)));
}

fn if_a_member_cannot_have_the_block_none_keeps_it(space: &Space) {
    let (mut control, monitor) = bond(space);
    space.run("tc qdisc add dev dummy1 clsact");
    let refused = ensure(&mut control, &monitor).unwrap_err();
    assert_eq!(refused.member, ifindex(&monitor, "dummy1"));
    assert!(matches!(refused.source, IngressError::Taken { found: IngressQdisc::CLSACT, .. }));
    for device in ["bond0", "dummy0"] {
        assert!(!space.run(&format!("tc qdisc show dev {device}")).contains("ffff:"), "{device}");
    }
}
