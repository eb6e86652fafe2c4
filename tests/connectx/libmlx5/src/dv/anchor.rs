//! Ways back into the kernel's tables.

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use rdma_sys::ibv_context;

use super::{Action, Kind, RawAction, RawTable, Table};
use crate::made;
use crate::verbs::Context;

/// `mlx5dv_steering_anchor_attr`
#[repr(C)]
struct RawAttributes {
    kind: u32,
    priority: u16,
    more: u64,
}

/// `mlx5dv_steering_anchor`
#[repr(C)]
struct RawAnchor {
    table: u32,
}

#[link(name = "mlx5")]
unsafe extern "C" {
    fn mlx5dv_create_steering_anchor(context: *mut ibv_context, attributes: *mut RawAttributes) -> *mut RawAnchor;
    fn mlx5dv_destroy_steering_anchor(anchor: *mut RawAnchor) -> c_int;
    fn mlx5dv_dr_action_create_dest_root_table(table: *mut RawTable, priority: u16) -> *mut RawAction;
}

handle!(
    /// A table that leads back into the kernel's.
    Anchor RawAnchor mlx5dv_destroy_steering_anchor
);

impl<'a> Anchor<'a> {
    /// One to the tables of a priority, and those behind it.
    ///
    /// # Errors
    /// As `mlx5dv_create_steering_anchor` fails.
    pub fn create(context: &'a Context, kind: Kind, priority: u16) -> io::Result<Self> {
        let mut attributes = RawAttributes { kind: kind as u32, priority, more: 0 };
        // SAFETY: the context is open for as long as the anchor lives.
        Self::new(unsafe { mlx5dv_create_steering_anchor(context.raw(), &raw mut attributes) })
    }

    /// The table's number, by which commands name it.
    #[must_use]
    pub fn table(&self) -> u32 {
        // SAFETY: the anchor exists, and libmlx5 does not change this.
        unsafe { (*self.raw.as_ptr()).table }
    }
}

impl<'a> Action<'a> {
    /// Goes on in the kernel's tables, those of a priority and behind it: `table` is the one of level 0.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_create_dest_root_table` fails.
    pub fn to_root(table: &'a Table<'_>, priority: u16) -> io::Result<Self> {
        // SAFETY: the table lives as long as the action.
        Self::new(unsafe { mlx5dv_dr_action_create_dest_root_table(table.raw.as_ptr(), priority) })
    }
}
