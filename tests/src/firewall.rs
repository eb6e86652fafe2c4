//! The program that judges connections, and hands sessions to the agent by OPI's interface.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use sluice_client::Client;
use sluice_client::openoffload::v2 as opi;
use sluice_client::openoffload::v2::session_table_client::SessionTableClient;
use sluice_client::openoffload::v2::{ActionType, AddSessionStatus, ProtocolId};
use sluice_control::api_socket;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;

/// A firewall that is connected to an agent.
pub struct Firewall {
    runtime: Runtime,
    calls: SessionTableClient<Channel>,
}

impl Firewall {
    /// Connects to the agent with this run folder.
    pub fn connect(run_dir: &Path) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(Client::local(api_socket(run_dir))).expect("an agent");
        Self { runtime, calls: client.sessions() }
    }

    /// Adds a session, which the device takes.
    #[track_caller]
    pub fn add(&mut self, session: opi::SessionRequest) {
        let sessions = tonic::Request::new(tokio_stream::iter([session]));
        let answer = self.runtime.block_on(self.calls.add_session(sessions)).expect("an answer").into_inner();
        assert_eq!(answer.request_status(), AddSessionStatus::SessionAccepted, "{answer:?}");
    }

    /// Deletes a session, and gives what it has counted in all.
    pub fn delete(&mut self, session_id: u64) -> opi::SessionResponse {
        let asked = opi::SessionId { session_id };
        self.runtime.block_on(self.calls.delete_session(asked)).expect("an answer").into_inner()
    }

    /// Closed sessions that were not told before.
    pub fn closed(&mut self) -> Vec<opi::SessionResponse> {
        self.runtime.block_on(async {
            let all = opi::SessionRequestArgs::default();
            let mut told = self.calls.get_closed_sessions(all).await.expect("an answer").into_inner();
            let mut sessions = Vec::new();
            while let Some(session) = told.message().await.expect("a message") {
                sessions.push(session);
            }
            sessions
        })
    }

    /// Waits for a session to be closed, and for no other one.
    #[track_caller]
    pub fn next_closed(&mut self) -> opi::SessionResponse {
        for _ in 0..600 {
            let mut sessions = self.closed();
            if let Some(session) = sessions.pop() {
                assert_eq!(sessions, []);
                return session;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("no session is closed")
    }
}

/// A session that is forwarded. Packets from its source come in at the first port, those back to it at the second.
pub fn session(
    session_id: u64,
    protocol: ProtocolId,
    [source, destination]: [SocketAddrV4; 2],
    [in_lif, out_lif]: [i32; 2],
) -> opi::SessionRequest {
    let address = |address: &Ipv4Addr| u32::from_le_bytes(address.octets());
    opi::SessionRequest {
        session_id,
        in_lif,
        out_lif,
        source_ip: address(source.ip()),
        source_port: source.port().into(),
        destination_ip: address(destination.ip()),
        destination_port: destination.port().into(),
        protocol_id: protocol.into(),
        action: Some(opi::ActionParameters {
            action_type: ActionType::Forward.into(),
            ..opi::ActionParameters::default()
        }),
        cache_timeout: 300,
        ..opi::SessionRequest::default()
    }
}
