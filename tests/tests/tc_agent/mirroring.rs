//! The mirror of control traffic with tc: copies come to a silent device for each port, and to nowhere else.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};

use sluice_control::mirror::{Class, filter};
use sluice_tests::control_frames::{Sample, samples};
use sluice_tests::daemon::Daemon;
use sluice_tests::lab::Wire;
use sluice_tests::lab::switch::{Switch, eventually, run, sluice};
use sluice_tests::mirror_client::MirrorClient;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

const KEYS: &str = "tc.policy = \"skip_hw\"\nidle_timeout = \"none\"";
const MIRROR: &str = "[mirror]\ncollector = \"192.0.2.9:4790\"\n";

/// Frames that leave by a network device, captured there.
struct Capture(Socket);

impl Capture {
    /// Those of a class; of [`Class::Flow`] all.
    fn of(class: Class, device: &str) -> Self {
        // ETH_P_ALL of linux/if_ether.h.
        let all = i32::from(3_u16.to_be());
        let socket = Socket::new_raw(Domain::PACKET, Type::RAW, Some(Protocol::from(all))).unwrap();
        let program = filter::program_at(class, &[index_of(device)]).unwrap();
        let program: Vec<_> =
            program.iter().map(|one| SockFilter::new(one.code, one.jump_true, one.jump_false, one.operand)).collect();
        socket.attach_filter(&program).expect("the kernel takes the program");
        socket.set_recv_buffer_size(4 << 20).unwrap();
        socket.set_nonblocking(true).unwrap();
        let capture = Self(socket);
        // Until it had its filter, it took the frames of every device.
        capture.frames();
        capture
    }

    fn frames(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let mut buffer = vec![0; 1 << 16];
            match (&self.0).read(&mut buffer) {
                Ok(length) => frames.push(buffer[..length].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return frames,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn index_of(device: &str) -> u32 {
    let links: serde_json::Value = serde_json::from_str(&run(&format!("ip -j link show dev {device}"))).unwrap();
    u32::try_from(links[0]["ifindex"].as_u64().unwrap()).unwrap()
}

/// How many frames a device has sent.
fn sent_by(device: &str) -> u64 {
    let links: serde_json::Value = serde_json::from_str(&run(&format!("ip -j -s link show dev {device}"))).unwrap();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

/// The taps that there are.
fn taps() -> Vec<String> {
    let links: serde_json::Value = serde_json::from_str(&run("ip -j link show type dummy")).unwrap();
    let names = links.as_array().unwrap().iter().filter_map(|link| link["ifname"].as_str().map(str::to_owned));
    names.filter(|name| name.starts_with("slm")).collect()
}

/// The tap of a port, as the agent shows it.
fn tap_of(daemon: &Daemon, port: &str) -> String {
    let shown = sluice(daemon, &["show-mirrors"]);
    let line = shown.lines().find(|line| line.contains(&format!("class:arp, in_port:{port}, to:"))).expect("a mirror");
    line.split_once(", to:").unwrap().1.split(',').next().unwrap().to_owned()
}

fn wires() -> [Wire; 2] {
    let wires = ["w1", "w2"].map(Wire::new);
    run("ip link set w1 up");
    run("ip link set w2 up");
    wires
}

/// What came out of a wire that is a copy of a sample.
fn arrived(wire: &Wire, samples: &[Sample]) -> Vec<&'static str> {
    let mut buffer = vec![0; 1 << 16];
    let frames = std::iter::from_fn(|| wire.receive(&mut buffer));
    frames.filter_map(|frame| Some(samples.iter().find(|sample| sample.frame == frame)?.name)).collect()
}

pub(crate) fn control_traffic_comes_to_the_tap_of_its_port_and_nothing_else_does() {
    let switch = Switch::set_up();
    // A router says more by itself than a host.
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    let [one, two] = wires();
    let mut daemon = switch.start_on(&["w1", "w2"], KEYS, "");
    sluice(&daemon, &["add-flow", "in_port(w1),eth_type(0x0806)", "w2"]);
    let samples = samples();
    let send = || samples.iter().for_each(|sample| one.send(&sample.frame));
    send();
    let without = arrived(&two, &samples);
    assert!(without.contains(&"arp"), "{without:?}");
    assert!(taps().is_empty());

    let file = switch.folder().join("sluiced.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{config}\n{MIRROR}")).unwrap();
    assert_eq!(sluice(&daemon, &["reload"]).trim(), "changed: mirror");
    let [first, second] = ["w1", "w2"].map(|port| tap_of(&daemon, port));
    let shown = sluice(&daemon, &["show-mirrors"]);
    assert!(shown.lines().count() == 16 && !shown.contains("refused"), "{shown}");
    let plan = MirrorClient::connect(&daemon.run_dir()).next().unwrap();
    let sluice_control::mirror::Message::Plan(plan) = sluice_control::mirror::Message::parse(&plan).unwrap() else {
        panic!("no plan")
    };
    let taps_of_plan: Vec<_> = plan.taps.iter().map(|tap| (tap.in_port, tap.netdev.clone().unwrap())).collect();
    assert_eq!(taps_of_plan, [(Some(1), first.clone()), (Some(2), second.clone())]);

    let all = Capture::of(Class::Flow, &first);
    let by_class = Class::ALL.map(|class| Capture::of(class, &first));
    send();
    assert_eq!(arrived(&two, &samples), without, "what becomes of packets is the same");
    let wanted: Vec<_> = samples.iter().filter(|sample| sample.class.is_some()).collect();
    let mut got: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    all.frames().into_iter().for_each(|frame| *got.entry(frame).or_default() += 1);
    let mut missing = Vec::new();
    for sample in &wanted {
        match got.get_mut(&sample.frame) {
            Some(count) if *count > 0 => *count -= 1,
            _ => missing.push((sample.name, sample.class, sample.frame.clone())),
        }
    }
    got.retain(|_, count| *count > 0);
    assert!(missing.is_empty() && got.is_empty(), "missing {missing:02x?}, too many {got:02x?}");
    for (class, capture) in Class::ALL.into_iter().zip(&by_class).filter(|(class, _)| *class != Class::Flow) {
        let of_class = wanted.iter().filter(|sample| sample.class == Some(class)).count();
        assert_eq!(capture.frames().len(), of_class, "the filter of {class}");
        eventually("tc counts what is captured", || {
            let series = format!("sluice_control_mirror_packets_total{{class=\"{class}\"}}");
            daemon.metric(&series) == Some(of_class as f64)
        });
    }
    assert_eq!((sent_by(&first), sent_by(&second)), (wanted.len() as u64, 0), "the host sends nothing there");
    let addresses = std::fs::read_to_string("/proc/self/net/if_inet6").unwrap();
    assert!(!addresses.contains("slm"), "{addresses}");
    assert!(sluice(&daemon, &["audit"]).contains("1 rules, all as wanted"), "a mirror is no rule of a flow");

    // Whoever removes the tap does not end the mirror.
    run(&format!("ip link del {first}"));
    eventually("the tap is back", || taps().contains(&first));
    let all = Capture::of(Class::Flow, &first);
    eventually("copies come to it", || {
        one.send(&samples[0].frame);
        !all.frames().is_empty()
    });

    daemon.signal("TERM");
    daemon.wait();
    assert!(taps().is_empty(), "the agent takes its taps along: {:?}", taps());
    let filters = switch.filters("w1");
    assert_eq!(filters.len(), 1, "and leaves the flow: {filters:?}");
}

pub(crate) fn a_mirror_goes_on_after_a_kill_and_ends_with_the_next_agent_that_wants_none() {
    let switch = Switch::set_up();
    let [one, _two] = wires();
    let mut first = switch.start_on(&["w1", "w2"], KEYS, MIRROR);
    let tap = tap_of(&first, "w1");
    let arp = samples().remove(0).frame;
    one.send(&arp);
    first.signal("KILL");
    first.wait();
    let all = Capture::of(Class::Flow, &tap);
    one.send(&arp);
    assert_eq!(all.frames(), std::slice::from_ref(&arp), "without an agent");
    let mut second = switch.start_on(&["w1", "w2"], KEYS, MIRROR);
    assert_eq!(tap_of(&second, "w1"), tap, "it is the same");
    one.send(&arp);
    assert_eq!(all.frames().len(), 1);
    eventually("the counters go on", || {
        second.metric("sluice_control_mirror_packets_total{class=\"arp\"}") == Some(3.0)
    });
    second.signal("KILL");
    second.wait();
    let third = switch.start_on(&["w1", "w2"], KEYS, "");
    assert!(taps().is_empty() && switch.filters("w1").is_empty(), "{:?} {:?}", taps(), switch.filters("w1"));
    drop(third);
}
