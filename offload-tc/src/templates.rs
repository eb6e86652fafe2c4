//! Rules that differ from earlier ones in values alone: most flows that an agent is given do.
//!
//! Where a rule is, which keys it has with which masks, and what it does follow from the mask of its flow, from the actions,
//! the priority, and those values that decide something: port, chain, Ethernet type, protocol and the like. Of all others each
//! goes into one key, and nothing else depends on it (`plain` in [`translate`](crate::translate) says which they are). So of flows
//! that have the former in common one is translated, and leaves a *template* here: the octets of its message, and which of them
//! are which octets of the flow's key. The message of the next one is a copy with its own values filled in. No number is taken
//! apart and no list is made for it; it is, octet by octet, what translation gives, and a flow that translation refuses never
//! finds a template.
//!
//! Each template has one place, picked by a hash of what it depends on, where the newest of those that share it is. One is made
//! when the same is seen twice in a row there, so that flows that have nothing in common cost a hash and no more.

use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use sluice_flow::action::{Action, visit};
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::key::{Mask, MaskedKey, Match};
use sluice_flow::meter::MeterId;
use sluice_flow::priority::Priority;
use sluice_netdev::netlink::attribute::Malformed;
use sluice_netdev::netlink::message::HEADER;

use crate::digest::Digest;
use crate::rule::Label;
use crate::surroundings::Surroundings;
use crate::translate::plain;
use crate::wire::filter::{self, Filter, FilterId, FilterView, Hook};
use crate::wire::key::{Key, Order};
use crate::wire::statistics::RuleView;

/// Templates that are kept at most.
const PLACES: usize = 1024;
/// Masks of which it is kept what of a key may differ.
const MASKS: usize = 256;

/// The templates of one agent, for rules with the same flags. They are of the ports and the kernel that there are: when these
/// change, all are to be [forgotten](Self::clear).
pub struct Templates {
    layouts: Vec<Place<Layout>>,
    kept: Vec<Place<Kept>>,
    hasher: RandomState,
    /// What of the key that was looked for last decides something.
    decisive: Vec<u8>,
}

/// What there is for a flow.
pub enum Sought {
    /// A template.
    Known(Arc<Template>),
    /// Nothing, and the rule of this flow would make a template.
    Wanted(Vacancy),
    /// Nothing.
    Unknown,
}

/// Where there may be a template of a flow.
#[derive(Clone, Copy)]
pub struct Vacancy {
    place: usize,
}

/// What many rules have in common.
#[derive(Debug)]
pub struct Template {
    /// The request that puts one of them in, without a digest.
    message: Box<[u8]>,
    fillings: Box<[Filling]>,
    /// Where the UFID stands, if the rule says it.
    ufid: Option<usize>,
    /// Where the digest stands, and what it is of: all from there on.
    digest: usize,
    options: usize,
    /// The notes, but for UFID and digest.
    label: Label,
    /// Where they are attached.
    pub hook: Hook,
    /// The chain.
    pub chain: u32,
    /// The priority of their flows.
    pub priority: Priority,
    /// The Ethernet type of the packets that are looked at, 3 for all.
    pub protocol: u16,
    /// The chains that they send packets to.
    pub jumps: Box<[ChainId]>,
    /// Meters with their numbers in the kernel.
    meters: Box<[(MeterId, u32)]>,
}

/// A rule that is made of a template.
#[derive(Clone, Debug)]
pub struct Instance {
    template: Arc<Template>,
    flow: Flow,
    id: FilterId,
}

/// An octet of a key that goes into the message.
#[derive(Clone, Copy, Debug)]
struct Filling {
    from: u16,
    to: u16,
    /// Those of its bits that are of the same field.
    bits: u8,
}

/// Something, and a mark of what was looked for last where it is.
struct Place<T> {
    sight: u64,
    content: Option<T>,
}

/// A mask, and which bits of its flows' octets decide something.
struct Layout {
    mask: Weak<Mask>,
    decisive: Box<[u8]>,
}

/// What a template depends on. It keeps neither mask nor actions alive, and their addresses from being given again.
struct Kept {
    mask: Weak<Mask>,
    actions: Weak<[Action]>,
    priority: Priority,
    decisive: Box<[u8]>,
    /// `None` for flows of which none can be made.
    template: Option<Arc<Template>>,
}

impl Templates {
    /// None so far.
    pub fn new() -> Self {
        let mut templates =
            Self { layouts: Vec::new(), kept: Vec::new(), hasher: RandomState::default(), decisive: Vec::new() };
        templates.clear();
        templates
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.layouts.clear();
        self.layouts.resize_with(MASKS, Place::default);
        self.kept.clear();
        self.kept.resize_with(PLACES, Place::default);
    }

    /// Looks for the template of a flow.
    pub fn seek(&mut self, flow: &Flow, surroundings: &dyn Surroundings) -> Sought {
        let matching = flow.matching();
        let Some(layout) = layout(&mut self.layouts, &self.hasher, matching.mask()) else { return Sought::Unknown };
        self.decisive.clear();
        self.decisive.extend(matching.bytes().iter().zip(&layout.decisive).map(|(octet, bits)| octet & bits));
        let addresses = (Arc::as_ptr(matching.mask()).addr(), Arc::as_ptr(&flow.actions).addr());
        let sight = self.hasher.hash_one((addresses, flow.priority, &*self.decisive));
        let number = place_of(sight, PLACES);
        let place = &mut self.kept[number];
        if let Some(kept) = place.content.as_ref().filter(|kept| kept.is_of(flow, &matching, &self.decisive)) {
            let is_true = |(meter, index): &(MeterId, u32)| surroundings.police(*meter) == Some(*index);
            return match &kept.template {
                Some(template) if template.meters.iter().all(is_true) => Sought::Known(Arc::clone(template)),
                Some(_) => Sought::Wanted(Vacancy { place: number }),
                None => Sought::Unknown,
            };
        }
        match std::mem::replace(&mut place.sight, sight) == sight {
            true => Sought::Wanted(Vacancy { place: number }),
            false => Sought::Unknown,
        }
    }

    /// Makes a template of the rule of the flow that was looked for last.
    pub fn learn(&mut self, vacancy: Vacancy, flow: &Flow, rule: &Filter, surroundings: &dyn Surroundings) {
        let matching = flow.matching();
        let Some(layout) = layout(&mut self.layouts, &self.hasher, matching.mask()) else { return };
        let template = Template::of(flow, &matching, rule, &layout.decisive, surroundings);
        self.kept[vacancy.place].content = Some(Kept {
            mask: Arc::downgrade(matching.mask()),
            actions: Arc::downgrade(&flow.actions),
            priority: flow.priority,
            decisive: self.decisive.as_slice().into(),
            template: template.map(Arc::new),
        });
    }
}

impl Default for Templates {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self { sight: 0, content: None }
    }
}

/// What is known of a mask that is seen again.
fn layout<'l>(layouts: &'l mut [Place<Layout>], hasher: &RandomState, mask: &Arc<Mask>) -> Option<&'l Layout> {
    let sight = hasher.hash_one(Arc::as_ptr(mask).addr());
    let place = &mut layouts[place_of(sight, MASKS)];
    let is_known = place.content.as_ref().is_some_and(|layout| std::ptr::eq(layout.mask.as_ptr(), Arc::as_ptr(mask)));
    if !is_known {
        if std::mem::replace(&mut place.sight, sight) != sight {
            return None;
        }
        place.content = Some(Layout { mask: Arc::downgrade(mask), decisive: decisive(mask) });
    }
    place.content.as_ref()
}

/// The bits of the octets of a key that decide something: all but those of plain fields, of whatever header is there.
fn decisive(mask: &Mask) -> Box<[u8]> {
    let mut decisive = vec![u8::MAX; mask.bytes()];
    for (field, key) in plain() {
        for octet in 0..octets_of(key) {
            if let Some((from, bits)) = octet_of(field, octet, mask) {
                decisive[from] &= !bits;
            }
        }
    }
    decisive.into()
}

/// Where in the octets of a key one of a field is, counted from the lowest, and which of its bits are the field's. `None` if
/// it is not looked at, or is not an octet by itself.
fn octet_of(field: Field, octet: u32, mask: &Mask) -> Option<(usize, u8)> {
    let spec = field.spec();
    if !spec.shift.is_multiple_of(8) {
        return None;
    }
    // Of 128 bits, the upper half comes first.
    let is_lower_half = spec.width == 128 && octet < 8;
    let word = spec.word + usize::from(is_lower_half);
    let within = if spec.width == 128 { octet % 8 } else { octet + spec.shift / 8 };
    let [bits, ..] = (field.full_mask() >> (8 * octet)).to_le_bytes();
    if bits == 0 { None } else { Some((mask.place(word, within)?, bits)) }
}

fn octets_of(key: Key) -> u32 {
    u32::try_from(key.spec().octets).unwrap_or_default()
}

fn place_of(hash: u64, places: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do to pick a place")]
    let hash = hash as usize;
    hash % places
}

impl Kept {
    fn is_of(&self, flow: &Flow, matching: &MaskedKey<'_>, decisive: &[u8]) -> bool {
        std::ptr::eq(self.mask.as_ptr(), Arc::as_ptr(matching.mask()))
            && std::ptr::addr_eq(self.actions.as_ptr(), Arc::as_ptr(&flow.actions))
            && self.priority == flow.priority
            && *self.decisive == *decisive
    }
}

impl Template {
    /// The template of a flow's rule; `None` if some of what does not decide anything finds no place there.
    fn of(
        flow: &Flow,
        matching: &MaskedKey<'_>,
        rule: &Filter,
        decisive: &[u8],
        surroundings: &dyn Surroundings,
    ) -> Option<Self> {
        let mut message = Vec::new();
        rule.emit(&mut message, 0, 0).ok()?;
        let view = FilterView::new(message.get(HEADER..)?).ok()?;
        let full = matching.expand();
        let mut fillings = Vec::new();
        let mut found = decisive.to_vec();
        for (field, key) in plain().filter(|(field, key)| is_said(*field, *key, &full, rule)) {
            let payload = option(&view, key.spec().value)?;
            let at = offset(&message, payload)?;
            let count = octets_of(key);
            let is_highest_first = key.spec().order == Order::Network || cfg!(target_endian = "big");
            for octet in 0..count {
                let Some((from, bits)) = octet_of(field, octet, matching.mask()) else { continue };
                let to = at + if is_highest_first { count - 1 - octet } else { octet } as usize;
                found[from] |= bits;
                fillings.push(Filling { from: u16::try_from(from).ok()?, to: u16::try_from(to).ok()?, bits });
            }
        }
        let notes = RuleView::new(&view).ok()?.cookies;
        let label = Label::read(notes)?;
        let is_named = label.ufid == Some(flow.ufid);
        let ufid = if is_named { Some(offset(&message, notes[0])?) } else { None };
        let last_note = notes.into_iter().rfind(|note| !note.is_empty())?;
        let digest = offset(&message, last_note)? + Label::DIGEST.start;
        let options = offset(&message, view.octets_of_options())?;
        let mut meters = Vec::new();
        visit(&flow.actions, &mut |action| {
            if let Action::Meter(meter) = action {
                meters.extend(surroundings.police(*meter).map(|index| (*meter, index)));
            }
        });
        let FilterId { hook, chain, protocol, .. } = rule.id;
        message[digest..][..Label::DIGEST.len()].fill(0);
        let template = Self {
            message: message.into(),
            fillings: fillings.into(),
            ufid,
            digest,
            options,
            label,
            hook,
            chain,
            priority: flow.priority,
            protocol,
            jumps: flow.jumps().into(),
            meters: meters.into(),
        };
        let is_whole = found.iter().all(|bits| *bits == u8::MAX);
        is_whole.then_some(template)
    }

    /// The notes of such a rule. What is written for it goes into `buffer`.
    pub(crate) fn label(&self, flow: &Flow, buffer: &mut Vec<u8>) -> Label {
        buffer.clear();
        let digest = self.fill(flow, buffer);
        Label { ufid: self.ufid.map(|_| flow.ufid), digest, ..self.label }
    }

    /// Writes the request of a flow at the end of a buffer, under some name. Gives the digest in its notes.
    fn fill(&self, flow: &Flow, buffer: &mut Vec<u8>) -> Digest {
        let start = buffer.len();
        buffer.extend_from_slice(&self.message);
        let message = &mut buffer[start..];
        let matching = flow.matching();
        let octets = matching.bytes();
        for Filling { from, to, bits } in &self.fillings {
            message[usize::from(*to)] = octets[usize::from(*from)] & bits;
        }
        if let Some(note) = self.ufid.and_then(|at| message[at..].first_chunk_mut()) {
            *note = { flow.ufid.0 }.to_be_bytes();
        }
        let digest = Digest::of(&message[self.options..]);
        message[self.digest..][..digest.0.len()].copy_from_slice(&digest.0);
        digest
    }

    /// The rule of a flow that this template is known for, under a name: hook, chain and protocol are the template's.
    pub fn instance(self: Arc<Self>, flow: Flow, id: FilterId) -> Instance {
        Instance { template: self, flow, id }
    }
}

impl Instance {
    /// Its name.
    pub const fn id(&self) -> FilterId {
        self.id
    }

    /// Writes the request to put it in at the end of a buffer, as [`Filter::emit`] does.
    pub fn emit(&self, buffer: &mut Vec<u8>, flags: u16, sequence: u32) {
        let start = buffer.len();
        self.template.fill(&self.flow, buffer);
        filter::rename(&mut buffer[start..], self.id, flags, sequence);
    }

    /// The rule by itself.
    pub fn filter(&self) -> Result<Filter, Malformed> {
        let mut message = Vec::new();
        self.emit(&mut message, 0, 0);
        FilterView::new(message.get(HEADER..).unwrap_or_default())?.parse()
    }
}

/// Whether a field of a match is what a rule says by a key.
fn is_said(field: Field, key: Key, full: &Match, rule: &Filter) -> bool {
    let there = (full.key.get(field) & key.full_mask(), full.mask.get(field) & key.full_mask());
    there.1 != 0 && full.meets(field.spec().attribute.spec().requires) && rule.flower.get(key) == Some(there)
}

/// Where in a message a part of it begins.
fn offset(message: &[u8], part: &[u8]) -> Option<usize> {
    part.as_ptr().addr().checked_sub(message.as_ptr().addr())
}

/// The payload of an option of a rule.
fn option<'a>(view: &FilterView<'a>, kind: u16) -> Option<&'a [u8]> {
    view.options().filter_map(Result::ok).find(|option| option.kind == kind).map(|option| option.payload)
}
