//! Agents that are killed, and what passes for an agent.

use std::fs::File;
use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept, bind, listen, sendmsg, socket_with,
};
use sluice_feedback::protocol::{Message, Received, receive, send};
use sluice_feedback::{Publisher, Refusal, SEALS, Totals, layout};
use sluice_flow::ufid::Ufid;
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::lab::switch::{Switch, eventually};
use sluice_tests::simulation::random::Random;

use super::agent::Agent;
use super::{flow, rounds, socket, start};
use crate::stream;

/// A shape that the header of a memory may have.
const SLOTS: u64 = 1024;

pub(crate) fn ovs_vswitchd_survives_an_agent_of_any_kind() {
    let switch = Switch::set_up();
    let path = socket(&switch);
    let vswitchd = start(&switch, "max-idle=3600000 max-revalidator=100");
    stream::send(10);
    let (ufid, _) = flow(&vswitchd).unwrap();
    let files = open_files(&vswitchd);
    let alive = || {
        rounds(&vswitchd, 1);
        assert_eq!(stream::send(2), 2);
        assert_eq!(flow(&vswitchd).unwrap().0, ufid);
        eventually("it has a connection and a memory at most", || open_files(&vswitchd) <= files + 2);
    };

    strangers(Path::new(&path));
    alive();
    files_that_are_no_memory(Path::new(&path));
    alive();
    memory_of_any_content(Path::new(&path), ufid, &vswitchd);
    alive();
    // What it has by now is as good as random; what comes next is of a flow that nothing is published of.
    agents_that_are_killed(&path, &vswitchd);
    alive();
}

/// What listens at the agent's place and is none.
fn strangers(path: &Path) {
    let listener = Listener::new(path);
    drop(listener.accept());
    let mut random = Random::new(1);
    let mut bytes = vec![0; 60_000];
    bytes.iter_mut().for_each(|byte| *byte = (random.below(256) & 0xff) as u8);
    // As long as a message and longer, one of a version to come, and some without an end.
    for length in [24, 60_000] {
        listener.accept().turned_away_at(&bytes[..length]);
    }
    let mut later = [0; 24];
    later[..8].copy_from_slice(&layout::MAGIC.to_ne_bytes());
    later[8..16].copy_from_slice(&[2u32.to_ne_bytes(), 2u32.to_ne_bytes()].concat());
    listener.accept().turned_away_at(&later);
    let peer = listener.accept();
    while send(&peer.0, Message::Memory, None) {}
    assert_eq!(peer.verdict(), Message::Refused(Refusal::None as u32));
}

/// Whatever can be sent beside a message.
fn files_that_are_no_memory(path: &Path) {
    let listener = Listener::new(path);
    let peer = listener.accept();
    let (pipe, _writer) = std::io::pipe().unwrap();
    let unsealed = memory(layout::MAGIC, layout::VERSION, SLOTS, length(SLOTS), SealFlags::empty());
    let cases: Vec<(OwnedFd, Refusal)> = vec![
        (File::open("/dev/zero").unwrap().into(), Refusal::Seals),
        (pipe.into(), Refusal::Seals),
        (unsealed.try_clone().unwrap().into(), Refusal::Seals),
        (memory(layout::MAGIC, layout::VERSION, SLOTS, length(SLOTS), SealFlags::GROW).into(), Refusal::Seals),
        (memory(layout::MAGIC, layout::VERSION, SLOTS, 100, SEALS).into(), Refusal::Length),
        (memory(layout::MAGIC, layout::VERSION, SLOTS, length(SLOTS) - 8, SEALS).into(), Refusal::Length),
        (memory(layout::MAGIC, layout::VERSION, 1 << 63, length(SLOTS), SEALS).into(), Refusal::Shape),
        (memory(layout::MAGIC, layout::VERSION, 0, length(SLOTS), SEALS).into(), Refusal::Shape),
        (memory(layout::MAGIC, layout::VERSION + 1, SLOTS, length(SLOTS), SEALS).into(), Refusal::Version),
        (memory(0, layout::VERSION, SLOTS, length(SLOTS), SEALS).into(), Refusal::Magic),
    ];
    for (file, refusal) in cases.chunks(3).flat_map(|some| {
        some.iter().for_each(|(file, _)| assert!(send(&peer.0, Message::Memory, Some(file.as_fd()))));
        some
    }) {
        assert_eq!(peer.verdict(), Message::Refused(*refusal as u32), "{file:?}");
    }
    unsealed.set_len(0).unwrap();
    // The second of two files has no room, and stays with the kernel.
    peer.send_two(unsealed.as_fd(), unsealed.as_fd());
    assert_eq!(peer.verdict(), Message::Refused(Refusal::Seals as u32));
}

/// A memory as it should be, which its owner then writes anything into while ovs-vswitchd reads it.
fn memory_of_any_content(path: &Path, ufid: Ufid, vswitchd: &OffloadingVswitchd) {
    let mut publisher = Publisher::create(300, 3).unwrap();
    publisher.publish(ufid, Totals { packets: 1_000_000, ..Totals::default() }).unwrap();
    let file = File::from(publisher.file().try_clone_to_owned().unwrap());
    {
        let listener = Listener::new(path);
        let peer = listener.accept();
        assert!(send(&peer.0, Message::Memory, Some(publisher.file())));
        assert_eq!(peer.verdict(), Message::Taken);
    }
    eventually("it is read", || flow(vswitchd).unwrap().1 >= 1_000_000);
    assert_eq!(file.set_len(0).unwrap_err().kind(), ErrorKind::PermissionDenied, "no memory is cut short");
    let mut random = Random::new(2);
    let mut word = || random.below(u64::MAX);
    let mut records = vec![0; 1024 * layout::RECORD];
    for round in 0..8 {
        records.chunks_mut(8).for_each(|place| place.copy_from_slice(&(word() >> (8 * round)).to_ne_bytes()));
        file.write_all_at(&records, layout::RECORDS as u64).unwrap();
        flow(vswitchd).unwrap();
        // The same in the flow's own record, wherever it is.
        records.chunks_mut(layout::RECORD).for_each(|record| record[8..24].copy_from_slice(&name(ufid)));
        file.write_all_at(&records, layout::RECORDS as u64).unwrap();
        flow(vswitchd).unwrap();
    }
    let all = vec![0xff; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.write_all_at(&all, 0).unwrap();
    rounds(vswitchd, 2);
    assert!(flow(vswitchd).is_some());
    let late = Publisher::create(300, 4).unwrap().adopt(file.into());
    assert_eq!(late, Err(Refusal::Magic), "nor does the next agent go on in it");
}

/// A UFID as it stands in messages and records.
fn name(ufid: Ufid) -> Vec<u8> {
    let words = ufid.0.to_be_bytes();
    words.as_chunks::<4>().0.iter().flat_map(|word| u32::from_be_bytes(*word).to_ne_bytes()).collect()
}

/// Agents one after the other, of which none says good-bye: what one has published is there until the next goes on with it.
fn agents_that_are_killed(path: &str, vswitchd: &OffloadingVswitchd) {
    let (ufid, _) = flow(vswitchd).unwrap();
    let told = || flow(vswitchd).unwrap().1;
    let first = Agent::start(path, 500, ufid, 100_000);
    assert_eq!(first.said, "Some(Refused(Magic)) 100000", "the memory of the story before");
    eventually("its packets are added", || (100_000..200_000).contains(&told()));
    drop(first);
    rounds(vswitchd, 1);
    assert!((100_000..200_000).contains(&told()), "they stay without an agent");

    // As large as the first and larger. The last packets are those of all three.
    for (capacity, said, sum) in [(500, "Some(Adopted)", 300_000), (2_000, "Some(Copied)", 500_000)] {
        let agent = Agent::start(path, capacity, ufid, 200_000);
        assert_eq!(agent.said, format!("{said} {sum}"));
        eventually("its packets are added to those of the one before", || {
            let told = told();
            assert!(told >= sum - 200_000, "{told}");
            (sum..sum + 100_000).contains(&told)
        });
    }
}

/// A memfd with a header and no more, as long as it is wanted, but with these seals.
fn memory(magic: u64, version: u64, slots: u64, length: u64, seals: SealFlags) -> File {
    let file = File::from(memfd_create("sluice-ovs-feedback", MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(length).unwrap();
    let words = [magic, version, layout::RECORD as u64, slots / 2, slots, 1];
    file.write_all_at(&words.map(u64::to_ne_bytes).concat(), 0).unwrap();
    file.set_len(length).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Of a memory with so many slots.
fn length(slots: u64) -> u64 {
    layout::marks(usize::try_from(slots).unwrap()) as u64 + slots * 8
}

/// Files that it has open, but for sockets of netlink: of these it opens one more whenever more of its threads ask at a time than ever before.
fn open_files(vswitchd: &OffloadingVswitchd) -> usize {
    let folder = format!("/proc/{}", vswitchd.pid());
    let netlink = std::fs::read_to_string(format!("{folder}/net/netlink")).unwrap();
    let inodes: Vec<_> = netlink.lines().skip(1).filter_map(|line| line.split_whitespace().last()).collect();
    let is_netlink = |file: &Path| {
        let name = std::fs::read_link(file).unwrap_or_default().display().to_string();
        let inode = name.strip_prefix("socket:[").and_then(|name| name.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(&inode))
    };
    let files = std::fs::read_dir(format!("{folder}/fd")).unwrap();
    files.filter(|file| !is_netlink(&file.as_ref().unwrap().path())).count()
}

/// A socket at the agent's place.
struct Listener<'a>(OwnedFd, &'a Path);

impl<'a> Listener<'a> {
    fn new(path: &'a Path) -> Self {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        listen(&socket, 4).unwrap();
        Self(socket, path)
    }

    /// Waits for the library.
    fn accept(&self) -> Peer {
        let peer = Peer(accept(&self.0).unwrap());
        match peer.hear() {
            Received::Message(Message::Hello { .. }, _) => peer,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        std::fs::remove_file(self.1).unwrap();
    }
}

/// The library, as an agent sees it.
struct Peer(OwnedFd);

impl Peer {
    /// What it says next.
    fn hear(&self) -> Received {
        let mut heard = Received::Nothing;
        eventually("the library says something", || {
            heard = receive(&self.0);
            !matches!(heard, Received::Nothing)
        });
        heard
    }

    fn verdict(&self) -> Message {
        match self.hear() {
            Received::Message(message, None) => message,
            other => panic!("{other:?}"),
        }
    }

    fn turned_away_at(&self, bytes: &[u8]) {
        self.send(bytes, &[]);
        assert!(matches!(self.hear(), Received::End), "{} bytes", bytes.len());
    }

    fn send_two(&self, first: BorrowedFd<'_>, second: BorrowedFd<'_>) {
        let mut memory = [0; 24];
        memory[..8].copy_from_slice(&layout::MAGIC.to_ne_bytes());
        memory[8..16].copy_from_slice(&[1u32.to_ne_bytes(), 2u32.to_ne_bytes()].concat());
        self.send(&memory, &[first, second]);
    }

    fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(files.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(files)));
        let sent = sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(sent, bytes.len());
    }
}
