//! The mirror of control traffic on the NIC in software: what comes out of `mirror.sock`, and what a client costs that does not read.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::time::{Duration, Instant};

use sluice_control::mirror::{Class, ClassSet, Losses, Message, Plan};
use sluice_tests::control_frames::{self, Sample};
use sluice_tests::daemon::Daemon;
use sluice_tests::mirror_client::MirrorClient;
use sluice_tests::world::eventually;

const CONFIG: &str = r#"
idle_timeout = "none"
poll_interval = "20ms"
[mirror]
collector = "192.0.2.9:4790"
[[port]]
number = 1
name = "client"
[[port]]
number = 2
name = "server"
[[port]]
number = 9
name = "collector"
kind = "mirror"
"#;

/// What a frame was told to be.
#[derive(Debug, PartialEq)]
struct Told {
    class: Class,
    in_port: Option<u32>,
    ufid: Option<u128>,
    frame: Vec<u8>,
}

fn told(client: &MirrorClient, count: usize) -> Vec<Told> {
    (0..count).map(|_| frame(&client.next().expect("a frame in time"))).collect()
}

fn frame(message: &[u8]) -> Told {
    let Ok(Message::Frame(view)) = Message::parse(message) else { panic!("no frame: {message:?}") };
    let repr = view.repr();
    assert_eq!(repr.original_length as usize, view.frame().len());
    assert!(repr.time > 1_600_000_000_000_000_000, "nanoseconds since 1970: {}", repr.time);
    Told { class: repr.class, in_port: repr.in_port, ufid: repr.ufid, frame: view.frame().to_vec() }
}

fn plan(client: &MirrorClient) -> Plan {
    let message = client.next().expect("a plan in time");
    let Ok(Message::Plan(plan)) = Message::parse(&message) else { panic!("no plan: {message:?}") };
    plan
}

fn works(daemon: &Daemon, args: &[&str]) -> String {
    let ran = daemon.sluice(args);
    assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)), "{args:?}");
    ran.out
}

fn replay(daemon: &Daemon, frames: &[Vec<u8>], port: &str) {
    let capture = daemon.folder().join("frames.pcap");
    std::fs::write(&capture, control_frames::pcap(frames)).unwrap();
    works(daemon, &["replay", capture.to_str().unwrap(), "--in-port", port, "--speed", "flat"]);
}

#[test]
fn control_frames_come_out_with_class_port_and_flow_byte_for_byte_and_nothing_else_does() {
    let daemon = Daemon::start(CONFIG);
    works(&daemon, &["add-flow", "in_port(client),eth_type(0x0806)", "server"]);
    let client = MirrorClient::connect(&daemon.run_dir());
    let first = plan(&client);
    assert_eq!(first.collector, "192.0.2.9:4790");
    assert_eq!(first.classes, Class::ALL.into_iter().collect::<ClassSet>());
    let ports: Vec<_> = first.taps.iter().map(|tap| (tap.in_port, tap.name.as_str(), tap.netdev.as_deref())).collect();
    assert_eq!(ports, [(Some(1), "client", None), (Some(2), "server", None)], "a mirror port is not mirrored");

    let samples = control_frames::samples();
    let frames: Vec<_> = samples.iter().map(|sample| sample.frame.clone()).collect();
    replay(&daemon, &frames, "client");
    let flows = works(&daemon, &["dump-flows", "-m"]);
    let ufid = flows.split_once("ufid:").unwrap().1.split_once(',').unwrap().0.replace('-', "");
    let arp = u128::from_str_radix(&ufid, 16).unwrap();
    let wanted: Vec<_> = samples
        .iter()
        .filter_map(|Sample { class, frame, .. }| {
            // The flow takes ARP without a tag.
            let ufid = (frame[12..14] == [0x08, 0x06]).then_some(arp);
            Some(Told { class: (*class)?, in_port: Some(1), ufid, frame: frame.clone() })
        })
        .collect();
    let mut got = told(&client, wanted.len());
    let order = |told: &Told| wanted.iter().position(|wanted| wanted == told);
    got.sort_by_key(order);
    assert_eq!(got, wanted);
    assert!(client.is_silent(), "nothing else is copied");

    replay(&daemon, &frames[..1], "server");
    assert_eq!(told(&client, 1)[0].in_port, Some(2));
    for class in Class::ALL.into_iter().filter(|class| *class != Class::Flow) {
        let copied = wanted.iter().filter(|told| told.class == class).count() + usize::from(class == Class::Arp);
        let series = |metric: &str| daemon.metric(&format!("{metric}{{class=\"{class}\"}}"));
        eventually("the counters are polled", || series("sluice_control_mirror_packets_total") == Some(copied as f64));
        assert_eq!(series("sluice_mirror_socket_frames_total"), Some(copied as f64), "{class}");
    }
}

#[test]
fn what_a_flow_sends_to_a_mirror_port_comes_out_as_a_copy_of_that_flow() {
    let daemon = Daemon::start(CONFIG);
    let ufid = "00000000-0000-0000-0000-00000000002a";
    works(&daemon, &["add-flow", &format!("ufid:{ufid},in_port(client),eth_type(0x0800)"), "collector,server"]);
    let client = MirrorClient::connect(&daemon.run_dir());
    plan(&client);
    let frame = sluice_tests::frames::udp(53);
    replay(&daemon, std::slice::from_ref(&frame), "client");
    assert_eq!(told(&client, 1), [Told { class: Class::Flow, in_port: Some(1), ufid: Some(42), frame }]);
    assert!(client.is_silent());
}

#[test]
fn a_verdict_is_the_same_with_a_mirror_and_without() {
    let daemon = Daemon::start(CONFIG);
    works(&daemon, &["add-flow", "in_port(client),eth_type(0x0806)", "server"]);
    let arp = control_frames::samples().remove(0).frame;
    let hex: String = arp.iter().map(|byte| format!("{byte:02x}")).collect();
    let inject = || daemon.appctl(&["sluice/inject", "client", &hex]).out;
    let with = inject();
    assert_eq!(with, "frames:1 hit:1 missed:0 missed_later:0 sent:1\n");
    let traced = works(&daemon, &["trace", &hex, "--in-port", "client"]);
    assert!(traced.contains("mirror ~arp.1 copies it\n") && traced.matches("sent:").count() == 1, "{traced}");
    let config = daemon.config().replace("[mirror]\ncollector = \"192.0.2.9:4790\"\n", "");
    std::fs::write(daemon.folder().join("sluiced.toml"), config).unwrap();
    assert_eq!(works(&daemon, &["reload"]).trim(), "changed: mirror");
    assert_eq!(inject(), with);
    assert_eq!(works(&daemon, &["show-mirrors"]), "");
}

#[test]
fn a_client_that_stands_still_costs_counted_copies_and_no_time() {
    const FRAMES: usize = 20_000;
    let daemon = Daemon::start(&CONFIG.replace("[mirror]", "[mirror]\nqueue_bytes = 131072"));
    let still = MirrorClient::connect(&daemon.run_dir());
    let samples = control_frames::samples();
    let find = |name: &str| samples.iter().find(|sample| sample.name == name).unwrap().frame.clone();
    let (arp, bfd) = (find("arp"), find("bfd"));
    let began = Instant::now();
    replay(&daemon, &vec![arp.clone(); FRAMES], "client");
    assert!(began.elapsed() < Duration::from_secs(60), "nobody waited: {:?}", began.elapsed());
    replay(&daemon, std::slice::from_ref(&bfd), "client");
    let series = |metric: &str, class: &str| daemon.metric(&format!("{metric}{{{class}}}")).unwrap_or_default();
    let dropped = series("sluice_mirror_socket_drops_total", "class=\"arp\",cause=\"queue_full\"")
        .max(series("sluice_mirror_socket_drops_total", "cause=\"queue_full\",class=\"arp\""));
    assert!(dropped > FRAMES as f64 / 2.0, "{dropped} of {FRAMES}");
    assert_eq!(daemon.sluice(&["show-mirrors"]).code, Some(0), "the agent goes on");

    // It reads again: what waited comes, what did not is told, and the flood has cost the other class nothing.
    plan(&still);
    let (mut arps, mut bfds, mut losses) = (0, 0, Losses::default());
    while let Some(message) = still.next() {
        match Message::parse(&message).unwrap() {
            Message::Frame(view) if view.repr().class == Class::Arp && view.frame() == arp => arps += 1,
            Message::Frame(view) if view.repr().class == Class::Bfd && view.frame() == bfd => bfds += 1,
            Message::Losses(told) => losses = told,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((losses.of(Class::Arp) as f64, losses.of(Class::Bfd), bfds), (dropped, 0, 1));
    assert_eq!(arps + losses.of(Class::Arp), FRAMES as u64, "every copy came or is counted");
}

#[test]
fn a_reload_tells_the_client_another_plan_and_costs_no_flow() {
    let daemon = Daemon::start(CONFIG);
    works(&daemon, &["add-flow", "in_port(client),eth_type(0x0806)", "server"]);
    let client = MirrorClient::connect(&daemon.run_dir());
    assert_eq!(plan(&client).taps.len(), 2);
    let write = |table: &str| {
        let changed = CONFIG.replace("[mirror]\n", &format!("[mirror]\n{table}\n"));
        let before = daemon.config();
        let head = before.split("idle_timeout").next().unwrap();
        std::fs::write(daemon.folder().join("sluiced.toml"), format!("{head}{}", changed.trim_start())).unwrap();
    };
    write("protocols = [\"lldp\", \"bfd\"]\nports = [\"server\"]");
    assert_eq!(works(&daemon, &["reload"]).trim(), "changed: mirror");
    let told = plan(&client);
    assert_eq!((told.classes.to_string(), told.taps.len(), told.taps[0].in_port), ("lldp,bfd".into(), 1, Some(2)));
    let shown = works(&daemon, &["show-mirrors"]);
    let names: Vec<_> = shown.lines().map(|line| line.split_once(", to:").unwrap().0).collect();
    assert_eq!(names, ["mirror:~lldp.2, class:lldp, in_port:server", "mirror:~bfd.2, class:bfd, in_port:server"]);
    let samples = control_frames::samples();
    let frames: Vec<_> = samples.iter().map(|sample| sample.frame.clone()).collect();
    replay(&daemon, &frames, "client");
    assert!(client.is_silent());
    assert_eq!(works(&daemon, &["dump-flows"]).lines().count(), 1);

    works(&daemon, &["add-port", "3", "third"]);
    assert!(client.is_silent(), "the file names the ports");
    write("protocols = [\"lldp\", \"bfd\"]");
    works(&daemon, &["reload"]);
    let ports: Vec<_> = plan(&client).taps.into_iter().map(|tap| tap.in_port).collect();
    assert_eq!(ports, [Some(1), Some(2), Some(3)]);
    works(&daemon, &["del-port", "third"]);
    assert_eq!(plan(&client).taps.len(), 2, "a port that goes is told, too");
}

#[test]
fn a_mirror_that_cannot_be_is_said_with_its_place() {
    let folder = tempfile::TempDir::new().unwrap();
    let check = |text: &str| {
        let file = folder.path().join("sluiced.toml");
        std::fs::write(&file, text).unwrap();
        let args = ["--check", "--config", file.to_str().unwrap()];
        let ran =
            sluice_tests::daemon::run(std::process::Command::new(sluice_tests::daemon::binary("sluiced")).args(args));
        (ran.code, ran.err)
    };
    let port = "[[port]]\nnumber = 1\nname = \"a\"\n";
    for (table, reason) in [
        ("[mirror]\nprotocols = [\"stp\"]", "\"stp\" is no class of control traffic; the classes are arp, nd, "),
        ("[mirror]\ncollector = \"here\"", "expected an address and port such as \"192.0.2.1:4790\", not \"here\""),
        ("[mirror]\nports = [\"b\"]", "there is no port \"b\""),
        ("backend = \"dv\"\n[mirror]", "backend \"dv\" copies to ports of its device only: `to` names one"),
        ("[mirror]\ntags = 3", "expected a number from 0 to 2, not 3"),
        ("[mirror]\nqueue_bytes = 5", "expected a number from 131072 to 1073741824, not 5"),
        ("[mirror]\nbogus = 1", "unknown key `bogus`"),
        ("[[mirror]]\nprotocols = []\n[[mirror]]\nprotocols = []", "there is a mirror with `protocols` already"),
        ("[[mirror]]\nname = \"~x\"\nkey = \"in_port(1)\"\nports = [1]", "are those of [mirror]"),
    ] {
        let (code, err) = check(&format!("{table}\n{port}"));
        assert_eq!(code, Some(2), "{table}: {err}");
        assert!(err.contains(reason), "{table}: {err}");
    }
    let both = "[[mirror]]\nprotocols = [\"arp\"]\n[[mirror]]\nname = \"x\"\nkey = \"in_port(1)\"\nports = [1]\n";
    assert_eq!(check(&format!("{both}{port}")), (Some(0), String::new()), "mirrors of keys stand beside it");
}
