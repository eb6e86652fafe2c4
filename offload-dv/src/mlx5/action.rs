//! What rules do.

use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

use super::devx::Object;
use super::error::CallError;
use super::library::{DestinationAttributes, Library, RawAction, SamplerAttributes};
use super::steering::{Domain, Table};

/// An action, which any number of rules may share.
#[derive(Clone)]
pub struct Action(Rc<ActionHandle>);

struct ActionHandle {
    raw: NonNull<RawAction>,
    of: Of,
}

/// What an action was made of, and keeps.
enum Of {
    Library(Rc<Library>),
    Domain(Domain),
    Table(Table),
    Object(Object),
    Destinations(Domain, #[expect(dead_code, reason = "the device refers to them")] Vec<Action>),
    Meter(Domain, #[expect(dead_code, reason = "the device refers to it")] Object),
    Sampler(Table, #[expect(dead_code, reason = "the device refers to them")] Vec<Action>),
}

/// Which headers a packet gets or loses; the names are the PRM's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reformat {
    /// Takes away all up to the inner Ethernet frame.
    L2TunnelToL2 = 0,
    /// Puts headers in front of the Ethernet frame.
    L2ToL2Tunnel = 1,
    /// Takes away all up to the inner IP packet, and puts an Ethernet header in front of that.
    L3TunnelToL2 = 2,
    /// Puts headers in front of the IP packet, in place of its Ethernet header.
    L2ToL3Tunnel = 3,
}

/// Packets come to a meter without a color that would be the best that they can have.
pub(super) const COMES_GREEN: u32 = 1 << 2;

/// Actions of tables that software writes; those of level 0 have a flag.
const NOT_AT_THE_ROOT: u32 = 0;

impl Action {
    /// Drops packets.
    pub fn drop_packets(library: &Rc<Library>) -> Result<Self, CallError> {
        // SAFETY: it needs nothing.
        let raw = unsafe { (library.functions.mlx5dv_dr_action_create_drop)() };
        Self::new("mlx5dv_dr_action_create_drop", raw, Of::Library(library.clone()))
    }

    /// Sends packets where those go that no rule matches.
    pub fn default_miss(library: &Rc<Library>) -> Result<Self, CallError> {
        // SAFETY: it needs nothing.
        let raw = unsafe { (library.functions.mlx5dv_dr_action_create_default_miss)() };
        Self::new("mlx5dv_dr_action_create_default_miss", raw, Of::Library(library.clone()))
    }

    /// Takes the outer VLAN tag off.
    pub fn pop_vlan(library: &Rc<Library>) -> Result<Self, CallError> {
        // SAFETY: it needs nothing.
        let raw = unsafe { (library.functions.mlx5dv_dr_action_create_pop_vlan)() };
        Self::new("mlx5dv_dr_action_create_pop_vlan", raw, Of::Library(library.clone()))
    }

    /// Puts a VLAN tag on: TPID and TCI.
    pub fn push_vlan(domain: &Domain, tpid: u16, tci: u16) -> Result<Self, CallError> {
        let header = u32::from(tpid) << 16 | u32::from(tci);
        // SAFETY: the action keeps the domain.
        let raw = unsafe { (domain.functions().mlx5dv_dr_action_create_push_vlan)(domain.raw(), header.to_be()) };
        Self::new("mlx5dv_dr_action_create_push_vlan", raw, Of::Domain(domain.clone()))
    }

    /// Goes on in a table, which must be of a higher level than that of the rule.
    pub fn to_table(table: &Table) -> Result<Self, CallError> {
        // SAFETY: the action keeps the table.
        let raw = unsafe { (table.functions().mlx5dv_dr_action_create_dest_table)(table.raw()) };
        Self::new("mlx5dv_dr_action_create_dest_table", raw, Of::Table(table.clone()))
    }

    /// Sends packets to a vport.
    pub fn to_vport(domain: &Domain, vport: u16) -> Result<Self, CallError> {
        // SAFETY: the action keeps the domain.
        let raw = unsafe { (domain.functions().mlx5dv_dr_action_create_dest_vport)(domain.raw(), vport.into()) };
        Self::new("mlx5dv_dr_action_create_dest_vport", raw, Of::Domain(domain.clone()))
    }

    /// Sends packets to several places.
    pub fn to_all(domain: &Domain, destinations: Vec<Self>) -> Result<Self, CallError> {
        let plain = |to: &Self| DestinationAttributes { kind: DestinationAttributes::PLAIN, dest: to.raw().cast() };
        let mut attributes: Vec<_> = destinations.iter().map(plain).collect();
        let mut list: Vec<_> = attributes.iter_mut().map(|attributes| &raw mut *attributes).collect();
        let create = domain.functions().mlx5dv_dr_action_create_dest_array;
        // SAFETY: the action keeps domain and destinations; libmlx5 copies the lists, which live until it has.
        let raw = unsafe { create(domain.raw(), list.len(), list.as_mut_ptr()) };
        Self::new("mlx5dv_dr_action_create_dest_array", raw, Of::Destinations(domain.clone(), destinations))
    }

    /// Has packets pass a meter, and writes their color into the low 8 bits of register C with that number. `offset` counts the meters of
    /// a block of objects, two in each.
    pub fn meter(domain: &Domain, block: &Object, offset: u32, register: u8) -> Result<Self, CallError> {
        let create = domain.functions().mlx5dv_dr_action_create_aso;
        // SAFETY: the action keeps domain and block.
        let raw = unsafe { create(domain.raw(), block.raw(), offset, COMES_GREEN, register) };
        Self::new("mlx5dv_dr_action_create_aso", raw, Of::Meter(domain.clone(), block.clone()))
    }

    /// Has one in `ratio` packets, of which the device picks them by chance, be sent where `samples` send it, and all go on where `next`
    /// leads, which is a table of a higher level than that of the rule.
    pub fn sample(ratio: u32, samples: Vec<Self>, next: &Self) -> Result<Self, CallError> {
        const CALL: &str = "mlx5dv_dr_action_create_flow_sampler";
        let Of::Table(table) = &next.0.of else {
            return Err(CallError { call: CALL, source: io::ErrorKind::InvalidInput.into(), answer: None });
        };
        let mut list: Vec<_> = samples.iter().map(Self::raw).collect();
        let mut attributes = SamplerAttributes {
            sample_ratio: ratio,
            default_next_table: table.raw(),
            num_sample_actions: u32::try_from(list.len()).unwrap_or(u32::MAX),
            sample_actions: list.as_mut_ptr(),
            action: 0,
        };
        // SAFETY: the action keeps the table and those of samples; libmlx5 copies the list, which lives until it has.
        let raw = unsafe { (table.functions().mlx5dv_dr_action_create_flow_sampler)(&raw mut attributes) };
        let kept = std::iter::once(next.clone()).chain(samples).collect();
        Self::new(CALL, raw, Of::Sampler(table.clone(), kept))
    }

    /// Counts packets by the counter that is `offset` behind the first of a bulk.
    pub fn count(bulk: &Object, offset: u32) -> Result<Self, CallError> {
        Self::new("mlx5dv_dr_action_create_flow_counter", create_count(bulk, offset), Of::Object(bulk.clone()))
    }

    /// Changes headers, by modify actions as the PRM has them (`set_action_in`, `add_action_in`, `copy_action_in`).
    pub fn modify_header(domain: &Domain, modifications: &[u64]) -> Result<Self, CallError> {
        let mut list: Vec<u64> = modifications.iter().map(|modification| modification.to_be()).collect();
        let create = domain.functions().mlx5dv_dr_action_create_modify_header;
        // SAFETY: the action keeps the domain; libmlx5 copies the list.
        let raw = unsafe { create(domain.raw(), NOT_AT_THE_ROOT, size_of_val(list.as_slice()), list.as_mut_ptr()) };
        Self::new("mlx5dv_dr_action_create_modify_header", raw, Of::Domain(domain.clone()))
    }

    /// Puts `headers` on, or takes headers off, as `reformat` says.
    pub fn reformat(domain: &Domain, reformat: Reformat, headers: &[u8]) -> Result<Self, CallError> {
        let mut headers = headers.to_vec();
        let data: *mut c_void = if headers.is_empty() { null_mut() } else { headers.as_mut_ptr().cast() };
        let create = domain.functions().mlx5dv_dr_action_create_packet_reformat;
        // SAFETY: the action keeps the domain; libmlx5 copies the headers.
        let raw = unsafe { create(domain.raw(), NOT_AT_THE_ROOT, reformat as u32, headers.len(), data) };
        Self::new("mlx5dv_dr_action_create_packet_reformat", raw, Of::Domain(domain.clone()))
    }

    /// Returns whether a rule, another action or anybody else has it, too.
    pub fn is_shared(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    fn new(call: &'static str, raw: *mut RawAction, of: Of) -> Result<Self, CallError> {
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last(call))?;
        Ok(Self(Rc::new(ActionHandle { raw, of })))
    }

    pub(super) fn raw(&self) -> *mut RawAction {
        self.0.raw.as_ptr()
    }
}

/// The counters of a bulk as actions, each made when it is first used, and kept. Rules keep other actions, but not these: drop the rules
/// first. libmlx5 knows which rules an action has, and does not destroy it before them.
pub struct Counts {
    made: Box<[Cell<*mut RawAction>]>,
    bulk: Object,
}

impl Counts {
    /// Of a bulk with so many counters.
    pub fn new(bulk: Object, counters: usize) -> Self {
        Self { made: vec![Cell::new(null_mut()); counters].into(), bulk }
    }

    /// Returns the bulk.
    pub fn bulk(&self) -> &Object {
        &self.bulk
    }

    /// Returns the action of a counter.
    pub(super) fn action(&self, index: usize) -> Result<NonNull<RawAction>, CallError> {
        const CALL: &str = "mlx5dv_dr_action_create_flow_counter";
        let none = || CallError { call: CALL, source: io::ErrorKind::InvalidInput.into(), answer: None };
        let place = self.made.get(index).ok_or_else(none)?;
        if place.get().is_null() {
            place.set(create_count(&self.bulk, u32::try_from(index).unwrap_or(u32::MAX)));
        }
        NonNull::new(place.get()).ok_or_else(|| CallError::last(CALL))
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        let destroy = self.bulk.functions().mlx5dv_dr_action_destroy;
        for made in self.made.iter().map(Cell::get).filter(|made| !made.is_null()) {
            // SAFETY: it was made here, and is destroyed once; libmlx5 refuses if a rule has it.
            let code = unsafe { destroy(made) };
            if let Err(error) = CallError::check("mlx5dv_dr_action_destroy", code) {
                tracing::error!("{error}");
            }
        }
    }
}

fn create_count(bulk: &Object, offset: u32) -> *mut RawAction {
    // SAFETY: the bulk exists, and whoever has the action keeps it.
    unsafe { (bulk.functions().mlx5dv_dr_action_create_flow_counter)(bulk.raw(), offset) }
}

impl Drop for ActionHandle {
    fn drop(&mut self) {
        let functions = match &self.of {
            Of::Library(library) => &library.functions,
            Of::Domain(domain) | Of::Destinations(domain, _) | Of::Meter(domain, _) => domain.functions(),
            Of::Table(table) | Of::Sampler(table, _) => table.functions(),
            Of::Object(object) => object.functions(),
        };
        // SAFETY: the rules that refer to it kept it, and are gone.
        let code = unsafe { (functions.mlx5dv_dr_action_destroy)(self.raw.as_ptr()) };
        if let Err(error) = CallError::check("mlx5dv_dr_action_destroy", code) {
            tracing::error!("{error}");
        }
    }
}
