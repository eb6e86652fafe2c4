//! The eswitch of a NIC, as devlink tells of it.

use std::fmt;

use rustix::io::Errno;

use crate::control::Control;
use crate::devlink::{VERSION, attribute, attributes, family};
use crate::error::LinkError;

const GET_ESWITCH: u8 = 29;
/// `DEVLINK_ATTR_ESWITCH_MODE`
const MODE: u16 = 25;

/// What an eswitch does with packets (`enum devlink_eswitch_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EswitchMode {
    /// It goes by the addresses of the functions: there are no representors, and no rules.
    Legacy,
    /// It goes by rules, and what none takes is the representors'.
    Switchdev,
    /// Another one, by its number.
    Other(u16),
}

impl fmt::Display for EswitchMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Legacy => out.write_str("legacy"),
            Self::Switchdev => out.write_str("switchdev"),
            Self::Other(number) => write!(out, "mode {number}"),
        }
    }
}

/// Returns the mode of the eswitch that a PCI device manages; `None` if it manages none, or if the kernel does not tell.
pub fn eswitch_mode(address: &str) -> Result<Option<EswitchMode>, LinkError> {
    let mut control = Control::generic()?;
    let Some(family) = family(&mut control, "devlink")? else { return Ok(None) };
    let mut mode = None;
    let answer = control.request(
        "ask for the eswitch mode",
        family.number,
        0,
        |writer| {
            writer.raw(&[GET_ESWITCH, VERSION, 0, 0]);
            writer.put_text(attribute::BUS_NAME, "pci");
            writer.put_text(attribute::DEVICE_NAME, address);
        },
        |message| {
            for attribute in attributes(message)? {
                let attribute = attribute?;
                if attribute.kind == MODE {
                    mode = Some(match attribute.u16()? {
                        0 => EswitchMode::Legacy,
                        1 => EswitchMode::Switchdev,
                        other => EswitchMode::Other(other),
                    });
                }
            }
            Ok(())
        },
    );
    match answer {
        // There is no such device, or it has no eswitch.
        Err(error) if [Errno::NODEV, Errno::OPNOTSUPP].into_iter().any(|errno| error.is(errno)) => Ok(None),
        answer => answer.map(|()| mode),
    }
}
