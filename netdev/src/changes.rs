//! Changes to devices that are made here, over `rtnetlink`: adding them, setting them up, removing them.
//!
//! These are rare, and each is waited for. Reading devices stays with [`Control`](crate::Control): rtnetlink drops an answer that it
//! cannot decode, and the request then waits for ever.

use std::future::Future;
use std::io;
use std::num::NonZeroI32;
use std::thread;
use std::time::Duration;

use netlink_packet_route::link::LinkMessage;
use rtnetlink::sys::AsyncSocket;
use rtnetlink::{Error, Handle};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::device::Ifindex;
use crate::error::{KernelReason, LinkError};
use crate::netlink::message::{Acknowledgement, HEADER};

/// How long an answer may take. The kernel answers within milliseconds, but may have to load a module first.
const PATIENCE: Duration = Duration::from_secs(10);

/// Adds a device. Fails if there is one of this name.
pub(crate) fn add(request: &'static str, device: LinkMessage) -> Result<(), LinkError> {
    ask(request, |handle| handle.link().add(device).execute())
}

/// Changes the device of the number in the header.
pub(crate) fn set(request: &'static str, device: LinkMessage) -> Result<(), LinkError> {
    ask(request, |handle| handle.link().set(device).execute())
}

/// Removes a device.
pub(crate) fn remove(request: &'static str, ifindex: Ifindex) -> Result<(), LinkError> {
    ask(request, |handle| handle.link().del(ifindex.0).execute())
}

/// Sends a request in the network namespace of this thread, and waits for the answer.
fn ask<F>(request: &'static str, send: impl FnOnce(Handle) -> F + Send) -> Result<(), LinkError>
where
    F: Future<Output = Result<(), Error>>,
{
    // A thread starts in the namespace of the one that made it. On this one a runtime may be at work, which would not let another
    // one wait.
    let answer = thread::scope(|scope| {
        let asking = thread::Builder::new().name("rtnetlink".into()).spawn_scoped(scope, || exchange(send))?;
        asking.join().unwrap_or_else(|_| Err(io::Error::other("rtnetlink has panicked")))
    });
    match answer {
        // An acknowledgement, see `exchange`.
        Ok(Some(Err(Error::NetlinkError(answer)))) => match answer.code {
            None => Ok(()),
            Some(code) => Err(refused(request, code, &answer.header)),
        },
        Ok(Some(Ok(()))) => Err(LinkError::Socket { step: request, source: io::ErrorKind::UnexpectedEof.into() }),
        Ok(Some(Err(error))) => Err(LinkError::Socket { step: request, source: io::Error::other(error) }),
        Ok(None) => Err(LinkError::Unanswered { request, after: PATIENCE }),
        Err(source) => Err(LinkError::Socket { step: request, source }),
    }
}

/// Returns what rtnetlink makes of the answer; `None` if there is none in time.
fn exchange<F>(send: impl FnOnce(Handle) -> F) -> io::Result<Option<Result<(), Error>>>
where
    F: Future<Output = Result<(), Error>>,
{
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (mut connection, handle, _notifications) = rtnetlink::new_connection()?;
        // If it did not hand acknowledgements on, as errors without a number, a socket that fails would look like success.
        connection.set_forward_ack(true);
        let socket = connection.socket_mut().socket_mut();
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        tokio::spawn(connection);
        Ok(timeout(PATIENCE, send(handle)).await.ok())
    })
}

/// The refusal with the kernel's words, which rtnetlink leaves unread behind the header of the request.
fn refused(request: &'static str, code: NonZeroI32, rest: &[u8]) -> LinkError {
    let attributes = rest.get(HEADER..).unwrap_or_default();
    match Acknowledgement::with_attributes(code.get().saturating_neg(), attributes) {
        Ok(answer) => LinkError::Refused { request, reason: KernelReason::new(&answer) },
        Err(source) => LinkError::Malformed { request, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute::Writer;
    use rustix::io::Errno;

    #[test]
    fn a_refusal_has_the_kernels_words_from_behind_the_header_of_the_request() {
        const TEXT: u16 = 1;
        let busy = NonZeroI32::new(-98).unwrap();
        let mut rest = vec![0; HEADER];
        Writer::new(&mut rest).put_text(TEXT, "A device exists with the same port");
        let error = refused("add tunnel device", busy, &rest);
        let reason = error.reason().unwrap();
        assert_eq!(
            (reason.errno, reason.words.as_deref()),
            (Errno::ADDRINUSE, Some("A device exists with the same port"))
        );
        assert_eq!(refused("add tunnel device", busy, &rest[..HEADER]).reason().unwrap().words, None);
        assert!(matches!(refused("add tunnel device", busy, &rest[..HEADER + 5]), LinkError::Malformed { .. }));
    }
}
