//! Actions that lead somewhere by way of other objects: several destinations, samplers, meters, ASO.

use std::ffi::{c_int, c_void};
use std::io;

use rdma_sys::ibv_qp;

use super::{Action, Domain, Object, RawAction, RawDomain, RawObject, RawTable, Table};
use crate::done;
use crate::verbs::QueuePair;

/// `mlx5dv_dr_action_dest_attr`: its union holds one pointer.
#[repr(C)]
struct RawDestination {
    kind: u32,
    to: *mut c_void,
}

/// `mlx5dv_dr_action_dest_reformat`
#[repr(C)]
struct RawReformatted {
    reformat: *mut RawAction,
    to: *mut RawAction,
}

/// `mlx5dv_dr_flow_sampler_attr`
#[repr(C)]
struct RawSampler {
    ratio: u32,
    next: *mut RawTable,
    number: u32,
    actions: *mut *mut RawAction,
    /// In the device's byte order.
    restore: u64,
}

/// `mlx5dv_dr_flow_meter_attr`
#[repr(C)]
struct RawMeter {
    next: *mut RawTable,
    active: u8,
    register: u8,
    bytes: usize,
    parameters: *mut c_void,
}

#[link(name = "mlx5")]
unsafe extern "C" {
    fn mlx5dv_dr_action_create_default_miss() -> *mut RawAction;
    fn mlx5dv_dr_action_create_dest_ibv_qp(pair: *mut ibv_qp) -> *mut RawAction;
    fn mlx5dv_dr_action_create_dest_array(
        domain: *mut RawDomain,
        number: usize,
        list: *mut *mut RawDestination,
    ) -> *mut RawAction;
    fn mlx5dv_dr_action_create_flow_sampler(sampler: *mut RawSampler) -> *mut RawAction;
    fn mlx5dv_dr_action_create_flow_meter(meter: *mut RawMeter) -> *mut RawAction;
    fn mlx5dv_dr_action_modify_flow_meter(action: *mut RawAction, meter: *mut RawMeter, select: u64) -> c_int;
    fn mlx5dv_dr_action_create_aso(
        domain: *mut RawDomain,
        object: *mut RawObject,
        offset: u32,
        flags: u32,
        register: u8,
    ) -> *mut RawAction;
}

/// One of several destinations.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// Where packets go.
    pub to: &'a Action<'a>,
    /// Tunnel headers that they get on this way only.
    pub reformat: Option<&'a Action<'a>>,
}

impl Domain<'_> {
    /// Sends packets to several destinations.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_dest_array` fails.
    pub fn to_all<'a>(&'a self, destinations: &[Destination<'a>]) -> io::Result<Action<'a>> {
        const DESTINATION: u32 = 0;
        const DESTINATION_WITH_REFORMAT: u32 = 1;
        let raw = |action: &Action<'_>| action.raw.as_ptr();
        let mut reformatted: Vec<_> = destinations
            .iter()
            .map(|destination| RawReformatted {
                reformat: destination.reformat.map_or(std::ptr::null_mut(), raw),
                to: raw(destination.to),
            })
            .collect();
        let mut raws: Vec<_> = reformatted
            .iter_mut()
            .map(|pair| {
                if pair.reformat.is_null() {
                    RawDestination { kind: DESTINATION, to: pair.to.cast() }
                } else {
                    RawDestination { kind: DESTINATION_WITH_REFORMAT, to: (&raw mut *pair).cast() }
                }
            })
            .collect();
        let mut list: Vec<_> = raws.iter_mut().map(|raw| &raw mut *raw).collect();
        // SAFETY: domain and actions live as long as the array; libmlx5 copies the lists, which live until it has.
        Action::new(unsafe { mlx5dv_dr_action_create_dest_array(self.raw.as_ptr(), list.len(), list.as_mut_ptr()) })
    }

    /// Has a line of an ASO object of first hits be hit, and whether it was before go into register C 1, 3 or 5.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_aso` fails.
    pub fn hit<'a>(&'a self, object: &'a Object<'_>, line: u32, register: u8) -> io::Result<Action<'a>> {
        const SET: u32 = 1;
        self.aso(object, line, SET, register)
    }

    /// An ASO action with flags as libmlx5 has them for the object's type.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_aso` fails.
    pub fn aso<'a>(&'a self, object: &'a Object<'_>, offset: u32, flags: u32, register: u8) -> io::Result<Action<'a>> {
        // SAFETY: domain and object live as long as the action.
        Action::new(unsafe {
            mlx5dv_dr_action_create_aso(self.raw.as_ptr(), object.raw.as_ptr(), offset, flags, register)
        })
    }
}

/// What a meter is like: `mlx5dv_dr_flow_meter_attr` without its table.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    /// Whether it meters.
    pub active: bool,
    /// Register C that the color goes into.
    pub register: u8,
    /// `flow_meter_parameters` of the PRM.
    pub parameters: [u8; 32],
}

impl Meter {
    fn raw(&mut self, next: *mut RawTable) -> RawMeter {
        RawMeter {
            next,
            active: self.active.into(),
            register: self.register,
            bytes: self.parameters.len(),
            parameters: self.parameters.as_mut_ptr().cast(),
        }
    }
}

impl<'a> Action<'a> {
    /// Goes where packets go that no rule matches.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn default_miss() -> io::Result<Self> {
        // SAFETY: it needs nothing.
        Self::new(unsafe { mlx5dv_dr_action_create_default_miss() })
    }

    /// Hands packets to a queue pair.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_dest_ibv_qp` fails.
    pub fn to_queue_pair(pair: &'a QueuePair<'_>) -> io::Result<Self> {
        // SAFETY: the pair lives as long as the action.
        Self::new(unsafe { mlx5dv_dr_action_create_dest_ibv_qp(pair.raw()) })
    }

    /// Goes on in a table, and for one of `ratio` packets does `sampled` with a copy. `restore` is a modify-header action for those
    /// that go on, on devices that lose a register on the way.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_flow_sampler` fails.
    pub fn sample(ratio: u32, next: &'a Table<'_>, sampled: &[&'a Action<'_>], restore: u64) -> io::Result<Self> {
        let mut actions: Vec<_> = sampled.iter().map(|action| action.raw.as_ptr()).collect();
        let mut raw = RawSampler {
            ratio,
            next: next.raw.as_ptr(),
            number: u32::try_from(actions.len()).unwrap_or(u32::MAX),
            actions: actions.as_mut_ptr(),
            restore: restore.to_be(),
        };
        // SAFETY: table and actions live as long as the sampler; libmlx5 copies the list.
        Self::new(unsafe { mlx5dv_dr_action_create_flow_sampler(&raw mut raw) })
    }

    /// Meters packets, and goes on in a table.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_flow_meter` fails.
    pub fn meter(next: &'a Table<'_>, mut meter: Meter) -> io::Result<Self> {
        let mut raw = meter.raw(next.raw.as_ptr());
        // SAFETY: the table lives as long as the meter; libmlx5 copies the parameters.
        Self::new(unsafe { mlx5dv_dr_action_create_flow_meter(&raw mut raw) })
    }

    /// Changes a meter: what of it, a bit for each.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_modify_flow_meter` fails.
    pub fn change_meter(&self, mut meter: Meter, select: u64) -> io::Result<()> {
        let mut raw = meter.raw(std::ptr::null_mut());
        // SAFETY: the action exists; of the attributes the table is not looked at.
        done(unsafe { mlx5dv_dr_action_modify_flow_meter(self.raw.as_ptr(), &raw mut raw, select.to_be()) })
    }
}
