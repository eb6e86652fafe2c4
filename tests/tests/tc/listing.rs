//! Our own listing held against that of `tc`, rule by rule: chain, preference, handle, protocol, keys, actions, counters.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_offload_tc::context::{Device, DeviceKind};
use sluice_offload_tc::dump::Detail;
use sluice_offload_tc::wire::action::{
    Action, Command, Conntrack, Control, Encapsulation, Header, Mirred, Mpls, Operation, SkbEdit, Vlan, checksum,
    conntrack_bit,
};
use sluice_offload_tc::wire::filter::{Filter, Hook};
use sluice_offload_tc::wire::flower::Flower;
use sluice_offload_tc::wire::key::{Key, KeyMatch};
use sluice_offload_tc::wire::options::Options;

use crate::classifier::Classifier;
use crate::report::Report;

/// What `tc` of iproute2 6.1 does not show, though the kernel tells it.
const NOT_SHOWN: &[Key] = &[Key::EncUdpSrc, Key::EncFlags, Key::Hash, Key::L2Miss, Key::L2tpv3Session, Key::Spi];

/// Chain, preference and handle.
type Place = (u32, u16, u32);

/// Compares what both show of every device that has rules.
pub(crate) fn compare(classifier: &mut Classifier, name: &str, report: &mut Report) {
    let mut devices: BTreeMap<u32, BTreeMap<Place, Filter>> = BTreeMap::new();
    classifier.list(Detail::Full, &mut |view| {
        let filter = view.parse().expect("a rule of ours");
        let (Hook::Ingress { interface } | Hook::Egress { interface }) = filter.id.hook else { return };
        let place = (filter.id.chain, filter.id.priority, filter.id.handle);
        devices.entry(interface).or_default().insert(place, filter);
    });
    let mut compared = 0;
    for (interface, ours) in devices {
        let device = classifier.devices.name(interface);
        let hook = Device { interface, kind: DeviceKind::Wire }.hook();
        assert!(ours.values().all(|filter| filter.id.hook == hook), "all are at ingress");
        if ours.values().any(|filter| filter.flower.keys.iter().any(is_too_much_for_tc)) {
            report.not_shown(ours.len());
            continue;
        }
        let text = match classifier.tc.filters(&device) {
            Ok(text) => text,
            Err(words) => {
                report.shown_otherwise(name, &format!("{words}\n  {ours:?}"));
                continue;
            }
        };
        let shown: Vec<Value> = match serde_json::from_str(&text) {
            Ok(shown) => shown,
            Err(error) => {
                report.fail(format!("{name}: what tc shows of {device} is no JSON: {error}: {text}"));
                continue;
            }
        };
        let shown = shown.into_iter().filter(|filter| filter.get("options").is_some());
        let mut theirs: BTreeMap<Place, Value> = shown.map(|filter| (place(&filter), filter)).collect();
        for (place, filter) in &ours {
            let name_of = |interface| classifier.devices.name(interface);
            match theirs.remove(place).map(|shown| differences(filter, &shown, &name_of)) {
                Some(differences) if differences.is_empty() => compared += 1,
                Some(differences) => {
                    report.shown_otherwise(name, &format!("{}\n  {filter:?}", differences.join("\n  ")))
                }
                None => report.shown_otherwise(name, &format!("tc does not show {filter:?}")),
            }
        }
        theirs.values().for_each(|shown| report.shown_otherwise(name, &format!("only tc shows {shown}")));
    }
    report.shown_alike(compared);
}

/// Whether `tc` writes a key into a buffer that is too small for it, and ends there: 64 bytes for an address of IPv6 and
/// a mask that is no prefix (`flower_print_ip_addr` of iproute2 6.1).
fn is_too_much_for_tc(matched: &KeyMatch) -> bool {
    let is_ipv6 = matches!(matched.key, Key::Ipv6Src | Key::Ipv6Dst | Key::EncIpv6Src | Key::EncIpv6Dst);
    is_ipv6 && matched.mask.leading_ones() + matched.mask.trailing_zeros() != 128
}

fn place(shown: &Value) -> Place {
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap_or_default()).unwrap_or_default();
    let preference = u16::try_from(number(&shown["pref"])).unwrap_or_default();
    (number(&shown["chain"]), preference, number(&shown["options"]["handle"]))
}

fn differences(filter: &Filter, shown: &Value, name_of: &dyn Fn(u32) -> String) -> Vec<String> {
    let mut found = vec![];
    let mut expect = |what: String, ours: Value, theirs: &Value| {
        if ours != *theirs {
            found.push(format!("{what}: {ours} and in tc {theirs}"));
        }
    };
    let options = &shown["options"];
    expect("protocol".into(), json!(filter.id.protocol), &json!(ethernet_type(&shown["protocol"])));
    let keys = options["keys"].as_object().cloned().unwrap_or_default();
    let ours: BTreeMap<_, _> =
        filter.flower.keys.iter().filter(|key| !NOT_SHOWN.contains(&key.key)).map(said).collect();
    let mut theirs = keys_shown(&keys);
    if let Some(options) = &filter.flower.options {
        for (value, part) in [(&options.value, "key"), (&options.mask, "mask")] {
            let (name, list) = options_shown(value);
            expect(format!("options, {part}"), list, &keys.get(&format!("{name}_{part}")).cloned().unwrap_or_default());
        }
    }
    theirs.retain(|name, _| !name.contains("_opt"));
    if !filter.flower.labels.is_empty() {
        theirs.remove("mpls");
        expect("labels".into(), labels(&filter.flower), &keys["mpls"]);
    }
    expect("keys".into(), json!(format!("{ours:x?}")), &json!(format!("{theirs:x?}")));
    let shown_actions = options["actions"].as_array().cloned().unwrap_or_default();
    expect("number of actions".into(), json!(filter.flower.actions.len()), &json!(shown_actions.len()));
    for (number, (action, shown)) in (1..).zip(filter.flower.actions.iter().zip(&shown_actions)) {
        let what = |part: &str| format!("action {number}, {part}");
        expect(what("kind"), json!(action.operation.name()), &shown["kind"]);
        expect(what("order"), json!(number), &shown["order"]);
        // Of a police, tc shows two under one name, of which the reader of JSON takes the last.
        let last = if let Operation::Police(police) = &action.operation { police.conform } else { action.control };
        expect(what("control"), control(last), &shown["control_action"]);
        let note = action.cookie.map(|cookie| json!(format!("{cookie:?}"))).unwrap_or_default();
        expect(what("note"), note, &shown.get("cookie").cloned().unwrap_or_default());
        let counted = action.statistics.unwrap_or_default().total;
        expect(what("packets"), json!(counted.packets), &shown["stats"]["packets"]);
        expect(what("bytes"), json!(counted.bytes), &shown["stats"]["bytes"]);
        if let Some(details) = details(action, name_of) {
            let mut rest = shown.as_object().cloned().unwrap_or_default();
            rest.retain(|name, _| !COMMON.contains(&name.as_str()));
            expect(what("arguments"), details, &Value::Object(rest));
        }
    }
    found
}

/// What `tc` shows of every action, or of none that we ask for.
const COMMON: &[&str] = &[
    "order",
    "kind",
    "control_action",
    "index",
    "ref",
    "bind",
    "installed",
    "last_used",
    "first_used",
    "used",
    "stats",
    "cookie",
    "prob",
    "no_percpu",
    "in_hw",
    "not_in_hw",
    "used_hw_stats",
    "hw_stats",
    "skip_hw",
];

fn control(control: Control) -> Value {
    match control {
        Control::Ok => json!({ "type": "pass" }),
        Control::Shot => json!({ "type": "drop" }),
        Control::Pipe => json!({ "type": "pipe" }),
        Control::Stolen => json!({ "type": "stolen" }),
        Control::GotoChain(chain) => json!({ "type": "goto", "chain": chain }),
        Control::Jump(actions) => json!({ "type": "jump", "jump": actions }),
        other => json!(format!("{other:?}")),
    }
}

/// The arguments of an action in the words of `tc`; `None` for what it cannot say in JSON.
fn details(action: &Action, name_of: &dyn Fn(u32) -> String) -> Option<Value> {
    Some(match &action.operation {
        Operation::Generic => json!({}),
        Operation::Mirred { to, interface } => {
            let (direction, what) = match to {
                Mirred::EgressRedirect => ("egress", "redirect"),
                Mirred::EgressMirror => ("egress", "mirror"),
                Mirred::IngressRedirect => ("ingress", "redirect"),
                Mirred::IngressMirror => ("ingress", "mirror"),
            };
            json!({ "mirred_action": what, "direction": direction, "to_dev": name_of(*interface) })
        }
        Operation::Vlan(Vlan::Pop) => json!({ "vlan_action": "pop" }),
        Operation::Vlan(Vlan::Push { protocol, id, priority }) => {
            let protocol = if *protocol == 0x8100 { "802.1Q" } else { "802.1ad" };
            json!({ "vlan_action": "push", "id": id, "protocol": protocol, "priority": priority })
        }
        Operation::Sample { rate, group, truncate } => {
            let mut shown = json!({ "rate": rate, "group": group });
            if let Some(bytes) = truncate {
                shown["trunc_size"] = json!(bytes);
            }
            shown
        }
        Operation::SkbEdit(edit) => skb_edit(edit),
        Operation::Checksum(what) => json!({ "csum": checksums(*what) }),
        Operation::Edit(keys) => {
            let keys = keys.iter().map(|key| {
                let command = if key.command == Command::Set { "set" } else { "add" };
                json!({
                    "htype": header(key.header), "offset": key.offset.cast_signed(), "cmd": command,
                    "val": format!("{:x}", key.value),
                    "mask": format!("{:x}", !key.mask),
                })
            });
            json!({ "nkeys": keys.len(), "keys": keys.collect::<Vec<_>>() })
        }
        Operation::Mpls(action) => mpls(action),
        Operation::TunnelRelease => json!({ "mode": "unset" }),
        Operation::TunnelSet(header) => tunnel(header),
        Operation::Conntrack(action) => conntrack(action),
        _ => return None,
    })
}

fn skb_edit(edit: &SkbEdit) -> Value {
    let mut shown = Map::new();
    if let Some(priority) = edit.priority {
        // As the class of a queueing discipline.
        let (major, minor) = (priority >> 16, priority & 0xffff);
        let text = match (major, minor) {
            (0, 0) => "none".into(),
            (0xffff, 0xffff) => "root".into(),
            (0, minor) => format!(":{minor:x}"),
            (major, 0) => format!("{major:x}:"),
            (major, minor) => format!("{major:x}:{minor:x}"),
        };
        shown.insert("priority".into(), json!(text));
    }
    if let Some((mark, mask)) = edit.mark {
        shown.insert("mark".into(), json!(mark));
        shown.insert("mask".into(), json!(format!("{mask:x}")));
    }
    if let Some(kind) = edit.packet_type {
        shown.insert("ptype".into(), json!(if kind == 0 { "host".into() } else { kind.to_string() }));
    }
    Value::Object(shown)
}

fn checksums(what: u32) -> String {
    let names = [
        (checksum::IPV4_HEADER, "iph"),
        (checksum::ICMP, "icmp"),
        (checksum::IGMP, "igmp"),
        (checksum::TCP, "tcp"),
        (checksum::UDP, "udp"),
        (checksum::UDP_LITE, "udplite"),
        (checksum::SCTP, "sctp"),
    ];
    let names: Vec<_> = names.iter().filter(|(bit, _)| what & bit != 0).map(|(_, name)| *name).collect();
    names.join(", ")
}

const fn header(header: Header) -> &'static str {
    match header {
        Header::Network => "network",
        Header::Ethernet => "eth",
        Header::Ipv4 => "ipv4",
        Header::Ipv6 => "ipv6",
        Header::Tcp => "tcp",
        Header::Udp => "udp",
    }
}

fn mpls(action: &Mpls) -> Value {
    let (what, entry) = match action {
        Mpls::Pop { protocol } => return json!({ "mpls_action": "pop", "protocol": name_of_type(*protocol) }),
        Mpls::DecrementTtl => return json!({ "mpls_action": "dec_ttl" }),
        Mpls::Push(entry) => ("push", entry),
        Mpls::Modify(entry) => ("modify", entry),
        Mpls::PushOutside(entry) => ("mac_push", entry),
    };
    let mut shown = json!({ "mpls_action": what });
    let fields = [
        ("protocol", entry.protocol.map(|protocol| json!(name_of_type(protocol)))),
        ("label", entry.label.map(|label| json!(label))),
        ("tc", entry.class.map(|class| json!(class))),
        ("bos", entry.bottom.map(|bottom| json!(u8::from(bottom)))),
        ("ttl", entry.ttl.map(|ttl| json!(ttl))),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            shown[name] = value;
        }
    }
    shown
}

fn tunnel(header: &Encapsulation) -> Value {
    let mut shown = json!({ "mode": "set" });
    let mut say = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            shown[name] = value;
        }
    };
    say("src_ip", header.ipv4.map(|(source, _)| json!(source.to_string())));
    say("dst_ip", header.ipv4.map(|(_, target)| json!(target.to_string())));
    say("src_ip", header.ipv6.map(|(source, _)| json!(source.to_string())));
    say("dst_ip", header.ipv6.map(|(_, target)| json!(target.to_string())));
    say("key_id", header.key.map(|key| json!(key)));
    say("dst_port", header.port.map(|port| json!(port)));
    say("flag", Some(json!(if header.no_checksum { "nocsum" } else { "csum" })));
    say("tos", header.tos.map(|tos| json!(tos)));
    say("ttl", header.ttl.map(|ttl| json!(ttl)));
    if let Some(options) = &header.options {
        let (name, list) = options_shown(options);
        say(&name.replace("_opt", "_opts"), Some(list));
    }
    shown
}

fn conntrack(action: &Conntrack) -> Value {
    let mut shown = Map::new();
    let has = |bit| action.bits & bit != 0;
    let mut say = |name: &str, value: Value| drop(shown.insert(name.into(), value));
    if has(conntrack_bit::CLEAR) {
        say("action", json!("clear"));
    } else if has(conntrack_bit::COMMIT) {
        say("action", json!(if has(conntrack_bit::FORCE) { "commit force" } else { "commit" }));
    }
    if let Some((mark, mask)) = action.mark {
        say("mark", json!(mark));
        if mask != u32::MAX {
            say("mark_mask", json!(format!("{mask:x}")));
        }
    }
    if !has(conntrack_bit::CLEAR) {
        say("zone", json!(action.zone));
    }
    if let Some((label, mask)) = action.label {
        // In the order of the machine's bytes.
        let digits = |number: u128| number.to_le_bytes().map(|byte| format!("{byte:02x}")).concat();
        let all = if mask == u128::MAX { digits(label) } else { format!("{}/{}", digits(label), digits(mask)) };
        say("label", json!(all));
    }
    if has(conntrack_bit::NAT) {
        let mut text = match (has(conntrack_bit::NAT_SOURCE), has(conntrack_bit::NAT_DESTINATION)) {
            (true, _) => "src".to_owned(),
            (_, true) => "dst".to_owned(),
            _ => String::new(),
        };
        let range = |first: String, last: String| if first == last { first } else { format!("{first}-{last}") };
        if let Some((first, last)) = action.translation.addresses {
            text += &format!(" addr {}", range(first.to_string(), last.to_string()));
        }
        if let Some((first, last)) = action.translation.ports {
            text += &format!(" port {}", range(first.to_string(), last.to_string()));
        }
        say("nat", json!(text));
    }
    Value::Object(shown)
}

/// The name under which `tc` shows options of a kind, and their list.
fn options_shown(options: &Options) -> (&'static str, Value) {
    match options {
        Options::Geneve(options) => {
            let option = |option: &sluice_offload_tc::wire::options::GeneveOption| json!({ "class": option.class, "type": option.kind, "data": option.data });
            ("geneve_opt", json!(options.iter().map(option).collect::<Vec<_>>()))
        }
        Options::Vxlan(policy) => ("vxlan_opt", json!([{ "gbp": policy }])),
        Options::Erspan(header) => (
            "erspan_opt",
            json!([{
                "ver": header.version, "index": header.index.unwrap_or(0), "dir": header.direction.unwrap_or(0),
                "hwid": header.hardware.unwrap_or(0),
            }]),
        ),
        Options::Gtp { pdu_type, flow } => ("gtp_opt", json!([{ "pdu_type": pdu_type, "qfi": flow }])),
    }
}

fn labels(flower: &Flower) -> Value {
    let entry = |entry: &sluice_offload_tc::wire::labels::LabelMatch| {
        let mut shown = json!({ "depth": entry.depth });
        let fields = [
            ("label", entry.label),
            ("tc", entry.class.map(u32::from)),
            ("bos", entry.bottom.map(u32::from)),
            ("ttl", entry.ttl.map(u32::from)),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                shown[name] = json!(value);
            }
        }
        shown
    };
    json!(flower.labels.iter().map(entry).collect::<Vec<_>>())
}

/// A key of ours under the name that `tc` has for it, with value and mask.
fn said(matched: &KeyMatch) -> (String, (u128, u128)) {
    let KeyMatch { key, value, mask } = *matched;
    let name = match key {
        Key::Ipv4Src | Key::Ipv6Src => "src_ip",
        Key::Ipv4Dst | Key::Ipv6Dst => "dst_ip",
        Key::TcpSrc | Key::UdpSrc | Key::SctpSrc => "src_port",
        Key::TcpDst | Key::UdpDst | Key::SctpDst => "dst_port",
        Key::Icmpv6Type => "icmp_type",
        Key::Icmpv6Code => "icmp_code",
        Key::EncIpv4Src | Key::EncIpv6Src => "enc_src_ip",
        Key::EncIpv4Dst | Key::EncIpv6Dst => "enc_dst_ip",
        key => key.spec().name,
    };
    (name.to_owned(), (value, mask))
}

/// The keys that `tc` shows, with value and mask. What cannot be read comes as a value that no key has.
fn keys_shown(keys: &Map<String, Value>) -> BTreeMap<String, (u128, u128)> {
    let mut found = BTreeMap::new();
    for (name, value) in keys.iter().filter(|(name, _)| !name.ends_with("_mask")) {
        let (value, mask) = key_shown(name, value).unwrap_or((u128::MAX, 0xbad));
        let apart = keys.get(&format!("{name}_mask")).and_then(Value::as_str);
        let mask =
            apart.and_then(|digits| u128::from_str_radix(digits.trim_start_matches("0x"), 16).ok()).unwrap_or(mask);
        found.insert(name.clone(), (value & mask, mask));
    }
    found
}

fn key_shown(name: &str, value: &Value) -> Option<(u128, u128)> {
    let full = |name: &str| match name {
        "ct_state" => 0xffff,
        "src_ip" | "dst_ip" | "enc_src_ip" | "enc_dst_ip" => u128::MAX,
        "src_port" | "dst_port" => 0xffff,
        _ => sluice_offload_tc::wire::key::KEYS
            .iter()
            .find(|spec| spec.name == name)
            .map_or(u128::MAX, |spec| spec.key.full_mask()),
    };
    if let Some(number) = value.as_u64() {
        return Some((number.into(), full(name)));
    }
    if name == "ip_flags" {
        let flags = value.as_object()?;
        let bits = flags.iter().map(|(name, is_set)| {
            let bit = if name == "firstfrag" { 2 } else { 1 };
            (if is_set.as_bool() == Some(true) { bit } else { 0 }, bit)
        });
        return Some(bits.fold((0, 0), |(value, mask), (bit, of)| (value | bit, mask | of)));
    }
    let text = value.as_str()?;
    match name {
        "ct_label" => {
            let bytes = |digits: &str| u128::from_str_radix(digits, 16).ok().map(u128::swap_bytes);
            let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
            return Some((bytes(value)?, mask.map_or(Some(u128::MAX), bytes)?));
        }
        "eth_type" | "vlan_ethtype" | "cvlan_ethtype" => return Some((ethernet_type(value).into(), 0xffff)),
        "ct_state" => return states(text),
        "ppp_proto" => return Some((of_ppp(text)?.into(), 0xffff)),
        "ip_proto" => return Some((protocol(text)?.into(), 0xff)),
        _ => {}
    }
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    if let Some(value) = mac(value) {
        let mask = match mask {
            None => 0xffff_ffff_ffff,
            Some(mask) => mac(mask).or_else(|| prefix(mask, 48))?,
        };
        return Some((value & mask, mask));
    }
    if let Ok(address) = value.parse::<std::net::IpAddr>() {
        let number = |address: std::net::IpAddr| match address {
            std::net::IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
            std::net::IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let (value, width) = number(address);
        let mask = match mask {
            None => prefix(&width.to_string(), width)?,
            Some(mask) => mask.parse().ok().map(|mask| number(mask).0).or_else(|| prefix(mask, width))?,
        };
        return Some((value & mask, mask));
    }
    let is_hex = name == "tcp_flags";
    let value = match value {
        "request" => 1,
        "reply" => 2,
        digits if is_hex || digits.starts_with("0x") => {
            u128::from_str_radix(digits.trim_start_matches("0x"), 16).ok()?
        }
        digits => digits.parse().ok()?,
    };
    let mask = match mask {
        None => full(name),
        // `flower_print_masked_u8` writes both in decimal.
        Some(digits) if matches!(name, "icmp_type" | "icmp_code" | "arp_op") => digits.parse().ok()?,
        Some(digits) => u128::from_str_radix(digits.trim_start_matches("0x"), 16).ok()?,
    };
    Some((value & mask, mask))
}

fn prefix(digits: &str, width: u32) -> Option<u128> {
    let length: u32 = digits.parse().ok().filter(|length| *length <= width)?;
    let all = u128::MAX >> (128 - width);
    Some(if length == 0 { 0 } else { all << (width - length) & all })
}

fn mac(text: &str) -> Option<u128> {
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<_>>()?;
    let bytes: [u8; 6] = bytes.try_into().ok()?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

fn states(text: &str) -> Option<(u128, u128)> {
    const NAMES: [(&str, u128); 6] = [("new", 1), ("est", 2), ("rel", 4), ("trk", 8), ("inv", 16), ("rpl", 32)];
    let (mut value, mut mask) = (0, 0);
    for part in text.split_inclusive(|_| false).flat_map(|text| text.match_indices(['+', '-'])) {
        let (at, sign) = part;
        let (_, bit) = NAMES.iter().find(|(name, _)| text[at + 1..].starts_with(name))?;
        mask |= bit;
        value |= if sign == "+" { *bit } else { 0 };
    }
    Some((value, mask))
}

fn protocol(text: &str) -> Option<u8> {
    let names = [("tcp", 6), ("udp", 17), ("sctp", 132), ("icmp", 1), ("icmpv6", 58), ("l2tp", 115)];
    let named = names.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| u8::from_str_radix(text, 16).ok())
}

/// A protocol of PPP by the name of iproute2 (`lib/ppp_proto.c`), or in decimal in brackets.
fn of_ppp(text: &str) -> Option<u16> {
    let names = [("ip", 0x0021), ("ipv6", 0x0057), ("mpls_uc", 0x0281), ("ipcp", 0x8021), ("lcp", 0xc021)];
    let named = names.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok())
}

/// Ethernet types by the names of iproute2 (`lib/ll_proto.c`).
const TYPES: &[(&str, u16)] = &[
    ("all", 3),
    ("ip", 0x0800),
    ("ipv4", 0x0800),
    ("ipv6", 0x86dd),
    ("arp", 0x0806),
    ("rarp", 0x8035),
    ("x25", 0x0805),
    ("atalk", 0x809b),
    ("aarp", 0x80f3),
    ("ipx", 0x8137),
    ("802.1Q", 0x8100),
    ("802.1ad", 0x88a8),
    ("mpls_uc", 0x8847),
    ("mpls_mc", 0x8848),
    ("ppp_disc", 0x8863),
    ("ppp_ses", 0x8864),
    ("atmmpoa", 0x884c),
    ("atmfate", 0x8884),
    ("aoe", 0x88a2),
    ("tipc", 0x88ca),
];

/// The number of an Ethernet type: by name, or in decimal in brackets, or in hexadecimal; 0 if it cannot be read.
fn ethernet_type(shown: &Value) -> u16 {
    let text = shown.as_str().unwrap_or_default();
    let named = TYPES.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    let decimal = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    named.or_else(decimal).or_else(|| u16::from_str_radix(text, 16).ok()).unwrap_or_default()
}

fn name_of_type(number: u16) -> String {
    let named = TYPES.iter().find(|(_, found)| *found == number);
    named.map_or_else(|| format!("[{number}]"), |(name, _)| (*name).to_owned())
}
