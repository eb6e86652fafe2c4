//! Sessions: two flows that are added, deleted and shown together.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::table::{FlowView, ReplyTo};
use sluice_flow::{Counters, EndReason, Flow, FlowId, Timestamp};
use sluice_offload::Batch;

use super::accepted::Accepted;
use super::error::Error;
use super::faces::{AgentView, Service};
use super::flows::{AddFlow, FlowRequest, settled};
use crate::agent::ANSWER_TIME;
use crate::sessions::ends::{Ending, Ends};
use crate::sessions::name::{Direction, OWNER, SessionFlow, SessionId};

/// How long it is waited for the second flow of a session that is deleted while it ends by itself.
const LAST_FLOW: Duration = Duration::from_secs(1);

/// Two flows, whose UFIDs name the session.
#[derive(Clone, Debug)]
pub struct Session {
    /// Which one.
    pub id: SessionId,
    /// From the source.
    pub forward: Flow,
    /// Back to it.
    pub reverse: Flow,
}

/// A session as it stands, or stood when it was deleted.
#[derive(Clone, Copy, Debug)]
pub struct SessionStatus {
    /// Which one.
    pub id: SessionId,
    /// What the flows have counted; `None` of one that is not known.
    pub forward: Option<Counters>,
    /// The same back to the source.
    pub reverse: Option<Counters>,
    /// When it was accepted.
    pub accepted: Timestamp,
    /// Whether one of the flows has gone.
    pub is_ending: bool,
}

impl AgentView {
    /// How sessions end.
    pub fn session_ends(&self) -> &Ends {
        self.agent().events.session_ends()
    }

    /// A session, unless it has ended.
    pub fn session(&self, id: SessionId) -> Option<SessionStatus> {
        let views = self.session_flows(id);
        let accepted = views.iter().flatten().map(|view| view.accepted).min()?;
        let [forward, reverse] = views.map(|view| view.map(|view| view.counters));
        let is_ending = forward.is_none() || reverse.is_none();
        // Which counts what the flow that has gone counted.
        let gone = is_ending.then(|| self.session_ends().ending(id)).flatten();
        let known = |counters: Option<Counters>, direction| counters.or_else(|| gone?.counters(direction));
        Some(SessionStatus {
            id,
            forward: known(forward, Direction::Forward),
            reverse: known(reverse, Direction::Reverse),
            accepted,
            is_ending,
        })
    }

    /// The sessions that there are, by id, from one on. Walks the table.
    pub fn sessions_from(&self, least: SessionId) -> BTreeSet<SessionId> {
        let mut ids = BTreeSet::new();
        self.visit_session_flows(|named, view| {
            if named.session >= least && view.state != sluice_flow::FlowState::Deleting {
                ids.insert(named.session);
            }
        });
        ids
    }

    /// The flows of a session that are there.
    fn session_flows(&self, session: SessionId) -> [Option<FlowView>; 2] {
        let of_session = |view: &FlowView| view.flow.origin == OWNER;
        Direction::BOTH.map(|direction| self.named(SessionFlow { session, direction }.ufid()).filter(of_session))
    }

    fn visit_session_flows(&self, mut visit: impl FnMut(SessionFlow, &FlowView)) {
        self.visit(&mut |view| {
            if let Some(named) = SessionFlow::of(&view.flow) {
                visit(named, &view);
            }
            ControlFlow::Continue(())
        });
    }
}

/// A session whose flows were accepted, or some of them.
struct Taken {
    id: SessionId,
    lives: Vec<FlowId>,
    batch: Arc<Batch>,
    result: Result<(), Error>,
}

impl Service {
    /// Adds sessions, and waits until both flows of each are in the device, at most `at_most` from one outcome to the next. Of a session that
    /// fails nothing is left. Waits for room instead of hearing "busy". Fails as a whole if nothing is durable; then there is none of them.
    pub fn add_sessions(&self, sessions: Vec<Session>, at_most: Duration) -> Result<Vec<Result<(), Error>>, Error> {
        let ends = self.view().session_ends();
        ends.begin();
        let mut stream = self.stream();
        let mut taken = Vec::with_capacity(sessions.len());
        for Session { id, forward, reverse } in sessions {
            let batch = Arc::new(Batch::default());
            let reply_to = ReplyTo::from(batch.clone());
            let mut lives = Vec::with_capacity(2);
            let mut add = |flow: Flow| {
                batch.expect_one();
                let request = stream.request(|| (FlowRequest::Add(AddFlow { flow: flow.clone() }), reply_to.clone()));
                request.map(|life| lives.push(life)).inspect_err(|_| batch.expect_one_less())
            };
            let result = match ends.is_ending(id) {
                // What is left of the earlier one would be taken for the end of this one.
                true => Err(Error::Exists(forward.ufid)),
                false => add(forward).and_then(|()| add(reverse)),
            };
            taken.push(Taken { id, lives, batch, result });
        }
        if let Err(error) = stream.accepted().durable() {
            self.take_out(taken.into_iter().map(|taken| (taken.id, taken.lives)), at_most);
            return Err(error);
        }
        let (mut outcomes, mut failed) = (Vec::with_capacity(taken.len()), Vec::new());
        let mut patience = at_most;
        for Taken { id, lives, batch, result } in taken {
            let outcome = result.and_then(|()| match settled(&batch, patience) {
                Err(Error::Unanswered { flows, .. }) => {
                    // A device that stalls is not waited for again at each session.
                    patience = Duration::ZERO;
                    Err(Error::Unanswered { flows, within: at_most })
                }
                settled => settled.map(|_| ()),
            });
            if outcome.is_err() {
                failed.push((id, lives));
            }
            outcomes.push(outcome);
        }
        self.take_out(failed, at_most);
        Ok(outcomes)
    }

    /// Takes sessions out that were added and are not to stay. Nobody is told of their end.
    pub fn withdraw_sessions(&self, sessions: &[SessionId]) {
        let lives = |id| self.view().session_flows(id).into_iter().flatten().map(|view| view.id).collect();
        self.take_out(sessions.iter().map(|id| (*id, lives(*id))), ANSWER_TIME);
    }

    /// The device is waited for once for all of them.
    fn take_out(&self, sessions: impl IntoIterator<Item = (SessionId, Vec<FlowId>)>, at_most: Duration) {
        let ends = self.view().session_ends();
        let claimed = sessions.into_iter().filter(|(id, lives)| !lives.is_empty() && ends.claim(*id));
        let (claimed, lives): (Vec<_>, Vec<_>) = claimed.unzip();
        self.delete_lives(&lives.concat()).wait(at_most);
        claimed.into_iter().for_each(|id| _ = ends.release(id, Duration::ZERO));
    }

    /// Deletes a session, and waits until both flows are out of the device. Returns it as it was at its end; `None` if there is none. Nobody
    /// else is told of the end.
    pub fn delete_session(&self, id: SessionId) -> Result<Option<SessionStatus>, Error> {
        let ends = self.view().session_ends();
        // Before its flows are looked for: what goes by itself until then is told as closed, and from then on here.
        if !ends.claim(id) {
            return Ok(None);
        }
        let views: Vec<_> = self.view().session_flows(id).into_iter().flatten().collect();
        let lives: Vec<_> = views.iter().map(|view| view.id).collect();
        let batch = self.delete_lives(&lives);
        let durable = if lives.is_empty() { Ok(()) } else { Accepted::new(self.agent(), ()).durable().map(|_| ()) };
        let deleted = durable.and_then(|()| settled(&batch, ANSWER_TIME));
        // Events come before outcomes and before flows are not found, so that only a flow that went by itself is still to be waited for.
        let patience = if deleted.is_ok() && views.len() == 1 { LAST_FLOW } else { Duration::ZERO };
        let ending = ends.release(id, patience);
        deleted?;
        let first = views.iter().map(|view| view.accepted).min();
        let Some(accepted) = first.or(ending.map(|ending| ending.accepted)) else { return Ok(None) };
        let counted = |direction| ending.and_then(|ending: Ending| ending.counters(direction));
        Ok(Some(SessionStatus {
            id,
            forward: counted(Direction::Forward),
            reverse: counted(Direction::Reverse),
            accepted,
            is_ending: true,
        }))
    }

    fn delete_lives(&self, lives: &[FlowId]) -> Arc<Batch> {
        let batch = Arc::new(Batch::default());
        let reply_to = ReplyTo::from(batch.clone());
        for life in lives {
            batch.expect_one();
            if self.agent().queue.delete(*life, EndReason::Deleted, Some(reply_to.clone())).is_err() {
                // It is on its way out.
                batch.expect_one_less();
            }
        }
        batch
    }

    /// Deletes the other flows of sessions of which one has gone, and closes those whose other flow is nowhere.
    pub fn end_half_sessions(&self) {
        let (agent, view, ends) = (self.agent(), self.view(), self.view().session_ends());
        for half in ends.take_halves() {
            let gone_at = view.now().before(half.began.elapsed());
            let Some(left) = view.named(half.left.ufid()) else { continue };
            // A session of the same name that came later is not meant.
            if left.flow.origin == OWNER && left.accepted <= gone_at {
                // One that is on its way out needs nobody.
                let _ = agent.queue.delete(left.id, half.reason, None);
            }
        }
        let overdue = ends.overdue(ANSWER_TIME);
        if overdue.is_empty() {
            return;
        }
        let mut alone: HashSet<_> = overdue.into_iter().map(|half| half.left).collect();
        view.visit_session_flows(|named, _| _ = alone.remove(&named));
        alone.into_iter().for_each(|left| ends.close(left.session));
    }

    /// Deletes the flows of earlier runs whose other flow went while the agent died. To be called before there are clients.
    pub fn end_halves_of_earlier_runs(&self) {
        let mut flows: HashMap<SessionId, Vec<FlowId>> = HashMap::new();
        self.view().visit_session_flows(|named, view| flows.entry(named.session).or_default().push(view.id));
        if !flows.is_empty() {
            self.view().session_ends().begin();
        }
        for lives in flows.into_values().filter(|lives| lives.len() < Direction::BOTH.len()) {
            self.delete_lives(&lives);
        }
    }
}
