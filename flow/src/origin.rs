//! Who wants a flow.

/// Who wants a flow: somebody who typed it, or a [source](crate::source::Source).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A command on the control socket. The log of flows keeps it.
    #[default]
    Command,
    /// The kernel's Open vSwitch datapath. Open vSwitch itself keeps the flow and says after a restart whether it is still wanted.
    OpenVswitch,
    /// The kernel's connection tracking. A connection ends there, and is found there after a restart.
    Conntrack,
}

impl Origin {
    /// The word for it in dumps, metrics and the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::OpenVswitch => "ovs",
            Self::Conntrack => "conntrack",
        }
    }

    /// Who that is, in a sentence.
    pub const fn owner(self) -> &'static str {
        match self {
            Self::Command => "whoever added it by a command",
            Self::OpenVswitch => "Open vSwitch",
            Self::Conntrack => "the kernel's connection tracking",
        }
    }

    /// Whether the log of flows keeps it. What a source wants, the source itself knows after a restart.
    pub const fn is_logged(self) -> bool {
        matches!(self, Self::Command)
    }

    /// Whether flows come as packets do, so that a chain never has all flows that packets in it need. A packet that misses there has to go on
    /// where the source's own datapath would take it on.
    pub const fn is_reactive(self) -> bool {
        matches!(self, Self::OpenVswitch)
    }
}
