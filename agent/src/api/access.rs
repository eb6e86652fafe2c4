//! Who may do what.

use std::sync::Arc;
use std::time::SystemTime;

use sluice_flow::ControllerName;
use tonic::{Request, Status};

use super::tls::Identity;
use crate::config::ApiClient;

/// What the client of a connection may do.
#[derive(Clone, Debug)]
pub(super) enum Access {
    /// Everything: the client came by the socket in the run folder, which lets in whom the control socket lets in.
    Everything,
    /// What the configuration said, when the client connected, of one with a name in its certificate; nothing if that is none.
    Certified(Arc<Certified>),
    /// Nothing.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Certified {
    identity: Identity,
    client: Option<ApiClient>,
}

impl Access {
    /// That of the connection by which a request came.
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        request.extensions().get().cloned().unwrap_or(Self::Nothing)
    }

    /// What the configuration lets a client with this certificate do.
    pub(super) fn of_certificate(identity: Identity, clients: &[ApiClient]) -> Self {
        let client = clients.iter().find(|client| identity.names.contains(&client.name)).cloned();
        Self::Certified(Arc::new(Certified { identity, client }))
    }

    /// Fails unless the client may see what there is.
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
    fn client(&self) -> Result<Option<&ApiClient>, Status> {
        match self {
            Self::Everything => Ok(None),
            Self::Nothing => Err(Status::unauthenticated("it is not known who asks")),
            Self::Certified(certified) => {
                let Identity { names, until } = &certified.identity;
                let names = names.join(" or ");
                if *until < SystemTime::now() {
                    return Err(Status::unauthenticated(format!("the certificate of {names} has ended")));
                }
                let unknown =
                    || Status::permission_denied(format!("the configuration has no [[api.client]] named {names}"));
                certified.client.as_ref().map(Some).ok_or_else(unknown)
            }
        }
    }
}
