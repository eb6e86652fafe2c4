//! Lists rules, in full or with counters only, and reads them in place.

use sluice_netdev::netlink::message::Answer;

use crate::socket::{Next, Socket, SocketError};
use crate::wire::filter::{self, FilterView, Hook};

/// How much of each rule is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Everything.
    Full,
    /// Name, notes, flags and counters, of flower's filters alone. The kernel lists three times as many of these in the same time.
    Terse,
}

/// How complete a listing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Listing {
    /// It has all rules that were there all the time. One may be missing if others were added or removed meanwhile, which tc
    /// does not report (no `nl_dump_check_consistent` in net/sched).
    Whole,
    /// A change interfered, as the kernel reports; list again.
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

    /// Shows the flower filters at a hook, in the kernel's order. A device without hooks has none.
    /// After an error the socket is replaced.
    pub fn list(
        &mut self,
        hook: Hook,
        detail: Detail,
        see: &mut dyn FnMut(&FilterView<'_>) -> Result<(), SocketError>,
    ) -> Result<Listing, SocketError> {
        self.list_any(hook, detail, &mut |view| if view.is_flower() { see(view) } else { Ok(()) })
    }

    /// The same for filters of any kind. A priority that exists shows as a filter with handle 0.
    pub fn list_any(
        &mut self,
        hook: Hook,
        detail: Detail,
        see: &mut dyn FnMut(&FilterView<'_>) -> Result<(), SocketError>,
    ) -> Result<Listing, SocketError> {
        let mut shown = 0;
        let listed = self.list_once(hook, detail, &mut |view| {
            shown += 1;
            see(view)
        });
        match listed {
            // Of other classifiers the kernel has no terse form, and it does not get past a filter of most of them
            // (`tc_cls_stats_dump` in include/net/pkt_cls.h). So what comes behind one is listed in full.
            Err(error) if detail == Detail::Terse && error.is_standstill() => {
                let mut passed = 0;
                self.list_once(hook, Detail::Full, &mut |view| {
                    if !view.is_flower() && view.id.handle != 0 {
                        return Ok(());
                    }
                    passed += 1;
                    if passed > shown { see(view) } else { Ok(()) }
                })
            }
            listed => listed,
        }
    }

    fn list_once(
        &mut self,
        hook: Hook,
        detail: Detail,
        see: &mut dyn FnMut(&FilterView<'_>) -> Result<(), SocketError>,
    ) -> Result<Listing, SocketError> {
        let listed = self.try_to_list(hook, detail, see);
        if listed.is_err() {
            // The rest of the listing would be taken for the next one.
            self.socket = Socket::open()?;
        }
        listed
    }

    fn try_to_list(
        &mut self,
        hook: Hook,
        detail: Detail,
        see: &mut dyn FnMut(&FilterView<'_>) -> Result<(), SocketError>,
    ) -> Result<Listing, SocketError> {
        let sequence = self.socket.sequences(1);
        self.buffer.clear();
        filter::emit_dump(&mut self.buffer, hook, detail == Detail::Terse, sequence)?;
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
