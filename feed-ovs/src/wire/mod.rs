//! Messages of the kernel's Open vSwitch module, read (`include/uapi/linux/openvswitch.h`).
//!
//! An attribute that is not known is an error, unless it is one of a key of which the flow matches nothing: nobody may act as if it were not
//! there.

mod actions;
mod conntrack;
mod header;
mod key;
mod mask;
mod message;
mod meter;
mod nsh;
mod set;
mod tunnel;
mod userspace;

pub use actions::read_actions;
pub use key::read_match;
pub use message::{Datapath, FlowMessage, VPORT_INTERNAL, Vport, now};
pub use meter::{read_meter, read_meter_id};
pub use userspace::read_user_data;
