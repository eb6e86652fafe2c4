//! What a collector has written, read by others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};

/// A frame of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) interface: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) comments: Vec<String>,
}

/// The files of a folder, in their order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcapng"))
        .collect();
    files.sort();
    files
}

/// All frames of all files of a folder.
pub(crate) fn frames(folder: &Path) -> Vec<Written> {
    files(folder).iter().flat_map(|file| frames_of(&fs::read(file).unwrap())).collect()
}

/// All frames of a capture.
pub(crate) fn frames_of(capture: &[u8]) -> Vec<Written> {
    let mut reader = PcapNgReader::new(capture).unwrap();
    let mut interfaces = Vec::new();
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::SectionHeader(_) => interfaces.clear(),
            Block::InterfaceDescription(interface) => {
                let name = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                interfaces.push(name.expect("each interface has a name"));
            }
            Block::EnhancedPacket(packet) => {
                let comments = packet.options.iter().filter_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                });
                let comments = comments.collect();
                let interface = interfaces[usize::try_from(packet.interface_id).unwrap()].clone();
                frames.push(Written { interface, bytes: packet.data.into_owned(), comments });
            }
            _ => {}
        }
    }
    frames
}

/// Has tshark read a file, which must not complain, and returns what it prints of these fields.
pub(crate) fn tshark(file: &Path, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-n", "-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", *field]));
    let output = command.output().expect("tshark runs");
    let complaints = String::from_utf8_lossy(&output.stderr);
    // Of the user that it runs as, and not of the file.
    let complaints: Vec<_> =
        complaints.lines().filter(|line| !line.contains("root") && !line.trim().is_empty()).collect();
    assert!(output.status.success() && complaints.is_empty(), "{complaints:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}
