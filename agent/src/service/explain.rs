//! Why a flow is in the device, or why not, or whether it would be.

use std::time::Duration;

use sluice_flow::backend::CountedApart;
use sluice_flow::table::FlowView;
use sluice_flow::{Flow, Refusal};

use super::error::Error;
use super::faces::AgentView;
use super::flows::{FlowName, check_in_port};

/// What is to be explained.
#[derive(Clone, Debug)]
pub enum Explain {
    /// A flow that exists.
    Known(FlowName),
    /// A flow as it could be added. If one exists that is the same, that one is explained.
    Candidate(Flow),
}

/// Why a flow is in the device, or why not.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The flow, if it exists.
    pub known: Option<Box<KnownFlow>>,
    /// What rule would come of the flow now, in the backend's words, or why none.
    pub verdict: Result<String, Refusal>,
}

/// What there is to say of a flow that exists.
#[derive(Clone, Debug)]
pub struct KnownFlow {
    /// The flow.
    pub view: FlowView,
    /// When it goes by itself.
    pub expires: Expires,
    /// What hardware and software counted of it, if the device tells.
    pub apart: Option<CountedApart>,
}

/// When a flow goes by itself. `None` is never.
#[derive(Clone, Copy, Debug)]
pub struct Expires {
    /// Whether it never does.
    pub permanent: bool,
    /// After so long without a packet.
    pub idle: Option<Duration>,
    /// After so long.
    pub hard: Option<Duration>,
    /// How old it is.
    pub age: Duration,
}

impl AgentView {
    /// Explains a flow. Asks the device and changes nothing.
    pub fn explain(&self, wanted: &Explain) -> Result<Explanation, Error> {
        match wanted {
            Explain::Known(name) => Ok(self.explain_known(self.find(name)?)),
            Explain::Candidate(flow) => {
                check_in_port(flow)?;
                let same = self.agent().table.find_same(flow).and_then(|id| self.flow(id));
                Ok(match same {
                    Some(view) if view.flow.actions == flow.actions => self.explain_known(view),
                    _ => Explanation { known: None, verdict: self.verdict(flow) },
                })
            }
        }
    }

    fn explain_known(&self, view: FlowView) -> Explanation {
        let verdict = self.verdict(&view.flow);
        let (expires, apart) = (self.expires(&view), self.counted_apart(&view));
        Explanation { known: Some(Box::new(KnownFlow { view, expires, apart })), verdict }
    }

    /// What rule would come of a flow if it were added now, in the backend's words, or why none.
    pub fn dry_run(&self, flow: &Flow) -> Result<String, Error> {
        check_in_port(flow)?;
        self.verdict(flow).map_err(|refusal| Error::Refused(refusal.into()))
    }

    fn verdict(&self, flow: &Flow) -> Result<String, Refusal> {
        let agent = self.agent();
        agent.queue.held_apart(flow).map_or_else(|| agent.backend.explain(flow), Err)
    }

    fn expires(&self, view: &FlowView) -> Expires {
        let (own, config) = (view.flow.expiry, self.config());
        let unless_permanent = |span: Option<Duration>| span.filter(|_| !own.permanent);
        Expires {
            permanent: own.permanent,
            idle: unless_permanent(own.idle.or(config.idle_timeout)),
            hard: unless_permanent(own.hard.or(config.hard_timeout)),
            age: self.now().since(view.accepted),
        }
    }
}
