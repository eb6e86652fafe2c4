//! `openoffload.v2` on the wire is that of OPI: every name, number and type.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use prost::Message;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::{Label, Type};
use sluice_api::DESCRIPTORS;
use sluice_api::openoffload::v2::{ActionParameters, SessionRequest, SessionResponse};

/// As sessionoffload/v2/openoffload.proto of OPI has it.
const FACTS: &str = "\
IpVersion: _IPV4=0 _IPV6=1
ProtocolId: _HOPOPT=0 _TCP=6 _UDP=17
SessionState: _ESTABLISHED=0 _CLOSING_1=1 _CLOSING_2=2 _CLOSED=3 _UNKNOWN_STATE=4
SessionCloseCode: _NOT_CLOSED=0 _FINACK=1 _RST=2 _TIMEOUT=3 _UNKNOWN_CLOSE_CODE=4
AddSessionStatus: _SESSION_ACCEPTED=0 _SESSION_REJECTED=1 _SESSION_TABLE_FULL=2 _SESSION_TABLE_UNAVAILABLE=3 _SESSION_ALREADY_EXISTS=4
RequestStatus: _ACCEPTED=0 _REJECTED=1 _REJECTED_SESSION_NONEXISTENT=2 _REJECTED_SESSION_TABLE_FULL=3 \
_REJECTED_SESSION_ALREADY_EXISTS=4 _NO_CLOSED_SESSIONS=5 _REJECTED_INTERNAL_ERROR=6
ActionType: _DROP=0 _FORWARD=1 _MIRROR=2 _SNOOP=3
SessionTable.AddSession: stream .openoffload.v2.SessionRequest -> .openoffload.v2.AddSessionResponse
SessionTable.GetSession: .openoffload.v2.SessionId -> .openoffload.v2.SessionResponse
SessionTable.DeleteSession: .openoffload.v2.SessionId -> .openoffload.v2.SessionResponse
SessionTable.GetAllSessions: .openoffload.v2.SessionRequestArgs -> .openoffload.v2.SessionResponses
SessionTable.GetClosedSessions: .openoffload.v2.SessionRequestArgs -> stream .openoffload.v2.SessionResponse
Uuid: value=1:String
SessionId: session_id=1:Uint64
ActionParameters: action_type=1:ActionType action_next_hop=2:Uint32 action_next_hop_v6=3:Bytes
SessionRequest: session_id=1:Uint64 in_lif=2:Int32 out_lif=3:Int32 ip_version=4:IpVersion source_ip=5:Uint32 \
source_ipv6=6:Bytes source_port=7:Uint32 destination_ip=8:Uint32 destination_ipv6=9:Bytes destination_port=10:Uint32 \
protocol_id=11:ProtocolId action=12:ActionParameters cache_timeout=13:Uint32
SessionResponseError: session_id=1:Uint64 error_status=2:Int32
SessionResponses: session_info=1:SessionResponse* next_key=2:Uint64
AddSessionResponse: request_status=1:AddSessionStatus error_status=2:Uint64 start_time=3:Timestamp response_error=4:SessionResponseError*
SessionResponse: session_id=1:Uint64 in_packets=2:Uint64 out_packets=3:Uint64 in_bytes=4:Uint64 out_bytes=5:Uint64 \
session_state=6:SessionState session_close_code=7:SessionCloseCode request_status=8:RequestStatus start_time=9:Timestamp end_time=10:Timestamp
SessionRequestArgs: page_size=1:Uint32 page=2:Uint32 start_session=3:Uint64
";

#[test]
fn every_name_number_and_type_is_that_of_opi() {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    let file = files.into_iter().find(|file| file.package() == "openoffload.v2").unwrap();
    assert_eq!((file.name(), file.syntax()), ("openoffload/v2/openoffload.proto", "proto3"));
    let mut lines = Vec::new();
    for list in &file.enum_type {
        let values = list.value.iter().map(|value| format!(" {}={}", value.name(), value.number()));
        lines.push(format!("{}:{}", list.name(), values.collect::<String>()));
    }
    for service in &file.service {
        for method in &service.method {
            let stream = |is: bool| if is { "stream " } else { "" };
            let (input, output) = (stream(method.client_streaming()), stream(method.server_streaming()));
            let (from, to) = (method.input_type(), method.output_type());
            lines.push(format!("{}.{}: {input}{from} -> {output}{to}", service.name(), method.name()));
        }
    }
    for message in &file.message_type {
        let fields = message.field.iter().map(|field| {
            let named = field.type_name().rsplit('.').next().unwrap_or_default();
            let kind = match field.r#type() {
                Type::Enum | Type::Message => named.to_owned(),
                plain => format!("{plain:?}"),
            };
            let many = if field.label() == Label::Repeated { "*" } else { "" };
            format!(" {}={}:{kind}{many}", field.name(), field.number())
        });
        lines.push(format!("{}:{}", message.name(), fields.collect::<String>()));
    }
    assert_eq!(lines, FACTS.lines().collect::<Vec<_>>());
}

#[test]
fn bytes_made_by_hand_are_read() {
    // Tags are a field's number times 8, plus 0 for a varint and 2 for what has a length.
    let session = [8, 7, 16, 1, 24, 2, 40, 0x8a, 0x80, 0x80, 0x08, 88, 17, 98, 2, 8, 1, 104, 30];
    let action = ActionParameters { action_type: 1, ..ActionParameters::default() };
    let expected = SessionRequest {
        session_id: 7,
        in_lif: 1,
        out_lif: 2,
        source_ip: 0x0100_000a,
        protocol_id: 17,
        action: Some(action),
        cache_timeout: 30,
        ..SessionRequest::default()
    };
    assert_eq!(SessionRequest::decode(session.as_slice()).unwrap(), expected);
    let response = SessionResponse { session_id: 7, out_bytes: 300, session_state: 3, ..SessionResponse::default() };
    assert_eq!(response.encode_to_vec(), [8, 7, 40, 0xac, 0x02, 48, 3]);
}
