//! Why requests, and what is posted to failed queues, come back without having been done.

/// Why something comes back without having been done (PRM, "Completion with Error").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syndrome {
    /// What was received does not fit into its buffers.
    LocalLength = 0x01,
    /// A request cannot be carried out.
    LocalOperation = 0x02,
    /// Memory is not under the key that was given.
    LocalProtection = 0x04,
    /// The queue failed before it came to it.
    Flushed = 0x05,
    /// The other side does not allow such a request, or has too small buffers for it.
    RemoteRequest = 0x12,
    /// Memory of the other side is not under the key that was given.
    RemoteAccess = 0x13,
    /// The other side could not carry it out.
    RemoteOperation = 0x14,
    /// Nobody has answered.
    NoAnswer = 0x15,
    /// The other side had no buffer, as often as it was asked.
    NoBuffer = 0x16,
}

impl Syndrome {
    /// The vendor's own number of it, as programs on real devices print them. Firmware knows many more, by the place where something
    /// went wrong.
    pub(crate) fn vendor(self) -> u8 {
        match self {
            Self::LocalLength => 0x69,
            Self::LocalOperation => 0x68,
            Self::LocalProtection => 0x51,
            Self::Flushed => 0xf9,
            Self::RemoteRequest => 0x8a,
            Self::RemoteAccess => 0x88,
            Self::RemoteOperation => 0x89,
            Self::NoAnswer => 0x81,
            Self::NoBuffer => 0x87,
        }
    }
}

/// Why a request failed, for its completion and in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) syndrome: Syndrome,
    pub(crate) reason: String,
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self { syndrome: Syndrome::LocalOperation, reason }
    }
}

impl From<&str> for Failed {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

/// What a failed queue does with what is posted to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushing {
    /// Nothing: its context does not ask for it, or its memory is gone.
    Off,
    /// Everything comes back.
    On,
    /// The same, and something has come back already.
    Told,
}

impl Flushing {
    pub(crate) fn new(wanted: bool) -> Self {
        if wanted { Self::On } else { Self::Off }
    }

    /// As it is in a queue that begins anew.
    pub(crate) fn restarted(self) -> Self {
        if self == Self::Told { Self::On } else { self }
    }
}
