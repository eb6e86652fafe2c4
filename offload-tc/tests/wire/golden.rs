//! `golden.txt` holds, for each line of `commands.txt`, what `tc` asked the kernel for and what the kernel then showed;
//! `expected.txt` what we read in the first, looked through by eye against the command.

use std::collections::BTreeMap;

use sluice_offload_tc::wire::attribute::Attributes;
use sluice_offload_tc::wire::filter::{Filter, FilterView};
use sluice_offload_tc::wire::key::Key;
use sluice_offload_tc::wire::message::Messages;

/// A command's name, the request and the listing.
pub struct Golden {
    pub name: &'static str,
    pub request: Vec<u8>,
    pub shown: Vec<u8>,
}

pub fn all() -> Vec<Golden> {
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
pub fn filter(messages: &[u8]) -> Filter {
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
    let mut lines = expected.lines();
    if let Some(path) = std::env::var_os("GOLDEN_EXPECTED") {
        let told = all().iter().map(|golden| format!("{} {:?}\n", golden.name, filter(&golden.request).flower));
        return std::fs::write(path, told.collect::<String>()).unwrap();
    }
    for golden in all() {
        let read = filter(&golden.request);
        let told = format!("{} {:?}", golden.name, read.flower);
        assert_eq!(Some(told.as_str()), lines.next());
        assert_eq!((read.id.chain, read.id.priority, read.id.handle), (3, 7, 0x11), "{}", golden.name);
    }
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
        // What it shows as the Ethernet type of a tagged packet is that behind the tags.
        if let Some(outermost) = asked.flower.get(Key::VlanEthType).and(asked.flower.get(Key::EthType)) {
            let shown = shown.flower.keys.iter_mut().find(|found| found.key == Key::EthType).unwrap();
            shown.value = outermost.0;
        }
        shown.flower.flags &= asked.flower.flags;
        (asked.flower.hardware_count, shown.flower.hardware_count) = (None, None);
        assert_eq!(asked, shown, "{}", golden.name);
    }
}

/// The attributes of a request by their path, each with its octets: the order within a nest is free.
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
        let is_whole = attribute.payload.iter().all(|octet| *octet == 0xff);
        match levels[..] {
            // A mask that says "all bits" is as good as none.
            [2, key] if matches!(Key::of_attribute(key), Some((_, true))) && is_whole => {}
            [2] | [2, 3 | 84 | 85 | 99] | [2, 84 | 85 | 99, _] | [2, 3, _] | [2, 3, _, 2] => {
                grow(found, attribute.payload, &path, action_kind(bytes, kind, &levels));
            }
            // `tc` also says what goes without saying: that there is a checksum.
            [2, 3, _, 2, 10] if kind == "tunnel_key" && attribute.payload == [0] => {}
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
        [2, 3, _, 2] => {
            Attributes::new(siblings, "tree").map(Result::unwrap).find(|attribute| attribute.kind == 1).unwrap().text().unwrap()
        }
        _ => known,
    }
}
