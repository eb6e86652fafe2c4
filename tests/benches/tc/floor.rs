//! The least that a netlink program can do: messages that were made before are sent, 64 at a time with one answer; a
//! listing is received and thrown away.

use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
};
use sluice_netdev::netlink::message::{Answer, Messages, flag};
use sluice_offload_tc::install::{BATCH, Request};
use sluice_offload_tc::wire::filter::{Hook, emit_dump};

/// A socket and room for what it receives.
pub(crate) struct Floor {
    socket: OwnedFd,
    received: Vec<u8>,
}

impl Floor {
    pub(crate) fn open() -> Self {
        // The protocol without a number is that of routing.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a netlink socket");
        bind(&socket, &SocketAddrNetlink::new(0, 0)).expect("an address for it");
        let patience = Some(Duration::from_secs(60));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, patience).expect("a timeout for it");
        Self { socket, received: vec![0; 1 << 16] }
    }

    /// Sends batches, each of which ends in a message that asks for an answer.
    pub(crate) fn replay(&mut self, batches: &[Vec<u8>]) {
        for batch in batches {
            let sent = send(&self.socket, batch, SendFlags::empty()).expect("a batch");
            assert_eq!(sent, batch.len());
            let (length, _) = recv(&self.socket, &mut self.received[..], RecvFlags::empty()).expect("an answer");
            let message = Messages::new(&self.received[..length]).next().expect("a message").expect("a whole one");
            match message.answer() {
                Ok(Answer::Acknowledgement(answer)) => assert_eq!(answer.errno, 0, "{answer:?}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Receives a listing, and looks only for its end.
    pub(crate) fn discard(&mut self, hook: Hook, is_terse: bool) {
        let mut request = vec![];
        emit_dump(&mut request, hook, is_terse, 1).expect("a request");
        send(&self.socket, &request, SendFlags::empty()).expect("a request");
        loop {
            let (length, _) = recv(&self.socket, &mut self.received[..], RecvFlags::empty()).expect("a listing");
            const DONE: [u8; 2] = 3u16.to_ne_bytes();
            // It is a message of its own, or the last of a datagram: four bytes behind a header.
            let is_last = |at: usize| self.received.get(at + 4..at + 6) == Some(&DONE[..]);
            if is_last(0) || length >= 20 && is_last(length - 20) {
                return;
            }
        }
    }
}

/// The messages of some requests, ready to be sent.
pub(crate) fn batches(requests: &[Request]) -> Vec<Vec<u8>> {
    let batch = |requests: &[Request]| {
        let mut buffer = vec![];
        for (number, request) in (1..).zip(requests) {
            let answer = if number == requests.len() { flag::ACK } else { 0 };
            let sequence = u32::try_from(number).expect("few");
            request.emit(&mut buffer, answer, sequence).expect("a message");
        }
        buffer
    };
    requests.chunks(BATCH).map(batch).collect()
}

/// A finished message.
pub(crate) struct Message {
    silent: Vec<u8>,
    /// The same with the wish for an answer.
    asking: Vec<u8>,
}

impl Message {
    /// Puts several behind each other, of which the last asks for an answer.
    pub(crate) fn join(messages: &[Self], buffer: &mut Vec<u8>) {
        let (last, others) = messages.split_last().expect("one at least");
        others.iter().for_each(|message| buffer.extend_from_slice(&message.silent));
        buffer.extend_from_slice(&last.asking);
    }
}

/// The messages of some requests, each by itself.
pub(crate) fn messages(requests: &[Request]) -> Vec<Message> {
    let message = |request: &Request| {
        let [mut silent, mut asking] = [vec![], vec![]];
        request.emit(&mut silent, 0, 1).expect("a message");
        request.emit(&mut asking, flag::ACK, 1).expect("a message");
        Message { silent, asking }
    };
    requests.iter().map(message).collect()
}
