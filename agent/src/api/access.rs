//! Who may do what.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_flow::ControllerName;
use tonic::{Request, Status};

use super::tls::Identity;
use crate::agent::Agent;
use crate::config::ApiClient;

/// How soon a stream of answers ends whose client may see nothing any more.
pub(super) const LOOK: Duration = Duration::from_secs(2);

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
        request.extensions().get().cloned().unwrap_or(Self::Nothing)
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
                Err(Status::permission_denied(format!("{} has no flows of {owner}", client.name)))
            }
            _ => Ok(owner),
        }
    }

    /// Fails unless the client may change ports, meters and mirrors.
    pub(super) fn objects(&self) -> Result<(), Status> {
        match self.client()? {
            Some(client) if !client.objects => {
                Err(Status::permission_denied(format!("{} may not change ports, meters and mirrors", client.name)))
            }
            _ => Ok(()),
        }
    }

    /// What the configuration says of the client; `None` if it may do everything.
    fn client(&self) -> Result<Option<ApiClient>, Status> {
        match self {
            Self::Everything => Ok(None),
            Self::Nothing => Err(Status::unauthenticated("it is not known who asks")),
            Self::Certified(certified) => {
                let Certified { identity: Identity { names, until }, agent } = &**certified;
                if *until < SystemTime::now() {
                    return Err(Status::unauthenticated(format!(
                        "the certificate of {} has ended",
                        names.join(" or ")
                    )));
                }
                let config = agent.config();
                let client = config.api.clients.iter().find(|client| names.contains(&client.name));
                client.cloned().map(Some).ok_or_else(|| {
                    let names = names.join(" or ");
                    Status::permission_denied(format!("the configuration has no [[api.client]] named {names}"))
                })
            }
        }
    }
}
