//! Changes of a packet that are deferred until it is sent on, since it may miss before, and must be there as it came in.
//!
//! Flows of a later chain match what the packet would be after the changes, as OVS extracts its key anew, while the device sees it as
//! before. So each list of changes has tables of its own, whose rules look for what the packet was ([`Changes::before`]).

use sluice_flow::action::FieldSet;
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::refusal::Refusal;

use super::actions::Tag;
use super::guarantees::Guarantees;
use super::modify::Modifications;

/// What is done to a packet before it is sent on, in the order in which the device does it: tags are taken off, fields are rewritten,
/// tags are put on. A rewrite and a change of tags do not touch the same bytes, so that their order in a flow does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changes {
    /// Tags that are taken off.
    pub(super) pops: usize,
    /// Modify actions of the PRM.
    pub(super) modifications: Modifications,
    /// Tags that are put on, the innermost first.
    pub(super) pushes: Vec<Tag>,
    /// Bits of fields that have a certain value afterwards.
    set: Vec<(Field, u128, u128)>,
    /// How often one was taken from the time to live, if that is not certain.
    decrements: u8,
    /// Some bits of the time to live were set, and one was taken from it.
    is_ttl_mixed: bool,
    /// What all packets have that are rewritten so.
    eth_type: Option<u16>,
    protocol: Option<u8>,
}

/// As many tags as the device looks at.
const TAGS_SEEN: usize = 2;
/// What a match says of a tag, the outermost first: whether it is there, TPID, CFI, PCP and VID.
const TAGS: [[Field; 5]; TAGS_SEEN] = [
    [Field::VlanPresent, Field::VlanTpid, Field::VlanCfi, Field::VlanPcp, Field::VlanVid],
    [Field::CvlanPresent, Field::CvlanTpid, Field::CvlanCfi, Field::CvlanPcp, Field::CvlanVid],
];

/// By which a connection is known.
const ADDRESSES_AND_PORTS: [Field; 8] = [
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::TcpSrc,
    Field::TcpDst,
    Field::UdpSrc,
    Field::UdpDst,
];

impl Changes {
    /// Returns whether nothing is changed.
    pub(super) fn is_empty(&self) -> bool {
        self.pops == 0 && self.pushes.is_empty() && self.modifications.is_empty()
    }

    /// Returns whether addresses or ports are rewritten, by which a connection is known.
    pub(super) fn readdress(&self) -> bool {
        self.set.iter().any(|(field, ..)| ADDRESSES_AND_PORTS.contains(field))
    }

    /// Rewrites fields of a packet of which `guarantees` are known.
    pub(super) fn set(&mut self, set: &FieldSet, guarantees: &Guarantees) -> Result<(), Refusal> {
        self.modifications.set(set, guarantees)?;
        self.note(guarantees);
        for (field, value, mask) in &set.fields {
            if is_ttl(*field) {
                let is_whole = *mask == field.full_mask();
                self.is_ttl_mixed = !is_whole && (self.is_ttl_mixed || self.decrements > 0);
                self.decrements = if is_whole { 0 } else { self.decrements };
            }
            match self.set.iter_mut().find(|(other, ..)| other == field) {
                Some((_, known, bits)) => (*known, *bits) = (*known & !mask | value & mask, *bits | mask),
                None => self.set.push((*field, value & mask, *mask)),
            }
        }
        Ok(())
    }

    /// Takes one from the time to live, which is 2 or more.
    pub(super) fn decrement_ttl(&mut self, guarantees: &Guarantees) -> Result<(), Refusal> {
        self.modifications.decrement_ttl(guarantees)?;
        self.note(guarantees);
        match self.set.iter_mut().find(|(field, ..)| is_ttl(*field)) {
            Some((field, value, mask)) if *mask == field.full_mask() => *value = value.saturating_sub(1),
            Some(_) => self.is_ttl_mixed = true,
            None => self.decrements = self.decrements.saturating_add(1),
        }
        Ok(())
    }

    /// Takes a tag off, which is there.
    pub(super) fn pop_vlan(&mut self) {
        if self.pushes.pop().is_none() {
            self.pops += 1;
        }
    }

    /// Returns whether packets have a tag before them for certain.
    pub(super) fn take_tags_off(&self) -> bool {
        self.pops > 0
    }

    /// Returns what packets match before these changes that match `full` after them; `None` if there are none. Fails if the device
    /// cannot be asked that.
    pub(super) fn before(&self, full: &Match) -> Result<Option<Match>, Refusal> {
        let mut before = *full;
        let is_other =
            |field: Field, known: Option<u128>| known.is_some_and(|known| differs(full, field, known, u128::MAX));
        let protocol = self.protocol.map(u128::from);
        let is_of_other_kind = is_other(Field::EthType, self.eth_type.map(u128::from))
            || [Field::Ipv4Proto, Field::Ipv6Proto].into_iter().any(|field| is_other(field, protocol));
        if is_of_other_kind {
            return Ok(None);
        }
        for (field, value, mask) in &self.set {
            if differs(full, *field, *value, *mask) {
                return Ok(None);
            }
            leave_out(&mut before, *field, *mask);
        }
        let is_there = self.ttl_before(full, &mut before)? && self.tags_before(full, &mut before)?;
        Ok(is_there.then_some(before))
    }

    /// What is certain of packets that were rewritten.
    fn note(&mut self, guarantees: &Guarantees) {
        self.eth_type = self.eth_type.or(guarantees.eth_type);
        self.protocol = self.protocol.or(guarantees.protocol.filter(|_| guarantees.is_whole));
    }

    fn ttl_before(&self, full: &Match, before: &mut Match) -> Result<bool, Refusal> {
        let looked_at = [Field::Ipv4Ttl, Field::Ipv6Hlimit].into_iter().find(|field| full.mask.get(*field) != 0);
        let Some(field) = looked_at else { return Ok(true) };
        if self.is_ttl_mixed {
            return Err(refuse(field, "some bits of it were set before, and one was taken from it"));
        }
        if self.decrements == 0 {
            return Ok(true);
        }
        if full.mask.get(field) != field.full_mask() {
            return Err(refuse(field, "one was taken from it before, and not all of its bits are matched"));
        }
        let value = full.key.get(field) + u128::from(self.decrements);
        before.set_exact(field, value);
        Ok(value <= field.full_mask())
    }

    /// Looks for tags where they are before some are taken off and others are put on.
    fn tags_before(&self, full: &Match, before: &mut Match) -> Result<bool, Refusal> {
        if self.pops == 0 && self.pushes.is_empty() {
            return Ok(true);
        }
        let full = &with_tags_for_their_number(full);
        let has_eth_type = full.mask.get(Field::EthType) != 0;
        TAGS.iter().flatten().chain([&Field::NumOfVlans]).for_each(|field| leave_out(before, *field, u128::MAX));
        for (place, fields) in TAGS.iter().enumerate() {
            if let Some(tag) = self.pushes.iter().rev().nth(place) {
                let known = [1, tag.tpid, 1, tag.tci >> 13, tag.tci & 0xfff];
                if fields.iter().zip(known).any(|(field, known)| differs(full, *field, known.into(), u128::MAX)) {
                    return Ok(false);
                }
                continue;
            }
            // Behind the last tag is none; and behind two tags is none if the Ethernet type is there.
            let is_none =
                place > 0 && full.is_exactly(Field::VlanPresent, 0) || full.is_exactly(fields[0], 0) && has_eth_type;
            let is_looked_at = has_eth_type || fields.iter().any(|field| full.mask.get(*field) != 0);
            match TAGS.get(self.pops + place - self.pushes.len()) {
                Some(old) => old.iter().zip(fields).for_each(|(old, field)| {
                    before.set(*old, full.key.get(*field), full.mask.get(*field));
                }),
                None if is_looked_at && !is_none => {
                    return Err(refuse(fields[0], "it is behind two tags before others are gone"));
                }
                None => {}
            }
        }
        // A third tag would be in the place of the Ethernet type. Where more are put on than taken off, the device still takes that one
        // for the first or the second.
        let [.., last] = TAGS;
        if has_eth_type
            && !full.is_exactly(last[0], 0)
            && let Some([third, ..]) = TAGS.get(self.pops + TAGS_SEEN - self.pushes.len())
        {
            before.set_exact(*third, 0);
        }
        Ok(true)
    }
}

/// Says of a number of tags, where translation takes it, which of them are not there: so it is the same wherever others are put on.
fn with_tags_for_their_number(full: &Match) -> Match {
    let mut said = *full;
    let [outer, inner] = [Field::VlanPresent, Field::CvlanPresent];
    let is_open = |field| full.mask.get(field) == 0;
    if full.is_exactly(Field::NumOfVlans, 0) && is_open(outer) {
        said.set_exact(outer, 0);
    } else if full.is_exactly(Field::NumOfVlans, 1) && full.is_exactly(outer, 1) && is_open(inner) {
        said.set_exact(inner, 0);
    }
    said
}

/// Whether no packet matches that has these bits in a field.
fn differs(full: &Match, field: Field, value: u128, mask: u128) -> bool {
    (full.key.get(field) ^ value) & full.mask.get(field) & mask != 0
}

fn leave_out(full: &mut Match, field: Field, mask: u128) {
    full.set(field, full.key.get(field), full.mask.get(field) & !mask);
}

fn is_ttl(field: Field) -> bool {
    matches!(field, Field::Ipv4Ttl | Field::Ipv6Hlimit)
}

fn refuse(field: Field, reason: &'static str) -> Refusal {
    Refusal::Field { field, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::super::matching;
    use super::super::vports::Vports;
    use super::*;
    use sluice_flow::key::{Key, MaskedKey};
    use sluice_flow::port::PortNumber;
    use sluice_flow::text::parse_key;

    struct One;

    impl Vports for One {
        fn vport(&self, _: PortNumber) -> Result<u16, Refusal> {
            Ok(1)
        }
    }

    /// A tag of 0x8100 with this number.
    fn tag(vid: u16) -> Tag {
        Tag { tpid: 0x8100, tci: vid }
    }

    /// What OVS and the device see of an IPv4 packet with tags, the outermost first: two of them, and what is behind.
    fn seen(tags: &[u16]) -> Key {
        let mut key = Key::ZERO;
        for (fields, vid) in TAGS.iter().zip(tags) {
            let values = [1, 0x8100, 1, 0, *vid];
            fields.iter().zip(values).for_each(|(field, value)| key.set(*field, value.into()));
        }
        key.set(Field::EthType, if tags.len() > TAGS_SEEN { 0x8100 } else { 0x0800 });
        key
    }

    /// All lists of up to five tags, of two numbers.
    fn lists() -> Vec<Vec<u16>> {
        let longer = |lists: &Vec<Vec<u16>>| {
            lists.iter().flat_map(|list| [5, 6].map(|vid| [&list[..], &[vid]].concat())).collect()
        };
        std::iter::successors(Some(vec![vec![]]), |lists| Some(longer(lists))).take(6).flatten().collect()
    }

    /// Matches on tags that flows can have.
    fn matches() -> Vec<Match> {
        let (two, open) = (
            "eth_type(0x8100),vlan(vid=5),encap(eth_type(0x8100),vlan(vid=6),encap(",
            "eth_type(0x8100),vlan(vid=5),encap(",
        );
        let texts = [
            "eth()".to_owned(),
            "eth(),eth_type(0x0800)".to_owned(),
            "eth(),num_of_vlans(0)".to_owned(),
            "eth(),num_of_vlans(0),eth_type(0x0800)".to_owned(),
            format!("{open})"),
            format!("{open}eth_type(0x0800))"),
            format!("num_of_vlans(1),{open})"),
            format!("num_of_vlans(1/0x1),{open}eth_type(0x0800))"),
            format!("{two}))"),
            format!("{two}eth_type(0x0800)))"),
            format!("num_of_vlans(2),{two}eth_type(0x0800)))"),
        ];
        let mut matches: Vec<_> = texts.iter().map(|text| parse_key(text, &()).unwrap().matching).collect();
        // As a controller may say it: whatever tags there are.
        let mut of_any = Match::default();
        of_any.set_exact(Field::EthType, 0x0800);
        matches.push(of_any);
        matches
    }

    #[test]
    fn a_packet_matches_before_tags_are_changed_what_it_matches_after_or_nobody_can_tell() {
        let (lists, mut refused) = (lists(), 0);
        let pushed = || lists.iter().filter(|list| list.len() <= TAGS_SEEN);
        let pairs = (0..=TAGS_SEEN).flat_map(|pops| pushed().map(move |pushed| (pops, pushed)));
        let changes: Vec<_> = pairs.filter(|(pops, pushed)| *pops > 0 || !pushed.is_empty()).collect();
        for full in matches() {
            matching::translate(&full, false, false, &One).unwrap();
            let has_eth_type = full.mask.get(Field::EthType) != 0;
            for (pops, pushed) in changes.clone() {
                let pushes = pushed.iter().rev().map(|vid| tag(*vid)).collect();
                let changes = Changes { pops, pushes, ..Changes::default() };
                let what = format!("{full:?} after {pops} were taken off, and {pushed:?} put on");
                let packets = lists.iter().filter(|tags| tags.len() >= pops);
                let wanted = |tags: &[u16]| {
                    let after = [&pushed[..], &tags[pops..]].concat();
                    let mut key = seen(&after);
                    key.set(Field::NumOfVlans, u128::try_from(after.len()).unwrap());
                    MaskedKey::new(&full).matches(&key)
                };
                match changes.before(&full) {
                    Ok(before) => {
                        if let Some(before) = &before {
                            matching::translate(before, false, pops > 0, &One).unwrap();
                        }
                        for tags in packets {
                            let found = before.is_some_and(|before| MaskedKey::new(&before).matches(&seen(tags)));
                            assert_eq!(found, wanted(tags), "{tags:?} of {what}");
                        }
                    }
                    Err(_) => {
                        refused += 1;
                        // Of two packets that it cannot tell from each other, one matches.
                        let told = |tags: &[u16]| {
                            let mut key = seen(tags);
                            key.set(Field::EthType, if has_eth_type { key.get(Field::EthType) } else { 0 });
                            key
                        };
                        let (yes, no): (Vec<_>, Vec<_>) = packets.partition(|tags| wanted(tags));
                        assert!(yes.iter().any(|one| no.iter().any(|other| told(one) == told(other))), "{what}");
                    }
                }
            }
        }
        assert!(refused > 0);
    }
}
