//! OPI's interface for sessions, `openoffload.v2`, as its clients meet it.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use sluice_client::openoffload::v2 as opi;
use sluice_client::openoffload::v2::session_table_client::SessionTableClient;
use sluice_client::openoffload::v2::{
    ActionType, AddSessionStatus, ProtocolId, RequestStatus, SessionCloseCode, SessionState,
};
use sluice_client::{Client, Details, add, flow, rpc, v1};
use sluice_tests::daemon::{CONFIG, Daemon, new_folder};
use sluice_tests::world::eventually;
use tonic::transport::Channel;
use tonic::{Code, Response};

use crate::stream::{accept, connect, dump, of, outcomes, soon};

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SYN: u8 = 0x02;
const FIN_ACK: u8 = 0x11;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A session of UDP from the client to the server, by the port of its source.
fn session(session_id: u64, source_port: u16) -> opi::SessionRequest {
    opi::SessionRequest {
        session_id,
        in_lif: 1,
        out_lif: 2,
        source_ip: u32::from_le_bytes(SOURCE.octets()),
        source_port: source_port.into(),
        destination_ip: u32::from_le_bytes(DESTINATION.octets()),
        destination_port: 443,
        protocol_id: ProtocolId::Udp.into(),
        action: action(ActionType::Forward),
        cache_timeout: 300,
        ..opi::SessionRequest::default()
    }
}

fn action(kind: ActionType) -> Option<opi::ActionParameters> {
    Some(opi::ActionParameters { action_type: kind.into(), ..opi::ActionParameters::default() })
}

fn args(page_size: u32, page: u32, start_session: u64) -> opi::SessionRequestArgs {
    opi::SessionRequestArgs { page_size, page, start_session }
}

/// A frame of the session with this port at its source, as it comes from there or goes back. With flags it is of TCP.
fn frame(source_port: u16, is_back: bool, tcp_flags: Option<u8>) -> String {
    let mut addresses = [SOURCE.octets(), DESTINATION.octets()];
    let mut ports = [source_port.to_be_bytes(), 443_u16.to_be_bytes()];
    if is_back {
        addresses.reverse();
        ports.reverse();
    }
    let protocol = if tcp_flags.is_some() { 6 } else { 17 };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 86, 0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend(addresses.concat());
    frame.extend(ports.concat());
    match tcp_flags {
        Some(flags) => frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]),
        None => frame.extend([0, 66, 0, 0]),
    }
    frame.resize(BYTES, 0);
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Of a frame.
const BYTES: usize = 100;

/// Puts a frame in so many times, and says what became of all.
fn inject(daemon: &Daemon, port: &str, frame: &str, count: usize) -> String {
    daemon.appctl(&[&["sluice/inject", port], &*vec![frame; count]].concat()).out
}

/// Puts packets of a session of UDP into both ports. All of them go out again.
fn exchange(daemon: &Daemon, source_port: u16, forward: usize, back: usize) {
    for (port, is_back, count) in [("client", false, forward), ("server", true, back)] {
        if count > 0 {
            let answer = inject(daemon, port, &frame(source_port, is_back, None), count);
            assert_eq!(answer, format!("frames:{count} hit:{count} missed:0 missed_later:0 sent:{count}\n"));
        }
    }
}

/// Adds sessions in one stream.
async fn add_sessions(client: &Client, sessions: Vec<opi::SessionRequest>) -> Response<opi::AddSessionResponse> {
    let call = async { client.sessions().add_session(stream_of(sessions)).await };
    soon("an answer", call).await.unwrap()
}

fn stream_of(sessions: Vec<opi::SessionRequest>) -> impl tonic::IntoStreamingRequest<Message = opi::SessionRequest> {
    tonic::Request::new(tokio_stream::iter(sessions))
}

/// Adds sessions, of which none fails.
async fn add_all(client: &Client, sessions: impl IntoIterator<Item = opi::SessionRequest>) {
    let answer = add_sessions(client, sessions.into_iter().collect()).await.into_inner();
    assert_eq!((answer.request_status(), answer.error_status), (AddSessionStatus::SessionAccepted, 0), "{answer:?}");
    assert!(answer.response_error.is_empty() && answer.start_time.is_some(), "{answer:?}");
}

async fn get(calls: &mut SessionTableClient<Channel>, session_id: u64) -> opi::SessionResponse {
    calls.get_session(opi::SessionId { session_id }).await.unwrap().into_inner()
}

async fn delete(calls: &mut SessionTableClient<Channel>, session_id: u64) -> opi::SessionResponse {
    soon("an answer", calls.delete_session(opi::SessionId { session_id })).await.unwrap().into_inner()
}

/// The ids of all sessions.
async fn all(calls: &mut SessionTableClient<Channel>) -> Vec<u64> {
    let sessions = calls.get_all_sessions(args(0, 0, 0)).await.unwrap().into_inner();
    assert_eq!(sessions.next_key, 0);
    sessions.session_info.into_iter().map(|session| session.session_id).collect()
}

/// The closed sessions that were not told.
async fn closed(calls: &mut SessionTableClient<Channel>, page_size: u32) -> Vec<opi::SessionResponse> {
    let mut stream = calls.get_closed_sessions(args(page_size, 0, 0)).await.unwrap().into_inner();
    let mut sessions = Vec::new();
    while let Some(session) = soon("a session", stream.message()).await.unwrap() {
        sessions.push(session);
    }
    sessions
}

/// Waits for a closed session.
async fn next_closed(calls: &mut SessionTableClient<Channel>) -> opi::SessionResponse {
    let began = Instant::now();
    loop {
        let mut sessions = closed(calls, 0).await;
        match sessions.pop() {
            Some(session) if sessions.is_empty() => return session,
            Some(_) => panic!("one is enough"),
            None => assert!(began.elapsed() < Duration::from_secs(60), "no session is closed"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Packets and bytes in both directions.
fn counts(session: &opi::SessionResponse) -> [u64; 4] {
    [session.in_packets, session.in_bytes, session.out_packets, session.out_bytes]
}

/// The same of so many packets.
fn counts_of(forward: usize, back: usize) -> [u64; 4] {
    [forward, forward * BYTES, back, back * BYTES].map(|count| count as u64)
}

#[tokio::test]
async fn a_session_carries_both_directions_and_is_shown_with_what_they_counted() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut calls = client.sessions();
    add_all(&client, [session(1001, 5000)]).await;
    exchange(&daemon, 5000, 3, 5);
    assert!(inject(&daemon, "server", &frame(5000, false, None), 1).contains(" hit:0 "), "not in at the other port");
    assert!(inject(&daemon, "client", &frame(5001, false, None), 1).contains(" hit:0 "), "of no session");
    let mut shown = get(&mut calls, 1001).await;
    for _ in 0..500 {
        if counts(&shown) == counts_of(3, 5) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        shown = get(&mut calls, 1001).await;
    }
    assert_eq!(counts(&shown), counts_of(3, 5));
    assert_eq!((shown.session_id, shown.session_state()), (1001, SessionState::Established));
    assert_eq!(
        (shown.session_close_code(), shown.request_status()),
        (SessionCloseCode::NotClosed, RequestStatus::Accepted)
    );
    assert!(shown.start_time.is_some() && shown.end_time.is_none());

    // Whoever looks at flows sees them, and whose they are.
    let mut flows = dump(&client, of("opi"), v1::MatchForm::Text).await;
    flows.sort_by_key(|status| status.flow.as_ref().unwrap().ufid.clone());
    let flows: Vec<_> = flows.into_iter().map(|status| status.flow.unwrap()).collect();
    let ufids: Vec<_> = flows.iter().map(|flow| flow.ufid.as_str()).collect();
    assert_eq!(ufids, ["6f70692d-7632-8000-8000-0000000003e9", "6f70692d-7632-8004-8000-0000000003e9"]);
    assert_eq!(flows.iter().map(|flow| flow.actions.as_str()).collect::<Vec<_>>(), ["server", "client"]);
    assert!(flows.iter().all(|flow| flow.idle_timeout.is_some_and(|idle| idle.seconds == 300)));

    let dropped = opi::SessionRequest { action: action(ActionType::Drop), ..session(1002, 6000) };
    add_all(&client, [dropped]).await;
    assert_eq!(
        inject(&daemon, "client", &frame(6000, false, None), 2),
        "frames:2 hit:2 missed:0 missed_later:0 sent:0\n"
    );
    assert_eq!(counts(&delete(&mut calls, 1002).await), counts_of(2, 0));
}

#[tokio::test]
async fn packets_that_begin_or_end_a_connection_of_tcp_stay_with_who_keeps_its_state() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    add_all(&client, [opi::SessionRequest { protocol_id: ProtocolId::Tcp.into(), ..session(7, 5000) }]).await;
    for (flags, hits) in [(SYN, 0), (ACK, 1), (ACK | 0x08, 1), (FIN_ACK, 0), (RST, 0)] {
        for (port, is_back) in [("client", false), ("server", true)] {
            let answer = inject(&daemon, port, &frame(5000, is_back, Some(flags)), 1);
            assert!(answer.starts_with(&format!("frames:1 hit:{hits} ")), "{flags:#x} at {port}: {answer}");
        }
    }
    assert_eq!(counts(&delete(&mut client.sessions(), 7).await), counts_of(2, 2));
}

#[tokio::test]
async fn a_session_goes_once_no_packet_comes_in_either_direction_and_is_told_once_with_all_it_counted() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut calls = client.sessions();
    add_all(&client, [opi::SessionRequest { cache_timeout: 1, ..session(1001, 5000) }, session(1002, 6000)]).await;
    assert_eq!(closed(&mut calls, 0).await, []);
    // One direction is enough to keep both.
    let began = Instant::now();
    let mut forward = 0;
    while began.elapsed() < Duration::from_millis(3_500) {
        exchange(&daemon, 5000, 2, 0);
        forward += 2;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    exchange(&daemon, 5000, 7, 4);
    let session = next_closed(&mut calls).await;
    assert_eq!((session.session_id, counts(&session)), (1001, counts_of(forward + 7, 4)));
    assert_eq!(
        (session.session_state(), session.session_close_code()),
        (SessionState::Closed, SessionCloseCode::Timeout)
    );
    assert_eq!(session.request_status(), RequestStatus::Accepted);
    let lasted = session.end_time.unwrap().seconds - session.start_time.unwrap().seconds;
    assert!((4..60).contains(&lasted), "{lasted} s");

    assert_eq!(closed(&mut calls, 0).await, [], "it was told");
    let gone = get(&mut calls, 1001).await;
    assert_eq!(
        (gone.request_status(), gone.session_state()),
        (RequestStatus::RejectedSessionNonexistent, SessionState::UnknownState)
    );
    assert_eq!(all(&mut calls).await, [1002]);
    assert_eq!(daemon.metric("sluice_sessions_closed_total"), Some(1.0));
    add_all(&client, [self::session(1001, 5000)]).await;
    exchange(&daemon, 5000, 1, 1);
    assert_eq!(counts(&delete(&mut calls, 1001).await), counts_of(1, 1), "a session of the same id counts anew");
}

#[tokio::test]
async fn when_one_flow_goes_the_other_one_goes_too() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut calls = client.sessions();
    add_all(&client, (1..=3).map(|id| session(id, 5000 + u16::try_from(id).unwrap()))).await;
    exchange(&daemon, 5001, 3, 5);
    exchange(&daemon, 5002, 2, 1);
    let mut apply = client.apply("opi").await.unwrap();
    accept(&mut apply, vec![sluice_client::delete(1, "6f70692d-7632-8000-8000-000000000001")]).await;
    outcomes(&mut apply, 1).await;
    let session = next_closed(&mut calls).await;
    assert_eq!((session.session_id, counts(&session)), (1, counts_of(3, 5)));
    assert_eq!(session.session_close_code(), SessionCloseCode::UnknownCloseCode);
    accept(&mut apply, vec![sluice_client::delete(2, "6f70692d-7632-8004-8000-000000000002")]).await;
    assert_eq!(counts(&next_closed(&mut calls).await), counts_of(2, 1));
    assert_eq!(all(&mut calls).await, [3]);
    assert_eq!(dump(&client, of("opi"), v1::MatchForm::Text).await.len(), 2);

    daemon.sluice(&["flush"]);
    assert_eq!(next_closed(&mut calls).await.session_id, 3);
}

#[tokio::test]
async fn many_sessions_that_end_at_once_and_begin_again_are_each_told_once_a_life() {
    const SESSIONS: u64 = 500;
    const LIVES: usize = 3;
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut calls = client.sessions();
    let short = |id: u64| opi::SessionRequest { cache_timeout: 1, ..session(id, u16::try_from(id).unwrap()) };
    add_all(&client, (1..=SESSIONS).map(short)).await;
    let (mut sent, mut hits) = (0, [0, 0]);
    let mut told = vec![Vec::new(); usize::try_from(SESSIONS).unwrap()];
    let began = Instant::now();
    while told.iter().any(|lives| lives.len() < LIVES) {
        assert!(began.elapsed() < Duration::from_secs(100), "{:?}", told.iter().map(Vec::len).min());
        let mut again = Vec::new();
        for session in closed(&mut calls, 0).await {
            let lives = &mut told[usize::try_from(session.session_id - 1).unwrap()];
            assert_eq!(session.session_close_code(), SessionCloseCode::Timeout);
            lives.push([session.in_packets, session.out_packets]);
            if lives.len() < LIVES {
                again.push(short(session.session_id));
            }
        }
        // As the next packet would have it: at once, whatever of the last life is still on its way.
        add_all(&client, again).await;
        for _ in 0..2 {
            let number = u16::try_from(1 + sent % SESSIONS).unwrap();
            sent += 1;
            hits[0] += u64::from(inject(&daemon, "client", &frame(number, false, None), 1).contains(" hit:1 "));
            hits[1] += u64::from(inject(&daemon, "server", &frame(number, true, None), 1).contains(" hit:1 "));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(told.iter().all(|lives| lives.len() == LIVES) && hits[0] > 10, "{hits:?}");
    let counted = [0, 1].map(|direction| told.iter().flatten().map(|life| life[direction]).sum::<u64>());
    assert_eq!(counted, hits, "every packet in one life");
    assert_eq!((closed(&mut calls, 0).await, all(&mut calls).await), (vec![], vec![]));
    assert_eq!(dump(&client, of("opi"), v1::MatchForm::Text).await, [], "no flow alone");
}

#[tokio::test]
async fn a_session_that_is_one_too_many_goes_as_a_whole() {
    let daemon = Daemon::start(&format!("flow_limit = 100\n{CONFIG}"));
    let client = connect(&daemon).await;
    add_all(&client, (1..=3).map(|id| session(id, 5000 + u16::try_from(id).unwrap()))).await;
    (1..=3).for_each(|number| exchange(&daemon, 5000 + number, usize::from(number), 9));
    std::fs::write(daemon.folder().join("sluiced.toml"), daemon.config().replace("limit = 100", "limit = 5")).unwrap();
    assert_eq!(daemon.appctl(&["sluice/reload"]).out, "changed: flow_limit\n");
    let session = next_closed(&mut client.sessions()).await;
    assert_eq!(counts(&session), counts_of(usize::try_from(session.session_id).unwrap(), 9));
    assert_eq!(session.session_close_code(), SessionCloseCode::UnknownCloseCode);
    assert_eq!(all(&mut client.sessions()).await.len(), 2);
}

#[tokio::test]
async fn a_deleted_session_is_answered_with_its_last_packets_and_told_to_nobody_else() {
    let daemon = Daemon::start(&CONFIG.replace("\"20ms\"", "\"1h\""));
    let client = connect(&daemon).await;
    let mut calls = client.sessions();
    add_all(&client, [session(u64::MAX, 5000), session(1 << 62, 6000)]).await;
    exchange(&daemon, 5000, 9, 8);
    let deleted = delete(&mut calls, u64::MAX).await;
    assert_eq!((deleted.session_id, counts(&deleted)), (u64::MAX, counts_of(9, 8)));
    assert_eq!((deleted.session_state(), deleted.request_status()), (SessionState::Closed, RequestStatus::Accepted));
    assert!(deleted.start_time.is_some() && deleted.end_time.is_some());
    assert_eq!(delete(&mut calls, u64::MAX).await.request_status(), RequestStatus::RejectedSessionNonexistent);
    assert_eq!(delete(&mut calls, 0).await.request_status(), RequestStatus::RejectedSessionNonexistent);
    assert_eq!((closed(&mut calls, 0).await, all(&mut calls).await), (vec![], vec![1 << 62]));
    assert!(inject(&daemon, "client", &frame(5000, false, None), 1).contains(" hit:0 "));
}

#[tokio::test]
async fn sessions_are_shown_and_told_in_pages() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut calls = client.sessions();
    let ids: Vec<u64> = (1..=10).map(|number| number * 100).collect();
    add_all(&client, ids.iter().rev().map(|id| session(*id, u16::try_from(*id).unwrap()))).await;
    assert_eq!(all(&mut calls).await, ids);
    let mut page = async |size, page, start| {
        let sessions = calls.get_all_sessions(args(size, page, start)).await.unwrap().into_inner();
        let ids: Vec<_> = sessions.session_info.iter().map(|session| session.session_id).collect();
        (ids, sessions.next_key)
    };
    assert_eq!(page(4, 0, 0).await, (ids[..4].to_vec(), 500));
    assert_eq!(page(4, 0, 500).await, (ids[4..8].to_vec(), 900));
    assert_eq!(page(4, 0, 900).await, (ids[8..].to_vec(), 0));
    assert_eq!(page(4, 1, 0).await, (ids[4..8].to_vec(), 900), "by number");
    assert_eq!(page(5, 1, 0).await, (ids[5..].to_vec(), 0), "nothing is left");
    assert_eq!(page(5, 2, 0).await, (vec![], 0));
    assert_eq!(page(0, 0, 901).await, (vec![1000], 0));

    daemon.sluice(&["flush"]);
    let mut told = Vec::new();
    eventually("all are closed", || daemon.metric("sluice_sessions_closed_total") == Some(10.0));
    for expected in [4, 4, 2, 0] {
        let sessions = closed(&mut calls, 4).await;
        assert_eq!(sessions.len(), expected);
        told.extend(sessions.into_iter().map(|session| session.session_id));
    }
    told.sort_unstable();
    assert_eq!(told, ids);
    for wrong in [args(4, 1, 0), args(4, 0, 7)] {
        assert_eq!(calls.get_closed_sessions(wrong).await.unwrap_err().code(), Code::InvalidArgument);
    }
}

/// Why sessions were not added, beside the answer.
fn reasons(answer: &Response<opi::AddSessionResponse>) -> Vec<(String, String)> {
    let values = answer.metadata().get_all_bin("sluice-rejection-bin").into_iter();
    let statuses = values.map(|value| {
        let status = tonic::Status::with_details(Code::Unknown, "", value.to_bytes().unwrap());
        rpc::Status::from(&status)
    });
    statuses.map(|status| (Details::of(&status).reason, status.message)).collect()
}

#[tokio::test]
async fn a_session_that_cannot_be_is_refused_with_its_reason_and_leaves_nothing_behind() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut calls = client.sessions();
    add_all(&client, [session(1, 5000)]).await;
    let answer = add_sessions(
        &client,
        vec![
            session(2, 6000),
            opi::SessionRequest { action: action(ActionType::Mirror), ..session(3, 7000) },
            session(1, 8000),
            session(4, 5000),
            opi::SessionRequest { out_lif: 99, ..session(5, 9000) },
            opi::SessionRequest { protocol_id: 1, ..session(6, 9100) },
            session(7, 9200),
        ],
    )
    .await;
    let reasons = reasons(&answer);
    let answer = answer.into_inner();
    assert_eq!((answer.request_status(), answer.error_status), (AddSessionStatus::SessionRejected, 0b011_1110));
    let failed: Vec<_> = answer.response_error.iter().map(|error| (error.session_id, error.error_status)).collect();
    let (rejected, exists) = (AddSessionStatus::SessionRejected, AddSessionStatus::SessionAlreadyExists);
    let expected = [(3, rejected), (1, exists), (4, exists), (5, rejected), (6, rejected)];
    assert_eq!(failed, expected.map(|(id, status)| (id, i32::from(status))));
    let kinds: Vec<_> = reasons.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["INVALID_REQUEST", "EXISTS", "EXISTS", "PORT", "INVALID_REQUEST"], "{reasons:?}");
    assert!(reasons[0].1.starts_with("session 3: action: _MIRROR: the copy would go to a collector"), "{reasons:?}");
    assert_eq!(all(&mut calls).await, [1, 2, 7]);
    assert_eq!(dump(&client, of("opi"), v1::MatchForm::Text).await.len(), 6, "no flow alone");

    let answer = add_sessions(&client, vec![session(2, 6000)]).await.into_inner();
    assert_eq!((answer.request_status(), answer.error_status), (exists, 1));
    exchange(&daemon, 5000, 1, 1);
    exchange(&daemon, 6000, 1, 1);
    assert_eq!(closed(&mut calls, 0).await, [], "what was never added does not end");
}

#[tokio::test]
async fn of_a_stream_for_which_there_is_no_room_no_session_is_left() {
    let daemon = Daemon::start(&format!("flow_limit = 100\n{CONFIG}"));
    let client = connect(&daemon).await;
    let mut calls = client.sessions();
    add_all(&client, (1..=40).map(|id| session(id, u16::try_from(id).unwrap()))).await;
    let many = (1..=2_000).map(|id| session(1_000 + id, 10_000 + u16::try_from(id).unwrap())).collect();
    let call = client.sessions().add_session(stream_of(many)).await;
    let answer = soon("an answer", async { call }).await.unwrap().into_inner();
    assert_eq!(answer.request_status(), AddSessionStatus::SessionTableFull);
    assert_eq!(all(&mut calls).await, (1..=40).collect::<Vec<_>>());
    assert_eq!(closed(&mut calls, 0).await, []);
    add_all(&client, (41..=50).map(|id| session(id, u16::try_from(id).unwrap()))).await;
}

#[tokio::test]
async fn sessions_outlive_the_agent_under_their_ids_and_end_as_a_whole() {
    let folder = new_folder();
    let daemon = Daemon::start_in(&folder, CONFIG, false);
    let client = connect(&daemon).await;
    let ids = [1, 77, 1 << 40, u64::MAX];
    add_all(&client, (0..).zip(ids).map(|(number, id)| session(id, 5000 + number))).await;
    // One flow of a session, as if the agent had died between the ends of the two.
    let mut apply = client.apply("opi").await.unwrap();
    let alone = v1::Flow {
        ufid: "6f70692d-7632-8004-8000-000000000009".to_owned(),
        ..flow("in_port(uplink),eth_type(0x0806)", "server")
    };
    accept(&mut apply, vec![add(1, alone)]).await;
    outcomes(&mut apply, 1).await;
    daemon.signal("KILL");
    drop(daemon);

    let daemon = Daemon::start_in(&folder, CONFIG, true);
    let client = connect(&daemon).await;
    let mut calls = client.sessions();
    let before = all(&mut calls).await;
    assert_eq!(before.iter().filter(|id| **id != 9).copied().collect::<Vec<_>>(), ids);
    exchange(&daemon, 5003, 6, 2);
    assert_eq!(counts(&delete(&mut calls, u64::MAX).await), counts_of(6, 2));
    exchange(&daemon, 5001, 3, 1);
    let mut apply = client.apply("opi").await.unwrap();
    accept(&mut apply, vec![sluice_client::delete(1, "6f70692d-7632-8000-8000-00000000004d")]).await;
    let session = next_closed(&mut calls).await;
    assert_eq!((session.session_id, counts(&session)), (77, counts_of(3, 1)));
    let session = next_closed(&mut calls).await;
    assert_eq!((session.session_id, session.session_close_code()), (9, SessionCloseCode::UnknownCloseCode));
    assert_eq!(all(&mut calls).await, [1, 1 << 40]);
    let again = add_sessions(&client, vec![self::session(1, 5000)]).await.into_inner();
    assert_eq!(again.request_status(), AddSessionStatus::SessionAlreadyExists);
}
