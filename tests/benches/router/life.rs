//! One connection: whether it lives while only others than the kernel see its packets, how it ends, and how its next hop is followed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use sluice_tests::lab::router::{CLIENT, Frames, PORT, SERVER, datagram};
use sluice_tests::lab::switch::{eventually, run, within};

use crate::Load;
use crate::contender::{Contender, Scene};
use crate::table::{Figure, Judged, Table};

/// Seconds for which the kernel keeps an established connection without a packet, and one that ends.
const ESTABLISHED: u32 = 6;
const ENDING: u32 = 4;
/// The same of a stream of UDP.
const STREAM: u32 = 60;
/// So long a connection talks before it is measured.
const BEFORE: Duration = Duration::from_secs(4);
/// The time between two datagrams.
const BETWEEN: Duration = Duration::from_millis(2);
/// How long packets may go to a next hop that is another one now.
const BOUND: Duration = Duration::from_millis(100);

const ALIVE: Figure = Figure {
    name: "life: a connection after three and a half of its timeouts",
    unit: "1 if there",
    judged: Judged::AtLeast(1.0),
};
const SEEN: Figure =
    Figure { name: "life: packets of it that the kernel forwards itself", unit: "", judged: Judged::AtMost(0.0) };
const FORGOTTEN: Figure =
    Figure { name: "life: from its FIN until the kernel has forgotten it", unit: "s", judged: Judged::AsKernel(2.0) };
const FOLLOWED: Figure = Figure {
    name: "life: from another next hop until the last packet to the old one",
    unit: "ms",
    judged: Judged::AtMost(100.0),
};
const LATE: Figure =
    Figure { name: "life: packets to the old next hop after 100 ms", unit: "", judged: Judged::AtMost(0.0) };
const LOST: Figure =
    Figure { name: "life: packets lost in that, without those to the old one", unit: "", judged: Judged::AtMost(0.0) };

pub(crate) fn measure(contender: Contender, load: Load, table: &mut Table) {
    let names =
        ["fin_wait", "close_wait", "last_ack", "time_wait", "close"].map(|state| format!("tcp_timeout_{state}"));
    let mut timeouts = vec![("tcp_timeout_established", ESTABLISHED), ("udp_timeout_stream", STREAM)];
    timeouts.extend(names.iter().map(|name| (name.as_str(), ENDING)));
    let scene = Scene::new(contender, load, &timeouts);
    connection(&scene, table);
    next_hop(&scene, table);
}

fn connection(scene: &Scene, table: &mut Table) {
    let contender = scene.forwarding.contender;
    let listener = within("server", || TcpListener::bind((SERVER, PORT)).unwrap());
    let mut client = within("client", || TcpStream::connect((SERVER, PORT)).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    let mut talk = |client: &mut TcpStream, for_so_long: Duration| {
        let (mut buffer, began) = ([7; 100], Instant::now());
        while began.elapsed() < for_so_long {
            client.write_all(&buffer).unwrap();
            server.read_exact(&mut buffer).unwrap();
            server.write_all(&buffer).unwrap();
            client.read_exact(&mut buffer).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    [&client].iter().for_each(|end| end.set_read_timeout(Some(Duration::from_secs(60))).unwrap());
    talk(&mut client, BEFORE);
    let forwarded = scene.forwarding.forwarded();
    talk(&mut client, Duration::from_secs(ESTABLISHED.into()) * 7 / 2);
    let entries = || run(&format!("conntrack -L -p tcp --orig-src {CLIENT}"));
    table.note(contender, ALIVE, if entries().is_empty() { 0.0 } else { 1.0 });
    table.note(contender, SEEN, (scene.forwarding.forwarded() - forwarded) as f64);
    let began = Instant::now();
    client.shutdown(Shutdown::Write).unwrap();
    drop((client, server));
    eventually("the kernel has forgotten the connection", || entries().is_empty());
    table.note(contender, FORGOTTEN, began.elapsed().as_secs_f64());
}

fn next_hop(scene: &Scene, table: &mut Table) {
    let contender = scene.forwarding.contender;
    let server = within("server", || UdpSocket::bind((SERVER, PORT)).unwrap());
    let client = within("client", || UdpSocket::bind((CLIENT, 0)).unwrap());
    client.connect((SERVER, PORT)).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (mut buffer, began) = ([0; 200], Instant::now());
    while began.elapsed() < BEFORE {
        client.send(&datagram(0)).unwrap();
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        server.send_to(&buffer[..length], from).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let frames = Frames::to_server();
    let mut sent = vec![Instant::now()];
    let mut send = |until: Instant| {
        while Instant::now() < until {
            sent.push(Instant::now());
            client.send(&datagram(sent.len() as u64 - 1)).unwrap();
            std::thread::sleep(BETWEEN);
        }
        sent.clone()
    };
    send(Instant::now() + Duration::from_millis(500));
    let new = scene.router.move_server();
    let changed = Instant::now();
    let sent = send(changed + Duration::from_secs(2));
    let seen = frames.end(sent.len() as u64);
    let at = |number: u64| sent[usize::try_from(number).expect("few")];
    let old = || seen.iter().filter(|(_, address)| *address != new).map(|(number, _)| at(*number));
    let last = old().max().unwrap_or(changed).saturating_duration_since(changed);
    table.note(contender, FOLLOWED, last.as_secs_f64() * 1e3);
    table.note(contender, LATE, old().filter(|sent| *sent > changed + BOUND).count() as f64);
    table.note(contender, LOST, (sent.len() - 1 - seen.len()) as f64);
}
