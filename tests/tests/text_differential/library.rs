//! `ODPFlow` of the PyPI package `ovs`, which reads the lines of a dump.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;

use serde_json::Value;
use sluice_flow::action::{ActionKind, Commit, FieldSet, Nat};
use sluice_flow::field::{Attribute, Field, FieldSpec, Form as TextForm};
use sluice_flow::text::{DumpLine, Statistics, Style, write_action, write_field_value, write_line};
use sluice_flow::{Action, MaskedKey, Match, Ufid};
use sluice_tests::daemon::{new_folder, repository, run};
use sluice_tests::generate::{Feature, Form, Profile, features, fields_beyond_ovs, fields_of};

use crate::{FLOWS, LeftOut, flows_under};

/// Says of each line what `ODPFlow` makes of it: the match and each set as values and masks in hexadecimal by their
/// path, numbers as numbers, lists of actions as lists of name and arguments; or why not.
const READER: &str = r#"
import json, netaddr, sys
from ovs.flow.decoders import EthMask, IntMask, IPMask
from ovs.flow.odp import ODPFlow

def plain(value):
    if isinstance(value, IntMask):
        return "%x/%x" % (value.value, value.mask)
    if isinstance(value, EthMask):
        return "%x/%x" % (value.eth.value, value.mask.value if value.mask else 2 ** 48 - 1)
    if isinstance(value, IPMask):
        return "%x/%x" % (int(value.ip), int(value.mask))
    if isinstance(value, netaddr.IPAddress):
        return "%x" % int(value)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [[[name, plain(inner)] for name, inner in action.items()][0] for action in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return "%x" % value
    return value

for line in open(sys.argv[1]):
    try:
        flow = ODPFlow(line.rstrip("\n"))
        print(json.dumps({"match": plain(flow.match), "actions": plain(flow.actions)}))
    except Exception as error:
        print(json.dumps({"error": repr(error.__cause__ or error)}))
"#;

/// Why a mask is not compared: `10.0.0.0/0.0.0.255` can be meant as the one or the other.
const HOST_MASK: &str = "the library takes a mask of ones at the end for its contrary";

#[test]
fn it_reads_our_lines_and_means_the_same() {
    let profile = Profile { name: "ODPFlow 3.5.1", ..Profile::everything() }
        .without("fields of ours", "it has the fields of OVS", fields_beyond_ovs())
        .without("two tags", "it reads no encap() within encap()", [Feature::Form(Form::TwoTags)])
        .without(
            "ct_tuple6()",
            "it calls the ports tcp_src and tcp_dst, as nobody else does, and with -m there are ports always",
            fields_of(Attribute::CtTuple6),
        )
        .without("time to live in nsh()", "it does not know the field", [Feature::Field(Field::NshTtl)])
        .without("set(nsh())", "it does not know the time to live", [Feature::Set(Attribute::Nsh)])
        .without("long options", "it reads 128 bits", [Feature::Form(Form::GeneveFull)])
        .without("headers as bytes()", "the form is our own", [Feature::Form(Form::PushBytes)])
        .without(
            "dec_ttl(), push_eth(), pop_mpls()",
            "it has no words for the first two, and stumbles over the third, OVS's own included",
            [ActionKind::DecTtl, ActionKind::PushEth, ActionKind::PopMpls].map(Feature::Action),
        );
    let flows = flows_under(profile, FLOWS);
    let folder = new_folder();
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("lines");
    let mut lines = String::new();
    for (number, flow) in (1u32..).zip(&flows) {
        let line = DumpLine {
            ufid: Ufid(number.into()),
            matching: &MaskedKey::new(&flow.matching),
            statistics: Statistics { packets: number.into(), ..Statistics::default() },
            offloaded: None,
            layer: "ovs",
            actions: &flow.actions,
            extra: "",
        };
        write_line(&mut lines, &line, &Style { more: number % 2 == 0, names: None }).unwrap();
        lines.push('\n');
    }
    std::fs::write(&file, &lines).unwrap();
    let read = run(Command::new(repository("target/venv/bin/python")).args(["-c", READER]).arg(&file));
    assert_eq!(read.code, Some(0), "{}", read.err);
    let _ = std::fs::remove_dir_all(folder);
    assert_eq!(read.out.lines().count(), flows.len());
    let mut comparison = Comparison { compared: 0, left_out: LeftOut::of(&[HOST_MASK]) };
    let mut wrong = BTreeMap::<String, (usize, String)>::new();
    for ((line, answer), flow) in lines.lines().zip(read.out.lines()).zip(&flows) {
        let answer: Value = serde_json::from_str(answer).unwrap();
        let judged = match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => comparison
                .matching(&flow.matching, &answer["match"])
                .and_then(|()| comparison.actions(&flow.actions, &answer["actions"])),
        };
        if let Err(problem) = judged {
            let what = problem.split(" is read as").next().unwrap().chars().take(70).collect();
            wrong.entry(what).or_insert_with(|| (0, format!("{problem}: {line}"))).0 += 1;
        }
    }
    println!("{} values are compared", comparison.compared);
    comparison.left_out.say();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

struct Comparison {
    compared: u64,
    left_out: LeftOut,
}

impl Comparison {
    /// Whether all that is matched has been read with this value and mask, and nothing else.
    fn matching(&mut self, full: &Match, read: &Value) -> Result<(), String> {
        let mut read = by_path(read);
        let found = features(full, &[]);
        let fields =
            found.iter().filter_map(|feature| if let Feature::Field(field) = feature { Some(*field) } else { None });
        let entry = if full.is_exactly(Field::Mpls3Present, 1) {
            "[3]"
        } else if full.is_exactly(Field::Mpls2Present, 1) {
            "[2]"
        } else {
            ""
        };
        for spec in fields.map(|field| field.spec()) {
            // Of a stack, the library keeps the last entry.
            let name = match (spec.attribute, spec.name.strip_suffix(entry)) {
                (Attribute::Mpls, Some(name)) if !name.contains('[') => name,
                (Attribute::Mpls, _) => continue,
                _ => spec.name,
            };
            let is_behind_tag = spec.attribute > Attribute::Vlan && full.is_exactly(Field::VlanPresent, 1);
            let path = match (spec.field, is_behind_tag) {
                (Field::VlanTpid, _) => "eth_type".to_owned(),
                (_, true) => format!("encap.{}", path(spec, name)),
                (_, false) => path(spec, name),
            };
            self.value(spec, &path, (full.key.get(spec.field), full.mask.get(spec.field)), &mut read)?;
        }
        let constrained = read.iter().find(|(_, value)| !value.ends_with("/0"));
        constrained.map_or(Ok(()), |(path, value)| Err(format!("{path} is not matched, but read: {value}")))
    }

    /// Whether a field has been read with this value and mask; what has been read is taken away.
    fn value(
        &mut self,
        spec: &FieldSpec,
        path: &str,
        (value, mask): (u128, u128),
        read: &mut BTreeMap<String, String>,
    ) -> Result<(), String> {
        match spec.form {
            TextForm::Presence | TextForm::Options => return Ok(()),
            // The bit is 1 wherever it is not written.
            _ if matches!(spec.field, Field::VlanCfi) && value == 1 => return Ok(()),
            _ => {}
        }
        let text = read.remove(path).ok_or_else(|| format!("{path} is not read"))?;
        match spec.form {
            // Names of flags are mere text for the library.
            TextForm::Flags(_) => return Ok(()),
            TextForm::Fragment => {
                let mut expected = String::new();
                write_field_value(&mut expected, spec.field, value, mask, &Style::default()).unwrap();
                return if text == expected { Ok(()) } else { Err(format!("{path} is read as {text}")) };
            }
            _ => {}
        }
        let number = |text: &str| u128::from_str_radix(text, 16).map_err(|error| format!("{path}: {text}: {error}"));
        let (read_value, read_mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value)?, number(mask)? & spec.field.full_mask()),
            None => (number(&text)?, spec.field.full_mask()),
        };
        let is_address = matches!(spec.form, TextForm::Ipv4 | TextForm::Ipv6);
        let read_mask = if is_address && mask != spec.field.full_mask() && mask & (mask + 1) == 0 && mask != 0 {
            self.left_out.count(HOST_MASK);
            mask
        } else {
            read_mask
        };
        self.compared += 1;
        if (read_value, read_mask) == (value, mask) { Ok(()) } else { Err(format!("{path} is read as {text}")) }
    }

    fn actions(&mut self, actions: &[Action], read: &Value) -> Result<(), String> {
        // Lists without an action are written in two ways, and read in two more.
        let empty = || Value::Array(Vec::new());
        let read =
            if *read == Value::Bool(true) || *read == serde_json::json!([["drop", true]]) { &empty() } else { read };
        let list = read.as_array().ok_or_else(|| format!("no list of actions: {read}"))?;
        if list.len() != actions.len() {
            return Err(format!("{} actions are read as {}", actions.len(), list.len()));
        }
        actions.iter().zip(list).try_for_each(|(action, read)| self.action(action, &read[0], &read[1]))
    }

    fn action(&mut self, action: &Action, name: &Value, read: &Value) -> Result<(), String> {
        let mut text = String::new();
        write_action(&mut text, action, &Style::default()).unwrap();
        // It knows no `pop_eth` and takes it for the name of a port.
        let is_output = matches!(action, Action::Output(_) | Action::PopEth);
        let expected = if is_output { "output" } else { text.split('(').next().unwrap() };
        if name != expected {
            return Err(format!("{expected} is read as {name}"));
        }
        let mut is = |read: &Value, expected: u128| {
            self.compared += 1;
            let same = read.as_str().and_then(|digits| u128::from_str_radix(digits, 16).ok()) == Some(expected);
            if same { Ok(()) } else { Err(format!("{expected:#x} of {name} is read as {read}")) }
        };
        match action {
            Action::Output(port) => is(&read["port"], port.0.into()),
            Action::Meter(meter) => is(read, meter.0.into()),
            Action::Recirc(chain) => is(read, chain.0.into()),
            Action::Trunc(length) => is(read, (*length).into()),
            Action::LbOutput(bond) => is(read, (*bond).into()),
            Action::TunnelPop(port) => is(read, port.0.into()),
            Action::PushVlan(tag) => {
                is(&read["vid"], tag.vid.into())?;
                is(&read["pcp"], tag.pcp.into())
            }
            Action::PushMpls(entry) | Action::AddMpls(entry) => {
                is(&read["label"], entry.label.into())?;
                is(&read["ttl"], entry.ttl.into())?;
                is(&read["eth_type"], entry.eth_type.into())
            }
            Action::PushNsh(header) => {
                is(&read["spi"], header.path.into())?;
                is(&read["si"], header.index.into())
            }
            Action::TunnelPush(push) => {
                is(&read["tnl_port"], push.tunnel_port.0.into())?;
                is(&read["out_port"], push.out_port.0.into())?;
                is(&read["header"]["size"], push.header.len() as u128)
            }
            Action::Userspace(up) => is(&read["pid"], up.pid.into()),
            Action::Psample { group, .. } => is(&read["group"], (*group).into()),
            Action::Conntrack(ct) => {
                if ct.zone != 0 {
                    is(&read["zone"], ct.zone.into())?;
                }
                let commits = [("commit", Commit::Yes), ("force_commit", Commit::Force)];
                let says = |word: &str| read[word] == Value::Bool(true);
                if let Some((word, _)) = commits.iter().find(|(word, commit)| says(word) != (ct.commit == *commit)) {
                    return Err(format!("{word} is read as {read}"));
                }
                let Some(Nat::New(nat)) = &ct.nat else { return Ok(()) };
                if let Some((first, last)) = nat.addresses {
                    let bits = |address| match address {
                        IpAddr::V4(address) => address.to_bits().into(),
                        IpAddr::V6(address) => address.to_bits(),
                    };
                    is(&read["nat"]["addrs"]["start"], bits(first))?;
                    is(&read["nat"]["addrs"]["end"], bits(last))?;
                }
                let Some((first, last)) = nat.ports else { return Ok(()) };
                is(&read["nat"]["ports"]["start"], first.into())?;
                is(&read["nat"]["ports"]["end"], last.into())
            }
            Action::Set(set) | Action::SetTunnel(set) => self.set(set, read),
            Action::Clone(list) => self.actions(list, read),
            Action::Sample { actions, .. } => self.actions(actions, &read["actions"]),
            Action::CheckPacketLength { length, greater, less_or_equal } => {
                is(&read["size"], (*length).into())?;
                self.actions(greater, &read["gt"])?;
                self.actions(less_or_equal, &read["le"])
            }
            _ => Ok(()),
        }
    }

    fn set(&mut self, set: &FieldSet, read: &Value) -> Result<(), String> {
        let mut read = by_path(read);
        for (field, value, mask) in &set.fields {
            let spec = field.spec();
            self.value(spec, &path(spec, spec.name), (*value, *mask), &mut read)?;
        }
        let rest = read.iter().find(|(_, value)| !value.ends_with("/0"));
        rest.map_or(Ok(()), |(path, value)| Err(format!("{path} is not set, but read: {value}")))
    }
}

/// Where the library keeps the value of a field.
fn path(spec: &FieldSpec, name: &str) -> String {
    match spec.attribute.name() {
        attribute if name.is_empty() => attribute.to_owned(),
        attribute => format!("{attribute}.{name}"),
    }
}

/// What has been read, by the names of the attributes and fields that lead to it. Options of Geneve are a list, which
/// is left out; flags without a value, too.
fn by_path(read: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), read)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(fields) => open.extend(fields.iter().map(|(name, value)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                (path, value)
            })),
            Value::String(text) => drop(found.insert(path, text.clone())),
            _ => {}
        }
    }
    found
}
