//! Established connections of a router that masquerades, forwarded by tc in front of it.

pub(crate) mod vlans;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sluice_tests::daemon::Daemon;
use sluice_tests::lab::iproute::batch;
use sluice_tests::lab::router::{CLIENT, Frames, LENGTH, OWN_AT_SERVER, PORT, Router, SERVER, datagram, marking, ours};
use sluice_tests::lab::switch::{eventually, run, sluice, within};
use socket2::SockRef;

/// The kernel's timeouts: of a connection of TCP that is established, of one that ends, and of a stream of UDP.
const ESTABLISHED: Duration = Duration::from_secs(6);
const ENDING: Duration = Duration::from_secs(4);
const STREAM: Duration = Duration::from_secs(6);
/// How long packets may go to a next hop that is another one now, on a machine that has other things to do. The bench `router` asks for 100 ms.
const BOUND: Duration = Duration::from_secs(1);
/// What tc does in software with a translation is enough for packets that are not cut into segments.
const TRANSLATED: &str = "translated = true\n";

/// Both ends of a connection.
struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    fn new(listener: &TcpListener) -> Self {
        let server = listener.local_addr().unwrap();
        let client = within("client", || TcpStream::connect(server).unwrap());
        let (server, _) = listener.accept().unwrap();
        for end in [&client, &server] {
            end.set_nodelay(true).unwrap();
            end.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        }
        Self { client, server }
    }

    /// Asks and answers so many times.
    fn talk(&mut self, times: u64) {
        let mut buffer = [7; LENGTH];
        for _ in 0..times {
            self.client.write_all(&buffer).unwrap();
            self.server.read_exact(&mut buffer).unwrap();
            self.server.write_all(&buffer).unwrap();
            self.client.read_exact(&mut buffer).unwrap();
        }
    }

    /// Goes on until each direction has a flow that counts, and no other.
    fn talk_until_forwarded(&mut self, daemon: &Daemon) {
        eventually("each direction has a flow that counts, and no other", || {
            self.talk(1);
            are_forwarded(daemon)
        });
    }

    /// Goes on for so long, slowly.
    fn talk_for(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.talk(1);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Has it end by a RST.
    fn abort(self) {
        SockRef::from(&self.client).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Ends it, and says how long the kernel remembers it.
    fn end(self) -> Duration {
        let begun = Instant::now();
        drop(self.client);
        drop(self.server);
        eventually("the kernel has forgotten the connection", || entries("tcp").is_empty());
        begun.elapsed()
    }
}

/// Whether there are two flows, and both have counted packets.
fn are_forwarded(daemon: &Daemon) -> bool {
    let flows = ours(daemon);
    let counts = |flow: &Value| flow["state"] == "partial" && flow["packets"].as_u64() > Some(0);
    flows.len() == 2 && flows.iter().all(counts)
}

/// The kernel's connections of a protocol, as conntrack prints them.
fn entries(protocol: &str) -> String {
    run(&format!("conntrack -L -p {protocol} --orig-src {CLIENT}"))
}

pub(crate) fn an_established_connection_is_forwarded_before_the_router_and_ends_with_it() {
    let router = Router::with_masquerading();
    router.set("nf_conntrack_tcp_timeout_established", ESTABLISHED);
    for state in ["fin_wait", "close_wait", "last_ack", "time_wait", "close"] {
        router.set(&format!("nf_conntrack_tcp_timeout_{state}"), ENDING);
    }
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    let mut alone = Connection::new(&listener);
    alone.talk(5);
    let forgotten_alone = alone.end();

    let mut daemon = router.start(TRANSLATED);
    let mut connection = Connection::new(&listener);
    assert_eq!(connection.server.peer_addr().unwrap().ip().to_string(), OWN_AT_SERVER);
    connection.talk_until_forwarded(&daemon);
    let packets = || -> Vec<_> { ours(&daemon).iter().map(|flow| flow["packets"].as_u64().unwrap()).collect() };
    let (before, forwarded) = (packets(), router.forwarded());
    connection.talk(200);
    eventually("both flows have counted all of them", || {
        let now = packets();
        now.len() == 2 && now.iter().zip(&before).all(|(now, before)| *now >= before + 200)
    });
    assert_eq!(router.forwarded(), forwarded, "the kernel has forwarded packets");
    let show = sluice(&daemon, &["show"]);
    assert!(show.contains("source    conntrack: connections of the kernel, 2 flows, 0 of them left out\n"), "{show}");
    let dump = sluice(&daemon, &["dump-flows", "-m"]);
    assert!(dump.contains("dec_ttl(le_1(drop))") && dump.contains("source[conntrack]"), "{dump}");

    // A quarter of its time is enough for the timeout to be worth setting anew.
    let begun = Instant::now();
    while begun.elapsed() < 3 * ESTABLISHED + ESTABLISHED / 2 {
        connection.talk(1);
        assert!(entries("tcp").contains("ESTABLISHED"), "after {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(router.forwarded(), forwarded, "the kernel has forwarded packets");

    // The FIN passes by the kernel, and what comes behind it.
    let begun = Instant::now();
    connection.client.shutdown(Shutdown::Write).unwrap();
    eventually("the flows are gone", || ours(&daemon).is_empty());
    println!("flows are gone {:?} after the FIN", begun.elapsed());
    assert!(router.forwarded() > forwarded);
    let forgotten = connection.end();
    println!("forgotten after {forgotten_alone:?} without Sluice, {forgotten:?} with it");
    assert!(forgotten <= forgotten_alone + Duration::from_secs(2), "{forgotten:?}, {forgotten_alone:?} without Sluice");

    // What this host itself says and hears is not forwarded.
    let mut own = TcpStream::connect((SERVER, PORT)).unwrap();
    let (mut other, _) = listener.accept().unwrap();
    let mut buffer = [1; LENGTH];
    for _ in 0..20 {
        own.write_all(&buffer).unwrap();
        other.read_exact(&mut buffer).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(ours(&daemon).is_empty());
    let show = sluice(&daemon, &["show"]);
    assert!(show.contains("source    conntrack: connections of the kernel, 0 flows, 0 of them left out\n"), "{show}");
    drop((own, other));

    // An agent that ends leaves no rule, and the kernel goes on with the connection.
    let mut connection = Connection::new(&listener);
    eventually("there are flows", || {
        connection.talk(1);
        ours(&daemon).len() >= 2
    });
    assert_eq!(daemon.appctl(&["exit"]).code, Some(0));
    assert!(daemon.wait().success());
    assert!(router.filters("client").is_empty() && router.filters("server").is_empty());
    connection.talk(50);
}

pub(crate) fn a_next_hop_with_another_address_is_followed_and_streams_stay_alive() {
    let router = Router::with_masquerading();
    router.set("nf_conntrack_udp_timeout_stream", STREAM);
    let server = within("server", || UdpSocket::bind((SERVER, PORT)).unwrap());
    let client = within("client", || {
        let client = UdpSocket::bind((CLIENT, 0)).unwrap();
        client.connect((SERVER, PORT)).unwrap();
        client
    });
    for end in [&server, &client] {
        end.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
    let talk = |number: u64| {
        let mut buffer = [0; LENGTH];
        client.send(&datagram(number)).unwrap();
        let (_, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(from.ip().to_string(), OWN_AT_SERVER);
        server.send_to(&buffer, from).unwrap();
        client.recv(&mut buffer).unwrap();
    };
    let daemon = router.start(TRANSLATED);
    eventually("each direction has a flow that counts, and no other", || {
        talk(0);
        are_forwarded(&daemon)
    });
    let forwarded = router.forwarded();
    // By the control socket, for a page is a connection of TCP that the kernel tells of.
    let told = || {
        let listed: Value = serde_json::from_str(&sluice(&daemon, &["stats", "--json"])).unwrap();
        listed["sources"]["messages"]["conntrack"].as_u64().unwrap()
    };
    let (begun, told_before) = (Instant::now(), told());
    while begun.elapsed() < 3 * STREAM + STREAM / 2 {
        talk(0);
        assert!(entries("udp").contains("ASSURED"), "after {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(router.forwarded(), forwarded, "the kernel has forwarded packets");
    // Nor does the kernel tell the agent of what nobody answers.
    let silent = within("server", || UdpSocket::bind((SERVER, PORT + 1)).unwrap());
    for _ in 0..20 {
        within("client", || UdpSocket::bind((CLIENT, 0)).unwrap().send_to(&datagram(0), (SERVER, PORT + 1)).unwrap());
        silent.recv_from(&mut [0; LENGTH]).unwrap();
    }
    talk(0);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(told(), told_before, "the agent is told of its own changes, or of what is not assured");

    // Datagrams are numbered. Of those that are sent later than that, none may go to the old address.
    let frames = Frames::to_server();
    let mut number = 1;
    let mut send = |until: Instant| {
        while Instant::now() < until {
            client.send(&datagram(number)).unwrap();
            number += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        number
    };
    let first = send(Instant::now() + Duration::from_millis(500));
    let new = router.move_server();
    let changed = send(Instant::now() + BOUND);
    let end = send(Instant::now() + Duration::from_secs(2));
    let seen = frames.end(end);
    let old = seen.iter().filter(|(_, address)| *address != new).map(|(number, _)| *number).max().unwrap_or_default();
    println!(
        "datagrams up to {first} are older than the change, {old} is the last to the old address, {changed} was sent {BOUND:?} after it"
    );
    assert!(
        old < changed,
        "datagram {old} of {end} went to the old address, {changed} was sent {BOUND:?} after the change"
    );
    assert!(
        seen.iter().filter(|(number, address)| *number >= changed && *address == new).count() as u64 == end - changed
    );
    assert!(ours(&daemon).len() >= 2);

    // Without a packet the kernel forgets it, and its flows go.
    eventually("the flows are gone", || ours(&daemon).is_empty());
    assert!(!entries("udp").contains(&format!("dport={PORT} ")));
}

pub(crate) fn what_the_kernel_tells_nobody_is_found_by_a_comparison() {
    /// More than there is room for.
    const MANY: usize = 200;
    /// The kernel's timeouts: of a connection that is established, and of one that ends.
    const LASTING: Duration = Duration::from_secs(60);
    const CLOSING: Duration = Duration::from_secs(30);
    let router = Router::with_masquerading();
    router.set("nf_conntrack_tcp_timeout_established", LASTING);
    for state in ["fin_wait", "close_wait", "last_ack", "time_wait", "close"] {
        router.set(&format!("nf_conntrack_tcp_timeout_{state}"), CLOSING);
    }
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    // Of a connection that is older than whoever listens the kernel tells nothing (`nf_conntrack_events` of 2).
    let mut older = Connection::new(&listener);
    older.talk(5);
    let mut daemon = router.start("translated = true\nqueue_bytes = 65536\n");
    older.talk_until_forwarded(&daemon);
    let begun = Instant::now();
    older.abort();
    eventually("the flows are gone", || ours(&daemon).is_empty());
    println!("flows of a connection that nobody was told of are gone {:?} after the RST", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());

    // Its rules go on without it, and the next agent has flows of the connection as well.
    let mut connection = Connection::new(&listener);
    connection.talk_until_forwarded(&daemon);
    daemon.signal("KILL");
    daemon.wait();
    let forwarded = router.forwarded();
    connection.talk(50);
    assert_eq!(router.forwarded(), forwarded, "the kernel has forwarded packets");
    let daemon = router.start("translated = true\nqueue_bytes = 65536\n");
    connection.talk_until_forwarded(&daemon);

    // Nobody reads what the kernel tells.
    let signal = |signal| kill_process(Pid::from_raw(daemon.pid().cast_signed()).unwrap(), signal).unwrap();
    signal(Signal::STOP);
    // Of each of these it tells that it is established, and how it ends.
    (0..MANY).for_each(|_| drop(Connection::new(&listener)));
    run(&format!("conntrack -D -p tcp --orig-src {CLIENT}"));
    signal(Signal::CONT);
    eventually("the loss is counted", || {
        daemon.metric("sluice_source_losses_total{source=\"conntrack\"}") >= Some(1.0)
    });
    eventually("the flows are gone", || ours(&daemon).is_empty());

    // A fixed timeout cannot be set anew, which concerns nobody else.
    let mut fixed = Connection::new(&listener);
    fixed.talk_until_forwarded(&daemon);
    run(&format!("conntrack -U -p tcp --orig-src {CLIENT} -u FIXED_TIMEOUT"));
    fixed.talk_for(Duration::from_secs(3));
    assert!(are_forwarded(&daemon));
    assert!(!daemon.log().contains("no flows of connections"), "{}", daemon.log());
    run(&format!("conntrack -D -p tcp --orig-src {CLIENT}"));
    eventually("the flows are gone", || ours(&daemon).is_empty());

    // One that ends unheard has its timeout set anew for the packets that were counted before, and set back once that is found out.
    let mut unheard = Connection::new(&listener);
    unheard.talk_until_forwarded(&daemon);
    unheard.talk_for(Duration::from_secs(3));
    signal(Signal::STOP);
    unheard.talk_for(LASTING / 4);
    (0..MANY).for_each(|_| drop(Connection::new(&listener)));
    unheard.abort();
    signal(Signal::CONT);
    eventually("the flows are gone", || ours(&daemon).is_empty());
    for entry in entries("tcp").lines().filter(|entry| !entry.contains("ESTABLISHED")) {
        let left = entry.split_whitespace().nth(2).and_then(|left| left.parse().ok()).unwrap();
        assert!(Duration::from_secs(left) <= CLOSING, "{entry}");
    }
}

pub(crate) fn a_connection_that_begins_has_flows_only_after_the_time_that_is_configured() {
    const AFTER: Duration = Duration::from_secs(5);
    const YOUNG: &str = "2: they are younger than connections with flows are to be";
    let router = Router::with_masquerading();
    router.set("nf_conntrack_tcp_timeout_close", Duration::from_secs(1));
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    let daemon = router.start(&format!("{TRANSLATED}after = \"{}s\"\n", AFTER.as_secs()));
    let installed = || daemon.metric("sluice_flow_operations_total{op=\"install\"}").unwrap();

    // One that is short costs no rule, not after it has ended either.
    let begun = Instant::now();
    let mut short = Connection::new(&listener);
    short.talk(5);
    eventually("it is known why", || sluice(&daemon, &["show"]).contains(YOUNG));
    short.abort();
    eventually("the kernel has forgotten the connection", || entries("tcp").is_empty());
    std::thread::sleep((AFTER + Duration::from_secs(1)).saturating_sub(begun.elapsed()));
    assert_eq!(installed(), 0.0);

    let (begun, forwarded) = (Instant::now(), router.forwarded());
    let mut long = Connection::new(&listener);
    long.talk_until_forwarded(&daemon);
    assert!(begun.elapsed() >= AFTER, "{:?}", begun.elapsed());
    assert!(router.forwarded() > forwarded);
    assert!(!sluice(&daemon, &["show"]).contains(YOUNG));
    let forwarded = router.forwarded();
    long.talk(50);
    assert_eq!(router.forwarded(), forwarded, "the kernel has forwarded packets");
}

pub(crate) fn connections_have_flows_while_they_have_the_mark_that_is_configured() {
    const KEYS: &str = "translated = true\nmark = \"0x10/0x10\"\n";
    let router = Router::with_masquerading();
    router.set("nf_conntrack_tcp_timeout_close", Duration::from_secs(1));
    let mark = |mark: &str| run(&format!("conntrack -U -p tcp --orig-src {CLIENT} --mark {mark}"));
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    let mut daemon = router.start(KEYS);
    let rules = router.folder().join("marking.nft");
    std::fs::write(&rules, marking()).unwrap();
    run(&format!("nft -f {}", rules.display()));

    // Of connections that nobody marks the agent hears nothing, from their beginning to their end.
    let mut short = Connection::new(&listener);
    short.talk(2);
    short.abort();
    eventually("the kernel has forgotten the connection", || entries("tcp").is_empty());
    assert_eq!(daemon.metric("sluice_source_messages_total{source=\"conntrack\"}"), Some(0.0));

    let mut other = Connection::new(&listener);
    other.talk(1);
    mark("0x2/0x2");
    let mut long = Connection::new(&listener);
    long.talk_until_forwarded(&daemon);
    assert!(
        sluice(&daemon, &["show"])
            .contains("connections of the kernel with the mark 0x10/0x10, 2 flows, 0 of them left out")
    );
    let forwarded = router.forwarded();
    long.talk(50);
    assert_eq!(router.forwarded(), forwarded, "the kernel has forwarded packets");

    run("nft flush chain inet sluice forward");
    mark("0/0x10");
    eventually("the flows are gone", || ours(&daemon).is_empty());
    long.talk(1);
    assert!(router.forwarded() > forwarded);

    other.abort();
    eventually("the kernel has forgotten the other one", || !entries("tcp").contains("mark=2 "));
    mark("0x10/0x10");
    long.talk_until_forwarded(&daemon);
    let mut unmarked = Connection::new(&listener);
    unmarked.talk(5);
    daemon.signal("KILL");
    daemon.wait();
    let daemon = router.start(KEYS);
    long.talk_until_forwarded(&daemon);

    long.abort();
    eventually("the flows are gone", || ours(&daemon).is_empty());
}

pub(crate) fn the_timeout_of_a_policy_of_nftables_is_set_anew_and_not_what_the_kernel_is_set_to() {
    /// Of the policy. The kernel is set to days.
    const ESTABLISHED: Duration = Duration::from_secs(8);
    let router = Router::with_masquerading();
    let rules = router.folder().join("policy.nft");
    let policy = format!(
        "table ip policies {{
            ct timeout short {{ protocol tcp; l3proto ip; policy = {{ established : {} }}; }}
            chain forward {{ type filter hook forward priority filter; ct timeout set \"short\"; }}
        }}",
        ESTABLISHED.as_secs()
    );
    std::fs::create_dir_all(router.folder()).unwrap();
    std::fs::write(&rules, policy).unwrap();
    run(&format!("nft -f {}", rules.display()));
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    let daemon = router.start(TRANSLATED);
    let mut connection = Connection::new(&listener);
    connection.talk_until_forwarded(&daemon);
    let forwarded = router.forwarded();
    // The kernel would have forgotten it by then.
    connection.talk_for(2 * ESTABLISHED);
    assert_eq!(router.forwarded(), forwarded, "the kernel has forwarded packets");
    let entry = entries("tcp");
    let left = entry.split_whitespace().nth(2).and_then(|left| left.parse().ok()).unwrap();
    assert!(
        entry.contains("ESTABLISHED") && Duration::from_secs(left) <= ESTABLISHED + Duration::from_secs(1),
        "{entry}"
    );
}

pub(crate) fn connections_take_the_way_that_rules_have_for_their_ports() {
    let router = Router::with_masquerading();
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    let daemon = router.start(TRANSLATED);
    let mut connection = Connection::new(&listener);
    connection.talk_until_forwarded(&daemon);
    // Of what goes to the server, and of its answers.
    for rule in [format!("ipproto tcp dport {PORT}"), format!("ipproto tcp sport {PORT}")] {
        run(&format!("ip rule add {rule} prohibit"));
        eventually("the flows are gone", || ours(&daemon).is_empty());
        eventually("it is known why", || sluice(&daemon, &["show"]).contains("2: the kernel has no route"));
        run(&format!("ip rule delete {rule} prohibit"));
        connection.talk_until_forwarded(&daemon);
    }
}

pub(crate) fn connections_that_a_policy_of_ipsec_is_for_are_left_to_the_kernel() {
    let router = Router::with_masquerading();
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    let daemon = router.start(TRANSLATED);
    let mut connection = Connection::new(&listener);
    connection.talk_until_forwarded(&daemon);
    // For what it is translated to. Without keys nothing leaves.
    let policy = format!("src {OWN_AT_SERVER}/32 dst {SERVER}/32 dir out");
    let tunnel = "tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel";
    run(&format!("ip xfrm policy add {policy} {tunnel}"));
    eventually("the flows are gone", || ours(&daemon).is_empty());
    eventually("it is known why", || sluice(&daemon, &["show"]).contains("2: a policy of IPsec is for them"));
    run(&format!("ip xfrm policy delete {policy}"));
    connection.talk_until_forwarded(&daemon);
}

pub(crate) fn connections_of_ipv6_are_forwarded_as_well_and_translations_only_where_that_is_right() {
    let router = Router::with_masquerading();
    let server = router.add_ipv6();
    let listener = within("server", || TcpListener::bind((server, PORT)).unwrap());
    let mut connection = Connection::new(&listener);
    connection.talk(5);
    let mut daemon = router.start("");
    const WHY: &str = "2: the kernel translates them, and rules of tc in software leave a wrong checksum";
    eventually("it is known why", || sluice(&daemon, &["show"]).contains(WHY));
    assert!(ours(&daemon).is_empty());
    assert_eq!(daemon.appctl(&["exit"]).code, Some(0));
    assert!(daemon.wait().success());

    let daemon = router.start(TRANSLATED);
    connection.talk_until_forwarded(&daemon);
    let forwarded = router.forwarded_ipv6();
    connection.talk(100);
    assert_eq!(router.forwarded_ipv6(), forwarded, "the kernel has forwarded packets");
    assert!(sluice(&daemon, &["dump-flows"]).contains("set(ipv6(src=fd02::77))"));

    // The kernel alone tells a sender that its packets are too long.
    batch(&["link set client mtu 1400".to_owned()]);
    eventually("answers have no flow", || ours(&daemon).len() == 1);
    assert!(sluice(&daemon, &["show"]).contains("1: packets may be longer than the route or the device takes"));
    connection.talk(5);

    // What is not forwarded any more has no flows.
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "0").unwrap();
    eventually("the flows are gone", || ours(&daemon).is_empty());
}
