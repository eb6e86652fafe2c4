//! What the service gives, written as messages.

use sluice_api::v1;
use sluice_api::v1::r#match::Form;
use sluice_flow::backend::Placement;
use sluice_flow::port::PortMap;
use sluice_flow::table::FlowView;
use sluice_flow::text::{LineWriter, Style};
use sluice_flow::{Counters, EndReason, Event, Flow, FlowState, Origin, Timestamp, Ufid};

use super::errors::of_refusal;
use super::fields::write_fields;
use crate::observe::events::Seen;

/// Writes flows, each over the one before: their texts take no memory anew.
pub(super) struct FlowWriter<'a> {
    lines: LineWriter<'a>,
    form: v1::MatchForm,
    status: v1::FlowStatus,
    /// Whose name is the owner there: most flows have the same.
    owner: Origin,
}

impl<'a> FlowWriter<'a> {
    pub(super) fn new(ports: &'a PortMap, form: v1::MatchForm) -> Self {
        let lines = LineWriter::new(&Style { more: false, names: Some(ports) });
        let owner = Origin::default();
        Self { lines, form, status: v1::FlowStatus { owner: owner.to_string(), ..v1::FlowStatus::default() }, owner }
    }

    /// A flow as it stands.
    pub(super) fn status(&mut self, view: &FlowView, now: Timestamp) -> &v1::FlowStatus {
        self.write(&view.flow);
        let refused = view.refusal.as_ref().filter(|_| view.state == FlowState::Refused);
        let status = &mut self.status;
        status.state = state(view.state).into();
        status.placement = placement(view.placement).into();
        status.count = Some(count(view.counters, now));
        status.age = now.since(view.accepted).try_into().ok();
        status.refusal = refused.map(|refusal| of_refusal(refusal));
        status
    }

    /// What happened to a flow.
    pub(super) fn event(&mut self, Seen { at, event }: &Seen, now: Timestamp) -> v1::Event {
        self.write(event.flow());
        v1::Event {
            kind: kind(event).into(),
            time: Some((*at).into()),
            flow: self.status.flow.clone(),
            owner: self.status.owner.clone(),
            placement: placement(event.placement()).into(),
            refusal: event.refusal().map(of_refusal),
            reason: event.reason().map_or(v1::EndReason::Unspecified, reason).into(),
            count: event.counters().map(|counters| count(counters, now)),
        }
    }

    /// A flow as it is wanted, and who wants it.
    fn write(&mut self, flow: &Flow) {
        let Self { lines, form, status, owner } = self;
        if *owner != flow.origin {
            *owner = flow.origin;
            status.owner = owner.to_string();
        }
        let message = status.flow.get_or_insert_default();
        rewrite_ufid(&mut message.ufid, Some(flow.ufid));
        rewrite(&mut message.actions, |text| lines.push_actions(text, &flow.actions));
        message.priority = flow.priority.get().into();
        message.idle_timeout = flow.expiry.idle.and_then(|span| span.try_into().ok());
        message.hard_timeout = flow.expiry.hard.and_then(|span| span.try_into().ok());
        message.permanent = flow.expiry.permanent;
        let matching = flow.matching();
        let before = message.r#match.take().and_then(|before| before.form);
        let fields = if *form == v1::MatchForm::Fields { write_fields(&matching) } else { None };
        let form = fields.map(Form::Fields).unwrap_or_else(|| {
            let mut text = if let Some(Form::Text(text)) = before { text } else { String::new() };
            rewrite(&mut text, |text| lines.push_key(text, &matching));
            Form::Text(text)
        });
        message.r#match = Some(v1::Match { form: Some(form) });
    }
}

/// Writes a text over another one. What is written by ourselves is UTF-8.
fn rewrite(text: &mut String, write: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::mem::take(text).into_bytes();
    bytes.clear();
    write(&mut bytes);
    *text = utf8(bytes);
}

/// Writes a UFID over another text, or none.
pub(super) fn rewrite_ufid(text: &mut String, ufid: Option<Ufid>) {
    rewrite(text, |text| ufid.into_iter().for_each(|ufid| LineWriter::push_ufid(text, ufid)));
}

pub(super) fn ufid_text(ufid: Ufid) -> String {
    let mut text = String::with_capacity(Ufid::TEXT_LENGTH);
    rewrite_ufid(&mut text, Some(ufid));
    text
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
