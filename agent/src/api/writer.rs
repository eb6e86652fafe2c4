//! What the service gives, written as messages.

use sluice_api::v1;
use sluice_flow::backend::Placement;
use sluice_flow::port::PortMap;
use sluice_flow::table::FlowView;
use sluice_flow::text::{LineWriter, Style};
use sluice_flow::{Counters, EndReason, Event, Flow, FlowState, Origin, Timestamp, Ufid};

use super::errors::of_refusal;
use super::fields::write_fields;
use crate::observe::events::Seen;

/// Writes flows, and remembers what they have in common.
pub(super) struct FlowWriter<'a> {
    lines: LineWriter<'a>,
    form: v1::MatchForm,
    /// Where a text is written before its length is known.
    text: Vec<u8>,
    /// The owner of the last flow: most flows have the same.
    owner: (Origin, String),
}

impl<'a> FlowWriter<'a> {
    pub(super) fn new(ports: &'a PortMap, form: v1::MatchForm) -> Self {
        let lines = LineWriter::new(&Style { more: false, names: Some(ports) });
        let owner = Origin::default();
        Self { lines, form, text: Vec::new(), owner: (owner, owner.to_string()) }
    }

    /// A flow as it is wanted.
    pub(super) fn flow(&mut self, flow: &Flow) -> v1::Flow {
        let Self { lines, text, .. } = self;
        let actions = written(text, |text| lines.push_actions(text, &flow.actions));
        let fields = (self.form == v1::MatchForm::Fields).then(|| write_fields(&flow.matching())).flatten();
        let form = match fields {
            Some(fields) => v1::r#match::Form::Fields(fields),
            None => v1::r#match::Form::Text(written(text, |text| lines.push_key(text, &flow.matching()))),
        };
        v1::Flow {
            ufid: ufid_text(flow.ufid),
            r#match: Some(v1::Match { form: Some(form) }),
            actions,
            priority: flow.priority.get().into(),
            idle_timeout: flow.expiry.idle.and_then(|span| span.try_into().ok()),
            hard_timeout: flow.expiry.hard.and_then(|span| span.try_into().ok()),
            permanent: flow.expiry.permanent,
        }
    }

    fn owner(&mut self, origin: Origin) -> String {
        if self.owner.0 != origin {
            self.owner = (origin, origin.to_string());
        }
        self.owner.1.clone()
    }

    /// A flow as it stands.
    pub(super) fn status(&mut self, view: &FlowView, now: Timestamp) -> v1::FlowStatus {
        let refused = view.refusal.as_ref().filter(|_| view.state == FlowState::Refused);
        v1::FlowStatus {
            flow: Some(self.flow(&view.flow)),
            owner: self.owner(view.flow.origin),
            state: state(view.state).into(),
            placement: placement(view.placement).into(),
            count: Some(count(view.counters, now)),
            age: now.since(view.accepted).try_into().ok(),
            refusal: refused.map(|refusal| of_refusal(refusal)),
        }
    }

    /// What happened to a flow.
    pub(super) fn event(&mut self, Seen { at, event }: &Seen, now: Timestamp) -> v1::Event {
        v1::Event {
            kind: kind(event).into(),
            time: Some((*at).into()),
            flow: Some(self.flow(event.flow())),
            owner: self.owner(event.flow().origin),
            placement: placement(event.placement()).into(),
            refusal: event.refusal().map(of_refusal),
            reason: event.reason().map_or(v1::EndReason::Unspecified, reason).into(),
            count: event.counters().map(|counters| count(counters, now)),
        }
    }
}

/// What is written by ourselves, and is UTF-8.
fn written(text: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> String {
    text.clear();
    write(text);
    utf8(text.clone())
}

pub(super) fn ufid_text(ufid: Ufid) -> String {
    let mut text = Vec::with_capacity(Ufid::TEXT_LENGTH);
    LineWriter::push_ufid(&mut text, ufid);
    utf8(text)
}

fn utf8(text: Vec<u8>) -> String {
    String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// What a flow has counted.
pub(super) fn count(counters: Counters, now: Timestamp) -> v1::Count {
    let Counters { packets, bytes, used, tcp_flags } = counters;
    v1::Count {
        packets,
        bytes,
        tcp_flags: tcp_flags.into(),
        used: used.and_then(|used| now.since(used).try_into().ok()),
    }
}

/// Where a rule is.
pub(super) const fn placement(placement: Option<Placement>) -> v1::Placement {
    match placement {
        None => v1::Placement::Unspecified,
        Some(Placement::Hardware) => v1::Placement::Hardware,
        Some(Placement::Software) => v1::Placement::Software,
        Some(Placement::Both) => v1::Placement::Both,
        Some(Placement::Unknown) => v1::Placement::Unknown,
    }
}

const fn state(state: FlowState) -> v1::FlowState {
    match state {
        FlowState::Pending => v1::FlowState::Pending,
        FlowState::Offloaded => v1::FlowState::Offloaded,
        FlowState::Partial => v1::FlowState::Partial,
        FlowState::Refused => v1::FlowState::Refused,
        FlowState::Deleting => v1::FlowState::Deleting,
    }
}

const fn reason(reason: EndReason) -> v1::EndReason {
    match reason {
        EndReason::Deleted => v1::EndReason::Deleted,
        EndReason::Flushed => v1::EndReason::Flushed,
        EndReason::Idle => v1::EndReason::Idle,
        EndReason::Hard => v1::EndReason::Hard,
        EndReason::Limit => v1::EndReason::Limit,
    }
}

const fn kind(event: &Event) -> v1::event::Kind {
    match event {
        Event::Accepted(_) => v1::event::Kind::Accepted,
        Event::Installed { .. } => v1::event::Kind::Installed,
        Event::Adopted { .. } => v1::event::Kind::Adopted,
        Event::Modified { .. } => v1::event::Kind::Modified,
        Event::Moved { .. } => v1::event::Kind::Moved,
        Event::Refused { .. } => v1::event::Kind::Refused,
        Event::Aged { .. } => v1::event::Kind::Aged,
        Event::Evicted { .. } => v1::event::Kind::Evicted,
        Event::Deleted { .. } => v1::event::Kind::Deleted,
        // The event is of a crate that may learn further ones.
        _ => v1::event::Kind::Unspecified,
    }
}
