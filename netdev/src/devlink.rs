//! Ports of switches, as devlink describes them over generic netlink (`include/uapi/linux/devlink.h`).

use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;

use crate::control::{Control, ROOM, receive};
use crate::device::Ifindex;
use crate::error::LinkError;
use crate::netlink::attribute::{Attributes, Malformed};
use crate::netlink::message::{Message, Messages};
use crate::port_name::{Function, FunctionPart};

/// A port of a switch, as its driver registered it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DevlinkPort {
    /// The bus of the device, such as `pci`.
    pub bus: Box<str>,
    /// The device on it, such as `0000:03:00.0`.
    pub device: Box<str>,
    /// The number of the port.
    pub index: u32,
    /// What is behind it.
    pub flavour: Flavour,
}

/// What is behind a port (`enum devlink_port_flavour`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// A plug.
    Physical {
        /// The number of the plug.
        port: Option<u32>,
        /// The number of the part of one that was split.
        part: Option<u32>,
    },
    /// A function of a PCI device.
    Function(Function),
    /// Something else, such as the processor that a switch chip is wired to.
    Other(u16),
}

/// The family of families (`GENL_ID_CTRL`), and how it is asked for a number (`CTRL_CMD_GETFAMILY`).
const FAMILIES: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_NUMBER: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FAMILY_GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_NUMBER: u16 = 2;

const GET_PORT: u8 = 5;
const NEW_PORT: u8 = 7;
const DELETE_PORT: u8 = 8;
pub(crate) const VERSION: u8 = 1;
/// Bytes of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;

/// `DEVLINK_ATTR_*`
pub(crate) mod attribute {
    pub(crate) const BUS_NAME: u16 = 1;
    pub(crate) const DEVICE_NAME: u16 = 2;
    pub(crate) const PORT_INDEX: u16 = 3;
    pub(crate) const IFINDEX: u16 = 6;
    pub(crate) const FLAVOUR: u16 = 77;
    pub(crate) const PORT_NUMBER: u16 = 78;
    pub(crate) const PART_NUMBER: u16 = 79;
    pub(crate) const PHYSICAL_FUNCTION: u16 = 127;
    pub(crate) const VIRTUAL_FUNCTION: u16 = 128;
    pub(crate) const IS_EXTERNAL: u16 = 149;
    pub(crate) const CONTROLLER: u16 = 150;
    pub(crate) const SUBFUNCTION: u16 = 164;
}

/// A view of all ports, and an ear for what happens to them: a driver may register a port after its network device.
pub(crate) struct Devlink {
    control: Control,
    /// None if the kernel knows no devlink.
    family: Option<Family>,
    notifications: Socket,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy)]
pub(crate) struct Family {
    pub(crate) number: u16,
    notifications: Option<u32>,
}

impl Devlink {
    pub(crate) fn open() -> Result<Self, LinkError> {
        let failed = |step| move |source| LinkError::Socket { step, source };
        let mut control = Control::generic()?;
        let family = family(&mut control, "devlink")?;
        let mut notifications = Socket::new(NETLINK_GENERIC).map_err(failed("open"))?;
        notifications.bind(&SocketAddr::new(0, 0)).map_err(failed("bind"))?;
        if let Some(group) = family.and_then(|family| family.notifications) {
            notifications.add_membership(group).map_err(failed("join a multicast group"))?;
        }
        Ok(Self { control, family, notifications, buffer: vec![0; ROOM] })
    }

    /// The ports of all switches that have a network device.
    pub(crate) fn ports(&mut self) -> Result<Vec<(Ifindex, DevlinkPort)>, LinkError> {
        let Some(Family { number, .. }) = self.family else { return Ok(vec![]) };
        self.control.dump(
            "list devlink ports",
            number,
            |writer| writer.raw(&[GET_PORT, VERSION, 0, 0]),
            |ports: &mut Vec<_>, message| {
                ports.extend(read(message.payload)?);
                Ok(())
            },
        )
    }

    /// Whether something happened to a port since the last question, or may have.
    pub(crate) fn has_news(&mut self) -> Result<bool, LinkError> {
        let mut has_news = false;
        loop {
            match receive(&self.notifications, &mut self.buffer) {
                Ok(None) => return Ok(has_news),
                Ok(Some(length)) => {
                    has_news |= Messages::new(&self.buffer[..length]).any(|message| is_of_port(&message))
                }
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => has_news = true,
                Err(source) => return Err(LinkError::Socket { step: "listen to devlink", source }),
            }
        }
    }
}

impl AsFd for Devlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}

/// The same group tells of parameters, traps and health.
fn is_of_port(message: &Result<Message<'_>, Malformed>) -> bool {
    message.as_ref().is_ok_and(|message| matches!(message.payload.first(), Some(&(NEW_PORT | DELETE_PORT))))
}

/// Looks a family of generic netlink up; `None` if the kernel does not have it.
pub(crate) fn family(control: &mut Control, name: &str) -> Result<Option<Family>, LinkError> {
    let mut found = None;
    let answer = control.request(
        "look up a family of generic netlink",
        FAMILIES,
        0,
        |writer| {
            writer.raw(&[GET_FAMILY, VERSION, 0, 0]);
            writer.put_text(FAMILY_NAME, name);
        },
        |message| {
            found = read_family(message)?;
            Ok(())
        },
    );
    match answer {
        Err(error) if error.is(Errno::NOENT) => Ok(None),
        answer => answer.map(|()| found),
    }
}

fn read_family(message: &Message<'_>) -> Result<Option<Family>, Malformed> {
    let mut number = None;
    let mut notifications = None;
    for attribute in attributes(message)? {
        let attribute = attribute?;
        match attribute.kind {
            FAMILY_NUMBER => number = Some(attribute.u16()?),
            FAMILY_GROUPS => {
                for group in attribute.nested("multicast groups") {
                    let mut name = None;
                    let mut group_number = None;
                    for part in group?.nested("multicast group") {
                        let part = part?;
                        match part.kind {
                            GROUP_NAME => name = Some(part.text()?),
                            GROUP_NUMBER => group_number = Some(part.u32()?),
                            _ => {}
                        }
                    }
                    if name == Some("config") {
                        notifications = group_number;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(number.map(|number| Family { number, notifications }))
}

pub(crate) fn attributes<'a>(message: &Message<'a>) -> Result<Attributes<'a>, Malformed> {
    let place = "generic netlink";
    Ok(Attributes::new(message.payload.get(GENERIC_HEADER..).ok_or(Malformed::Truncated { place })?, place))
}

/// A port and its network device, if it has one.
pub(crate) fn read(payload: &[u8]) -> Result<Option<(Ifindex, DevlinkPort)>, Malformed> {
    let place = "devlink port";
    let bytes = payload.get(GENERIC_HEADER..).ok_or(Malformed::Truncated { place })?;
    let [mut bus, mut device] = [None, None];
    let [mut index, mut ifindex, mut number, mut part, mut controller] = [None; 5];
    let [mut physical, mut virtual_function, mut subfunction] = [None; 3];
    let mut flavour = None;
    let mut is_external = false;
    for attribute in Attributes::new(bytes, place) {
        let attribute = attribute?;
        match attribute.kind {
            attribute::BUS_NAME => bus = Some(attribute.text()?),
            attribute::DEVICE_NAME => device = Some(attribute.text()?),
            attribute::PORT_INDEX => index = Some(attribute.u32()?),
            attribute::IFINDEX => ifindex = Some(attribute.u32()?),
            attribute::FLAVOUR => flavour = Some(attribute.u16()?),
            attribute::PORT_NUMBER => number = Some(attribute.u32()?),
            attribute::PART_NUMBER => part = Some(attribute.u32()?),
            attribute::PHYSICAL_FUNCTION => physical = Some(u32::from(attribute.u16()?)),
            attribute::VIRTUAL_FUNCTION => virtual_function = Some(u32::from(attribute.u16()?)),
            attribute::SUBFUNCTION => subfunction = Some(attribute.u32()?),
            attribute::CONTROLLER => controller = Some(attribute.u32()?),
            attribute::IS_EXTERNAL => is_external = attribute.u8()? != 0,
            _ => {}
        }
    }
    let missing = |kind| Malformed::Missing { place, kind };
    let bus = bus.ok_or(missing(attribute::BUS_NAME))?.into();
    let device = device.ok_or(missing(attribute::DEVICE_NAME))?.into();
    let index = index.ok_or(missing(attribute::PORT_INDEX))?;
    let function =
        |part| physical.map(|physical| Function { controller: controller.filter(|_| is_external), physical, part });
    // `DEVLINK_PORT_FLAVOUR_*`. One without the numbers that belong to it is none that is known.
    let known = match flavour {
        Some(0) => Some(Flavour::Physical { port: number, part }),
        Some(3) => function(FunctionPart::Whole).map(Flavour::Function),
        Some(4) => virtual_function.and_then(|number| function(FunctionPart::Virtual(number))).map(Flavour::Function),
        Some(7) => subfunction.and_then(|number| function(FunctionPart::Sub(number))).map(Flavour::Function),
        _ => None,
    };
    let flavour = known.unwrap_or(Flavour::Other(flavour.unwrap_or(u16::MAX)));
    Ok(ifindex.map(|ifindex| (Ifindex(ifindex), DevlinkPort { bus, device, index, flavour })))
}
