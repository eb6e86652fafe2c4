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
    answers: Streaming<v1::ReplaceResponse>,
    failed: Vec<v1::FailedFlow>,
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
        let answers = self.flows().replace(ReceiverStream::new(sent)).await?.into_inner();
        Ok(Replace { requests, answers, failed: Vec::new() })
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

    /// Says that all flows are named, and waits until those that were not are deleted.
    pub async fn commit(mut self) -> Result<Replaced, Error> {
        self.send(v1::ReplaceRequest { commit: true, ..v1::ReplaceRequest::default() }).await?;
        while let Some(response) = self.answers.message().await? {
            match response.answer {
                Some(Answer::Failed(failed)) => self.failed.extend(failed.flows),
                Some(Answer::Replaced(done)) => return Ok(Replaced { done, failed: self.failed }),
                None => {}
            }
        }
        Err(Error::Ended)
    }

    /// Sends a message, and reads what is answered meanwhile: an agent whose answers nobody reads takes no more.
    async fn send(&mut self, request: v1::ReplaceRequest) -> Result<(), Error> {
        let Self { requests, answers, failed } = self;
        let permit = requests.reserve();
        tokio::pin!(permit);
        loop {
            tokio::select! {
                permit = &mut permit => {
                    permit.map_err(|_| Error::Ended)?.send(request);
                    return Ok(());
                }
                answer = answers.message() => match answer?.ok_or(Error::Ended)?.answer {
                    Some(Answer::Failed(more)) => failed.extend(more.flows),
                    Some(Answer::Replaced(_)) | None => {}
                },
            }
        }
    }
}
