//! What was found possible a short while ago: most of a great many flows ask for one of a few things.
//!
//! Whether a flow can be taken depends on its mask, its actions, the ports, meters and timeout policies that there are,
//! and on the values of a few fields that say which headers a packet has. A check is shown no other values, so that it
//! cannot depend on them; and what is remembered holds for those values, for the ports of that moment, and for actions
//! that name nothing which is counted. Whether the port of `in_port` is there is asked anew each time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use sluice_flow::field::{Field, KEY_WORDS, MPLS_PRESENT};
use sluice_flow::flow::Flow;
use sluice_flow::key::{Key, Mask, Match};

use crate::packet::ip_proto;
use crate::ports::PortTable;
use crate::programs::{ProgramId, Programs};

/// Approvals that are kept; at more, all are forgotten.
const MANY: usize = 4096;

/// The approvals of one worker.
#[derive(Default)]
pub(crate) struct Approvals {
    /// For these ports.
    ports: Option<Arc<PortTable>>,
    programs: HashMap<Question, Approval, foldhash::fast::RandomState>,
}

/// What an approval depends on, ports aside.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    /// Where the mask and the actions are, which flows share.
    mask: usize,
    actions: usize,
    values: [u64; WORDS.len()],
}

struct Approval {
    /// Keeps its place from being given to another mask, but not the mask itself.
    _mask: Weak<Mask>,
    program: ProgramId,
}

impl Question {
    /// What `flow`, whose key in full is `key`, asks.
    pub(crate) fn of(flow: &Flow, key: &Key) -> Self {
        let decisive = decisive(flow.matching().get(Field::Ipv6Proto));
        Self {
            mask: Arc::as_ptr(flow.matching().mask()).addr(),
            actions: flow.actions.as_ptr().addr(),
            values: WORDS.map(|word| key.words[word] & decisive[word]),
        }
    }
}

impl Approvals {
    /// Holds the program of a flow for one more rule, if an equal question was approved for these ports and some rule still has the program.
    pub(crate) fn hold(
        &self,
        question: &Question,
        flow: &Flow,
        ports: &Arc<PortTable>,
        programs: &Programs,
    ) -> Option<ProgramId> {
        if !self.ports.as_ref().is_some_and(|known| Arc::ptr_eq(known, ports)) {
            return None;
        }
        let id = self.programs.get(question)?.program;
        programs.hold(id, flow).then_some(id)
    }

    /// Remembers that `flow` was found possible with these ports, and that its program can be shared.
    pub(crate) fn put(&mut self, question: Question, flow: &Flow, ports: &Arc<PortTable>, program: ProgramId) {
        let is_of_these_ports = self.ports.as_ref().is_some_and(|known| Arc::ptr_eq(known, ports));
        if !is_of_these_ports || self.programs.len() >= MANY {
            self.programs.clear();
            self.ports = Some(Arc::clone(ports));
        }
        let mask = Arc::downgrade(flow.matching().mask());
        self.programs.insert(question, Approval { _mask: mask, program });
    }
}

/// The match as a check is shown it: all of the mask, and the decisive values.
pub(super) fn shown(full: &Match) -> Match {
    let mut shown = *full;
    let protocol = (full.key.get(Field::Ipv6Proto), full.mask.get(Field::Ipv6Proto));
    for (value, bits) in shown.key.words.iter_mut().zip(decisive(protocol)) {
        *value &= bits;
    }
    shown
}

/// The bits of a key on whose values a check may depend, by value and mask of the IP protocol.
fn decisive(protocol: (u128, u128)) -> &'static [u64; KEY_WORDS] {
    let icmpv6 = (ip_proto::ICMPV6.into(), Field::Ipv6Proto.full_mask());
    if protocol == icmpv6 { &OF_ICMPV6 } else { &OF_ANY }
}

const OF_ANY: [u64; KEY_WORDS] = bits(&[HEADERS, &MPLS_PRESENT]);
/// In other packets the ports of TCP and UDP lie in the places of these two.
const OF_ICMPV6: [u64; KEY_WORDS] = bits(&[HEADERS, &MPLS_PRESENT, &[Field::Icmpv6Type, Field::Icmpv6Code]]);

/// Which headers there are, and which chain the flow is in.
const HEADERS: &[Field] = &[
    Field::RecircId,
    Field::PacketTypeNs,
    Field::EthType,
    Field::VlanPresent,
    Field::VlanCfi,
    Field::CvlanPresent,
    Field::CvlanCfi,
    Field::NshNextProto,
    Field::Ipv4Proto,
    Field::Ipv4Frag,
    Field::Ipv6Proto,
    Field::Ipv6Frag,
];

/// The words of a key in which decisive bits are.
const WORDS: [usize; count(&OF_ICMPV6)] = {
    let mut words = [0; count(&OF_ICMPV6)];
    let (mut word, mut place) = (0, 0);
    while word < KEY_WORDS {
        if OF_ICMPV6[word] != 0 {
            words[place] = word;
            place += 1;
        }
        word += 1;
    }
    words
};

const fn count(bits: &[u64; KEY_WORDS]) -> usize {
    let (mut word, mut count) = (0, 0);
    while word < KEY_WORDS {
        if bits[word] != 0 {
            count += 1;
        }
        word += 1;
    }
    count
}

const fn bits(lists: &[&[Field]]) -> [u64; KEY_WORDS] {
    let mut key = Key::ZERO;
    let mut list = 0;
    while list < lists.len() {
        let mut index = 0;
        while index < lists[list].len() {
            let field = lists[list][index];
            key.set(field, field.full_mask());
            index += 1;
        }
        list += 1;
    }
    key.words
}
