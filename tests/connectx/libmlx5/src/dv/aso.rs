//! Objects of asynchronous operations: changes of actions on them, and links between domains.

use std::ffi::c_int;
use std::io;

use super::{Action, Domain, Object, RawAction, RawDomain, RawObject};
use crate::done;

#[link(name = "mlx5")]
unsafe extern "C" {
    fn mlx5dv_dr_action_modify_aso(action: *mut RawAction, offset: u32, flags: u32, register: u8) -> c_int;
    fn mlx5dv_dr_aso_other_domain_link(
        object: *mut RawObject,
        peer: *mut RawDomain,
        domain: *mut RawDomain,
        flags: u32,
        register: u8,
    ) -> c_int;
    fn mlx5dv_dr_aso_other_domain_unlink(object: *mut RawObject, domain: *mut RawDomain) -> c_int;
}

impl Action<'_> {
    /// Changes an ASO action for the rules that are made from now on.
    ///
    /// # Errors
    /// As `mlx5dv_dr_action_modify_aso` fails.
    pub fn change_aso(&self, offset: u32, flags: u32, register: u8) -> io::Result<()> {
        // SAFETY: the action exists.
        done(unsafe { mlx5dv_dr_action_modify_aso(self.raw.as_ptr(), offset, flags, register) })
    }
}

impl Object<'_> {
    /// Lets rules of a domain act on this ASO object by entries of the domain of its own device, `peer`.
    ///
    /// # Errors
    /// As `mlx5dv_dr_aso_other_domain_link` fails.
    pub fn link(&self, peer: &Domain<'_>, domain: &Domain<'_>, flags: u32, register: u8) -> io::Result<()> {
        let (peer, domain) = (peer.raw.as_ptr(), domain.raw.as_ptr());
        // SAFETY: object and domains exist.
        done(unsafe { mlx5dv_dr_aso_other_domain_link(self.raw.as_ptr(), peer, domain, flags, register) })
    }

    /// Ends that.
    ///
    /// # Errors
    /// As `mlx5dv_dr_aso_other_domain_unlink` fails.
    pub fn unlink(&self, domain: &Domain<'_>) -> io::Result<()> {
        // SAFETY: object and domain exist.
        done(unsafe { mlx5dv_dr_aso_other_domain_unlink(self.raw.as_ptr(), domain.raw.as_ptr()) })
    }
}
