//! The agent's end of the mirror socket.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, send, socket_with,
};
use sluice_control::mirror::{Class, FrameRepr, Losses, Plan, Tap};

/// A socket that a sender connects to.
pub(crate) struct Agent {
    listener: OwnedFd,
    client: Option<OwnedFd>,
    losses: Losses,
}

/// A frame as a test says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) class: Class,
    pub(crate) in_port: u32,
    pub(crate) ufid: Option<u128>,
    pub(crate) bytes: Vec<u8>,
}

impl Agent {
    pub(crate) fn new(path: &Path) -> Self {
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&listener, &SocketAddrUnix::new(path).expect("a path")).expect("it is bound");
        listen(&listener, 8).expect("it listens");
        Self { listener, client: None, losses: Losses::default() }
    }

    /// Waits for the sender, and gives it a plan of two ports.
    pub(crate) fn greet(&mut self) {
        self.client = Some(accept_with(&self.listener, SocketFlags::CLOEXEC).expect("the sender connects"));
        self.plan(&["client", "uplink"]);
    }

    /// Gives the sender a plan of ports with these names, numbered from one.
    pub(crate) fn plan(&self, names: &[&str]) {
        self.plan_to("", names);
    }

    /// The same for a collector that the agent names.
    pub(crate) fn plan_to(&self, collector: &str, names: &[&str]) {
        let taps = names.iter().zip(1..).map(|(name, number)| Tap {
            in_port: Some(number),
            name: (*name).to_owned(),
            netdev: None,
            classes: Class::ALL.into_iter().collect(),
        });
        let classes = Class::ALL.into_iter().collect();
        let plan = Plan { collector: collector.to_owned(), classes, taps: taps.collect() };
        send(self.client.as_ref().expect("a sender"), &plan.message(), SendFlags::NOSIGNAL).expect("the sender reads");
    }

    /// Gives the sender a frame, waiting until it has room for it.
    pub(crate) fn copy(&self, frame: &Copied) {
        assert!(self.copy_if_there(frame), "the sender reads");
    }

    /// Gives the sender a frame, waiting until it has room for it. Returns whether a sender is there.
    pub(crate) fn copy_if_there(&self, frame: &Copied) -> bool {
        let client = self.client.as_ref().expect("a sender");
        match send(client, &message(frame), SendFlags::NOSIGNAL) {
            Ok(_) => true,
            Err(Errno::PIPE | Errno::CONNRESET) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Gives the sender a frame as the agent does, which never waits: a frame for which there is no room is lost, and told of.
    pub(crate) fn copy_or_lose(&mut self, frame: &Copied) {
        let client = self.client.as_ref().expect("a sender");
        match send(client, &message(frame), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => {}
            Err(Errno::AGAIN) => self.losses.0[frame.class.index()] += 1,
            Err(error) => panic!("{error}"),
        }
    }

    /// Gives the sender a frame again and again until there is no room for it any more, and returns how often.
    pub(crate) fn fill(&self, frame: &Copied) -> u64 {
        let (client, message) = (self.client.as_ref().expect("a sender"), message(frame));
        let given = (0..).take_while(|_| match send(client, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => true,
            Err(Errno::AGAIN) => false,
            Err(error) => panic!("{error}"),
        });
        given.count().try_into().expect("a number")
    }

    /// Tells the sender what it has lost.
    pub(crate) fn tell_losses(&self) {
        send(self.client.as_ref().expect("a sender"), &self.losses.message(), SendFlags::NOSIGNAL)
            .expect("the sender reads");
    }

    /// Sends bytes that are no message.
    pub(crate) fn babble(&self, bytes: &[u8]) {
        send(self.client.as_ref().expect("a sender"), bytes, SendFlags::NOSIGNAL).expect("the sender reads");
    }
}

fn message(frame: &Copied) -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later than 1970");
    FrameRepr {
        class: frame.class,
        in_port: Some(frame.in_port),
        ufid: frame.ufid,
        time: u64::try_from(now.as_nanos()).expect("before 2554"),
        original_length: u32::try_from(frame.bytes.len()).expect("short"),
    }
    .message(&frame.bytes)
}
