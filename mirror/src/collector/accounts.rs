//! What captures say of frames that are not in them, and where those that are have come from.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use sluice_control::mirror::Class;

use super::output::{Output, Outputs};
use super::rig::{FRAMES, SENDER, batch, files, output, payload};
use crate::wire::{Cause, Drops, Hello};

/// What a capture says.
#[derive(Debug, Default)]
struct Said {
    sections: usize,
    /// Number and interface of each frame.
    frames: Vec<(u64, String)>,
    /// What was lost before frames, and in all.
    lost: Vec<String>,
    summaries: Vec<String>,
}

impl Said {
    fn read(&mut self, capture: impl io::Read) {
        let mut reader = PcapNgReader::new(capture).unwrap();
        let mut interfaces = Vec::new();
        self.sections += 1;
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::SectionHeader(_) => {
                    self.sections += 1;
                    interfaces.clear();
                }
                Block::InterfaceDescription(interface) => {
                    interfaces.extend(interface.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                        _ => None,
                    }));
                }
                Block::EnhancedPacket(packet) => {
                    let number = u64::from_be_bytes(packet.data[14..22].try_into().unwrap());
                    self.frames.push((number, interfaces[usize::try_from(packet.interface_id).unwrap()].clone()));
                    self.lost.extend(packet.options.iter().filter_map(|option| match option {
                        EnhancedPacketOption::Comment(text) if !text.starts_with("ufid:") => Some(text.to_string()),
                        _ => None,
                    }));
                }
                Block::InterfaceStatistics(statistics) => {
                    self.summaries.extend(statistics.options.iter().filter_map(|option| match option {
                        InterfaceStatisticsOption::Comment(text) => Some(text.to_string()),
                        _ => None,
                    }));
                }
                _ => {}
            }
        }
    }

    /// What all files of a folder say.
    fn in_folder(folder: &Path) -> Self {
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut said = Self::default();
        files.iter().for_each(|file| said.read(File::open(file).unwrap()));
        said
    }
}

fn write(output: &mut Output, sequence: u64, given_up: u32, drops: &[(Cause, u64)]) {
    let mut counts = Drops::default();
    drops.iter().for_each(|(cause, count)| counts[*cause] = *count);
    let batch = super::senders::Batch { given_up, drops: counts, ..batch(sequence) };
    output.batch(&batch, &payload(sequence, |_| 1)).unwrap();
}

#[test]
fn drops_that_a_file_tells_of_are_not_told_again_by_the_next_collector() {
    let folder = tempfile::tempdir().unwrap();
    let next = || {
        let mut next = output(files(folder.path()));
        next.hello(SENDER, Hello::default());
        next
    };
    let full = |count| [(Cause::QueueFull, count)];
    write(&mut next(), 0, 0, &full(5));
    write(&mut next(), 5, 0, &full(5));
    // One that writes no frame of the sender keeps what is known of it.
    drop(next());
    let mut last = next();
    write(&mut last, 10, 0, &full(5));
    write(&mut last, 15, 0, &full(7));
    drop(last);
    let said = Said::in_folder(folder.path());
    let told = |count| format!("class lldp, lost before this frame: {count} queue-full");
    assert_eq!((said.frames.len(), said.lost), (20, vec![told(5), told(2)]));
}

#[test]
fn frames_that_a_sender_has_given_up_are_told_once_and_others_that_are_missing_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let mut output = output(files(folder.path()));
    output.hello(SENDER, Hello { name: "leaf".to_owned(), ..Hello::default() });
    let lost = |count| [(Cause::ConnectionLost, count)];
    write(&mut output, 0, 0, &[]);
    write(&mut output, 10, 5, &lost(5));
    write(&mut output, 25, 6, &lost(11));
    // What was sent again is no gap.
    write(&mut output, 25, 6, &lost(11));
    output.finish();
    let said = Said::in_folder(folder.path());
    let told = |what: &str| format!("class lldp, lost before this frame: {what}");
    assert_eq!(said.lost, [told("5 connection-lost"), told("4 missing 6 connection-lost")]);
    assert_eq!(said.summaries, ["sender leaf; lldp: 15 frames, 4 missing, 5 twice, 11 connection-lost"]);
}

/// A pipe that keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_capture_in_which_ports_come_and_go_begins_sections_and_each_frame_has_its_port() {
    const ALL: u64 = 1000 * FRAMES as u64;
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::default();
    let mut first = output(Outputs { pipe: Some(Box::new(kept.clone())), ..files(folder.path()) });
    first.hello(SENDER, Hello::default());
    let port = |number: u64| u32::try_from(number).unwrap();
    for sequence in (0..ALL).step_by(FRAMES as usize) {
        first.batch(&batch(sequence), &payload(sequence, port)).unwrap();
    }
    drop(first);
    let mut piped = Said::default();
    piped.read(&kept.0.lock().unwrap()[..]);
    for said in [piped, Said::in_folder(folder.path())] {
        let expected = (0..ALL).map(|number| (number, format!("port {number}")));
        assert!(said.frames.iter().cloned().eq(expected), "{} frames", said.frames.len());
        // Of a bit more than a thousand interfaces each, and each with a summary of the sender.
        assert_eq!((said.sections, said.summaries.len()), (5, 4));
    }
    let acknowledged = output(files(folder.path())).hello(SENDER, Hello::default());
    assert_eq!(acknowledged[Class::Lldp.index()], ALL);
}
