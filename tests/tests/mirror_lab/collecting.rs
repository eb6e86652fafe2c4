//! Both ends of a connection on the device, and what one sends the other.

use sluice_mirror::cm::{Acceptor, Dialer, Settings};
use sluice_mirror::connection::{Connection, Connector, Local};
use sluice_mirror::verbs::{Buffer, Operation, Outcome, Payload, ReceiveRequest, SendRequest};

use crate::lab::{ADDRESS, SETTINGS};

/// Connects both: who asks and who is asked.
pub(crate) async fn meet(asks: &Local, asked: &Local) -> (Connection, Connection) {
    let mut acceptor = acceptor(SETTINGS).await;
    let mut dialer = dialer(acceptor.port(), SETTINGS);
    let (there, here) = tokio::join!(acceptor.next(asked), dialer.next(asks));
    (here.unwrap(), there.unwrap())
}

pub(crate) async fn acceptor(settings: Settings) -> Acceptor {
    Acceptor::bind(&format!("{ADDRESS}:0"), settings).await.unwrap()
}

pub(crate) fn dialer(port: u16, settings: Settings) -> Dialer {
    Dialer { address: format!("{ADDRESS}:{port}"), settings }
}

/// Posts a message that gives a completion.
pub(crate) fn send(from: &Connection, tag: u64, buffer: Buffer) {
    let payload = Payload::Buffers(vec![buffer]);
    let request = SendRequest {
        tag,
        operation: Operation::Send,
        immediate: None,
        payload,
        is_signalled: true,
        is_solicited: false,
    };
    from.pair.send(vec![request]).unwrap();
}

/// Waits for the message at the front, and posts its receive request anew.
pub(crate) async fn receive(to: &Connection) -> Vec<u8> {
    let outcome = next(to).await;
    let Outcome::Received(received) = outcome else { panic!("no message: {outcome:?}") };
    let bytes = received.buffers[0][..received.length].to_vec();
    to.pair.receive(vec![ReceiveRequest { tag: received.tag, buffers: received.buffers }]).unwrap();
    bytes
}

/// Waits for one completion, where no other can be.
pub(crate) async fn next(at: &Connection) -> Outcome {
    let mut came = Vec::new();
    at.completions.next(&mut came).await.unwrap();
    assert_eq!(came.len(), 1, "{came:?}");
    came.pop().unwrap().outcome
}

/// A buffer with these bytes.
pub(crate) fn buffer(of: &Local, bytes: &[u8]) -> Buffer {
    let mut buffer = of.domain().buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}
