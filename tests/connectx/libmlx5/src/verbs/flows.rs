//! Flows of verbs, and counters of their packets.

use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use rdma_sys as sys;

use super::pairs::QueuePair;
use super::{Context, calls, unsupported};
use crate::{done, made};

/// What a flow is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FlowKind {
    /// Packets that its headers match.
    Normal = 0,
    /// All that nobody takes.
    AllDefault = 1,
    /// Multicast that nobody takes.
    MulticastDefault = 2,
    /// Copies of all packets.
    Sniffer = 3,
}

/// A header or an action of a flow, as `struct ibv_flow_spec_*` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec(Vec<u8>);

impl Spec {
    /// The same for the header inside of a tunnel.
    pub const INNER: u32 = 0x100;
    /// Destination, source, type and tag.
    pub const ETHERNET: u32 = 0x20;
    /// Source, destination, protocol, type of service, time to live, flags.
    pub const V4: u32 = 0x32;
    /// Source, destination, flow label, next header, traffic class, hop limit, and a byte.
    pub const V6: u32 = 0x31;
    /// Destination and source.
    pub const TCP: u32 = 0x40;
    /// The same.
    pub const UDP: u32 = 0x41;
    /// The network's number, in 4 bytes.
    pub const VXLAN: u32 = 0x50;
    /// Flags, protocol and key.
    pub const GRE: u32 = 0x51;

    /// A header: its fields, and which bits of them are looked at.
    #[must_use]
    pub fn header(kind: u32, value: &[u8], mask: &[u8]) -> Self {
        // Fields of 2 bytes begin right behind the size.
        let begins = if matches!(kind & !Self::INNER, Self::ETHERNET | Self::TCP | Self::UDP) { 6 } else { 8 };
        Self::new(kind, begins, &[value, mask].concat())
    }

    /// Gives packets a tag.
    #[must_use]
    pub fn tag(tag: u32) -> Self {
        Self::new(0x1000, 8, &tag.to_ne_bytes())
    }

    /// Drops packets.
    #[must_use]
    pub fn drop_packets() -> Self {
        Self::new(0x1001, 8, &[])
    }

    /// Counts packets.
    #[must_use]
    pub fn count(counters: &Counters<'_>) -> Self {
        Self::new(0x1003, 8, &(counters.raw.as_ptr() as u64).to_ne_bytes())
    }

    fn new(kind: u32, begins: usize, body: &[u8]) -> Self {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.resize(begins, 0);
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let size = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        bytes[4..6].copy_from_slice(&size.to_ne_bytes());
        Self(bytes)
    }
}

/// A flow.
#[derive(Debug)]
pub struct Flow<'a> {
    raw: NonNull<sys::ibv_flow>,
    of: PhantomData<&'a Context>,
}

impl QueuePair<'_> {
    /// Has packets come to the pair, or whatever else the specs say.
    ///
    /// # Errors
    /// As `ibv_create_flow` fails.
    pub fn flow<'a>(
        &'a self,
        kind: FlowKind,
        (priority, flags): (u16, u32),
        specs: &[&'a Spec],
    ) -> io::Result<Flow<'a>> {
        let mut attributes = [0_u32, kind as u32].map(u32::to_ne_bytes).concat();
        attributes.extend([0, 0]);
        attributes.extend(priority.to_ne_bytes());
        attributes.extend([u8::try_from(specs.len()).map_err(io::Error::other)?, 1, 0, 0]);
        attributes.extend(flags.to_ne_bytes());
        specs.iter().for_each(|spec| attributes.extend(&spec.0));
        let size = u16::try_from(attributes.len()).map_err(io::Error::other)?;
        attributes[8..10].copy_from_slice(&size.to_ne_bytes());
        // In memory that is aligned as the structure is.
        let mut words = vec![0_u64; attributes.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(attributes.chunks(8)) {
            let mut part = [0; 8];
            part[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(part);
        }
        // SAFETY: the pair exists, and so do counters that are named; the attributes are as long as they say.
        let raw = unsafe {
            let create = calls((*self.raw()).context)?.ibv_create_flow.ok_or_else(unsupported)?;
            create(self.raw(), words.as_mut_ptr().cast())
        };
        made(raw).map(|raw| Flow { raw, of: PhantomData })
    }
}

impl Drop for Flow<'_> {
    fn drop(&mut self) {
        // SAFETY: the flow exists.
        unsafe {
            if let Ok(sys::verbs_context { ibv_destroy_flow: Some(destroy), .. }) = calls(self.raw.as_ref().context) {
                destroy(self.raw.as_ptr());
            }
        }
    }
}

/// Counters of flows.
#[derive(Debug)]
pub struct Counters<'a> {
    raw: NonNull<sys::ibv_counters>,
    of: PhantomData<&'a Context>,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Wanted {
    /// Packets.
    Packets = 0,
    /// Their bytes.
    Bytes = 1,
}

impl Context {
    /// Counters, of which nothing is wanted yet.
    ///
    /// # Errors
    /// As `ibv_create_counters` fails.
    pub fn counters(&self) -> io::Result<Counters<'_>> {
        let mut attributes = sys::ibv_counters_init_attr { comp_mask: 0 };
        // SAFETY: the context is open.
        let raw =
            unsafe { calls(self.raw())?.create_counters.ok_or_else(unsupported)?(self.raw(), &raw mut attributes) };
        made(raw).map(|raw| Counters { raw, of: PhantomData })
    }
}

impl Counters<'_> {
    /// Wants to know something of flows, at a place of what is read.
    ///
    /// # Errors
    /// As `ibv_attach_counters_point_flow` fails.
    pub fn want(&self, wanted: Wanted, place: u32) -> io::Result<()> {
        let mut attributes = sys::ibv_counter_attach_attr { counter_desc: wanted as u32, index: place, comp_mask: 0 };
        // SAFETY: the counters exist, and flows come later.
        done(unsafe {
            let context = self.raw.as_ref().context;
            let attach = calls(context)?.attach_counters_point_flow.ok_or_else(unsupported)?;
            attach(self.raw.as_ptr(), &raw mut attributes, std::ptr::null_mut())
        })
    }

    /// Reads the first numbers, as many as are asked for.
    ///
    /// # Errors
    /// As `ibv_read_counters` fails.
    pub fn read(&self, count: u32) -> io::Result<Vec<u64>> {
        let mut numbers = vec![0; count as usize];
        // SAFETY: the counters exist, and there is room for all numbers.
        done(unsafe {
            let read = calls(self.raw.as_ref().context)?.read_counters.ok_or_else(unsupported)?;
            read(self.raw.as_ptr(), numbers.as_mut_ptr(), count, 0)
        })?;
        Ok(numbers)
    }
}

impl Drop for Counters<'_> {
    fn drop(&mut self) {
        // SAFETY: flows that they count borrow them, and are gone.
        unsafe {
            if let Ok(sys::verbs_context { destroy_counters: Some(destroy), .. }) = calls(self.raw.as_ref().context) {
                destroy(self.raw.as_ptr());
            }
        }
    }
}
