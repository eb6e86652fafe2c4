//! What a flow does, in the order in which a rule can do it: take tunnel headers and tags off, rewrite, put tags and tunnel headers on, and
//! send on. What a flow does to a packet after copies of it were sent is for rules behind the first.

use std::sync::Arc;

use sluice_flow::ChainId;
use sluice_flow::action::{Action, ActionKind, Conntrack, Encapsulation, FieldSet, VlanTag};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::meter::MeterId;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use super::changes::Changes;
use super::guarantees::Guarantees;
use super::headers::{self, Hop, Wrapping};
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
    /// The meter that packets pass on their way to the rule behind; those that do not are dropped.
    pub meter: Option<MeterId>,
    /// Changes that are deferred until the packet is sent on from there.
    pub deferred: Option<Arc<Changes>>,
    /// Where copies of some packets go, all of which go on to the rule behind.
    pub sampling: Option<Sampling>,
    /// What rules behind this one do, each with a packet as it is then.
    pub behind: Vec<Plan>,
}

/// Copies of some packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sampling {
    /// One in so many packets, by chance.
    pub ratio: u32,
    /// Vports that a copy goes to, each once.
    pub outputs: Vec<u16>,
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The tag protocol.
    pub tpid: u16,
    /// Priority, CFI and number.
    pub tci: u16,
}

/// Translates actions on packets of which `guarantees` are known after the changes that were deferred.
pub(super) fn translate(
    actions: &[Action],
    guarantees: &Guarantees,
    deferred: Option<&Changes>,
    vports: &dyn Vports,
) -> Result<Plan, Refusal> {
    let mut planner = Planner {
        guarantees,
        vports,
        before: Vec::new(),
        plan: Plan::default(),
        changes: deferred.cloned().unwrap_or_default(),
        tags: guarantees.tags,
        least_ttl: guarantees.least_ttl,
        is_cleared: false,
        mark: guarantees.mark,
        outer: None,
    };
    for action in actions {
        planner.take(action)?;
    }
    let plan = planner.finish();
    if guarantees.entrance.is_none() {
        return Ok(plan);
    }
    match (plan.chain(), plan.is_metered()) {
        (Some(_), true) => {
            let reason = "a packet goes to another chain with its tunnel headers, which the meter is not to count";
            Err(refuse(ActionKind::Meter, reason))
        }
        // One that goes to another chain may miss there, and must be there as it came in.
        (Some(_), false) => Ok(plan),
        (None, _) => Ok(Plan { unwraps: plan.leads(), ..plan }),
    }
}

/// Returns whether they write headers that later fragments do not have.
pub(super) fn need_whole(actions: &[Action]) -> bool {
    let is_transport = |set: &FieldSet| matches!(set.attribute, Attribute::Tcp | Attribute::Udp);
    actions.iter().any(|action| matches!(action, Action::Set(set) if is_transport(set)))
}

impl Plan {
    /// Returns how many rules there are behind this one, one behind the other or side by side.
    pub fn rules_behind(&self) -> u32 {
        self.behind.iter().map(|plan| 1 + plan.rules_behind()).sum()
    }

    /// Returns the chain where packets are looked up again.
    pub fn chain(&self) -> Option<ChainId> {
        self.jump.or_else(|| self.behind.iter().find_map(Self::chain))
    }

    /// Returns the next hops that it leads to, or another one behind it.
    pub fn hops(&self) -> Vec<Hop> {
        let behind = self.behind.iter().flat_map(Self::hops);
        self.wraps.iter().map(|wrapping| wrapping.hop).chain(behind).collect()
    }

    /// Returns whether it has a tag be taken off, or another one behind it.
    pub fn takes_tags_off(&self) -> bool {
        self.pops > 0 || self.behind.iter().any(Self::takes_tags_off)
    }

    /// Returns whether it has a tag be put on, or another one behind it.
    pub fn puts_tags_on(&self) -> bool {
        !self.pushes.is_empty() || self.behind.iter().any(Self::puts_tags_on)
    }

    /// Whether packets pass a meter, here or behind.
    fn is_metered(&self) -> bool {
        self.meter.is_some() || self.behind.iter().any(Self::is_metered)
    }

    /// Whether it changes packets itself.
    fn changes_packets(&self) -> bool {
        self.pops > 0 || !self.pushes.is_empty() || !self.modifications.is_empty()
    }

    /// Whether packets go somewhere.
    pub(super) fn leads(&self) -> bool {
        self.is_sent() || self.jump.is_some()
    }

    /// Whether packets go somewhere but to another chain.
    fn is_sent(&self) -> bool {
        !self.outputs.is_empty() || self.wraps.is_some() || self.sampling.is_some() || !self.behind.is_empty()
    }

    /// Puts headers on in this rule, if the only one behind does nothing else, and no copy goes without them.
    fn with_headers_at_once(mut self) -> Self {
        if self.outputs.is_empty()
            && self.sampling.is_none()
            && self.meter.is_none()
            && let [Self { wraps: Some(_), .. }] = &self.behind[..]
        {
            self.wraps = self.behind.pop().and_then(|plan| plan.wraps);
        }
        self
    }
}

struct Planner<'a> {
    guarantees: &'a Guarantees,
    vports: &'a dyn Vports,
    /// Rules before the one that is planned, from the first on: each leads to the next.
    before: Vec<Plan>,
    plan: Plan,
    /// What is done to packets before the plan sends them.
    changes: Changes,
    /// Tags that a packet has at least, after what was done so far; `None` if the match does not say.
    tags: Option<usize>,
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
                if self.has_sent() {
                    let reason = "copies were sent before, and a packet that misses there would be sent again";
                    return Err(refuse(ActionKind::Recirc, reason));
                }
                if self.before.iter().any(Plan::changes_packets) {
                    // One that misses goes to its representor, and must be there as it came in.
                    let reason = "the packet was changed before a meter, and may miss there";
                    return Err(refuse(ActionKind::Recirc, reason));
                }
                self.plan.jump = Some(*chain);
                Ok(())
            }
            change if self.plan.is_sent() => {
                self.begin_behind();
                self.take(change)
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
            Action::Meter(id) => {
                self.meter(*id);
                Ok(())
            }
            Action::Sample { probability, actions } => self.sample(*probability, actions),
            Action::Clone(actions) => self.clone_packet(actions),
            other => Err(refuse(other.kind(), why_not(other.kind()))),
        }
    }

    fn track(&mut self, ct: &Conntrack) -> Result<(), Refusal> {
        if self.plan.tracking.is_some() {
            return Err(refuse(ActionKind::Ct, "the connection is looked up once in a flow"));
        }
        if self.has_sent() {
            let reason = "copies were sent before, and a packet of no connection would be sent again";
            return Err(refuse(ActionKind::Ct, reason));
        }
        if !self.before.is_empty() {
            return Err(refuse(
                ActionKind::Ct,
                "a meter was passed before, and a packet of no connection would pass it again",
            ));
        }
        if self.changes.readdress() {
            // A packet of no connection goes to its representor, and must be there as it came in: changes wait until one is found.
            let reason =
                "addresses or ports were set before, and the device looks the connection up by those that came in";
            return Err(refuse(ActionKind::Ct, reason));
        }
        self.plan.tracking = Some(tracking::translate(ct, self.guarantees, self.vports)?);
        self.is_cleared = false;
        Ok(())
    }

    fn output(&mut self, port: PortNumber) -> Result<(), Refusal> {
        let Some(tunnel) = self.vports.tunnel(port) else {
            let vport = self.vports.vport(port)?;
            if self.plan.outputs.contains(&vport) {
                // A packet has one copy for a port at a time.
                self.begin_behind();
            }
            self.plan.outputs.push(vport);
            return Ok(());
        };
        if self.guarantees.from.is_none_or(|vport| vport == UPLINK) {
            return Err(refuse(ActionKind::Output, "the device puts tunnel headers on packets from functions only"));
        }
        let Some(outer) = &self.outer else {
            return Err(refuse(ActionKind::Output, "a tunnel port needs set(tunnel()) before"));
        };
        let wraps = Some(Wrapping::new(outer, &tunnel, self.mark, self.vports)?);
        self.plan.behind.push(Plan { wraps, ..Plan::default() });
        Ok(())
    }

    fn set(&mut self, set: &FieldSet) -> Result<(), Refusal> {
        self.changes.set(set, self.guarantees)?;
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
        if self.tags.is_some_and(|tags| tags > 1) {
            // `execute_dec_ttl` goes by `skb->protocol`, which is that of the second tag.
            return Err(refuse(ActionKind::DecTtl, "behind two tags OVS leaves the time to live as it is"));
        }
        self.least_ttl -= 1;
        self.changes.decrement_ttl(self.guarantees)
    }

    fn pop_vlan(&mut self) -> Result<(), Refusal> {
        let left = self.tags.and_then(|tags| tags.checked_sub(1));
        if left.is_none() {
            return Err(refuse(ActionKind::PopVlan, "the match does not say that there is a tag"));
        }
        self.tags = left;
        self.changes.pop_vlan();
        Ok(())
    }

    fn push_vlan(&mut self, tag: &VlanTag) -> Result<(), Refusal> {
        if !matches!(tag.tpid, 0x8100 | 0x88a8) {
            return Err(refuse(ActionKind::PushVlan, "the device knows tags of 0x8100 and 0x88a8 only"));
        }
        if !tag.cfi {
            return Err(refuse(ActionKind::PushVlan, "the CFI bit says that there is a tag and must be set"));
        }
        if self.changes.pushes.len() == MOST_TAGS {
            return Err(refuse(ActionKind::PushVlan, "the device puts on two tags at most"));
        }
        let tci = u16::from(tag.pcp) << 13 | tag.vid & 0xfff;
        self.changes.pushes.push(Tag { tpid: tag.tpid, tci });
        self.tags = self.tags.map(|tags| tags + 1);
        Ok(())
    }

    /// A copy starts from what the packet is now, and what is done to it is not done to the packet.
    fn clone_packet(&mut self, actions: &[Action]) -> Result<(), Refusal> {
        let mut copy = Planner {
            guarantees: self.guarantees,
            vports: self.vports,
            before: Vec::new(),
            plan: Plan::default(),
            changes: Changes::default(),
            tags: self.tags,
            least_ttl: self.least_ttl,
            is_cleared: false,
            mark: self.mark,
            outer: self.outer.clone(),
        };
        for action in actions {
            if matches!(action.kind(), ActionKind::Ct | ActionKind::Meter | ActionKind::Recirc | ActionKind::Sample) {
                return Err(refuse(action.kind(), "the device only changes and sends the copies of clone()"));
            }
            copy.take(action)?;
        }
        let copy = copy.finish();
        if copy.leads() {
            self.plan.behind.push(copy);
        }
        Ok(())
    }

    /// A rule that samples does nothing else with copies.
    fn sample(&mut self, probability: u32, actions: &[Action]) -> Result<(), Refusal> {
        let refuse = |reason| Err(refuse(ActionKind::Sample, reason));
        let mut outputs = Vec::new();
        for action in actions {
            let Action::Output(port) = action else {
                return refuse("the device sends samples to ports as they are, and does nothing else with them");
            };
            if self.vports.tunnel(*port).is_some() {
                return refuse("the device does not put tunnel headers on samples");
            }
            let vport = self.vports.vport(*port)?;
            if outputs.contains(&vport) {
                return refuse("a sample goes there already");
            }
            outputs.push(vport);
        }
        if probability == u32::MAX {
            return actions.iter().try_for_each(|action| self.take(action));
        }
        if probability == 0 || outputs.is_empty() {
            return Ok(());
        }
        let Some(ratio) = one_in(probability) else {
            return refuse("the device takes one in a whole number of packets");
        };
        if self.plan.is_sent() {
            self.begin_behind();
        }
        self.plan.sampling = Some(Sampling { ratio, outputs });
        self.begin_behind();
        Ok(())
    }

    /// A meter counts packets as they are then, and those that were changed are that in the next rule. A rule that rewrites, as the first
    /// of several does, has no meter: libmlx5 takes it only behind on the way in, and only before on the way out (`next_action_state`).
    fn meter(&mut self, id: MeterId) {
        let is_first = self.before.is_empty() && self.plan.tracking.is_none();
        if is_first || self.plan.changes_packets() || !self.changes.is_empty() {
            self.begin_behind();
        }
        self.plan.meter = Some(id);
        self.begin_behind();
    }

    fn has_sent(&self) -> bool {
        self.plan.is_sent() || self.before.iter().any(Plan::is_sent)
    }

    /// Has what follows be done by a rule behind.
    fn begin_behind(&mut self) {
        let plan = std::mem::take(&mut self.plan);
        let changes = std::mem::take(&mut self.changes);
        let Changes { pops, modifications, pushes, .. } = changes;
        self.before.push(Plan { pops, modifications: modifications.into_words(), pushes, ..plan });
    }

    /// Returns the first rule, with those behind it. Nobody sees what is done to a packet that goes nowhere.
    fn finish(mut self) -> Plan {
        if self.plan.jump.is_some() {
            // A packet that misses there goes to its representor, and must be there as it came in.
            let changes = std::mem::take(&mut self.changes);
            self.plan.deferred = (!changes.is_empty()).then(|| Arc::new(changes));
            if self.is_cleared {
                self.changes.modifications.push(&tracking::clear());
            }
        }
        self.begin_behind();
        let lead_on = |behind: Option<Plan>, mut plan: Plan| {
            // Samplers and meters lead to a rule in any case.
            let needs_one = plan.sampling.is_some() || plan.meter.is_some();
            plan.behind.extend(behind.or_else(|| needs_one.then(Plan::default)));
            plan.leads().then(|| plan.with_headers_at_once())
        };
        let tracking = self.before.first().and_then(|plan| plan.tracking);
        let first = self.before.into_iter().rev().fold(None, lead_on);
        first.unwrap_or_else(|| Plan { tracking, ..Plan::default() })
    }
}

/// Says why an action is none of those that the device does.
fn why_not(action: ActionKind) -> &'static str {
    match action {
        ActionKind::AddMpls | ActionKind::PopMpls | ActionKind::PushMpls => {
            "libmlx5 44 adds and removes headers at the front of a frame only"
        }
        ActionKind::CheckPktLen => "the device does not compare the length of a packet",
        ActionKind::Hash => "the device does not hand its hash to later flows",
        ActionKind::LbOutput => "the members of the bond are known to ovs-vswitchd alone",
        ActionKind::PopEth | ActionKind::PopNsh | ActionKind::PushEth | ActionKind::PushNsh => {
            "the switch sees packets with an Ethernet header only"
        }
        ActionKind::Psample => "sampling groups are the kernel's, which does not see these packets",
        ActionKind::TnlPop => "tunnel headers are removed by flows of a tunnel port",
        ActionKind::TnlPush => "tunnel headers are added by set(tunnel()) and output to a tunnel port",
        ActionKind::Trunc => "the device does not shorten packets",
        ActionKind::Userspace => "a process sees only packets that match no flow, at the representor of their port",
        _ => "this backend cannot do it",
    }
}

/// Returns the number of which a probability takes one: as near to it as 32 bits say, above or below.
fn one_in(probability: u32) -> Option<u32> {
    let below = u32::MAX.checked_div(probability)?;
    [below, below.saturating_add(1)].into_iter().find(|ratio| (u32::MAX / ratio).abs_diff(probability) <= 1)
}

fn refuse(action: ActionKind, reason: &'static str) -> Refusal {
    Refusal::Action { action, reason: reason.into() }
}
