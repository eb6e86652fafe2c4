//! Devices that send what is copied to them to nobody, so that it can be captured there.
//!
//! A tap is a dummy device, and as silent as can be: it has no ARP, and its MTU is too small for IPv6, so that the kernel never sends
//! anything of its own there. Copies of any length go there nevertheless, for what tc sends to a device is not held against its MTU. What a
//! device with segmentation offload would have cut, the kernel cuts before it comes there.

use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rustix::io::Errno;

use crate::changes;
use crate::control::Control;
use crate::device::{Device, Ifindex, State};
use crate::error::LinkError;
use crate::tunnel_device::{is_device_name, named};

/// One less than IPv6 needs (RFC 8200, section 5).
const MTU: u32 = 1279;

/// How large what is to be cut into segments may be for the tap to take it uncut. It takes none, so that what is captured is what was on the
/// wire, and as many frames as tc has counted. Newer kernels refuse a number below that of the longest headers (`MAX_TCP_HEADER`).
const UNCUT_BYTES: u32 = 512;

/// And into how many segments. Frames of virtual machines do not say.
const UNCUT_SEGMENTS: u32 = 1;

/// What the kernel calls dummy devices.
const DRIVER: &str = "dummy";

/// Why there is no tap.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// No device may have this name.
    #[error("{name:?} is no name of a device")]
    BadName {
        /// The name.
        name: String,
    },
    /// A device that was not made here has the name.
    #[error("{name} is there and was not made here")]
    Taken {
        /// The name.
        name: String,
    },
    /// It is not there.
    #[error("{name} is gone")]
    Gone {
        /// The name.
        name: String,
    },
    /// The kernel refused, or could not be asked.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Makes sure that the tap is there and up. It carries `mark` as its alias (`IFLA_IFALIAS`), by which it is recognized after a restart. The name
/// is one that nobody else uses: a dummy device of that name that is off and unmarked is taken for a tap whose making was cut short.
pub fn ensure_tap(control: &mut Control, name: &str, mark: &str) -> Result<Device, TapError> {
    if !is_device_name(name) {
        return Err(TapError::BadName { name: name.into() });
    }
    if let Some(found) = named(control, name)? {
        if !is_tap(&found, mark) && !is_half_made(&found) {
            return Err(TapError::Taken { name: name.into() });
        }
        if found.state == State::Off {
            set_up(found.ifindex, mark)?;
        }
        return look_again(control, name);
    }
    changes::add("add tap", request(name))?;
    let made = look_again(control, name)?;
    // The kernel takes no alias when it makes a device.
    if let Err(error) = set_up(made.ifindex, mark) {
        // Without the mark nobody would know it again.
        changes::remove("remove tap", made.ifindex)?;
        return Err(error.into());
    }
    look_again(control, name)
}

/// Removes a tap that carries `mark`. Fails if it is gone, or if it was not made here.
pub fn remove_tap(control: &mut Control, name: &str, mark: &str) -> Result<(), TapError> {
    let gone = || TapError::Gone { name: name.into() };
    let found = named(control, name)?.ok_or_else(gone)?;
    if !is_tap(&found, mark) {
        return Err(TapError::Taken { name: name.into() });
    }
    match changes::remove("remove tap", found.ifindex) {
        Err(error) if error.is(Errno::NODEV) => Err(gone()),
        result => Ok(result?),
    }
}

/// Returns whether a device is a tap that was made with this mark.
pub fn is_tap(device: &Device, mark: &str) -> bool {
    device.driver() == Some(DRIVER) && device.alias.as_deref() == Some(mark)
}

/// Returns whether a device is what a run leaves that is killed before it has marked its tap: a dummy device that is off and has no text.
fn is_half_made(device: &Device) -> bool {
    device.driver() == Some(DRIVER) && device.alias.is_none() && device.state == State::Off
}

/// The request that makes it.
pub(crate) fn request(name: &str) -> LinkMessage {
    let mut request = LinkMessage::default();
    request.attributes = vec![
        LinkAttribute::IfName(name.into()),
        LinkAttribute::Mtu(MTU),
        LinkAttribute::GsoMaxSize(UNCUT_BYTES),
        LinkAttribute::GsoMaxSegs(UNCUT_SEGMENTS),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Dummy)]),
    ];
    request
}

fn look_again(control: &mut Control, name: &str) -> Result<Device, TapError> {
    named(control, name)?.ok_or_else(|| TapError::Gone { name: name.into() })
}

fn set_up(ifindex: Ifindex, mark: &str) -> Result<(), LinkError> {
    let mut request = LinkMessage::default();
    request.header.index = ifindex.0;
    request.header.flags = LinkFlags::Up | LinkFlags::Noarp;
    request.header.change_mask = LinkFlags::Up | LinkFlags::Noarp;
    request.attributes.push(LinkAttribute::IfAlias(mark.into()));
    changes::set("set up tap", request)
}
