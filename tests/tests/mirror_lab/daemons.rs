//! The control traffic of other people's daemons: what they say comes out of the collector as it was on the wire, and daemons on the
//! collector's host hear it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

use rustix::process::Signal;
use sluice_control::mirror::Class;
use sluice_tests::lab::Wire;
use sluice_tests::lab::iproute::batch_in;
use sluice_tests::lab::run;

use crate::captures::{files, frames};
use crate::collector::Place;
use crate::independent::{Capture, classified, complaints, counted, fill_in};
use crate::programs::until;
use crate::site::{CLASSES, Site, mac, told, within};
use crate::stories;

stories![
    what_daemons_say_is_written_as_it_was_on_the_wire_and_heard_at_the_tap,
    lacp_of_two_bonds_is_written_as_it_was_on_the_wire,
    what_is_too_much_for_the_rings_is_counted_and_every_count_is_exact,
    segments_are_written_and_not_what_was_to_be_cut_into_them,
];

/// With another machine to be told what to do.
pub(crate) const IN_TWO_MACHINES: &[crate::Story] =
    &[("what_daemons_say_in_one_machine_is_written_and_heard_in_the_other", || written_and_heard(Place::There))];

fn what_daemons_say_is_written_as_it_was_on_the_wire_and_heard_at_the_tap() {
    written_and_heard(Place::Here);
}

fn written_and_heard(place: Place) {
    // Room for as long as a machine may stand still whose host is busy: a block has what comes within 4 ms.
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "[send]\nring_block = 16384\nring_blocks = 512\n").unwrap();
    let mut site = Site::with(place, &["--config", config.path().to_str().unwrap()], true);
    let folder = site.folder.path().to_owned();
    // What a capture at the source sees is then what is on the wire, but for checksums.
    for space in ["leaf", "spine"] {
        told(space, "ethtool -K eth0 tso off gso off");
    }
    let captures = [(1, "leaf"), (2, "spine")]
        .map(|(number, space)| Capture::start(&folder, space, &["ether", "src", &mac(number)]));
    site.take_tap();
    addresses();
    for (name, text) in [("leaf", leaf()), ("spine", spine().to_owned()), ("host", host().to_owned())] {
        site.write(&format!("{name}.conf"), &text);
        let [conf, control, pid] = ["conf", "ctl", "pid"].map(|end| site.path(&format!("{name}.{end}")));
        site.spawn(name, &format!("bird -f -c {conf} -s {control} -P {pid}"));
    }
    std::fs::create_dir_all("/run/lldpd").unwrap();
    site.told("host", "mkdir -p /run/lldpd");
    for (space, device) in [("leaf", "eth0"), ("spine", "eth0"), ("host", "mirror0")] {
        let socket = site.path(&format!("{space}.lldp"));
        site.spawn(space, &format!("lldpd -d -u {socket} -I {device} -O /dev/null"));
    }
    let leases = site.path("leases");
    site.spawn(
        "spine",
        &format!(
            "dnsmasq -k -p 0 -C /dev/null --interface=eth0 --bind-interfaces --user=root --dhcp-authoritative --no-ping \
             --dhcp-range=10.20.0.100,10.20.0.200,255.255.255.0,10m --dhcp-leasefile={leases} --pid-file="
        ),
    );
    until("the client has an address", || {
        told("leaf", "busybox udhcpc -i eth0 -f -q -n -t 2 -T 1 -s /bin/true");
        std::fs::read_to_string(&leases).is_ok_and(|leases| !leases.is_empty())
    });

    let bird = |space: &str, words: &str| {
        site.told(space, &format!("birdc -s {} {words}", site.path(&format!("{space}.ctl"))))
    };
    until("OSPF has its neighbours without a tag, with one and with two", || {
        let shown = bird("leaf", "show ospf neighbors");
        ["eth0", "eth0.7", "s9.10"].iter().all(|device| {
            shown.lines().any(|line| line.contains("Full") && line.split_whitespace().any(|word| word == *device))
        })
    });
    until("BGP is established on the wire", || bird("spine", "show protocols leaf").contains("Established"));
    until("BFD is up", || bird("leaf", "show bfd sessions").contains("Up"));
    until("all routes are there", || bird("spine", "show route count").contains("2000 of"));
    // Over the TAP: the leaf's daemons do not know that it is there.
    until("a BGP neighbour over the TAP", || bird("host", "show protocols leaf").contains("Established"));
    println!("host: {}", bird("host", "show protocols leaf").lines().last().unwrap_or_default());
    until("OSPF hears the leaf at the TAP", || bird("host", "show ospf neighbors").contains("10.20.0.1"));
    let lldp = |space: &str, words: &str| {
        site.told(space, &format!("lldpcli -u {} {words}", site.path(&format!("{space}.lldp"))))
    };
    until("an LLDP neighbour at the TAP", || {
        lldp("leaf", "update");
        lldp("host", "show neighbors").contains(&mac(1))
    });

    site.end_daemons();
    // Nothing more is said.
    for space in ["leaf", "spine"] {
        batch_in(space, &["addr flush dev eth0".into(), "link del eth0.7".into(), "link del s9".into()]);
        within(space, || std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1").unwrap());
    }
    site.settle();
    let [leaf, spine] = captures.map(Capture::stop);
    let Checked { file, written, unfilled, _site } = check(site, leaf.into_iter().chain(spine).collect(), None);
    let complaints = complaints(&file);
    assert!(complaints.is_empty(), "{complaints:?}");
    let count = |is_so: fn(&[u8]) -> bool| written.iter().filter(|(_, frame)| is_so(frame)).count();
    let tagged = count(|frame| frame[12..14] == [0x81, 0]);
    let stacked = count(|frame| frame[12..14] == [0x88, 0xa8]);
    let jumbo = count(|frame| frame.len() > 1514);
    println!(
        "{unfilled} checksums were left to a device; {tagged} frames with a tag, {stacked} with two, {jumbo} jumbo"
    );
    assert!(unfilled > 0 && tagged > 0 && stacked > 0 && jumbo > 0);
    let said: BTreeSet<_> = written.iter().map(|(class, _)| class.name()).collect();
    assert_eq!(said.into_iter().collect::<Vec<_>>(), ["arp", "bfd", "bgp", "dhcp", "lldp", "nd", "ospf"]);
}

fn lacp_of_two_bonds_is_written_as_it_was_on_the_wire() {
    const ENOUGH: u64 = 10;
    run("modprobe bonding max_bonds=0");
    let site = Site::new(&[]);
    for space in ["leaf", "spine"] {
        batch_in(
            space,
            &[
                "link add bond0 type bond mode 802.3ad lacp_rate fast".into(),
                "link set eth0 down".into(),
                "link set eth0 master bond0".into(),
            ],
        );
    }
    let captures = [(1, "leaf"), (2, "spine")]
        .map(|(number, space)| Capture::start(site.folder.path(), space, &["ether", "src", &mac(number)]));
    // Neither hears the other, since a bridge keeps LACP to itself, and so both go on asking.
    let set = |state: &str| ["leaf", "spine"].map(|space| batch_in(space, &[format!("link set bond0 {state}")]));
    set("up");
    until("both bonds speak LACP", || site.counted(Class::Lacp) >= ENOUGH);
    set("down");
    site.settle();
    let [leaf, spine] = captures.map(Capture::stop);
    assert!(!leaf.is_empty() && !spine.is_empty());
    let Checked { file, written, unfilled: _, _site } = check(site, leaf.into_iter().chain(spine).collect(), None);
    assert_eq!(complaints(&file), Vec::<String>::new());
    assert!(written.iter().all(|(class, _)| *class == Class::Lacp));
}

/// What is known once all counts were found to be the same.
struct Checked {
    file: PathBuf,
    written: Vec<(Class, Vec<u8>)>,
    /// Frames whose checksum their source had left to a device.
    unfilled: usize,
    /// The file goes with this.
    _site: Site,
}

/// Ends it, and compares every count with every other, for each class: what was captured at the sources, what tc has counted, what the
/// rings took and dropped, what the collector has counted, and what is in the file, byte for byte. Only rings of one class may drop.
fn check(mut site: Site, sources: Vec<(Class, Vec<u8>)>, may_drop: Option<Class>) -> Checked {
    let mut sent = BTreeMap::<&str, Vec<Vec<u8>>>::new();
    let mut unfilled = 0;
    for (class, mut frame) in sources {
        unfilled += usize::from(fill_in(&mut frame));
        sent.entry(class.name()).or_default().push(frame);
    }
    let counts = CLASSES.map(|class| {
        let of = |metric: &str| site.collector().of(&format!("collect_{metric}_frames_total"), class);
        (class, site.counted(class), site.ringed(class), of("written"), of("dropped"))
    });
    site.sender.take().unwrap().stop();
    site.collector.take().unwrap().stop(site.folder.path());
    let file = files(site.folder.path()).pop().unwrap();
    let written = classified(&file);
    assert_eq!(written.len(), frames(site.folder.path()).len(), "nothing but control traffic is mirrored");
    for (class, tc, (taken, ring_drops), in_file, file_drops) in counts {
        let source = sent.remove(class.name()).unwrap_or_default();
        let here: Vec<_> = written.iter().filter(|(of, _)| *of == class).map(|(_, frame)| frame.clone()).collect();
        println!(
            "{class}: {} frames at the source, {tc} by tc, {taken} in the ring, {ring_drops} dropped there, {} in the file",
            source.len(),
            here.len()
        );
        assert_eq!((source.len() as u64, taken + ring_drops), (tc, tc), "{class}");
        assert_eq!((in_file + file_drops, here.len() as u64), (taken, in_file), "{class}");
        assert!(ring_drops == 0 || may_drop == Some(class), "{class}");
        let (source, here) = (counted(source), counted(here));
        let is_there = here.iter().all(|(frame, count)| source.get(frame) >= Some(count));
        assert!(is_there && (ring_drops > 0 || here == source), "{class}: {}", differences(&source, &here));
    }
    Checked { file, written, unfilled, _site: site }
}

fn differences(source: &BTreeMap<Vec<u8>, u32>, here: &BTreeMap<Vec<u8>, u32>) -> String {
    let mut text = String::new();
    for (name, one, other) in [("at the source only", source, here), ("in the file only", here, source)] {
        for (frame, count) in one.iter().filter(|(frame, count)| other.get(*frame) != Some(count)).take(3) {
            writeln!(text, "{name} {count} times: {frame:02x?}").unwrap();
        }
    }
    text
}

/// From now on the machines say something.
fn addresses() {
    for (number, space) in [(1, "leaf"), (2, "spine")] {
        within(space, || std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0").unwrap());
        batch_in(
            space,
            &[
                format!("addr add 10.20.0.{number}/24 dev eth0"),
                "link add link eth0 name eth0.7 type vlan id 7".into(),
                "link add link eth0 name s9 type vlan proto 802.1ad id 9".into(),
                "link add link s9 name s9.10 type vlan id 10".into(),
                "link set eth0.7 up".into(),
                // Two tags more than what the cable carries would be too long.
                "link set s9 mtu 8996 up".into(),
                "link set s9.10 mtu 8992 up".into(),
                format!("addr add 10.20.7.{number}/24 dev eth0.7"),
                format!("addr add 10.20.9.{number}/24 dev s9.10"),
            ],
        );
    }
    // Nobody at the TAP can answer a request for its address.
    batch_in("leaf", &["neigh add 10.20.0.3 lladdr 02:00:00:00:0a:03 dev eth0 nud permanent".into()]);
}

/// The routes that OSPF exports fill a jumbo frame.
fn leaf() -> String {
    let mut routes = String::new();
    for number in 0..2000 {
        writeln!(routes, "    route 10.{}.{}.0/24 unreachable;", 100 + number / 256, number % 256).unwrap();
    }
    format!(
        "router id 10.20.0.1;
protocol device {{}}
protocol static {{
    ipv4;
{routes}}}
protocol bfd {{ interface \"eth0\" {{ interval 1 s; multiplier 20; }}; }}
protocol ospf v2 {{
    ipv4 {{ export where net ~ [ 10.100.0.0/16+ ]; import none; }};
    area 0 {{ interface \"eth0\", \"eth0.7\", \"s9.10\" {{ type ptp; hello 1; retransmit 2; dead 60; }}; }};
}}
protocol bgp spine {{
    local 10.20.0.1 as 65001;
    neighbor 10.20.0.2 as 65002;
    bfd;
    connect delay time 1;
    connect retry time 2;
    ipv4 {{ export all; import all; }};
}}
protocol bgp host {{
    local 10.20.0.1 as 65001;
    neighbor 10.20.0.3 as 65003;
    multihop;
    connect delay time 1;
    connect retry time 2;
    ipv4 {{ export none; import none; }};
}}
"
    )
}

fn spine() -> &'static str {
    "router id 10.20.0.2;
protocol device {}
protocol bfd { interface \"eth0\" { interval 1 s; multiplier 20; }; }
protocol ospf v2 {
    ipv4 { export none; import none; };
    area 0 { interface \"eth0\", \"eth0.7\", \"s9.10\" { type ptp; hello 1; retransmit 2; dead 60; }; };
}
protocol bgp leaf {
    local 10.20.0.2 as 65002;
    neighbor 10.20.0.1 as 65001;
    bfd;
    passive;
    ipv4 { import all; export none; };
}
"
}

fn host() -> &'static str {
    "router id 10.20.0.3;
protocol device {}
protocol ospf v2 {
    ipv4 { export none; import none; };
    area 0 { interface \"mirror0\" { type ptp; hello 1; retransmit 2; dead 60; }; };
}
protocol bgp leaf {
    local 10.20.0.3 as 65003;
    neighbor 10.20.0.1 as 65001;
    multihop;
    passive;
    ipv4 { import none; export none; };
}
"
}

fn what_is_too_much_for_the_rings_is_counted_and_every_count_is_exact() {
    const FLOOD: u32 = 6000;
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "[send]\nring_block = 4096\nring_blocks = 16\n").unwrap();
    let site = Site::new(&["--config", config.path().to_str().unwrap()]);
    // What is let in here leaves by the cable, as if a program of the leaf had sent it.
    let source = within("leaf", || Wire::new("source"));
    batch_in("leaf", &["link set source up".into()]);
    told("leaf", "tc qdisc add dev source clsact");
    told("leaf", "tc filter add dev source ingress matchall action mirred egress redirect dev eth0");
    let capture = Capture::start(site.folder.path(), "leaf", &["ether", "src", &mac(1)]);
    let send = |class: Class, count: u32| (0..count).for_each(|number| source.send(&flood(class, number)));
    send(Class::Lldp, 50);
    site.settle();
    // Until the collector goes on, nothing more is granted, and the rings keep what they have.
    site.collector().signal(Signal::STOP);
    send(Class::Arp, FLOOD);
    send(Class::Lldp, 20);
    until("the ring has no room left", || site.ringed(Class::Arp).1 > 0);
    site.collector().signal(Signal::CONT);
    site.settle();
    send(Class::Arp, 10);
    site.settle();
    let sources = capture.stop();
    assert_eq!(sources.len(), usize::try_from(FLOOD).unwrap() + 80);
    let checked = check(site, sources, Some(Class::Arp));
    assert!(checked.written.len() < usize::try_from(FLOOD).unwrap());
}

/// A frame of a class with this number in it.
fn flood(class: Class, number: u32) -> Vec<u8> {
    let mut frame = vec![1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0x0a, 1];
    if class == Class::Arp {
        frame[..6].fill(0xff);
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0x0a, 1, 10, 20, 0, 1, 0, 0, 0, 0, 0, 0]);
        frame.extend(number.to_be_bytes());
    } else {
        // Chassis, port, time to live, a description, and the end.
        frame.extend([0x88, 0xcc, 2, 7, 4, 2, 0, 0, 0, 0x0a, 1, 4, 2, 7, b'1', 6, 2, 0, 120, 8, 8]);
        frame.extend(format!("{number:08}").bytes());
        frame.extend([0, 0]);
    }
    frame.resize(60, 0);
    frame
}

fn segments_are_written_and_not_what_was_to_be_cut_into_them() {
    const BYTES: usize = 400_000;
    let site = Site::new(&[]);
    // The other port has no segmentation offload, so that what is on the wire there is what a NIC would have made of it.
    run("ethtool -K p2 tso off gso off");
    let capture = Capture::start(site.folder.path(), "spine", &[]);
    for (number, space) in [(1, "leaf"), (2, "spine")] {
        let other = 3 - number;
        batch_in(
            space,
            &[
                format!("neigh add 10.20.0.{other} lladdr {} dev eth0 nud permanent", mac(other)),
                format!("addr add 10.20.0.{number}/24 dev eth0"),
            ],
        );
    }
    let listener = within("spine", || TcpListener::bind("10.20.0.2:179").unwrap());
    let reader = std::thread::spawn(move || std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()));
    within("leaf", || TcpStream::connect("10.20.0.2:179").unwrap().write_all(&vec![0x5a; BYTES]).unwrap());
    assert_eq!(reader.join().unwrap().unwrap(), BYTES as u64);
    site.settle();
    let sources = capture.stop();
    let Checked { written, .. } = check(site, sources, None);
    let longest = written.iter().map(|(_, frame)| frame.len()).max();
    assert_eq!(longest, Some(9014));
}
