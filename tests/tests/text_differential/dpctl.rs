//! `ovs-dpctl`, which reads actions and writes them again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

use sluice_flow::Action;
use sluice_flow::action::{ActionKind, VlanTag, visit};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::text::parse_actions;
use sluice_tests::daemon::run;
use sluice_tests::generate::{Feature, Form, GeneratedFlow, Profile, fields_of};

use crate::{FLOWS, LeftOut, actions_text, flows_under, without_what_ovs_cannot_say};

/// Texts for one process: its arguments have room for some megabytes.
const BATCH: usize = 500;

#[test]
fn it_reads_our_actions_and_we_read_what_it_writes() {
    let profile = Profile { name: "ovs-dpctl parse-actions", ..Profile::everything() };
    let flows = flows_under(without_what_ovs_cannot_say(profile), FLOWS);
    let mut texts: BTreeMap<String, &GeneratedFlow> = BTreeMap::new();
    for flow in &flows {
        texts.insert(for_ovs(&actions_text(&flow.actions)), flow);
    }
    println!("{} different lists of actions", texts.len());
    let texts: Vec<_> = texts.into_iter().collect();
    let (mut left_out, mut compared) = (LeftOut::of(&WRITTEN_AS_ANOTHER), 0);
    for batch in texts.chunks(BATCH) {
        let ran = run(Command::new("ovs-dpctl").arg("parse-actions").args(batch.iter().map(|(text, _)| text)));
        let lines: Vec<_> = ran.out.lines().collect();
        assert_eq!(ran.code, Some(0), "{} {:?}", ran.err, batch.get(lines.len()));
        assert_eq!(lines.len(), batch.len());
        for (line, (text, flow)) in lines.into_iter().zip(batch) {
            if let Some(reason) = reason_to_leave_out(&flow.actions, line) {
                left_out.count(reason);
                continue;
            }
            let read = parse_actions(line, &())
                .unwrap_or_else(|error| panic!("{}\nwe write {text}\nOVS writes {line}", error.caret(line)));
            compared += 1;
            assert_eq!(read, flow.actions, "we write {text}\nOVS writes {line}");
        }
    }
    println!("{compared} of them are compared");
    left_out.say();
}

/// Why what OVS 3.1 writes of actions is not read, or something else.
pub(crate) const WRITTEN_AS_ANOTHER: [&str; 3] = [GARBLED, HARDWARE, ZEROS];
const GARBLED: &str = "OVS writes masks of set(tunnel()) as fields";
const HARDWARE: &str = "OVS keeps four of the six bits of a hardware id in set(tunnel(erspan()))";

const ZEROS: &str = "OVS writes no vxlan() or gtpu() of zeros in set(tunnel())";

/// Which of the reasons there is, if any, for what OVS has written of these actions.
pub(crate) fn reason_to_leave_out(actions: &[Action], written: &str) -> Option<&'static str> {
    let mut reason = is_garbled(written).then_some(GARBLED);
    visit(actions, &mut |action| {
        let Action::SetTunnel(set) = action else { return };
        let is_zero = |field| set.get(field).is_some_and(|(value, _)| value == 0);
        let zeros = is_zero(Field::VxlanGbpId) && is_zero(Field::VxlanGbpFlags)
            || is_zero(Field::GtpuFlags)
            || is_zero(Field::GtpuMessageType);
        let is_cut = set.get(Field::ErspanHardwareId).is_some_and(|(hardware, _)| hardware > 0xf);
        reason = reason.or(is_cut.then_some(HARDWARE)).or(zeros.then_some(ZEROS));
    });
    reason
}

/// Whether OVS 3.1 took a `set(tunnel())` for one under masks and wrote the masks as further fields: it compares sizes
/// of value and mask, from which it has left out fields that are zero (`format_odp_action` and `tun_key_to_attr`).
fn is_garbled(actions: &str) -> bool {
    actions.split("set(tunnel(").skip(1).any(|tunnel| {
        let (mut depth, mut names, mut name) = (0, BTreeSet::new(), String::new());
        for character in tunnel.chars() {
            match character {
                '(' | '{' => depth += 1,
                ')' if depth == 0 => break,
                ')' | '}' => depth -= 1,
                ',' if depth == 0 => name.clear(),
                // A field that comes again, flags under a mask, or a mask of options.
                '=' if depth == 0 && !names.insert(name.clone()) => return true,
                '+' | '-' if depth == 1 && name == "flags" => return true,
                '/' => return true,
                _ if depth == 0 => name.push(character),
                _ => {}
            }
        }
        false
    })
}

/// OVS writes the number of a chain in hexadecimal and reads it in decimal (`parse_odp_action` in `lib/odp-util.c`).
pub(crate) fn for_ovs(actions: &str) -> String {
    let mut parts = actions.split("recirc(0x");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once(')').unwrap();
        write!(text, "recirc({}){rest}", u32::from_str_radix(number, 16).unwrap()).unwrap();
    }
    text
}

/// Lists for `normalize-actions`, which takes one at a time.
const NORMALISED: usize = 400;

#[test]
fn it_knows_under_which_tags_each_of_our_actions_is_done() {
    use ActionKind as Kind;
    let kept =
        [Kind::Clone, Kind::Ct, Kind::Drop, Kind::Meter, Kind::Output, Kind::PopVlan, Kind::PushVlan, Kind::Trunc];
    let others = ActionKind::ALL.iter().filter(|kind| !kept.contains(kind));
    let tags = fields_of(Attribute::Vlan).chain(fields_of(Attribute::Cvlan));
    let forms = [Form::OneTag, Form::TwoTags, Form::ServiceTag, Form::UnconstrainedTag].map(Feature::Form);
    let tags = tags.filter(|field| *field != Feature::Field(Field::VlanPresent)).chain(forms);
    let profile = Profile { name: "ovs-dpctl normalize-actions", ..Profile::everything() }
        .without("other actions", "it does not look into them", others.map(|kind| Feature::Action(*kind)))
        .without("tags that are there", "it begins with a packet, not with a match", tags)
        .without("cfi=0", "it takes the tag for none", [Feature::Form(Form::PushTagWithoutCfi)]);
    let flows = flows_under(profile, FLOWS);
    let pushes = |action: &Action| matches!(action, Action::PushVlan(_));
    let pushing = flows.iter().filter(|flow| flow.actions.iter().any(pushes));
    let texts: BTreeSet<_> = pushing.map(|flow| for_ovs(&actions_text(&flow.actions))).collect();
    assert!(texts.len() >= NORMALISED, "{}", texts.len());
    println!("{NORMALISED} of {} lists that push tags", texts.len());
    for text in texts.iter().step_by(texts.len() / NORMALISED).take(NORMALISED) {
        let ran = run(Command::new("ovs-dpctl").args(["normalize-actions", "in_port(1)", text]));
        let (_, said) = ran.out.split_once("input flow: in_port(1)\n").unwrap_or_else(|| panic!("{text}: {ran:?}"));
        let mut rest = said.trim_end().to_owned();
        for part in by_tags(&parse_actions(text, &()).unwrap()) {
            assert!(rest.contains(&part), "{text}\n{said}\n{part}");
            rest = rest.replacen(&part, "", 1);
        }
        assert_eq!(rest, "", "{text}\n{said}");
    }
}

/// The actions in groups, each behind the tags under which they are done, as `dpctl_normalize_actions` in `lib/dpctl.c`
/// prints them; longer ones first.
fn by_tags(actions: &[Action]) -> Vec<String> {
    let mut tags: Vec<VlanTag> = Vec::new();
    let mut groups: Vec<(Vec<VlanTag>, Vec<Action>)> = Vec::new();
    for action in actions {
        match action {
            Action::PushVlan(tag) => tags.push(*tag),
            Action::PopVlan => drop(tags.pop()),
            other => match groups.iter_mut().find(|(under, _)| *under == tags) {
                Some((_, group)) => group.push(other.clone()),
                None => groups.push((tags.clone(), vec![other.clone()])),
            },
        }
    }
    let mut parts: Vec<_> = groups.into_iter().map(|(tags, group)| part(&tags, group)).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    parts
}

fn part(tags: &[VlanTag], mut group: Vec<Action>) -> String {
    // It sorts outputs that follow each other.
    for outputs in group.chunk_by_mut(|a, b| matches!((a, b), (Action::Output(_), Action::Output(_)))) {
        outputs.sort_by_key(|action| if let Action::Output(port) = action { port.0 } else { 0 });
    }
    let mut text = String::new();
    for tag in tags.iter().rev() {
        // It forgets that the number is in network byte order.
        let tpid = if tag.tpid == 0x8100 { String::new() } else { format!("tpid={:#x},", tag.tpid.swap_bytes()) };
        write!(text, "vlan({tpid}vid={},pcp={}): ", tag.vid, tag.pcp).unwrap();
    }
    if tags.is_empty() {
        text.push_str("no vlan: ");
    }
    // What it prints of an empty list is read to the same as what we print.
    write!(text, "no mpls: {}", actions_text(&group).replace("clone()", "clone(drop)")).unwrap();
    text
}
