//! What a program tunes of domains and matchers: rules that are there twice, memory that is given back, sizes of tables.

use std::ffi::c_int;
use std::io;

use super::{Domain, Matcher, RawDomain, RawMatcher, mlx5dv_dr_domain_sync};
use crate::done;

/// `mlx5dv_dr_matcher_layout`
#[repr(C)]
struct RawLayout {
    flags: u32,
    log_rules: u32,
}

#[link(name = "mlx5")]
unsafe extern "C" {
    fn mlx5dv_dr_domain_allow_duplicate_rules(domain: *mut RawDomain, allow: bool);
    fn mlx5dv_dr_domain_set_reclaim_device_memory(domain: *mut RawDomain, enable: bool);
    fn mlx5dv_dr_matcher_set_layout(matcher: *mut RawMatcher, layout: *mut RawLayout) -> c_int;
}

impl Domain<'_> {
    /// Whether a rule may be made that is there already.
    pub fn allow_duplicate_rules(&self, allow: bool) {
        // SAFETY: the domain exists.
        unsafe { mlx5dv_dr_domain_allow_duplicate_rules(self.raw.as_ptr(), allow) };
    }

    /// Whether steering memory that nothing is left in goes back to the device.
    pub fn reclaim_device_memory(&self, reclaim: bool) {
        // SAFETY: the domain exists.
        unsafe { mlx5dv_dr_domain_set_reclaim_device_memory(self.raw.as_ptr(), reclaim) };
    }

    /// Has the device be done with what was taken out of tables, so that its memory is free again.
    ///
    /// # Errors
    /// As `mlx5dv_dr_domain_sync` fails.
    pub fn sync_memory(&self) -> io::Result<()> {
        const MEMORY: u32 = 0x4;
        // SAFETY: the domain exists.
        done(unsafe { mlx5dv_dr_domain_sync(self.raw.as_ptr(), MEMORY) })
    }
}

/// How the table of a matcher's rules is laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    /// Whether it grows with its rules.
    pub resizable: bool,
    /// Room for rules from the start: how many, as a power of two.
    pub log_rules: Option<u32>,
}

impl Matcher<'_> {
    /// Lays the table of its rules out.
    ///
    /// # Errors
    /// As `mlx5dv_dr_matcher_set_layout` fails.
    pub fn set_layout(&self, layout: Layout) -> io::Result<()> {
        const RESIZABLE: u32 = 1 << 0;
        const NUM_RULE: u32 = 1 << 1;
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let mut raw = RawLayout {
            flags: flag(layout.resizable, RESIZABLE) | flag(layout.log_rules.is_some(), NUM_RULE),
            log_rules: layout.log_rules.unwrap_or(0),
        };
        // SAFETY: the matcher exists; libmlx5 copies the layout.
        done(unsafe { mlx5dv_dr_matcher_set_layout(self.raw.as_ptr(), &raw mut raw) })
    }
}
