//! A client of `sluice.v1`, the agent's gRPC interface.
//!
//! ```no_run
//! use sluice_client::{Answer, Client, add, flow};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::local("/run/sluice/api.sock").await?;
//! let mut flows = client.apply("my-controller").await?;
//! flows.send([add(1, flow("in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no)", "2"))]).await?;
//! while let Some(answer) = flows.next().await? {
//!     match answer {
//!         Answer::Accepted(accepted) => println!("accepted: {accepted:?}"),
//!         Answer::Outcomes(outcomes) => return Ok(println!("in the device: {outcomes:?}")),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Every other call is one of the generated clients: [`Client::flows`], [`Client::objects`], [`Client::agent`].

mod apply;
mod replace;

use std::path::Path;
use std::time::Duration;

pub use sluice_api::{Details, DumpResponse, Fields, openoffload, rpc, v1};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

pub use self::apply::{Answer, Apply, Receiving, Sending, add, delete, flow, modify};
pub use self::replace::{Replace, Replaced};

/// An agent that is silent is asked after so long whether it is there, and is gone if it does not answer as long. A machine that loses its power
/// says nothing of it, and streams of events would wait for ever.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A connection to an agent. Clones share it.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The agent is not reached.
    #[error("cannot connect: {0}")]
    Connect(#[from] tonic::transport::Error),
    /// The agent said no.
    #[error("{}", .0.message())]
    Call(#[from] tonic::Status),
    /// The agent has ended the stream; its last answer says why.
    #[error("the agent has ended the stream")]
    Ended,
}

impl Error {
    /// What the agent says of it for programs, if it is the agent's word.
    pub fn details(&self) -> Option<Details> {
        if let Self::Call(status) = self { Some(Details::of(&rpc::Status::from(status))) } else { None }
    }
}

/// What a client shows over TCP, and whom it trusts, in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The authority that the agent's certificate comes from.
    pub authority: Vec<u8>,
    /// The client's certificate.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
    /// The name in the agent's certificate, if it is not that of the address.
    pub domain: Option<String>,
}

impl Client {
    /// Connects to the agent with this socket, `api.sock` in its run folder.
    pub async fn local(socket: impl AsRef<Path>) -> Result<Self, Error> {
        let endpoint =
            Endpoint::from_shared(format!("unix:{}", socket.as_ref().display()))?.max_frame_size(sluice_api::FRAME);
        Ok(Self { channel: endpoint.connect().await? })
    }

    /// Connects to an agent over TCP, at an address such as `https://dpu7.example:9322`.
    pub async fn remote(address: &str, tls: &Tls) -> Result<Self, Error> {
        let mut config = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&tls.authority))
            .identity(Identity::from_pem(&tls.certificate, &tls.key));
        if let Some(domain) = &tls.domain {
            config = config.domain_name(domain);
        }
        let endpoint = Endpoint::from_shared(address.to_owned())?
            .tls_config(config)?
            .tcp_nodelay(true)
            .connect_timeout(KEEPALIVE)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .keep_alive_while_idle(true)
            .max_frame_size(sluice_api::FRAME);
        Ok(Self { channel: endpoint.connect().await? })
    }

    /// The calls about flows.
    pub fn flows(&self) -> v1::flows_client::FlowsClient<Channel> {
        v1::flows_client::FlowsClient::new(self.channel.clone())
    }

    /// The calls about ports, meters and mirrors.
    pub fn objects(&self) -> v1::objects_client::ObjectsClient<Channel> {
        v1::objects_client::ObjectsClient::new(self.channel.clone())
    }

    /// The calls about sessions, of OPI's interface.
    pub fn sessions(&self) -> openoffload::v2::session_table_client::SessionTableClient<Channel> {
        openoffload::v2::session_table_client::SessionTableClient::new(self.channel.clone())
    }

    /// The calls about the agent itself.
    pub fn agent(&self) -> v1::agent_client::AgentClient<Channel> {
        v1::agent_client::AgentClient::new(self.channel.clone())
    }
}
