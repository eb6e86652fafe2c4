//! Messages, and the requests that bring them.

use sluice_mirror::verbs::{Operation, Payload, Remote, SendRequest, SharedMemory};
use sluice_tests::mlx5::on_device;

use crate::rig::{Rig, bytes, completions, message, one, send, tags};

#[test]
fn a_message_of_several_buffers_fills_several_buffers_in_their_order() {
    on_device("bluefield-3", "messages::a_message_of_several_buffers_fills_several_buffers_in_their_order", |_| {
        let rig = Rig::new(16);
        let mut area = rig.domain.buffer(3000).unwrap();
        let buffers = [100, 900, 2000].map(|length| area.split_to(length)).into();
        rig.right.receive(vec![sluice_mirror::verbs::ReceiveRequest { tag: 7, buffers }]).unwrap();
        let parts = [vec![1; 700], vec![2; 1], vec![3; 1500]];
        let buffers = parts.iter().map(|part| rig.buffer(part)).collect();
        rig.left.send(vec![send(8, Payload::Buffers(buffers))]).unwrap();
        assert_eq!(tags(one(&rig.sent)), [8]);
        let received = message(one(&rig.received));
        assert_eq!((received.tag, received.length, received.immediate), (7, 2201, None));
        assert_eq!(bytes(&received), parts.concat());
    });
}

#[test]
fn inline_data_is_copied_when_it_is_posted() {
    on_device("bluefield-3", "messages::inline_data_is_copied_when_it_is_posted", |ports| {
        let rig = Rig::new(16);
        rig.post_receives(0..1, 64);
        let mut device = ports.control();
        device.ask("stall");
        let mut text = *b"as it was";
        rig.left.send(vec![send(0, Payload::Inline(&text))]).unwrap();
        text.fill(b'!');
        device.ask("resume");
        assert_eq!(bytes(&message(one(&rig.received))), b"as it was");
        assert_eq!(text, [b'!'; 9]);
    });
}

#[test]
fn immediate_data_comes_with_a_message_and_with_a_write() {
    on_device("bluefield-3", "messages::immediate_data_comes_with_a_message_and_with_a_write", |_| {
        let rig = Rig::new(16);
        rig.post_receives(0..2, 64);
        let memory = SharedMemory::new(&rig.domain, 4096).unwrap();
        let Remote { address, key } = memory.remote();
        let there = Remote { address: address + 1000, key };
        let with =
            |tag, operation, payload| SendRequest { operation, immediate: Some(0xabcd_ef01), ..send(tag, payload) };
        let requests = vec![
            with(0, Operation::Send, Payload::Inline(b"sent")),
            with(1, Operation::Write(there), Payload::Buffers(vec![rig.buffer(b"written")])),
        ];
        rig.left.send(requests).unwrap();
        let mut received = completions(&rig.received, 2).into_iter().map(|completion| message(completion.outcome));
        let (sent, written) = (received.next().unwrap(), received.next().unwrap());
        assert_eq!((bytes(&sent), sent.is_write, sent.immediate), (b"sent".to_vec(), false, Some(0xabcd_ef01)));
        assert_eq!((written.length, written.is_write, written.immediate), (7, true, Some(0xabcd_ef01)));
        let mut there = [0; 9];
        memory.read(999, &mut there).unwrap();
        assert_eq!(&there, b"\0written\0");
        assert!(memory.read(4090, &mut there).is_err());
    });
}

#[test]
fn of_a_chain_all_before_the_first_bad_request_are_posted_and_the_rest_comes_back() {
    let name = "messages::of_a_chain_all_before_the_first_bad_request_are_posted_and_the_rest_comes_back";
    on_device("bluefield-3", name, |_| {
        let rig = Rig::new(16);
        let room = rig.left.room();
        let too_many = usize::try_from(room.send_segments).unwrap() + 1;
        let buffers = |count: usize| (0..count).map(|_| rig.buffer(b"x")).collect::<Vec<_>>();
        rig.post_receives(0..4, 64);
        let chain =
            [1, 1, too_many, 1].into_iter().zip(0..).map(|(count, tag)| send(tag, Payload::Buffers(buffers(count))));
        let refused = rig.left.send(chain.collect()).unwrap_err();
        assert_eq!(
            (refused.posted, refused.rest.iter().map(|request| request.tag).collect::<Vec<_>>()),
            (2, vec![2, 3])
        );
        let words = refused.to_string();
        assert!(words.starts_with("request 2 of the chain is refused: ibv_post_send: "), "{words}");
        assert_eq!(completions(&rig.sent, 2).into_iter().flat_map(|one| tags(one.outcome)).collect::<Vec<_>>(), [0, 1]);
        // What came back is whole, and can be posted again.
        let last = refused.rest.into_iter().next_back().unwrap();
        rig.left.send(vec![last]).unwrap();
        assert_eq!(tags(one(&rig.sent)), [3]);
        assert_eq!(completions(&rig.received, 3).len(), 3);
        // The same of requests to receive: 64 is more than the queue has room for, by what the library adds.
        let mut requests = rig.receives(10..11, 8);
        requests.push(sluice_mirror::verbs::ReceiveRequest { tag: 11, buffers: buffers(40) });
        requests.extend(rig.receives(12..13, 8));
        let refused = rig.right.receive(requests).unwrap_err();
        assert_eq!((refused.posted, refused.rest.len(), refused.rest[0].tag), (1, 2, 11));
    });
}

#[test]
fn requests_without_a_signal_come_back_with_the_next_that_has_one() {
    on_device("bluefield-3", "messages::requests_without_a_signal_come_back_with_the_next_that_has_one", |_| {
        let rig = Rig::new(256);
        rig.post_receives(0..256, 8);
        let request = |tag| SendRequest { is_signalled: tag % 10 == 9, ..send(tag, Payload::Inline(b"quiet")) };
        rig.left.send((0..20).map(request).collect()).unwrap();
        let told = completions(&rig.sent, 2).into_iter().map(|completion| tags(completion.outcome));
        assert_eq!(told.collect::<Vec<_>>(), [(0..10).collect::<Vec<_>>(), (10..20).collect()]);
        // Nobody signals any more, and the queue still never fills up.
        let mut over = 0;
        for tag in 20..220 {
            let quiet = SendRequest { is_signalled: false, ..send(tag, Payload::Inline(b"quiet")) };
            while let Err(refused) = rig.left.send(vec![SendRequest { ..quiet_again(&quiet) }]) {
                assert_eq!(refused.posted, 0);
                let mut told = Vec::new();
                rig.sent.poll(&mut told).unwrap();
                over += told.into_iter().flat_map(|completion| tags(completion.outcome)).count();
            }
        }
        assert!(over > 100, "{over} requests came back");
        assert_eq!(completions(&rig.received, 220).len(), 220);
    });
}

/// A copy of a request with inline data.
fn quiet_again<'a>(request: &SendRequest<'a>) -> SendRequest<'a> {
    let Payload::Inline(bytes) = request.payload else { panic!("it has buffers") };
    SendRequest { payload: Payload::Inline(bytes), ..*request }
}
