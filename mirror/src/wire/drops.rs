//! Causes of drops, and counts by cause.

use std::ops::{AddAssign, Index, IndexMut};

macro_rules! causes {
    ($($(#[$meta:meta])* $name:ident $word:literal,)*) => {
        /// Why a frame that was mirrored is not in a batch, or why a batch was given up.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Cause {
            $($(#[$meta])* $name,)*
        }

        impl Cause {
            /// All causes, in the order of the wire format.
            pub const ALL: [Self; CAUSES] = [$(Self::$name),*];

            /// Returns the word for metrics and files.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }
        }

        /// Number of causes.
        pub const CAUSES: usize = [$($word),*].len();
    };
}

causes! {
    /// The kernel's packet ring was full: the collector does not keep up, or is not there.
    RingFull "ring-full",
    /// The agent's socket to the sender was full.
    AgentSocketFull "agent-socket-full",
    /// All of the sender's memory for the class was in use: the collector does not keep up, or is not there.
    QueueFull "queue-full",
    /// The frame is longer than a batch can be.
    TooLong "too-long",
    /// The connection was lost, and the device did not give back the memory of the frame, which could not be sent again.
    ConnectionLost "connection-lost",
    /// The sender was stopped before the collector had acknowledged the frame.
    Stopped "stopped",
    /// The kernel's samples found no room in the socket of the sender.
    SampleFull "sample-full",
    /// The batch of the frame is malformed inside. Only collectors count this.
    Malformed "malformed",
    /// The collector could not write the frame to its file or pipe. Only collectors count this.
    FileFailed "file-failed",
    /// The collector could not inject the frame into its TAP. Only collectors count this.
    TapFailed "tap-failed",
}

/// Frames that were dropped, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops([u64; CAUSES]);

impl Drops {
    /// Returns the sum over all causes; the greatest number if it is beyond that, as it can be of what another end tells.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns all causes with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u64)> {
        Cause::ALL.into_iter().zip(self.0)
    }
}

impl Index<Cause> for Drops {
    type Output = u64;

    fn index(&self, cause: Cause) -> &u64 {
        &self.0[cause as usize]
    }
}

impl IndexMut<Cause> for Drops {
    fn index_mut(&mut self, cause: Cause) -> &mut u64 {
        &mut self.0[cause as usize]
    }
}

impl AddAssign for Drops {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}
