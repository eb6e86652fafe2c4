//! What libmlx5's errors mean.

use sluice_flow::Cause;
use sluice_flow::refusal::Refusal;

use crate::mlx5::CallError;

/// What a call that libmlx5 or the device refused means for a flow.
pub(super) fn refuse(error: CallError) -> Refusal {
    const ENOMEM: i32 = 12;
    const EINVAL: i32 = 22;
    const ENOSPC: i32 = 28;
    const EOPNOTSUPP: i32 = 95;
    match error.source.raw_os_error() {
        // What it says of masks and lists of actions that it has no entries for.
        Some(EINVAL | EOPNOTSUPP) => {
            Refusal::Combination { reason: format!("libmlx5 does not take it: {error}").into() }
        }
        Some(ENOMEM | ENOSPC) => Refusal::Device { reason: error.to_string().into() }.until(Cause::Room),
        _ => Refusal::Device { reason: error.to_string().into() },
    }
}
