//! The install path: batches, errors among them, replacement, and what `tc` makes of our rules.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_flow::action::ActionList;
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::context::Features;
use sluice_offload_tc::dump::Detail;
use sluice_offload_tc::install::{Done, Installer, Request, flags};
use sluice_offload_tc::label::Label;
use sluice_offload_tc::probe;
use sluice_offload_tc::wire::action::Operation;
use sluice_offload_tc::wire::filter::Filter;
use sluice_offload_tc::wire::flower;
use sluice_offload_tc::wire::rule_view::RuleView;

use crate::classifier::{Classifier, EXISTS, run};
use crate::flows::{at, output};
use crate::kernels;
use crate::packets::{Ipv4, udp};
use crate::play::{Check, flow, play_checks};
use crate::report::Report;

/// More than two batches, and not a whole number of them.
const MANY: u32 = 150;
const NO_ENTRY: i32 = 2;
const NOT_SUPPORTED: i32 = 95;

const CHECKS: &[(&str, Check)] = &[
    ("install: a probe finds what this Linux can match, and leaves nothing behind", probed),
    ("install: every rule of many batches is there once, as tc shows it", many),
    ("install: an error among many is that of its own request", errors),
    ("install: a replaced rule does the new thing, and is one", replaced),
    ("install: what hardware alone shall take is refused in the kernel's words", hardware_only),
    ("install: where software takes a rule, it says that hardware has not", anyone),
];

pub(crate) fn play(classifier: &mut Classifier, report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) {
    play_checks(CHECKS, classifier, report, is_wanted);
}

fn filters(classifier: &mut Classifier) -> Vec<Filter> {
    let actions: ActionList = [output(2)].into();
    (1..=MANY).map(|number| one(classifier, number, &actions)).collect()
}

/// The rule for what goes to an address.
fn one(classifier: &mut Classifier, number: u32, actions: &ActionList) -> Filter {
    let matching = at(1).ipv4(17).is(Field::Ipv4Dst, number).done();
    classifier.filter(&flow(&matching, actions), number).expect("a rule")
}

fn probed(classifier: &mut Classifier) -> Result<(), String> {
    let hook = classifier.devices.ports[&PortNumber(1)].hook();
    let found = probe::features(&mut classifier.installer, hook).map_err(|refusal| refusal.to_string())?;
    let mut left = 0;
    classifier.list(Detail::Terse, &mut |_| left += 1);
    ensure(left == 0, || format!("{left} rules are left"))?;
    let kernel = kernels::release();
    let since = |version| kernel >= version;
    let expected = Features {
        number_of_tags: since((6, 0)),
        pppoe: since((6, 0)),
        l2tpv3: since((6, 1)),
        cfm: since((6, 5)),
        spi: since((6, 6)),
        connection_helpers: since((6, 2)),
        no_fragment: since((6, 3)),
        tunnel_flags: since((6, 11)),
    };
    ensure(found == expected, || format!("{found:?} in Linux {kernel:?}"))
}

fn many(classifier: &mut Classifier) -> Result<(), String> {
    let filters = filters(classifier);
    let requests: Vec<_> = filters.iter().cloned().map(Request::Add).collect();
    let results = classifier.installer.submit(&requests);
    ensure(results.iter().all(Result::is_ok), || format!("{results:?}"))?;
    let mut ours = BTreeSet::new();
    classifier.list(Detail::Terse, &mut |view| {
        let rule = RuleView::new(view).expect("a rule");
        let label = Label::read(rule.cookies).expect("our notes");
        ours.insert((
            rule.id.chain,
            rule.id.priority,
            rule.id.handle,
            format!("{:032x}", { label.ufid.expect("a UFID").0 }),
        ));
    });
    let shown = run("tc", &["-s", "-d", "-j", "filter", "show", "dev", "lab1", "ingress"]);
    let shown: Vec<Value> = serde_json::from_str(&shown).map_err(|error| format!("{error}: {shown}"))?;
    let theirs = shown.iter().filter_map(|filter| {
        let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let options = filter.get("options")?;
        let cookie = options["actions"][0]["cookie"].as_str()?.to_owned();
        let priority = u16::try_from(filter["pref"].as_u64()?).ok()?;
        Some((number(&filter["chain"])?, priority, number(&options["handle"])?, cookie))
    });
    let theirs: BTreeSet<_> = theirs.collect();
    let deletions: Vec<_> = filters.iter().map(|filter| Request::Delete(filter.id)).collect();
    let deleted = classifier.installer.submit(&deletions);
    ensure(deleted.iter().all(Result::is_ok), || format!("{deleted:?}"))?;
    ensure(ours.len() == MANY as usize, || format!("{} rules", ours.len()))?;
    ensure(ours == theirs, || format!("ours {ours:?}\n  tc's {theirs:?}"))?;
    let mut left = 0;
    classifier.list(Detail::Terse, &mut |_| left += 1);
    ensure(left == 0, || format!("{left} rules are left"))
}

fn errors(classifier: &mut Classifier) -> Result<(), String> {
    const NOWHERE: u32 = 99_999;
    let mut filters = filters(classifier);
    // Of the first batch, of the second, and the very last, whose answer ends the wait.
    let broken = [3, 70, MANY as usize - 1];
    for at in broken {
        for action in &mut filters[at].flower.actions {
            if let Operation::Mirred { interface, .. } = &mut action.operation {
                *interface = NOWHERE;
            }
        }
    }
    let twice = [filters[5].clone(), filters[64].clone()];
    let requests: Vec<_> = twice.into_iter().chain(filters.iter().cloned()).map(Request::Add).collect();
    let results = classifier.installer.submit(&requests);
    let failed: Vec<_> = results.iter().enumerate().filter(|(_, result)| result.is_err()).collect();
    let places: Vec<_> = failed.iter().map(|(at, _)| *at).collect();
    // Two came before all others.
    ensure(places == [5, 7, 66, 72, MANY as usize + 1], || format!("{failed:?}"))?;
    for (at, result) in failed {
        let is_right = match result {
            Err(Refusal::Kernel { errno, message }) if [7, 66].contains(&at) => *errno == EXISTS && !message.is_empty(),
            Err(Refusal::Kernel { message, .. }) => message.contains("mirred") || message.contains("device"),
            _ => false,
        };
        ensure(is_right, || format!("{at}: {result:?}"))?;
    }
    let deletions: Vec<_> = filters.iter().map(|filter| Request::Delete(filter.id)).collect();
    let deleted = classifier.installer.submit(&deletions);
    let missing = deleted.iter().filter(|result| matches!(result, Err(Refusal::Kernel { errno: NO_ENTRY, .. })));
    ensure(missing.count() == broken.len(), || format!("{deleted:?}"))
}

fn replaced(classifier: &mut Classifier) -> Result<(), String> {
    let frame = Ipv4 { target: [0, 0, 0, 9], ..Ipv4::default() }.frame(17, &udp(1, 2, b"data"));
    let leaves_by = |classifier: &mut Classifier| -> Vec<PortNumber> {
        classifier.inject(PortNumber(1), &frame, 1).into_keys().collect()
    };
    let filter = one(classifier, 9, &[output(2)].into());
    classifier.add(&filter).map_err(|refusal| refusal.to_string())?;
    let before = leaves_by(classifier);
    let replacement = one(classifier, 9, &[output(3)].into());
    let result = classifier.installer.submit(&[Request::Replace(replacement.clone())]);
    ensure(matches!(&result[..], [Ok(Done { warning: None, .. })]), || format!("{result:?}"))?;
    let after = leaves_by(classifier);
    ensure((before, after.clone()) == (vec![PortNumber(2)], vec![PortNumber(3)]), || format!("{after:?}"))?;
    let found = classifier.installer.find(filter.id).map_err(|error| error.to_string())?;
    let interface = |filter: &Filter| match filter.flower.actions.last().map(|action| action.operation.clone()) {
        Some(Operation::Mirred { interface, .. }) => Some(interface),
        _ => None,
    };
    ensure(found.as_ref().and_then(interface) == interface(&replacement), || format!("{found:?}"))
}

fn hardware_only(classifier: &mut Classifier) -> Result<(), String> {
    let mut filter = one(classifier, 9, &[output(2)].into());
    filter.flower.flags = flags(OffloadPolicy::SkipSoftware);
    let mut installer = Installer::open(OffloadPolicy::SkipSoftware).map_err(|error| error.to_string())?;
    let result = installer.submit(&[Request::Add(filter.clone())]);
    let is_right =
        matches!(&result[..], [Err(Refusal::Kernel { errno: NOT_SUPPORTED, message })] if !message.is_empty());
    ensure(is_right, || format!("{result:?}"))?;
    let found = installer.find(filter.id).map_err(|error| error.to_string())?;
    ensure(found.is_none(), || "the rule is there all the same".into())
}

fn anyone(classifier: &mut Classifier) -> Result<(), String> {
    let mut filter = one(classifier, 9, &[output(2)].into());
    filter.flower.flags = flags(OffloadPolicy::Any);
    let mut installer = Installer::open(OffloadPolicy::Any).map_err(|error| error.to_string())?;
    let result = installer.submit(&[Request::Add(filter.clone())]);
    ensure(matches!(&result[..], [Ok(_)]), || format!("{result:?}"))?;
    let mut flags = 0;
    classifier.list(Detail::Terse, &mut |view| flags = RuleView::new(view).expect("a rule").flags);
    let removed = installer.submit(&[Request::Delete(filter.id)]);
    ensure(matches!(&removed[..], [Ok(_)]), || format!("{removed:?}"))?;
    ensure(flags & (flower::flag::NOT_IN_HW | flower::flag::IN_HW) == flower::flag::NOT_IN_HW, || format!("{flags:#x}"))
}

fn ensure(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}
