//! Flows without ceremony.

use sluice_flow::action::{Action, FieldSet, VlanTag};
use sluice_flow::chain::ChainId;
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_tests::scenario::Scenario;

/// A match that grows.
#[derive(Clone, Copy)]
pub(crate) struct Matching(Match);

/// What comes in at a port without a tag.
pub(crate) fn at(port: u32) -> Matching {
    anywhere(port).is(Field::VlanPresent, 0u8).is(Field::CvlanPresent, 0u8)
}

/// What comes in at a port, with tags or without.
pub(crate) fn anywhere(port: u32) -> Matching {
    Matching(Match::default()).is(Field::RecircId, 0u8).is(Field::InPort, port)
}

/// What comes to a chain without a tag, from whichever port.
pub(crate) fn behind(chain: u32) -> Matching {
    let untagged = Matching(Match::default()).is(Field::VlanPresent, 0u8).is(Field::CvlanPresent, 0u8);
    untagged.is(Field::RecircId, chain)
}

/// A scenario whose packets of an Ethernet type leave from a chain with their state in a tag.
pub(crate) fn tells_state(scenario: Scenario, chain: u32, eth_type: u16) -> Scenario {
    const TRACKED: u16 = 0x20;
    // New, established, related, both of them, and neither; invalid.
    let relations = [0x01, 0x02, 0x04, 0x05, 0x06, 0x10];
    // Reply; source translated; destination translated.
    let others = [0, 0x40, 0x80, 0xc0].into_iter().flat_map(|translated| [translated, translated | 0x08]);
    let states = others.flat_map(|other| relations.map(|relation| TRACKED | relation | other));
    states.fold(scenario, |scenario, state| {
        let matching = behind(chain).eth_type(eth_type).is(Field::CtState, state);
        let tag = Action::PushVlan(VlanTag { tpid: 0x8100, vid: state, pcp: 0, cfi: true });
        scenario.flow(matching.done(), [tag, output(5)])
    })
}

impl Matching {
    pub(crate) fn is(self, field: Field, value: impl Into<u128>) -> Self {
        self.masked(field, value, field.full_mask())
    }

    pub(crate) fn masked(mut self, field: Field, value: impl Into<u128>, mask: impl Into<u128>) -> Self {
        self.0.set(field, value.into(), mask.into());
        match field.spec().attribute {
            Attribute::Mpls => self.0.set_exact(Field::MplsPresent, 1),
            Attribute::Pppoe => self.0.set_exact(Field::PppoePresent, 1),
            _ => {}
        }
        self
    }

    pub(crate) fn all(self, fields: &[(Field, u128)]) -> Self {
        fields.iter().fold(self, |matching, (field, value)| matching.is(*field, *value))
    }

    pub(crate) fn chain(self, chain: u32) -> Self {
        self.is(Field::RecircId, chain)
    }

    /// With one tag of any number and priority.
    pub(crate) fn tag(self, tpid: u16) -> Self {
        self.all(&[(Field::VlanPresent, 1), (Field::VlanTpid, tpid.into()), (Field::VlanCfi, 1)])
    }

    /// With a second tag.
    pub(crate) fn inner_tag(self, tpid: u16) -> Self {
        self.all(&[(Field::CvlanPresent, 1), (Field::CvlanTpid, tpid.into()), (Field::CvlanCfi, 1)])
    }

    pub(crate) fn eth_type(self, eth_type: u16) -> Self {
        self.is(Field::EthType, eth_type)
    }

    pub(crate) fn ipv4(self, protocol: u8) -> Self {
        self.eth_type(0x0800).is(Field::Ipv4Proto, protocol)
    }

    pub(crate) fn ipv6(self, protocol: u8) -> Self {
        self.eth_type(0x86dd).is(Field::Ipv6Proto, protocol)
    }

    pub(crate) fn done(self) -> Match {
        self.0
    }
}

pub(crate) fn output(port: u32) -> Action {
    Action::Output(PortNumber(port))
}

pub(crate) fn recirc(chain: u32) -> Action {
    Action::Recirc(ChainId(chain))
}

pub(crate) fn set(fields: &[(Field, u128, u128)]) -> Action {
    Action::Set(field_set(fields))
}

pub(crate) fn set_tunnel(fields: &[(Field, u128)]) -> Action {
    let fields: Vec<_> = fields.iter().map(|(field, value)| (*field, *value, field.full_mask())).collect();
    Action::SetTunnel(field_set(&fields))
}

fn field_set(fields: &[(Field, u128, u128)]) -> FieldSet {
    let mut fields: Vec<_> = fields.iter().map(|(field, value, mask)| (*field, value & mask, *mask)).collect();
    fields.sort_by_key(|(field, _, _)| *field);
    FieldSet { attribute: fields[0].0.spec().attribute, fields: fields.into() }
}
