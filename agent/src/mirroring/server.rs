//! The mirror socket: accepts clients and writes to each on a thread of its own, which alone waits for the client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use sluice_control::mirror::{Class, Losses};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::client::Client;
use super::handout::Handout;

/// As many clients as are served at a time. One is the rule; another one may look on.
const CLIENTS: usize = 4;

/// As many copies of a class as are written before those of the next class.
const TURN: usize = 16;

/// How often it is looked whether a client to which nothing is to be written is still there.
const LOOK: Duration = Duration::from_millis(500);

/// Serves the clients of a listening socket that does not block, until `stop`.
pub async fn serve(listener: OwnedFd, handout: Arc<Handout>, stop: impl Future<Output = ()>) -> io::Result<()> {
    // What is accepted is no stream, and is written to as what it is.
    let listener = UnixListener::from_std(listener.into())?;
    let mut writers = JoinSet::new();
    let mut sockets: Vec<Arc<OwnedFd>> = Vec::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            Some(_) = writers.join_next() => continue,
            accepted = listener.accept() => accepted.and_then(|(socket, _)| {
                let socket = socket.into_std()?;
                socket.set_nonblocking(false)?;
                Ok(OwnedFd::from(socket))
            }),
        };
        match accepted {
            Ok(socket) => match handout.connect(CLIENTS) {
                Some(client) => {
                    sockets.retain(|socket| Arc::strong_count(socket) > 1);
                    let (socket, handout) = (Arc::new(socket), handout.clone());
                    sockets.push(socket.clone());
                    tracing::info!("a client of the mirror socket has connected");
                    writers.spawn_blocking(move || {
                        let error = write_to(&socket, &client);
                        handout.disconnect(&client);
                        tracing::info!("a client of the mirror socket is gone: {error}");
                    });
                }
                None => tracing::warn!("a client of the mirror socket is turned away: {CLIENTS} are connected"),
            },
            Err(error) if error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error()) => {}
            Err(error) => {
                // Too many files, most likely: nothing that goes on at once.
                tracing::error!("the mirror socket takes no client: {error}");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
    for socket in &sockets {
        // A writer that waits for its client hears of that. One whose client is gone does so anyway.
        let _ = shutdown(socket.as_fd(), Shutdown::Both);
    }
    while writers.join_next().await.is_some() {}
    Ok(())
}

/// Writes whatever waits, until the client is gone. Returns the reason.
fn write_to(socket: &OwnedFd, client: &Client) -> Errno {
    let mut told = Losses::default();
    loop {
        let step = write_round(socket, client, &mut told);
        let result = match step {
            Ok(true) => continue,
            Ok(false) => match client.rung().recv_timeout(LOOK) {
                Ok(()) => continue,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => look(socket),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            return error;
        }
    }
}

/// Writes the plan if it is new, then a turn of each class. Returns whether there was anything.
fn write_round(socket: &OwnedFd, client: &Client, told: &mut Losses) -> Result<bool, Errno> {
    let mut is_busy = false;
    if let Some(plan) = client.take_plan() {
        write(socket, &plan)?;
        is_busy = true;
    }
    for class in Class::ALL {
        for _ in 0..TURN {
            let Some(waiting) = client.take(class) else { break };
            write(socket, &waiting.message)?;
            waiting.was_sent();
            is_busy = true;
        }
    }
    let losses = client.losses();
    if losses != *told {
        write(socket, &losses.message())?;
        *told = losses;
        is_busy = true;
    }
    Ok(is_busy)
}

fn write(socket: &OwnedFd, message: &[u8]) -> Result<(), Errno> {
    loop {
        match send(socket, message, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Fails if the client is gone.
fn look(socket: &OwnedFd) -> Result<(), Errno> {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default()))?;
    let is_gone = polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
    if is_gone { Err(Errno::PIPE) } else { Ok(()) }
}
