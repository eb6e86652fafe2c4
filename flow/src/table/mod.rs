//! The flow table.

/// The name of one life of a flow: a slot of the table and how often the slot was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId {
    /// The slot.
    pub slot: u32,
    /// Which life of the slot.
    pub incarnation: u32,
}

/// Counts the changes to what is wanted of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Generation(pub u32);

/// FlowState
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// x
    Pending,
}

/// FlowTable
pub struct FlowTable;
