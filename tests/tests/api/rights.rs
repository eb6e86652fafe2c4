//! Over TCP: certificates on both sides, and who may do what.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use sluice_client::{Client, Tls, flow, openoffload, v1};
use sluice_tests::daemon::{CONFIG, Daemon, new_folder};
use sluice_tests::world::eventually;
use tonic::Code;

use crate::stream::{add_all, dump, of, udp};

/// An authority, and where the agent finds it and its own certificate.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::create_dir_all(folder).unwrap();
        let authority = Self { issuer, folder: folder.to_owned() };
        fs::write(folder.join("ca.pem"), authority.issuer.pem()).unwrap();
        authority.renew_server("agent.example");
        authority
    }

    /// A certificate of a name, and its key.
    fn certify(&self, name: &str, has_ended: bool) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        if has_ended {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn renew_server(&self, name: &str) {
        let (certificate, key) = self.certify(name, false);
        fs::write(self.folder.join("key.pem"), key).unwrap();
        fs::write(self.folder.join("agent.pem"), certificate).unwrap();
    }

    fn tls(&self, name: &str, domain: &str) -> Tls {
        let (certificate, key) = self.certify(name, false);
        Tls {
            authority: self.issuer.pem().into_bytes(),
            certificate: certificate.into_bytes(),
            key: key.into_bytes(),
            domain: Some(domain.to_owned()),
        }
    }

    fn config(&self, address: SocketAddr, clients: &str) -> String {
        let path = |name: &str| self.folder.join(name).display().to_string();
        format!(
            "{CONFIG}\n[api]\nlisten = \"{address}\"\ncertificate = \"{}\"\nkey = \"{}\"\nclient_ca = \"{}\"\n{clients}",
            path("agent.pem"),
            path("key.pem"),
            path("ca.pem")
        )
    }
}

fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

const CLIENTS: &str = r#"
[[api.client]]
name = "controller.example"
owners = ["story"]
[[api.client]]
name = "spiffe://example/operator"
objects = true
"#;

#[tokio::test]
async fn a_client_over_tcp_may_do_what_its_name_may() {
    let folder = new_folder();
    let authority = Authority::new(&folder);
    let address = free_address();
    let daemon = Daemon::start(&authority.config(address, CLIENTS));
    let client =
        async |name: &str| Client::remote(&format!("https://{address}"), &authority.tls(name, "agent.example")).await;

    let controller = client("controller.example").await.unwrap();
    add_all(&controller, "story", [flow(&udp(1), "server")]).await;
    let mut other = controller.apply("other").await.unwrap();
    let sluice_client::Error::Call(status) = other.next().await.unwrap_err() else { panic!("the agent says no") };
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "controller.example has no flows of other"));
    let port = v1::Port { number: 7, name: "p7".to_owned(), ..v1::Port::default() };
    let denied = controller.objects().add_port(port.clone()).await.unwrap_err();
    assert_eq!(denied.message(), "controller.example may not change ports, meters and mirrors");

    let session = openoffload::v2::SessionId { session_id: 1 };
    let denied = controller.sessions().delete_session(session).await.unwrap_err();
    assert_eq!((denied.code(), denied.message()), (Code::PermissionDenied, "controller.example has no flows of opi"));
    controller.sessions().get_session(session).await.unwrap();

    let operator = client("spiffe://example/operator").await.unwrap();
    operator.objects().add_port(port).await.unwrap();
    assert_eq!(dump(&operator, of("story"), v1::MatchForm::Text).await.len(), 1, "everybody known may look");
    let stranger = client("stranger.example").await.unwrap();
    let denied = stranger.flows().dump(v1::DumpRequest::default()).await.unwrap_err();
    assert_eq!(denied.message(), "the configuration has no [[api.client]] named stranger.example");

    // What a name may do is renewed by a reload, and holds for connections that there are.
    let file = daemon.folder().join("sluiced.toml");
    let config = daemon.config().replace("owners = [\"story\"]", "owners = [\"other\"]");
    fs::write(&file, config).unwrap();
    let reloaded = daemon.sluice(&["reload"]);
    assert!(reloaded.out.contains("changed: api.client"), "{reloaded:?}");
    add_all(&controller, "other", [flow(&udp(2), "server")]).await;
    let mut story = controller.apply("story").await.unwrap();
    assert!(story.next().await.is_err());
    drop(daemon);
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn certificates_are_read_again_when_they_change_and_those_that_have_ended_are_refused() {
    let folder = new_folder();
    let authority = Authority::new(&folder);
    let address = free_address();
    let daemon = Daemon::start(&authority.config(address, CLIENTS));
    let connect = async |tls: &Tls| {
        let client = Client::remote(&format!("https://{address}"), tls).await?;
        client.agent().list_owners(v1::ListOwnersRequest {}).await?;
        Ok::<_, sluice_client::Error>(client)
    };
    let tls = authority.tls("controller.example", "agent.example");
    let earlier = connect(&tls).await.unwrap();

    let (certificate, key) = authority.certify("controller.example", true);
    let ended = Tls { certificate: certificate.into_bytes(), key: key.into_bytes(), ..tls.clone() };
    assert!(connect(&ended).await.is_err());
    eventually("the log says so", || {
        daemon.log().contains("is turned away: invalid peer certificate: certificate expired")
    });
    let elsewhere = folder.join("elsewhere");
    let of_another = Authority::new(&elsewhere).tls("controller.example", "agent.example");
    assert!(connect(&Tls { authority: tls.authority.clone(), ..of_another }).await.is_err());

    // A file that is wrong leaves the old one in force.
    fs::write(folder.join("agent.pem"), "nothing").unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    connect(&tls).await.unwrap();
    eventually("the log says so", || daemon.log().contains("the old ones stay: "));
    authority.renew_server("renewed.example");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(connect(&tls).await.is_err(), "the agent has another name now");
    connect(&Tls { domain: Some("renewed.example".to_owned()), ..tls }).await.unwrap();
    earlier.agent().list_owners(v1::ListOwnersRequest {}).await.unwrap();
    drop(daemon);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn half_a_configuration_is_refused_with_its_place() {
    let check = |api: &str| {
        let folder = new_folder();
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("sluiced.toml");
        fs::write(&file, format!("run_dir = \"{}/run\"\n{api}", folder.display())).unwrap();
        let mut command = std::process::Command::new(sluice_tests::daemon::binary("sluiced"));
        let ran = sluice_tests::daemon::run(command.arg("--check").arg("--config").arg(&file));
        fs::remove_dir_all(&folder).unwrap();
        ran
    };
    for (api, words) in [
        ("[api]\nlisten = \"127.0.0.1:1\"\n", "`listen`, `certificate`, `key` and `client_ca` go together"),
        ("[[api.client]]\nname = \"x\"\n", "there is no `listen`"),
        (
            "[api]\nlisten = \"127.0.0.1:1\"\ncertificate = \"a\"\nkey = \"/b\"\nclient_ca = \"/c\"\n",
            "a is not an absolute path",
        ),
        ("[api]\nunknown = 1\n", "unknown"),
    ] {
        let ran = check(api);
        assert!(ran.code == Some(2) && ran.err.contains(words) && ran.err.contains("sluiced.toml:"), "{ran:?}");
    }
}
