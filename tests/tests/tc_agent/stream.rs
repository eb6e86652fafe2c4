//! Datagrams with numbers from the client to the server.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_tests::lab::switch::{CLIENT, SERVER, enter, within};

/// Bytes of data of each, and of its frame without FCS.
const DATA: usize = 100;
pub(crate) const FRAME: usize = DATA + 8 + 20 + 14;

/// The number of the last one.
const LAST: u64 = u64::MAX;

/// How long a datagram may be under way: the first of a flow goes by a busy ovs-vswitchd.
const PATIENCE: Duration = Duration::from_secs(8);

/// Where the server listens.
pub(crate) const PORT: u16 = 5000;

/// Sends so many, and says how many came through.
pub(crate) fn send(count: u64) -> u64 {
    send_from(0, count)
}

/// The same from this port of the client, or any if it is 0: the UFID that OVS gives is that of all bits of the first packet.
pub(crate) fn send_from(port: u16, count: u64) -> u64 {
    exchange(port, count, PATIENCE)
}

/// Sends so many, and returns that number: what is counted is what was sent, also where a busy machine is late with it.
pub(crate) fn sent_from(port: u16, count: u64) -> u64 {
    send_from(port, count);
    count
}

/// Sends so many, not all of which may come through, and says how many did.
pub(crate) fn send_too_many(count: u64) -> u64 {
    exchange(0, count, Duration::from_secs(2))
}

/// The same from this port of the client.
pub(crate) fn some_from(port: u16, count: u64) -> u64 {
    exchange(port, count, Duration::from_secs(2))
}

/// Sends so many, none of which may come through.
pub(crate) fn send_in_vain(count: u64) {
    assert_eq!(send_too_many(count), 0, "of {count} datagrams");
}

/// Sends so many from a port of the client, each after the one before was answered, and says how many answers came.
pub(crate) fn talk(port: u16, count: u64) -> u64 {
    let server = listen(PATIENCE);
    let client = within("client", || connect_from(port));
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; DATA];
    let mut is_answered = |number| {
        send_one(&client, number);
        let (_, from) = server.recv_from(&mut buffer).ok()?;
        server.send_to(&buffer, from).unwrap();
        client.recv(&mut buffer).ok()
    };
    (0..count).take_while(|number| is_answered(*number).is_some()).count() as u64
}

fn exchange(port: u16, count: u64, patience: Duration) -> u64 {
    let server = listen(patience);
    within("client", || {
        let client = connect_from(port);
        (0..count).for_each(|number| send_one(&client, number));
    });
    let mut buffer = [0; DATA];
    (0..count).take_while(|_| server.recv(&mut buffer).is_ok()).count() as u64
}

/// A datagram that has come through.
struct Arrival {
    number: u64,
    /// The port that it seems to be from.
    port: u16,
    at: Instant,
}

/// Datagrams that are sent at a steady pace while something else goes on.
pub(crate) struct Stream {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<Vec<Arrival>>,
}

impl Stream {
    pub(crate) fn start() -> Self {
        let server = listen(Duration::from_secs(60));
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let sender = std::thread::spawn(move || {
            enter("client");
            let client = connect();
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                send_one(&client, number);
                number += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            send_one(&client, LAST);
            number
        });
        let receiver = std::thread::spawn(move || {
            let (mut arrivals, mut buffer) = (Vec::new(), [0; DATA]);
            while let Ok((_, from)) = server.recv_from(&mut buffer) {
                match u64::from_be_bytes(buffer[..8].try_into().unwrap()) {
                    LAST => break,
                    number => arrivals.push(Arrival { number, port: from.port(), at: Instant::now() }),
                }
            }
            arrivals
        });
        Self { is_over, sender, receiver }
    }

    /// Ends it; gives the number of datagrams, all of which must have come through, once.
    pub(crate) fn end_without_loss(self) -> u64 {
        self.end_with_all().len() as u64
    }

    /// The same, and gives of each the port that it seemed to come from, and when it came.
    pub(crate) fn end_with_all(self) -> Vec<(u16, Instant)> {
        self.is_over.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        let arrivals = self.receiver.join().unwrap();
        let mut received: Vec<_> = arrivals.iter().map(|arrival| arrival.number).collect();
        // A veth may let packets overtake each other that the sender sends from two processors.
        received.sort_unstable();
        let missing: Vec<_> = (0..sent).filter(|number| received.binary_search(number).is_err()).collect();
        assert!(missing.is_empty(), "of {sent} datagrams {} are lost: {missing:?}", missing.len());
        assert_eq!(received.len() as u64, sent, "each came once");
        arrivals.into_iter().map(|Arrival { port, at, .. }| (port, at)).collect()
    }
}

fn listen(patience: Duration) -> UdpSocket {
    within("server", || {
        let socket = UdpSocket::bind((SERVER, PORT)).unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        socket
    })
}

fn connect() -> UdpSocket {
    connect_from(0)
}

fn connect_from(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((CLIENT, port)).unwrap();
    socket.connect((SERVER, PORT)).unwrap();
    socket
}

fn send_one(client: &UdpSocket, number: u64) {
    let mut data = [0; DATA];
    data[..8].copy_from_slice(&number.to_be_bytes());
    client.send(&data).unwrap();
}
