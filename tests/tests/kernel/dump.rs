//! What the module understood: `ovs-dpctl dump-flows`, read by our own parser, is the flow that was given.

use std::collections::HashMap;

use sluice_flow::Ufid;
use sluice_flow::action::{Action, ActionList, FieldSet};
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::text::{FlowLine, parse_line};
use sluice_tests::scenario::{Scenario, flow_text};

/// How the dump compares.
#[derive(Default)]
pub(crate) struct Understood {
    pub(crate) equal: usize,
    /// Flows of which our text or the dump's is not read, by what the parser says.
    pub(crate) unread: Vec<String>,
    /// What was given, and what the dump has.
    pub(crate) different: Vec<(String, String)>,
}

/// The flows that the kernel takes of some scenarios, each in a chain of its own so that none is in another's way.
pub(crate) fn flows(scenarios: &[&Scenario]) -> Vec<(Match, ActionList)> {
    let mut flows: Vec<_> = scenarios.iter().flat_map(|scenario| scenario.flows.clone()).collect();
    for (chain, (matching, _)) in (0x10_0000u32..).zip(&mut flows) {
        matching.set_exact(Field::RecircId, chain.into());
    }
    flows
}

/// Compares the dump of flows that are numbered from 1 in their UFIDs.
pub(crate) fn compare(flows: &[(Match, ActionList)], dump: &str) -> Understood {
    let lines: HashMap<_, _> = dump.lines().filter_map(|line| line.split_once(',')).collect();
    let mut understood = Understood::default();
    for (number, (matching, actions)) in (1..).zip(flows) {
        let Some(line) = lines.get(format!("ufid:{}", Ufid(number)).as_str()) else {
            continue;
        };
        let dumped =
            parse_line(line.trim_start(), &()).map(|dumped| FlowLine { matching: implied(dumped.matching), ..dumped });
        match (read_back(matching, actions), dumped) {
            (Ok(given), Ok(dumped))
                if (given.matching, &given.actions) == (dumped.matching, &unflagged(&dumped.actions)) =>
            {
                understood.equal += 1;
            }
            (Ok(_), Ok(_)) => understood.different.push((flow_text(matching, actions), (*line).to_owned())),
            (Err(error), _) => understood.unread.push(error),
            (_, Err(error)) => understood.unread.push(format!("{error}: {line}")),
        }
    }
    understood
}

/// The actions without the flags of an outer header where there are none: the tool prints them nevertheless.
pub(crate) fn unflagged(actions: &ActionList) -> ActionList {
    let without = |action: &Action| match action {
        Action::SetTunnel(set) => {
            let is_said = |(field, value, _): &&(Field, u128, u128)| *field != Field::TunnelFlags || *value != 0;
            Action::SetTunnel(FieldSet {
                attribute: set.attribute,
                fields: set.fields.iter().filter(is_said).copied().collect(),
            })
        }
        other => other.clone(),
    };
    actions.iter().map(without).collect()
}

/// The flow as its text says it: the text cannot say that there is no tag where no Ethernet type is matched.
fn read_back(matching: &Match, actions: &ActionList) -> Result<FlowLine, String> {
    let text = flow_text(matching, actions);
    let given = parse_line(&text, &()).map_err(|error| format!("{error}: {text}"))?;
    Ok(FlowLine { matching: implied(given.matching), ..given })
}

/// The match with what the module takes for said: a tag that is there has its CFI bit, a tunnel identifier is a key.
pub(crate) fn implied(mut matching: Match) -> Match {
    for (present, cfi) in [(Field::VlanPresent, Field::VlanCfi), (Field::CvlanPresent, Field::CvlanCfi)] {
        if matching.is_exactly(present, 1) {
            matching.set_exact(cfi, 1);
        }
    }
    // What is no Ethernet frame has no eth() in the dump, and no word of its own.
    matching.set(Field::PacketTypeNs, 0, 0);
    matching.set(Field::PacketTypeId, 0, 0);
    // The module knows eight bits of the operation.
    if matching.is_exactly(Field::EthType, 0x0806) || matching.is_exactly(Field::EthType, 0x8035) {
        let (operation, mask) = (matching.key.get(Field::ArpOp), matching.mask.get(Field::ArpOp));
        matching.set(Field::ArpOp, operation, mask & 0xff);
    }
    // The tool prints contexts without their masks.
    if matching.is_exactly(Field::EthType, 0x894f) {
        for context in [Field::NshContext1, Field::NshContext2, Field::NshContext3, Field::NshContext4] {
            matching.set(context, 0, 0);
        }
    }
    if matching.mask.get(Field::TunnelId) != 0 {
        const KEY: u128 = 4;
        let (flags, mask) = (matching.key.get(Field::TunnelFlags), matching.mask.get(Field::TunnelFlags));
        matching.set(Field::TunnelFlags, flags | KEY, mask | KEY);
    }
    matching
}
