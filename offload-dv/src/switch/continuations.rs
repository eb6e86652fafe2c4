//! Rules behind the first one of a flow, which do what one rule cannot: change a packet after copies of it were sent, or go on with it
//! once its connection is found.
//!
//! The first rule notes the number of the flow in a register ([`CONTINUATION`]), and leads to tables where rules match that number. Tables
//! are entered by ascending levels only, so there is one for each level, which all flows share. A flow has one rule at most in each: one
//! number is enough for all of its rules. They are made before the first one and go after it, so that a packet that met the first meets
//! all others.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sluice_flow::Cause;
use sluice_flow::refusal::Refusal;

use super::ids::Ids;
use super::refusal::refuse;
use super::stages::Stage;
use super::tables::MatcherId;
use crate::mlx5::{Action, Domain, Rule};
use crate::translate::registers::CONTINUATION;

/// Packets that a rule is for.
#[derive(Clone, Copy)]
pub(super) struct Of {
    /// The level of its table.
    pub(super) level: u32,
    /// Where they come from, if that is known.
    pub(super) vport: Option<u16>,
    /// What a meter gave them.
    pub(super) color: Option<u32>,
}

/// The tables, and the numbers of flows.
pub(super) struct Continuations {
    tables: BTreeMap<u32, Stage>,
    numbers: Ids,
    /// Of flows that are gone, until no packet is between their rules.
    left: Vec<Continuation>,
    /// What packets do that match nothing in a table, if they do not go to their representor.
    rest: Option<Action>,
    domain: Domain,
}

/// The rules of a flow behind its first one.
pub(super) struct Continuation {
    /// What packets carry from one rule to the next.
    pub(super) number: u32,
    rules: Vec<Rule>,
}

/// What a flow of several rules has besides its first one.
pub(super) struct Continued {
    /// That of the first rule.
    pub(super) matcher: MatcherId,
    pub(super) continuation: Continuation,
}

impl Continuations {
    pub(super) fn new(domain: &Domain) -> Self {
        Self {
            tables: BTreeMap::new(),
            numbers: Ids::of(CONTINUATION),
            left: Vec::new(),
            rest: None,
            domain: domain.clone(),
        }
    }

    /// From now on, has packets that match nothing in a table do what `rest` says. No table is open.
    pub(super) fn lead_rest_to(&mut self, rest: &Action) {
        self.rest = Some(rest.clone());
    }

    /// Begins the rules of a flow. Fails if all numbers are taken.
    pub(super) fn begin(&mut self) -> Result<Continuation, Refusal> {
        let number = self.numbers.take().ok_or_else(|| {
            let reason = "there are as many flows of several rules as a register tells apart";
            Refusal::Device { reason: reason.into() }.until(Cause::Room)
        })?;
        Ok(Continuation { number, rules: Vec::new() })
    }

    /// Adds a rule to a flow. Those that it leads to are there already.
    pub(super) fn add(
        &mut self,
        continuation: &mut Continuation,
        Of { level, vport, color }: Of,
        actions: Box<[Action]>,
        count: Option<Action>,
    ) -> Result<(), Refusal> {
        let number = continuation.number;
        let rule = self.table(level)?.follow(number, vport, color, actions, count).map_err(refuse)?;
        continuation.rules.push(rule);
        Ok(())
    }

    /// Returns what leads to the table of a level.
    pub(super) fn jump(&mut self, level: u32) -> Result<Action, Refusal> {
        Ok(self.table(level)?.jump.clone())
    }

    /// Returns whether the numbers of flows that are gone must be freed before there is one for another flow.
    pub(super) fn must_settle(&self) -> bool {
        self.numbers.only_rest()
    }

    /// Gives the rules of a flow up that never had a first one.
    pub(super) fn give_up(&mut self, Continuation { number, rules }: Continuation) {
        drop(rules);
        self.numbers.rest(number);
    }

    /// Lets the rules of a flow go, whose first one is gone.
    pub(super) fn leave(&mut self, continuation: Continuation) {
        self.numbers.rest(continuation.number);
        self.left.push(continuation);
    }

    /// Frees what belonged to flows that are gone: no packet is under way between their rules.
    pub(super) fn settle(&mut self) {
        self.left.clear();
        self.numbers.settle();
    }

    /// Lets the tables go that nothing leads to.
    pub(super) fn prune(&mut self) {
        self.tables.retain(|_, table| table.jump.is_shared());
    }

    fn table(&mut self, level: u32) -> Result<&mut Stage, Refusal> {
        match self.tables.entry(level) {
            Entry::Occupied(found) => Ok(found.into_mut()),
            Entry::Vacant(place) => {
                Ok(place.insert(Stage::open(&self.domain, level, self.rest.as_ref()).map_err(refuse)?))
            }
        }
    }
}
