//! Connections: on the socket in the run folder and over TCP by TLS.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use sluice_api::DESCRIPTORS;
use sluice_api::openoffload::v2::session_table_server::SessionTableServer;
use sluice_api::v1::agent_server::AgentServer;
use sluice_api::v1::flows_server::FlowsServer;
use sluice_api::v1::objects_server::ObjectsServer;
use sluice_unixctl::{Admission, Peer};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::access::{Access, Caller};
use super::connection::{Connection, Io};
use super::handshakes::Handshakes;
use super::leases::{Leases, LeasesError, end_leases};
use super::places::Places;
use super::tls::{Identity, Tls, TlsError};
use super::{Api, Shared, opi};
use crate::agent::Agent;
use crate::config::Remote;
use crate::observe::readiness::readiness;

/// Connections at a time, each way; over TCP, of clients that have shown a certificate.
const CONNECTIONS: usize = 256;
/// Calls of a connection at a time.
const CALLS: u32 = 1_024;
/// How long a client may take to show its certificate.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A client that is silent is asked after so long whether it is there, and is gone if it does not answer as long.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Bytes of requests of a connection that wait to be taken on.
const WINDOW: u32 = 1 << 20;
/// Bytes of a message that brings flows.
const LONG: usize = 4 << 20;
/// Bytes of any other message: all calls of a connection may have one that is not whole.
const SHORT: usize = 64 << 10;
/// How long calls that are under way may take to end once the agent stops.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often the health of the services is renewed.
const HEALTH: Duration = Duration::from_millis(500);
/// How long it is waited after nothing could be accepted: too many files, most likely.
const PAUSE: Duration = Duration::from_millis(500);

/// Where clients come in, before anybody is answered.
pub struct Listeners {
    socket: StdUnixListener,
    admission: Admission,
    remote: Option<(StdTcpListener, Tls)>,
    leases: Leases,
}

/// Why the interface cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Certificates cannot be used.
    #[error("[api]: {0}")]
    Tls(#[from] TlsError),
    /// The address cannot be used.
    #[error("[api]: cannot listen at {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// Leases of earlier runs are not known.
    #[error("{0}")]
    Leases(String),
}

impl Listeners {
    /// Takes the socket in the run folder, listens over TCP if that is wanted, and reads what leases there are.
    pub fn new(
        socket: StdUnixListener,
        group: Option<u32>,
        remote: Option<&Remote>,
        state_dir: Option<&Path>,
    ) -> Result<Self, ApiError> {
        let listen = |remote: &Remote| {
            let tls = Tls::load(remote)?;
            let listener =
                StdTcpListener::bind(remote.listen).map_err(|error| ApiError::Listen(remote.listen, error))?;
            Ok::<_, ApiError>((listener, tls))
        };
        Ok(Self {
            socket,
            admission: Admission::new(group),
            remote: remote.map(listen).transpose()?,
            leases: Leases::open(state_dir).map_err(|error: LeasesError| ApiError::Leases(error.to_string()))?,
        })
    }

    /// The address at which TCP is served, if it is.
    pub fn address(&self) -> Option<SocketAddr> {
        self.remote.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }
}

/// Serves until `stop`.
pub async fn serve(agent: Arc<Agent>, listeners: Listeners, stop: impl Future<Output = ()>) -> Result<(), String> {
    let Listeners { socket, admission, remote, leases } = listeners;
    let api = Api::new(agent, leases);
    let (accepted, connections) = mpsc::channel(1);
    let failed = |error: io::Error| error.to_string();
    socket.set_nonblocking(true).map_err(failed)?;
    let socket = UnixListener::from_std(socket).map_err(failed)?;
    let mut parts = tokio::task::JoinSet::new();
    parts.spawn(accept_local(socket, admission, accepted.clone()));
    if let Some((listener, tls)) = remote {
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        parts.spawn(accept_remote(listener, tls, api.clone(), accepted));
    }
    parts.spawn(end_leases(api.clone()));
    api.service.end_halves_of_earlier_runs();
    parts.spawn(opi::end_sessions(api.clone()));
    let shared = Shared(api);
    let (health, health_service) = tonic_health::server::health_reporter();
    // Before the first client, who would else hear of services that are not known.
    report_health(&shared.0, &health).await;
    parts.spawn(renew_health(shared.0.clone(), health));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|error| error.to_string())?;
    let (say_stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let serving = Server::builder()
        .max_concurrent_streams(CALLS)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(sluice_api::FRAME)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(FlowsBySize::new(&shared))
        .add_service(ObjectsServer::new(shared.clone()).max_decoding_message_size(SHORT))
        .add_service(AgentServer::new(shared.clone()).max_decoding_message_size(SHORT))
        .add_service(SessionTableServer::new(shared).max_decoding_message_size(SHORT))
        .add_service(health_service.max_decoding_message_size(SHORT))
        .add_service(reflection.max_decoding_message_size(SHORT))
        .serve_with_incoming_shutdown(ReceiverStream::new(connections), async {
            // An error means the same.
            let _ = stopping.await;
        });
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended.map_err(|error| error.to_string()),
        () = stop => {}
    }
    drop(say_stop);
    // Streams of events would never end by themselves.
    let _ = timeout(FAREWELL, serving).await;
    Ok(())
}

async fn renew_health(api: Arc<Api>, health: HealthReporter) {
    let mut looks = interval(HEALTH);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        report_health(&api, &health).await;
    }
}

/// Says of all services what `/readyz` says of the agent.
async fn report_health(api: &Api, health: &HealthReporter) {
    const SERVICES: [&str; 5] =
        ["", "openoffload.v2.SessionTable", "sluice.v1.Agent", "sluice.v1.Flows", "sluice.v1.Objects"];
    let is_ready = readiness(&api.agent).is_ok();
    let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}

/// Accepts whom the control socket lets in.
async fn accept_local(listener: UnixListener, admission: Admission, accepted: mpsc::Sender<io::Result<Connection>>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::error!("the socket of the gRPC interface takes no client: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        match Peer::of(&stream).map_err(|error| error.to_string()).and_then(|peer| admission.check(peer)) {
            Ok(()) => {
                let caller = Caller::new(Access::Everything);
                let connection = Connection::new(Io::Local(stream), caller, place.into());
                if accepted.send(Ok(connection)).await.is_err() {
                    return;
                }
            }
            // gRPC has no word for it before there is a call.
            Err(reason) => tracing::warn!("a client of the gRPC interface is turned away: {reason}"),
        }
    }
}

/// Accepts who shows a certificate of the authorities. Who shows none takes no place of those who do.
async fn accept_remote(listener: TcpListener, tls: Tls, api: Arc<Api>, accepted: mpsc::Sender<io::Result<Connection>>) {
    let places = Places::new(CONNECTIONS);
    let mut handshakes = Handshakes::default();
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::error!("the gRPC interface takes no client over TCP: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        let acceptor = TlsAcceptor::from(tls.config());
        let (api, accepted, places) = (api.clone(), accepted.clone(), places.clone());
        let crowded_out = handshakes.begin(from.ip(), async move {
            let admitted = timeout(HANDSHAKE, admit(&api, &acceptor, &places, stream)).await;
            match admitted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                // Fails only if the agent stops.
                Ok(connection) => drop(accepted.send(Ok(connection)).await),
                Err(error) => tracing::warn!("a client of the gRPC interface at {from} is turned away: {error}"),
            }
        });
        if let Some(from) = crowded_out {
            tracing::warn!(
                "a client of the gRPC interface at {from} is turned away: it has shown no certificate yet, and too many others have not either"
            );
        }
    }
}

async fn admit(api: &Api, acceptor: &TlsAcceptor, places: &Places, stream: TcpStream) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let identity = Identity::of(certificate.ok_or_else(|| io::Error::other("it has shown no certificate"))?)?;
    let place = places
        .take(&identity.names)
        .map_err(|reason| io::Error::other(format!("{}: {reason}", identity.names.join(", "))))?;
    let access = Access::of_certificate(identity, api.agent.clone());
    Ok(Connection::new(Io::Remote(Box::new(stream)), Caller::new(access), place))
}

/// `sluice.v1.Flows`, where only the streams that change flows have long messages: of these a connection has few at a time.
#[derive(Clone)]
struct FlowsBySize {
    long: FlowsServer<Shared>,
    short: FlowsServer<Shared>,
}

impl FlowsBySize {
    fn new(shared: &Shared) -> Self {
        let of_size = |bytes| FlowsServer::new(shared.clone()).max_decoding_message_size(bytes);
        Self { long: of_size(LONG), short: of_size(SHORT) }
    }
}

impl NamedService for FlowsBySize {
    const NAME: &'static str = FlowsServer::<Shared>::NAME;
}

impl Service<http::Request<Body>> for FlowsBySize {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match request.uri().path() {
            "/sluice.v1.Flows/Apply" | "/sluice.v1.Flows/Replace" => self.long.call(request),
            _ => self.short.call(request),
        }
    }
}
