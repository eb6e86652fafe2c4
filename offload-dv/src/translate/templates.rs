//! Rules that differ from earlier ones in values only, as most flows of an agent do.
//!
//! What a rule looks at, and what it does, follow from the flow's mask, actions and priority, and from the values that decide something:
//! chain, port, Ethernet type, protocol and the like. Every other value goes into one field of the PRM, and nothing else depends on it
//! ([`plain`] lists these fields). So of flows that share the former, one is translated and leaves a *template*; for the next one only
//! its own values are filled in, which gives what translation gives. A flow that is refused never finds a template.
//!
//! Each template has one slot, picked by a hash of what it depends on; the newest of those that share a slot stays. It lives as long as
//! a rule has it.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use sluice_flow::action::Action;
use sluice_flow::field::Field;
use sluice_flow::key::{Mask, MaskedKey, Match};
use sluice_flow::refusal::Refusal;
use sluice_flow::{ChainId, Flow, Priority};

use super::actions::{self, Plan};
use super::changes::Changes;
use super::geneve::GeneveOption;
use super::guarantees::Guarantees;
use super::matching::{self, Matched};
use super::places::{GENEVE_OPTION_EXISTS, plain};
use super::table_id::TableId;
use super::vports::Vports;
use crate::mlx5::MatchParameter;

/// The number of slots for templates, and for what they look at.
const PLACES: usize = 1024;
/// The number of slots for masks.
const MASKS: usize = 256;

/// The templates of one worker. They depend on the ports: [`clear`](Self::clear) them when these change.
pub struct Templates {
    layouts: Vec<Option<Layout>>,
    matchings: Vec<Option<Arc<Matching>>>,
    cached: Vec<Option<Cached>>,
    /// Of packets whose changes are deferred, where these do not matter for the match.
    after: Vec<Option<After>>,
    hasher: RandomState,
    /// What hashes of flows begin with, so that nobody can pick flows that share a slot.
    seed: u64,
}

/// What many rules have in common.
#[derive(Debug)]
pub struct Template {
    matching: Arc<Matching>,
    /// Which of several rules wins.
    pub priority: Priority,
    /// What they do.
    pub plan: Plan,
    to: Option<ChainId>,
    is_continued: bool,
    /// Changes of their packets that were deferred before.
    deferred: Option<Arc<Changes>>,
    /// Where the switch has looked up before what it needs for them.
    place: AtomicU32,
}

/// A rule that is ready to be made. What it looks for is told by its [`value`](Self::value), which is larger than all else of it, and
/// therefore not part of what goes from hand to hand.
#[derive(Clone, Debug)]
pub struct Instance {
    /// What it is for.
    pub flow: Flow,
    /// What it has in common with others.
    pub template: Arc<Template>,
}

/// What the matches of many flows have in common.
#[derive(Debug)]
struct Matching {
    /// A weak reference does not keep the mask alive, but keeps its address from being used again.
    of: Weak<Mask>,
    decisive: Box<[u64]>,
    /// Whether packets that are not whole are left to software.
    only_whole: bool,
    chain: ChainId,
    mask: MatchParameter,
    guarantees: Guarantees,
    /// The bits that all of them have.
    base: MatchParameter,
    fillings: Box<[Filling]>,
    /// Whether it is right for every flow with this mask and these deciding bytes, and not for one flow only.
    is_general: bool,
}

/// Bytes of a key in a row that go into a word of the PRM.
#[derive(Clone, Copy, Debug)]
struct Filling {
    /// The first of eight bytes, the lowest first.
    from: u16,
    word: u8,
    /// How far these are rotated to the left.
    rotation: u8,
    /// Which bits of them go there, after that; and the same as bytes lie in the word.
    bits: u64,
    big_endian: u64,
}

/// The same, as they are found: bytes from the first one that goes there on.
struct Run {
    from: u16,
    word: u8,
    shift: u8,
    /// Which bits of them, before they are shifted.
    bits: u64,
}

/// A mask, and which bits of its flows' keys decide something.
struct Layout {
    mask: Weak<Mask>,
    decisive: Box<[Decisive]>,
}

/// Bits of eight bytes of a key that decide something, the first byte the lowest.
struct Decisive {
    from: usize,
    bits: u64,
}

struct Cached {
    actions: Weak<[Action]>,
    template: Arc<Template>,
}

struct After {
    of: Arc<Template>,
    template: Arc<Template>,
}

impl Templates {
    /// No templates.
    pub fn new() -> Self {
        let (layouts, matchings, cached, after) = Default::default();
        let hasher = RandomState::default();
        let seed = hasher.hash_one(0);
        let mut templates = Self { layouts, matchings, cached, after, hasher, seed };
        templates.clear();
        templates
    }

    /// Forgets all templates.
    pub fn clear(&mut self) {
        self.layouts.clear();
        self.layouts.resize_with(MASKS, || None);
        self.matchings.clear();
        self.matchings.resize_with(PLACES, || None);
        self.cached.clear();
        self.cached.resize_with(PLACES, || None);
        self.after.clear();
        self.after.resize_with(PLACES, || None);
    }

    /// Makes the rule of a flow, or says which field or action is not possible.
    pub fn instance(&mut self, flow: Flow, vports: &dyn Vports) -> Result<Instance, Refusal> {
        Ok(Instance { template: self.template(&flow, vports)?, flow })
    }

    /// Makes the rule that a flow has in a table, or says why it cannot be asked for there. `None` if no packet matches that comes to the
    /// table.
    pub fn instance_in(
        &mut self,
        table: &TableId,
        flow: &Flow,
        vports: &dyn Vports,
    ) -> Result<Option<Instance>, Refusal> {
        let of = self.template(flow, vports)?;
        let (chain, entrance) = (of.matching.chain, of.matching.guarantees.entrance);
        if (chain, entrance) != (table.chain, table.entrance) {
            return Ok(None);
        }
        let template = match &table.deferred {
            None => Some(of),
            Some(deferred) => self.template_after(of, deferred, flow, vports)?,
        };
        Ok(template.map(|template| Instance { template, flow: flow.clone() }))
    }

    /// Makes a template of another one, for packets whose changes are deferred.
    fn template_after(
        &mut self,
        of: Arc<Template>,
        deferred: &Arc<Changes>,
        flow: &Flow,
        vports: &dyn Vports,
    ) -> Result<Option<Arc<Template>>, Refusal> {
        let full = flow.matching().expand();
        let Some(before) = deferred.before(&full)? else { return Ok(None) };
        let is_same = before == full;
        let hash = self.hasher.hash_one((Arc::as_ptr(&of).addr(), Arc::as_ptr(deferred).addr()));
        let place = slot_of(hash, PLACES);
        if let Some(found) = self.after[place].as_ref().filter(|_| is_same)
            && Arc::ptr_eq(&found.of, &of)
            && found.template.deferred.as_ref().is_some_and(|other| Arc::ptr_eq(other, deferred))
        {
            return Ok(Some(found.template.clone()));
        }
        let plan = actions::translate(&flow.actions, &of.matching.guarantees, Some(deferred), vports)?;
        let matching = match is_same {
            true => of.matching.clone(),
            false => {
                let (only_whole, is_tagged) = (of.matching.only_whole, deferred.take_tags_off());
                Arc::new(of.matching.of_one(matching::translate(&before, only_whole, is_tagged, vports)?))
            }
        };
        let template = Arc::new(Template::new(matching, flow.priority, plan, Some(deferred.clone())));
        if is_same {
            self.after[place] = Some(After { of, template: template.clone() });
        }
        Ok(Some(template))
    }

    fn template(&mut self, flow: &Flow, vports: &dyn Vports) -> Result<Arc<Template>, Refusal> {
        let matched = flow.matching();
        let layout = layout(&mut self.layouts, matched.mask());
        let hash = hash(self.seed, &matched, &layout.decisive);
        let what = Arc::as_ptr(&flow.actions).addr() as u64 ^ u64::from(flow.priority.get());
        let place = slot_of(mix(hash, what), PLACES);
        if let Some(Cached { actions, template }) = &self.cached[place]
            && std::ptr::addr_eq(actions.as_ptr(), Arc::as_ptr(&flow.actions))
            && template.priority == flow.priority
            && template.matching.is_of(&matched, &layout.decisive)
        {
            return Ok(template.clone());
        }
        let matching = self.matching(flow, hash, vports)?;
        matching.guarantees.check(flow.priority)?;
        let plan = actions::translate(&flow.actions, &matching.guarantees, None, vports)?;
        let template = Arc::new(Template::new(matching, flow.priority, plan, None));
        if template.matching.is_general {
            self.cached[place] = Some(Cached { actions: Arc::downgrade(&flow.actions), template: template.clone() });
        }
        Ok(template)
    }

    fn matching(&mut self, flow: &Flow, hash: u64, vports: &dyn Vports) -> Result<Arc<Matching>, Refusal> {
        let matched = flow.matching();
        let layout = layout(&mut self.layouts, matched.mask());
        let place = slot_of(hash, PLACES);
        let only_whole = actions::need_whole(&flow.actions);
        let is_it = |found: &&Arc<Matching>| found.is_of(&matched, &layout.decisive) && found.only_whole == only_whole;
        if let Some(matching) = self.matchings[place].as_ref().filter(is_it) {
            return Ok(matching.clone());
        }
        let matching = Arc::new(Matching::of(flow, &layout.decisive, only_whole, vports)?);
        if matching.is_general {
            self.matchings[place] = Some(matching.clone());
        }
        Ok(matching)
    }
}

impl Default for Templates {
    fn default() -> Self {
        Self::new()
    }
}

impl Instance {
    /// The bits of a packet that matches.
    pub fn value(&self) -> MatchParameter {
        let mut value = *self.template.base();
        self.template.fill(&self.flow, &mut value);
        value
    }
}

impl Template {
    fn new(matching: Arc<Matching>, priority: Priority, plan: Plan, deferred: Option<Arc<Changes>>) -> Self {
        let (to, is_continued) = (plan.chain(), plan.tracking.is_some() || !plan.behind.is_empty());
        Self { matching, priority, plan, to, is_continued, deferred, place: AtomicU32::new(u32::MAX) }
    }

    /// The chain where packets are looked up again.
    pub(crate) fn to(&self) -> Option<ChainId> {
        self.to
    }

    /// Returns whether each flow has several rules in a table.
    pub(crate) fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// The table that the rules are in.
    pub fn table(&self) -> TableId {
        let (chain, entrance) = (self.matching.chain, self.matching.guarantees.entrance);
        TableId { chain, entrance, deferred: self.deferred.clone() }
    }

    /// Returns whether they are of packets with changes that are deferred.
    pub(crate) fn is_after_changes(&self) -> bool {
        self.deferred.is_some()
    }

    /// The chain that they are in.
    pub fn chain(&self) -> ChainId {
        self.matching.chain
    }

    /// The table where their packets are looked up again.
    pub fn next_table(&self) -> Option<TableId> {
        self.to.map(|chain| self.table().to(chain, self.plan.deferred.clone()))
    }

    /// The vport that packets come from, if they look at it.
    pub fn from(&self) -> Option<u16> {
        self.matching.guarantees.from
    }

    /// The option of Geneve that the device must look for.
    pub fn option(&self) -> Option<GeneveOption> {
        self.matching.guarantees.option
    }

    /// Returns whether they ask if that option is there.
    pub(crate) fn asks_for_option(&self) -> bool {
        GENEVE_OPTION_EXISTS.get(self.mask()) != 0
    }

    /// The bits that they look at.
    pub fn mask(&self) -> &MatchParameter {
        &self.matching.mask
    }

    /// The bits that all of them look for.
    pub(crate) fn base(&self) -> &MatchParameter {
        &self.matching.base
    }

    /// Fills the values of a flow that found this template in, where [`base`](Self::base) is, or has the values of another such flow.
    pub(crate) fn fill(&self, flow: &Flow, value: &mut MatchParameter) {
        self.matching.fill(flow.matching().bytes(), value);
    }

    /// Returns where the switch has put down last what it needs for the rules.
    pub(crate) fn place(&self) -> u32 {
        self.place.load(Ordering::Relaxed)
    }

    pub(crate) fn set_place(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }
}

impl Matching {
    fn of(flow: &Flow, layout: &[Decisive], only_whole: bool, vports: &dyn Vports) -> Result<Self, Refusal> {
        let matched = flow.matching();
        let full = matched.expand();
        let translated = matching::translate(&full, only_whole, false, vports)?;
        let mut found = decisive_bits(matched.mask());
        let is_inside = translated.guarantees.entrance.is_some();
        let fillings = fillings(&full, matched.mask(), is_inside, &mut found);
        let mut base = translated.value;
        fillings.iter().for_each(|filling| base.put_bits(filling.word.into(), filling.bits, 0));
        let mut matching = Self {
            of: Arc::downgrade(matched.mask()),
            decisive: layout.iter().map(|decisive| decisive.of(matched.bytes())).collect(),
            only_whole,
            chain: flow.chain(),
            mask: translated.mask,
            guarantees: translated.guarantees,
            base,
            fillings,
            is_general: found.iter().all(|bits| *bits == u8::MAX),
        };
        let mut filled = base;
        matching.fill(matched.bytes(), &mut filled);
        if !matching.is_general || filled != translated.value {
            (matching.base, matching.fillings, matching.is_general) = (translated.value, Box::default(), false);
        }
        Ok(matching)
    }

    /// Returns the same for one flow, whose packets are `matched` otherwise.
    fn of_one(&self, matched: Matched) -> Self {
        Self {
            of: self.of.clone(),
            decisive: self.decisive.clone(),
            only_whole: self.only_whole,
            chain: self.chain,
            mask: matched.mask,
            guarantees: self.guarantees,
            base: matched.value,
            fillings: Box::default(),
            is_general: false,
        }
    }

    /// Whether it is that of a key, of which `layout` says which bits decide something.
    fn is_of(&self, matched: &MaskedKey<'_>, layout: &[Decisive]) -> bool {
        // With the same mask, there are as many.
        std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(matched.mask()))
            && layout.iter().zip(&self.decisive).all(|(decisive, known)| decisive.of(matched.bytes()) == *known)
    }

    fn fill(&self, bytes: &[u8], value: &mut MatchParameter) {
        for Filling { from, word, rotation, bits, big_endian } in &self.fillings {
            let found = word_at(bytes, (*from).into()).rotate_left((*rotation).into());
            value.put_big_endian((*word).into(), *big_endian, (found & bits).to_be());
        }
    }
}

fn layout<'l>(layouts: &'l mut [Option<Layout>], mask: &Arc<Mask>) -> &'l Layout {
    let place = &mut layouts[slot_of(mix(0, Arc::as_ptr(mask).addr() as u64), MASKS)];
    let is_of = |layout: &mut Layout| std::ptr::eq(layout.mask.as_ptr(), Arc::as_ptr(mask));
    if !place.as_mut().is_some_and(is_of) {
        *place = None;
    }
    place.get_or_insert_with(|| {
        let bits = decisive_bits(mask);
        let words = (0..bits.len()).step_by(8).map(|from| Decisive { from, bits: word_at(&bits, from) });
        Layout { mask: Arc::downgrade(mask), decisive: words.filter(|decisive| decisive.bits != 0).collect() }
    })
}

impl Decisive {
    /// Returns these bits of a key.
    #[inline]
    fn of(&self, bytes: &[u8]) -> u64 {
        word_at(bytes, self.from) & self.bits
    }
}

/// Hashes the bits of a key that decide something, of which `layout` says which they are.
fn hash(seed: u64, matched: &MaskedKey<'_>, layout: &[Decisive]) -> u64 {
    let mask = mix(seed, Arc::as_ptr(matched.mask()).addr() as u64);
    layout.iter().fold(mask, |hash, decisive| mix(hash, decisive.of(matched.bytes())))
}

/// Adds a word to a hash: both halves of a product, so that each bit counts.
fn mix(hash: u64, word: u64) -> u64 {
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15;
    let product = u128::from(hash ^ word) * ODD;
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high
}

/// The eight bytes from one on as a word, the lowest first; those behind the end are 0.
#[inline]
fn word_at(bytes: &[u8], from: usize) -> u64 {
    if let Some(eight) = bytes.get(from..).and_then(|rest| rest.first_chunk()) {
        return u64::from_le_bytes(*eight);
    }
    match (bytes.last_chunk(), (from + 8).saturating_sub(bytes.len())) {
        (Some(eight), missing @ 0..8) => u64::from_le_bytes(*eight) >> (8 * missing),
        _ => bytes.iter().skip(from).rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// The bits of a key's bytes that decide something: all but those of plain fields, whichever headers are present.
fn decisive_bits(mask: &Mask) -> Vec<u8> {
    let mut decisive = vec![u8::MAX; mask.bytes()];
    for (field, place) in plain() {
        for byte in 0..place.bytes() {
            if let Some((from, bits)) = byte_of(field, byte, mask) {
                decisive[from] &= !bits;
            }
        }
    }
    decisive
}

/// Where the plain fields of a match go, in headers outside a tunnel or inside. Adds their bits to those that are `found`.
fn fillings(full: &Match, mask: &Mask, is_inside: bool, found: &mut [u8]) -> Box<[Filling]> {
    let mut runs: Vec<Run> = Vec::new();
    let is_there = |field: Field| full.mask.get(field) != 0 && full.meets(field.spec().attribute.spec().requires);
    for (field, outside) in plain().filter(|(field, _)| is_there(*field)) {
        let Some(place) = (if is_inside { outside.inside() } else { Some(outside) }) else { continue };
        for byte in 0..place.bytes() {
            let Some((from, bits)) = byte_of(field, byte, mask) else { continue };
            found[from] |= bits;
            let (word, shift) = place.byte(byte);
            let (Ok(from), Ok(word), Ok(shift)) = (u16::try_from(from), u8::try_from(word), u8::try_from(shift)) else {
                continue;
            };
            match runs.last_mut().and_then(|last| last.room_for(from, word, shift)) {
                Some((run, above)) => run.bits |= u64::from(bits) << above,
                None => runs.push(Run { from, word, shift, bits: bits.into() }),
            }
        }
    }
    runs.into_iter().map(|run| run.filling(mask.bytes())).collect()
}

impl Run {
    /// How it is filled in, for a key of so many bytes.
    fn filling(self, length: usize) -> Filling {
        let Self { from, word, shift, bits } = self;
        // Bytes before it, so that there are eight.
        let before = u8::try_from((usize::from(from) + 8).saturating_sub(length)).unwrap_or(0);
        let before = u16::from(before).min(from);
        let rotation = (64 + u16::from(shift) - 8 * before) % 64;
        let bits = bits << shift;
        Filling { from: from - before, word, rotation: rotation.to_le_bytes()[0], bits, big_endian: bits.to_be() }
    }

    /// Itself and the place of one more byte in it, if that follows its last one in the key and in the word.
    fn room_for(&mut self, from: u16, word: u8, shift: u8) -> Option<(&mut Self, u8)> {
        let above = u8::try_from(from.checked_sub(self.from)? * 8).ok()?;
        let follows = self.bits.checked_shr((above.checked_sub(8)?).into())? != 0;
        (above < 64 && follows && self.word == word && self.shift + above == shift).then_some((self, above))
    }
}

/// The place of a field's byte among the bytes of a key, counted from the lowest, and which of its bits are the field's. `None` if it
/// is not matched, or is not a byte by itself.
fn byte_of(field: Field, byte: u32, mask: &Mask) -> Option<(usize, u8)> {
    let spec = field.spec();
    if !spec.shift.is_multiple_of(8) {
        return None;
    }
    // The upper half of 128 bits comes first.
    let is_lower_half = spec.width == 128 && byte < 8;
    let word = spec.word + usize::from(is_lower_half);
    let within = if spec.width == 128 { byte % 8 } else { byte + spec.shift / 8 };
    let [bits, ..] = (field.full_mask() >> (8 * byte)).to_le_bytes();
    if bits == 0 { None } else { Some((mask.place(word, within)?, bits)) }
}

fn slot_of(hash: u64, places: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do to pick a place")]
    let hash = hash as usize;
    hash % places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_the_end_are_zero_however_few_there_are() {
        let bytes: Vec<u8> = (1..=20).collect();
        for length in 0..=bytes.len() {
            for from in 0..length + 2 {
                let mut eight = [0; 8];
                let there = bytes[..length].iter().skip(from);
                eight.iter_mut().zip(there).for_each(|(to, byte)| *to = *byte);
                assert_eq!(word_at(&bytes[..length], from), u64::from_le_bytes(eight), "{from} of {length}");
            }
        }
    }
}
