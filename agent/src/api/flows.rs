//! `Flows`: each call handed to its file, by whoever may make it.

use sluice_api::v1::flows_server::Flows;
use sluice_api::{DumpResponse, v1};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::Shared;
use super::access::{Access, turn_to_change};
use super::streaming::Answers;
use super::{apply, counters, dump, replace, watch};

type Stream<T> = ReceiverStream<Result<T, Status>>;

#[async_trait]
impl Flows for Shared {
    type ApplyStream = Stream<v1::ApplyResponse>;
    type ReplaceStream = Stream<v1::ReplaceResponse>;
    type DumpStream = Stream<DumpResponse>;
    type WatchStream = Stream<v1::WatchResponse>;
    type CountersStream = Stream<v1::CountersResponse>;

    async fn apply(
        &self,
        request: Request<Streaming<v1::ApplyRequest>>,
    ) -> Result<Response<Self::ApplyStream>, Status> {
        let access = Access::of(&request);
        access.read()?;
        let turn = turn_to_change(&request)?;
        Ok(stream(apply::apply(&self.0, access, turn, request.into_inner())))
    }

    async fn replace(
        &self,
        request: Request<Streaming<v1::ReplaceRequest>>,
    ) -> Result<Response<Self::ReplaceStream>, Status> {
        let access = Access::of(&request);
        access.read()?;
        let turn = turn_to_change(&request)?;
        Ok(stream(replace::replace(&self.0, access, turn, request.into_inner())))
    }

    async fn dump(&self, request: Request<v1::DumpRequest>) -> Result<Response<Self::DumpStream>, Status> {
        Access::of(&request).read()?;
        Ok(stream(dump::dump(&self.0, request.into_inner())?))
    }

    async fn explain(&self, request: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainResponse>, Status> {
        Access::of(&request).read()?;
        self.answer(move |api| dump::explain(api, request.get_ref())).await
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let access = Access::of(&request);
        access.read()?;
        Ok(stream(watch::watch(&self.0, access, request.get_ref())?))
    }

    async fn counters(&self, request: Request<v1::CountersRequest>) -> Result<Response<Self::CountersStream>, Status> {
        let access = Access::of(&request);
        access.read()?;
        Ok(stream(counters::counters(&self.0, access, request.get_ref())?))
    }
}

fn stream<T>(answers: Answers<T>) -> Response<Stream<T>> {
    Response::new(ReceiverStream::new(answers))
}
