//! Captures of somebody else, and what was in them on the wire.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use sluice_control::mirror::Class;

use crate::captures::frames_of;
use crate::programs::until;
use crate::site::Spawned;

/// A capture by `dumpcap` of what a network device of a namespace sends.
pub(crate) struct Capture {
    process: Spawned,
    file: std::path::PathBuf,
}

impl Capture {
    /// Begins to capture what matches a filter (`pcap-filter(7)`, without blanks).
    pub(crate) fn start(folder: &Path, space: &str, filter: &[&str]) -> Self {
        let (file, log) = (folder.join(format!("{space}.source")), folder.join(format!("{space}.dumpcap")));
        // The filter is one argument of a line that is cut at blanks.
        std::fs::write(
            folder.join(format!("{space}.sh")),
            format!("exec dumpcap -q -i eth0 -B 16 -w {} -f '{}'\n", file.display(), filter.join(" ")),
        )
        .unwrap();
        let process = Spawned::new(space, &format!("sh {}", folder.join(format!("{space}.sh")).display()), &log);
        until("dumpcap captures", || std::fs::read_to_string(&log).unwrap().contains("File: "));
        Self { process, file }
    }

    /// Ends it, and returns what it has, with their classes as tshark tells them.
    pub(crate) fn stop(self) -> Vec<(Class, Vec<u8>)> {
        self.process.stop();
        classified(&self.file)
    }
}

/// The control frames of a capture, by what tshark takes them for.
pub(crate) fn classified(file: &Path) -> Vec<(Class, Vec<u8>)> {
    let frames = frames_in(file);
    let lines = tshark(file);
    assert_eq!(lines.len(), frames.len());
    lines.iter().zip(frames).filter_map(|(line, frame)| Some((class(line)?, frame))).collect()
}

/// All frames of a capture, whichever program wrote it.
pub(crate) fn frames_in(file: &Path) -> Vec<Vec<u8>> {
    frames_of(&std::fs::read(file).unwrap()).into_iter().map(|frame| frame.bytes).collect()
}

const FIELDS: [&str; 10] = [
    "arp.opcode",
    "icmpv6.type",
    "lldp.tlv.type",
    "lacp.version",
    "ospf.msg",
    "bfd.version",
    "dhcp.type",
    "tcp.port",
    "dhcpv6.msgtype",
    "icmp.type",
];

fn tshark(file: &Path) -> Vec<String> {
    let fields = FIELDS.iter().flat_map(|field| ["-e", *field]);
    let output = Command::new("tshark").arg("-r").arg(file).args(["-n", "-T", "fields"]).args(fields).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn class(line: &str) -> Option<Class> {
    let values: Vec<_> = line.split('\t').collect();
    let has = |name: &str| {
        FIELDS.iter().position(|field| *field == name).map(|place| values[place]).filter(|value| !value.is_empty())
    };
    // What complains of a packet has its beginning inside.
    if has("icmp.type").is_some() {
        return None;
    }
    if has("arp.opcode").is_some() {
        return Some(Class::Arp);
    }
    if let Some(kind) = has("icmpv6.type") {
        let kind: u8 = kind.split(',').next().unwrap().parse().unwrap();
        return (133..=137).contains(&kind).then_some(Class::Nd);
    }
    let ports = has("tcp.port").unwrap_or_default();
    let of = [
        (has("lldp.tlv.type").is_some(), Class::Lldp),
        (has("lacp.version").is_some(), Class::Lacp),
        (has("ospf.msg").is_some(), Class::Ospf),
        (has("bfd.version").is_some(), Class::Bfd),
        (has("dhcp.type").is_some() || has("dhcpv6.msgtype").is_some(), Class::Dhcp),
        (ports.split(',').any(|port| port == "179"), Class::Bgp),
    ];
    of.into_iter().find(|(is_it, _)| *is_it).map(|(_, class)| class)
}

/// How often each frame is there.
pub(crate) fn counted(frames: impl IntoIterator<Item = Vec<u8>>) -> BTreeMap<Vec<u8>, u32> {
    let mut counts = BTreeMap::new();
    frames.into_iter().for_each(|frame| *counts.entry(frame).or_default() += 1);
    counts
}

/// Fills in the checksum of TCP or UDP, whatever stands there, as the device does that a frame leaves by. Returns whether it was another.
pub(crate) fn fill_in(frame: &mut [u8]) -> bool {
    let mut at = 12;
    while matches!(frame[at..at + 2], [0x81, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    let network = at + 2;
    let (protocol, addresses, start, end) = match frame[at..network] {
        [8, 0] if u16::from_be_bytes([frame[network + 6], frame[network + 7]]) & 0x3fff == 0 => {
            let header = usize::from(frame[network] & 15) * 4;
            let length = usize::from(u16::from_be_bytes([frame[network + 2], frame[network + 3]]));
            (frame[network + 9], network + 12..network + 20, network + header, network + length)
        }
        [0x86, 0xdd] => {
            let length = usize::from(u16::from_be_bytes([frame[network + 4], frame[network + 5]]));
            (frame[network + 6], network + 8..network + 40, network + 40, network + 40 + length)
        }
        _ => return false,
    };
    let offset = match protocol {
        6 => 16,
        17 => 6,
        _ => return false,
    };
    let place = start + offset;
    let before = [frame[place], frame[place + 1]];
    if protocol == 17 && before == [0, 0] {
        return false;
    }
    frame[place..place + 2].fill(0);
    let words = |bytes: &[u8]| {
        bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]))).sum::<u32>()
    };
    let length = u32::try_from(end - start).unwrap();
    let mut sum = words(&frame[addresses]) + u32::from(protocol) + length + words(&frame[start..end]);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = match !u16::try_from(sum).unwrap() {
        0 => 0xffff,
        checksum => checksum,
    };
    frame[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    before != checksum.to_be_bytes()
}

/// What tshark objects to in a capture, with all checksums verified: malformed frames, wrong checksums and other errors, a line for each.
pub(crate) fn complaints(file: &Path) -> Vec<String> {
    const CHECKS: [&str; 6] =
        ["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"];
    let filter = "_ws.malformed || _ws.expert.severity == error || ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0";
    let output =
        Command::new("tshark").arg("-r").arg(file).arg("-n").args(CHECKS).args(["-Y", filter]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let objections = said.lines().filter(|line| !line.contains("root") && !line.trim().is_empty()).map(str::to_owned);
    objections.chain(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned)).collect()
}
