//! Actions, written.
use std::fmt;

use super::Style;
use crate::action::Action;

/// Writes a list of actions.
pub fn write_actions(_out: &mut dyn fmt::Write, _actions: &[Action], _style: &Style<'_>) -> fmt::Result {
    Ok(())
}

/// Writes one action.
pub fn write_action(_out: &mut dyn fmt::Write, _action: &Action, _style: &Style<'_>) -> fmt::Result {
    Ok(())
}
