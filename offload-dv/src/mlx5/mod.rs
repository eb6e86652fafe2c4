//! libmlx5's direct rules and DevX objects (`infiniband/mlx5dv.h`), as far as the backend uses them.
//!
//! The libraries are loaded at run time ([`Library::load`]), so that one binary runs with and without rdma-core. Each handle keeps what
//! it was made of, so that objects are destroyed in the order of their dependencies, whoever drops them first. Handles stay on the
//! thread that made them (`Rc`): libmlx5 takes its locks and polls its queues with whoever calls it, and the backend has one thread
//! for that.

#![allow(unsafe_code)]

mod action;
mod answers;
mod context;
mod devx;
mod error;
mod events;
mod layout;
mod library;
mod match_parameter;
mod port;
mod steering;
mod uar;

pub use self::action::{Action, Counts, Reformat};
pub use self::answers::{Answer, Answers, Listener};
pub use self::context::Context;
pub use self::devx::{Object, Umem};
pub use self::error::{CallError, FirmwareAnswer, Unavailable};
pub use self::events::{Events, Happened};
pub use self::layout::LAYOUT;
pub use self::library::Library;
pub use self::match_parameter::MatchParameter;
pub use self::steering::{Domain, DomainKind, Matcher, Rule, Shape, Table};
pub use self::uar::Uar;
