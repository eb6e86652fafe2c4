//! Which vport a port of an RDMA device is: in switchdev mode the device has a port for each vport of the eswitch.

use super::context::Context;
use super::error::CallError;
use super::library::RawPort;

impl Context {
    /// Returns the vport of a port, counted from 1; `None` if the kernel does not tell.
    pub fn vport(&self, port: u32) -> Result<Option<u16>, CallError> {
        let mut told = RawPort::default();
        // SAFETY: the device is open, and the length is that of what is filled in.
        let code =
            unsafe { (self.functions()._mlx5dv_query_port)(self.raw(), port, &raw mut told, size_of::<RawPort>()) };
        CallError::check("mlx5dv_query_port", code)?;
        Ok((told.flags & u64::from(RawPort::VPORT) != 0).then_some(told.vport))
    }
}
