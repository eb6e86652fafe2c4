//! What was found.

use std::ops::AddAssign;

use serde_json::{Value, json};
use sluice_flow::text::Statistics;

/// Flows, with what their counters say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Their packets. One that recirculates is counted by each flow that it hits.
    pub packets: u64,
    /// How many there are.
    pub flows: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    /// One flow.
    pub fn one(statistics: &Statistics) -> Self {
        Self { packets: statistics.packets, flows: 1, bytes: statistics.bytes }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.flows = self.flows.saturating_add(other.flows);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What an [`Observer`](super::Observer) has found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Where the flows are from.
    pub datapaths: Vec<DatapathReport>,
    /// All flows.
    pub all: Count,
    /// Those that hardware or tc has already, as OVS says (`offloaded:yes` or `dp:tc`).
    pub offloaded: Count,
    /// Those of a chain behind the first, and those that lead to one.
    pub recirculating: Count,
    /// What is no flow that Sluice reads.
    pub unread: Unread,
    /// What each backend would take.
    pub backends: Vec<BackendReport>,
    /// What a reader should know besides, a sentence each.
    pub notes: Vec<String>,
}

/// Where flows are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatapathReport {
    /// The name of the datapath or of the file.
    pub name: String,
    /// How many flows it has.
    pub flows: u64,
}

/// Lines or messages that are no flow that Sluice reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// How many.
    pub flows: u64,
    /// The first of them.
    pub example: Option<String>,
    /// What is wrong with it.
    pub reason: Option<String>,
}

/// What a backend would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendReport {
    /// Its name.
    pub name: &'static str,
    /// What it would take.
    pub taken: Count,
    /// Flows of these that are of use only if the kernel shares recirculation ids with tc (`CONFIG_NET_TC_SKB_EXT`), so that a packet that
    /// misses in a later chain goes on in Open vSwitch from there: they change packets before they recirculate, or only such flows lead to
    /// them. Nothing for a backend whose misses do not go to the kernel.
    pub needs_recirc_sharing: Count,
    /// What it would refuse.
    pub refused: Count,
    /// Why, the reason with the most packets first.
    pub refusals: Vec<RefusalReport>,
}

/// Flows that a backend would refuse for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalReport {
    /// The kind of reason: one of [`Refusal::LABELS`](sluice_flow::Refusal::LABELS), or `chain`.
    pub label: &'static str,
    /// The field or action that it is about, or nothing.
    pub about: String,
    /// The reason, in words.
    pub reason: String,
    /// How many flows.
    pub count: Count,
    /// The flow with the most packets of them.
    pub example: String,
    /// What would change it.
    pub cure: String,
}

impl Report {
    /// Returns it with the keys of `docs/json.md`.
    pub fn json(&self) -> Value {
        let datapath = |datapath: &DatapathReport| json!({ "name": datapath.name, "flows": datapath.flows });
        let unread = &self.unread;
        json!({
            "datapaths": self.datapaths.iter().map(datapath).collect::<Value>(),
            "all": of_count(&self.all),
            "offloaded": of_count(&self.offloaded),
            "recirculating": of_count(&self.recirculating),
            "not_understood": { "flows": unread.flows, "example": unread.example, "reason": unread.reason },
            "backends": self.backends.iter().map(of_backend).collect::<Value>(),
            "notes": self.notes,
        })
    }
}

fn of_count(count: &Count) -> Value {
    json!({ "flows": count.flows, "packets": count.packets, "bytes": count.bytes })
}

fn of_backend(backend: &BackendReport) -> Value {
    let refusal = |refusal: &RefusalReport| {
        json!({
            "label": refusal.label,
            "about": refusal.about,
            "reason": refusal.reason,
            "flows": refusal.count.flows,
            "packets": refusal.count.packets,
            "bytes": refusal.count.bytes,
            "example": refusal.example,
            "cure": refusal.cure,
        })
    };
    json!({
        "name": backend.name,
        "taken": of_count(&backend.taken),
        "needs_recirc_sharing": of_count(&backend.needs_recirc_sharing),
        "refused": of_count(&backend.refused),
        "refusals": backend.refusals.iter().map(refusal).collect::<Value>(),
    })
}
