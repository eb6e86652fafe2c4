//! Sessions: two flows, one for each direction, that come and go together. [OPI's interface](crate::api) makes them.
//!
//! There is no table of sessions beside that of flows. The [name] of a flow says of which session it is and which direction, and the log of
//! flows keeps names, so that a session is whole again after a restart, whenever the agent died. A second store could disagree with the
//! first. What is kept besides lasts as long as an end takes, or until somebody asks: see [`ends`].

pub mod ends;
pub mod name;
