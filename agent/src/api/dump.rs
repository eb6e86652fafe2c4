//! `Dump` and `Explain`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use sluice_api::v1::explain_request::Flow as Asked;
use sluice_api::v1::explain_response::Verdict;
use sluice_api::{DumpResponse, v1};
use sluice_flow::Origin;
use sluice_flow::backend::CountedApart;
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::errors::{InputError, call_ended, call_failed, of_refusal};
use super::reader::{Filter, FlowReader, read_name};
use super::streaming::{Answer, Answers, look_after};
use super::writer::{FlowWriter, count};
use super::{Api, turn};
use crate::service::{Explain, Explanation};

/// Bytes from which on further flows come in another message.
const PAGE: usize = 128 * 1024;

/// Messages that wait to be sent.
const PAGES: usize = 4;

/// How long a client may read nothing of a dump.
const STALL: Duration = Duration::from_secs(60);

/// Shows flows, a page at a time. A client that reads slowly holds [`PAGES`] of them: no lock, and one flow.
pub(super) fn dump(api: &Arc<Api>, request: v1::DumpRequest) -> Result<Answers<DumpResponse>, Status> {
    let form = request.form();
    let filter = Filter::read(request.filter.as_ref(), &*api.service.view().ports())?;
    let turn = turn(&api.walks, "too many dumps are under way")?;
    let (mut pages, answers) = Pages::new();
    let (api, runtime, end) = (api.clone(), tokio::runtime::Handle::current(), pages.answer.clone());
    let task = tokio::task::spawn_blocking(move || {
        walk(&api, &filter, form, |page| runtime.block_on(pages.send(page)));
        drop(turn);
    });
    look_after(task, end);
    Ok(answers)
}

/// Where pages are sent.
struct Pages {
    answer: Answer<DumpResponse>,
    /// A place beside those of the pages, for a client to hear that the dump is not whole.
    end: Option<OwnedPermit<Result<DumpResponse, Status>>>,
}

impl Pages {
    fn new() -> (Self, Answers<DumpResponse>) {
        let (answer, answers) = mpsc::channel(PAGES + 1);
        let end = answer.clone().try_reserve_owned().ok();
        (Self { answer, end }, answers)
    }

    /// Sends a page. A client that reads nothing is told so, if it ever reads again, and the dump ends.
    async fn send(&mut self, page: DumpResponse) -> ControlFlow<()> {
        match timeout(STALL, self.answer.send(Ok(page))).await {
            Ok(Ok(())) => return ControlFlow::Continue(()),
            // The client is gone.
            Ok(Err(_)) => {}
            Err(_) => {
                let reason = format!("nothing was read for {} s: the dump is not whole", STALL.as_secs());
                tracing::warn!("a dump by the gRPC interface ends early: {reason}");
                if let Some(end) = self.end.take() {
                    let _ = end.send(Err(call_ended("NOT_READ", Code::Aborted, [], reason)));
                }
            }
        }
        ControlFlow::Break(())
    }
}

fn walk(api: &Api, filter: &Filter, form: v1::MatchForm, mut send: impl FnMut(DumpResponse) -> ControlFlow<()>) {
    let view = api.service.view();
    let ports = view.ports();
    let mut writer = FlowWriter::new(&ports, form);
    if let Some(ufid) = filter.ufid() {
        let mut page = DumpResponse::default();
        if let Some(known) = view.named(ufid).filter(|known| filter.wants_in(&known.flow, known.state)) {
            page.push(writer.status(&known, view.now()));
        }
        let _ = send(page);
        return;
    }
    let mut page = new_page();
    let mut now = view.now();
    let mut goes_on = ControlFlow::Continue(());
    view.visit(&mut |flow| {
        if filter.wants_in(&flow.flow, flow.state) {
            page.push(writer.status(&flow, now));
            if page.size() >= PAGE {
                goes_on = send(std::mem::replace(&mut page, new_page()));
                now = view.now();
            }
        }
        goes_on
    });
    if goes_on.is_continue() && page.size() > 0 {
        let _ = send(page);
    }
}

/// An empty one. The flow that fills it may be longer than what is left.
fn new_page() -> DumpResponse {
    DumpResponse::with_capacity(PAGE + 1024)
}

/// Explains a flow.
pub(super) fn explain(api: &Api, request: &v1::ExplainRequest) -> Result<v1::ExplainResponse, Status> {
    let view = api.service.view();
    let ports = view.ports();
    let wanted = match &request.flow {
        None => return Err(InputError::new("flow", "it is missing").into()),
        Some(Asked::Known(name)) => Explain::Known(read_name(Some(name), &*ports)?),
        Some(Asked::Candidate(flow)) => {
            Explain::Candidate(FlowReader::new(&ports, view.seed(), Origin::Command).read(flow)?)
        }
    };
    let Explanation { known, verdict } = view.explain(&wanted).map_err(|error| call_failed(&error))?;
    let apart = known.as_ref().and_then(|known| known.apart);
    let now = view.now();
    let status = known.map(|known| FlowWriter::new(&ports, v1::MatchForm::Text).status(&known.view, now).clone());
    Ok(v1::ExplainResponse {
        status,
        hardware: apart.map(|CountedApart { hardware, .. }| count(hardware, now)),
        software: apart.map(|CountedApart { software, .. }| count(software, now)),
        verdict: Some(match verdict {
            Ok(rule) => Verdict::Rule(rule),
            Err(refusal) => Verdict::Refusal(of_refusal(&refusal)),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_dump_that_is_not_read_ends_with_an_error_and_not_as_if_it_were_whole() {
        let (mut pages, mut answers) = Pages::new();
        for _ in 0..PAGES {
            assert!(pages.send(new_page()).await.is_continue());
        }
        assert!(pages.send(new_page()).await.is_break(), "nobody reads");
        drop(pages);
        for _ in 0..PAGES {
            assert!(answers.recv().await.unwrap().is_ok());
        }
        assert_eq!(answers.recv().await.unwrap().unwrap_err().code(), Code::Aborted);
        assert!(answers.recv().await.is_none());
    }
}
