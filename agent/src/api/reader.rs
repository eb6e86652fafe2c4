//! Messages, read as what the service takes.

use std::sync::Arc;
use std::time::Duration;

use sluice_api::v1;
use sluice_flow::parts::SharedParts;
use sluice_flow::port::{PortMap, PortNames};
use sluice_flow::text::{Extra, LineReader, ParseError, parse_key, parse_openflow_match};
use sluice_flow::ufid::Seed;
use sluice_flow::{ControllerName, Expiry, Flow, FlowMaker, FlowState, MaskedKey, Match, Origin, Priority, Ufid};

use super::errors::InputError;
use super::fields::read_fields;
use crate::service::FlowName;

/// Reads flows of one owner, many of which have much in common.
pub(super) struct FlowReader<'a> {
    seed: &'a Seed,
    lines: LineReader<'a>,
    maker: FlowMaker,
}

impl<'a> FlowReader<'a> {
    pub(super) fn new(ports: &'a PortMap, seed: &'a Seed, origin: Origin) -> Self {
        let lines = LineReader::new(ports).of(origin);
        let maker = FlowMaker::new(*seed, origin);
        Self { seed, lines, maker }
    }

    /// Reads flows for the table whose parts these are.
    pub(super) fn sharing(self, parts: &Arc<SharedParts>) -> Self {
        let Self { seed, lines, maker } = self;
        Self { seed, lines: lines.sharing(parts.clone()), maker: maker.sharing(parts.clone()) }
    }

    /// Reads a flow.
    pub(super) fn read(&mut self, flow: &v1::Flow) -> Result<Flow, InputError> {
        let ufid = read_ufid(&flow.ufid)?;
        let priority = read_priority(flow.priority)?;
        let expiry = read_expiry(flow)?;
        let wrong = |place| move |error: ParseError| InputError::text(place, &error);
        match flow.r#match.as_ref().and_then(|matching| matching.form.as_ref()) {
            None => Err(InputError::new("match", "it is missing")),
            Some(v1::r#match::Form::Text(text)) => {
                self.lines.read_key(text).map_err(wrong("match"))?;
                self.lines.read_actions(&flow.actions).map_err(wrong("actions"))?;
                let (own_ufid, extra) = self.lines.line_mut();
                *own_ufid = ufid.or(*own_ufid);
                *extra = Extra { priority, expiry, other: None };
                Ok(self.lines.flow(self.seed))
            }
            Some(v1::r#match::Form::Fields(fields)) => {
                let matching = read_fields(fields)?;
                self.lines.read_actions(&flow.actions).map_err(wrong("actions"))?;
                Ok(self.maker.make(ufid, &matching, &self.lines.line().actions, priority, expiry, false))
            }
        }
    }
}

/// Reads a match by itself.
pub(super) fn read_match(matching: &v1::Match, ports: &dyn PortNames) -> Result<Match, InputError> {
    match &matching.form {
        None => Err(InputError::new("match", "it is missing")),
        Some(v1::r#match::Form::Fields(fields)) => read_fields(fields),
        Some(v1::r#match::Form::Text(text)) => {
            parse_key(text, ports).map(|key| key.matching).map_err(|error| InputError::text("match", &error))
        }
    }
}

/// Reads what a flow is found by.
pub(super) fn read_name(name: Option<&v1::FlowName>, ports: &dyn PortNames) -> Result<FlowName, InputError> {
    match name.and_then(|name| name.name.as_ref()) {
        None => Err(InputError::new("name", "it is missing")),
        Some(v1::flow_name::Name::Ufid(ufid)) => match read_ufid(ufid)? {
            Some(ufid) => Ok(FlowName::Ufid(ufid)),
            None => Err(InputError::new("ufid", "it is empty")),
        },
        Some(v1::flow_name::Name::Match(v1::MatchAndPriority { r#match, priority })) => {
            let matching = r#match.as_ref().ok_or_else(|| InputError::new("match", "it is missing"))?;
            let matching = MaskedKey::new(&read_match(matching, ports)?);
            Ok(FlowName::Match { matching, priority: read_priority(*priority)? })
        }
    }
}

/// Reads a UFID, if there is one.
pub(super) fn read_ufid(text: &str) -> Result<Option<Ufid>, InputError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| InputError::new("ufid", format!("{text:?}: {error}")))
}

fn read_priority(priority: u32) -> Result<Priority, InputError> {
    let known = u8::try_from(priority).ok().and_then(Priority::new);
    known.ok_or_else(|| InputError::new("priority", format!("{priority} is not 0 to {}", Priority::MAX)))
}

fn read_expiry(flow: &v1::Flow) -> Result<Expiry, InputError> {
    Ok(Expiry {
        idle: flow.idle_timeout.map(|span| read_duration("idle_timeout", span)).transpose()?,
        hard: flow.hard_timeout.map(|span| read_duration("hard_timeout", span)).transpose()?,
        permanent: flow.permanent,
    })
}

/// Reads a time that is not negative.
pub(super) fn read_duration(place: &'static str, span: prost_types::Duration) -> Result<Duration, InputError> {
    span.try_into().map_err(|error: prost_types::DurationError| InputError::new(place, error.to_string()))
}

/// Reads the name of a controller.
pub(super) fn read_owner(name: &str) -> Result<ControllerName, InputError> {
    name.parse().map_err(|error: sluice_flow::NameError| InputError::new("owner", error.to_string()))
}

/// Which flows are meant.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// As [`Origin`] prints it.
    owner: Option<String>,
    matchings: Vec<Match>,
    states: Vec<FlowState>,
    ufid: Option<Ufid>,
}

impl Filter {
    pub(super) fn read(filter: Option<&v1::Filter>, ports: &dyn PortNames) -> Result<Self, InputError> {
        let Some(filter) = filter else { return Ok(Self::default()) };
        let key = filter.r#match.as_ref().map(|matching| read_match(matching, ports)).transpose()?;
        let openflow = (!filter.openflow.is_empty()).then(|| parse_openflow_match(&filter.openflow, ports));
        let openflow = openflow.transpose().map_err(|reason| InputError::new("openflow", reason))?;
        let state = |number: &i32| match v1::FlowState::try_from(*number) {
            Ok(v1::FlowState::Pending) => Ok(FlowState::Pending),
            Ok(v1::FlowState::Offloaded) => Ok(FlowState::Offloaded),
            Ok(v1::FlowState::Partial) => Ok(FlowState::Partial),
            Ok(v1::FlowState::Refused) => Ok(FlowState::Refused),
            Ok(v1::FlowState::Deleting) => Ok(FlowState::Deleting),
            Ok(v1::FlowState::Unspecified) | Err(_) => Err(InputError::new("states", format!("there is no {number}"))),
        };
        Ok(Self {
            owner: (!filter.owner.is_empty()).then(|| filter.owner.clone()),
            matchings: key.into_iter().chain(openflow).collect(),
            states: filter.states.iter().map(state).collect::<Result<_, _>>()?,
            ufid: read_ufid(&filter.ufid)?,
        })
    }

    /// The one flow that can be meant, if it is named.
    pub(super) const fn ufid(&self) -> Option<Ufid> {
        self.ufid
    }

    /// Whether a flow is meant, whatever its state is.
    pub(super) fn wants(&self, flow: &Flow) -> bool {
        self.ufid.is_none_or(|ufid| flow.ufid == ufid)
            && self.owner.as_ref().is_none_or(|owner| *owner == flow.origin.to_string())
            && self.matchings.iter().all(|filter| flow.matching().could_concern(filter))
    }

    /// Whether a flow in this state is meant.
    pub(super) fn wants_in(&self, flow: &Flow, state: FlowState) -> bool {
        (self.states.is_empty() || self.states.contains(&state)) && self.wants(flow)
    }
}
