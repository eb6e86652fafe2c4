//! Sessions of TCP between many clients and a server, played by one thread at the two ports of the router.
//!
//! A session begins with three segments, asks and is answered with 10 bytes each, once more when half of the others that are alive are
//! younger, and ends with three segments. The server and what a client does on answers need no memory: all that they need is in the segment
//! that they answer.

use sluice_tests::lab::Wire;

/// Ethernet addresses of whom the router knows at its two ports, and of these.
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const CLIENT_PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xf1];
pub(crate) const SERVER_PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xf2];

const SERVER: [u8; 4] = [10, 2, 0, 2];
const SERVER_PORT: u16 = 5000;
/// Clients, from 10.1.128.0 on. Each has as many sessions one after the other as it has ports.
const CLIENTS: u64 = 1000;
const FIRST_PORT: u64 = 10_000;

/// Sequence numbers that each end begins with.
const CLIENT_BEGINS: u32 = 1000;
const SERVER_BEGINS: u32 = 5000;
/// Bytes of a question and of its answer.
const DATA: u16 = 10;

/// Flags of TCP.
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Bytes of the headers of Ethernet, IPv4 and TCP.
const ETHERNET: usize = 14;
const IP: usize = 20;
const TCP: usize = 20;
/// What a packet of IPv4 says of its length without data, and the part of that which is not TCP's.
const IN_PACKET: u16 = 40;
const NOT_TCP: u32 = 20;
const HEADERS: usize = ETHERNET + IP + TCP;
/// More than any frame here.
const ROOM: usize = 2048;

/// An end of a connection: address and port.
type End = ([u8; 4], u16);

/// The sessions, of which the older ones end first.
pub(crate) struct Generator {
    client: Wire,
    server: Wire,
    buffer: Vec<u8>,
    /// Numbers of the oldest session that has not ended, of the oldest that has not asked twice, and of the next one.
    oldest: u64,
    silent: u64,
    next: u64,
    pub(crate) counts: Counts,
}

/// What was done, and what of it was answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) begun: u64,
    pub(crate) established: u64,
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    pub(crate) ended: u64,
    pub(crate) closed: u64,
}

impl Counts {
    /// Segments that were not answered.
    pub(crate) const fn lost(&self) -> u64 {
        (self.begun - self.established) + (self.asked - self.answered) + (self.ended - self.closed)
    }
}

impl Generator {
    /// One at the ends of these two ports.
    pub(crate) fn new(client: Wire, server: Wire) -> Self {
        Self { client, server, buffer: vec![0; ROOM], oldest: 0, silent: 0, next: 0, counts: Counts::default() }
    }

    /// How many sessions are alive.
    pub(crate) const fn alive(&self) -> u64 {
        self.next - self.oldest
    }

    /// Begins so many sessions, each with a question.
    pub(crate) fn begin(&mut self, sessions: u64) {
        for number in self.next..self.next + sessions {
            self.say(number, CLIENT_BEGINS, 0, SYN, 0);
        }
        self.next += sessions;
        self.counts.begun += sessions;
        self.exchange();
    }

    /// Has the oldest of those ask that have asked once only, until so many are left of them.
    pub(crate) fn ask_again(&mut self, left: u64) {
        for number in self.silent..self.next.saturating_sub(left) {
            let data = u32::from(DATA);
            self.say(number, CLIENT_BEGINS + 1 + data, SERVER_BEGINS + 1 + data, PSH | ACK, DATA);
            self.counts.asked += 1;
            self.silent = number + 1;
        }
        self.exchange();
    }

    /// Ends the oldest sessions, so many of them.
    pub(crate) fn end(&mut self, sessions: u64) {
        let sessions = sessions.min(self.alive());
        for number in self.oldest..self.oldest + sessions {
            let said = u32::from(DATA) * if number < self.silent { 2 } else { 1 };
            self.say(number, CLIENT_BEGINS + 1 + said, SERVER_BEGINS + 1 + said, FIN | ACK, 0);
        }
        self.oldest += sessions;
        self.silent = self.silent.max(self.oldest);
        self.counts.ended += sessions;
        self.exchange();
    }

    fn say(&self, number: u64, sequence: u32, acknowledged: u32, flags: u8, data: u16) {
        let segment = Segment { from: client(number), to: (SERVER, SERVER_PORT), sequence, acknowledged, flags, data };
        self.client.send(&segment.frame(CLIENT_MAC, CLIENT_PORT_MAC));
    }

    /// Has both ends answer until they have nothing more to say.
    fn exchange(&mut self) {
        loop {
            let mut is_over = true;
            while let Some(frame) = self.server.receive(&mut self.buffer) {
                is_over = false;
                if let Some(answer) = Segment::read(&frame).and_then(|segment| segment.answer_of_server()) {
                    self.server.send(&answer.frame(SERVER_MAC, SERVER_PORT_MAC));
                }
            }
            while let Some(frame) = self.client.receive(&mut self.buffer) {
                is_over = false;
                let Some(segment) = Segment::read(&frame) else { continue };
                for answer in self.answers_of_client(&segment) {
                    self.client.send(&answer.frame(CLIENT_MAC, CLIENT_PORT_MAC));
                }
            }
            if is_over {
                return;
            }
        }
    }

    fn answers_of_client(&mut self, heard: &Segment) -> Vec<Segment> {
        let acknowledgement = heard.answer(ACK, 0);
        if heard.flags & SYN != 0 {
            self.counts.established += 1;
            self.counts.asked += 1;
            return vec![acknowledgement, heard.answer(PSH | ACK, DATA)];
        }
        if heard.flags & FIN != 0 {
            self.counts.closed += 1;
            return vec![acknowledgement];
        }
        self.counts.answered += u64::from(heard.data > 0);
        Vec::new()
    }
}

/// The client's end of a session.
fn client(number: u64) -> End {
    let host = u16::try_from(number % CLIENTS).expect("few clients");
    let [upper, lower] = host.to_be_bytes();
    let port = FIRST_PORT + number / CLIENTS;
    ([10, 1, 0x80 | upper, lower], u16::try_from(port).expect("no more sessions than ports"))
}

/// A segment of TCP, as far as it differs from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    from: End,
    to: End,
    sequence: u32,
    acknowledged: u32,
    flags: u8,
    data: u16,
}

impl Segment {
    /// The one that answers it.
    fn answer(&self, flags: u8, data: u16) -> Self {
        let counted = u32::from(self.flags & (SYN | FIN) != 0) + u32::from(self.data);
        let (sequence, acknowledged) = (self.acknowledged, self.sequence + counted);
        Self { from: self.to, to: self.from, sequence, acknowledged, flags, data }
    }

    fn answer_of_server(&self) -> Option<Self> {
        if self.flags & SYN != 0 {
            return Some(Self { sequence: SERVER_BEGINS, ..self.answer(SYN | ACK, 0) });
        }
        if self.flags & FIN != 0 {
            return Some(self.answer(FIN | ACK, 0));
        }
        (self.data > 0).then(|| self.answer(PSH | ACK, DATA))
    }

    /// Reads a frame, if it is one of TCP over IPv4 without options.
    fn read(frame: &[u8]) -> Option<Self> {
        let two = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
        let four = |at: usize| Some(u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?));
        let is_ours = two(12)? == 0x0800 && *frame.get(ETHERNET)? == 0x45 && *frame.get(ETHERNET + 9)? == 6;
        let (ip, tcp) = (ETHERNET, ETHERNET + IP);
        let end = |address: usize, port: usize| Some((four(address)?.to_be_bytes(), two(port)?));
        let segment = Self {
            from: end(ip + 12, tcp)?,
            to: end(ip + 16, tcp + 2)?,
            sequence: four(tcp + 4)?,
            acknowledged: four(tcp + 8)?,
            flags: *frame.get(tcp + 13)?,
            data: two(ip + 2)?.checked_sub(IN_PACKET)?,
        };
        is_ours.then_some(segment)
    }

    fn frame(&self, from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
        let mut frame = vec![0; HEADERS + usize::from(self.data)];
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        let ip = &mut frame[ETHERNET..ETHERNET + IP];
        let length = IN_PACKET + self.data;
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&length.to_be_bytes());
        // May not be cut, lives for 64 hops, TCP.
        ip[6..10].copy_from_slice(&[0x40, 0, 64, 6]);
        ip[12..16].copy_from_slice(&self.from.0);
        ip[16..20].copy_from_slice(&self.to.0);
        let sum = checksum(ip, 0);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let tcp = &mut frame[ETHERNET + IP..];
        tcp[0..2].copy_from_slice(&self.from.1.to_be_bytes());
        tcp[2..4].copy_from_slice(&self.to.1.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.acknowledged.to_be_bytes());
        // Five words of header, and the largest window without an option.
        tcp[12..16].copy_from_slice(&[0x50, self.flags, 0xff, 0xff]);
        // Of the header of IP, both addresses, the protocol and the length are summed up as well.
        let addresses = words(&self.from.0) + words(&self.to.0);
        let sum = checksum(tcp, addresses + 6 + u32::from(length) - NOT_TCP);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}

fn words(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

/// That of the Internet (RFC 1071) over an even number of bytes, and what is added to them.
fn checksum(bytes: &[u8], more: u32) -> u16 {
    let mut sum = words(bytes) + more;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it was folded")
}
