//! What backends would take of the flows of an Open vSwitch, and why not the rest.
//!
//! An [`Observer`] is told of flows one after the other and keeps sums, reasons and an example of each: its memory does not grow with the
//! number of flows. Each flow is judged by the backends' [`Checker`](sluice_flow::backend::Checker)s, that is by the translation that
//! installs.

mod chains;
mod cure;
mod dump;
mod judge;
mod live;
mod metrics;
mod observer;
mod ports;
mod report;
mod text;

pub use judge::Backend;
pub use live::LiveError;
pub use observer::Observer;
pub use report::{BackendReport, Count, DatapathReport, RefusalReport, Report, Unread};
