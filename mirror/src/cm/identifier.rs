//! Communication identifiers: what sockets are to TCP.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

use rdma_sys as sys;
use rustix::net::SocketAddrAny;

use super::channel::{EventChannel, Mode, Told};
use super::error::CmError;
use super::event::{Event, EventKind};
use crate::verbs::{CallError, Connect, Ece, Mtu, Path, Psn, done, made};

/// An identifier of a reliable connection, or of one that is listened for, with an event channel of its own. Its queue pair is somebody
/// else's. Dropping it disconnects.
#[derive(Debug)]
pub struct Identifier {
    raw: NonNull<sys::rdma_cm_id>,
    is_connected: bool,
    /// Destroyed after the identifier.
    channel: EventChannel,
}

// SAFETY: librdmacm allows calls on an identifier from any thread.
unsafe impl Send for Identifier {}
// SAFETY: and from several at a time.
unsafe impl Sync for Identifier {}

/// What the connection manager knows of the transition to INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initial {
    /// Port of the device.
    pub port: u8,
    /// Place of the partition in the port's table.
    pub partition: u16,
}

impl Identifier {
    /// Creates an identifier without an address.
    ///
    /// # Errors
    /// Fails if the host has no connection manager (`rdma_ucm`), or in [`Mode::Reactor`] outside of a runtime.
    ///
    /// # Panics
    /// Panics in a runtime without I/O.
    pub fn new(mode: Mode) -> Result<Self, CallError> {
        let channel = EventChannel::new(mode)?;
        let mut raw = null_mut();
        let space = sys::rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel exists, and there is room for a pointer.
        done("rdma_create_id", unsafe { sys::rdma_create_id(channel.raw(), &raw mut raw, null_mut(), space) })?;
        Ok(Self { raw: made("rdma_create_id", raw)?, is_connected: false, channel })
    }

    /// Takes over the identifier of somebody who asks for a connection, with its events.
    fn of_request(raw: NonNull<sys::rdma_cm_id>, mode: Mode) -> Result<Self, CallError> {
        let migrated = EventChannel::new(mode).and_then(|channel| {
            // SAFETY: both exist, and no event of the identifier is unacknowledged.
            done("rdma_migrate_id", unsafe { sys::rdma_migrate_id(raw.as_ptr(), channel.raw()) }).map(|()| channel)
        });
        match migrated {
            Ok(channel) => Ok(Self { raw, is_connected: false, channel }),
            Err(error) => {
                // SAFETY: nobody else has it.
                unsafe { sys::rdma_destroy_id(raw.as_ptr()) };
                Err(error)
            }
        }
    }

    /// Waits for what happens next, until a deadline if there is one. An identifier that listens also gets the identifier of who asks for
    /// a connection. Nothing is lost if this is dropped before it is done.
    ///
    /// # Errors
    /// Fails at the deadline ([`CmError::Silence`]), or as `rdma_get_cm_event` and `rdma_migrate_id` fail.
    pub async fn event(&self, deadline: Option<Instant>) -> Result<(Event, Option<Self>), CmError> {
        let Told { event, request } = self.channel.next(deadline).await?;
        let request = request.map(|raw| Self::of_request(raw, self.channel.mode())).transpose()?;
        Ok((event, request))
    }

    /// Waits for an event of this kind.
    ///
    /// # Errors
    /// Fails if another one comes first, or as [`Identifier::event`].
    pub async fn expect(&self, wanted: EventKind, deadline: Instant) -> Result<Event, CmError> {
        let (event, _) = self.event(Some(deadline)).await?;
        if event.kind == wanted { Ok(event) } else { Err(CmError::of(event)) }
    }

    /// Binds it to a local address.
    ///
    /// # Errors
    /// As `rdma_bind_addr` fails.
    pub fn bind(&self, address: SocketAddr) -> Result<(), CallError> {
        let address = SocketAddrAny::from(address);
        let raw = address.as_ptr().cast_mut().cast();
        // SAFETY: the identifier exists, and the address is one of IP. It is only read.
        done("rdma_bind_addr", unsafe { sys::rdma_bind_addr(self.raw.as_ptr(), raw) })
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// As `rdma_listen` fails.
    pub fn listen(&self, backlog: u16) -> Result<(), CallError> {
        // SAFETY: the identifier exists.
        done("rdma_listen", unsafe { sys::rdma_listen(self.raw.as_ptr(), backlog.into()) })
    }

    /// Begins to look for the device that leads to an address, until [`EventKind::AddressResolved`].
    ///
    /// # Errors
    /// As `rdma_resolve_addr` fails.
    pub fn resolve_address(&self, address: SocketAddr, patience: Duration) -> Result<(), CallError> {
        let address = SocketAddrAny::from(address);
        let (raw, patience) = (address.as_ptr().cast_mut().cast(), milliseconds(patience));
        // SAFETY: the identifier exists, and the address is one of IP. It is only read.
        let code = unsafe { sys::rdma_resolve_addr(self.raw.as_ptr(), null_mut(), raw, patience) };
        done("rdma_resolve_addr", code)
    }

    /// Begins to look for the path, until [`EventKind::RouteResolved`].
    ///
    /// # Errors
    /// As `rdma_resolve_route` fails.
    pub fn resolve_route(&self, patience: Duration) -> Result<(), CallError> {
        // SAFETY: the identifier exists.
        done("rdma_resolve_route", unsafe { sys::rdma_resolve_route(self.raw.as_ptr(), milliseconds(patience)) })
    }

    /// Returns the name of its device; `None` as long as no address has led to one.
    #[must_use]
    pub fn device(&self) -> Option<String> {
        // SAFETY: the identifier exists, and keeps its device open once it has one.
        unsafe {
            let context = self.raw.as_ref().verbs.as_ref()?;
            Some(CStr::from_ptr(sys::ibv_get_device_name(context.device)).to_string_lossy().into_owned())
        }
    }

    /// Returns the address of the other end, if it is one of IP.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier exists, and the family says which of the addresses is there.
        unsafe {
            let address = &self.raw.as_ref().route.addr.dst_addr_union;
            match c_int::from(address.dst_addr.sa_family) {
                libc::AF_INET => {
                    let ip = Ipv4Addr::from(u32::from_be(address.dst_sin.sin_addr.s_addr));
                    Some((ip, u16::from_be(address.dst_sin.sin_port)).into())
                }
                libc::AF_INET6 => {
                    let ip = Ipv6Addr::from(address.dst_sin6.sin6_addr.s6_addr);
                    Some((ip, u16::from_be(address.dst_sin6.sin6_port)).into())
                }
                _ => None,
            }
        }
    }

    /// Returns the port that it is bound to; 0 if it is not.
    #[must_use]
    pub fn local_port(&self) -> u16 {
        // SAFETY: the identifier exists.
        u16::from_be(unsafe { sys::rdma_get_src_port(self.raw.as_ptr()) })
    }

    /// Returns what the transition to INIT needs.
    ///
    /// # Errors
    /// As `rdma_init_qp_attr` fails.
    pub fn initial(&self) -> Result<Initial, CallError> {
        let attributes = self.attributes(sys::ibv_qp_state::IBV_QPS_INIT)?;
        Ok(Initial { port: attributes.port_num, partition: attributes.pkey_index })
    }

    /// Returns what the transition to RTR needs, with a timer that the connection manager does not know.
    ///
    /// # Errors
    /// As `rdma_init_qp_attr` fails: the other end is not known yet.
    pub fn connected(&self, min_rnr_timer: u8) -> Result<Connect, CallError> {
        let attributes = self.attributes(sys::ibv_qp_state::IBV_QPS_RTR)?;
        Ok(Connect {
            remote: attributes.dest_qp_num,
            psn: Psn::new(attributes.rq_psn),
            path: Path::of_raw(&attributes.ah_attr),
            mtu: Mtu::of_raw(attributes.path_mtu),
            min_rnr_timer,
        })
    }

    /// Returns the number of the first packet that goes out, which the transition to RTS needs.
    ///
    /// # Errors
    /// As `rdma_init_qp_attr` fails: the other end is not known yet.
    pub fn first_psn(&self) -> Result<Psn, CallError> {
        Ok(Psn::new(self.attributes(sys::ibv_qp_state::IBV_QPS_RTS)?.sq_psn))
    }

    fn attributes(&self, state: sys::ibv_qp_state::Type) -> Result<sys::ibv_qp_attr, CallError> {
        let mut attributes = MaybeUninit::<sys::ibv_qp_attr>::zeroed();
        // SAFETY: zeroes are a value of every field.
        unsafe { attributes.assume_init_mut() }.qp_state = state;
        let mut mask = 0;
        // SAFETY: the identifier exists, and there is room for the answer.
        let code = unsafe { sys::rdma_init_qp_attr(self.raw.as_ptr(), attributes.as_mut_ptr(), &raw mut mask) };
        done("rdma_init_qp_attr", code)?;
        // SAFETY: as above.
        Ok(unsafe { attributes.assume_init() })
    }

    /// Returns the options of a connection that the other end offers or has agreed on; `None` if it has none.
    ///
    /// # Errors
    /// As `rdma_get_remote_ece` fails.
    pub fn remote_ece(&self) -> Result<Option<Ece>, CallError> {
        let mut ece = sys::ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
        // SAFETY: the identifier exists, and there is room for the answer.
        done("rdma_get_remote_ece", unsafe { sys::rdma_get_remote_ece(self.raw.as_ptr(), &raw mut ece) })?;
        Ok((ece.vendor_id != 0).then_some(Ece { vendor: ece.vendor_id, options: ece.options }))
    }

    /// Sets the options that are offered to the other end, or agreed on, with the next message to it.
    ///
    /// # Errors
    /// As `rdma_set_local_ece` fails.
    pub fn set_local_ece(&self, ece: Ece) -> Result<(), CallError> {
        let mut ece = sys::ibv_ece { vendor_id: ece.vendor, options: ece.options, comp_mask: 0 };
        // SAFETY: the identifier exists.
        done("rdma_set_local_ece", unsafe { sys::rdma_set_local_ece(self.raw.as_ptr(), &raw mut ece) })
    }

    /// Asks for a connection of this queue pair, until [`EventKind::ConnectResponse`].
    ///
    /// # Errors
    /// As `rdma_connect` fails. At most 56 bytes can be sent along.
    pub fn connect(&self, pair: u32, private_data: &[u8]) -> Result<(), CallError> {
        let mut parameters = parameters(pair, private_data)?;
        // SAFETY: the identifier exists, and the data outlives the call.
        done("rdma_connect", unsafe { sys::rdma_connect(self.raw.as_ptr(), &raw mut parameters) })
    }

    /// Takes a connection for this queue pair, until [`EventKind::Established`].
    ///
    /// # Errors
    /// As `rdma_accept` fails. At most 196 bytes can be sent along.
    pub fn accept(&mut self, pair: u32, private_data: &[u8]) -> Result<(), CallError> {
        let mut parameters = parameters(pair, private_data)?;
        // SAFETY: the identifier exists, and the data outlives the call.
        done("rdma_accept", unsafe { sys::rdma_accept(self.raw.as_ptr(), &raw mut parameters) })?;
        self.is_connected = true;
        Ok(())
    }

    /// Tells the other end, which has taken the connection, that the queue pair is ready.
    ///
    /// # Errors
    /// As `rdma_establish` fails.
    pub fn establish(&mut self) -> Result<(), CallError> {
        // SAFETY: the identifier exists.
        done("rdma_establish", unsafe { sys::rdma_establish(self.raw.as_ptr()) })?;
        self.is_connected = true;
        Ok(())
    }

    /// Rejects a request or the response to one.
    ///
    /// # Errors
    /// As `rdma_reject` fails. At most 148 bytes can be sent along.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), CallError> {
        const CALL: &str = "rdma_reject";
        let too_long = |_| CallError::new(CALL, std::io::ErrorKind::InvalidInput);
        let length = u8::try_from(private_data.len()).map_err(too_long)?;
        // SAFETY: the identifier exists, and the data outlives the call.
        done(CALL, unsafe { sys::rdma_reject(self.raw.as_ptr(), private_data.as_ptr().cast(), length) })
    }

    /// Disconnects; the other end gets [`EventKind::Disconnected`]. This end gets it once the other one has disconnected, too.
    ///
    /// # Errors
    /// As `rdma_disconnect` fails.
    pub fn disconnect(&mut self) -> Result<(), CallError> {
        self.is_connected = false;
        // SAFETY: the identifier exists.
        done("rdma_disconnect", unsafe { sys::rdma_disconnect(self.raw.as_ptr()) })
    }
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

fn parameters(pair: u32, private_data: &[u8]) -> Result<sys::rdma_conn_param, CallError> {
    let too_long = |_| CallError::new("private data", std::io::ErrorKind::InvalidInput);
    Ok(sys::rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: u8::try_from(private_data.len()).map_err(too_long)?,
        // Nobody reads from the other side.
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 0,
        // These reach the kernel's message only: the queue pair has its own.
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: pair,
    })
}

impl Drop for Identifier {
    fn drop(&mut self) {
        if self.is_connected {
            // If it is not connected any more, there is nobody to tell.
            let _ = self.disconnect();
        }
        // SAFETY: nobody else has it, and all of its events are acknowledged.
        unsafe { sys::rdma_destroy_id(self.raw.as_ptr()) };
    }
}
