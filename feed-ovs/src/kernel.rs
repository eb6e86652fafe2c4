//! The kernel's datapaths, by generic netlink. Reading them needs no privileges (`GENL_UNS_ADMIN_PERM` is on what changes them only).

use std::io;
use std::time::Duration;

use netlink_sys::Socket as Netlink;
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sluice_netdev::netlink::attribute::{Malformed, TooLong, Writer};
use sluice_netdev::netlink::message::{Answer, Header, Message, Messages, flag, write};

use crate::families::{Families, Family, Found};
use crate::wire::{Datapath, Vport};

/// As large as the datagrams of a dump.
const RECEIVE_BUFFER: usize = 1 << 16;
/// How long the kernel may take for a datagram.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the kernel's datapaths could not be read.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The module is not loaded. Reading does not load it.
    #[error("the kernel's openvswitch module is not loaded")]
    NoModule,
    /// The socket failed, or the kernel refused the request.
    #[error("generic netlink: {0}")]
    Io(#[from] io::Error),
    /// The kernel sent a message that makes no sense.
    #[error("generic netlink: {0}")]
    Malformed(#[from] Malformed),
    /// A request does not fit into a message.
    #[error("generic netlink: {0}")]
    TooLong(#[from] TooLong),
    /// A program that told of its datapath is gone.
    #[error("ovs-vswitchd is gone")]
    Gone,
    /// No answer came in time.
    #[error("generic netlink: the kernel does not answer")]
    Silent,
}

/// A socket to the Open vSwitch module, in the network namespace that it was opened in.
pub struct Kernel {
    netlink: Netlink,
    received: Box<[u8]>,
    sequence: u32,
    families: Families,
}

/// `OVS_DP_CMD_GET`, `OVS_VPORT_CMD_GET` and `OVS_FLOW_CMD_GET`.
const GET: u8 = 3;
/// `OVS_DP_CMD_SET`
const SET: u8 = 4;
const DATAPATH_VERSION: u8 = 2;
const VERSION: u8 = 1;

impl Kernel {
    /// Opens the socket. Fails if the module is not loaded.
    pub fn open() -> Result<Self, KernelError> {
        let mut netlink = Netlink::new(NETLINK_GENERIC)?;
        netlink.bind_auto()?;
        netlink.set_cap_ack(true)?;
        set_socket_timeout(&netlink, Timeout::Recv, Some(PATIENCE)).map_err(io::Error::from)?;
        let none = Family { number: 0, group: 0 };
        let families = Families { datapath: none, vport: none, flow: none, meter: None };
        let mut kernel = Self { netlink, received: vec![0; RECEIVE_BUFFER].into(), sequence: 0, families };
        kernel.families = kernel.find_families()?;
        Ok(kernel)
    }

    /// Returns the datapaths.
    pub fn datapaths(&mut self) -> Result<Vec<Datapath>, KernelError> {
        let mut datapaths = Vec::new();
        self.dump(self.families.datapath.number, (GET, DATAPATH_VERSION), &0u32.to_ne_bytes(), &mut |payload| {
            datapaths.push(Datapath::read(payload)?);
            Ok(())
        })?;
        Ok(datapaths)
    }

    /// Returns the datapath of this name, if there is one. It is asked for ten times a second, which costs less than to read all of them.
    pub fn datapath(&mut self, name: &str) -> Result<Option<Datapath>, KernelError> {
        const NAME: u16 = 1;
        let mut found = None;
        let body = |writer: &mut Writer<'_>| {
            writer.raw(&0u32.to_ne_bytes());
            writer.put_text(NAME, name);
        };
        let command = (GET, DATAPATH_VERSION);
        let asked = self.request(self.families.datapath.number, command, flag::REQUEST, body, &mut |payload| {
            found = Some(Datapath::read(payload)?);
            Ok(())
        });
        match asked {
            Err(KernelError::Io(reason)) if reason.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(None),
            asked => asked.map(|()| found),
        }
    }

    /// Returns the ports of a datapath.
    pub fn vports(&mut self, datapath: u32) -> Result<Vec<Vport>, KernelError> {
        let mut vports = Vec::new();
        self.dump(self.families.vport.number, (GET, VERSION), &datapath.to_ne_bytes(), &mut |payload| {
            vports.push(Vport::read(payload)?);
            Ok(())
        })?;
        Ok(vports)
    }

    /// Passes the messages about the flows of a datapath on as they come, for [`FlowMessage::read`](crate::wire::FlowMessage::read). A flow
    /// that changes meanwhile may be passed on twice or not at all.
    pub fn flows(&mut self, datapath: u32, see: &mut dyn FnMut(&[u8])) -> Result<(), KernelError> {
        self.dump(self.families.flow.number, (GET, VERSION), &datapath.to_ne_bytes(), &mut |payload| {
            see(payload);
            Ok(())
        })
    }

    /// Has a datapath take packets on at the recirculation id of the chain of tc where they missed, if the kernel can (`CONFIG_NET_TC_SKB_EXT`).
    /// Takes `CAP_NET_ADMIN`.
    pub fn share_recirculation(&mut self, datapath: &Datapath) -> Result<(), KernelError> {
        const FEATURES: u16 = 5;
        // All are set at once, so that the others are those that were read.
        let missing = Malformed::Missing { place: "message of ovs_datapath", kind: FEATURES };
        let features = datapath.features.ok_or(missing)? | Datapath::RECIRC_SHARING;
        let body = |writer: &mut Writer<'_>| {
            writer.raw(&datapath.index.to_ne_bytes());
            writer.put(FEATURES, &features.to_ne_bytes());
        };
        let command = (SET, DATAPATH_VERSION);
        self.request(self.families.datapath.number, command, flag::REQUEST | flag::ACK, body, &mut |_| Ok(()))
    }

    /// The families, for who listens to them.
    pub(crate) const fn families(&self) -> Families {
        self.families
    }

    /// Finds the families in a dump of all: the kernel loads a module that is asked for by the name of its family.
    fn find_families(&mut self) -> Result<Families, KernelError> {
        const CONTROLLER: u16 = 0x10;
        const GET_FAMILY: u8 = 3;
        let mut found = Found::default();
        self.dump(CONTROLLER, (GET_FAMILY, 1), &[], &mut |payload| found.read(payload.get(4..).unwrap_or_default()))?;
        found.all().ok_or(KernelError::NoModule)
    }

    /// Asks a family for all that it has, and passes on what is behind the header of each message.
    fn dump(
        &mut self,
        family: u16,
        command: (u8, u8),
        header: &[u8],
        see: &mut dyn FnMut(&[u8]) -> Result<(), Malformed>,
    ) -> Result<(), KernelError> {
        self.request(family, command, flag::REQUEST | flag::DUMP, |writer| writer.raw(header), see)
    }

    /// Sends a request, and passes on what is behind the header of each message that answers it.
    fn request(
        &mut self,
        family: u16,
        (command, version): (u8, u8),
        flags: u16,
        body: impl FnOnce(&mut Writer<'_>),
        see: &mut dyn FnMut(&[u8]) -> Result<(), Malformed>,
    ) -> Result<(), KernelError> {
        self.sequence = self.sequence.wrapping_add(1);
        let wanted = self.sequence;
        let mut request = Vec::new();
        write(&mut request, Header { kind: family, flags, sequence: wanted, port: 0 }, |writer| {
            writer.raw(&[command, version, 0, 0]);
            body(writer);
        })?;
        send(&self.netlink, &request, SendFlags::empty()).map_err(io::Error::from)?;
        loop {
            let length = self.receive()?;
            for message in Messages::new(&self.received[..length]) {
                let message: Message<'_> = message?;
                if message.header.sequence != wanted {
                    continue;
                }
                match message.answer()? {
                    Answer::Content(content) => {
                        see(content.payload)?;
                        if flags == flag::REQUEST {
                            // It is all of the answer.
                            return Ok(());
                        }
                    }
                    Answer::Done(0) => return Ok(()),
                    Answer::Done(errno) => return Err(io::Error::from_raw_os_error(errno).into()),
                    Answer::Acknowledgement(told) if told.errno != 0 => {
                        return Err(io::Error::from_raw_os_error(told.errno).into());
                    }
                    // A dump ends otherwise.
                    Answer::Acknowledgement(_) => return Ok(()),
                    Answer::Overrun | Answer::Noop => {}
                }
            }
        }
    }

    fn receive(&mut self) -> Result<usize, KernelError> {
        loop {
            match recv(&self.netlink, &mut self.received[..], RecvFlags::TRUNC) {
                Ok((kept, length)) if length > kept => {
                    return Err(Malformed::Truncated { place: "datagram of a dump" }.into());
                }
                Ok((kept, _)) => return Ok(kept),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(KernelError::Silent),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }
}
