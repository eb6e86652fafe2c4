//! What is not taken, and in whose words: the kernel's own where it refuses, ours where it is not asked.

use std::process::Command;

use sluice_flow::action::{Action, ActionList};
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::install::{Installer, Request, flags};
use sluice_offload_tc::priorities::Priorities;
use sluice_offload_tc::wire::action::{Action as TcAction, Control, MAX_ACTIONS, Operation};
use sluice_offload_tc::wire::filter::{Filter, Hook};

use crate::classifier::{Classifier, run};
use crate::flows::{at, output, recirc, set};
use crate::play::flow;
use crate::report::Report;

const NO_ENTRY: i32 = 2;
const NO_DEVICE: i32 = 19;
const INVALID: i32 = 22;
const NOT_SUPPORTED: i32 = 95;

type Check = fn(&mut Classifier) -> Result<String, String>;

const CHECKS: &[(&str, Check)] = &[
    ("refused: hardware alone on a veth, which has none", veth),
    ("refused: an action whose module is not there", module),
    ("refused: a state that no connection has", state),
    ("refused: a device that is gone", device),
    ("refused: an action that lacks an argument", argument),
    ("refused: more Ethernet types at a time than there are priorities for", ethernet_types),
    ("refused: more actions than a rule can have, of which the kernel leaves out the last in silence", actions),
    ("refused: a chain beyond the last one", chain),
    ("refused: a rule where the hooks are gone", hooks),
];

pub(crate) fn play(classifier: &mut Classifier, report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    for (name, check) in CHECKS.iter().filter(|(name, _)| is_wanted(name)) {
        classifier.clear();
        match check(classifier) {
            Ok(words) => report.pass(&format!("{name}: {words:?}")),
            Err(reason) => report.fail(format!("{name}: {reason}")),
        }
    }
}

/// The words of the kernel, if it refuses with a number.
fn words(result: Result<(), Refusal>, wanted: i32, part: &str) -> Result<String, String> {
    match result {
        Err(Refusal::Kernel { errno, message }) if errno == wanted && message.contains(part) => Ok(message),
        other => Err(format!("{other:?} instead of {wanted} with {part:?}")),
    }
}

/// Our own words, if a limit is what is in the way.
fn limit(result: Result<(), Refusal>) -> Result<String, String> {
    match result {
        Err(refusal) if refusal.label() == "limit" => Ok(refusal.to_string()),
        other => Err(format!("{other:?} instead of a limit")),
    }
}

fn rule(classifier: &mut Classifier, actions: ActionList) -> Result<Filter, String> {
    let matching = at(1).ipv4(17).done();
    classifier.filter(&flow(&matching, &actions), 1).map_err(|refusal| refusal.to_string())
}

fn veth(classifier: &mut Classifier) -> Result<String, String> {
    run("ip", &["link", "add", "refused0", "type", "veth", "peer", "name", "refused1"]);
    let index = std::fs::read_to_string("/sys/class/net/refused0/ifindex").map_err(|error| error.to_string())?;
    let interface = index.trim().parse().map_err(|_| index.clone())?;
    let mut filter = rule(classifier, [output(2)].into())?;
    filter.id.hook = Hook::Ingress { interface };
    filter.flower.flags = flags(OffloadPolicy::SkipSoftware);
    let mut installer = Installer::open(OffloadPolicy::SkipSoftware).map_err(|error| error.to_string())?;
    installer.make_hooks(interface).map_err(|refusal| refusal.to_string())?;
    let result = installer.submit(&[Request::Add(filter)]).pop().map_or(Ok(()), |result| result.map(drop));
    run("ip", &["link", "del", "refused0"]);
    words(result, NOT_SUPPORTED, "")
}

fn module(classifier: &mut Classifier) -> Result<String, String> {
    const LOADER: &str = "/proc/sys/kernel/modprobe";
    let filter = rule(classifier, [Action::Psample { group: 5, cookie: [].into() }, output(2)].into())?;
    let loader = std::fs::read_to_string(LOADER).map_err(|error| error.to_string())?;
    run("modprobe", &["--remove", "act_sample"]);
    std::fs::write(LOADER, "/bin/false").map_err(|error| error.to_string())?;
    let result = classifier.add(&filter);
    std::fs::write(LOADER, loader.trim()).map_err(|error| error.to_string())?;
    run("modprobe", &["act_sample"]);
    let refused = words(result, NO_ENTRY, "module")?;
    // With the module the same rule is taken.
    classifier.add(&filter).map_err(|refusal| refusal.to_string())?;
    Ok(refused)
}

fn state(classifier: &mut Classifier) -> Result<String, String> {
    const TRACKED_NEW_ESTABLISHED: u8 = 0x23;
    let states = TRACKED_NEW_ESTABLISHED;
    let matching = at(1).ipv4(17).masked(Field::CtState, states, states).done();
    let filter = classifier.filter(&flow(&matching, &[output(2)].into()), 1).map_err(|refusal| refusal.to_string())?;
    words(classifier.add(&filter), INVALID, "mutually exclusive")
}

fn device(classifier: &mut Classifier) -> Result<String, String> {
    const NOWHERE: u32 = 99_999;
    let mut filter = rule(classifier, [output(2)].into())?;
    filter.id.hook = Hook::Ingress { interface: NOWHERE };
    words(classifier.add(&filter), NO_DEVICE, "")
}

fn argument(classifier: &mut Classifier) -> Result<String, String> {
    let mut filter = rule(classifier, [output(2)].into())?;
    // An outer header without addresses; translation lets no such one through.
    filter.flower.actions.insert(2, TcAction::new(Operation::TunnelSet(Box::default()), Control::Pipe));
    words(classifier.add(&filter), INVALID, "ipv4 or ipv6")
}

fn ethernet_types(_: &mut Classifier) -> Result<String, String> {
    let mut priorities = Priorities::default();
    let found = (0x9000..).find_map(|protocol| priorities.acquire(Priority::default(), protocol).err());
    limit(found.map_or(Ok(()), Err))
}

fn actions(classifier: &mut Classifier) -> Result<String, String> {
    let many: Vec<_> = (0..=MAX_ACTIONS).map(|_| output(2)).collect();
    let refusal = classifier.filter(&flow(&at(1).ipv4(17).done(), &many.into()), 1).map(drop);
    let ours = limit(refusal)?;
    let mut filter = rule(classifier, [output(2)].into())?;
    let last = filter.flower.actions.pop().ok_or("no action")?;
    filter.flower.actions.resize(MAX_ACTIONS, TcAction::new(Operation::Generic, Control::Pipe));
    filter.flower.actions.push(last);
    // The kernel passes over what is behind the last place, and says nothing: nobody but us refuses.
    classifier.add(&filter).map_err(|refusal| refusal.to_string())?;
    let found = classifier.installer.find(filter.id).map_err(|error| error.to_string())?;
    let count = found.map_or(0, |found| found.flower.actions.len());
    if count == MAX_ACTIONS { Ok(ours) } else { Err(format!("{count} actions are in the kernel")) }
}

fn chain(classifier: &mut Classifier) -> Result<String, String> {
    const BEYOND: u32 = Control::NUMBER_LIMIT + 1;
    let to = flow(&at(1).ipv4(17).done(), &[recirc(BEYOND)].into());
    limit(classifier.filter(&to, 1).map(drop))?;
    let matching = at(1).ipv4(17).chain(BEYOND).done();
    let actions = [set(&[(Field::SkbPriority, 1, Field::SkbPriority.full_mask())]), Action::Recirc(ChainId(1))].into();
    limit(classifier.filter(&flow(&matching, &actions), 1).map(drop))
}

fn hooks(classifier: &mut Classifier) -> Result<String, String> {
    let filter = rule(classifier, [output(2)].into())?;
    let name = classifier.devices.name(classifier.devices.ports[&PortNumber(1)].interface);
    let deleted = Command::new("tc").args(["qdisc", "del", "dev", &name, "clsact"]).status();
    deleted.map_err(|error| error.to_string())?;
    let refused = words(classifier.add(&filter), INVALID, "");
    let interface = classifier.devices.ports[&PortNumber(1)].interface;
    classifier.installer.make_hooks(interface).map_err(|refusal| refusal.to_string())?;
    classifier.add(&filter).map_err(|refusal| refusal.to_string())?;
    refused
}
