//! Two queue pairs of one device that are connected with each other.

use sluice_mirror::verbs::{
    Access, Buffer, Completion, CompletionQueue, Connect, Context, Mtu, Operation, Outcome, Path, PathOptions, Payload,
    ProtectionDomain, Psn, QueuePair, ReceiveRequest, Received, Receives, Retries, Room, SendRequest, Sent,
};
use sluice_tests::world::eventually;

pub(crate) const ROOM: Room = Room { sends: 64, send_segments: 4, inline: 64, receive_segments: 4 };

/// Both queue pairs, and where their completions go. Fields are dropped in their order.
pub(crate) struct Rig {
    pub(crate) left: QueuePair,
    pub(crate) right: QueuePair,
    pub(crate) sent: CompletionQueue,
    pub(crate) received: CompletionQueue,
    pub(crate) domain: ProtectionDomain,
    pub(crate) context: Context,
}

/// Numbers of the first packets to the right and to the left.
const PSNS: [u32; 2] = [0x12_3456, 0xff_fffe];

impl Rig {
    /// Connected, with room for so many receive requests on the right.
    pub(crate) fn new(receives: u32) -> Self {
        let rig = Self::unconnected(Receives::Own(receives));
        rig.connect(3);
        rig
    }

    pub(crate) fn unconnected(receives: Receives) -> Self {
        let context = Context::open(crate::DEVICE).unwrap();
        let domain = ProtectionDomain::new(&context).unwrap();
        let queue = || CompletionQueue::new(&context, 1024).unwrap();
        let (sent, received) = (queue(), queue());
        let pair = |receives| QueuePair::new(&domain, (&sent, &received), receives, ROOM).unwrap();
        let (left, right) = (pair(Receives::Own(16)), pair(receives));
        Self { left, right, sent, received, domain, context }
    }

    pub(crate) fn connect(&self, rnr_retries: u8) {
        self.initialize();
        self.join(PSNS, rnr_retries);
    }

    pub(crate) fn initialize(&self) {
        for pair in [&self.left, &self.right] {
            pair.initialize(1, Access { remote_write: true }).unwrap();
        }
    }

    /// Connects both, and has the left one send from a number on that need not be what the right one expects.
    pub(crate) fn join(&self, [to_right, to_left]: [u32; 2], rnr_retries: u8) {
        self.left.connect(&self.to(&self.right, to_left)).unwrap();
        self.right.connect(&self.to(&self.left, PSNS[0])).unwrap();
        for (pair, psn) in [(&self.left, to_right), (&self.right, to_left)] {
            // 1 ms, four times, where nobody answers.
            let retries = Retries { psn: Psn::new(psn), timeout: 8, retries: 3, rnr_retries };
            pair.start(&retries).unwrap();
        }
    }

    /// What a queue pair needs to know of another one.
    pub(crate) fn to(&self, other: &QueuePair, psn: u32) -> Connect {
        let gid = self.context.gid(1, 1).unwrap().gid;
        let path = Path {
            port: 1,
            lid: 0,
            gid: Some((gid, 1)),
            hop_limit: 1,
            traffic_class: 0,
            options: PathOptions::default(),
        };
        // 20 us where there is no buffer.
        Connect { remote: other.number(), psn: Psn::new(psn), path, mtu: Mtu::Bytes1024, min_rnr_timer: 2 }
    }

    pub(crate) fn buffer(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.domain.buffer(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Posts requests of one buffer each to the right.
    pub(crate) fn post_receives(&self, tags: std::ops::Range<u64>, bytes: usize) {
        self.right.receive(self.receives(tags, bytes)).unwrap();
    }

    pub(crate) fn receives(&self, tags: std::ops::Range<u64>, bytes: usize) -> Vec<ReceiveRequest> {
        let request = |tag| ReceiveRequest { tag, buffers: vec![self.domain.buffer(bytes).unwrap()] };
        tags.map(request).collect()
    }
}

/// A request to send that gives a completion.
pub(crate) fn send(tag: u64, payload: Payload<'_>) -> SendRequest<'_> {
    SendRequest { tag, operation: Operation::Send, immediate: None, payload, is_signalled: true, is_solicited: false }
}

/// Waits for as many completions, and for no more.
pub(crate) fn completions(queue: &CompletionQueue, count: usize) -> Vec<Completion> {
    let mut all = Vec::new();
    eventually(&format!("{count} completions"), || {
        queue.poll(&mut all).unwrap();
        all.len() >= count
    });
    assert_eq!(all.len(), count, "{all:?}");
    all
}

pub(crate) fn one(queue: &CompletionQueue) -> Outcome {
    completions(queue, 1).pop().unwrap().outcome
}

/// The message that came, which must have come.
pub(crate) fn message(outcome: Outcome) -> Received {
    match outcome {
        Outcome::Received(received) => received,
        other => panic!("no message came: {other:?}"),
    }
}

/// Tags of requests that were carried out.
pub(crate) fn tags(outcome: Outcome) -> Vec<u64> {
    match outcome {
        Outcome::Sent(sent) => sent.into_iter().map(|Sent { tag, .. }| tag).collect(),
        other => panic!("a request failed: {other:?}"),
    }
}

/// The bytes of a message, in the order of its buffers.
pub(crate) fn bytes(received: &Received) -> Vec<u8> {
    let mut all = received.buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect::<Vec<_>>();
    all.truncate(received.length);
    all
}
