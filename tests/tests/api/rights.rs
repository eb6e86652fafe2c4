//! Over TCP: certificates on both sides, and who may do what.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use sluice_client::{Client, Details, Tls, add, delete, flow, openoffload, v1};
use sluice_tests::daemon::{CONFIG, Daemon, new_folder};
use sluice_tests::world::eventually;
use tonic::Code;

use crate::stream::{accept, add_all, connect, dump, of, outcomes, soon, told, udp};

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
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
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
    let Details { reason, metadata, .. } = told(&status);
    assert_eq!(
        (reason.as_str(), &*metadata["client"], &*metadata["owner"]),
        ("NOT_ALLOWED", "controller.example", "other")
    );
    let port = v1::Port { number: 7, name: "p7".to_owned(), ..v1::Port::default() };
    let denied = controller.objects().add_port(port.clone()).await.unwrap_err();
    assert_eq!(denied.message(), "controller.example may not change ports, meters and mirrors");
    assert_eq!(told(&denied).reason, "NOT_ALLOWED");

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
    let Details { reason, metadata, .. } = told(&denied);
    assert_eq!((reason.as_str(), &*metadata["names"]), ("UNKNOWN_CLIENT", "stranger.example"));

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

/// How a stream of answers ends that would never end by itself.
async fn end<T>(stream: &mut tonic::Streaming<T>) -> tonic::Status {
    loop {
        match soon("the end", stream.message()).await {
            Ok(answer) => assert!(answer.is_some(), "it ends without a word"),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn streams_that_run_have_no_right_any_more_that_a_reload_takes_away() {
    let folder = new_folder();
    let authority = Authority::new(&folder);
    let address = free_address();
    let daemon = Daemon::start(&authority.config(address, CLIENTS));
    let tls = authority.tls("controller.example", "agent.example");
    let controller = Client::remote(&format!("https://{address}"), &tls).await.unwrap();
    let reload = |from: &str, to: &str| {
        let config = daemon.config().replace(from, to);
        fs::write(daemon.folder().join("sluiced.toml"), config).unwrap();
        let reloaded = daemon.sluice(&["reload"]);
        assert!(reloaded.out.contains("changed: api.client"), "{reloaded:?}");
    };
    let mut apply = controller.apply("story").await.unwrap();
    let ufid = accept(&mut apply, vec![add(1, flow(&udp(1), "server"))]).await.remove(0).ufid;
    outcomes(&mut apply, 1).await;
    let mut replace = controller.replace("story").await.unwrap();
    replace.flows([flow(&udp(2), "server")]).await.unwrap();
    let local = connect(&daemon).await;
    while dump(&local, of("story"), v1::MatchForm::Text).await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut watch = controller.flows().watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    let mut counters = controller.flows().counters(v1::CountersRequest::default()).await.unwrap().into_inner();

    reload("owners = [\"story\"]", "owners = [\"other\"]");
    apply.send([delete(2, &ufid)]).await.unwrap();
    let sluice_client::Error::Call(status) = soon("an answer", apply.next()).await.unwrap_err() else {
        panic!("the agent says no")
    };
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "controller.example has no flows of story"));
    let sluice_client::Error::Call(status) = soon("the end", replace.commit()).await.unwrap_err() else {
        panic!("the agent says no")
    };
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(dump(&local, of("story"), v1::MatchForm::Text).await.len(), 2, "nothing was deleted");

    soon("a poll", counters.message()).await.unwrap().unwrap();
    reload("name = \"controller.example\"", "name = \"successor.example\"");
    for status in [end(&mut watch).await, end(&mut counters).await] {
        assert_eq!(status.message(), "the configuration has no [[api.client]] named controller.example");
    }
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

#[tokio::test]
async fn who_shows_no_certificate_keeps_nobody_out_who_has_one() {
    let folder = new_folder();
    let authority = Authority::new(&folder);
    let address = free_address();
    let daemon = Daemon::start(&authority.config(address, CLIENTS));
    // More than there are places, from one address, and all of them say nothing.
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    silent.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let tls = authority.tls("controller.example", "agent.example");
    let client = Client::remote(&format!("https://{address}"), &tls).await.unwrap();
    client.agent().list_owners(v1::ListOwnersRequest {}).await.unwrap();
    let is_open =
        |mut stream: &TcpStream| stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    eventually("the client has taken the place of one of them", || {
        silent.iter().filter(|stream| is_open(stream)).count() == 255
    });
    assert!(is_open(&silent[299]) && !is_open(&silent[0]), "of the oldest one");
    assert!(daemon.log().contains("it has shown no certificate yet, and too many others have not either"));
    drop(daemon);
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_client_with_a_certificate_keeps_nobody_out_however_often_it_connects() {
    const SHARE: usize = 64;
    let folder = new_folder();
    let authority = Authority::new(&folder);
    let address = free_address();
    let daemon = Daemon::start(&authority.config(address, CLIENTS));
    let entrance = format!("https://{address}");
    let ask = async |name: &str| {
        let client = Client::remote(&entrance, &authority.tls(name, "agent.example")).await?;
        client.agent().list_owners(v1::ListOwnersRequest {}).await?;
        Ok::<_, sluice_client::Error>(client)
    };
    let mut connected = Vec::new();
    for _ in 0..SHARE {
        connected.push(ask("controller.example").await.unwrap());
    }
    assert!(ask("controller.example").await.is_err(), "it has its share");
    ask("spiffe://example/operator").await.unwrap();
    assert!(daemon.log().contains("controller.example: it has 64 connections already, as many as one client may have"));
    connected.pop();
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = ask("controller.example").await {
        assert!(Instant::now() < deadline, "{error}");
    }
    drop(daemon);
    fs::remove_dir_all(folder).unwrap();
}

/// Passes on what comes, until it is as if the machine behind it were gone: then nothing, and no word of that.
fn pass_on(mut from: TcpStream, mut to: TcpStream, is_gone: &AtomicBool) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !is_gone.load(Ordering::Relaxed) {
            to.write_all(&buffer[..length]).unwrap();
        }
    }
}

#[tokio::test]
async fn a_client_hears_that_the_machine_of_the_agent_is_gone() {
    let folder = new_folder();
    let authority = Authority::new(&folder);
    let address = free_address();
    let daemon = Daemon::start(&authority.config(address, CLIENTS));
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let entrance = between.local_addr().unwrap();
    let is_gone = Arc::new(AtomicBool::new(false));
    let passing = is_gone.clone();
    std::thread::spawn(move || {
        let (near, far) = (between.accept().unwrap().0, TcpStream::connect(address).unwrap());
        let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| pass_on(near, far, &passing));
            scope.spawn(|| pass_on(back.0, back.1, &passing));
        });
    });
    let tls = authority.tls("controller.example", "agent.example");
    let client = Client::remote(&format!("https://{entrance}"), &tls).await.unwrap();
    let mut watch = client.flows().watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    soon("a token", watch.message()).await.unwrap().unwrap();
    is_gone.store(true, Ordering::Relaxed);
    soon("the end", watch.message()).await.unwrap_err();
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

#[test]
fn a_sweep_needs_no_certificate() {
    let folder = new_folder();
    fs::create_dir_all(&folder).unwrap();
    let (run, file) = (folder.display(), folder.join("sluiced.toml"));
    let missing = "certificate = \"/nowhere/a\"\nkey = \"/nowhere/b\"\nclient_ca = \"/nowhere/c\"\n";
    let config =
        format!("run_dir = \"{run}/run\"\nlock_dir = \"{run}/locks\"\n[api]\nlisten = \"127.0.0.1:1\"\n{missing}");
    fs::write(&file, config).unwrap();
    let start = |more: &[&str]| {
        let mut command = std::process::Command::new(sluice_tests::daemon::binary("sluiced"));
        sluice_tests::daemon::run(command.args(["--metrics", "none"]).args(more).arg("--config").arg(&file))
    };
    let served = start(&[]);
    fs::write(folder.join("run/state/leases.json"), "{").unwrap();
    let swept = start(&["--sweep"]);
    fs::remove_dir_all(&folder).unwrap();
    assert!(served.code == Some(2) && served.err.contains("/nowhere/a"), "{served:?}");
    assert_eq!(swept.code, Some(0), "{swept:?}");
}

#[tokio::test]
async fn clients_outside_the_pid_namespace_of_the_agent_are_let_in() {
    let folder = new_folder();
    let program = ["unshare", "--user", "--map-root-user", "--pid", "--kill-child"].map(str::to_owned);
    let daemon = Daemon::start_by(&program, &folder, CONFIG);
    let shown = daemon.sluice(&["show"]);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let client = connect(&daemon).await;
    let listed = client.objects().list_ports(v1::ListPortsRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.ports.len(), 4);
    drop(daemon);
    // The agent may still end.
    let _ = fs::remove_dir_all(&folder);
}
