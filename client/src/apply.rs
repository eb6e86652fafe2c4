//! Operations and their answers.

use sluice_api::v1;
use sluice_api::v1::operation::Change;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{Client, Error};

/// Batches that wait for the agent to take them.
const BATCHES: usize = 4;

/// A stream of operations of one owner. Whoever sends much reads answers meanwhile: an agent whose answers nobody reads takes no more.
#[derive(Debug)]
pub struct Apply {
    sending: Sending,
    receiving: Receiving,
}

/// The end of a stream into which operations go. The stream ends when it is dropped; answers still come.
#[derive(Debug)]
pub struct Sending {
    owner: String,
    requests: Option<mpsc::Sender<v1::ApplyRequest>>,
}

/// The end of a stream from which answers come.
#[derive(Debug)]
pub struct Receiving(Streaming<v1::ApplyResponse>);

/// An answer of the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// One for each operation of a batch: accepted, or not and why.
    Accepted(Vec<v1::Acceptance>),
    /// What became of operations that were accepted.
    Outcomes(Vec<v1::Outcome>),
}

impl Client {
    /// Begins a stream of operations.
    pub async fn apply(&self, owner: &str) -> Result<Apply, Error> {
        let (requests, sent) = mpsc::channel(BATCHES);
        // An agent that refuses the owner says so at once.
        let first = v1::ApplyRequest { owner: owner.to_owned(), operations: Vec::new() };
        requests.send(first).await.map_err(|_| Error::Ended)?;
        let answers = self.flows().apply(ReceiverStream::new(sent)).await?.into_inner();
        let sending = Sending { owner: owner.to_owned(), requests: Some(requests) };
        Ok(Apply { sending, receiving: Receiving(answers) })
    }
}

impl Apply {
    /// Sends a batch. Waits while the agent does not take it.
    pub async fn send(&mut self, operations: impl IntoIterator<Item = v1::Operation>) -> Result<(), Error> {
        self.sending.send(operations).await
    }

    /// Says that there are no more operations. Their answers still come.
    pub fn finish(&mut self) {
        self.sending.requests = None;
    }

    /// The next answer; `None` at the end, after [`finish`](Self::finish).
    pub async fn next(&mut self) -> Result<Option<Answer>, Error> {
        self.receiving.next().await
    }

    /// Both ends, for one who sends while answers come.
    pub fn split(self) -> (Sending, Receiving) {
        (self.sending, self.receiving)
    }
}

impl Sending {
    /// Sends a batch. Waits while the agent does not take it.
    pub async fn send(&mut self, operations: impl IntoIterator<Item = v1::Operation>) -> Result<(), Error> {
        let request = v1::ApplyRequest { owner: self.owner.clone(), operations: operations.into_iter().collect() };
        let requests = self.requests.as_ref().ok_or(Error::Ended)?;
        requests.send(request).await.map_err(|_| Error::Ended)
    }
}

impl Receiving {
    /// The next answer; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Answer>, Error> {
        use v1::apply_response::Answer as Told;
        while let Some(response) = self.0.message().await? {
            match response.answer {
                // That of the first message.
                Some(Told::Accepted(accepted)) if accepted.entries.is_empty() => {}
                Some(Told::Accepted(accepted)) => return Ok(Some(Answer::Accepted(accepted.entries))),
                Some(Told::Outcomes(outcomes)) => return Ok(Some(Answer::Outcomes(outcomes.outcomes))),
                None => {}
            }
        }
        Ok(None)
    }
}

/// A flow in the text of OVS, with all else as it is if nothing is said.
pub fn flow(key: &str, actions: &str) -> v1::Flow {
    let form = v1::r#match::Form::Text(key.to_owned());
    v1::Flow { r#match: Some(v1::Match { form: Some(form) }), actions: actions.to_owned(), ..v1::Flow::default() }
}

/// Adds a flow. The caller's `id` is in both of its answers.
pub fn add(id: u64, flow: v1::Flow) -> v1::Operation {
    v1::Operation { id, change: Some(Change::Add(v1::AddFlow { flow: Some(flow) })) }
}

/// Changes the actions and timeouts of a flow.
pub fn modify(id: u64, flow: v1::Flow) -> v1::Operation {
    v1::Operation { id, change: Some(Change::Modify(v1::ModifyFlow { flow: Some(flow), ..v1::ModifyFlow::default() })) }
}

/// Deletes the flow with this UFID.
pub fn delete(id: u64, ufid: &str) -> v1::Operation {
    let name = v1::flow_name::Name::Ufid(ufid.to_owned());
    v1::Operation { id, change: Some(Change::Delete(v1::DeleteFlow { name: Some(v1::FlowName { name: Some(name) }) })) }
}
