//! Rules that differ from earlier ones in values only, as most flows of an agent do.
//!
//! Where a rule is, its keys with their masks, and what it does follow from the flow's mask, actions and priority, and from
//! the values that decide something: port, chain, Ethernet type, protocol and the like. Every other value goes into one key,
//! and nothing else depends on it (`plain` in [`translate`](crate::translate) lists these fields), but for one thing: zeros
//! alone in a header that flower does not read in all packets may be refused, and what a policy of IPsec is for stays out of hardware.
//! So whether they are zeros, and whether there is such a policy, decides, too. Of
//! flows that share the former, one is translated and leaves a *template*: the bytes of its message, and which of them are
//! which bytes of the flow's key. The message of the next flow is a copy with its own values filled in, byte for byte what
//! translation gives. A flow that translation refuses never finds a template.
//!
//! Each template has one slot, picked by a hash of what it depends on; the newest of those that share a slot stays. A
//! template is made when the same hash is seen twice in a row in its slot, so that flows with nothing in common cost no more
//! than a hash.

use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use sluice_flow::action::{Action, named_meters};
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
use crate::translate::{MAY_BE_UNREAD, plain};
use crate::wire::filter::{self, Filter, FilterId, FilterView, Hook};
use crate::wire::key::{Key, Order};
use crate::wire::rule_view::RuleView;

/// The number of template slots.
const PLACES: usize = 1024;
/// The number of slots for masks.
const MASKS: usize = 256;

/// The templates of one agent, for rules under the same policy of offload. They depend on the ports and the running kernel:
/// [`clear`](Self::clear) them when these change.
pub struct Templates {
    layouts: Vec<Slot<Layout>>,
    cached: Vec<Slot<Cached>>,
    hasher: RandomState,
    /// The deciding bytes of the key of the last lookup, of each header that may be unread whether any bit is set, and whether the rule must
    /// not be in hardware.
    decisive: Vec<u8>,
}

/// The result of a lookup.
pub enum Lookup {
    /// There is a template.
    Hit(Arc<Template>),
    /// There is none; the rule of this flow should become one.
    Learn(Vacancy),
    /// There is none.
    Miss,
}

/// The slot for a template that is to be made.
#[derive(Clone, Copy)]
pub struct Vacancy {
    place: usize,
}

/// What many rules have in common.
#[derive(Debug)]
pub struct Template {
    /// The request that adds one of them, without a digest.
    message: Box<[u8]>,
    fillings: Box<[Filling]>,
    /// The offset of the UFID, if the rule names it.
    ufid: Option<usize>,
    /// The offset of the digest, and of the options that the digest covers.
    digest: usize,
    options: usize,
    /// The notes, without UFID and digest.
    label: Label,
    /// Where they are attached.
    pub hook: Hook,
    /// The chain.
    pub chain: u32,
    /// The priority of their flows.
    pub priority: Priority,
    /// The Ethernet type of the packets that are matched, 3 for all.
    pub protocol: u16,
    /// The chains that they jump to.
    pub jumps: Box<[ChainId]>,
    /// Meters with the kernel's index of their policers.
    meters: Box<[(MeterId, u32)]>,
}

/// A rule that a template makes.
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
    /// Those of its bits that belong to the field.
    bits: u8,
}

/// A slot, with the hash that was last looked up in it.
struct Slot<T> {
    last_hash: u64,
    content: Option<T>,
}

/// A mask, and which bits of its flows' keys decide something.
struct Layout {
    mask: Weak<Mask>,
    decisive: Box<[u8]>,
    /// The bits of each header that may be unread. They decide something if all of them are zeros. Each stands by
    /// itself, for ARP shares its place with the addresses of IPv4.
    may_be_unread: [Box<[u8]>; MAY_BE_UNREAD.len()],
}

/// What a template depends on. Weak references keep neither mask nor actions alive, but do keep their addresses from being
/// reused.
struct Cached {
    mask: Weak<Mask>,
    actions: Weak<[Action]>,
    priority: Priority,
    decisive: Box<[u8]>,
    /// `None` for flows of which no template can be made.
    template: Option<Arc<Template>>,
}

impl Templates {
    /// No templates.
    pub fn new() -> Self {
        let mut templates =
            Self { layouts: Vec::new(), cached: Vec::new(), hasher: RandomState::default(), decisive: Vec::new() };
        templates.clear();
        templates
    }

    /// Forgets all templates.
    pub fn clear(&mut self) {
        self.layouts.clear();
        self.layouts.resize_with(MASKS, Slot::default);
        self.cached.clear();
        self.cached.resize_with(PLACES, Slot::default);
    }

    /// Looks up the template of a flow.
    pub fn look_up(&mut self, flow: &Flow, context: &dyn Context) -> Lookup {
        let matching = flow.matching();
        let Some(layout) = layout(&mut self.layouts, &self.hasher, matching.mask()) else { return Lookup::Miss };
        self.decisive.clear();
        self.decisive.extend(matching.bytes().iter().zip(&layout.decisive).map(|(byte, bits)| byte & bits));
        let is_any_set = |of: &[u8]| matching.bytes().iter().zip(of).any(|(byte, bits)| byte & bits != 0);
        self.decisive.extend(layout.may_be_unread.iter().map(|of| u8::from(is_any_set(of))));
        self.decisive.push(context.exposure(flow).is_some().into());
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

    /// Makes a template of the rule of the flow that was looked up last.
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

/// The layout of a mask that was seen before.
fn layout<'l>(layouts: &'l mut [Slot<Layout>], hasher: &RandomState, mask: &Arc<Mask>) -> Option<&'l Layout> {
    let last_hash = hasher.hash_one(Arc::as_ptr(mask).addr());
    let place = &mut layouts[slot_of(last_hash, MASKS)];
    let is_known = place.content.as_ref().is_some_and(|layout| std::ptr::eq(layout.mask.as_ptr(), Arc::as_ptr(mask)));
    if !is_known {
        if std::mem::replace(&mut place.last_hash, last_hash) != last_hash {
            return None;
        }
        place.content = Some(Layout {
            mask: Arc::downgrade(mask),
            decisive: bits_of(plain(), mask).iter().map(|bits| !bits).collect(),
            may_be_unread: MAY_BE_UNREAD
                .map(|header| bits_of(plain().filter(|(field, _)| header.contains(&field.spec().attribute)), mask)),
        });
    }
    place.content.as_ref()
}

/// The bits of a key's bytes that belong to some fields, whichever headers are present.
fn bits_of(fields: impl Iterator<Item = (Field, Key)>, mask: &Mask) -> Box<[u8]> {
    let mut found = vec![0; mask.bytes()];
    for (field, key) in fields {
        for byte in 0..bytes_of(key) {
            if let Some((from, bits)) = byte_of(field, byte, mask) {
                found[from] |= bits;
            }
        }
    }
    found.into()
}

/// The place of a field's byte among the bytes of a key, counted from the lowest, and which of its bits are the field's.
/// `None` if it is not matched, or is not a byte by itself.
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
    /// The template of a flow's rule; `None` if a value that decides nothing has no place in the message.
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
        if rule.flower.actions.iter().skip(2).any(|action| action.cookie.is_some()) {
            // Samples that name the flow, too.
            return None;
        }
        let notes = RuleView::new(&view).ok()?.cookies;
        let label = Label::read(notes)?;
        let is_named = label.ufid == Some(flow.ufid);
        let ufid = if is_named { Some(offset(&message, notes[0])?) } else { None };
        let last_note = notes.into_iter().rfind(|note| !note.is_empty())?;
        let digest = offset(&message, last_note)? + Label::DIGEST.start;
        let options = offset(&message, view.bytes_of_options())?;
        let police_of = |meter| Some((meter, context.police(meter)?));
        let meters: Vec<_> = named_meters(&flow.actions).into_iter().filter_map(police_of).collect();
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

    /// The notes of a flow's rule. `buffer` is overwritten.
    pub(crate) fn label(&self, flow: &Flow, buffer: &mut Vec<u8>) -> Label {
        buffer.clear();
        let digest = self.fill(flow, buffer);
        Label { ufid: self.ufid.map(|_| flow.ufid), digest, ..self.label }
    }

    /// Appends the request of a flow to a buffer, without its name, and returns the digest in its notes.
    fn fill(&self, flow: &Flow, buffer: &mut Vec<u8>) -> Digest {
        let start = buffer.len();
        buffer.extend_from_slice(&self.message);
        let message = &mut buffer[start..];
        let matching = flow.matching();
        let bytes = matching.bytes();
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

    /// The rule of a flow that found this template, under a name with the template's hook, chain and protocol.
    pub fn instance(self: Arc<Self>, flow: Flow, id: FilterId) -> Instance {
        Instance { template: self, flow, id }
    }
}

impl Instance {
    /// Its name.
    pub const fn id(&self) -> FilterId {
        self.id
    }

    /// Appends the request that adds it to a buffer, as [`Filter::emit`] does.
    pub fn emit(&self, buffer: &mut Vec<u8>, flags: u16, sequence: u32) {
        let start = buffer.len();
        self.template.fill(&self.flow, buffer);
        filter::rename(&mut buffer[start..], self.id, flags, sequence);
    }

    /// The rule as a value.
    pub fn filter(&self) -> Result<Filter, Malformed> {
        let mut message = Vec::new();
        self.emit(&mut message, 0, 0);
        FilterView::new(message.get(HEADER..).unwrap_or_default())?.parse()
    }
}

/// Whether a rule matches a field of a flow by a key.
fn is_said(field: Field, key: Key, full: &Match, rule: &Filter) -> bool {
    let there = (full.key.get(field) & key.full_mask(), full.mask.get(field) & key.full_mask());
    there.1 != 0 && full.meets(field.spec().attribute.spec().requires) && rule.flower.get(key) == Some(there)
}

/// The offset of a part of a message.
fn offset(message: &[u8], part: &[u8]) -> Option<usize> {
    part.as_ptr().addr().checked_sub(message.as_ptr().addr())
}

/// The payload of an option of a rule.
fn option<'a>(view: &FilterView<'a>, kind: u16) -> Option<&'a [u8]> {
    view.options().filter_map(Result::ok).find(|option| option.kind == kind).map(|option| option.payload)
}
