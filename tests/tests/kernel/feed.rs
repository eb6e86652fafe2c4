//! What `sluice-feed-ovs` reads of the module by netlink is what `ovs-dpctl` prints of the same flows.

use std::collections::HashMap;

use sluice_feed_ovs::Kernel;
use sluice_feed_ovs::wire::{FlowMessage, now};
use sluice_flow::Ufid;
use sluice_flow::field::{Attribute, FIELDS, Field};
use sluice_flow::key::Match;
use sluice_flow::text::parse_line;

use crate::dump::{implied, unflagged};
use crate::report::Report;

/// Compares with a dump of the flows that are in the datapath now.
pub(crate) fn compare(dump: &str, report: &mut Report) {
    let mut kernel = Kernel::open().expect("the module");
    let datapaths = kernel.datapaths().expect("its datapaths");
    let lab = datapaths.iter().find(|datapath| datapath.name == "lab").expect("the lab's");
    let vports = kernel.vports(lab.index).expect("its ports");
    assert!(vports.iter().any(|vport| (vport.number, vport.name.as_str()) == (1, "lab1")), "{vports:?}");
    let mut flows = HashMap::new();
    kernel
        .flows(lab.index, &mut |payload| match FlowMessage::read(payload, now()) {
            Ok(flow) => {
                flows.insert(flow.ufid, flow);
            }
            Err(error) => report.fail(format!("netlink: {error}")),
        })
        .expect("its flows");
    let lines: Vec<_> = dump.lines().filter(|line| line.starts_with("ufid:")).collect();
    if lines.len() != flows.len() || lines.is_empty() {
        report.fail(format!("ovs-dpctl shows {} flows, netlink {}", lines.len(), flows.len()));
    }
    let (mut equal, mut unread) = (0, 0);
    for line in lines {
        let Ok(printed) = parse_line(line, &()) else {
            // What our parser cannot read is counted with the dump.
            unread += 1;
            continue;
        };
        let ufid: Option<Ufid> = printed.ufid;
        let Some(flow) = flows.get(&ufid) else {
            report.fail(format!("netlink does not show {line}"));
            continue;
        };
        let (matching, actions) = (flow.matching.unwrap_or_default(), flow.actions.clone().unwrap_or_default());
        let (read, said) = (sayable(implied(matching), &printed.matching), implied(printed.matching));
        if read == said && unflagged(&actions) == unflagged(&printed.actions) {
            equal += 1;
        } else {
            let differing = FIELDS.iter().map(|spec| spec.field).filter(|field| {
                (read.key.get(*field), read.mask.get(*field)) != (said.key.get(*field), said.mask.get(*field))
            });
            let differing: Vec<_> = differing.map(|field| field.to_string()).collect();
            report.fail(format!("netlink differs in {differing:?}:\n  {line}\n  actions read: {actions:?}"));
        }
    }
    println!(
        "{equal} flows are read by netlink as ovs-dpctl prints them; {unread} are not printed so that they are read"
    );
}

/// The match without what the tool does not print: that there is no tag where no type is matched, and zeros of an outer header.
fn sayable(mut read: Match, printed: &Match) -> Match {
    for present in [Field::VlanPresent, Field::CvlanPresent] {
        if read.is_exactly(present, 0) && printed.mask.get(present) == 0 {
            read.set(present, 0, 0);
        }
    }
    for spec in Attribute::Tunnel.fields().filter(|spec| spec.field != Field::TunnelFlags) {
        if read.key.get(spec.field) == 0 && printed.mask.get(spec.field) == 0 {
            read.set(spec.field, 0, 0);
        }
    }
    read
}
