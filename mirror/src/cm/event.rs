//! What a connection manager tells.

use std::fmt;

use rdma_sys::rdma_cm_event_type as kind;

/// Something that happened to an identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Why it failed: the negative of an error number, or of a rejection the reason that IBTA numbers (12.6.7.2).
    pub status: i32,
    /// Number of the other end's queue pair, with a request and a response.
    pub remote: u32,
    /// What the other end has sent along, with zeros behind it.
    pub private_data: Vec<u8>,
}

macro_rules! kinds {
    ($($name:ident $code:ident $words:literal,)*) => {
        /// What happened (`rdma_get_cm_event(3)`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        #[allow(missing_docs)] // Each says all.
        pub enum EventKind {
            $($name,)*
            /// A number that the header has no name for.
            Other(u32),
        }

        impl EventKind {
            pub(super) fn new(code: kind::Type) -> Self {
                match code {
                    $(kind::$code => Self::$name,)*
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for EventKind {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => out.write_str($words),)*
                    Self::Other(code) => write!(out, "event {code} of the connection manager"),
                }
            }
        }
    };
}

kinds! {
    AddressResolved RDMA_CM_EVENT_ADDR_RESOLVED "the address is resolved",
    AddressError RDMA_CM_EVENT_ADDR_ERROR "the address cannot be resolved",
    RouteResolved RDMA_CM_EVENT_ROUTE_RESOLVED "the route is resolved",
    RouteError RDMA_CM_EVENT_ROUTE_ERROR "the route cannot be resolved",
    ConnectRequest RDMA_CM_EVENT_CONNECT_REQUEST "somebody asks for a connection",
    ConnectResponse RDMA_CM_EVENT_CONNECT_RESPONSE "the other end takes the connection",
    ConnectError RDMA_CM_EVENT_CONNECT_ERROR "the connection cannot be made",
    Unreachable RDMA_CM_EVENT_UNREACHABLE "the other end does not answer",
    Rejected RDMA_CM_EVENT_REJECTED "the other end rejects the connection",
    Established RDMA_CM_EVENT_ESTABLISHED "the connection is established",
    Disconnected RDMA_CM_EVENT_DISCONNECTED "the other end has disconnected",
    DeviceRemoval RDMA_CM_EVENT_DEVICE_REMOVAL "the RDMA device is removed",
    AddressChange RDMA_CM_EVENT_ADDR_CHANGE "the network device has another address",
    TimeWaitExit RDMA_CM_EVENT_TIMEWAIT_EXIT "nothing of the connection is under way any more",
}
