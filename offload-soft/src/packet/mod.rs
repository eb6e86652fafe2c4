//! Frames: checked views over their headers, and the flow key of a frame.
//!
//! A view wraps bytes that are long enough for the header's fixed part, so that reading and writing its fields cannot
//! fail; offsets are written down in [`headers`] and nowhere else. What varies in length is walked by [`extract()`], and
//! the extension headers of IPv6 by `extensions`.

pub mod checksum;
mod extensions;
pub mod extract;
mod fields;
pub mod headers;
mod numbers;
pub mod tunnel;

pub(crate) use extensions::Extensions;
pub(crate) use extract::fragment;
pub use extract::{Layout, Metadata, Network, Parsed, Transport, extract, parse, parse_into};
pub(crate) use fields::is_known;
pub(crate) use numbers::MIN_FRAME;
pub use numbers::{ETH_TYPE_NONE, Mac, eth_type, ip_proto, is_mpls, is_vlan, mac_from_bits, mac_to_bits};
pub use tunnel::{TunnelAddresses, TunnelMetadata, TunnelOptions};
