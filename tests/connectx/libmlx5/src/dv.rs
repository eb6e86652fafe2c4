//! libmlx5's own interface (`infiniband/mlx5dv.h`): commands past the driver (DevX), and tables that software owns (direct rules).

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use rdma_sys::ibv_context;

use crate::verbs::Context;
use crate::{done, made};

/// A handle: what it stands for, how that is destroyed, and what it is made of.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident $raw:ident $destroy:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a> {
            raw: NonNull<$raw>,
            of: PhantomData<&'a ()>,
        }

        impl $name<'_> {
            fn new(raw: *mut $raw) -> io::Result<Self> {
                made(raw).map(|raw| Self { raw, of: PhantomData })
            }
        }

        impl Drop for $name<'_> {
            fn drop(&mut self) {
                // SAFETY: whatever is made of it borrows it, and is gone.
                unsafe { $destroy(self.raw.as_ptr()) };
            }
        }
    };
}

mod anchor;
mod aso;
mod destinations;
mod later;
mod queues;
mod tuning;

pub use anchor::Anchor;
pub use destinations::{Destination, Meter};
pub use later::Answers;
pub use tuning::Layout;

macro_rules! opaque {
    ($($name:ident),*) => { $(#[repr(C)] struct $name { _private: [u8; 0] })* };
}
opaque!(RawDomain, RawTable, RawMatcher, RawRule, RawAction, RawObject);

/// `mlx5dv_devx_uar`, of which more follows.
#[repr(C)]
struct RawUar {
    doorbell: *mut c_void,
    base: *mut c_void,
    page: u32,
}

/// `mlx5dv_devx_umem`.
#[repr(C)]
struct RawUmem {
    id: u32,
}

#[link(name = "mlx5")]
unsafe extern "C" {
    fn mlx5dv_dr_domain_create(context: *mut ibv_context, kind: u32) -> *mut RawDomain;
    fn mlx5dv_dr_domain_destroy(domain: *mut RawDomain) -> c_int;
    fn mlx5dv_dr_domain_sync(domain: *mut RawDomain, flags: u32) -> c_int;
    fn mlx5dv_dump_dr_domain(file: *mut libc::FILE, domain: *mut RawDomain) -> c_int;
    fn mlx5dv_dr_table_create(domain: *mut RawDomain, level: u32) -> *mut RawTable;
    fn mlx5dv_dr_table_destroy(table: *mut RawTable) -> c_int;
    fn mlx5dv_dr_matcher_create(table: *mut RawTable, priority: u16, criteria: u8, mask: *mut u64) -> *mut RawMatcher;
    fn mlx5dv_dr_matcher_destroy(matcher: *mut RawMatcher) -> c_int;
    fn mlx5dv_dr_rule_create(
        matcher: *mut RawMatcher,
        value: *mut u64,
        actions: usize,
        list: *mut *mut RawAction,
    ) -> *mut RawRule;
    fn mlx5dv_dr_rule_destroy(rule: *mut RawRule) -> c_int;
    fn mlx5dv_dr_action_create_drop() -> *mut RawAction;
    fn mlx5dv_dr_action_create_dest_table(table: *mut RawTable) -> *mut RawAction;
    fn mlx5dv_dr_action_create_dest_vport(domain: *mut RawDomain, vport: u32) -> *mut RawAction;
    fn mlx5dv_dr_action_create_dest_ib_port(domain: *mut RawDomain, port: u32) -> *mut RawAction;
    fn mlx5dv_dr_action_create_dest_devx_tir(object: *mut RawObject) -> *mut RawAction;
    fn mlx5dv_dr_action_create_flow_counter(object: *mut RawObject, offset: u32) -> *mut RawAction;
    fn mlx5dv_dr_action_create_tag(tag: u32) -> *mut RawAction;
    fn mlx5dv_dr_action_create_pop_vlan() -> *mut RawAction;
    fn mlx5dv_dr_action_create_push_vlan(domain: *mut RawDomain, header: u32) -> *mut RawAction;
    fn mlx5dv_dr_action_create_modify_header(
        domain: *mut RawDomain,
        flags: u32,
        bytes: usize,
        actions: *mut u64,
    ) -> *mut RawAction;
    fn mlx5dv_dr_action_create_packet_reformat(
        domain: *mut RawDomain,
        flags: u32,
        kind: u32,
        bytes: usize,
        data: *mut c_void,
    ) -> *mut RawAction;
    fn mlx5dv_dr_action_destroy(action: *mut RawAction) -> c_int;
    fn mlx5dv_devx_alloc_uar(context: *mut ibv_context, flags: u32) -> *mut RawUar;
    fn mlx5dv_devx_free_uar(uar: *mut RawUar);
    fn mlx5dv_devx_umem_reg(context: *mut ibv_context, start: *mut c_void, bytes: usize, access: u32) -> *mut RawUmem;
    fn mlx5dv_devx_umem_dereg(umem: *mut RawUmem) -> c_int;
    fn mlx5dv_devx_query_eqn(context: *mut ibv_context, vector: u32, number: *mut u32) -> c_int;
    fn mlx5dv_devx_general_cmd(
        context: *mut ibv_context,
        input: *const c_void,
        input_bytes: usize,
        output: *mut c_void,
        output_bytes: usize,
    ) -> c_int;
    fn mlx5dv_devx_obj_create(
        context: *mut ibv_context,
        input: *const c_void,
        input_bytes: usize,
        output: *mut c_void,
        output_bytes: usize,
    ) -> *mut RawObject;
    fn mlx5dv_devx_obj_query(
        object: *mut RawObject,
        input: *const c_void,
        input_bytes: usize,
        output: *mut c_void,
        output_bytes: usize,
    ) -> c_int;
    fn mlx5dv_devx_obj_modify(
        object: *mut RawObject,
        input: *const c_void,
        input_bytes: usize,
        output: *mut c_void,
        output_bytes: usize,
    ) -> c_int;
    fn mlx5dv_devx_obj_destroy(object: *mut RawObject) -> c_int;
}

handle!(
    /// All tables of a kind, and what they share.
    Domain RawDomain mlx5dv_dr_domain_destroy
);
handle!(
    /// A table.
    Table RawTable mlx5dv_dr_table_destroy
);
handle!(
    /// Which fields a set of rules matches.
    Matcher RawMatcher mlx5dv_dr_matcher_destroy
);
handle!(
    /// A rule.
    Rule RawRule mlx5dv_dr_rule_destroy
);
handle!(
    /// What rules do.
    Action RawAction mlx5dv_dr_action_destroy
);
handle!(
    /// An object made by a command.
    Object RawObject mlx5dv_devx_obj_destroy
);
handle!(
    /// A page of doorbells.
    Uar RawUar mlx5dv_devx_free_uar
);
handle!(
    /// Memory that the device may use.
    Umem RawUmem mlx5dv_devx_umem_dereg
);

/// Which packets a domain's tables see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Those that the function receives.
    NicReceive = 0,
    /// Those that it sends.
    NicTransmit = 1,
    /// Those of the switch.
    Fdb = 2,
}

/// What a packet reformat does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Reformat {
    /// Takes all up to the inner frame away.
    Decap = 0,
    /// Puts headers in front of the frame.
    Encap = 1,
    /// Takes all up to the inner IP packet away, for an Ethernet header.
    DecapToEthernet = 2,
    /// Puts headers in front of the IP packet, in place of Ethernet.
    EncapOfIp = 3,
}

/// A mask or a value to match: `fte_match_param` of the PRM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Length in bytes, and then the bytes.
    words: Vec<u64>,
}

/// Bytes of a match that libmlx5 44 takes: seven blocks.
const MATCH_BYTES: usize = 448;

impl Default for Match {
    fn default() -> Self {
        let mut words = vec![0; 1 + MATCH_BYTES / 8];
        words[0] = MATCH_BYTES as u64;
        Self { words }
    }
}

impl Match {
    /// Sets the field of `width` bits at bit `at` to the low bits of `value`.
    #[must_use]
    pub fn with(mut self, at: usize, width: usize, value: u128) -> Self {
        for place in 0..width {
            let (word, bit) = ((at + width - 1 - place) / 64, (at + width - 1 - place) % 64);
            let mask = 1_u64 << (63 - bit);
            let old = u64::from_be(self.words[1 + word]);
            let new = if value >> place & 1 == 1 { old | mask } else { old & !mask };
            self.words[1 + word] = new.to_be();
        }
        self
    }

    /// Blocks that are not empty, as `match_criteria_enable` has them.
    #[must_use]
    pub fn criteria(&self) -> u8 {
        let blocks = self.words[1..].chunks(8).enumerate().filter(|(_, block)| block.iter().any(|word| *word != 0));
        blocks.fold(0, |criteria, (number, _)| criteria | 1 << number)
    }
}

impl<'a> Domain<'a> {
    /// A domain of a device.
    ///
    /// # Errors
    /// As `mlx5dv_dr_domain_create` fails.
    pub fn create(context: &'a Context, kind: Kind) -> io::Result<Self> {
        // SAFETY: the context is open for as long as the domain lives.
        Self::new(unsafe { mlx5dv_dr_domain_create(context.raw(), kind as u32) })
    }

    /// Waits until everything that was written is in the device.
    ///
    /// # Errors
    /// As `mlx5dv_dr_domain_sync` fails.
    pub fn sync(&self) -> io::Result<()> {
        const SOFTWARE_AND_HARDWARE: u32 = 0x3;
        // SAFETY: the domain exists.
        done(unsafe { mlx5dv_dr_domain_sync(self.raw.as_ptr(), SOFTWARE_AND_HARDWARE) })
    }

    /// What libmlx5 believes to be in the device, in its own words.
    ///
    /// # Errors
    /// If there is no memory for it, or as `mlx5dv_dump_dr_domain` fails.
    pub fn dump(&self) -> io::Result<String> {
        let mut text: *mut c_char = std::ptr::null_mut();
        let mut bytes = 0;
        // SAFETY: both places live until the file is closed.
        let file = made(unsafe { libc::open_memstream(&raw mut text, &raw mut bytes) })?;
        // SAFETY: the file is open, and the domain exists.
        let dumped = done(unsafe { mlx5dv_dump_dr_domain(file.as_ptr(), self.raw.as_ptr()) });
        // SAFETY: it is open, and not used after this.
        unsafe { libc::fclose(file.as_ptr()) };
        // SAFETY: closing has filled this many bytes with text, and nobody else has them.
        let copy = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: it comes from malloc, and is not used after this.
        unsafe { libc::free(text.cast()) };
        dumped?;
        Ok(String::from_utf8_lossy(&copy).into_owned())
    }

    /// A table; that of level 0 is the kernel's.
    ///
    /// # Errors
    /// As `mlx5dv_dr_table_create` fails.
    pub fn table(&self, level: u32) -> io::Result<Table<'_>> {
        // SAFETY: the domain lives as long as the table.
        Table::new(unsafe { mlx5dv_dr_table_create(self.raw.as_ptr(), level) })
    }

    /// Sends packets to a vport.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_dest_vport` fails.
    pub fn to_vport(&self, vport: u16) -> io::Result<Action<'_>> {
        // SAFETY: the domain lives as long as the action.
        Action::new(unsafe { mlx5dv_dr_action_create_dest_vport(self.raw.as_ptr(), vport.into()) })
    }

    /// Sends packets to what an IB port represents.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_dest_ib_port` fails.
    pub fn to_ib_port(&self, port: u32) -> io::Result<Action<'_>> {
        // SAFETY: the domain lives as long as the action.
        Action::new(unsafe { mlx5dv_dr_action_create_dest_ib_port(self.raw.as_ptr(), port) })
    }

    /// Puts a VLAN tag on: EtherType and TCI.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_push_vlan` fails.
    pub fn push_vlan(&self, ethertype: u16, tci: u16) -> io::Result<Action<'_>> {
        let header = u32::from(ethertype) << 16 | u32::from(tci);
        // SAFETY: the domain lives as long as the action.
        Action::new(unsafe { mlx5dv_dr_action_create_push_vlan(self.raw.as_ptr(), header.to_be()) })
    }

    /// Changes headers, by actions as the PRM has them.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_modify_header` fails.
    pub fn modify_header(&self, actions: &[u64]) -> io::Result<Action<'_>> {
        const NOT_AT_THE_ROOT: u32 = 0;
        let mut actions: Vec<u64> = actions.iter().map(|action| action.to_be()).collect();
        let bytes = size_of_val(actions.as_slice());
        // SAFETY: the domain lives as long as the action; libmlx5 copies the list.
        Action::new(unsafe {
            mlx5dv_dr_action_create_modify_header(self.raw.as_ptr(), NOT_AT_THE_ROOT, bytes, actions.as_mut_ptr())
        })
    }

    /// Puts tunnel headers on, or takes them off.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_packet_reformat` fails.
    pub fn reformat(&self, kind: Reformat, data: &[u8]) -> io::Result<Action<'_>> {
        const NOT_AT_THE_ROOT: u32 = 0;
        let mut data = data.to_vec();
        let start = if data.is_empty() { std::ptr::null_mut() } else { data.as_mut_ptr().cast() };
        // SAFETY: the domain lives as long as the action; libmlx5 copies the data.
        Action::new(unsafe {
            mlx5dv_dr_action_create_packet_reformat(self.raw.as_ptr(), NOT_AT_THE_ROOT, kind as u32, data.len(), start)
        })
    }
}

impl Table<'_> {
    /// Rules that match these fields; of several that match a packet, the one with the lower priority number wins.
    ///
    /// # Errors
    /// As `mlx5dv_dr_matcher_create` fails.
    pub fn matcher(&self, priority: u16, mask: &Match) -> io::Result<Matcher<'_>> {
        let criteria = mask.criteria();
        let mut words = mask.words.clone();
        // SAFETY: the table lives as long as the matcher; libmlx5 copies the mask.
        Matcher::new(unsafe { mlx5dv_dr_matcher_create(self.raw.as_ptr(), priority, criteria, words.as_mut_ptr()) })
    }
}

impl<'a> Matcher<'a> {
    /// A rule for packets whose fields have these values.
    ///
    /// # Errors
    /// As `mlx5dv_dr_rule_create` fails.
    pub fn rule(&'a self, value: &Match, actions: &[&'a Action<'_>]) -> io::Result<Rule<'a>> {
        let mut words = value.words.clone();
        let mut list: Vec<_> = actions.iter().map(|action| action.raw.as_ptr()).collect();
        // SAFETY: matcher and actions live as long as the rule; libmlx5 copies value and list.
        Rule::new(unsafe {
            mlx5dv_dr_rule_create(self.raw.as_ptr(), words.as_mut_ptr(), list.len(), list.as_mut_ptr())
        })
    }
}

impl<'a> Action<'a> {
    /// Ends packets.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn drop_packets() -> io::Result<Self> {
        // SAFETY: it needs nothing.
        Self::new(unsafe { mlx5dv_dr_action_create_drop() })
    }

    /// Takes a VLAN tag off.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn pop_vlan() -> io::Result<Self> {
        // SAFETY: it needs nothing.
        Self::new(unsafe { mlx5dv_dr_action_create_pop_vlan() })
    }

    /// Marks packets for the program that receives them.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn tag(tag: u32) -> io::Result<Self> {
        // SAFETY: it needs nothing.
        Self::new(unsafe { mlx5dv_dr_action_create_tag(tag) })
    }

    /// Goes on in another table.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_dest_table` fails.
    pub fn to_table(table: &'a Table<'_>) -> io::Result<Self> {
        // SAFETY: the table lives as long as the action.
        Self::new(unsafe { mlx5dv_dr_action_create_dest_table(table.raw.as_ptr()) })
    }

    /// Counts packets by the counter so far behind the first of a block.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_flow_counter` fails.
    pub fn count(block: &'a Object<'_>, offset: u32) -> io::Result<Self> {
        // SAFETY: the block lives as long as the action.
        Self::new(unsafe { mlx5dv_dr_action_create_flow_counter(block.raw.as_ptr(), offset) })
    }

    /// Hands packets to a TIR.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_dest_devx_tir` fails.
    pub fn to_tir(tir: &'a Object<'_>) -> io::Result<Self> {
        // SAFETY: the TIR lives as long as the action.
        Self::new(unsafe { mlx5dv_dr_action_create_dest_devx_tir(tir.raw.as_ptr()) })
    }
}

impl<'a> Object<'a> {
    /// What a command makes, and its output, for which there is so much room.
    ///
    /// # Errors
    /// As `mlx5dv_devx_obj_create` fails.
    pub fn create(context: &'a Context, input: &[u8], room: usize) -> io::Result<(Self, Vec<u8>)> {
        let mut output = vec![0; room];
        // SAFETY: input and output are as long as is said, and the context is open as long as the object lives.
        let raw = unsafe {
            mlx5dv_devx_obj_create(
                context.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        Ok((Self::new(raw)?, output))
    }

    /// A command that asks for it: the output, for which there is so much room.
    ///
    /// # Errors
    /// As `mlx5dv_devx_obj_query` fails.
    pub fn query(&self, input: &[u8], room: usize) -> io::Result<Vec<u8>> {
        let mut output = vec![0; room];
        // SAFETY: input and output are as long as is said, and the object exists.
        done(unsafe {
            mlx5dv_devx_obj_query(
                self.raw.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        })?;
        Ok(output)
    }

    /// A command that changes it.
    ///
    /// # Errors
    /// As `mlx5dv_devx_obj_modify` fails.
    pub fn modify(&self, input: &[u8]) -> io::Result<()> {
        let mut output = [0; 16];
        // SAFETY: input and output are as long as is said, and the object exists.
        done(unsafe {
            mlx5dv_devx_obj_modify(
                self.raw.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        })
    }
}

impl<'a> Uar<'a> {
    /// A page of doorbells that is not combined.
    ///
    /// # Errors
    /// As `mlx5dv_devx_alloc_uar` fails.
    pub fn allocate(context: &'a Context) -> io::Result<Self> {
        const NOT_CACHED: u32 = 1;
        // SAFETY: the context is open as long as the page lives.
        Self::new(unsafe { mlx5dv_devx_alloc_uar(context.raw(), NOT_CACHED) })
    }

    /// Its number, by which commands name it.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: the page exists, and libmlx5 does not change this.
        unsafe { (*self.raw.as_ptr()).page }
    }
}

impl<'a> Umem<'a> {
    /// Lets the device read and write memory, which nobody else does as long as this is there.
    ///
    /// # Errors
    /// As `mlx5dv_devx_umem_reg` fails.
    pub fn register(context: &'a Context, memory: &'a mut [u8]) -> io::Result<Self> {
        const LOCAL_WRITE: u32 = 1;
        // SAFETY: the memory is borrowed, and the context is open, as long as the registration lives.
        Self::new(unsafe { mlx5dv_devx_umem_reg(context.raw(), memory.as_mut_ptr().cast(), memory.len(), LOCAL_WRITE) })
    }

    /// Its number, by which commands name it.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: the registration exists, and libmlx5 does not change this.
        unsafe { (*self.raw.as_ptr()).id }
    }
}

/// The number of the queue that events of completion vector 0 go to.
///
/// # Errors
/// As `mlx5dv_devx_query_eqn` fails.
pub fn event_queue(context: &Context) -> io::Result<u32> {
    let mut number = 0;
    // SAFETY: the context is open, and there is room for the number.
    done(unsafe { mlx5dv_devx_query_eqn(context.raw(), 0, &raw mut number) })?;
    Ok(number)
}

/// A command on no object: its output, for which there is so much room.
///
/// # Errors
/// As `mlx5dv_devx_general_cmd` fails.
pub fn command(context: &Context, input: &[u8], room: usize) -> io::Result<Vec<u8>> {
    let mut output = vec![0; room];
    // SAFETY: input and output are as long as is said, and the context is open.
    done(unsafe {
        mlx5dv_devx_general_cmd(
            context.raw(),
            input.as_ptr().cast(),
            input.len(),
            output.as_mut_ptr().cast(),
            output.len(),
        )
    })?;
    Ok(output)
}
