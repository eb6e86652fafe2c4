//! The backends that are built in: the one place that names them.

use std::sync::Arc;

use sluice_flow::backend::OpenConfig;
use sluice_flow::{Backend, Refusal};

type Open = fn(&OpenConfig) -> Result<Arc<dyn Backend>, Refusal>;

/// Names, as in `backend` of the configuration, and how each is opened.
const BACKENDS: &[(&str, Open)] = &[("soft", sluice_offload_soft::open)];

/// Opens the backend called `name`.
pub fn open(name: &str, config: &OpenConfig) -> Result<Arc<dyn Backend>, Refusal> {
    match BACKENDS.iter().find(|(known, _)| *known == name) {
        Some((_, open)) => open(config),
        None => Err(Refusal::Device { reason: unknown(name).into() }),
    }
}

/// Whether there is a backend called `name`; if not, says which there are.
pub fn check(name: &str) -> Result<(), String> {
    if BACKENDS.iter().any(|(known, _)| *known == name) { Ok(()) } else { Err(unknown(name)) }
}

fn unknown(name: &str) -> String {
    let known: Vec<_> = BACKENDS.iter().map(|(name, _)| *name).collect();
    format!("no backend {name} in this build, only {}", known.join(", "))
}
