//! Features of a network device that can be switched, as `ethtool -k` shows them (`include/uapi/linux/ethtool_netlink.h`).

use rustix::io::Errno;

use crate::control::Control;
use crate::devlink::{attributes, family};
use crate::error::LinkError;
use crate::netlink::attribute::{Attributes, Malformed};

/// `ETHTOOL_MSG_FEATURES_GET` and the version of the family.
const GET_FEATURES: u8 = 11;
const VERSION: u8 = 1;
/// `ETHTOOL_A_FEATURES_HEADER`, `ETHTOOL_A_HEADER_DEV_NAME` and `ETHTOOL_A_FEATURES_ACTIVE`
const HEADER: u16 = 1;
const DEVICE_NAME: u16 = 2;
const ACTIVE: u16 = 4;
/// `ETHTOOL_A_BITSET_BITS`, `ETHTOOL_A_BITSET_BITS_BIT` and `ETHTOOL_A_BITSET_BIT_NAME`
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;

/// Returns whether a feature of a device, such as `hw-tc-offload`, is on; `None` if the kernel does not tell, or has no such device.
pub fn has_feature(device: &str, feature: &str) -> Result<Option<bool>, LinkError> {
    let mut control = Control::generic()?;
    let Some(family) = family(&mut control, "ethtool")? else { return Ok(None) };
    let mut active = None;
    let answer = control.request(
        "ask for the features of a device",
        family.number,
        0,
        |writer| {
            writer.raw(&[GET_FEATURES, VERSION, 0, 0]);
            writer.nest(HEADER, |header| header.put_text(DEVICE_NAME, device));
        },
        |message| {
            for attribute in attributes(message)? {
                let attribute = attribute?;
                if attribute.kind == ACTIVE {
                    active = Some(lists(attribute.nested("features"), feature)?);
                }
            }
            Ok(())
        },
    );
    match answer {
        Err(error) if [Errno::NODEV, Errno::OPNOTSUPP].into_iter().any(|errno| error.is(errno)) => Ok(None),
        answer => answer.map(|()| active),
    }
}

/// Whether a set of bits, of which those that are set are listed, has one of this name.
fn lists(set: Attributes<'_>, name: &str) -> Result<bool, Malformed> {
    for part in set {
        let part = part?;
        if part.kind != BITS {
            continue;
        }
        for bit in part.nested("bits") {
            let bit = bit?;
            if bit.kind != BIT {
                continue;
            }
            for word in bit.nested("bit") {
                let word = word?;
                if word.kind == BIT_NAME && word.text()? == name {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}
