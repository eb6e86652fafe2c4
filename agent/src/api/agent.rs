//! `Agent`: capabilities, owners and leases.

use std::collections::BTreeMap;

use sluice_api::v1::agent_server::Agent;
use sluice_api::{Details, v1};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, async_trait};

use super::access::Access;
use super::capabilities::capabilities;
use super::errors::{InputError, call_ended};
use super::leases::{End, Lease, LeasesError, MOST, TIMES, Terms};
use super::reader::{read_duration, read_owner};
use super::{Api, Shared};

#[async_trait]
impl Agent for Shared {
    async fn get_capabilities(
        &self,
        request: Request<v1::GetCapabilitiesRequest>,
    ) -> Result<Response<v1::Capabilities>, Status> {
        Access::of(&request).read()?;
        self.answer(|api| Ok(capabilities(api))).await
    }

    async fn list_owners(
        &self,
        request: Request<v1::ListOwnersRequest>,
    ) -> Result<Response<v1::ListOwnersResponse>, Status> {
        Access::of(&request).read()?;
        self.answer(|api| Ok(owners(api))).await
    }

    async fn take_lease(&self, request: Request<v1::TakeLeaseRequest>) -> Result<Response<v1::Lease>, Status> {
        let access = Access::of(&request);
        let request = request.into_inner();
        let owner = access.owner(read_owner(&request.owner)?)?;
        let time = request.time.ok_or_else(|| InputError::new("time", "it is missing"))?;
        let time = read_duration("time", time)?;
        if !TIMES.contains(&time) {
            return Err(InputError::new("time", format!("{time:?} is not 100 ms to 30 days")).into());
        }
        let end = match request.end() {
            v1::LeaseEnd::Keep => End::Keep,
            v1::LeaseEnd::Age => End::Age,
            v1::LeaseEnd::Remove => End::Remove,
            v1::LeaseEnd::Unspecified => return Err(InputError::new("end", "it is missing").into()),
        };
        self.answer(move |api| {
            let lease = api.leases.take(owner, Terms { time, end }).map_err(|error| match error {
                LeasesError::TooMany => too_many_leases(&error.to_string()),
                error => not_written(&error),
            })?;
            Ok(write(&lease))
        })
        .await
    }

    async fn release_lease(
        &self,
        request: Request<v1::ReleaseLeaseRequest>,
    ) -> Result<Response<v1::ReleaseLeaseResponse>, Status> {
        let access = Access::of(&request);
        let owner = access.owner(read_owner(&request.get_ref().owner)?)?;
        self.answer(move |api| {
            api.leases.release(owner).map_err(|error| not_written(&error))?;
            Ok(v1::ReleaseLeaseResponse {})
        })
        .await
    }
}

/// Those that have flows or hold a lease, in order of their names.
fn owners(api: &Api) -> v1::ListOwnersResponse {
    let mut owners: BTreeMap<String, v1::Owner> = BTreeMap::new();
    let new = |name: &str| v1::Owner { name: name.to_owned(), ..v1::Owner::default() };
    for (owner, flows) in api.service.view().owners() {
        let name = owner.to_string();
        owners.entry(name.clone()).or_insert_with(|| new(&name)).flows = flows;
    }
    for (owner, lease) in api.leases.all() {
        owners.entry(owner.to_string()).or_insert_with(|| new(&owner)).lease = Some(write(&lease));
    }
    v1::ListOwnersResponse { owners: owners.into_values().collect() }
}

fn too_many_leases(words: &str) -> Status {
    let limit = [("limit", MOST.to_string()), ("words", words.to_owned())];
    Details::new("LIMIT", limit).status(Code::ResourceExhausted, words).into()
}

/// What was asked for would not survive the agent.
fn not_written(error: &dyn std::error::Error) -> Status {
    call_ended("NOT_DURABLE", Code::Unavailable, [], error.to_string())
}

fn write(Lease { terms, until, .. }: &Lease) -> v1::Lease {
    let end = match terms.end {
        End::Keep => v1::LeaseEnd::Keep,
        End::Age => v1::LeaseEnd::Age,
        End::Remove => v1::LeaseEnd::Remove,
    };
    let left = until.saturating_duration_since(Instant::now());
    v1::Lease { time: terms.time.try_into().ok(), end: end.into(), left: left.try_into().ok() }
}
