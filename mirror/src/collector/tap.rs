//! A TAP that frames are injected into.

use std::io;

use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Opens the TAP of that name, which is made if it is not there, and sets it up. A TAP that was not there goes with the collector.
///
/// # Errors
/// Fails without `CAP_NET_ADMIN`, or if a device of that name is no TAP.
pub fn open(name: &str) -> io::Result<SyncDevice> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("TAP {name}: {error}"));
    let device = DeviceBuilder::new().name(name).layer(Layer::L2).enable(true).build_sync().map_err(named)?;
    device.set_nonblocking(true).map_err(named)?;
    Ok(device)
}
