//! `sluice.v1`: the agent's interface for programs, as messages, clients and servers of gRPC, and `openoffload.v2`, OPI's interface for
//! sessions. `proto/` describes them.

mod codec;
mod error;
mod matching;
mod page;
mod requests;

pub use self::error::{DOMAIN, Details};
pub use self::generated::google::rpc;
pub use self::generated::openoffload;
pub use self::generated::sluice::v1;
pub use self::matching::{FieldView, Fields, FieldsWriter, Malformed};
pub use self::page::{Acceptances, DumpResponse, Page};
pub use self::requests::{MOST_FLOWS, MOST_OPERATIONS};

/// Laid out as the packages are, for they name each other so. The comments are in the `.proto` files.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, reason = "generated")]
mod generated {
    pub mod google {
        pub mod rpc {
            tonic::include_proto!("google.rpc");
        }
    }
    pub mod openoffload {
        pub mod v2 {
            tonic::include_proto!("openoffload.v2");
        }
    }
    pub mod sluice {
        pub mod v1 {
            tonic::include_proto!("sluice.v1");
            pub use crate::matching::Match;
            pub use crate::requests::{ApplyRequest, ReplaceRequest};
            pub mod r#match {
                pub use crate::matching::Form;
            }
        }
    }
}

/// Bytes of the longest frame of HTTP/2 that agent and client take. A page of a dump fits, and a batch of a thousand operations, so that each is
/// written and read at once.
pub const FRAME: u32 = 256 * 1024;

/// The whole interface as a `FileDescriptorSet`, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
