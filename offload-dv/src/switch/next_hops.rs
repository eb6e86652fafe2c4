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
    /// `None` for one that was asked for, and of which nothing was told yet.
    known: HashMap<Hop, Option<NextHop>>,
    /// Those that were asked for since this was last taken.
    asked: Vec<Hop>,
    domain: Domain,
}

struct NextHop {
    way: Result<Way, String>,
    /// There once a flow leads to it.
    table: Option<HopTable>,
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
            None
        });
        let wait = |reason: &str| {
            let reason = format!("{}: {reason}", hop.destination).into();
            Err(Refusal::Action { action: ActionKind::SetTunnel, reason }
                .until(Cause::Neighbour(Some(hop.destination))))
        };
        let Some(next) = next else { return wait("the way there is being looked up") };
        if let Err(reason) = &next.way {
            return wait(reason);
        }
        if next.table.is_none() {
            next.table = Some(HopTable::make(domain, hop, &next.way, actions)?);
        }
        match &next.table {
            Some(table) => Ok(table.jump.clone()),
            None => wait("there is no table for it"),
        }
    }

    /// Says which way packets to a next hop go from now on, or why none. Packets that find none are dropped, as the kernel drops them.
    pub(super) fn set(&mut self, hop: Hop, way: Result<Way, String>, actions: &mut Actions) -> Result<(), Refusal> {
        let Some(next) = self.known.get_mut(&hop) else { return Ok(()) };
        let next = next.get_or_insert_with(|| NextHop { way: Err(String::new()), table: None });
        if let Some(table) = &mut next.table {
            // Made before the old one goes.
            table.rule = table.rule(hop, &way, actions)?;
        }
        next.way = way;
        Ok(())
    }

    /// Returns those that were asked for and are not known yet.
    pub(super) fn take_asked(&mut self) -> Vec<Hop> {
        std::mem::take(&mut self.asked)
    }

    /// Lets those go that no rule leads to, and returns them.
    pub(super) fn prune(&mut self) -> Vec<Hop> {
        let is_used = |next: &Option<NextHop>| match next {
            // Flows may wait for it.
            None | Some(NextHop { way: Err(_), .. }) => true,
            Some(next) => next.table.as_ref().is_some_and(|table| table.jump.is_shared()),
        };
        self.known.extract_if(|_, next| !is_used(next)).map(|(hop, _)| hop).collect()
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
