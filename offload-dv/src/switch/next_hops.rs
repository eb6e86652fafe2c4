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

/// What has become of packets to a next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Led {
    /// Whether rules lead there.
    pub is_used: bool,
    /// Why they are dropped although there is a way. Flows are refused for the same until the device takes it.
    pub refused: Option<Refusal>,
}

struct NextHop {
    /// `None` until something is told.
    way: Option<Result<Way, String>>,
    /// Whether packets are dropped although there is a way, because the device had no room for what sends them there.
    is_behind: bool,
    /// There once a flow leads to it.
    table: Option<HopTable>,
    /// Whether a flow has asked for it, or the way was found that flows waited for, since those were last let go that nobody asks for.
    was_asked: bool,
}

/// What packets go through. What is first goes first.
struct HopTable {
    /// `None` while there is no room for two.
    rule: Option<Rule>,
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
            NextHop { way: None, is_behind: false, table: None, was_asked: true }
        });
        next.was_asked = true;
        let wait = |reason: &str| Err(no_way(hop, reason));
        let Some(way) = &next.way else { return wait("the way there is being looked up") };
        if let Err(reason) = way {
            return wait(reason);
        }
        let table = match &mut next.table {
            Some(table) => table,
            none => none.insert(HopTable::make(domain, hop, way, actions)?),
        };
        if next.is_behind {
            table.rule = Some(make_rule(&table.matcher, hop, way, actions)?);
            next.is_behind = false;
        }
        Ok(table.jump.clone())
    }

    /// Says which way packets to a next hop go from now on, or why none. Packets that find none are dropped.
    pub(super) fn set(&mut self, hop: Hop, way: Result<Way, String>, actions: &mut Actions) -> Result<Led, Refusal> {
        let Some(next) = self.known.get_mut(&hop) else { return Ok(Led::default()) };
        let refused = match &mut next.table {
            Some(table) => table.lead(hop, &way, actions)?,
            None => None,
        };
        next.was_asked |= way.is_ok();
        next.is_behind = refused.is_some();
        next.way = Some(way);
        Ok(Led { is_used: next.is_used(), refused })
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
        let rule = Some(make_rule(&matcher, hop, way, actions)?);
        Ok(Self { rule, matcher, jump })
    }

    /// Leads packets that way from now on, or drops them, if there is none or the device refuses it, and returns why then. Whatever they did
    /// before must end: it may send them to somebody else by now.
    fn lead(&mut self, hop: Hop, way: &Result<Way, String>, actions: &mut Actions) -> Result<Option<Refusal>, Refusal> {
        // Made before the old one goes.
        let refusal = match make_rule(&self.matcher, hop, way, actions) {
            Ok(rule) => {
                self.rule = Some(rule);
                return Ok(None);
            }
            Err(refusal) => refusal,
        };
        let list = actions.drop_all()?;
        let drop_rule = || self.matcher.rule(&MatchParameter::default(), list.clone()).map_err(refuse);
        let rule = match drop_rule() {
            Ok(rule) => rule,
            Err(_) => {
                self.rule = None;
                drop_rule()?
            }
        };
        self.rule = Some(rule);
        Ok(way.is_ok().then_some(refusal))
    }
}

/// The refusal of a flow that leads to a next hop to which there is no way.
pub(crate) fn no_way(hop: Hop, reason: &str) -> Refusal {
    let reason = format!("{}: {reason}", hop.destination).into();
    Refusal::Action { action: ActionKind::SetTunnel, reason }.until(Cause::Neighbour(Some(hop.destination)))
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
