//! The packet socket.

#![allow(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "libc gives constants other types than the fields that they are for, and lengths are small"
)]

use std::ffi::{c_int, c_ushort};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::{sock_filter, sock_fprog, sockaddr_ll, tpacket_req3, tpacket_stats_v3};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sluice_control::mirror::filter::Instruction;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::RingSize;

/// A packet socket. It receives nothing until [`PacketSocket::bind`].
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    pub(super) fn open() -> io::Result<Self> {
        // Without a protocol: one that has any receives from all devices at once.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?))
    }

    pub(super) fn set_filter(&self, filter: &[Instruction]) -> io::Result<()> {
        let instructions = filter.iter();
        let mut program: Vec<_> = instructions
            .map(|one| sock_filter { code: one.code, jt: one.jump_true, jf: one.jump_false, k: one.operand })
            .collect();
        let length = c_ushort::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = sock_fprog { len: length, filter: program.as_mut_ptr() };
        // SAFETY: the kernel copies the program, which has as many instructions as it says, and which outlives the call.
        unsafe { self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
    }

    /// Makes the ring. Each frame gets a header that tells of unfilled checksums and of segmentation (`virtio_net_hdr`).
    pub(super) fn set_ring(&self, size: RingSize) -> io::Result<()> {
        /// Of no meaning in version 3, but that blocks are told in frames, too.
        const FRAME: u32 = 2048;
        let RingSize { block_bytes, blocks, retire_after } = size;
        let retire = u32::try_from(retire_after.as_millis()).ok().filter(|milliseconds| *milliseconds > 0);
        let frames = (block_bytes / FRAME).checked_mul(blocks);
        let (Some(retire), Some(frames)) = (retire, frames) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let version = libc::tpacket_versions::TPACKET_V3 as c_int;
        let request = tpacket_req3 {
            tp_block_size: block_bytes,
            tp_block_nr: blocks,
            tp_frame_size: FRAME,
            tp_frame_nr: frames,
            tp_retire_blk_tov: retire,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        // SAFETY: each option is of the type that packet(7) gives it.
        unsafe {
            self.set(libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
            self.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1_i32)?;
            self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
        }
    }

    /// Begins to receive, from all devices.
    pub(super) fn bind(&self) -> io::Result<()> {
        let address = sockaddr_ll {
            sll_family: libc::AF_PACKET as c_ushort,
            sll_protocol: (libc::ETH_P_ALL as c_ushort).to_be(),
            sll_ifindex: 0,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of::<sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is one of packet sockets, of this length.
        succeeded(unsafe { libc::bind(self.as_raw_fd(), (&raw const address).cast(), length) })
    }

    /// Puts it into the reactor of the tokio runtime that this is called in.
    pub(super) fn in_reactor(self) -> io::Result<AsyncFd<Self>> {
        Handle::try_current().map_err(io::Error::other)?;
        // SAFETY: the socket is open until it is dropped, which is after it was taken out of the reactor.
        Ok(unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) }?)
    }

    /// What was counted since it was last asked for.
    pub(super) fn statistics(&self) -> io::Result<tpacket_stats_v3> {
        let mut statistics = MaybeUninit::<tpacket_stats_v3>::zeroed();
        let mut length = size_of::<tpacket_stats_v3>() as libc::socklen_t;
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        // SAFETY: there is room for an answer of this length.
        let code =
            unsafe { libc::getsockopt(self.as_raw_fd(), level, name, statistics.as_mut_ptr().cast(), &raw mut length) };
        succeeded(code)?;
        // SAFETY: zeroes are a value of every field, and then the call filled it in.
        Ok(unsafe { statistics.assume_init() })
    }

    /// # Safety
    /// The value must be of the type that the option has.
    unsafe fn set<T>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value has this length.
        succeeded(unsafe { libc::setsockopt(self.as_raw_fd(), level, name, (&raw const *value).cast(), length) })
    }
}

fn succeeded(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
