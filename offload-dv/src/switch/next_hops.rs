//! A table for each next hop, which gives packets with new outer headers their Ethernet addresses and sends them out.
//!
//! Flows that put headers on lead there, however many they are: if a neighbour has another address from now on, one rule is made and one
//! goes.

use std::collections::HashMap;
use std::net::IpAddr;

use sluice_flow::Cause;
use sluice_flow::action::ActionKind;
use sluice_flow::refusal::Refusal;

use super::actions::Actions;
use super::refusal::refuse;
use super::tables::END;
use crate::mlx5::{Action, CallError, Domain, MatchParameter, Matcher, Rule, Table};
use crate::translate::{Hop, address_words};

/// The level of their tables, above those of all rules of flows.
const LEVEL: u32 = END + 1;

/// What packets get on their way to a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The Ethernet address of the device by which they leave.
    pub egress_mac: [u8; 6],
    /// The Ethernet address of the next hop.
    pub mac: [u8; 6],
    /// The address that they come from, for flows that do not say it.
    pub source: IpAddr,
}

/// The next hops of an eswitch.
pub(super) struct NextHops {
    known: HashMap<Hop, NextHop>,
    /// Those that nobody knew that were asked for since this was last taken.
    asked: Vec<Hop>,
    domain: Domain,
}

struct NextHop {
    /// `None` until something is told.
    way: Option<Result<Way, String>>,
    /// There once a flow leads to it.
    table: Option<HopTable>,
    /// Whether a flow has asked for it, or the way was found that flows waited for, since those were last let go that nobody asks for.
    was_asked: bool,
}

/// What packets go through. What is first goes first.
struct HopTable {
    rule: Rule,
    matcher: Matcher,
    jump: Action,
}

impl NextHops {
    pub(super) fn new(domain: &Domain) -> Self {
        Self { known: HashMap::new(), asked: Vec::new(), domain: domain.clone() }
    }

    /// Returns the action that leads packets to a next hop. Fails if there is no way to it, or none is known yet.
    pub(super) fn jump(&mut self, hop: Hop, actions: &mut Actions) -> Result<Action, Refusal> {
        let Self { known, asked, domain } = self;
        let next = known.entry(hop).or_insert_with(|| {
            asked.push(hop);
            NextHop { way: None, table: None, was_asked: true }
        });
        next.was_asked = true;
        let wait = |reason: &str| {
            let reason = format!("{}: {reason}", hop.destination).into();
            Err(Refusal::Action { action: ActionKind::SetTunnel, reason }
                .until(Cause::Neighbour(Some(hop.destination))))
        };
        let Some(way) = &next.way else { return wait("the way there is being looked up") };
        if let Err(reason) = way {
            return wait(reason);
        }
        if next.table.is_none() {
            next.table = Some(HopTable::make(domain, hop, way, actions)?);
        }
        match &next.table {
            Some(table) => Ok(table.jump.clone()),
            None => wait("there is no table for it"),
        }
    }

    /// Says which way packets to a next hop go from now on, or why none. Packets that find none are dropped, as the kernel drops them.
    pub(super) fn set(&mut self, hop: Hop, way: Result<Way, String>, actions: &mut Actions) -> Result<(), Refusal> {
        let Some(next) = self.known.get_mut(&hop) else { return Ok(()) };
        if let Some(table) = &mut next.table {
            // Made before the old one goes.
            table.rule = table.rule(hop, &way, actions)?;
        }
        next.was_asked |= way.is_ok();
        next.way = Some(way);
        Ok(())
    }

    /// Returns those that were asked for and are not known yet.
    pub(super) fn take_asked(&mut self) -> Vec<Hop> {
        std::mem::take(&mut self.asked)
    }

    /// Lets those go that rules led to and no rule leads to any more, and returns them.
    pub(super) fn prune(&mut self) -> Vec<Hop> {
        let is_left = |next: &NextHop| match next {
            NextHop { way: Some(Ok(_)), table: Some(_), .. } => !next.is_used(),
            // Flows may wait for it, or be about to be tried again.
            _ => false,
        };
        self.known.extract_if(|_, next| is_left(next)).map(|(hop, _)| hop).collect()
    }

    /// Lets those go that no rule leads to, and that nobody has asked for since this was last done, and returns them.
    pub(super) fn prune_unasked(&mut self) -> Vec<Hop> {
        let is_left = |next: &mut NextHop| !std::mem::take(&mut next.was_asked) && !next.is_used();
        self.known.extract_if(|_, next| is_left(next)).map(|(hop, _)| hop).collect()
    }
}

impl NextHop {
    /// Returns whether a rule leads to it.
    fn is_used(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.jump.is_shared())
    }
}

impl HopTable {
    fn make(domain: &Domain, hop: Hop, way: &Result<Way, String>, actions: &mut Actions) -> Result<Self, Refusal> {
        let everything = MatchParameter::default();
        let parts = || {
            let table: Table = domain.table(LEVEL)?;
            Ok::<_, CallError>((Action::to_table(&table)?, table.matcher(0, &everything)?))
        };
        let (jump, matcher) = parts().map_err(refuse)?;
        let rule = make_rule(&matcher, hop, way, actions)?;
        Ok(Self { rule, matcher, jump })
    }

    fn rule(&self, hop: Hop, way: &Result<Way, String>, actions: &mut Actions) -> Result<Rule, Refusal> {
        make_rule(&self.matcher, hop, way, actions)
    }
}

fn make_rule(matcher: &Matcher, hop: Hop, way: &Result<Way, String>, actions: &mut Actions) -> Result<Rule, Refusal> {
    let list = match way {
        Ok(Way { egress_mac, mac, source }) => {
            let source = Some(*source).filter(|_| hop.source.is_none());
            actions.rewrite_and_send(address_words(*egress_mac, *mac, source), hop.underlay)?
        }
        Err(_) => actions.drop_all()?,
    };
    matcher.rule(&MatchParameter::default(), list).map_err(refuse)
}
