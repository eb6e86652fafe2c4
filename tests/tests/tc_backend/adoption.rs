//! Rules that outlive who put them in.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_flow::ChainId;
use sluice_flow::backend::{Adoption, Claims, DeviceEvent, Holding, InstalledRule, Owner, Placement};
use sluice_flow::flow::Flow;
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::ufid::Ufid;
use sluice_offload_tc::OffloadPolicy;

use crate::device::{Device, Rule, TO_A, TO_B, flow};
use crate::network::{FRAME, Network, missing};
use crate::stories;

stories![
    a_stream_loses_nothing_while_its_rule_goes_from_one_run_to_the_next,
    rules_that_hardware_may_take_have_no_action_of_ours_and_are_adopted_by_what_they_match,
    rules_that_nobody_claims_are_taken_out,
    a_rule_of_ours_that_cannot_be_read_is_taken_out,
    chains_go_on_in_the_next_run,
    rules_that_are_as_wanted_are_taken_over_by_their_notes_with_what_they_counted,
    a_rule_that_is_not_as_wanted_any_more_is_shown_as_it_is,
    rules_of_another_agent_and_of_tc_are_named_and_left,
    rules_among_filters_of_other_classifiers_are_counted_taken_over_and_taken_out,
    rules_that_another_agent_left_are_owned_before_they_are_written_anew,
    a_rule_of_ours_that_no_flow_has_is_listed_and_can_be_taken_out,
];

const NEW: FlowId = FlowId { slot: 77, incarnation: 3 };

fn a_stream_loses_nothing_while_its_rule_goes_from_one_run_to_the_next(network: &Network) {
    let mut first = Device::open();
    first.install(TO_B, "2").unwrap();
    let odd = first.install("in_port(1),eth_type(0x9000)", "2").unwrap();
    assert_eq!(network.send(0, 10).len(), 10);
    let is_over = AtomicBool::new(false);
    let (sent, arrived) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| network.hosts[1].receive(u32::MAX));
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                network.hosts[0].send(sent, Ipv4Addr::new(10, 0, 0, 2));
                sent += 1;
                std::thread::yield_now();
            }
            sent
        });
        drop(first);
        let mut second = Device::open();
        let adoption = second.adoption().adopt(&mut |rule: &InstalledRule| Some(claim(rule))).unwrap();
        assert_eq!(adoption, Adoption { adopted: 2, orphans: 0 });
        let listed = second.installed();
        let handle = listed.iter().find(|rule| rule.flow.actions.len() == 1 && id_of(rule) == NEW).unwrap().handle;
        let rule = Rule { id: NEW, handle, placement: odd.placement };
        second.modify(rule, TO_B, "2").unwrap();
        // The odd protocol keeps its place, and another one gets another.
        second.install("in_port(1),eth_type(0x9001)", "2").unwrap();
        second.install("in_port(1),eth_type(0x9000),eth(src=02:00:00:00:00:09)", "2").unwrap();
        is_over.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap();
        let arrived = receiver.join().unwrap();
        let (packets, _) = second.counted()[&NEW];
        assert!(packets + 1 >= u64::from(sent + 10) && packets <= u64::from(sent + 10), "{packets} of {sent} and 10");
        (sent, arrived)
    });
    assert_eq!(missing(&arrived, sent), [0; 0]);
}

/// The flow to the second host is `NEW`, another one something else.
fn id_of(rule: &InstalledRule) -> FlowId {
    let to_b = flow(TO_B, "2").is_same(&rule.flow);
    if to_b { NEW } else { FlowId { slot: 78, incarnation: 3 } }
}

fn claim(rule: &InstalledRule) -> (FlowId, Generation) {
    (id_of(rule), Generation(5))
}

fn rules_that_hardware_may_take_have_no_action_of_ours_and_are_adopted_by_what_they_match(network: &Network) {
    let mut first = Device::with_policy(OffloadPolicy::Any);
    first.meters().set_meter(&Meter::simple(MeterId(1), MeterUnit::Kilobits, 1_000_000, 1_000_000)).unwrap();
    let there = first.install(TO_B, "2").unwrap();
    let back = first.install(TO_A, "meter(1),1").unwrap();
    let unused = first.install("in_port(1),eth_type(0x9000)", "meter(1),2").unwrap();
    let edited = "in_port(1),eth_type(0x9001)";
    first.install(edited, "set(eth(src=02:00:00:00:00:09)),2").unwrap();
    assert_eq!(there.placement, Placement::Software);
    let shown = network.run("tc -s filter show dev p1 ingress");
    assert!(!shown.contains("gact") && shown.matches("action order").count() == 5, "{shown}");
    assert_eq!(network.send(0, 5).len(), 5);
    assert_eq!(network.send(1, 3).len(), 3);
    let counted = first.counted();
    assert_eq!((counted[&there.id], counted[&back.id].0), ((5, 5 * FRAME), 3));
    assert_eq!(counted[&unused.id], (0, 0), "what the meter counts for another rule is not this one's");
    let listed = first.installed();
    let listing = |key| listed.iter().find(|rule| rule.flow.is_same(&flow(key, "2"))).unwrap();
    assert_eq!((listed.len(), listing(TO_B).is_named, listing(TO_A).is_named), (4, false, false));
    assert_eq!((listing(edited).is_named, { listing(edited).flow.ufid }), (true, { flow(edited, "2").ufid }));
    drop(first);

    let mut second = Device::with_policy(OffloadPolicy::Any);
    let slots = std::cell::Cell::new(NEW.slot);
    let adoption = second.adoption().adopt(&mut |rule: &InstalledRule| {
        let is_new = rule.flow.is_same(&flow(TO_B, "2"));
        slots.set(slots.get() + 1);
        let slot = if is_new { NEW.slot } else { slots.get() };
        Some((FlowId { slot, ..NEW }, Generation(5)))
    });
    assert_eq!(adoption, Ok(Adoption { adopted: 4, orphans: 0 }));
    assert_eq!(network.send(0, 4).len(), 4);
    assert_eq!(second.counted()[&NEW], (9, 9 * FRAME), "the rule goes on counting");
    let handle = second.installed().iter().find(|rule| rule.flow.is_same(&flow(TO_B, "2"))).unwrap().handle;
    let rule = Rule { id: NEW, handle, placement: Placement::Software };
    second.modify(rule, TO_B, "set(ipv4(ttl=9)),2").unwrap();
    assert_eq!(network.send(0, 2).len(), 2);
    assert_eq!(second.counted()[&NEW], (11, 11 * FRAME));
    assert_eq!(second.backend.flush(), Ok(4));
}

/// A later build may have left it, with an action that this one does not know.
fn a_rule_of_ours_that_cannot_be_read_is_taken_out(network: &Network) {
    let mut first = Device::open();
    first.install(TO_B, "2").unwrap();
    first.install(TO_A, "1").unwrap();
    drop(first);
    let shown = network.run("tc filter show dev p1 ingress");
    let mut words = shown.split_whitespace();
    let mut word = |name: &str| words.by_ref().skip_while(|word| *word != name).nth(1).unwrap().to_owned();
    let (preference, handle) = (word("pref"), word("handle"));
    let notes = [word("cookie"), word("cookie")].map(|cookie| format!("action gact pipe cookie {cookie}"));
    let name = format!("dev p1 ingress protocol ip pref {preference} handle {handle} flower");
    network.run(&format!("tc filter del {name}"));
    network.run(&format!("tc filter add {name} dst_ip 10.0.0.2 {} action simple sdata odd", notes.join(" ")));
    let second = Device::open();
    let adopted = second.adoption().adopt(&mut |rule: &InstalledRule| Some(claim(rule)));
    assert_eq!(adopted, Ok(Adoption { adopted: 1, orphans: 1 }));
    assert_eq!(network.run("tc filter show dev p1 ingress").trim(), "");
}

fn rules_that_nobody_claims_are_taken_out(network: &Network) {
    let mut first = Device::open();
    first.install(TO_B, "2").unwrap();
    first.install(TO_A, "1").unwrap();
    drop(first);
    let second = Device::open();
    let mut seen = vec![];
    let adoption = second.adoption().adopt(&mut |rule: &InstalledRule| {
        seen.push(rule.flow.clone());
        (id_of(rule) == NEW).then(|| claim(rule))
    });
    assert_eq!(adoption, Ok(Adoption { adopted: 1, orphans: 1 }));
    assert_eq!(seen.len(), 2);
    assert_eq!(second.installed().len(), 1);
    assert_eq!(network.run("tc filter show dev p2 ingress").trim(), "");
    assert_eq!(network.send(0, 2).len(), 2);
}

/// Flows that are wanted, and the rules that were shown.
#[derive(Default)]
struct WantedFlows {
    wanted: Vec<Flow>,
    shown: Vec<Flow>,
}

impl Claims for WantedFlows {
    fn wanted(&self, ufid: Ufid) -> Option<Flow> {
        self.wanted.iter().find(|flow| { flow.ufid } == ufid).cloned()
    }

    fn claim(&mut self, rule: &InstalledRule) -> Option<(FlowId, Generation)> {
        let (slot, _) = (0..).zip(&self.wanted).find(|(_, flow)| flow.is_same(&rule.flow))?;
        self.shown.push(rule.flow.clone());
        Some((FlowId { slot, incarnation: 1 }, Generation(1)))
    }
}

/// Whether a flow is among others as it is, by whatever name.
fn has(flows: &[Flow], wanted: &Flow) -> bool {
    flows.iter().any(|flow| flow.is_same(wanted) && flow.actions == wanted.actions)
}

fn rules_that_are_as_wanted_are_taken_over_by_their_notes_with_what_they_counted(network: &Network) {
    let mut first = Device::open();
    first.install(TO_B, "2").unwrap();
    first.install(TO_A, "set(eth(src=02:00:00:00:00:09)),1").unwrap();
    drop(first);
    assert_eq!(network.send(0, 3).len(), 3);
    // The first action of a rule, which has its notes, is a pass.
    let index = network.run("tc actions list action gact");
    let index = index.split_once("index ").unwrap().1.split_whitespace().next().unwrap();
    network.run(&format!("tc actions change action gact continue index {index}"));
    let mut second = Device::open();
    let wanted = [flow(TO_B, "2"), flow(TO_A, "set(eth(src=02:00:00:00:00:09)),1")];
    let mut claims = WantedFlows { wanted: wanted.to_vec(), ..WantedFlows::default() };
    assert_eq!(second.adoption().adopt(&mut claims), Ok(Adoption { adopted: 2, orphans: 0 }));
    assert!(wanted.iter().all(|wanted| has(&claims.shown, wanted)), "what was changed behind our back is not read");
    let listed: Vec<_> = second.installed().into_iter().map(|rule| rule.flow).collect();
    assert_eq!(wanted.map(|wanted| has(&listed, &wanted)), [false, true], "but an audit sees it: {listed:?}");
    let to_b = FlowId { slot: 0, incarnation: 1 };
    assert_eq!(network.send(1, 2).len(), 2);
    let [first_round, later] = [second.counted(), second.counted()];
    assert_eq!((first_round[&to_b].0, later[&to_b].0), (3, 3));
    let to_a = FlowId { slot: 1, ..to_b };
    assert_eq!((first_round[&to_a].0, later[&to_a].0), (0, 2), "the first round is what was listed at the start");
}

fn a_rule_that_is_not_as_wanted_any_more_is_shown_as_it_is(network: &Network) {
    let mut first = Device::open();
    first.install(TO_B, "2").unwrap();
    first.install(TO_A, "1").unwrap();
    first.install("in_port(1),eth_type(0x0806)", "2").unwrap();
    drop(first);
    let second = Device::open();
    let mut claims = WantedFlows { wanted: vec![flow(TO_B, "1"), flow(TO_A, "1")], ..WantedFlows::default() };
    assert_eq!(second.adoption().adopt(&mut claims), Ok(Adoption { adopted: 2, orphans: 1 }));
    assert_eq!(claims.shown.len(), 2);
    assert!(has(&claims.shown, &flow(TO_B, "2")), "its old actions: {:?}", claims.shown);
    assert_eq!(network.run("tc filter show dev p1 ingress").matches("eth_type").count(), 1, "no ARP any more");
}

fn chains_go_on_in_the_next_run(network: &Network) {
    let mut first = Device::open();
    for chain in [7, 8] {
        first.open_chain(ChainId(chain));
    }
    first.install("recirc_id(7),in_port(1),eth_type(0x0800)", "2").unwrap();
    first.install(TO_B, "recirc(7)").unwrap();
    first.install(TO_A, "recirc(8)").unwrap();
    drop(first);
    let mut second = Device::open();
    let is_kept = |rule: &InstalledRule| rule.flow.jumps() != [ChainId(8)];
    let slots = std::cell::Cell::new(10);
    let adopted = second.adoption().adopt(&mut |rule: &InstalledRule| {
        slots.set(slots.get() + 1);
        is_kept(rule).then_some((FlowId { slot: slots.get(), incarnation: 1 }, Generation(1)))
    });
    assert_eq!(adopted, Ok(Adoption { adopted: 2, orphans: 1 }));
    assert_eq!(network.run("tc filter show dev p2 ingress").trim(), "", "the end of a chain that nobody jumps to goes");
    assert_eq!(network.send(0, 3).len(), 3);
    second.open_chain(ChainId(7));
    second.install("in_port(1),eth_type(0x0806)", "recirc(7)").unwrap();
    let ends = network.run("tc filter show dev p1 ingress chain 7");
    assert_eq!(ends.matches("gact action pass").count(), 1, "{ends}");
}

fn rules_of_another_agent_and_of_tc_are_named_and_left(network: &Network) {
    let mut other = Device::bare(OffloadPolicy::SkipHardware, Owner(0xbeef));
    other.attach(1);
    other.attach(2);
    other.install(TO_A, "1").unwrap();
    network.run("tc filter add dev p1 ingress protocol ip pref 5 flower dst_ip 192.0.2.1 action drop");
    network.run("tc filter add dev p1 ingress pref 6 matchall action continue");
    let mut device = Device::open();
    assert_eq!(device.adoption().adopt(&mut |_: &InstalledRule| panic!("none is ours")), Ok(Adoption::default()));
    let foreign = device.foreign();
    assert_eq!(foreign.len(), 3, "{foreign:#?}");
    let has = |words: &str| assert!(foreign.iter().any(|filter| filter.contains(words)), "{words}: {foreign:#?}");
    has("filter dev p1 ingress protocol ip pref 5 chain 0 flower handle 0x1");
    has("filter dev p1 ingress protocol all pref 6 chain 0 matchall handle 0x1");
    has("(of another agent, 0000beef)");
    // Of the same name in the kernel as the other agent's.
    let rules: Vec<_> = (0..100)
        .map(|number| device.install(&format!("in_port(2),eth_type(0x0800),ipv4(dst=10.9.0.{number})"), "1").unwrap())
        .collect();
    assert_eq!(device.installed().len(), rules.len());
    assert_eq!(device.backend.flush(), Ok(rules.len()));
    assert_eq!(device.foreign(), foreign);
    assert_eq!(network.send(1, 2).len(), 2, "the other agent's rule works");
}

/// Most of them have the kernel end a terse listing where it comes to them.
fn rules_among_filters_of_other_classifiers_are_counted_taken_over_and_taken_out(network: &Network) {
    network.run("tc qdisc add dev p1 clsact");
    network.run("tc filter add dev p1 ingress pref 1 protocol ip u32 match ip dst 192.0.2.1/32 action continue");
    network.run("tc filter add dev p1 ingress pref 2 matchall action continue");
    let mut first = Device::open();
    let rule = first.install(TO_B, "2").unwrap();
    first.install("in_port(1),eth_type(0x9000)", "2").unwrap();
    network.run("tc filter add dev p1 ingress pref 65000 protocol ip basic action continue");
    assert_eq!(network.send(0, 5).len(), 5);
    assert_eq!(first.counted().len(), 2);
    assert_eq!(first.counted()[&rule.id], (5, 5 * FRAME));
    assert!(first.events().iter().all(|event| matches!(event, DeviceEvent::Changed { .. })), "no rule is lost");
    drop(first);

    let second = Device::open();
    let adopted = second.adoption().adopt(&mut |rule: &InstalledRule| Some(claim(rule)));
    assert_eq!(adopted, Ok(Adoption { adopted: 2, orphans: 0 }));
    assert_eq!(second.foreign().len(), 4, "{:#?}", second.foreign());
    assert_eq!(second.backend.flush(), Ok(2));
    let left = network.run("tc filter show dev p1 ingress");
    assert!(["u32", "matchall", "basic"].iter().all(|kind| left.contains(kind)) && !left.contains("flower"), "{left}");
}

fn rules_that_another_agent_left_are_owned_before_they_are_written_anew(network: &Network) {
    struct Heir;
    impl Claims for Heir {
        fn inherits(&mut self, holding: &Holding) -> bool {
            holding.mark == LOST.mark()
        }
        fn inherit(&mut self, rule: &InstalledRule) -> Option<(FlowId, Generation)> {
            rule.flow.is_same(&flow(TO_B, "2")).then(|| claim(rule))
        }
        fn wanted(&self, _: Ufid) -> Option<Flow> {
            None
        }
        fn claim(&mut self, rule: &InstalledRule) -> Option<(FlowId, Generation)> {
            panic!("{rule:?} is none of ours")
        }
    }
    const LOST: Owner = Owner(0xdead);

    let mut lost = Device::bare(OffloadPolicy::SkipHardware, LOST);
    lost.attach(1);
    lost.attach(2);
    lost.install(TO_B, "2").unwrap();
    lost.install(TO_A, "1").unwrap();
    drop(lost);
    let mut device = Device::open();
    assert_eq!(device.adoption().adopt(&mut Heir), Ok(Adoption { adopted: 1, orphans: 0 }));
    device.events();

    // No worker has got to it, and it is listed, counts and is missed by nobody.
    assert_eq!(network.send(0, 3).len(), 3);
    assert_eq!(device.counted()[&NEW], (3, 3 * FRAME));
    assert_eq!((device.events(), device.backend.resync()), (vec![], Ok(vec![])));
    let listed = device.installed();
    assert_eq!((listed.len(), id_of(&listed[0]), listed[0].is_current), (1, NEW, false));
    let mut read = Vec::new();
    device.audit().read_back(&[listed[0].handle], &mut |id, rule| read.push((id, rule.handle))).unwrap();
    assert_eq!(read, [(NEW, listed[0].handle)]);
    // What it did not take is the other's as before, and goes alone.
    let foreign = device.foreign();
    assert!(foreign.len() == 1 && foreign[0].contains("(of another agent, 0000dead)"), "{foreign:#?}");
    assert_eq!(device.adoption().remove_holding(LOST.mark()), Ok(1));
    assert_eq!((device.installed().len(), device.foreign().len()), (1, 0));
    let rule = Rule { id: NEW, handle: listed[0].handle, placement: listed[0].placement };
    device.modify(rule, TO_B, "2").unwrap();
    assert_eq!(device.backend.flush(), Ok(1));
}

fn a_rule_of_ours_that_no_flow_has_is_listed_and_can_be_taken_out(_: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, "2").unwrap();
    // Another run that did not end.
    let mut second = Device::open();
    let stray = second.installed().pop().unwrap();
    assert_ne!(stray.handle, rule.handle);
    second.audit().remove_stray(stray.handle).unwrap();
    assert!(second.installed().is_empty());
    assert!(second.audit().remove_stray(stray.handle).is_err());
    let rule = second.install(TO_B, "2").unwrap();
    assert_eq!(second.audit().remove_stray(rule.handle).unwrap_err().label(), "device", "it is a flow's");
    assert_eq!(second.installed().len(), 1);
}
