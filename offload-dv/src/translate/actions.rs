//! What a flow does, in the order in which a rule can do it: take tunnel headers and tags off, rewrite, put tags and tunnel headers on, and
//! send on.

use sluice_flow::ChainId;
use sluice_flow::action::{Action, ActionKind, Conntrack, Encapsulation, FieldSet, VlanTag};
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use super::guarantees::Guarantees;
use super::headers::{self, Wrapping};
use super::modify::Modifications;
use super::tracking::{self, Tracking};
use super::vports::{UPLINK, Vports};

/// As many tags as libmlx5 puts on (`MAX_VLANS`).
const MOST_TAGS: usize = 2;

/// What a rule does besides counting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Where the connection of the packet is looked up first: all else is done to packets whose connection is found.
    pub tracking: Option<Tracking>,
    /// Whether tunnel headers are taken off first.
    pub unwraps: bool,
    /// VLAN tags that are taken off then.
    pub pops: usize,
    /// Modify actions of the PRM.
    pub modifications: Box<[u64]>,
    /// Tags that are put on, the innermost first.
    pub pushes: Vec<Tag>,
    /// Tunnel headers that are put on, and the next hop that the packet goes to then, and nowhere else.
    pub wraps: Option<Wrapping>,
    /// Vports that a copy of the packet goes to, each once.
    pub outputs: Vec<u16>,
    /// Where the packet is looked up again.
    pub jump: Option<ChainId>,
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The tag protocol.
    pub tpid: u16,
    /// Priority, CFI and number.
    pub tci: u16,
}

pub(super) fn translate(actions: &[Action], guarantees: &Guarantees, vports: &dyn Vports) -> Result<Plan, Refusal> {
    let mut planner = Planner {
        guarantees,
        vports,
        plan: Plan::default(),
        modifications: Modifications::default(),
        least_ttl: guarantees.least_ttl,
        is_cleared: false,
        mark: guarantees.mark,
        outer: None,
    };
    for action in actions {
        planner.take(action)?;
    }
    let Planner { mut plan, mut modifications, is_cleared, .. } = planner;
    if is_cleared && plan.jump.is_some() {
        modifications.push(&tracking::clear());
    }
    plan.modifications = modifications.into_words();
    // Nobody sees what is done to a packet that goes nowhere.
    if !plan.is_sent() && plan.jump.is_none() {
        return Ok(Plan { tracking: plan.tracking, ..Plan::default() });
    }
    // One that goes to another chain may miss there, and must be there as it came in.
    plan.unwraps = guarantees.entrance.is_some() && plan.jump.is_none();
    Ok(plan)
}

impl Plan {
    fn is_sent(&self) -> bool {
        !self.outputs.is_empty() || self.wraps.is_some()
    }
}

struct Planner<'a> {
    guarantees: &'a Guarantees,
    vports: &'a dyn Vports,
    plan: Plan,
    modifications: Modifications,
    /// The time to live or the hop limit is at least this, after what was done so far.
    least_ttl: u8,
    /// What is known of the packet's connection is to be forgotten.
    is_cleared: bool,
    /// The mark of congestion, after what was done so far.
    mark: Option<u8>,
    /// What tunnel ports are to put on.
    outer: Option<Encapsulation>,
}

impl Planner<'_> {
    fn take(&mut self, action: &Action) -> Result<(), Refusal> {
        if self.plan.jump.is_some() {
            return Err(refuse(action.kind(), "nothing can follow a recirculation here"));
        }
        match action {
            Action::Output(port) => self.output(*port),
            Action::SetTunnel(set) => {
                self.outer = Some(Encapsulation::new(set)?);
                Ok(())
            }
            Action::Recirc(chain) => {
                if self.outer.is_some() {
                    return Err(refuse(
                        ActionKind::Recirc,
                        "an outer header was set before, which would have to go along",
                    ));
                }
                if self.changes_packets() {
                    // A packet that misses there goes to its representor, and must be there as it came in.
                    return Err(refuse(ActionKind::Recirc, "the packet was changed before, and may miss there"));
                }
                if self.plan.is_sent() {
                    return Err(refuse(ActionKind::Recirc, "copies were sent before"));
                }
                self.plan.jump = Some(*chain);
                Ok(())
            }
            change if self.plan.is_sent() => {
                Err(refuse(change.kind(), "copies were sent before, which would be changed, too"))
            }
            Action::Set(_) | Action::DecTtl(_) if !self.plan.pushes.is_empty() => {
                Err(refuse(action.kind(), "a tag was put on before"))
            }
            Action::Conntrack(ct) => self.track(ct),
            Action::ConntrackClear => {
                self.is_cleared = true;
                Ok(())
            }
            Action::Set(set) => self.set(set),
            Action::DecTtl(_) => self.decrement_ttl(),
            Action::PopVlan => self.pop_vlan(),
            Action::PushVlan(tag) => self.push_vlan(tag),
            other => Err(refuse(other.kind(), "this backend cannot do it")),
        }
    }

    fn track(&mut self, ct: &Conntrack) -> Result<(), Refusal> {
        if self.plan.tracking.is_some() {
            return Err(refuse(ActionKind::Ct, "the connection is looked up once in a flow"));
        }
        if self.changes_packets() {
            // A packet of no connection goes to its representor, and must be there as it came in.
            return Err(refuse(ActionKind::Ct, "the packet was changed before, and may be of no connection"));
        }
        self.plan.tracking = Some(tracking::translate(ct, self.guarantees, self.vports)?);
        self.is_cleared = false;
        Ok(())
    }

    fn output(&mut self, port: PortNumber) -> Result<(), Refusal> {
        if self.plan.wraps.is_some() {
            return Err(refuse(ActionKind::Output, "a copy went into a tunnel before"));
        }
        let Some(tunnel) = self.vports.tunnel(port) else {
            let vport = self.vports.vport(port)?;
            if self.plan.outputs.contains(&vport) {
                return Err(refuse(ActionKind::Output, "a copy goes there already"));
            }
            self.plan.outputs.push(vport);
            return Ok(());
        };
        if self.plan.is_sent() {
            return Err(refuse(ActionKind::Output, "a copy that goes into a tunnel must be the only one"));
        }
        if self.guarantees.from.is_none_or(|vport| vport == UPLINK) {
            return Err(refuse(ActionKind::Output, "the device puts tunnel headers on packets from functions only"));
        }
        let Some(outer) = &self.outer else {
            return Err(refuse(ActionKind::Output, "a tunnel port needs set(tunnel()) before"));
        };
        self.plan.wraps = Some(Wrapping::new(outer, &tunnel, self.mark, self.vports)?);
        Ok(())
    }

    fn set(&mut self, set: &FieldSet) -> Result<(), Refusal> {
        self.modifications.set(set, self.guarantees)?;
        if let Some((ttl, mask)) = set.get(Field::Ipv4Ttl).or_else(|| set.get(Field::Ipv6Hlimit)) {
            // Of bits that are not set nothing is known any more.
            self.least_ttl = u8::try_from(ttl & mask).unwrap_or_default();
        }
        if let Some((tos, mask)) = set.get(Field::Ipv4Tos).or_else(|| set.get(Field::Ipv6Tclass)) {
            self.mark = headers::mark_after(self.mark, tos, mask);
        }
        Ok(())
    }

    /// What is to be done with a packet whose time to live ends here needs no room in the rule: there is none.
    fn decrement_ttl(&mut self) -> Result<(), Refusal> {
        if self.least_ttl < 2 {
            return Err(refuse(ActionKind::DecTtl, "the match does not say that the time to live is 2 or more"));
        }
        self.least_ttl -= 1;
        self.modifications.decrement_ttl(self.guarantees)
    }

    fn pop_vlan(&mut self) -> Result<(), Refusal> {
        if !self.modifications.is_empty() || !self.plan.pushes.is_empty() {
            return Err(refuse(ActionKind::PopVlan, "the device takes tags off before it changes anything else"));
        }
        if self.guarantees.tags.is_none_or(|tags| tags <= self.plan.pops) {
            return Err(refuse(ActionKind::PopVlan, "the match does not say that there is a tag"));
        }
        self.plan.pops += 1;
        Ok(())
    }

    fn push_vlan(&mut self, tag: &VlanTag) -> Result<(), Refusal> {
        if !matches!(tag.tpid, 0x8100 | 0x88a8) {
            return Err(refuse(ActionKind::PushVlan, "the device knows tags of 0x8100 and 0x88a8 only"));
        }
        if !tag.cfi {
            return Err(refuse(ActionKind::PushVlan, "the CFI bit says that there is a tag and must be set"));
        }
        if self.plan.pushes.len() == MOST_TAGS {
            return Err(refuse(ActionKind::PushVlan, "the device puts on two tags at most"));
        }
        let tci = u16::from(tag.pcp) << 13 | tag.vid & 0xfff;
        self.plan.pushes.push(Tag { tpid: tag.tpid, tci });
        Ok(())
    }

    fn changes_packets(&self) -> bool {
        self.plan.pops > 0 || !self.plan.pushes.is_empty() || !self.modifications.is_empty()
    }
}

fn refuse(action: ActionKind, reason: &'static str) -> Refusal {
    Refusal::Action { action, reason: reason.into() }
}
