//! Rules that differ from earlier ones in values alone: most flows that an agent is given do.
//!
//! Where a rule is, which keys it has with which masks, and what it does follow from the mask of its flow, from the actions,
//! the priority, and those values that decide something: port, chain, Ethernet type, protocol and the like. Of all others each
//! goes into one key, and nothing else depends on it (`plain` in [`translate`](crate::translate) says which they are). So of flows
//! that have the former in common one is translated, and leaves a *template* here: the bytes of its message, and which of them
//! are which bytes of the flow's key. The message of the next one is a copy with its own values filled in. No number is taken
//! apart and no list is made for it; it is, byte by byte, what translation gives, and a flow that translation refuses never
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

use crate::context::Context;
use crate::digest::Digest;
use crate::label::Label;
use crate::translate::plain;
use crate::wire::filter::{self, Filter, FilterId, FilterView, Hook};
use crate::wire::key::{Key, Order};
use crate::wire::rule_view::RuleView;

/// Templates that are kept at most.
const PLACES: usize = 1024;
/// Masks of which it is kept what of a key may differ.
const MASKS: usize = 256;

/// The templates of one agent, for rules with the same flags. They are of the ports and the kernel that there are: when these
/// change, all are to be [forgotten](Self::clear).
pub struct Templates {
    layouts: Vec<Slot<Layout>>,
    cached: Vec<Slot<Cached>>,
    hasher: RandomState,
    /// What of the key that was looked for last decides something.
    decisive: Vec<u8>,
}

/// What there is for a flow.
pub enum Lookup {
    /// A template.
    Hit(Arc<Template>),
    /// Nothing, and the rule of this flow would make a template.
    Learn(Vacancy),
    /// Nothing.
    Miss,
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

/// A byte of a key that goes into the message.
#[derive(Clone, Copy, Debug)]
struct Filling {
    from: u16,
    to: u16,
    /// Those of its bits that are of the same field.
    bits: u8,
}

/// Something, and a mark of what was looked for last where it is.
struct Slot<T> {
    last_hash: u64,
    content: Option<T>,
}

/// A mask, and which bits of its flows' bytes decide something.
struct Layout {
    mask: Weak<Mask>,
    decisive: Box<[u8]>,
}

/// What a template depends on. It keeps neither mask nor actions alive, and their addresses from being given again.
struct Cached {
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
            Self { layouts: Vec::new(), cached: Vec::new(), hasher: RandomState::default(), decisive: Vec::new() };
        templates.clear();
        templates
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.layouts.clear();
        self.layouts.resize_with(MASKS, Slot::default);
        self.cached.clear();
        self.cached.resize_with(PLACES, Slot::default);
    }

    /// Looks for the template of a flow.
    pub fn look_up(&mut self, flow: &Flow, context: &dyn Context) -> Lookup {
        let matching = flow.matching();
        let Some(layout) = layout(&mut self.layouts, &self.hasher, matching.mask()) else { return Lookup::Miss };
        self.decisive.clear();
        self.decisive.extend(matching.octets().iter().zip(&layout.decisive).map(|(byte, bits)| byte & bits));
        let addresses = (Arc::as_ptr(matching.mask()).addr(), Arc::as_ptr(&flow.actions).addr());
        let last_hash = self.hasher.hash_one((addresses, flow.priority, &*self.decisive));
        let number = slot_of(last_hash, PLACES);
        let place = &mut self.cached[number];
        if let Some(cached) = place.content.as_ref().filter(|cached| cached.is_of(flow, &matching, &self.decisive)) {
            let is_true = |(meter, index): &(MeterId, u32)| context.police(*meter) == Some(*index);
            return match &cached.template {
                Some(template) if template.meters.iter().all(is_true) => Lookup::Hit(Arc::clone(template)),
                Some(_) => Lookup::Learn(Vacancy { place: number }),
                None => Lookup::Miss,
            };
        }
        match std::mem::replace(&mut place.last_hash, last_hash) == last_hash {
            true => Lookup::Learn(Vacancy { place: number }),
            false => Lookup::Miss,
        }
    }

    /// Makes a template of the rule of the flow that was looked for last.
    pub fn learn(&mut self, vacancy: Vacancy, flow: &Flow, rule: &Filter, context: &dyn Context) {
        let matching = flow.matching();
        let Some(layout) = layout(&mut self.layouts, &self.hasher, matching.mask()) else { return };
        let template = Template::of(flow, &matching, rule, &layout.decisive, context);
        self.cached[vacancy.place].content = Some(Cached {
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

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { last_hash: 0, content: None }
    }
}

/// What is known of a mask that is seen again.
fn layout<'l>(layouts: &'l mut [Slot<Layout>], hasher: &RandomState, mask: &Arc<Mask>) -> Option<&'l Layout> {
    let last_hash = hasher.hash_one(Arc::as_ptr(mask).addr());
    let place = &mut layouts[slot_of(last_hash, MASKS)];
    let is_known = place.content.as_ref().is_some_and(|layout| std::ptr::eq(layout.mask.as_ptr(), Arc::as_ptr(mask)));
    if !is_known {
        if std::mem::replace(&mut place.last_hash, last_hash) != last_hash {
            return None;
        }
        place.content = Some(Layout { mask: Arc::downgrade(mask), decisive: decisive(mask) });
    }
    place.content.as_ref()
}

/// The bits of the bytes of a key that decide something: all but those of plain fields, of whatever header is there.
fn decisive(mask: &Mask) -> Box<[u8]> {
    let mut decisive = vec![u8::MAX; mask.octets()];
    for (field, key) in plain() {
        for byte in 0..bytes_of(key) {
            if let Some((from, bits)) = byte_of(field, byte, mask) {
                decisive[from] &= !bits;
            }
        }
    }
    decisive.into()
}

/// Where in the bytes of a key one of a field is, counted from the lowest, and which of its bits are the field's. `None` if
/// it is not looked at, or is not a byte by itself.
fn byte_of(field: Field, byte: u32, mask: &Mask) -> Option<(usize, u8)> {
    let spec = field.spec();
    if !spec.shift.is_multiple_of(8) {
        return None;
    }
    // Of 128 bits, the upper half comes first.
    let is_lower_half = spec.width == 128 && byte < 8;
    let word = spec.word + usize::from(is_lower_half);
    let within = if spec.width == 128 { byte % 8 } else { byte + spec.shift / 8 };
    let [bits, ..] = (field.full_mask() >> (8 * byte)).to_le_bytes();
    if bits == 0 { None } else { Some((mask.place(word, within)?, bits)) }
}

fn bytes_of(key: Key) -> u32 {
    u32::try_from(key.spec().bytes).unwrap_or_default()
}

fn slot_of(hash: u64, places: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do to pick a place")]
    let hash = hash as usize;
    hash % places
}

impl Cached {
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
        context: &dyn Context,
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
            let count = bytes_of(key);
            let is_highest_first = key.spec().order == Order::Network || cfg!(target_endian = "big");
            for byte in 0..count {
                let Some((from, bits)) = byte_of(field, byte, matching.mask()) else { continue };
                let to = at + if is_highest_first { count - 1 - byte } else { byte } as usize;
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
        let options = offset(&message, view.bytes_of_options())?;
        let mut meters = Vec::new();
        visit(&flow.actions, &mut |action| {
            if let Action::Meter(meter) = action {
                meters.extend(context.police(*meter).map(|index| (*meter, index)));
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
        let bytes = matching.octets();
        for Filling { from, to, bits } in &self.fillings {
            message[usize::from(*to)] = bytes[usize::from(*from)] & bits;
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
