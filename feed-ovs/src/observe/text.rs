//! A report as text.

use std::fmt;

use super::report::{BackendReport, Count, RefusalReport, Report};

/// The report for a reader.
impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for datapath in &self.datapaths {
            writeln!(out, "{}: {} flows", datapath.name, datapath.flows)?;
        }
        let Count { flows, packets, bytes } = self.all;
        writeln!(out, "{flows} flows with {packets} packets and {bytes} bytes")?;
        if self.offloaded.flows > 0 {
            writeln!(out, "  offloaded by OVS now: {}", share(&self.offloaded, &self.all))?;
        }
        if self.recirculating.flows > 0 {
            writeln!(out, "  recirculating: {}", share(&self.recirculating, &self.all))?;
        }
        if self.unread.flows > 0 {
            writeln!(out, "  not understood and not counted: {}", self.unread.flows)?;
            for (what, said) in [("first", &self.unread.example), ("reason", &self.unread.reason)] {
                said.as_ref().map_or(Ok(()), |said| writeln!(out, "    {what}: {said}"))?;
            }
        }
        for backend in &self.backends {
            writeln!(out)?;
            write_backend(out, backend, &self.all)?;
        }
        if !self.notes.is_empty() {
            writeln!(out)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "Note: {note}"))
    }
}

fn write_backend(out: &mut fmt::Formatter<'_>, backend: &BackendReport, all: &Count) -> fmt::Result {
    let BackendReport { name, taken, needs_recirc_sharing, refused, refusals } = backend;
    writeln!(out, "{name}: {} would be offloaded", share(taken, all))?;
    if needs_recirc_sharing.flows > 0 {
        let share = share(needs_recirc_sharing, all);
        writeln!(out, "  {share} only if the kernel shares recirculation ids with tc (CONFIG_NET_TC_SKB_EXT)")?;
    }
    if refused.flows > 0 {
        writeln!(out, "  {} would not, the reason with the most packets first:", share(refused, all))?;
    }
    for refusal in refusals {
        let RefusalReport { count, reason, example, cure, .. } = refusal;
        writeln!(out, "  {}: {reason}", share(count, all))?;
        writeln!(out, "    example: {example}")?;
        writeln!(out, "    what would change it: {cure}")?;
    }
    Ok(())
}

/// Such as `22 flows (78.6 %) with 99.1 % of the packets`.
fn share(part: &Count, all: &Count) -> String {
    let noun = if part.flows == 1 { "flow" } else { "flows" };
    let flows = percent(part.flows, all.flows).map_or(String::new(), |share| format!(" ({share})"));
    let packets =
        percent(part.packets, all.packets).map_or(String::new(), |share| format!(" with {share} of the packets"));
    format!("{} {noun}{flows}{packets}", part.flows)
}

/// Tenths of a percent, rounded down except that what is not nothing is not shown as nothing; `None` of nothing.
fn percent(part: u64, all: u64) -> Option<String> {
    let tenths = (u128::from(part) * 1000).checked_div(all.into())?;
    Some(match tenths {
        0 if part > 0 => "less than 0.1 %".to_owned(),
        tenths => format!("{}.{} %", tenths / 10, tenths % 10),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_up_to_all_or_down_to_nothing() {
        let percent = |part, all| percent(part, all).unwrap_or_default();
        assert_eq!(percent(22, 28), "78.5 %");
        assert_eq!(percent(9_999, 10_000), "99.9 %");
        assert_eq!(percent(1, 10_000), "less than 0.1 %");
        assert_eq!([percent(0, 5), percent(5, 5), percent(0, 0)], ["0.0 %", "100.0 %", ""]);
        assert_eq!(percent(u64::MAX, u64::MAX), "100.0 %");
    }
}
