//! What becomes of what is known, message by message. The same is shown with a real kernel in `tests/tests/tc_links`, apart
//! from what no device of the lab does.

use super::{golden, read, read_golden};
use crate::device::{Device, Ifindex, Role, SwitchId};
use crate::devlink::{DevlinkPort, Flavour};
use crate::event::Event;
use crate::ingress::IngressQdisc;
use crate::links::{Links, Snapshot};
use crate::message::Notice;
use crate::port_name::{Function, FunctionPart};
use crate::touched_filters::Block;

fn apply(links: &mut Links, notice: Notice) -> Vec<Event> {
    let mut events = vec![];
    links.apply(notice, &mut events);
    events
}

fn read_device(name: &str) -> Device {
    let Notice::Link(device) = read_golden(name) else { panic!("{name} is no link") };
    *device
}

#[test]
fn a_nic_that_goes_to_switchdev_mode_has_a_switch_from_then_on() {
    let mut links = Links::default();
    let mut plug = read_device("link-plug");
    let switch = plug.switch.take();
    apply(&mut links, Notice::Link(Box::new(plug)));
    let events = apply(&mut links, read_golden("link-plug"));
    let port = links.at(Ifindex(9)).unwrap().port();
    assert_eq!(events, [Event::SwitchChanged { port, from: None, to: switch.clone() }]);
    assert_eq!(links.ports_of(&switch.unwrap()).count(), 1);
    assert_eq!(links.ports_of(&SwitchId([1, 2].into())).count(), 0);
}

#[test]
fn a_device_that_is_a_member_when_it_is_first_seen_has_joined() {
    let mut links = Links::default();
    let mut member = read_device("link-veth");
    member.master = Some(Ifindex(77));
    let seen = || Snapshot { devices: vec![member.clone()], ..Snapshot::default() };
    let mut events = vec![];
    links.become_equal(seen(), &mut events);
    let port = links.at(Ifindex(3)).unwrap().port();
    let joined = Event::MasterChanged { port: port.clone(), from: None, to: Some(Ifindex(77)) };
    assert_eq!(events, [Event::Appeared(port), joined]);
    events.clear();
    links.become_equal(seen(), &mut events);
    assert_eq!(events, [], "once");
}

#[test]
fn what_devlink_says_is_truer_than_the_name_of_the_port() {
    let mut links = Links::default();
    // An old driver calls the representor of a function by a number.
    let mut representor = read_device("link-representor");
    representor.port_name = Some("0".into());
    representor.role = Role::Other("".into());
    apply(&mut links, Notice::Link(Box::new(representor.clone())));
    let function = Function { controller: Some(1), physical: 0, part: FunctionPart::Virtual(0) };
    let flavour = Flavour::Function(function);
    let port = DevlinkPort { bus: "pci".into(), device: "0000:03:00.0".into(), index: 1, flavour };
    let mut events = vec![];
    links.put_devlink(vec![(Ifindex(10), port.clone())], &mut events);
    let known = links.at(Ifindex(10)).unwrap();
    assert_eq!((&known.device.role, &known.device.devlink), (&Role::Representor(function), &Some(port)));
    assert_eq!(events, [Event::RoleChanged(known.port())]);
    // The next notification says nothing of devlink, which changes nothing.
    assert_eq!(apply(&mut links, Notice::Link(Box::new(representor))), []);
}

#[test]
fn a_device_of_which_no_sense_can_be_made_stays_as_it_was_known() {
    let mut links = Links::default();
    apply(&mut links, read_golden("link-veth"));
    let before = links.named("v0").unwrap().clone();
    let notice = Notice::Unreadable(before.device.ifindex, "odd".into());
    let events = apply(&mut links, notice);
    assert_eq!(events, [Event::Unreadable { ifindex: Ifindex(3), reason: "odd".into() }]);
    let mut events = vec![];
    links.become_equal(Snapshot { unreadable: vec![(Ifindex(3), "odd".into())], ..Snapshot::default() }, &mut events);
    assert_eq!(links.named("v0"), Some(&before));
}

#[test]
fn a_queueing_discipline_that_is_replaced_in_one_step_is_told_by_what_was_and_is() {
    let mut links = Links::default();
    apply(&mut links, read_golden("link-veth"));
    apply(&mut links, Notice::Qdisc(Ifindex(3), IngressQdisc::CLSACT, 5));
    let events = apply(&mut links, read_golden("qdisc-blocks"));
    let to = IngressQdisc::CLSACT.with_ingress_block(Block(7)).with_egress_block(Block(8));
    let port = links.named("v0").unwrap().port();
    assert_eq!(events, [Event::QdiscReplaced { port, from: IngressQdisc::CLSACT, to, by: Some(77) }]);
    // The same again, as after a question of somebody else.
    assert_eq!(apply(&mut links, read_golden("qdisc-blocks")), []);
}

#[test]
fn what_goes_twice_or_was_never_there_is_told_once_or_never() {
    let mut links = Links::default();
    assert_eq!(apply(&mut links, Notice::LinkGone(Ifindex(3), None)), []);
    assert_eq!(apply(&mut links, Notice::QdiscGone(Ifindex(3), 0)), []);
    apply(&mut links, read_golden("link-veth"));
    let (_, link) = golden("link-veth");
    let gone = || read(17, &link).unwrap().unwrap();
    assert!(matches!(apply(&mut links, gone())[..], [Event::Gone(_)]));
    assert_eq!(apply(&mut links, gone()), []);
}

#[test]
fn a_list_that_is_the_same_changes_nothing_and_an_empty_one_takes_all() {
    let mut links = Links::default();
    let names = ["link-lo", "link-veth", "link-vxlan", "link-plug"];
    let snapshot = || Snapshot {
        devices: names.map(read_device).into(),
        qdiscs: vec![(Ifindex(3), IngressQdisc::CLSACT)],
        ..Snapshot::default()
    };
    let mut events = vec![];
    links.become_equal(snapshot(), &mut events);
    let appeared = events.iter().filter(|event| matches!(event, Event::Appeared(_))).count();
    assert_eq!((appeared, events.len()), (4, 5));
    events.clear();
    links.become_equal(snapshot(), &mut events);
    assert_eq!(events, []);
    links.become_equal(Snapshot::default(), &mut events);
    let gone = events.iter().filter(|event| matches!(event, Event::Gone(_))).count();
    assert_eq!((gone, events.len(), links.iter().count()), (4, 4, 0));
}
