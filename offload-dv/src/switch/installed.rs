//! A rule of a flow, and what it needs as long as it is there.

use sluice_flow::Flow;

use super::continuations::Continued;
use super::kinds::KindId;
use crate::mlx5::Rule;

/// A rule in a table.
pub(super) struct Installed {
    /// Goes before what it refers to.
    pub(super) rule: Rule,
    pub(super) flow: Flow,
    /// `None` for the first rule of several.
    pub(super) kind: Option<KindId>,
}

/// A rule of a flow in a table, with what belongs to it.
pub(super) type Rules = (Installed, Option<Continued>);
