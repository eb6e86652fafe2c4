//! Flows and packets that know the structure of what they test.
//!
//! Flows are valid by construction: what a match demands and what an action finds follows the checks of the OVS kernel
//! datapath, flows of one chain do not overlap, and jumps lead to later chains that have flows. Values lean to edges. All
//! comes out of rows of random numbers, so that proptest shrinks a failure to few and small flows.
//!
//! A [`Profile`] says what may appear; [`Hits`] counts what has.

mod actions;
mod arguments;
pub mod check;
mod draw;
mod feature;
mod flower;
pub mod frame;
mod hits;
mod matching;
pub mod packet;
mod plain;
mod shape;

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sluice_flow::action::ActionList;
use sluice_flow::chain::ChainId;
use sluice_flow::key::Match;
use sluice_flow::port::{Port, PortKind, PortNumber};

pub use feature::{BEYOND_OVS, Feature, Form, Profile, Rule, SETTABLE, fields_beyond_ovs, fields_of};
pub use flower::{FlowerFlows, Packets, flower_profile};
pub use hits::{Hits, features};
pub use plain::{plain_flows, plain_profile};

use crate::scenario::Scenario;
use actions::{Step, Surroundings};

/// A flow and what its profile kept out of it.
#[derive(Clone, Debug)]
pub struct GeneratedFlow {
    /// What it matches.
    pub matching: Match,
    /// What it does.
    pub actions: ActionList,
    /// What would be there if the profile allowed it.
    pub left_out: Vec<Feature>,
}

/// Flows of some chains that belong together.
pub fn flows(profile: &Arc<Profile>) -> impl Strategy<Value = Vec<GeneratedFlow>> + use<> {
    let profile = Arc::clone(profile);
    // Up to three chains behind the first.
    (vec(vec(flow_plan(), 0..5), 0..4), vec(flow_plan(), 0..8))
        .prop_map(move |(later, first)| build(&profile, &ports(), first, later))
}

/// Scenarios: flows, and packets for those that a packet can hit as it comes in.
pub fn scenarios(profile: &Arc<Profile>) -> impl Strategy<Value = Scenario> + use<> {
    (flows(profile), vec(any::<u64>(), 32)).prop_map(|(flows, numbers)| {
        let flows: Vec<_> = flows.into_iter().map(|flow| (flow.matching, flow.actions)).collect();
        let packets = packet::for_flows(&flows, &numbers);
        let count = flows.len();
        Scenario { ports: ports(), flows, packets, ..Scenario::new(format!("{count} flows")) }
    })
}

/// Sets of flows until there are as many flows as asked for, the same in every run, and what they contain.
pub fn collect(profile: &Arc<Profile>, count: u64) -> (Vec<Vec<GeneratedFlow>>, Hits) {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = flows(profile);
    let (mut sets, mut hits) = (Vec::new(), Hits::default());
    while hits.flows() < count {
        let set = strategy.new_tree(&mut runner).expect("nothing is rejected").current();
        set.iter().for_each(|flow| hits.count(flow));
        sets.push(set);
    }
    (sets, hits)
}

/// The ports of every scenario.
pub fn ports() -> Vec<Port> {
    let port = |number| Port {
        number: PortNumber(number),
        name: format!("p{number}").parse().expect("a name"),
        kind: PortKind::Physical,
    };
    (1..=4).map(port).collect()
}

/// The numbers of the chains behind the first, in the order in which jumps may go.
const CHAINS: [ChainId; 4] = [ChainId(1), ChainId(2), ChainId(0x2a), ChainId(u32::MAX)];

/// The numbers out of which a flow is built.
#[derive(Clone, Debug)]
struct FlowPlan {
    skeleton: Vec<u16>,
    constraints: Vec<Vec<u16>>,
    steps: Vec<Step>,
}

fn flow_plan() -> impl Strategy<Value = FlowPlan> {
    (draw::numbers(44), vec(draw::numbers(5), 0..14), steps(3)).prop_map(|(skeleton, constraints, steps)| FlowPlan {
        skeleton,
        constraints,
        steps,
    })
}

fn steps(depth: u32) -> BoxedStrategy<Vec<Step>> {
    let inner = if depth == 0 { Just(Vec::new()).boxed() } else { steps(depth - 1) };
    let step = (draw::numbers(48), inner).prop_map(|(numbers, inner)| Step { numbers, inner });
    vec(step, if depth == 3 { 0..7 } else { 0..3 }).boxed()
}

fn build(profile: &Profile, ports: &[Port], first: Vec<FlowPlan>, later: Vec<Vec<FlowPlan>>) -> Vec<GeneratedFlow> {
    // A chain without flows is no place to jump to.
    let later: Vec<_> = later.into_iter().filter(|plans| !plans.is_empty()).collect();
    let chains: Vec<_> = CHAINS.into_iter().take(later.len()).collect();
    let mut flows = Vec::new();
    let numbered =
        std::iter::once(ChainId::ROOT).chain(chains.iter().copied()).zip(std::iter::once(first).chain(later));
    for (index, (chain, plans)) in numbered.enumerate() {
        // Also those that are dropped count, so that taking a plan away never takes another flow with it.
        let mut seen: Vec<Match> = Vec::new();
        for plan in plans {
            let flow = flow(profile, chain, &plan, Surroundings { ports, chains: &chains[index..] });
            let overlaps = seen.iter().any(|other| check::overlap(other, &flow.matching));
            seen.push(flow.matching);
            if !overlaps {
                flows.push(flow);
            }
        }
    }
    flows
}

fn flow(profile: &Profile, chain: ChainId, plan: &FlowPlan, surroundings: Surroundings<'_>) -> GeneratedFlow {
    let mut maker = Maker { profile, left_out: Vec::new() };
    let matching = matching::build(&mut maker, chain, surroundings.ports, &plan.skeleton, &plan.constraints);
    let actions = actions::build(&mut maker, &matching, &plan.steps, surroundings);
    GeneratedFlow { matching, actions, left_out: maker.left_out }
}

/// Asks the profile, and remembers what it kept out.
struct Maker<'a> {
    profile: &'a Profile,
    left_out: Vec<Feature>,
}

impl Maker<'_> {
    fn allows(&mut self, feature: Feature) -> bool {
        let allowed = self.profile.allows(feature);
        if !allowed {
            self.left_out.push(feature);
        }
        allowed
    }
}
