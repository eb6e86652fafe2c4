//! `golden.txt` holds, for each line of `commands.txt`, what `tc` asked the kernel for and what the kernel then showed;
//! `expected.txt` what we read in the first, looked through by eye against the command.

use std::collections::BTreeMap;

use sluice_netdev::netlink::attribute::Attributes;
use sluice_netdev::netlink::message::Messages;
use sluice_offload_tc::wire::action::Operation;
use sluice_offload_tc::wire::filter::{Filter, FilterView};
use sluice_offload_tc::wire::flower::OptionsMatch;
use sluice_offload_tc::wire::key::Key;
use sluice_offload_tc::wire::options::{Erspan, Options};
use sluice_offload_tc::wire::rule_view::RuleView;

/// A command's name, the request and the listing.
pub(crate) struct Golden {
    pub(crate) name: &'static str,
    pub(crate) request: Vec<u8>,
    pub(crate) shown: Vec<u8>,
}

pub(crate) fn all() -> Vec<Golden> {
    let hex = |text: &str| {
        let digits = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap());
        digits.collect::<Vec<_>>()
    };
    let lines = include_str!("../golden/golden.txt").lines();
    lines
        .map(|line| {
            let [name, request, shown] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
            Golden { name, request: hex(request), shown: hex(shown) }
        })
        .collect()
}

/// The one filter of flower in some messages.
pub(crate) fn filter(messages: &[u8]) -> Filter {
    let views = Messages::new(messages).map(|message| FilterView::new(message.unwrap().payload).unwrap());
    views.filter(FilterView::is_flower).map(|view| view.parse().unwrap()).next().expect("a filter")
}

#[test]
fn every_command_was_taken() {
    let commands = include_str!("../golden/commands.txt").lines().filter(|line| !line.starts_with('#'));
    let names: Vec<_> = commands.map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(all().iter().map(|golden| golden.name).collect::<Vec<_>>(), names);
}

#[test]
fn what_tc_asks_for_is_read_as_it_was_meant() {
    let expected = include_str!("../golden/expected.txt");
    let mut told = String::new();
    for golden in all() {
        let read = filter(&golden.request);
        assert_eq!((read.id.chain, read.id.priority, read.id.handle), (3, 7, 0x11), "{}", golden.name);
        told += &format!("{} {:?}\n", golden.name, read.flower);
    }
    // With a path in the environment, a new file is written, to be looked through.
    if let Some(path) = std::env::var_os("GOLDEN_EXPECTED") {
        std::fs::write(path, &told).unwrap();
    }
    for (told, expected) in told.lines().zip(expected.lines()) {
        assert_eq!(told, expected);
    }
    assert_eq!(told.lines().count(), expected.lines().count());
}

#[test]
fn what_is_written_has_the_very_attributes_that_tc_writes() {
    for golden in all() {
        let mut ours = vec![];
        filter(&golden.request).emit(&mut ours, 0, 1).unwrap();
        let [ours, theirs] = [&ours, &golden.request].map(|bytes| tree(bytes));
        assert_eq!(ours, theirs, "{}", golden.name);
    }
}

#[test]
fn the_kernel_shows_what_was_asked_for() {
    for golden in all() {
        let [mut asked, mut shown] = [&golden.request, &golden.shown].map(|bytes| filter(bytes));
        for action in asked.flower.actions.iter_mut().chain(&mut shown.flower.actions) {
            // The kernel numbers and counts.
            (action.index, action.statistics) = (0, None);
        }
        // What it shows as the Ethernet type is that behind tags and PPPoE.
        let inner = [Key::VlanEthType, Key::PppProtocol].into_iter().find_map(|key| asked.flower.get(key));
        if let Some(outermost) = inner.and(asked.flower.get(Key::EthType)) {
            let shown = shown.flower.keys.iter_mut().find(|found| found.key == Key::EthType).unwrap();
            shown.value = outermost.0;
        }
        // `tc` says what the version of ERSPAN has not, and bits that no header has; the kernel leaves them out.
        if let Some(OptionsMatch { mask: Options::Erspan(mask), .. }) = &mut asked.flower.options {
            trim(mask);
            (mask.direction, mask.hardware) =
                (mask.direction.map(|bits| bits & 1), mask.hardware.map(|bits| bits & 0x3f));
        }
        for action in &mut asked.flower.actions {
            if let Operation::Police(police) = &mut action.operation
                && (police.rate.is_some(), police.mtu) == (true, 0)
            {
                police.mtu = 2040;
            }
            if let Operation::TunnelSet(header) = &mut action.operation
                && let Some(Options::Erspan(header)) = &mut header.options
            {
                trim(header);
            }
        }
        // It says that hardware does not have it.
        shown.flower.flags &= asked.flower.flags;
        (asked.flower.hardware_count, shown.flower.hardware_count) = (None, None);
        assert_eq!(asked, shown, "{}", golden.name);
    }
}

#[test]
fn bytes_that_were_tampered_with_are_an_error_or_another_rule_and_never_a_panic() {
    let mut errors = 0;
    for golden in all() {
        for (at, byte) in (0..golden.shown.len()).flat_map(|at| [0x00, 0x01, 0x7f, 0xff].map(|byte| (at, byte))) {
            let mut shown = golden.shown.clone();
            shown[at] = byte;
            let cut = &golden.shown[..at];
            for message in Messages::new(&shown).chain(Messages::new(cut)) {
                let read = message.and_then(|message| {
                    let view = FilterView::new(message.payload)?;
                    RuleView::new(&view)?;
                    view.parse()
                });
                errors += usize::from(read.is_err());
            }
        }
    }
    assert!(errors > 10_000, "{errors}");
}

fn trim(header: &mut Erspan) {
    match header.version {
        1 => (header.direction, header.hardware) = (None, None),
        _ => header.index = None,
    }
}

/// The attributes of a request by their path, each with its bytes: the order within a nest is free.
fn tree(request: &[u8]) -> BTreeMap<Vec<u16>, Vec<u8>> {
    const FIXED: usize = 20;
    let message = Messages::new(request).next().unwrap().unwrap();
    let mut found = BTreeMap::from([(vec![], message.payload[..FIXED].to_vec())]);
    grow(&mut found, &message.payload[FIXED..], &[], "");
    found
}

fn grow(found: &mut BTreeMap<Vec<u16>, Vec<u8>>, bytes: &[u8], path: &[u16], kind: &str) {
    // Nests that hold several of one number are told apart by their place.
    let mut times = BTreeMap::new();
    for attribute in Attributes::new(bytes, "tree").map(Result::unwrap) {
        let time = times.entry(attribute.kind).or_insert(0);
        *time += 1;
        let path = [path, &[attribute.kind, *time]].concat();
        let levels: Vec<_> = path.iter().step_by(2).copied().collect();
        let is_whole = attribute.payload.iter().all(|byte| *byte == 0xff);
        match levels[..] {
            // A mask that says "all bits" is as good as none.
            [2, key] if matches!(Key::of_attribute(key), Some((_, true))) && is_whole => {}
            [2] | [2, 3 | 84 | 85 | 99] | [2, 84 | 85 | 99, _] | [2, 3, _] | [2, 3, _, 2] => {
                grow(found, attribute.payload, &path, action_kind(bytes, kind, &levels));
            }
            // `tc` also says what goes without saying: that there is a checksum.
            [2, 3, _, 2, 10] if kind == "tunnel_key" && attribute.payload == [0] => {}
            // The kernel wants a table of a rate, and no longer looks into it.
            [2, 3, _, 2, 2] if kind == "police" => {
                found.insert(path, attribute.payload.len().to_be_bytes().to_vec());
            }
            [2, 3, _, 2, 5] | [2, 3, _, 2, 5, _] if kind == "pedit" => grow(found, attribute.payload, &path, kind),
            [2, 3, _, 2, 11] | [2, 3, _, 2, 11, _] if kind == "tunnel_key" => {
                grow(found, attribute.payload, &path, kind);
            }
            _ => {
                found.insert(path, attribute.payload.to_vec());
            }
        }
    }
}

/// The kind of the action whose options are about to be looked at.
fn action_kind<'a>(siblings: &'a [u8], known: &'a str, levels: &[u16]) -> &'a str {
    match levels {
        [2, 3, _, 2] => Attributes::new(siblings, "tree")
            .map(Result::unwrap)
            .find(|attribute| attribute.kind == 1)
            .unwrap()
            .text()
            .unwrap(),
        _ => known,
    }
}
