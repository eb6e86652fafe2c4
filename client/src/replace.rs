//! The flows of an owner as it names them, and no others.

use sluice_api::v1;
use sluice_api::v1::replace_response::Answer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{Client, Error};

/// Flows in one message.
const PAGE: usize = 1_024;

/// Flows of one owner on their way to being all that it has.
#[derive(Debug)]
pub struct Replace {
    requests: mpsc::Sender<v1::ReplaceRequest>,
    answers: Answers,
}

/// What the agent answers.
#[derive(Debug)]
struct Answers {
    stream: Streaming<v1::ReplaceResponse>,
    failed: Vec<v1::FailedFlow>,
    /// Why the agent has ended the stream: the last answer, which comes once.
    end: Option<tonic::Status>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replaced {
    /// What was done.
    pub done: v1::Replaced,
    /// Flows that were not taken on, each with the reason.
    pub failed: Vec<v1::FailedFlow>,
}

impl Client {
    /// Begins to name the flows of an owner. Nothing is deleted before [`commit`](Replace::commit).
    pub async fn replace(&self, owner: &str) -> Result<Replace, Error> {
        let (requests, sent) = mpsc::channel(4);
        let first = v1::ReplaceRequest { owner: owner.to_owned(), ..v1::ReplaceRequest::default() };
        requests.send(first).await.map_err(|_| Error::Ended)?;
        let stream = self.flows().replace(ReceiverStream::new(sent)).await?.into_inner();
        Ok(Replace { requests, answers: Answers { stream, failed: Vec::new(), end: None } })
    }
}

impl Replace {
    /// Names flows.
    pub async fn flows(&mut self, flows: impl IntoIterator<Item = v1::Flow>) -> Result<(), Error> {
        let mut flows = flows.into_iter().peekable();
        while flows.peek().is_some() {
            let page = flows.by_ref().take(PAGE).collect();
            self.send(v1::ReplaceRequest { flows: page, ..v1::ReplaceRequest::default() }).await?;
        }
        Ok(())
    }

    /// Says that all flows are named, and waits until those that were not are deleted. If the agent has ended the stream, it fails with what the
    /// agent has said, even if that was heard before.
    pub async fn commit(mut self) -> Result<Replaced, Error> {
        self.send(v1::ReplaceRequest { commit: true, ..v1::ReplaceRequest::default() }).await?;
        loop {
            if let Some(done) = self.answers.next().await? {
                return Ok(Replaced { done, failed: self.answers.failed });
            }
        }
    }

    /// Sends a message, and reads what is answered meanwhile: an agent whose answers nobody reads takes no more.
    async fn send(&mut self, request: v1::ReplaceRequest) -> Result<(), Error> {
        let Self { requests, answers } = self;
        loop {
            tokio::select! {
                permit = requests.reserve() => {
                    if let Ok(permit) = permit {
                        permit.send(request);
                        return Ok(());
                    }
                    // The agent has ended the stream, and its last answer says why.
                    loop {
                        answers.next().await?;
                    }
                }
                answer = answers.next() => {
                    answer?;
                }
            }
        }
    }
}

impl Answers {
    /// Reads an answer. Returns what was done, once the agent says so. Fails once the agent has ended the stream.
    async fn next(&mut self) -> Result<Option<v1::Replaced>, Error> {
        if let Some(end) = &self.end {
            return Err(end.clone().into());
        }
        let response = self.stream.message().await.inspect_err(|status| self.end = Some(status.clone()))?;
        Ok(match response.ok_or(Error::Ended)?.answer {
            Some(Answer::Failed(more)) => {
                self.failed.extend(more.flows);
                None
            }
            Some(Answer::Replaced(done)) => Some(done),
            None => None,
        })
    }
}
