//! Who may do what.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_flow::ControllerName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Code, Request, Status};

use super::errors::call_ended;
use super::tls::Identity;
use super::turn;
use crate::agent::Agent;
use crate::config::ApiClient;

/// How soon a stream of answers ends whose client may see nothing any more.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// Streams of a connection at a time that bring flows or sessions. Each costs a few long messages.
const STREAMS: usize = 16;

/// What is known of a connection.
#[derive(Clone)]
pub(super) struct Caller {
    access: Access,
    /// Places of streams that bring flows or sessions.
    streams: Arc<Semaphore>,
}

impl Caller {
    /// One who may do this.
    pub(super) fn new(access: Access) -> Self {
        Self { access, streams: Arc::new(Semaphore::new(STREAMS)) }
    }
}

/// A place among the streams of a connection that bring flows or sessions. One that has none is not read from.
pub(super) fn turn_to_change<T>(request: &Request<T>) -> Result<OwnedSemaphorePermit, Status> {
    let Caller { streams, .. } = request.extensions().get().ok_or_else(unknown)?;
    turn(streams, "too many streams of this connection change flows")
}

/// What the client of a connection may do.
#[derive(Clone)]
pub(super) enum Access {
    /// Everything: the client came by the socket in the run folder, which lets in whom the control socket lets in.
    Everything,
    /// What the configuration says of a client with a name in this certificate; nothing if it says none.
    Certified(Arc<Certified>),
    /// Nothing.
    Nothing,
}

pub(super) struct Certified {
    identity: Identity,
    agent: Arc<Agent>,
}

impl Access {
    /// That of the connection by which a request came.
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        request.extensions().get().map_or(Self::Nothing, |Caller { access, .. }| access.clone())
    }

    /// What the configuration lets a client with this certificate do, as it is at each call.
    pub(super) fn of_certificate(identity: Identity, agent: Arc<Agent>) -> Self {
        Self::Certified(Arc::new(Certified { identity, agent }))
    }

    /// Fails unless the client may see what there is. Whoever tells for long asks before each answer, and every [`LOOK`] while there is none.
    pub(super) fn read(&self) -> Result<(), Status> {
        self.client().map(|_| ())
    }

    /// The owner, unless the client may not change its flows.
    pub(super) fn owner(&self, owner: ControllerName) -> Result<ControllerName, Status> {
        match self.client()? {
            Some(client) if !client.owners.iter().any(|known| **known == *owner) => {
                let words = format!("{} has no flows of {owner}", client.name);
                Err(not_allowed(&client, Some(("owner", owner.to_string())), words))
            }
            _ => Ok(owner),
        }
    }

    /// Fails unless the client may change ports, meters and mirrors.
    pub(super) fn objects(&self) -> Result<(), Status> {
        match self.client()? {
            Some(client) if !client.objects => {
                let words = format!("{} may not change ports, meters and mirrors", client.name);
                Err(not_allowed(&client, None, words))
            }
            _ => Ok(()),
        }
    }

    /// What the configuration says of the client; `None` if it may do everything.
    fn client(&self) -> Result<Option<ApiClient>, Status> {
        match self {
            Self::Everything => Ok(None),
            Self::Nothing => Err(unknown()),
            Self::Certified(certified) => {
                let Certified { identity: Identity { names, until }, agent } = &**certified;
                let failed = |kind, code, words: String| call_ended(kind, code, [("names", names.join(","))], words);
                let either = || names.join(" or ");
                if *until < SystemTime::now() {
                    let words = format!("the certificate of {} has ended", either());
                    return Err(failed("CERTIFICATE_ENDED", Code::Unauthenticated, words));
                }
                let config = agent.config();
                let client = config.api.clients.iter().find(|client| names.contains(&client.name));
                client.cloned().map(Some).ok_or_else(|| {
                    let words = format!("the configuration has no [[api.client]] named {}", either());
                    failed("UNKNOWN_CLIENT", Code::PermissionDenied, words)
                })
            }
        }
    }
}

/// A request came by no connection of ours.
fn unknown() -> Status {
    call_ended("UNKNOWN_CLIENT", Code::Unauthenticated, [], "it is not known who asks")
}

/// A client that is known may not do this.
fn not_allowed(client: &ApiClient, owner: Option<(&'static str, String)>, words: String) -> Status {
    let metadata = [("client", client.name.clone())].into_iter().chain(owner);
    call_ended("NOT_ALLOWED", Code::PermissionDenied, metadata, words)
}
