//! Answers of the control socket that programs read: what the agent writes and the command line takes apart.

use serde::{Deserialize, Serialize};

/// What became of many flows that were given at once: the answer of `sluice/add-flows`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkAnswer {
    /// Requests taken on.
    pub accepted: usize,
    /// Of those: in the device as wanted.
    pub offloaded: usize,
    /// Of those: refused by the device.
    pub refused: usize,
    /// Of those: deletions that are done.
    pub deleted: usize,
    /// Of those: overtaken by a later request for the same flow.
    pub superseded: usize,
    /// Of those: without an outcome when the answer was given.
    pub unanswered: usize,
    /// Lines that were not taken on.
    pub in_error: usize,
    /// Why flows were refused, the first ones.
    pub refusals: Vec<String>,
    /// What is wrong with lines, the first ones.
    pub errors: Vec<LineError>,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineError {
    /// Its number in the text; the first is 1.
    pub line: usize,
    /// What is wrong, in one or more lines.
    pub text: String,
}
