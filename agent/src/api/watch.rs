//! `Watch`: events, from a moment on or from where an earlier stream ended.

use std::sync::Arc;

use sluice_api::v1;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::Status;

use super::access::{Access, LOOK};
use super::errors::InputError;
use super::reader::Filter;
use super::streaming::{Answers, look_after};
use super::writer::FlowWriter;
use super::{Api, turn};
use crate::observe::events::Seen;
use crate::observe::history::Page;

/// Events in one message at the most.
const PAGE: usize = 512;

/// Tells events until the client is gone, or may not hear of them any more.
pub(super) fn watch(
    api: &Arc<Api>,
    access: Access,
    request: &v1::WatchRequest,
) -> Result<Answers<v1::WatchResponse>, Status> {
    let form = request.form();
    let filter = Filter::read(request.filter.as_ref(), &*api.service.view().ports())?;
    let resume = Token::read(&request.resume)?;
    let turn = turn(&api.watchers, "too many clients watch events")?;
    let (answer, answers) = mpsc::channel(1);
    let (api, end) = (api.clone(), answer.clone());
    let task = tokio::spawn(async move {
        let history = api.service.view().history();
        let (reader, now) = history.read();
        let is_of_this_run = resume.as_ref().is_none_or(|token| token.run == api.run && token.next <= now);
        let mut from = resume.filter(|_| is_of_this_run).map_or(now, |token| token.next);
        // The first message has a token, so that a client that hears of no event may come back, too.
        let mut is_first = true;
        loop {
            if let Err(status) = access.read() {
                // Nobody reads it if the client is gone.
                let _ = answer.send(Err(status)).await;
                break;
            }
            let Page { events, lost, next } = reader.page(from, PAGE);
            let wanted: Vec<_> = events.iter().filter(|seen| filter.wants(seen.event.flow())).collect();
            if is_first || lost > 0 || !wanted.is_empty() {
                let response = v1::WatchResponse {
                    events: write(&api, &wanted, form),
                    lost,
                    lost_unknown: is_first && !is_of_this_run,
                    token: Token { run: api.run, next }.write(),
                };
                if answer.send(Ok(response)).await.is_err() {
                    break;
                }
                is_first = false;
            } else {
                // Where no event is wanted, nothing else lets others have their turn, or sees that the client is gone.
                tokio::task::yield_now().await;
                if answer.is_closed() {
                    break;
                }
            }
            if events.is_empty() {
                tokio::select! {
                    () = reader.wait(next) => {}
                    () = sleep(LOOK) => {}
                    () = answer.closed() => break,
                }
            }
            from = next;
        }
        drop(turn);
    });
    look_after(task, end);
    Ok(answers)
}

fn write(api: &Api, events: &[&Arc<Seen>], form: v1::MatchForm) -> Vec<v1::Event> {
    let ports = api.service.view().ports();
    let mut writer = FlowWriter::new(&ports, form);
    events.iter().map(|seen| writer.event(seen, api.clock.now())).collect()
}

/// Where a stream stands.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    /// Of which run of the agent.
    run: u64,
    /// The number of the next event.
    next: u64,
}

impl Token {
    fn read(bytes: &[u8]) -> Result<Option<Self>, InputError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let [run, next] = bytes.as_chunks().0 else { return Err(InputError::new("resume", "it is no token")) };
        if bytes.len() != 16 {
            return Err(InputError::new("resume", "it is no token"));
        }
        Ok(Some(Self { run: u64::from_be_bytes(*run), next: u64::from_be_bytes(*next) }))
    }

    fn write(&self) -> Vec<u8> {
        [self.run.to_be_bytes(), self.next.to_be_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_nothing_else_is_one() {
        let token = Token { run: 7, next: 1 << 40 };
        assert_eq!(Token::read(&token.write()), Ok(Some(token)));
        assert_eq!(Token::read(&[]), Ok(None));
        for wrong in [&[1][..], &[0; 8], &[0; 17], &[0; 24]] {
            assert!(Token::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
