//! Sessions of OPI's interface on real packets: a bridge stands for the firewall that sees how connections begin and end.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use sluice_client::openoffload::v2 as opi;
use sluice_client::openoffload::v2::{ProtocolId, SessionCloseCode, SessionState};
use sluice_tests::firewall::{self, Firewall};
use sluice_tests::lab::iproute::batch;
use sluice_tests::lab::switch::{CLIENT, SERVER, Switch, within};

use crate::stream::{FRAME, PORT, talk};

pub(crate) fn sessions_of_opi_carry_both_directions_and_end_with_exact_counts() {
    let switch = Switch::set_up();
    let daemon = switch.start("tc.policy = \"skip_hw\"");
    let mut firewall = Firewall::connect(&daemon.run_dir());

    firewall.add(session(1, ProtocolId::Udp, 4000));
    assert_eq!(switch.filters("client").len() + switch.filters("server").len(), 2);
    assert_eq!(talk(4000, 50), 50);
    // With what no poll has read yet.
    let counted = firewall.delete(1);
    assert_eq!([counted.in_packets, counted.out_packets], [50, 50]);
    assert_eq!([counted.in_bytes, counted.out_bytes], [50 * FRAME as u64; 2]);
    assert!(switch.filters("client").is_empty() && switch.filters("server").is_empty());

    firewall.add(opi::SessionRequest { cache_timeout: 2, ..session(2, ProtocolId::Udp, 4001) });
    assert_eq!(talk(4001, 20), 20);
    let closed = firewall.next_closed();
    assert_eq!((closed.session_id, closed.in_packets, closed.out_packets), (2, 20, 20));
    assert_eq!(
        (closed.session_state(), closed.session_close_code()),
        (SessionState::Closed, SessionCloseCode::Timeout)
    );
    assert_eq!(firewall.closed(), [], "it is told once");
    assert!(switch.filters("client").is_empty() && switch.filters("server").is_empty());
}

pub(crate) fn a_connection_begins_and_ends_at_the_firewall_and_the_rest_goes_by_its_session() {
    const BYTES: usize = 400_000;
    // SYN, the acknowledgement that came before there was a session, and FIN; SYN and FIN.
    const AT_THE_FIREWALL: [u64; 2] = [3, 2];
    let switch = Switch::set_up();
    batch(&["link add firewall up type bridge mcast_snooping 0 forward_delay 0".to_owned()]);
    batch(&["client", "server"].map(|port| format!("link set {port} master firewall")));
    let daemon = switch.start("tc.policy = \"skip_hw\"");
    let mut firewall = Firewall::connect(&daemon.run_dir());
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    let mut client = within("client", || TcpStream::connect((SERVER, PORT)).unwrap());
    let (mut server, from) = listener.accept().unwrap();
    // SYN and the acknowledgement of the other one; and that other one.
    assert_eq!(segments(), [2, 1]);
    firewall.add(session(3, ProtocolId::Tcp, from.port()));

    let echo = std::thread::spawn(move || {
        let mut text = vec![0; BYTES];
        server.read_exact(&mut text).unwrap();
        server.write_all(&text).unwrap();
        server.read(&mut text).unwrap()
    });
    client.write_all(&vec![7; BYTES]).unwrap();
    client.read_exact(&mut vec![0; BYTES]).unwrap();
    // After all else, for what veth devices carry in one piece has the flags of all of its segments.
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(echo.join().unwrap(), 0);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    // The acknowledgement of the last FIN is under way.
    std::thread::sleep(Duration::from_millis(200));
    let sent = segments();
    let counted = firewall.delete(3);
    let by_session = [0, 1].map(|end| sent[end] - AT_THE_FIREWALL[end]);
    assert_eq!([counted.in_packets, counted.out_packets], by_session);
    assert!(counted.in_bytes > BYTES as u64 && counted.out_bytes > BYTES as u64, "{counted:?}");
}

/// A session from this port of the client to the server.
fn session(session_id: u64, protocol: ProtocolId, source_port: u16) -> opi::SessionRequest {
    let end = |address: &str, port| SocketAddrV4::new(address.parse().unwrap(), port);
    firewall::session(session_id, protocol, [end(CLIENT, source_port), end(SERVER, PORT)], [1, 2])
}

/// Segments of TCP that client and server have sent, by their own counts, with those that they have sent again: `OutSegs` is without them.
fn segments() -> [u64; 2] {
    ["client", "server"].map(|place| {
        within(place, || {
            let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
            let (names, counts) = (lines.next().unwrap(), lines.next().unwrap());
            let counts = names.split(' ').zip(counts.split(' '));
            let sent = counts.filter(|(name, _)| ["OutSegs", "RetransSegs"].contains(name));
            sent.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
        })
    })
}
