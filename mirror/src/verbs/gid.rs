//! Addresses of ports (GIDs).

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::net::Ipv6Addr;

use rdma_sys as sys;

use super::context::Context;
use super::error::{CallError, done};

// Not bound by `rdma-sys` 0.3.0, which leaves names out that begin with an underscore; `ibv_query_gid_ex` and `ibv_query_gid_table` are
// inline functions that call these (`infiniband/verbs.h`).
#[link(name = "ibverbs")]
unsafe extern "C" {
    fn _ibv_query_gid_ex(
        context: *mut sys::ibv_context,
        port: u32,
        index: u32,
        entry: *mut sys::ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> c_int;
    fn _ibv_query_gid_table(
        context: *mut sys::ibv_context,
        entries: *mut sys::ibv_gid_entry,
        most: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize;
}

/// An address, in network byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl fmt::Display for Gid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(out)
    }
}

/// An entry of a port's table of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// Its place in the table.
    pub index: u32,
    /// Its port.
    pub port: u32,
    /// How packets with it look.
    pub kind: GidKind,
    /// The network device that it belongs to, if any.
    pub ifindex: Option<u32>,
}

/// How packets with an address look (`enum ibv_gid_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1: an Ethernet type of its own, within one segment.
    RoceV1,
    /// RoCE v2: UDP port 4791, which is routed.
    RoceV2,
}

impl Context {
    /// Asks for one address of a port.
    ///
    /// # Errors
    /// Fails if the place is empty (`ENODATA`), or if the device does not answer.
    pub fn gid(&self, port: u8, index: u32) -> Result<GidEntry, CallError> {
        const CALL: &str = "ibv_query_gid_ex";
        let mut entry = empty();
        let size = size_of::<sys::ibv_gid_entry>();
        // SAFETY: the context is open, and there is room for an entry of the size that is given.
        done(CALL, unsafe { _ibv_query_gid_ex(self.raw(), port.into(), index, &raw mut entry, 0, size) })?;
        Ok(read(&entry))
    }

    /// Asks for all addresses of all ports.
    ///
    /// # Errors
    /// Fails if there are more than 1,024, or if the device does not answer.
    pub fn gids(&self) -> Result<Vec<GidEntry>, CallError> {
        const CALL: &str = "ibv_query_gid_table";
        const MOST: usize = 1024;
        let mut entries: Vec<_> = (0..MOST).map(|_| empty()).collect();
        let size = size_of::<sys::ibv_gid_entry>();
        // SAFETY: the context is open, and there is room for as many entries as is said.
        let count = unsafe { _ibv_query_gid_table(self.raw(), entries.as_mut_ptr(), MOST, 0, size) };
        let failed = |_| {
            let number = i32::try_from(count.unsigned_abs()).unwrap_or_default();
            CallError::new(CALL, io::Error::from_raw_os_error(number))
        };
        entries.truncate(usize::try_from(count).map_err(failed)?);
        Ok(entries.iter().map(read).collect())
    }
}

fn empty() -> sys::ibv_gid_entry {
    sys::ibv_gid_entry { gid: sys::ibv_gid { raw: [0; 16] }, gid_index: 0, port_num: 0, gid_type: 0, ndev_ifindex: 0 }
}

fn read(entry: &sys::ibv_gid_entry) -> GidEntry {
    // SAFETY: any bytes are an address.
    let gid = Gid(unsafe { entry.gid.raw });
    let kind = match entry.gid_type {
        1 => GidKind::RoceV1,
        2 => GidKind::RoceV2,
        _ => GidKind::InfiniBand,
    };
    let ifindex = (entry.ndev_ifindex != 0).then_some(entry.ndev_ifindex);
    GidEntry { gid, index: entry.gid_index, port: entry.port_num, kind, ifindex }
}
