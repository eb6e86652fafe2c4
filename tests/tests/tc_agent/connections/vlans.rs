//! A router between devices of VLANs.

use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use sluice_tests::daemon::Daemon;
use sluice_tests::lab::iproute::{batch, batch_in};
use sluice_tests::lab::router::{CLIENT, LENGTH, OWN_AT_SERVER, PORT, Router, SERVER, datagram, ours};
use sluice_tests::lab::switch::{eventually, run, sluice, within};

use super::{Connection, TRANSLATED, are_forwarded};

/// Datagrams that go to and fro.
struct Stream {
    client: UdpSocket,
    server: UdpSocket,
}

impl Stream {
    fn new() -> Self {
        let server = within("server", || UdpSocket::bind((SERVER, PORT)).unwrap());
        let client = within("client", || {
            let client = UdpSocket::bind((CLIENT, 0)).unwrap();
            client.connect((SERVER, PORT)).unwrap();
            client
        });
        for end in [&server, &client] {
            end.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        }
        Self { client, server }
    }

    fn talk(&self) {
        let mut buffer = [0; LENGTH];
        self.client.send(&datagram(0)).unwrap();
        let (_, from) = self.server.recv_from(&mut buffer).unwrap();
        assert_eq!(from.ip().to_string(), OWN_AT_SERVER);
        self.server.send_to(&buffer, from).unwrap();
        self.client.recv(&mut buffer).unwrap();
    }

    fn talk_until(&self, what: &str, is_so: impl Fn() -> bool) {
        eventually(what, || {
            self.talk();
            is_so()
        });
    }

    fn talk_until_forwarded(&self, daemon: &Daemon) {
        self.talk_until("each direction has a flow that counts, and no other", || are_forwarded(daemon));
    }
}

/// Has a device of a VLAN made in the namespace of this thread, with an address.
fn make(lower: &str, id: u16, address: &str) {
    batch(&lines(lower, id, address));
}

fn lines(lower: &str, id: u16, address: &str) -> [String; 3] {
    let device = format!("{lower}.{id}");
    [
        format!("link add link {lower} name {device} type vlan id {id}"),
        format!("addr add {address}/24 dev {device}"),
        format!("link set {device} up"),
    ]
}

/// A connection of TCP and a stream of UDP are forwarded by flows alone, and the datagrams of the latter are counted one by one.
fn forwarded(router: &Router, daemon: &Daemon) -> Stream {
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    let mut connection = Connection::new(&listener);
    assert_eq!(connection.server.peer_addr().unwrap().ip().to_string(), OWN_AT_SERVER);
    connection.talk_until_forwarded(daemon);
    let before = router.forwarded();
    connection.talk(100);
    assert_eq!(router.forwarded(), before, "the kernel has forwarded packets");
    connection.abort();
    eventually("the flows are gone", || ours(daemon).is_empty());

    let stream = Stream::new();
    stream.talk_until_forwarded(daemon);
    let packets = || -> Vec<_> { ours(daemon).iter().map(|flow| flow["packets"].as_u64().unwrap()).collect() };
    let mut counted = packets();
    eventually("all that was sent before is counted", || std::mem::replace(&mut counted, packets()) == counted);
    let before = router.forwarded();
    (0..200).for_each(|_| stream.talk());
    let expected: Vec<_> = counted.iter().map(|packets| packets + 200).collect();
    eventually("both flows have counted all of them", || packets() == expected);
    assert_eq!(router.forwarded(), before, "the kernel has forwarded packets");
    stream
}

pub(crate) fn connections_between_vlans_of_two_ports_and_of_one_are_forwarded() {
    const OTHER_ADDRESS: &str = "02:00:00:00:00:99";
    let router = Router::with_masquerading();
    for (device, id, own, address) in [("client", 10, "10.1.0.1", CLIENT), ("server", 20, OWN_AT_SERVER, SERVER)] {
        batch(&[format!("addr flush dev {device}")]);
        make(device, id, own);
        batch_in(device, &["addr flush dev eth0".to_owned()]);
        batch_in(device, &lines("eth0", id, address));
    }
    batch_in("client", &["route add default via 10.1.0.1".to_owned()]);
    let daemon = router.start(TRANSLATED);
    let stream = forwarded(&router, &daemon);
    let dump = || sluice(&daemon, &["dump-flows"]);
    let is_said = |why: &str| sluice(&daemon, &["show"]).contains(why);
    assert!(dump().contains("pop_vlan") && dump().contains("push_vlan(vid=20,pcp=0),2"), "{}", dump());

    // Which priority a packet gets the kernel alone knows. Answers leave by the other device.
    run("ip link set server.20 type vlan egress-qos-map 0:3");
    stream.talk_until("one direction has no flow", || ours(&daemon).len() == 1);
    assert!(is_said("1: they leave by a VLAN device that gives packets priorities"));
    run("ip link set server.20 type vlan egress-qos-map 0:0");
    stream.talk_until_forwarded(&daemon);
    // How long a packet may be is the device's word, not that of the port below.
    run("ip link set client.10 mtu 1400");
    stream.talk_until("answers have no flow", || ours(&daemon).len() == 1);
    assert!(is_said("1: packets may be longer than the route or the device takes"));
    run("ip link set client.10 mtu 1500");
    stream.talk_until_forwarded(&daemon);
    // And so is the Ethernet address.
    run(&format!("ip link set server.20 address {OTHER_ADDRESS}"));
    batch_in("server", &["neigh flush dev eth0.20".to_owned()]);
    let source = format!("set(eth(src={OTHER_ADDRESS},");
    stream.talk_until("packets leave with the other address", || dump().contains(&source) && are_forwarded(&daemon));

    // Without the device there is no way, and with it one again.
    let without = |change: &str| {
        run(&format!("ip link {change}"));
        eventually("the flows are gone", || ours(&daemon).is_empty());
        eventually("it is known why", || is_said("2: the kernel has no route"));
    };
    without("set client.10 down");
    run("ip link set client.10 up");
    stream.talk_until_forwarded(&daemon);
    without("delete client.10");
    make("client", 10, "10.1.0.1");
    stream.talk_until_forwarded(&daemon);

    // Both VLANs at one port. What was masqueraded behind a device ends with it.
    run("ip link delete server.20");
    eventually("the flows are gone", || ours(&daemon).is_empty());
    drop(stream);
    batch_in("server", &["link delete eth0.20".to_owned()]);
    make("client", 20, OWN_AT_SERVER);
    let [make_device, address, up] = lines("eth0", 20, SERVER);
    batch_in("client", &[make_device, "link set eth0.20 netns server".to_owned()]);
    batch_in("server", &[address, up]);
    let _stream = forwarded(&router, &daemon);
    assert!(dump().contains("push_vlan(vid=20,pcp=0),1") && dump().contains("push_vlan(vid=10,pcp=0),1"), "{}", dump());
}
