//! A table for each chain, and a matcher for each mask of its rules.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::rc::Rc;

use sluice_flow::refusal::Refusal;
use sluice_flow::{ChainId, Priority};

use super::lead::Lead;
use super::mirrors::{ROOT_ORDER, STAGES};
use super::options::Options;
use super::refusal::refuse;
use crate::mlx5::{Action, CallError, Context, Domain, Library, MatchParameter, Matcher, Object, Rule, Table};
use crate::translate::{Entrance, GeneveOption, TableId, Template};

/// The level of the first chain's table; that of level 0 is the kernel's, those between are of mirrors.
const FIRST_LEVEL: u32 = 1 + STAGES;
/// The level of the first chain's table for packets of a tunnel. Those of later chains are above.
const ENTRANCE_LEVEL: u32 = FIRST_LEVEL + 1;
/// The level above those of all rules of flows. libmlx5 has 64, of which this and the last are for packets on their way out.
pub(super) const END: u32 = 62;
/// Rules that a flow may have behind the first, wherever the table of that is, if it does not jump to another chain.
const BEHIND: u32 = 8;
/// The level of a chain's table from which no rule is known to jump: others have room above it.
const LAST_LEVEL: u32 = END - BEHIND - 1;
/// The first chain, of packets that come through no tunnel.
const FIRST: TableId = TableId { chain: ChainId(0), entrance: None, deferred: None };

/// The tables of an eswitch.
pub(super) struct Tables {
    /// What leads packets of tunnels to tables of their own, in front of all other rules.
    entrances: HashMap<Entrance, Vec<Rule>>,
    chains: HashMap<TableId, Chain>,
    /// Of later chains that have tables.
    levels: HashMap<ChainId, Level>,
    /// Tables with changes that are deferred.
    after: HashMap<ChainId, Vec<TableId>>,
    matchers: Vec<Option<Shared>>,
    free: Vec<u32>,
    by_mask: HashMap<MatcherKey, MatcherId>,
    options: Options,
    /// What packets do that match nothing in the table of a later chain, if they do not go to their representor.
    rest: Option<Action>,
    library: Rc<Library>,
    domain: Domain,
    /// Leads from the kernel's table to that of the first chain. Goes last.
    lead: Lead,
}

/// The level of all tables of a chain.
struct Level {
    level: u32,
    /// How many tables it has.
    tables: usize,
}

struct Chain {
    table: Table,
    jump: Action,
    /// Matchers in its table.
    matchers: usize,
    _rest: Option<Rule>,
}

/// What a chain had before it came to another level.
pub(super) struct Moved {
    chain: ChainId,
    level: u32,
    tables: Vec<(TableId, Chain)>,
    pub(super) matchers: Vec<(MatcherId, Matcher)>,
}

/// A matcher, and how many rules and kinds of them it has.
struct Shared {
    key: MatcherKey,
    matcher: Matcher,
    /// What the parser looks for meanwhile.
    _option: Option<Rc<Object>>,
    kinds: usize,
    rules: usize,
    /// With more rules than this, it is laid out anew.
    room: usize,
    is_growing: bool,
}

/// Rules of a matcher that libmlx5 lays out itself. With more of them, growing holds the lock of the whole domain for too long, and a fixed
/// layout is better, of which each part has a lock and a ring of its own. There is none for rules that match the port (`docs/performance.md`
/// has why they match it all the same): libmlx5 44 has no definer with it.
const RESIZABLE: usize = 4_096;
/// A fixed layout has room for so many times the rules that there are, as a power of two: libmlx5's own tables grow by as much.
const GROWTH: u32 = 2;

#[derive(Clone, PartialEq, Eq, Hash)]
struct MatcherKey {
    table: TableId,
    priority: Priority,
    mask: MatchParameter,
    option: Option<GeneveOption>,
}

/// The name of a matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatcherId(u32);

impl Tables {
    /// Makes the table of the first chain, to which no packets come yet.
    pub(super) fn open(library: &Rc<Library>, context: &Context, domain: &Domain) -> Result<Self, CallError> {
        let first = Chain::open(domain, FIRST_LEVEL, None)?;
        let lead = Lead::open(domain, ROOT_ORDER, first.jump.clone(), &BTreeSet::new())?;
        Ok(Self {
            entrances: HashMap::new(),
            chains: HashMap::from([(FIRST, first)]),
            levels: HashMap::new(),
            after: HashMap::new(),
            matchers: Vec::new(),
            free: Vec::new(),
            by_mask: HashMap::new(),
            options: Options::new(context),
            rest: None,
            library: library.clone(),
            domain: domain.clone(),
            lead,
        })
    }

    /// Has packets of these vports come to the table of the first chain, and no others.
    pub(super) fn lead_from(&mut self, vports: &BTreeSet<u16>) -> Result<(), Refusal> {
        self.lead.set(vports).map_err(refuse)
    }

    /// From now on, has packets that match nothing in the table of a later chain do what `rest` says. No such table is open.
    pub(super) fn lead_rest_to(&mut self, rest: &Action) {
        self.rest = Some(rest.clone());
    }

    /// Leads the packets of these tunnels to tables of their own, where nothing matches at first, and those of others no longer.
    pub(super) fn set_entrances(&mut self, entrances: &[Entrance]) -> Result<(), Refusal> {
        self.entrances.retain(|entrance, _| entrances.contains(entrance));
        self.prune();
        entrances.iter().try_for_each(|entrance| self.open_entrance(*entrance))
    }

    /// Packets that hardware cannot unpack miss.
    fn open_entrance(&mut self, entrance: Entrance) -> Result<(), Refusal> {
        if self.entrances.contains_key(&entrance) {
            return Ok(());
        }
        let jump = self.table(&TableId { entrance: Some(entrance), ..FIRST }, LAST_LEVEL)?.jump.clone();
        let first = &self.chains[&FIRST].table;
        let rules = || {
            let miss = Action::default_miss(&self.library)?;
            let rule =
                |order, (mask, value), to: &Action| first.matcher(order, &mask)?.rule(&value, [to.clone()].into());
            let unpacked = entrance.matches().into_iter().map(|found| rule(UNPACKED, found, &jump));
            let others = entrance.all().into_iter().map(|found| rule(NOT_UNPACKED, found, &miss));
            unpacked.chain(others).collect::<Result<_, CallError>>()
        };
        let rules = rules().map_err(refuse)?;
        self.entrances.insert(entrance, rules);
        Ok(())
    }

    /// Returns the level of a table, which is made if need be; without one, that above those of all rules.
    pub(super) fn level(&mut self, table: Option<TableId>) -> Result<u32, Refusal> {
        let Some(table) = table else { return Ok(END) };
        self.table(&table, LAST_LEVEL)?;
        Ok(self.level_of(table.chain))
    }

    /// Returns the level of a chain's tables, or that of the next one if it has none.
    pub(super) fn level_of(&self, chain: ChainId) -> u32 {
        if chain == FIRST.chain {
            return ENTRANCE_LEVEL;
        }
        self.levels.get(&chain).map_or(LAST_LEVEL, |level| level.level)
    }

    /// Returns whether a chain has tables with rules, or such that rules lead to.
    pub(super) fn has_rules_or_ways(&self, chain: ChainId) -> bool {
        let is_used =
            |(id, table): (&TableId, &Chain)| id.chain == chain && (table.matchers > 0 || table.jump.is_shared());
        chain == FIRST.chain || self.chains.iter().any(is_used)
    }

    /// Returns whether tables of a chain may be at a level.
    pub(super) fn can_be_at(&self, chain: ChainId, level: u32) -> bool {
        chain != FIRST.chain && level > ENTRANCE_LEVEL
    }

    /// Makes all tables and matchers of a chain once more at another level, without rules, and returns those that it had.
    pub(super) fn move_chain(&mut self, chain: ChainId, level: u32) -> Result<Moved, Refusal> {
        let made = self.made_at(chain, level).map_err(refuse)?;
        let Some(place) = self.levels.get_mut(&chain) else { return Err(refuse_gone()) };
        let level = std::mem::replace(&mut place.level, level);
        let (tables, matchers) = made;
        Ok(self.exchange(Moved { chain, level, tables, matchers }))
    }

    /// Has a chain have what it had before.
    pub(super) fn take_back(&mut self, old: Moved) {
        if let Some(place) = self.levels.get_mut(&old.chain) {
            place.level = old.level;
        }
        self.exchange(old);
    }

    /// Returns the matcher for rules from now on.
    pub(super) fn matcher_of(&self, id: MatcherId) -> Option<Matcher> {
        Some(self.matchers.get(id.0 as usize)?.as_ref()?.matcher.clone())
    }

    /// Makes the tables and matchers of a chain once more.
    #[expect(clippy::type_complexity, reason = "both are given on at once")]
    fn made_at(
        &self,
        chain: ChainId,
        level: u32,
    ) -> Result<(Vec<(TableId, Chain)>, Vec<(MatcherId, Matcher)>), CallError> {
        let (mut tables, mut matchers) = (Vec::new(), Vec::new());
        for (id, old) in self.chains.iter().filter(|(id, _)| id.chain == chain) {
            let new = Chain { matchers: old.matchers, ..Chain::open(&self.domain, level, self.rest.as_ref())? };
            let shared = (0..).map(MatcherId).zip(&self.matchers);
            let shared = shared.filter_map(|(id, shared)| Some((id, &shared.as_ref()?.key)));
            for (matcher, key) in shared.filter(|(_, key)| key.table == *id) {
                matchers.push((matcher, new.table.matcher(order(key.priority), &key.mask)?));
            }
            tables.push((id.clone(), new));
        }
        Ok((tables, matchers))
    }

    /// Puts tables and matchers of a chain in place of others, which it returns.
    fn exchange(&mut self, moved: Moved) -> Moved {
        let Moved { chain, level, tables, matchers } = moved;
        let exchange = |(id, new): (TableId, Chain)| self.chains.insert(id.clone(), new).map(|old| (id, old));
        let tables = tables.into_iter().filter_map(exchange).collect();
        let matchers = matchers.into_iter().filter_map(|(id, new)| {
            let shared = self.matchers.get_mut(id.0 as usize)?.as_mut()?;
            (shared.room, shared.is_growing) = (RESIZABLE, false);
            Some((id, std::mem::replace(&mut shared.matcher, new)))
        });
        Moved { chain, level, tables, matchers: matchers.collect() }
    }

    /// Returns whether there is a table.
    pub(super) fn is_open(&self, table: &TableId) -> bool {
        self.chains.contains_key(table)
    }

    /// Makes a table, if there is none, that comes neither before nor behind others for certain.
    pub(super) fn open_table(&mut self, table: &TableId) -> Result<(), Refusal> {
        self.table(table, LAST_LEVEL).map(drop)
    }

    /// Returns the tables of a chain with changes that are deferred.
    pub(super) fn after(&self, chain: ChainId) -> &[TableId] {
        self.after.get(&chain).map_or(&[], Vec::as_slice)
    }

    /// Returns a table with changes that are deferred, and with rules, that no rule leads to, and which is none of `begun`.
    pub(super) fn without_a_way(&self, begun: &[TableId]) -> Option<TableId> {
        let is_left = |id: &&TableId| {
            self.chains.get(*id).is_some_and(|chain| chain.matchers > 0 && !chain.jump.is_shared())
                && !begun.contains(id)
        };
        self.after.values().flatten().find(is_left).cloned()
    }

    /// Returns the action that leads to the first chain.
    pub(super) fn first(&self) -> &Action {
        &self.chains[&FIRST].jump
    }

    /// Returns the action that leads from one table to another, which is made if need be. Tables are entered by ascending levels only:
    /// fails if that of `to` is not above that of `from`, and `from` has rules that keep it where it is.
    pub(super) fn jump(&mut self, from: &TableId, to: &TableId) -> Result<Action, Refusal> {
        let level = self.level(Some(to.clone()))?;
        self.keep_before(from, level, 0, format_args!("chain {}", to.chain))?;
        Ok(self.chains[to].jump.clone())
    }

    /// Makes sure that a table comes before that of `to`, of a level, and `between` more.
    pub(super) fn keep_before(
        &mut self,
        table: &TableId,
        level: u32,
        between: u32,
        to: fmt::Arguments<'_>,
    ) -> Result<(), Refusal> {
        let wanted = level.saturating_sub(between + 1);
        self.table(table, wanted.max(ENTRANCE_LEVEL + 1))?;
        if self.level_of(table.chain) <= wanted {
            return Ok(());
        }
        if self.has_rules_or_ways(table.chain) || !self.can_be_at(table.chain, wanted) {
            let reason = format!("the table of {to} is not below that of chain {}", table.chain);
            return Err(Refusal::Combination { reason: reason.into() });
        }
        self.chains.retain(|id, _| id.chain != table.chain);
        self.levels.remove(&table.chain);
        self.after.remove(&table.chain);
        self.table(table, wanted).map(drop)
    }

    /// Returns the matcher for rules of a template, made if need be, and counts one more kind of them.
    pub(super) fn matcher(&mut self, template: &Template) -> Result<(MatcherId, Matcher), Refusal> {
        let (table, priority, mask) = (template.table(), template.priority, template.mask());
        let key = MatcherKey { table: table.clone(), priority, mask: *mask, option: template.option() };
        if let Some(id) = self.by_mask.get(&key).copied()
            && let Some(Some(shared)) = self.matchers.get_mut(id.0 as usize)
        {
            shared.kinds += 1;
            return Ok((id, shared.matcher.clone()));
        }
        let option = template.option().map(|option| self.options.look_for(option)).transpose()?;
        let made = self.table(&table, LAST_LEVEL)?.table.clone();
        let matcher = made.matcher(order(priority), mask).map_err(refuse)?;
        let shared = Shared {
            key: key.clone(),
            matcher: matcher.clone(),
            _option: option,
            kinds: 1,
            rules: 0,
            room: RESIZABLE,
            is_growing: false,
        };
        let shared = Some(shared);
        let id = match self.free.pop() {
            Some(index) => {
                self.matchers[index as usize] = shared;
                MatcherId(index)
            }
            None => {
                self.matchers.push(shared);
                MatcherId(u32::try_from(self.matchers.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.by_mask.insert(key, id);
        if let Some(chain) = self.chains.get_mut(&table) {
            chain.matchers += 1;
        }
        Ok((id, matcher))
    }

    /// Counts one kind of rules less; a matcher without any goes.
    pub(super) fn release(&mut self, id: MatcherId) {
        let Some(place) = self.matchers.get_mut(id.0 as usize) else { return };
        let Some(shared) = place else { return };
        shared.kinds -= 1;
        if shared.kinds > 0 {
            return;
        }
        let Some(Shared { key, matcher, _option, .. }) = place.take() else { return };
        drop(matcher);
        self.free.push(id.0);
        self.by_mask.remove(&key);
        if let Some(chain) = self.chains.get_mut(&key.table) {
            chain.matchers -= 1;
        }
    }

    /// Counts one more rule. Returns whether the matcher has too many by now; its growth is to begin then.
    pub(super) fn add_rule(&mut self, id: MatcherId) -> bool {
        let Some(Some(shared)) = self.matchers.get_mut(id.0 as usize) else { return false };
        shared.rules += 1;
        let begins = shared.rules > shared.room && !shared.is_growing;
        shared.is_growing |= begins;
        begins
    }

    /// Counts one rule less.
    pub(super) fn remove_rule(&mut self, id: MatcherId) {
        if let Some(Some(shared)) = self.matchers.get_mut(id.0 as usize) {
            shared.rules -= 1;
        }
    }

    /// Begins the growth of a matcher: returns the one that takes its place, of fixed layout, for rules from now on. It is asked first:
    /// of matchers with the same priority, libmlx5 puts the newest in front (`dr_matcher_add_to_tbl`). Returns `None` if it does not have
    /// too many rules, or if there is no fixed layout for it, as where its mask takes more than one entry.
    pub(super) fn begin_growth(&mut self, id: MatcherId) -> Option<Matcher> {
        let Some(Some(shared)) = self.matchers.get_mut(id.0 as usize) else { return None };
        if !shared.is_growing {
            // The one that had too many rules is gone, and this one has its place, or it was made anew.
            return None;
        }
        let log_rules = shared.rules.max(1).ilog2() + GROWTH;
        let table = &self.chains.get(&shared.key.table)?.table;
        let made = table.matcher(order(shared.key.priority), &shared.key.mask);
        match made.and_then(|matcher| matcher.set_layout(log_rules).map(|()| matcher)) {
            Ok(matcher) => {
                shared.matcher = matcher.clone();
                shared.room = 1 << log_rules;
                Some(matcher)
            }
            Err(error) => {
                tracing::debug!("a matcher of {} rules stays as it is: {error}", shared.rules);
                (shared.room, shared.is_growing) = (usize::MAX, false);
                None
            }
        }
    }

    /// Ends the growth of a matcher. Returns whether the next one is to begin.
    pub(super) fn end_growth(&mut self, id: MatcherId) -> bool {
        let Some(Some(shared)) = self.matchers.get_mut(id.0 as usize) else { return false };
        shared.is_growing = shared.rules > shared.room;
        shared.is_growing
    }

    /// Returns whether a matcher has a fixed layout.
    pub(super) fn has_fixed_layout(&self, id: MatcherId) -> bool {
        self.matchers.get(id.0 as usize).and_then(Option::as_ref).is_some_and(Shared::has_fixed_layout)
    }

    /// Returns how many matchers have a fixed layout.
    pub(super) fn fixed_layouts(&self) -> usize {
        self.matchers.iter().flatten().filter(|shared| shared.has_fixed_layout()).count()
    }

    /// Lets the tables of chains go that have no rules, and that no rule jumps to.
    pub(super) fn prune(&mut self) {
        let Self { chains, levels, after, .. } = self;
        chains.retain(|id, chain| {
            let is_needed = *id == FIRST || chain.matchers > 0 || chain.jump.is_shared();
            if !is_needed && let Some(level) = levels.get_mut(&id.chain) {
                level.tables -= 1;
            }
            is_needed
        });
        levels.retain(|_, level| level.tables > 0);
        after.retain(|_, tables| {
            tables.retain(|table| chains.contains_key(table));
            !tables.is_empty()
        });
    }

    /// Returns a table, made at `level` if need be, if it is the first of a later chain.
    fn table(&mut self, id: &TableId, level: u32) -> Result<&Chain, Refusal> {
        if !self.chains.contains_key(id) {
            let is_first = id.chain == FIRST.chain;
            let level = if is_first { ENTRANCE_LEVEL } else { self.levels.get(&id.chain).map_or(level, |of| of.level) };
            let rest = self.rest.as_ref().filter(|_| !is_first);
            let chain = Chain::open(&self.domain, level, rest).map_err(refuse)?;
            self.chains.insert(id.clone(), chain);
            if !is_first {
                self.levels.entry(id.chain).or_insert(Level { level, tables: 0 }).tables += 1;
            }
            if id.deferred.is_some() {
                self.after.entry(id.chain).or_default().push(id.clone());
            }
        }
        Ok(&self.chains[id])
    }
}

impl Shared {
    fn has_fixed_layout(&self) -> bool {
        self.room != RESIZABLE && self.room != usize::MAX
    }
}

impl Chain {
    fn open(domain: &Domain, level: u32, rest: Option<&Action>) -> Result<Self, CallError> {
        let table = domain.table(level)?;
        let jump = Action::to_table(&table)?;
        let rest = rest.map(|rest| lead_rest_to(&table, rest)).transpose()?;
        Ok(Self { table, jump, matchers: 0, _rest: rest })
    }
}

fn refuse_gone() -> Refusal {
    Refusal::Device { reason: "the tables of the chain are gone".into() }
}

/// Has the packets that match nothing in a table do what `rest` says.
pub(super) fn lead_rest_to(table: &Table, rest: &Action) -> Result<Rule, CallError> {
    let everything = MatchParameter::default();
    table.matcher(u16::MAX, &everything)?.rule(&everything, [rest.clone()].into())
}

/// The order of what comes in front of all rules of flows: packets of tunnels that hardware unpacks, and those that it does not.
const UNPACKED: u16 = 0;
const NOT_UNPACKED: u16 = 1;

/// The order of a matcher among those of its table: the highest priority comes first.
fn order(priority: Priority) -> u16 {
    NOT_UNPACKED + 1 + u16::from(Priority::MAX - priority.get())
}
