//! A TAP that frames are injected into.

use std::io;
use std::time::{Duration, Instant};

use tracing::info;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// For how long a TAP that was deleted and cannot be made anew is left alone.
const PAUSE: Duration = Duration::from_secs(1);

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

/// An open TAP. One that somebody deletes is made anew; one that is down takes no frames until it is up again.
pub(super) struct Tap {
    device: SyncDevice,
    name: String,
    /// Not before then.
    retry: Option<Instant>,
}

impl Tap {
    pub(super) fn new(device: SyncDevice) -> io::Result<Self> {
        let name = device.name()?;
        Ok(Self { device, name, retry: None })
    }

    pub(super) fn inject(&mut self, frame: &[u8]) -> io::Result<()> {
        let Err(error) = self.device.send(frame) else { return Ok(()) };
        // The file of a TAP that was deleted belongs to no device any more.
        let is_deleted = error.raw_os_error() == Some(libc::EBADFD);
        if !is_deleted || self.retry.is_some_and(|retry| Instant::now() < retry) {
            return Err(error);
        }
        self.retry = Some(Instant::now() + PAUSE);
        self.device = open(&self.name)?;
        self.retry = None;
        info!("TAP {} was deleted, and is made anew", self.name);
        self.device.send(frame).map(drop)
    }
}
