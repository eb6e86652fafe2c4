//! Files that are not what was written: cut off by a crash, or damaged.

use std::os::unix::fs::symlink;

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::frame::HEADER;
use super::super::loss::Loss;
use super::*;
use tempfile::TempDir;

const KEYS: [&str; 4] = [
    "in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst=5353)",
    "in_port(1),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.0/255.0.0.0,op=1)",
    "tunnel(tun_id=0x2a,src=172.31.0.2,dst=172.31.0.1,flags(-df+csum+key)),in_port(3)",
    "ufid:01234567-89ab-4def-8123-456789abcdef, in_port(7)",
];

/// A log, and what is wanted after it.
struct History {
    scratch: TempDir,
    wanted: Flows,
    /// All that was ever wanted.
    known: Flows,
    /// What was wanted at each length of the last file on the way.
    states: Vec<(usize, Flows)>,
}

impl History {
    /// `runs` agents one after the other, each of which adds 130 flows and deletes and changes some.
    fn new(runs: u16) -> Self {
        let mut history =
            Self { scratch: TempDir::new().unwrap(), wanted: Flows::new(), known: Flows::new(), states: Vec::new() };
        for run in 0..runs {
            let file = history.scratch.path().join(format!("{}.log", run + 1));
            let kept = Kept::start(history.scratch.path());
            history.states = vec![(HEADER, history.wanted.clone())];
            let mut flows: Vec<_> = (1..=126).map(|port| udp(run * 1_000 + port, "2")).collect();
            flows.extend(KEYS.iter().filter(|_| run == 0).map(|key| flow(key, "4")));
            for (index, flow) in flows.iter().enumerate() {
                kept.table.add(flow.clone(), START, None).unwrap();
                history.put(flow);
                if index % 5 == 0 {
                    let changed = flow.with_actions(udp(1, "3,4").actions.clone());
                    let id = kept.table.find(flow.ufid).unwrap();
                    kept.table.modify(id, changed.clone(), false, START, None).unwrap();
                    history.put(&changed);
                }
                if index % 6 == 0 {
                    let gone = history.wanted.keys().nth(index % history.wanted.len()).copied().unwrap();
                    kept.table.delete(kept.table.find(gone).unwrap(), EndReason::Deleted, START, None).unwrap();
                    history.wanted.remove(&gone);
                }
                kept.journal.wait(Duration::from_secs(10)).unwrap();
                let length = fs::metadata(&file).unwrap().len().try_into().unwrap();
                history.states.push((length, history.wanted.clone()));
            }
        }
        history
    }

    fn put(&mut self, flow: &Flow) {
        self.wanted.insert(flow.ufid, flow.clone());
        self.known.insert(flow.ufid, flow.clone());
    }

    /// Its files as they are, by number.
    fn files(&self) -> BTreeMap<u64, Vec<u8>> {
        let entries = fs::read_dir(self.scratch.path()).unwrap().map(|entry| entry.unwrap().path());
        entries
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .map(|path| (path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), fs::read(path).unwrap()))
            .collect()
    }
}

/// What files say is wanted, and what they say is missing.
fn read_files(files: &BTreeMap<u64, Vec<u8>>) -> Result<(Flows, Log), JournalError> {
    let mut log = Log::default();
    log.read_files(
        files.iter().map(|(number, bytes)| (*number, format!("{number}.log").into(), bytes.clone())).collect(),
    )?;
    let mut found = Flows::new();
    log.visit(0..log.len(), &mut ActionTexts::default(), &SEED, &mut |flow, _| drop(found.insert(flow.ufid, flow)))?;
    Ok((found, log))
}

/// Whether what was found differs from what was wanted only as the loss says.
fn is_told(found: &Flows, history: &History, log: &Log) -> Result<(), String> {
    let loss = log.loss().unwrap_or_default();
    let Loss { flows, changes, doubtful, .. } = &loss;
    let mut unexplained = 0;
    for (ufid, flow) in &history.wanted {
        match found.get(ufid) {
            Some(other) if other == flow => {}
            None if flows.contains(ufid) => {}
            _ => unexplained += 1,
        }
    }
    let mut in_doubt = Flows::new();
    log.visit_doubtful(&SEED, &mut |flow| drop(in_doubt.insert(flow.ufid, flow))).unwrap();
    if in_doubt.len() as u64 != *doubtful {
        return Err(format!("{} flows are listed as in doubt, not {doubtful}", in_doubt.len()));
    }
    for (ufid, flow) in found {
        if history.wanted.get(ufid) == Some(flow) {
            continue;
        }
        unexplained += u64::from(!history.wanted.contains_key(ufid));
        if !in_doubt.contains_key(ufid) {
            return Err(format!("flow {ufid} is back, or as it was before, and is not in doubt"));
        }
    }
    if unexplained > *changes {
        return Err(format!("{unexplained} flows are otherwise, and only {changes} changes are said to be lost"));
    }
    Ok(())
}

#[test]
fn a_file_that_is_cut_anywhere_says_what_was_wanted_up_to_there() {
    let history = History::new(1);
    let whole = history.files().remove(&1).unwrap();
    for length in (0..whole.len()).step_by(5).chain(whole.len() - 40..=whole.len()) {
        let (found, log) = read_files(&BTreeMap::from([(1, whole[..length].to_vec())])).unwrap();
        let (_, state) = history.states.iter().rev().find(|(end, _)| *end <= length).unwrap_or(&history.states[0]);
        // Records of one request may be cut apart.
        let after = history.states.iter().find(|(end, _)| *end > length).map_or(state, |(_, state)| state);
        let is_between =
            found.iter().all(|(ufid, flow)| state.get(ufid) == Some(flow) || history.known.contains_key(ufid))
                && state.keys().filter(|ufid| after.contains_key(ufid)).all(|ufid| found.contains_key(ufid));
        assert!(is_between, "cut at {length}");
        assert_eq!(log.loss(), None, "cut at {length}: as a crash leaves it");
        assert_eq!(log.summary.is_ended, length == whole.len(), "cut at {length}");
    }
}

#[test]
fn zeros_at_the_end_are_what_a_crash_leaves_and_other_bytes_are_damage() {
    let history = History::new(1);
    let whole = history.files().remove(&1).unwrap();
    let half = whole.len() / 2 / 512 * 512;
    let mut zeros = whole[..half].to_vec();
    zeros.resize(whole.len(), 0);
    let (_, log) = read_files(&BTreeMap::from([(1, zeros)])).unwrap();
    assert_eq!((log.loss(), log.summary.torn.len()), (None, 1));
    let mut other = whole[..half].to_vec();
    other.resize(whole.len(), 0xa5);
    let (found, log) = read_files(&BTreeMap::from([(1, other)])).unwrap();
    assert!(log.loss().is_some_and(|loss| loss.changes > 0 && loss.doubtful == found.len() as u64));
}

#[test]
fn one_wrong_byte_costs_one_flow_at_most_and_brings_none_back() {
    let history = History::new(1);
    let whole = history.files().remove(&1).unwrap();
    let last = whole.len() - 40;
    for at in (0..last).step_by(7).chain(last..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        let (found, log) = read_files(&BTreeMap::from([(1, bytes)])).unwrap();
        let loss = log.loss().unwrap_or_else(|| panic!("wrong at {at}, and nothing is said"));
        is_told(&found, &history, &log).unwrap_or_else(|error| panic!("wrong at {at}: {error}: {loss:?}"));
        assert!(loss.flows.len() <= 1 && loss.changes <= 1, "wrong at {at}: {loss:?}");
        assert!(at >= last || loss.changes == 0, "wrong at {at}: an index tells what is lost: {loss:?}");
    }
}

#[test]
fn a_file_that_is_gone_or_under_another_name_is_noticed() {
    let history = History::new(4);
    let files = history.files();
    assert_eq!(read_files(&files).unwrap().1.loss(), None);
    for gone in [1, 2, 3] {
        let mut left = files.clone();
        left.remove(&gone);
        let (found, log) = read_files(&left).unwrap();
        assert!(log.loss().unwrap().changes > 100, "{gone}.log is gone");
        is_told(&found, &history, &log).unwrap();
    }
    let mut swapped = files.clone();
    swapped.insert(2, files[&3].clone());
    swapped.insert(3, files[&2].clone());
    let (found, log) = read_files(&swapped).unwrap();
    assert_eq!(found, history.wanted);
    assert_eq!(log.loss().unwrap().damages.len(), 2);
    let mut doubled = files.clone();
    doubled.insert(3, files[&2].clone());
    let (found, log) = read_files(&doubled).unwrap();
    is_told(&found, &history, &log).unwrap();
    assert!(log.loss().is_some());
}

#[test]
fn a_damaged_log_is_kept_aside_told_of_and_made_whole() {
    let history = History::new(1);
    let folder = history.scratch.path();
    let file = folder.join("1.log");
    let whole = fs::read(&file).unwrap();
    let gone = *history.known.keys().find(|ufid| !history.wanted.contains_key(ufid)).unwrap();
    // The record of a deletion, which the index behind it has once more.
    let record = [&[3_u8][..], &gone.0.to_le_bytes()].concat();
    let at = whole.windows(record.len()).position(|bytes| bytes == record).unwrap();
    let mut damaged = whole.clone();
    damaged[at + 3] ^= 1;
    fs::write(&file, &damaged).unwrap();
    {
        let mut kept = Kept::start(folder);
        assert_eq!(kept.journal.report().damage, None, "an index tells that the flow was deleted");
        assert_eq!(fs::read(folder.join("1.log.damaged")).unwrap(), damaged);
        assert!(kept.table.find(gone).is_none());
        kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
        assert_eq!(
            read(folder).err().map(|error| error.to_string()),
            Some(format!("another sluiced keeps its flows in {}", folder.display()))
        );
    }
    let (found, log) = read(folder).unwrap();
    assert_eq!((found, log.loss()), (history.wanted.clone(), None));
    assert_eq!(fs::read(folder.join("1.log.damaged")).unwrap(), damaged, "no compaction touches it");
}

#[test]
fn a_loss_is_told_until_somebody_has_moved_the_report_away() {
    let history = History::new(2);
    let folder = history.scratch.path();
    fs::remove_file(folder.join("1.log")).unwrap();
    let report = {
        let mut kept = Kept::start(folder);
        let damage = kept.journal.report().damage.unwrap();
        assert!(damage.damage.unwrap().lost_changes > 100);
        assert!(damage.to_string().contains("move it away"), "{damage}");
        kept.keeper.compact(&kept.table, &|| false).unwrap().unwrap();
        damage.report
    };
    let text = fs::read_to_string(&report).unwrap();
    assert!(text.contains("what was written before this file is missing"), "{text}");
    let kept = Kept::start(folder);
    assert_eq!(kept.journal.report().damage.map(|damage| (damage.damage, damage.report)), Some((None, report.clone())));
    fs::remove_file(report).unwrap();
    kept.keeper.look_at_damage();
    assert_eq!(kept.journal.report().damage, None);
}

#[test]
fn a_loss_of_which_no_report_could_be_written_is_not_taken_for_one_that_somebody_has_read() {
    let history = History::new(2);
    let folder = history.scratch.path();
    fs::remove_file(folder.join("1.log")).unwrap();
    // A report that is not there, and that cannot be made.
    symlink("/nowhere/report", folder.join("damage-3.txt")).unwrap();
    let kept = Kept::start(folder);
    kept.keeper.look_at_damage();
    let damage = kept.journal.report().damage.unwrap();
    assert!(damage.damage.unwrap().lost_changes > 100);
    assert!(damage.to_string().contains("could not be written (cannot write "), "{damage}");
}

#[test]
fn a_log_of_version_1_is_read_and_its_damage_is_found() {
    let recorded = include_bytes!("version-1.log");
    let expected = flows(&[udp(1, "2"), udp(2, "3,4"), flow(KEYS[2], "2"), udp(5, "2")]);
    let (found, log) = read_files(&BTreeMap::from([(1, recorded.to_vec())])).unwrap();
    assert_eq!((found, log.loss()), (expected.clone(), None));
    let scratch = TempDir::new().unwrap();
    fs::write(scratch.path().join("1.log"), recorded).unwrap();
    let late = udp(77, "2");
    {
        let kept = Kept::start(scratch.path());
        kept.add(&late);
    }
    let (found, log) = read(scratch.path()).unwrap();
    let mut both = expected.clone();
    both.insert(late.ufid, late);
    assert_eq!((found, log.loss()), (both, None), "a file of version 2 continues one of version 1");
    for at in 16..recorded.len() {
        let mut bytes = recorded.to_vec();
        bytes[at] ^= 0x10;
        let Ok((found, log)) = read_files(&BTreeMap::from([(1, bytes)])) else { continue };
        assert!(found == expected || log.loss().is_some(), "wrong at {at}");
    }
}

/// What happens to the files of a log.
#[derive(Clone, Debug)]
enum Harm {
    Flip(Index, Index, u8),
    Cut(Index, Index),
    Drop(Index, Index, u16),
    Fill(Index, Index, u16),
    Remove(Index),
}

fn harm() -> impl Strategy<Value = Harm> {
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), index(), 0..8_u8).prop_map(|(file, at, bit)| Harm::Flip(file, at, bit)),
        1 => (index(), index()).prop_map(|(file, at)| Harm::Cut(file, at)),
        2 => (index(), index(), 1..6_000_u16).prop_map(|(file, at, length)| Harm::Drop(file, at, length)),
        2 => (index(), index(), 1..6_000_u16).prop_map(|(file, at, length)| Harm::Fill(file, at, length)),
        1 => index().prop_map(Harm::Remove),
    ]
}

impl Harm {
    /// Does it; says whether a reader may take it for what a crash does. `last_records` is the length of what was written last.
    fn befall(&self, files: &mut BTreeMap<u64, Vec<u8>>, last_records: usize) -> bool {
        let last = *files.keys().next_back().unwrap();
        let number = |index: &Index| *files.keys().nth(index.index(files.len())).unwrap();
        match self {
            Self::Flip(file, at, bit) => {
                let file = files.get_mut(&number(file)).unwrap();
                let at = at.index(file.len());
                file[at] ^= 1 << bit;
                false
            }
            Self::Cut(file, at) => {
                let number = number(file);
                let file = files.get_mut(&number).unwrap();
                file.truncate(at.index(file.len()));
                number == last
            }
            Self::Drop(file, at, length) => {
                let number = number(file);
                let file = files.get_mut(&number).unwrap();
                let at = at.index(file.len());
                let end = file.len().min(at + usize::from(*length));
                // Without a whole record behind the gap, what is left is one that was cut off.
                let is_tail = file.len() - end < last_records;
                file.drain(at..end);
                number == last && is_tail
            }
            Self::Fill(file, at, length) => {
                let number = number(file);
                let file = files.get_mut(&number).unwrap();
                let at = at.index(file.len());
                let end = file.len().min(at + usize::from(*length));
                file[at..end].fill(0);
                number == last && end == file.len()
            }
            Self::Remove(file) => {
                let number = number(file);
                files.remove(&number);
                // That there was a file after all others is not written anywhere.
                number == last
            }
        }
    }
}

#[test]
fn whatever_happens_to_a_log_no_difference_is_silent() {
    let history = History::new(3);
    let files = history.files();
    let [.., (before, _), (whole, _)] = &*history.states else { panic!("no history") };
    let last_records = whole - before;
    proptest!(ProptestConfig::with_cases(250), |(harms in proptest::collection::vec(harm(), 1..4))| {
        let mut files = files.clone();
        let mut is_as_after_a_crash = false;
        for harm in &harms {
            if files.is_empty() || files.values().any(Vec::is_empty) {
                break;
            }
            is_as_after_a_crash |= harm.befall(&mut files, last_records);
        }
        match read_files(&files) {
            // What is refused by name and place is not silent.
            Err(_) => {}
            Ok(_) if is_as_after_a_crash => {}
            Ok((found, log)) => prop_assert_eq!(is_told(&found, &history, &log), Ok(()), "{:?}", log.loss()),
        }
    });
}
