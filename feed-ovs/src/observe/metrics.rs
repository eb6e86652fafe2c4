//! A report as Prometheus reads it, for the textfile collector of the node exporter.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{Encoder, IntGaugeVec, Opts, Registry, TextEncoder};

use super::report::{Count, Report};

impl Report {
    /// Returns it in the text format of Prometheus. All values are gauges: what the flows that exist now have counted.
    pub fn metrics(&self) -> Result<String, prometheus::Error> {
        let registry = Registry::new();
        let counts = |family: &Family, labels: &[&str], count: &Count| {
            let [flows, packets, bytes] = &family.0;
            flows.with_label_values(labels).set(gauge(count.flows));
            packets.with_label_values(labels).set(gauge(count.packets));
            bytes.with_label_values(labels).set(gauge(count.bytes));
        };
        let all = Family::new(&registry, "", "of the datapath", &[])?;
        counts(&all, &[], &self.all);
        let offloaded = Family::new(&registry, "offloaded_", "that OVS says are offloaded", &[])?;
        counts(&offloaded, &[], &self.offloaded);
        let recirculating = Family::new(&registry, "recirculating_", "in later chains, or leading there", &[])?;
        counts(&recirculating, &[], &self.recirculating);
        let taken = Family::new(&registry, "taken_", "that the backend would take", &["backend"])?;
        let which = "that the backend would take only if the kernel shares recirculation ids with tc";
        let sharing = Family::new(&registry, "needs_recirc_sharing_", which, &["backend"])?;
        let refused =
            Family::new(&registry, "refused_", "that the backend would refuse", &["backend", "reason", "about"])?;
        for backend in &self.backends {
            counts(&taken, &[backend.name], &backend.taken);
            counts(&sharing, &[backend.name], &backend.needs_recirc_sharing);
            let mut sums = BTreeMap::<(&str, &str), Count>::new();
            for refusal in &backend.refusals {
                *sums.entry((refusal.label, &refusal.about)).or_default() += refusal.count;
            }
            for ((label, about), count) in sums {
                counts(&refused, &[backend.name, label, about], &count);
            }
        }
        let single = |name: &str, help: &str, value: i64| {
            let gauge = IntGaugeVec::new(Opts::new(name, help), &[])?;
            gauge.with_label_values::<&str>(&[]).set(value);
            registry.register(Box::new(gauge))
        };
        single(
            "sluice_ovs_not_understood_flows",
            "Flows that are not counted, because they are not understood.",
            gauge(self.unread.flows),
        )?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        single("sluice_ovs_observed_timestamp_seconds", "When the flows were read.", gauge(now.as_secs()))?;
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Flows, packets and bytes.
struct Family([IntGaugeVec; 3]);

impl Family {
    fn new(registry: &Registry, word: &str, which: &str, labels: &[&str]) -> Result<Self, prometheus::Error> {
        let make = |unit: &str, help: String| {
            let gauge = IntGaugeVec::new(Opts::new(format!("sluice_ovs_{word}{unit}"), help), labels)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let flows = make("flows", format!("Flows of Open vSwitch {which}."))?;
        let packets = make("flow_packets", format!("Packets of the flows of Open vSwitch {which}."))?;
        let bytes = make("flow_bytes", format!("Bytes of the flows of Open vSwitch {which}."))?;
        Ok(Self([flows, packets, bytes]))
    }
}

fn gauge(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
