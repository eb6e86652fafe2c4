//! Frames as blocks of pcapng, in memory: whoever has the bytes writes them to a file or a pipe in one piece.
//!
//! Numbers are little endian, for `dumpcap`, and with it `tshark -i -`, reads a pipe in the byte order of its own host only. `pcap-file`
//! writes the time of statistics as one number of 64 bits, where the format has two of 32, the higher first.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapResult};

use super::mark::Mark;

/// How the program that wrote a capture is called in it, in front of its version.
pub(super) const PROGRAM: &str = "sluice-mirror ";

/// With so many interfaces, the next section is begun: senders and ports come and go, and a section has each interface to its end. TShark 4.0 takes
/// the interfaces of later sections for those of the first, so that sections are long. Unit tests would have to make very many for one.
const INTERFACES: usize = if cfg!(test) { 1024 } else { 65_536 };

/// A capture of Ethernet frames that is being written.
pub(super) struct Capture {
    writer: PcapNgWriter<Vec<u8>>,
    /// Those of the section.
    interfaces: HashMap<Interface, Counted>,
}

/// Where frames come from: an interface of the capture.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Interface {
    /// Number of the sender.
    pub(super) sender: u64,
    /// Name of the port.
    pub(super) name: String,
    /// What is said of it.
    pub(super) description: String,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    id: u32,
    frames: u64,
}

/// A frame and what is said of it.
pub(super) struct Packet<'a> {
    /// Nanoseconds since 1970.
    pub(super) captured: u64,
    /// Its length on the wire.
    pub(super) length: u32,
    pub(super) bytes: &'a [u8],
    pub(super) ufid: Option<u128>,
    /// What was lost before it.
    pub(super) lost: Option<Lost>,
}

/// Frames that were lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) frames: u64,
    /// In words.
    pub(super) causes: String,
}

impl Capture {
    /// Begins a capture.
    pub(super) fn new() -> PcapResult<Self> {
        Ok(Self { writer: PcapNgWriter::with_section_header(Vec::new(), section())?, interfaces: HashMap::new() })
    }

    /// Whether its section has so many interfaces that the next one is due.
    pub(super) fn is_full(&self) -> bool {
        self.interfaces.len() >= INTERFACES
    }

    /// Ends the section with [statistics](Self::statistics), and begins the next one, in which no interface is described yet.
    pub(super) fn next_section(&mut self, now: u64, summary: impl Fn(u64) -> String) -> PcapResult<()> {
        self.statistics(now, summary)?;
        self.writer.write_pcapng_block(section())?;
        self.interfaces.clear();
        Ok(())
    }

    /// Adds a frame.
    pub(super) fn packet(&mut self, interface: &Interface, packet: &Packet<'_>) -> PcapResult<()> {
        let id = self.interface(interface)?;
        let mut options = Vec::new();
        if let Some(lost) = &packet.lost {
            options.push(EnhancedPacketOption::DropCount(lost.frames));
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(&lost.causes)));
        }
        if let Some(ufid) = packet.ufid {
            options.push(EnhancedPacketOption::Comment(format!("ufid:{}", Ufid(ufid)).into()));
        }
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: id,
            timestamp: Duration::from_nanos(packet.captured),
            original_len: packet.length,
            data: Cow::Borrowed(packet.bytes),
            options,
        })?;
        Ok(())
    }

    /// Returns the number of an interface, which is described at its first frame.
    fn interface(&mut self, interface: &Interface) -> PcapResult<u32> {
        const NANOSECONDS: u8 = 9;
        if let Some(counted) = self.interfaces.get_mut(interface) {
            counted.frames += 1;
            return Ok(counted.id);
        }
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(&interface.name)),
            InterfaceDescriptionOption::IfDescription(Cow::Borrowed(&interface.description)),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        let block = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
        self.writer.write_pcapng_block(block)?;
        let id = u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX);
        self.interfaces.insert(interface.clone(), Counted { id, frames: 1 });
        Ok(id)
    }

    /// Adds how far a sender's class was taken over.
    pub(super) fn mark(&mut self, mark: &Mark) -> PcapResult<()> {
        self.writer.write_pcapng_block(mark.block()).map(drop)
    }

    /// Adds statistics of all interfaces, with a summary of each sender at its first one.
    pub(super) fn statistics(&mut self, now: u64, summary: impl Fn(u64) -> String) -> PcapResult<()> {
        let mut interfaces: Vec<_> =
            self.interfaces.iter().map(|(interface, counted)| (*counted, interface.sender)).collect();
        interfaces.sort_by_key(|(counted, _)| counted.id);
        let mut told = Vec::new();
        for (counted, sender) in interfaces {
            let mut options = vec![InterfaceStatisticsOption::IsbIfRecv(counted.frames)];
            if !told.contains(&sender) {
                told.push(sender);
                options.push(InterfaceStatisticsOption::Comment(summary(sender).into()));
            }
            let block = InterfaceStatisticsBlock { interface_id: counted.id, timestamp: now.rotate_left(32), options };
            self.writer.write_pcapng_block(block)?;
        }
        Ok(())
    }

    /// Returns the bytes that were added, and forgets them.
    pub(super) fn bytes(&mut self) -> Chunk<'_> {
        Chunk(self.writer.get_mut())
    }
}

fn section() -> SectionHeaderBlock<'static> {
    let program = SectionHeaderOption::UserApplication(format!("{PROGRAM}{}", env!("CARGO_PKG_VERSION")).into());
    SectionHeaderBlock { endianness: Endianness::Little, options: vec![program], ..Default::default() }
}

/// Bytes of whole blocks, which are forgotten with this.
pub(super) struct Chunk<'a>(&'a mut Vec<u8>);

impl AsRef<[u8]> for Chunk<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl Drop for Chunk<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// A UFID as flow text has it.
struct Ufid(u128);

impl std::fmt::Display for Ufid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = format!("{:032x}", self.0);
        for (place, digit) in digits.chars().enumerate() {
            if matches!(place, 8 | 12 | 16 | 20) {
                out.write_char('-')?;
            }
            out.write_char(digit)?;
        }
        Ok(())
    }
}
