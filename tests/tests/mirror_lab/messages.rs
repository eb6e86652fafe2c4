//! The verbs core, between two queue pairs of the device without a connection manager.

use sluice_mirror::verbs::{
    Operation, Outcome, Payload, QueuePair, Reason, ReceiveRequest, Receives, Remote, SendRequest, SharedMemory,
    SharedReceives, State,
};

use crate::rig::{ROOM, Rig, bytes, completions, message, one, send, tags};
use crate::stories;

stories![
    messages_of_several_buffers_inline_and_with_immediate_data_arrive_as_they_were,
    writes_reach_memory_whose_key_is_known_and_no_other,
    a_queue_pair_that_fails_gives_back_exactly_what_it_was_given,
    queue_pairs_share_a_receive_queue,
];

fn messages_of_several_buffers_inline_and_with_immediate_data_arrive_as_they_were() {
    let rig = Rig::new(16);
    let mut area = rig.domain.buffer(3000).unwrap();
    let buffers = [100, 900, 2000].map(|length| area.split_to(length)).into();
    rig.right.receive(vec![ReceiveRequest { tag: 7, buffers }]).unwrap();
    let parts = [vec![1; 700], vec![2; 1], vec![3; 1500]];
    let buffers = parts.iter().map(|part| rig.buffer(part)).collect();
    rig.left.send(vec![send(8, Payload::Buffers(buffers))]).unwrap();
    assert_eq!(tags(one(&rig.sent)), [8]);
    let received = message(one(&rig.received));
    assert_eq!((received.tag, received.length, received.immediate), (7, 2201, None));
    assert_eq!(bytes(&received), parts.concat());

    rig.post_receives(0..20, 64);
    let with = SendRequest { immediate: Some(0xabcd_ef01), ..send(0, Payload::Inline(b"inline")) };
    rig.left.send(vec![with]).unwrap();
    one(&rig.sent);
    let received = message(one(&rig.received));
    assert_eq!((bytes(&received), received.immediate), (b"inline".to_vec(), Some(0xabcd_ef01)));

    // Without signals they come back with the next that has one.
    let quiet = |tag| SendRequest { is_signalled: tag == 9, ..send(tag, Payload::Inline(b"quiet")) };
    rig.left.send((0..10).map(quiet).collect()).unwrap();
    assert_eq!(tags(one(&rig.sent)), (0..10).collect::<Vec<_>>());
    assert_eq!(completions(&rig.received, 10).len(), 10);
}

fn writes_reach_memory_whose_key_is_known_and_no_other() {
    let rig = Rig::new(16);
    rig.post_receives(0..2, 64);
    let memory = SharedMemory::new(&rig.domain, 4096).unwrap();
    let Remote { address, key } = memory.remote();
    let write = |key| SendRequest {
        operation: Operation::Write(Remote { address: address + 1000, key }),
        immediate: Some(7),
        ..send(1, Payload::Buffers(vec![rig.buffer(b"written")]))
    };
    rig.left.send(vec![write(key)]).unwrap();
    one(&rig.sent);
    let written = message(one(&rig.received));
    assert_eq!((written.length, written.is_write, written.immediate), (7, true, Some(7)));
    let mut there = [0; 9];
    memory.read(999, &mut there).unwrap();
    assert_eq!(&there, b"\0written\0");

    rig.left.send(vec![write(key ^ 0xff)]).unwrap();
    match one(&rig.sent) {
        Outcome::SendFailed { failure, .. } => assert_eq!(failure.reason, Reason::RemoteAccess),
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.left.state().unwrap(), State::Error);
}

fn a_queue_pair_that_fails_gives_back_exactly_what_it_was_given() {
    let rig = Rig::new(512);
    rig.post_receives(0..512, 64);
    rig.right.fail().unwrap();
    let mut flushed: Vec<u64> = completions(&rig.received, 512)
        .into_iter()
        .map(|completion| match completion.outcome {
            Outcome::ReceiveFailed { tag, failure, .. } if failure.reason == Reason::Flushed => tag,
            other => panic!("{other:?}"),
        })
        .collect();
    flushed.sort_unstable();
    assert_eq!(flushed, (0..512).collect::<Vec<_>>());
}

fn queue_pairs_share_a_receive_queue() {
    let first = Rig::unconnected(Receives::Own(4));
    let shared = SharedReceives::new(&first.domain, 16, 2).unwrap();
    let queues = (&first.sent, &first.received);
    let right = QueuePair::new(&first.domain, queues, Receives::Shared(shared.clone()), ROOM).unwrap();
    let rig = Rig { right, ..first };
    rig.connect(3);
    shared.receive(rig.receives(3..4, 64)).unwrap();
    rig.left.send(vec![send(0, Payload::Inline(b"to whoever"))]).unwrap();
    let received = message(one(&rig.received));
    assert_eq!((received.tag, bytes(&received)), (3, b"to whoever".to_vec()));
}
