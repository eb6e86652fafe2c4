//! Shared receive queues.

use sluice_mirror::verbs::{Outcome, Payload, QueuePair, Receives, SharedReceives};
use sluice_tests::mlx5::on_device;

use crate::rig::{ROOM, Rig, completions, message, send};

#[test]
fn queue_pairs_share_receives_which_one_that_fails_leaves_to_the_others() {
    let name = "shared::queue_pairs_share_receives_which_one_that_fails_leaves_to_the_others";
    on_device("bluefield-3", name, |_| {
        let first = Rig::unconnected(Receives::Own(1));
        let shared = SharedReceives::new(&first.domain, 32, 2).unwrap();
        let pair = || {
            let queues = (&first.sent, &first.received);
            QueuePair::new(&first.domain, queues, Receives::Shared(shared.clone()), ROOM).unwrap()
        };
        let rigs = [pair(), pair()].map(|right| {
            let left = QueuePair::new(&first.domain, (&first.sent, &first.received), Receives::Own(1), ROOM).unwrap();
            let (sent, received) = (first.sent.clone(), first.received.clone());
            Rig { left, right, sent, received, domain: first.domain.clone(), context: first.context.clone() }
        });
        rigs.iter().for_each(|rig| rig.connect(3));
        shared.receive(first.receives(0..32, 16)).unwrap();
        assert!(rigs[0].right.receive(first.receives(32..33, 16)).is_err(), "it has no queue of its own");
        // More often than the queue is long, and in turns.
        for round in 0..100_u64 {
            let rig = &rigs[usize::from(round % 3 == 0)];
            rig.left.send(vec![send(round, Payload::Inline(&round.to_be_bytes()))]).unwrap();
            let mut told = completions(&first.received, 1);
            assert_eq!(told[0].queue_pair, rig.right.number());
            let received = message(told.pop().unwrap().outcome);
            assert_eq!((received.length, &received.buffers[0][..8]), (8, &round.to_be_bytes()[..]));
            shared
                .receive(vec![sluice_mirror::verbs::ReceiveRequest { tag: round, buffers: received.buffers }])
                .unwrap();
            completions(&first.sent, 1);
        }
        rigs[0].right.fail().unwrap();
        rigs[1].left.send(vec![send(0, Payload::Inline(b"still here"))]).unwrap();
        let told = completions(&first.received, 1).pop().unwrap();
        assert!(matches!(told.outcome, Outcome::Received(_)), "{told:?}");
        assert_eq!(told.queue_pair, rigs[1].right.number());
    });
}
