//! How a NIC in software is configured.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use sluice_flow::backend::{BackendKind, MissPolicy};

/// The largest limit: as many flows as an agent can tell apart.
const MOST: usize = 1 << 31;

/// The NIC in software.
pub const KIND: BackendKind = BackendKind {
    name: "soft",
    device: "soft0",
    canonical: str::to_owned,
    chain_miss: MissPolicy::Drop,
    is_in_network_namespace: false,
    mirrors_to_ports_only: false,
    former_keys: &["hardware_rules"],
    // It is a part of the process.
    needs: &[],
};

/// The table `[soft]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, expecting = "expected a table")]
pub struct Config {
    /// At most this many rules are kept in what counts as hardware. Further rules are in software, which forwards and counts them all
    /// the same. Default: no limit.
    #[serde(deserialize_with = "number_of_rules")]
    pub hardware_rules: Option<usize>,
}

fn number_of_rules<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let number = i64::deserialize(from)?;
    match usize::try_from(number) {
        Ok(rules) if (1..=MOST).contains(&rules) => Ok(Some(rules)),
        _ => Err(D::Error::custom(format!("expected a number from 1 to {MOST}, not {number}"))),
    }
}
