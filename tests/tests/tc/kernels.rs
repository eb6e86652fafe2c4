//! What the running kernel can match and do, key by key and action by action, and a table of that by kernel.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::context::{Context, Features};
use sluice_offload_tc::install::{Request, flags};
use sluice_offload_tc::wire::action::{
    Action, Command, Conntrack, Control, EditKey, Encapsulation, Entry, Header, Mirred, Mpls, Operation, Police,
    SkbEdit, Translation, Vlan, checksum, conntrack_bit,
};
use sluice_offload_tc::wire::filter::{ANY_PROTOCOL, Filter, FilterId};
use sluice_offload_tc::wire::flower::{CfmMatch, Flower, OptionsMatch};
use sluice_offload_tc::wire::key::{KEYS, Key, KeyMatch, KeySpec};
use sluice_offload_tc::wire::labels::LabelMatch;
use sluice_offload_tc::wire::options::{Erspan, GeneveOption, Options};

use crate::classifier::Classifier;
use crate::report::Report;

/// The file in the lab's folder with the column of a kernel.
const FILE: &str = "kernel.json";
/// A chain that nothing jumps to.
const CHAIN: u32 = 0x0fff_ffff;
const YES: &str = "yes";
/// What Debian's 6.1 does not have, and since when Linux has it. All else is older.
const SINCE: &[(&str, (u32, u32))] = &[
    ("action tunnel_key set nofrag", (6, 4)),
    ("key cfm", (6, 5)),
    ("key enc_flags", (6, 11)),
    ("key l2_miss", (6, 5)),
    ("key spi", (6, 6)),
];

/// The running kernel's version, such as 6.1.
pub(crate) fn release() -> (u32, u32) {
    let release = full_release();
    let mut numbers = release.split('.').map(|word| word.parse().unwrap_or_default());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
}

/// The same with all that Debian adds.
pub(crate) fn full_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel has a version").trim().to_owned()
}

/// Tries every key and every action, and leaves what came of it in a folder, with what else a run found. Each must be as the
/// kernel's version and the agent's own probe say.
pub(crate) fn write(classifier: &mut Classifier, folder: &Path, report: &mut Report) {
    let mut column: BTreeMap<String, String> = BTreeMap::new();
    for spec in KEYS {
        column.insert(
            format!("key {}", spec.name),
            tried(classifier, protocol(spec.key), with_key(spec), Some(spec.key)),
        );
    }
    for (name, flower) in further_keys() {
        column.insert(format!("key {name}"), tried(classifier, 0x0800, flower, None));
    }
    let typed = |eth_type| vec![KeyMatch::exact(Key::EthType, eth_type)];
    let cfm = Some(CfmMatch { level: Some(3), opcode: Some(1) });
    let cfm = Flower { keys: typed(0x8902), cfm, ..Flower::default() };
    column.insert("key cfm".into(), tried(classifier, 0x8902, cfm, None));
    let entries = [1, 2].map(|depth| LabelMatch { depth, label: Some(5), ..LabelMatch::default() });
    let labels = Flower { keys: typed(0x8847), labels: entries.into(), ..Flower::default() };
    column.insert("key mpls, a second entry".into(), tried(classifier, 0x8847, labels, None));
    for (name, operation, control) in operations(classifier) {
        let flower = Flower { actions: vec![Action::new(operation, control)], ..Flower::default() };
        column.insert(format!("action {name}"), tried(classifier, 0x0800, flower, None));
    }
    check(&column, classifier.devices.features(), report);
    for (what, count) in report.counts() {
        column.insert(format!("scenarios {what}"), count.to_string());
    }
    let text = json!({ "kernel": full_release(), "column": column }).to_string();
    std::fs::write(folder.join(FILE), text).expect("the lab's folder can be written to");
}

fn check(column: &BTreeMap<String, String>, features: Features, report: &mut Report) {
    let running = release();
    for (row, verdict) in column {
        let since = SINCE.iter().find(|(name, _)| name == row).map(|(_, since)| *since);
        if (verdict == YES) != since.is_none_or(|since| since <= running) {
            report.fail(format!("kernel table: {row} on {running:?}, since {since:?}: {verdict}"));
        }
    }
    let probed = [
        ("key num_of_vlans", features.number_of_tags),
        ("key pppoe_sid", features.pppoe),
        ("key ppp_proto", features.pppoe),
        ("key l2tpv3_sid", features.l2tpv3),
        ("key cfm", features.cfm),
        ("key spi", features.spi),
        ("key enc_flags", features.tunnel_flags),
        ("action tunnel_key set nofrag", features.no_fragment),
    ];
    for (row, can) in probed {
        if can != (column[row] == YES) {
            report.fail(format!("kernel table: {row}: {}, but the probe says {can}", column[row]));
        }
    }
    report.pass("kernel table: as the kernel's version and the probe say");
}

/// The columns that runs have left in folders, side by side.
pub(crate) fn table(folders: &[&PathBuf]) -> String {
    let mut kernels = vec![];
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in folders {
        let Ok(text) = std::fs::read_to_string(folder.join(FILE)) else { continue };
        let column: Value = serde_json::from_str(&text).expect("what was written is JSON");
        for (name, verdict) in column["column"].as_object().into_iter().flatten() {
            let row = rows.entry(name.clone()).or_default();
            row.resize(kernels.len(), "-".into());
            row.push(verdict.as_str().unwrap_or_default().to_owned());
        }
        kernels.push(column["kernel"].as_str().unwrap_or_default().to_owned());
    }
    let width = |column: usize| {
        let cells = rows.values().filter_map(|row| row.get(column)).chain([&kernels[column]]);
        cells.map(String::len).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..kernels.len()).map(width).collect();
    let mut text = String::new();
    for (name, row) in std::iter::once((&"what the kernel takes and shows again".to_owned(), &kernels)).chain(&rows) {
        let _ = write!(text, "{name:<42}");
        row.iter().zip(&widths).for_each(|(cell, width)| {
            let _ = write!(text, "  {cell:<width$}");
        });
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Whether the kernel takes a rule and shows it again as it is, and if not, why. Of its keys only the one that it is about
/// counts: the kernel adds some, and does not show all that must be matched for another.
fn tried(classifier: &mut Classifier, protocol: u16, mut flower: Flower, about: Option<Key>) -> String {
    let hook = classifier.devices.ports[&PortNumber(1)].hook();
    let id = FilterId { hook, chain: CHAIN, priority: 65_000, protocol, handle: 1 };
    flower.flags = flags(OffloadPolicy::SkipHardware);
    if flower.actions.is_empty() {
        flower.actions.push(Action::new(Operation::Generic, Control::Shot));
    }
    let wanted = shape(&flower, about);
    match classifier.installer.submit(&[Request::Add(Filter { id, flower })]).pop() {
        Some(Err(Refusal::Kernel { message, .. })) => return format!("refused: {message}"),
        Some(Err(refusal)) => panic!("{refusal}"),
        _ => {}
    }
    let found = classifier.installer.find(id).map(|found| found.map(|found| shape(&found.flower, about)));
    let removed = classifier.installer.submit(&[Request::Delete(id)]).pop();
    assert!(matches!(removed, Some(Ok(_))), "{removed:?}");
    match found {
        Ok(Some(found)) if found == wanted => YES.into(),
        // It passes over attributes that it does not know.
        Ok(_) => "no: it is passed over".into(),
        Err(error) => format!("no: {error}"),
    }
}

/// What a rule shows of what it is about.
fn shape(flower: &Flower, about: Option<Key>) -> String {
    let key = about.map(|key| flower.get(key));
    let actions: Vec<_> = flower.actions.iter().map(|action| (&action.operation, action.control)).collect();
    format!("{key:?} {:?} {:?} {:?} {actions:?}", flower.options, flower.labels, flower.cfm)
}

/// The Ethernet type of the rules that look at a key.
fn protocol(key: Key) -> u16 {
    match key {
        Key::EthDst | Key::EthSrc | Key::NumOfVlans | Key::Hash | Key::L2Miss => ANY_PROTOCOL,
        Key::VlanId | Key::VlanPrio | Key::VlanEthType | Key::CvlanId | Key::CvlanPrio | Key::CvlanEthType => 0x8100,
        Key::PppoeSession | Key::PppProtocol => 0x8864,
        Key::Ipv6Src | Key::Ipv6Dst | Key::Icmpv6Type | Key::Icmpv6Code => 0x86dd,
        Key::ArpSip | Key::ArpTip | Key::ArpOp | Key::ArpSha | Key::ArpTha => 0x0806,
        Key::MplsTtl | Key::MplsBos | Key::MplsTc | Key::MplsLabel => 0x8847,
        _ => 0x0800,
    }
}

/// A match on a key, with what must be matched for it.
fn with_key(spec: &KeySpec) -> Flower {
    let value = match spec.key {
        Key::EthType => 0x0800,
        Key::VlanEthType | Key::CvlanEthType => 0x0800,
        Key::PppProtocol => 0x0021,
        // Tracked and established; and a bit that each kernel has.
        Key::CtState => 10,
        Key::EncFlags => 4,
        _ => 1,
    };
    let mask = match spec.key {
        Key::CtState | Key::EncFlags => value,
        Key::Flags => 1,
        key => key.full_mask(),
    };
    let mut keys = vec![KeyMatch { key: spec.key, value, mask }];
    let needs: &[(Key, u128)] = match spec.key {
        Key::CvlanId | Key::CvlanPrio | Key::CvlanEthType => &[(Key::VlanEthType, 0x88a8)],
        Key::TcpSrc | Key::TcpDst | Key::TcpFlags => &[(Key::IpProto, 6)],
        Key::UdpSrc | Key::UdpDst => &[(Key::IpProto, 17)],
        Key::SctpSrc | Key::SctpDst => &[(Key::IpProto, 132)],
        Key::IcmpType | Key::IcmpCode => &[(Key::IpProto, 1)],
        Key::Icmpv6Type | Key::Icmpv6Code => &[(Key::IpProto, 58)],
        Key::L2tpv3Session => &[(Key::IpProto, 115)],
        Key::Spi => &[(Key::IpProto, 50)],
        Key::PortSrcMin => &[(Key::IpProto, 6), (Key::PortSrcMax, 9)],
        Key::PortDstMin => &[(Key::IpProto, 6), (Key::PortDstMax, 9)],
        Key::PortSrcMax => &[(Key::IpProto, 6), (Key::PortSrcMin, 0x0001)],
        Key::PortDstMax => &[(Key::IpProto, 6), (Key::PortDstMin, 0x0001)],
        Key::EncUdpSrc | Key::EncUdpDst | Key::EncTos | Key::EncTtl | Key::EncFlags => &[(Key::EncKeyId, 5)],
        _ => &[],
    };
    if matches!(spec.key, Key::PortSrcMax | Key::PortDstMax) {
        keys[0].value = 9;
    }
    keys.extend(needs.iter().map(|(key, value)| KeyMatch::exact(*key, *value)));
    // The kernel reads a header's keys only if the type of that header is among them.
    let protocol = protocol(spec.key);
    let is_typed = protocol != ANY_PROTOCOL && spec.key != Key::EthType;
    keys.extend(is_typed.then(|| KeyMatch::exact(Key::EthType, protocol.into())));
    keys.sort_unstable_by_key(|key| key.key);
    Flower { keys, ..Flower::default() }
}

/// Options of tunnel headers.
fn further_keys() -> Vec<(&'static str, Flower)> {
    let geneve = |class, kind, byte| Options::Geneve(vec![GeneveOption { class, kind, data: vec![byte; 4] }]);
    let erspan = |version, index, direction, hardware| Options::Erspan(Erspan { version, index, direction, hardware });
    let options = [
        ("geneve_opts", geneve(0x0102, 3, 4), geneve(0xffff, 0xff, 0xff)),
        ("vxlan_opts", Options::Vxlan(5), Options::Vxlan(0xffff)),
        ("erspan_opts 1", erspan(1, Some(5), None, None), erspan(1, Some(u32::MAX), None, None)),
        ("erspan_opts 2", erspan(2, None, Some(1), Some(5)), erspan(2, None, Some(1), Some(63))),
        ("gtp_opts", Options::Gtp { pdu_type: 1, flow: 2 }, Options::Gtp { pdu_type: 255, flow: 255 }),
    ];
    let flower = |(name, value, mask)| {
        let keys = vec![KeyMatch::exact(Key::EthType, 0x0800), KeyMatch::exact(Key::EncKeyId, 5)];
        (name, Flower { keys, options: Some(OptionsMatch { value, mask }), ..Flower::default() })
    };
    options.map(flower).into()
}

fn operations(classifier: &Classifier) -> Vec<(&'static str, Operation, Control)> {
    let interface = classifier.devices.ports[&PortNumber(2)].interface;
    let mirred = |to| Operation::Mirred { to, interface };
    let ct = |bits, mark, translation| {
        Operation::Conntrack(Box::new(Conntrack { bits, zone: 7, mark, label: None, translation, helper: None }))
    };
    let edit = |header, command, value| {
        Operation::Edit(vec![EditKey { header, command, offset: 8, value, mask: 0xff00_0000 }])
    };
    let (here, there) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let outer = Encapsulation { ipv4: Some((here, there)), key: Some(5), ..Encapsulation::default() };
    let set = |header| Operation::TunnelSet(Box::new(header));
    let with_options = |options| set(Encapsulation { options: Some(options), ..outer.clone() });
    let entry = Entry { protocol: Some(0x8847), label: Some(5), class: Some(1), ttl: Some(64), bottom: None };
    let police = |rate, packets| {
        let police = Police { conform: Control::Pipe, rate, burst: 100_000, mtu: 9000, packets };
        Operation::Police(Box::new(police))
    };
    let to = Translation { addresses: Some((IpAddr::V4(here), IpAddr::V4(there))), ports: Some((10, 20)) };
    let source = conntrack_bit::COMMIT | conntrack_bit::NAT | conntrack_bit::NAT_SOURCE;
    let skb = |edit| Operation::SkbEdit(edit);
    vec![
        ("csum", Operation::Checksum(checksum::IPV4_HEADER | checksum::UDP), Control::Pipe),
        ("csum of sctp", Operation::Checksum(checksum::SCTP), Control::Pipe),
        ("ct", ct(0, None, Translation::default()), Control::Pipe),
        ("ct commit mark", ct(conntrack_bit::COMMIT, Some((5, 255)), Translation::default()), Control::Pipe),
        ("ct nat", ct(source, None, to), Control::Pipe),
        ("gact drop", Operation::Generic, Control::Shot),
        ("gact goto chain", Operation::Generic, Control::GotoChain(5)),
        ("mirred egress redirect", mirred(Mirred::EgressRedirect), Control::Stolen),
        ("mirred egress mirror", mirred(Mirred::EgressMirror), Control::Pipe),
        ("mirred ingress redirect", mirred(Mirred::IngressRedirect), Control::Stolen),
        ("mirred ingress mirror", mirred(Mirred::IngressMirror), Control::Pipe),
        ("mpls push", Operation::Mpls(Mpls::Push(entry)), Control::Pipe),
        ("mpls pop", Operation::Mpls(Mpls::Pop { protocol: 0x0800 }), Control::Pipe),
        ("mpls modify", Operation::Mpls(Mpls::Modify(Entry { protocol: None, ..entry })), Control::Pipe),
        ("mpls mac_push", Operation::Mpls(Mpls::PushOutside(entry)), Control::Pipe),
        ("mpls dec_ttl", Operation::Mpls(Mpls::DecrementTtl), Control::Pipe),
        ("pedit set", edit(Header::Ipv4, Command::Set, 0x4000_0000), Control::Pipe),
        ("pedit add", edit(Header::Ipv4, Command::Add, 0xff00_0000), Control::Pipe),
        ("police of bytes", police(Some(1_000_000), None), Control::Shot),
        ("police of packets", police(None, Some((1000, 100))), Control::Shot),
        ("sample", Operation::Sample { rate: 5, group: 7, truncate: Some(128) }, Control::Pipe),
        ("skbedit priority", skb(SkbEdit { priority: Some(5), ..SkbEdit::default() }), Control::Pipe),
        ("skbedit mark", skb(SkbEdit { mark: Some((5, 255)), ..SkbEdit::default() }), Control::Pipe),
        ("skbedit ptype", skb(SkbEdit { packet_type: Some(0), ..SkbEdit::default() }), Control::Pipe),
        ("tunnel_key unset", Operation::TunnelRelease, Control::Pipe),
        ("tunnel_key set", set(outer.clone()), Control::Pipe),
        ("tunnel_key set nofrag", set(Encapsulation { no_fragment: true, ..outer.clone() }), Control::Pipe),
        ("tunnel_key set geneve", with_options(geneve_option()), Control::Pipe),
        ("tunnel_key set vxlan", with_options(Options::Vxlan(5)), Control::Pipe),
        ("tunnel_key set erspan", with_options(erspan_option()), Control::Pipe),
        ("vlan push", Operation::Vlan(Vlan::Push { protocol: 0x8100, id: 5, priority: 1 }), Control::Pipe),
        ("vlan pop", Operation::Vlan(Vlan::Pop), Control::Pipe),
        ("vlan modify", Operation::Vlan(Vlan::Modify { protocol: 0x8100, id: 5, priority: Some(1) }), Control::Pipe),
        ("vlan pop_eth", Operation::Vlan(Vlan::PopEthernet), Control::Pipe),
        ("vlan push_eth", Operation::Vlan(Vlan::PushEthernet { destination: [2; 6], source: [4; 6] }), Control::Pipe),
    ]
}

fn geneve_option() -> Options {
    Options::Geneve(vec![GeneveOption { class: 0x0102, kind: 3, data: vec![4; 8] }])
}

fn erspan_option() -> Options {
    Options::Erspan(Erspan { version: 2, index: None, direction: Some(1), hardware: Some(5) })
}
