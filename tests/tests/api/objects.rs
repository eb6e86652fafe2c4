//! Ports, meters, mirrors and capabilities; and what a program can learn without any `.proto` file.

use sluice_client::{flow, v1};
use sluice_control::api_socket;
use sluice_flow::field::FIELDS;
use sluice_tests::daemon::{CONFIG, Daemon};
use sluice_tests::world::eventually;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::stream::{connect, details, told};

#[tokio::test]
async fn objects_are_made_listed_and_removed() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let mut objects = client.objects();
    let port = v1::Port { number: 7, name: "p7".to_owned(), ..v1::Port::default() };
    objects.add_port(port.clone()).await.unwrap();
    let taken = objects.add_port(v1::Port { name: "other".to_owned(), ..port.clone() }).await.unwrap_err();
    assert_eq!((taken.message(), told(&taken).reason.as_str()), ("port other: number 7 is p7 already", "OBJECT"));
    let tunnel = v1::Port { number: 8, name: "g8".to_owned(), kind: "geneve".to_owned(), underlay: 3, udp_port: 0 };
    assert_eq!(objects.add_port(tunnel).await.unwrap().into_inner().udp_port, 6081, "the one that is registered");

    let bands = vec![v1::MeterBand { rate: 100, burst: 10 }, v1::MeterBand { rate: 200, burst: 0 }];
    let meter = v1::Meter { id: 5, unit: v1::MeterUnit::Pps.into(), bands };
    objects.put_meter(meter.clone()).await.unwrap();
    assert_eq!(objects.list_meters(v1::ListMetersRequest {}).await.unwrap().into_inner().meters, [meter]);

    let matching = flow("in_port(client),eth_type(0x0806)", "").r#match;
    let mirror = v1::Mirror { name: "arp".to_owned(), r#match: matching, ports: vec![7] };
    objects.put_mirror(mirror.clone()).await.unwrap();
    let reserved = v1::Mirror { name: "~arp".to_owned(), ..mirror };
    assert!(objects.put_mirror(reserved).await.unwrap_err().message().contains("does not begin with"));
    assert_eq!(daemon.sluice(&["show-mirrors"]).out.matches("arp").count(), 1);

    let ports = objects.list_ports(v1::ListPortsRequest {}).await.unwrap().into_inner().ports;
    let names: Vec<_> = ports.iter().map(|status| status.port.as_ref().unwrap().name.as_str()).collect();
    assert_eq!(names, ["client", "server", "uplink", "vxlan_sys_4789", "p7", "g8"]);
    objects.delete_mirror(v1::DeleteMirrorRequest { name: "arp".to_owned() }).await.unwrap();
    objects.delete_meter(v1::DeleteMeterRequest { id: 5 }).await.unwrap();
    objects.delete_port(v1::DeletePortRequest { number: 7 }).await.unwrap();
}

#[tokio::test]
async fn capabilities_are_what_the_backend_says_of_each_field_and_action() {
    let daemon = Daemon::start(CONFIG);
    let client = connect(&daemon).await;
    let found = client.agent().get_capabilities(v1::GetCapabilitiesRequest {}).await.unwrap().into_inner();
    assert_eq!((found.backend.as_str(), found.fields.len()), ("soft", FIELDS.len()));
    assert!(found.facets.contains(&"meters".to_owned()), "{:?}", found.facets);
    let refusal = |name: &str| found.fields.iter().find(|field| field.name == name).unwrap().refusal.clone();
    assert_eq!(refusal("ipv4.src"), None);
    let action = |name: &str| found.actions.iter().find(|action| action.name == name).unwrap().refusal.clone();
    assert_eq!((action("output"), action("ct")), (None, None));
    // The same words as of a flow that asks for it.
    let userspace = action("userspace");
    let asked = v1::explain_request::Flow::Candidate(flow(
        "in_port(client),eth_type(0x0800),ipv4(proto=6,frag=no)",
        "userspace(pid=1)",
    ));
    let explained = client.flows().explain(v1::ExplainRequest { flow: Some(asked) }).await.unwrap().into_inner();
    let by_flow = match explained.verdict.unwrap() {
        v1::explain_response::Verdict::Rule(_) => None,
        v1::explain_response::Verdict::Refusal(refusal) => Some(refusal),
    };
    let words =
        |refusal: Option<sluice_client::rpc::Status>| refusal.map(|refusal| (details(Some(&refusal)), refusal.message));
    assert_eq!(words(userspace), words(by_flow));
}

async fn channel(daemon: &Daemon) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix:{}", api_socket(&daemon.run_dir()).display()));
    endpoint.unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn health_is_the_readiness_of_the_agent() {
    let daemon = Daemon::start(CONFIG);
    let mut health = HealthClient::new(channel(&daemon).await);
    let mut status = async |service: &str| {
        let request = HealthCheckRequest { service: service.to_owned() };
        health.check(request).await.unwrap().into_inner().status()
    };
    let services = ["", "openoffload.v2.SessionTable", "sluice.v1.Agent", "sluice.v1.Flows", "sluice.v1.Objects"];
    for service in services {
        // An agent that gets no processor for a while is not ready.
        for _ in 0..100 {
            if status(service).await == ServingStatus::Serving {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(status(service).await, ServingStatus::Serving, "{service}");
    }
    daemon.appctl(&["revalidator/pause"]);
    eventually("the agent is not ready", || daemon.http("/readyz").0 == 503);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(status("sluice.v1.Flows").await, ServingStatus::NotServing);
}

#[tokio::test]
async fn reflection_has_all_services_with_their_messages() {
    let daemon = Daemon::start(CONFIG);
    let mut reflection = ServerReflectionClient::new(channel(&daemon).await);
    let mut ask = async |request: MessageRequest| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let mut answers = reflection.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
        answers.message().await.unwrap().unwrap().message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(listed) = ask(MessageRequest::ListServices(String::new())).await else {
        panic!("services are listed")
    };
    let names: Vec<_> = listed.service.iter().map(|service| service.name.as_str()).collect();
    let services = ["openoffload.v2.SessionTable", "sluice.v1.Agent", "sluice.v1.Flows", "sluice.v1.Objects"];
    for service in services.into_iter().chain(["grpc.health.v1.Health"]) {
        assert!(names.contains(&service), "{names:?}");
    }
    let symbol = MessageRequest::FileContainingSymbol("sluice.v1.MatchField".to_owned());
    let MessageResponse::FileDescriptorResponse(files) = ask(symbol).await else { panic!("there is such a message") };
    assert!(!files.file_descriptor_proto.is_empty());
}
