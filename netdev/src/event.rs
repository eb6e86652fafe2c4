//! What happens to devices.

use std::fmt;

use crate::device::{Ifindex, NamespaceId, State, SwitchId};
use crate::ingress::IngressQdisc;
use crate::touched_filters::TouchedFilters;

/// A device, by its name and its life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Port {
    /// Its number.
    pub ifindex: Ifindex,
    /// Its name.
    pub name: String,
    /// Its life. Numbers and names come back; a life does not.
    pub generation: Generation,
}

impl fmt::Display for Port {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (ifindex {}, generation {})", self.name, self.ifindex, self.generation.0)
    }
}

/// The life of a device in this namespace, from when it appeared to when it was gone. Two lives never have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// Something happened. The port is as it is afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A device is there that was not.
    Appeared(Port),
    /// A device is not there any more.
    Gone(Port),
    /// A device went to another namespace, where it may have another number.
    Moved {
        /// The device as it was here.
        port: Port,
        /// The other namespace, if it has a number here.
        namespace: Option<NamespaceId>,
        /// The number of the device there.
        ifindex: Option<Ifindex>,
    },
    /// A device has another name.
    Renamed {
        /// The device.
        port: Port,
        /// Its old name.
        from: String,
    },
    /// A device came up or went down.
    StateChanged {
        /// The device.
        port: Port,
        /// Before.
        from: State,
        /// Now.
        to: State,
    },
    /// A device is the port of another switch, or of one at all.
    SwitchChanged {
        /// The device.
        port: Port,
        /// Before.
        from: Option<SwitchId>,
        /// Now.
        to: Option<SwitchId>,
    },
    /// A device is a member of another one, also one that has only appeared, or is none any more.
    MasterChanged {
        /// The device.
        port: Port,
        /// Before.
        from: Option<Ifindex>,
        /// Now.
        to: Option<Ifindex>,
    },
    /// What a device is for changed: a representor's function, a tunnel's UDP port.
    RoleChanged(Port),
    /// A device is there, of which no sense could be made. What was known of it stays.
    Unreadable {
        /// The number of the device.
        ifindex: Ifindex,
        /// What is wrong.
        reason: String,
    },
    /// Filters may hang on a device now.
    QdiscAdded {
        /// The device.
        port: Port,
        /// On what.
        qdisc: IngressQdisc,
        /// Who did it, see [`Control::port`](crate::Control::port).
        by: Option<u32>,
    },
    /// What filters hang on is another one; those of the old one are gone.
    QdiscReplaced {
        /// The device.
        port: Port,
        /// Before.
        from: IngressQdisc,
        /// Now.
        to: IngressQdisc,
        /// Who did it, if that is known.
        by: Option<u32>,
    },
    /// What filters hung on is gone, and they with it.
    QdiscRemoved {
        /// The device.
        port: Port,
        /// Before.
        qdisc: IngressQdisc,
        /// Who did it, if that is known.
        by: Option<u32>,
    },
    /// Somebody put a filter in or replaced one, at a priority that is heard ([`MonitorOptions`](crate::MonitorOptions)).
    FilterPut(TouchedFilters),
    /// Somebody put actions in, changed them or took them away, by themselves and not with a filter.
    ActionsTouched {
        /// The socket that asked for it.
        by: u32,
    },
    /// Somebody took filters away.
    FiltersGone(TouchedFilters),
    /// Notifications were lost. Devices and queueing disciplines were read anew, and the events before this one say what
    /// the difference was; which filters went meanwhile, only a look at them can tell.
    Resynchronised,
}
