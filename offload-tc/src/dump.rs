//! Listing of rules, in full or just their counters, read in place.

use sluice_netdev::netlink::message::Answer;

use crate::socket::{Next, Socket, SocketError};
use crate::wire::filter::{self, FilterView, Hook};

/// What of rules is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All of them.
    Full,
    /// Name, notes, flags and counters: of this the kernel tells three times as many in the same time.
    Terse,
}

/// How a listing went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Listing {
    /// It holds all rules that were there all the while. One that is missing may have been passed over where others came and
    /// went; tc does not tell of that (no `nl_dump_check_consistent` in net/sched).
    Whole,
    /// It was raced by a change of which the kernel tells, and wants to be repeated.
    Interrupted,
}

/// Lists rules.
pub struct Lister {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Lister {
    /// Opens a socket.
    pub fn open() -> Result<Self, SocketError> {
        Ok(Self { socket: Socket::open()?, buffer: Vec::new() })
    }

    /// Shows the filters of flower at a hook, of all chains or one, in the order of the kernel. A device without hooks has
    /// none. After an error the socket is a new one.
    pub fn list(
        &mut self,
        hook: Hook,
        chain: Option<u32>,
        detail: Detail,
        see: &mut dyn FnMut(&FilterView<'_>) -> Result<(), SocketError>,
    ) -> Result<Listing, SocketError> {
        self.list_any(hook, chain, detail, &mut |view| if view.is_flower() { see(view) } else { Ok(()) })
    }

    /// The same with filters of any kind, and the marks that a priority exists, which have the handle 0.
    pub fn list_any(
        &mut self,
        hook: Hook,
        chain: Option<u32>,
        detail: Detail,
        see: &mut dyn FnMut(&FilterView<'_>) -> Result<(), SocketError>,
    ) -> Result<Listing, SocketError> {
        let listed = self.try_to_list(hook, chain, detail, see);
        if listed.is_err() {
            // What is left of the listing would be taken for the next one.
            self.socket = Socket::open()?;
        }
        listed
    }

    fn try_to_list(
        &mut self,
        hook: Hook,
        chain: Option<u32>,
        detail: Detail,
        see: &mut dyn FnMut(&FilterView<'_>) -> Result<(), SocketError>,
    ) -> Result<Listing, SocketError> {
        let sequence = self.socket.sequences(1);
        self.buffer.clear();
        filter::emit_dump(&mut self.buffer, hook, chain, detail == Detail::Terse, sequence)?;
        self.socket.send(&self.buffer)?;
        let mut listing = Listing::Whole;
        self.socket.receive(|answer, is_interrupted| {
            if is_interrupted {
                listing = Listing::Interrupted;
            }
            match answer {
                Answer::Content(message) => {
                    see(&FilterView::new(message.payload)?)?;
                    Ok(Next::More)
                }
                Answer::Done(0) => Ok(Next::Enough),
                Answer::Done(errno) => Err(std::io::Error::from_raw_os_error(errno).into()),
                Answer::Acknowledgement(found) if found.errno != 0 => {
                    Err(std::io::Error::from_raw_os_error(found.errno).into())
                }
                _ => Ok(Next::More),
            }
        })?;
        Ok(listing)
    }
}
