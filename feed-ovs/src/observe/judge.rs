//! A backend as the judge of flows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sluice_flow::action::named_meters;
use sluice_flow::backend::{BackendKind, Checker, MissPolicy};
use sluice_flow::flow::Flow;
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::refusal::Refusal;
use sluice_flow::text::Statistics;

use super::chains::{CHAIN, Chains, Reached, Taken, Targets};
use super::cure::{CURE_OF_CHAIN, cure};
use super::ports::{LIMIT, Named, Ports, UNDERLAY};
use super::report::{BackendReport, Count, RefusalReport};

/// Reasons of a backend that are kept apart. A reason may name a value, so that there can be many.
const REASONS: usize = 256;
/// Where further ones are counted.
const MORE: &str = "further reasons, which are not kept apart";

/// A backend that judges flows.
pub struct Backend {
    name: &'static str,
    chain_miss: MissPolicy,
    new_checker: Box<dyn Fn() -> Box<dyn Checker>>,
}

impl Backend {
    /// Creates one of a kind. `new_checker` returns a checker that has seen no object yet; each datapath gets one.
    pub fn new(kind: &BackendKind, new_checker: impl Fn() -> Box<dyn Checker> + 'static) -> Self {
        Self { name: kind.name, chain_miss: kind.chain_miss, new_checker: Box::new(new_checker) }
    }
}

/// A backend with what it has judged.
pub(super) struct Judge {
    backend: Backend,
    bench: Bench,
    taken: Count,
    needs_recirc_sharing: Count,
    refused: Count,
    reasons: HashMap<Reason, Refused>,
}

/// What is known of the datapath that is being judged.
struct Bench {
    checker: Box<dyn Checker>,
    /// Ports that the backend knows, as what, and what it said.
    ports: HashMap<PortNumber, (Option<PortKind>, Result<(), Refusal>)>,
    meters: HashMap<MeterId, Result<(), Refusal>>,
    chains: Chains,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Reason {
    label: &'static str,
    about: Cow<'static, str>,
    sentence: String,
    /// One reason may have several causes, of which each has a cure of its own.
    cure: &'static str,
}

struct Refused {
    count: Count,
    /// Packets of the example.
    most: u64,
    example: String,
}

impl Judge {
    pub(super) fn new(backend: Backend) -> Self {
        let bench = Bench::new(&backend);
        let [taken, needs_recirc_sharing, refused] = [Count::default(); 3];
        Self { backend, bench, taken, needs_recirc_sharing, refused, reasons: HashMap::new() }
    }

    /// Ends a datapath: what packets would not come to is refused.
    pub(super) fn end(&mut self, targets: &Targets, write: &dyn Fn(&Flow, &Statistics) -> String) {
        let Bench { chains, .. } = std::mem::replace(&mut self.bench, Bench::new(&self.backend));
        let Reached { unreached, needs_recirc_sharing } = chains.end(targets);
        if self.backend.chain_miss == MissPolicy::Kernel {
            self.needs_recirc_sharing += needs_recirc_sharing;
        }
        for Taken { count, example: (flow, statistics), .. } in unreached {
            self.taken.flows = self.taken.flows.saturating_sub(count.flows);
            self.taken.packets = self.taken.packets.saturating_sub(count.packets);
            self.taken.bytes = self.taken.bytes.saturating_sub(count.bytes);
            let sentence = "no packet would come to the chain: the flows that lead there are refused".to_owned();
            let reason = Reason { label: CHAIN, about: "recirc_id".into(), sentence, cure: CURE_OF_CHAIN };
            self.refuse(reason, count, statistics.packets, || write(&flow, &statistics));
        }
    }

    /// Judges a flow.
    pub(super) fn flow(
        &mut self,
        flow: &Flow,
        statistics: &Statistics,
        (ports, named): (&Ports, &[Named]),
        write: &dyn Fn(&Flow, &Statistics) -> String,
    ) {
        let count = Count::one(statistics);
        match self.bench.judge(flow, ports, named) {
            Ok(()) => {
                self.taken += count;
                self.bench.chains.add(flow, statistics);
            }
            Err(refusal) => {
                let reason = Reason::of(&refusal, cure(&refusal, flow));
                self.refuse(reason, count, statistics.packets, || write(flow, statistics));
            }
        }
    }

    fn refuse(&mut self, reason: Reason, count: Count, packets: u64, example: impl FnOnce() -> String) {
        self.refused += count;
        let is_kept = self.reasons.len() < REASONS || self.reasons.contains_key(&reason);
        let reason = if is_kept { reason } else { Reason { about: "".into(), sentence: MORE.to_owned(), ..reason } };
        match self.reasons.entry(reason) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                known.count += count;
                if packets > known.most {
                    (known.most, known.example) = (packets, example());
                }
            }
            Entry::Vacant(new) => {
                new.insert(Refused { count, most: packets, example: example() });
            }
        }
    }

    pub(super) fn report(mut self) -> BackendReport {
        let of = |(reason, refused): (Reason, Refused)| RefusalReport {
            label: reason.label,
            about: reason.about.into_owned(),
            reason: reason.sentence,
            count: refused.count,
            example: refused.example,
            cure: reason.cure.to_owned(),
        };
        let mut refusals: Vec<_> = self.reasons.drain().map(of).collect();
        refusals.sort_by(|one, other| {
            other.count.cmp(&one.count).then_with(|| (&one.reason, &one.cure).cmp(&(&other.reason, &other.cure)))
        });
        let Self { backend, taken, needs_recirc_sharing, refused, .. } = self;
        BackendReport { name: backend.name, taken, needs_recirc_sharing, refused, refusals }
    }
}

impl Reason {
    fn of(refusal: &Refusal, cure: &'static str) -> Self {
        let (about, sentence) = match refusal {
            Refusal::Until { refusal, .. } => return Self::of(refusal, cure),
            Refusal::Action { action, .. } => (action.name().into(), refusal.to_string()),
            Refusal::Field { field, .. } => (field.to_string().into(), refusal.to_string()),
            // Not one for each port.
            Refusal::Port { reason, .. } => ("".into(), format!("port: {reason}")),
            other => ("".into(), other.to_string()),
        };
        Self { label: refusal.label(), about, sentence, cure }
    }
}

impl Bench {
    fn new(backend: &Backend) -> Self {
        let mut bench = Self {
            checker: (backend.new_checker)(),
            ports: HashMap::new(),
            meters: HashMap::new(),
            chains: Chains::default(),
        };
        // A backend that refuses this port refuses the flows of tunnels, with a reason of its own.
        let _ = bench.port(UNDERLAY, Some(PortKind::Physical));
        bench
    }

    fn judge(&mut self, flow: &Flow, ports: &Ports, named: &[Named]) -> Result<(), Refusal> {
        for (number, _) in named {
            self.port(*number, ports.kind(*number))?;
        }
        for meter in named_meters(&flow.actions) {
            // The numbers of bands and rates are not read: one band that drops is what every datapath has.
            if !self.meters.contains_key(&meter) && self.meters.len() < LIMIT {
                let said = self.checker.meter(&Meter::simple(meter, MeterUnit::Kilobits, 1_000, 0));
                self.meters.insert(meter, said);
            }
            self.meters.get(&meter).map_or(Ok(()), Clone::clone)?;
        }
        self.checker.flow(flow)
    }

    /// Tells the checker of a port, if it does not know it as that. The name does not matter: it need not be one of a device of this host.
    fn port(&mut self, number: PortNumber, kind: Option<PortKind>) -> Result<(), Refusal> {
        if let Some((known, said)) = self.ports.get(&number)
            && *known == kind
        {
            return said.clone();
        }
        if self.ports.len() >= LIMIT && !self.ports.contains_key(&number) {
            return Err(Refusal::Limit { what: "ports of a datapath".into(), limit: LIMIT as u64 });
        }
        let refuse = |_| Refusal::no_port(number);
        let name = format!("p{number}").parse().map_err(refuse)?;
        let port = Port { number, name, kind: kind.clone().unwrap_or(PortKind::Representor) };
        let said = self.checker.port(&port);
        self.ports.insert(number, (kind, said.clone()));
        said
    }
}
