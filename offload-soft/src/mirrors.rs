//! Mirrors: copies of packets on their way into the first chain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use parking_lot::Mutex;
use sluice_flow::action::{Action, ActionList};
use sluice_flow::backend::{CopiedPacket, CopySink, MirrorCounters, Placement};
use sluice_flow::field::Field;
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::key::{Key, MaskedKey};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::PortNumber;
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_flow::ufid::Seed;

use crate::conntrack::Policies;
use crate::meters::Meters;
use crate::ports::PortTable;
use crate::translate;

/// All mirrors, in the order in which they were first set. Packets see a snapshot.
#[derive(Default)]
pub(crate) struct Mirrors {
    list: ArcSwap<Vec<MirrorState>>,
    /// Who gets what goes to a port of kind mirror.
    sink: ArcSwapOption<Sink>,
    changing: Mutex<()>,
}

/// Behind a pointer of its own, for that of a trait object is too wide to be swapped.
type Sink = Arc<dyn CopySink>;

/// One mirror.
#[derive(Clone)]
pub(crate) struct MirrorState {
    pub(crate) name: Arc<str>,
    port: PortNumber,
    /// A packet that any of these takes is copied.
    matched: Arc<[MaskedKey<'static>]>,
    pub(crate) copies: Arc<[PortNumber]>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Mirrors {
    pub(crate) fn list(&self) -> Guard<Arc<Vec<MirrorState>>> {
        self.list.load()
    }

    /// From now on, copies to ports of kind mirror go to this sink.
    pub(crate) fn hand_to(&self, sink: Arc<dyn CopySink>) {
        self.sink.store(Some(Arc::new(sink)));
    }

    /// Hands out a copy.
    pub(crate) fn hand_out(&self, copied: &CopiedPacket<'_>) {
        if let Some(sink) = &*self.sink.load() {
            sink.take(copied);
        }
    }

    /// Makes a mirror, or changes it; its counters go on.
    pub(crate) fn set(
        &self,
        mirror: &Mirror,
        ports: &PortTable,
        meters: &Meters,
        policies: &Policies,
    ) -> Result<(), Refusal> {
        for copy in &mirror.copies {
            if ports.get(*copy).is_some_and(|port| port.tunnel().is_some()) {
                let reason = "a copy into a tunnel needs an outer header, which the packet does not have";
                return Err(Refusal::Combination { reason: reason.into() });
            }
        }
        // What can be matched and sent is what a flow could.
        let actions: ActionList = mirror.copies.iter().map(|port| Action::Output(*port)).collect();
        let mut matched = Vec::with_capacity(mirror.matches.len());
        for matching in &mirror.matches {
            let (key, actions) = (MaskedKey::new(matching), actions.clone());
            let flow = Flow::new(None, key, actions, Priority::default(), Expiry::default(), &Seed([0; 16]));
            translate::check(&flow, ports, meters, policies)?;
            matched.push(MaskedKey::new(&translate::matching(&flow)));
        }
        let _changing = self.changing.lock();
        let mut list = Vec::clone(&self.list.load());
        let known = list.iter_mut().find(|known| *known.name == *mirror.name);
        let counts = known.as_ref().map(|known| Arc::clone(&known.counts)).unwrap_or_default();
        let (name, copies) = (mirror.name.as_str().into(), mirror.copies.as_slice().into());
        let state = MirrorState { name, port: mirror.port(), matched: matched.into(), copies, counts };
        match known {
            Some(known) => *known = state,
            None => list.push(state),
        }
        self.list.store(Arc::new(list));
        Ok(())
    }

    /// Removes a mirror.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Refusal> {
        let _changing = self.changing.lock();
        let mut list = Vec::clone(&self.list.load());
        let Some(at) = list.iter().position(|known| *known.name == *name) else {
            return Err(Refusal::Device { reason: format!("there is no mirror {name}").into() });
        };
        list.remove(at);
        self.list.store(Arc::new(list));
        Ok(())
    }

    pub(crate) fn counters(&self, name: &str) -> Option<MirrorCounters> {
        let list = self.list.load();
        let Counts { packets, bytes } = &*list.iter().find(|known| *known.name == *name)?.counts;
        let (packets, bytes) = (packets.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        Some(MirrorCounters { packets, bytes, placement: Placement::Hardware })
    }
}

impl MirrorState {
    /// Whether it copies a packet of this key.
    pub(crate) fn takes(&self, key: &Key) -> bool {
        key.get(Field::InPort) == u128::from(self.port.0) && self.matched.iter().any(|matched| matched.matches(key))
    }

    /// A packet of so many bytes was copied.
    pub(crate) fn count(&self, bytes: usize) {
        self.counts.packets.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
