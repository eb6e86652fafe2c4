//! `[api]`: the gRPC interface.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use sluice_flow::ControllerName;

/// The gRPC interface. It is always served on the socket `api.sock` in `run_dir`, to whom the control socket serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, try_from = "ApiTable")]
pub struct Api {
    /// Where it is served over TCP, too. Default: nowhere.
    pub remote: Option<Remote>,
    /// `[[api.client]]`: who may use it over TCP.
    pub clients: Vec<ApiClient>,
}

/// The interface over TCP, by TLS with certificates on both sides. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// `listen`: address and port.
    pub listen: SocketAddr,
    /// `certificate`: a PEM file with the certificate of the agent, and those between it and its authority.
    pub certificate: PathBuf,
    /// `key`: a PEM file with its private key.
    pub key: PathBuf,
    /// `client_ca`: a PEM file with the authorities that certificates of clients come from.
    pub client_ca: PathBuf,
}

/// A client of the interface over TCP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiClient {
    /// A name in its certificate: a DNS name or URI of the subject's alternative names, or the common name if there are none.
    pub name: String,
    /// The owners whose flows it may change. Default: none, so that it only reads.
    #[serde(default)]
    pub owners: Vec<String>,
    /// Whether it may change ports, meters and mirrors. Default `false`.
    #[serde(default)]
    pub objects: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ApiTable {
    listen: Option<SocketAddr>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    client: Vec<ApiClient>,
}

impl TryFrom<ApiTable> for Api {
    type Error = String;

    fn try_from(table: ApiTable) -> Result<Self, String> {
        for client in &table.client {
            for owner in &client.owners {
                owner.parse::<ControllerName>().map_err(|error| error.to_string())?;
            }
        }
        let remote = match (table.listen, table.certificate, table.key, table.client_ca) {
            (None, None, None, None) => None,
            (Some(listen), Some(certificate), Some(key), Some(client_ca)) => {
                if let Some(relative) = [&certificate, &key, &client_ca].into_iter().find(|path| path.is_relative()) {
                    return Err(format!("{} is not an absolute path", relative.display()));
                }
                Some(Remote { listen, certificate, key, client_ca })
            }
            _ => return Err("`listen`, `certificate`, `key` and `client_ca` go together".to_owned()),
        };
        if remote.is_none() && !table.client.is_empty() {
            return Err("`[[api.client]]` is for clients over TCP, and there is no `listen`".to_owned());
        }
        Ok(Self { remote, clients: table.client })
    }
}
