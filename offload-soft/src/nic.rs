//! The device: what the threads that install, count and inject share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use sluice_flow::backend::{DeviceEvent, EventSender, EventStream, Handle, OpenConfig, Placement, Verdict};
use sluice_flow::cause::Cause;
use sluice_flow::counters::Counters;
use sluice_flow::flow::Flow;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::table::{FlowId, Generation};
use sluice_flow::time::Clock;

use crate::chains::Chains;
use crate::classifier::Unlinked;
use crate::config::Config;
use crate::conntrack::{Conntrack, Policies};
use crate::engine::random::Random;
use crate::engine::record::Recorder;
use crate::engine::{Burst, Drops, LookupCounts, Observer, Traversal};
use crate::hardware::Hardware;
use crate::meters::Meters;
use crate::mirrors::{MirrorState, Mirrors};
use crate::packet::MIN_FRAME;
use crate::places::Places;
use crate::ports::{PortState, PortTable, Ports};
use crate::programs::Programs;
use crate::quiescence::{Pin, Quiescence};
use crate::rules::{self, Rule, Rules};
use crate::translate::{self, Approvals, Question};

/// Events that wait to be read.
const EVENTS: usize = 64;

pub(crate) struct Nic {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rules: Rules,
    pub(crate) hardware: Hardware,
    pub(crate) chains: Chains,
    pub(crate) ports: Ports,
    pub(crate) meters: Meters,
    pub(crate) mirrors: Mirrors,
    pub(crate) policies: Policies,
    pub(crate) conntrack: Conntrack,
    pub(crate) drops: Drops,
    pub(crate) random: Random,
    programs: Programs,
    pub(crate) lookup_counts: LookupCounts,
    pub(crate) events: EventStream,
    /// Install queues that were handed out.
    pub(crate) queues: AtomicUsize,
    quiescence: Quiescence,
    event_sender: EventSender,
}

/// A rule that is off the classifier, but may still be used by packets under way.
pub(crate) struct Removal {
    index: u32,
    unlinked: Option<Unlinked>,
}

impl Nic {
    pub(crate) fn new(open: &OpenConfig, config: &Config, random: Random) -> Self {
        let (event_sender, events) = EventStream::bounded(EVENTS);
        Self {
            clock: Arc::clone(&open.clock),
            rules: Rules::new(),
            hardware: Hardware::new(config.hardware_rules),
            chains: Chains::new(),
            ports: Ports::new(),
            meters: Meters::default(),
            mirrors: Mirrors::default(),
            policies: Policies::default(),
            conntrack: Conntrack::new(),
            drops: Drops::default(),
            random,
            programs: Programs::new(),
            lookup_counts: LookupCounts::default(),
            events,
            queues: AtomicUsize::new(0),
            quiescence: Quiescence::new(),
            event_sender,
        }
    }

    /// Tells that what was refused for a cause may be taken now.
    pub(crate) fn changed(&self, cause: Cause) {
        if self.event_sender.send(DeviceEvent::Changed { cause }).is_err() {
            // Nobody listens: what was told, of whichever port, becomes one event of each kind.
            let told: Vec<_> = self.events.drain().into_iter().chain([DeviceEvent::Changed { cause }]).collect();
            for (kind, _) in Cause::ALL {
                let is_told =
                    |event: &DeviceEvent| matches!(event, DeviceEvent::Changed { cause } if kind.concerns(*cause));
                if told.iter().any(is_told) {
                    let _ = self.event_sender.send(DeviceEvent::Changed { cause: kind });
                }
            }
        }
    }

    /// A dry run of [`Nic::install`]; the rule in words.
    pub(crate) fn explain(&self, flow: &Flow) -> Result<String, Refusal> {
        translate::check(flow, &self.ports.table(), &self.meters, &self.policies)?;
        Ok(translate::describe(flow))
    }

    /// Puts a rule in. `hint`, `approvals` and `places` are those of the worker.
    pub(crate) fn install(
        &self,
        hint: usize,
        approvals: &mut Approvals,
        places: &mut Places,
        id: FlowId,
        generation: Generation,
        flow: &Flow,
    ) -> Result<(Handle, Placement), Refusal> {
        let key = flow.matching().key();
        let question = Question::of(flow, &key);
        let rule = self.make_rule(hint, approvals, flow, &question)?;
        let index = self.rules.take(hint, id, generation, rule).map_err(|rule| {
            self.discard(&rule);
            too_many_rules()
        })?;
        let gone = || Refusal::Device { reason: "a slot is gone".into() };
        let slot = self.rules.slot(index).ok_or_else(gone)?;
        let program = self.programs.get(slot.program());
        let chain = &program.as_ref().ok_or_else(gone)?.chain;
        let key = translate::matched_key(flow, key);
        let mask = || translate::matching(flow).mask;
        let linked = chain.rules.insert_near(places.of(flow), &key, mask, flow.priority, index);
        if linked.is_err() {
            drop(program);
            self.rules.free(hint, index).iter().for_each(|rule| self.discard(rule));
            let reason = "a rule with the same match and priority is installed";
            return Err(Refusal::Combination { reason: reason.into() });
        }
        let placement = self.hardware.admit();
        slot.place(placement);
        Ok((self.rules.publish(index).ok_or_else(gone)?, placement))
    }

    /// Lets a rule do what its flow now says: the first half of a modification. The second one is to [discard](Nic::discard), after
    /// [`Nic::settle`], what it was, for a packet may have read that before.
    pub(crate) fn modify(
        &self,
        hint: usize,
        approvals: &mut Approvals,
        handle: Handle,
        flow: &Flow,
    ) -> Result<(Placement, Option<Rule>), Refusal> {
        // While the pin is held, a rule that is found here is not freed, so what is put in its slot is not lost.
        let _pin = self.quiescence.pin();
        let Some((_, slot)) = self.rules.find(handle) else {
            return Err(Refusal::Device { reason: "the rule is gone".into() });
        };
        let is_same = slot.flow().is_some_and(|old| old.is_same(flow));
        if !is_same {
            return Err(Refusal::Combination { reason: "the rule has another match or priority".into() });
        }
        let question = Question::of(flow, &flow.matching().key());
        let rule = self.make_rule(hint, approvals, flow, &question)?;
        Ok((slot.placement(), slot.replace(rule)))
    }

    /// Has a rule be in hardware or in software, if there is room. Says where it is then.
    pub(crate) fn relocate(&self, handle: Handle, to: Placement) -> Result<Placement, Refusal> {
        // As above: the rule is not freed meanwhile.
        let _pin = self.quiescence.pin();
        let Some((_, slot)) = self.rules.find(handle) else {
            return Err(Refusal::Device { reason: "the rule is gone".into() });
        };
        if slot.placement() == to || !self.hardware.is_limited() || (to == Placement::Hardware && !self.hardware.take())
        {
            return Ok(slot.placement());
        }
        if slot.place(to) {
            self.hardware.moved(to);
        } else if to == Placement::Hardware {
            self.hardware.give_back();
        }
        Ok(to)
    }

    /// Everything that a rule needs besides its place: jumps noted, meters and timeout policies held.
    fn make_rule(
        &self,
        hint: usize,
        approvals: &mut Approvals,
        flow: &Flow,
        question: &Question,
    ) -> Result<Rule, Refusal> {
        let ports = self.ports.table();
        // No approval speaks of it.
        translate::check_entrance(flow, &ports)?;
        if let Some(program) = approvals.hold(question, flow, &ports, &self.programs) {
            return Ok(Rule { flow: flow.clone(), program });
        }
        translate::check(flow, &ports, &self.meters, &self.policies)?;
        if let Some(program) = self.programs.find(hint, flow) {
            approvals.put(*question, flow, &ports, program);
            return Ok(Rule { flow: flow.clone(), program });
        }
        let jumps = flow.jumps();
        self.chains.add_jumps(flow.chain(), &jumps)?;
        let linked = translate::link(flow, &self.chains, &self.meters, &self.policies).and_then(|program| {
            let can_be_shared = program.holds_nothing();
            let id = self.programs.put(program).map_err(|program| {
                program.release();
                too_many_rules()
            })?;
            if can_be_shared {
                self.programs.share(hint, flow, id);
                approvals.put(*question, flow, &ports, id);
            }
            Ok(Rule { flow: flow.clone(), program: id })
        });
        linked.inspect_err(|_| {
            self.chains.remove_jumps(flow.chain(), &jumps);
            self.chains.forget_if_unused(flow.chain());
        })
    }

    /// Undoes [`Nic::make_rule`], once no packet can run the rule.
    pub(crate) fn discard(&self, rule: &Rule) {
        if let Some(program) = self.programs.get(rule.program).as_ref() {
            program.release();
        }
        self.programs.release(rule.program);
        self.chains.remove_jumps(rule.flow.chain(), &rule.flow.jumps());
    }

    /// Takes a rule out of matching: the first half of a removal. `None` if it is gone already.
    pub(crate) fn unlink(&self, places: &mut Places, handle: Handle) -> Option<Removal> {
        let (index, slot) = self.rules.claim(handle)?;
        let (program, flow) = (self.programs.get(slot.program()), slot.flow());
        let unlinked = program.as_ref().zip(flow).and_then(|(program, flow)| {
            let key = translate::matched_key(&flow, flow.matching().key());
            let mask = || translate::matching(&flow).mask;
            program.chain.rules.remove_near(places.of(&flow), &key, mask, flow.priority, index)
        });
        Some(Removal { index, unlinked })
    }

    /// Waits until no packet can count on what was unlinked before, or run what was replaced.
    pub(crate) fn settle(&self) {
        self.quiescence.wait();
    }

    /// Reads last counters and frees: the second half of a removal, after [`Nic::settle`].
    pub(crate) fn free(&self, hint: usize, removal: Removal) -> Option<Counters> {
        let slot = self.rules.slot(removal.index)?;
        let counters = slot.counters();
        self.hardware.dismiss(slot.placement());
        if let Some(unlinked) = removal.unlinked {
            unlinked.give_back();
        }
        if let Some(rule) = self.rules.free(hint, removal.index) {
            // The program is not held any longer than for this, for it holds the chain.
            let is_chain_unused =
                self.programs.get(rule.program).as_ref().is_some_and(|program| program.chain.is_unused());
            self.discard(&rule);
            if is_chain_unused {
                self.chains.forget_if_unused(rule.flow.chain());
            }
        }
        Some(counters)
    }

    /// Lets a frame in at a port.
    pub(crate) fn inject(&self, port: PortNumber, frame: &[u8]) -> Result<Verdict, Refusal> {
        self.pass(port, frame, &self.conntrack, None)
    }

    /// Whether a frame can come in at a port at all.
    pub(crate) fn check_frame(&self, port: PortNumber, frame: &[u8]) -> Result<(), Refusal> {
        entrance(&self.ports.table(), port)?;
        check_length(frame)
    }

    /// Lets a frame through, with these connections. With a recorder nothing of the device is changed or counted.
    pub(crate) fn pass(
        &self,
        port: PortNumber,
        frame: &[u8],
        conntrack: &Conntrack,
        recorder: Option<&mut Recorder>,
    ) -> Result<Verdict, Refusal> {
        let ports = self.ports.table();
        let state = entrance(&ports, port)?;
        check_length(frame)?;
        let pin = self.quiescence.pin();
        let mut verdict = Verdict::default();
        let mirrors = self.mirrors.list();
        let mut traversal = self.traversal(&ports, &mirrors, &pin, conntrack, &mut verdict);
        traversal.recorder = recorder;
        traversal.enter(state, frame);
        Ok(verdict)
    }

    /// Lets frames in at a port, as many as a burst holds at a time.
    pub(crate) fn receive(
        &self,
        port: PortNumber,
        frames: &[&[u8]],
        burst: &mut Burst,
        observer: &mut dyn Observer,
    ) -> Result<(), Refusal> {
        let ports = self.ports.table();
        let state = entrance(&ports, port)?;
        frames.iter().try_for_each(|frame| check_length(frame))?;
        let mirrors = self.mirrors.list();
        for frames in frames.chunks(Burst::SIZE) {
            let pin = self.quiescence.pin();
            if ports.is_underlay(port) {
                for frame in frames {
                    self.traversal(&ports, &mirrors, &pin, &self.conntrack, observer).enter(state, frame);
                }
            } else {
                self.traversal(&ports, &mirrors, &pin, &self.conntrack, observer).enter_burst(state, frames, burst);
            }
        }
        Ok(())
    }

    fn traversal<'a>(
        &'a self,
        ports: &'a PortTable,
        mirrors: &'a [MirrorState],
        pin: &'a Pin<'a>,
        conntrack: &'a Conntrack,
        observer: &'a mut dyn Observer,
    ) -> Traversal<'a> {
        Traversal {
            rules: &self.rules,
            programs: &self.programs,
            root: self.chains.root(),
            ports,
            mirrors,
            outlet: &self.mirrors,
            conntrack,
            drops: &self.drops,
            lookup_counts: &self.lookup_counts,
            pin,
            now: self.clock.now(),
            random: &self.random,
            recorder: None,
            lookups: 0,
            level: 0,
            deferred: Vec::new(),
            observer,
        }
    }
}

fn too_many_rules() -> Refusal {
    Refusal::Limit { what: "rules".into(), limit: rules::CAPACITY.into() }.until(Cause::Room)
}

/// The port that frames come in at.
fn entrance(ports: &PortTable, port: PortNumber) -> Result<&PortState, Refusal> {
    let state = ports.get(port).ok_or_else(|| Refusal::no_port(port))?;
    if state.tunnel().is_some() {
        let reason = "frames come to a tunnel port through its underlay".into();
        return Err(Refusal::Port { port: port.to_string(), number: Some(port), reason });
    }
    Ok(state)
}

fn check_length(frame: &[u8]) -> Result<(), Refusal> {
    if frame.len() < MIN_FRAME {
        return Err(Refusal::Device { reason: format!("{} bytes are no Ethernet frame", frame.len()).into() });
    }
    Ok(())
}
