//! What runs in the machines.

use std::collections::VecDeque;
use std::future::Future;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use sluice_mirror::cm::{Acceptor, Dialer, Settings};
use sluice_mirror::connection::{Capacity, Connection, Connector, Local};
use sluice_mirror::terms::Terms;
use sluice_mirror::verbs::{Access, Buffer, Operation, Outcome, Payload, ReceiveRequest, SendRequest, Sent};
use sluice_tests::lab::soft_roce::{DEVICE, at_a_cable};
use tokio::time::{interval, sleep};

use crate::mirror;
use crate::notes::Notes;

const PORT: u16 = 18515;
const SETTINGS: Settings = Settings {
    terms: Terms { features: 1, classes: 9 },
    required: 1,
    access: Access { remote_write: false },
    min_rnr_timer: 12,
    // 67 ms, seven times: Soft-RoCE takes 7 retries for as many as it needs.
    timeout: 14,
    retries: 6,
    rnr_retries: 7,
    // An attempt that began while the cable was cut is given up soon for a new one.
    patience: Duration::from_millis(800),
    again: Duration::from_millis(800),
};

/// Plays the part of an end, until it is told to stop.
pub(crate) fn be(end: &str) -> ExitCode {
    let notes = Notes::own();
    std::panic::set_hook(Box::new(|panic| {
        println!("{panic}");
        Notes::own().note("panicked", &panic.to_string().replace('\n', " "));
    }));
    match end {
        "--end-left" => {
            at_a_cable("52:54:00:00:00:01", 1);
            notes.note("ready", "");
            play(send_numbers(&notes));
            mirror::send(&notes);
        }
        "--end-right" => {
            at_a_cable("52:54:00:00:00:02", 2);
            supervise(&notes);
        }
        _ => play(receive_numbers(&notes)),
    }
    ExitCode::SUCCESS
}

fn play(story: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(story);
}

fn local() -> Local {
    Local::open(DEVICE, Capacity { sends: 64, send_segments: 1, receives: 64, receive_bytes: 64 }).unwrap()
}

/// Sends numbers, each until it is known to have come, over as many connections as that takes.
async fn send_numbers(notes: &Notes) {
    const PAUSE: Duration = Duration::from_millis(100);
    while !notes.was_told("begin") {
        sleep(PAUSE).await;
    }
    let local = local();
    let mut dialer = Dialer { address: format!("10.10.0.2:{PORT}"), settings: SETTINGS };
    let (mut next, mut pending) = (0, VecDeque::new());
    let mut is_last = false;
    while !is_last && !notes.is_over() {
        match dialer.next(&local).await {
            Ok(connection) => {
                let ended = send_until_lost(&local, connection, (&mut next, &mut pending), notes).await;
                is_last = ended.is_none();
                if let Some(why) = ended {
                    notes.note("lost", &why);
                }
            }
            Err(error) => {
                println!("{error}");
                sleep(PAUSE).await;
            }
        }
    }
    notes.note("sent", &next.to_string());
}

/// Sends what is pending, and then new numbers. Returns why the connection ended, or `None` if all was sent.
async fn send_until_lost(
    local: &Local,
    mut connection: Connection,
    (next, pending): (&mut u64, &mut VecDeque<u64>),
    notes: &Notes,
) -> Option<String> {
    const AT_A_TIME: usize = 32;
    let mut posted = 0;
    let mut ticks = interval(Duration::from_millis(5));
    let (mut has_flowed, mut is_ending) = (false, false);
    let mut came = Vec::new();
    loop {
        while posted < pending.len().min(AT_A_TIME) {
            if let Err(error) = post(local, &connection, pending[posted]) {
                return Some(error);
            }
            posted += 1;
        }
        tokio::select! {
            why = &mut connection.gone => return Some(why.to_string()),
            count = connection.completions.next(&mut came) => { count.unwrap(); }
            _ = ticks.tick() => {
                is_ending = is_ending || notes.was_told("end") || notes.is_over();
                if !is_ending && pending.len() < AT_A_TIME {
                    pending.push_back(*next);
                    *next += 1;
                }
            }
        }
        for completion in came.drain(..) {
            match completion.outcome {
                Outcome::Sent(sent) => {
                    for Sent { tag, .. } in sent {
                        assert_eq!(pending.pop_front(), Some(tag));
                        posted -= 1;
                    }
                    if !has_flowed {
                        has_flowed = true;
                        notes.note("flows", "");
                    }
                }
                Outcome::SendFailed { failure, .. } => return Some(failure.to_string()),
                other => return Some(format!("{other:?}")),
            }
        }
        if is_ending && pending.is_empty() {
            return None;
        }
    }
}

fn post(local: &Local, connection: &Connection, number: u64) -> Result<(), String> {
    let mut buffer: Buffer = local.domain().buffer(8).unwrap();
    buffer.copy_from_slice(&number.to_be_bytes());
    let payload = Payload::Buffers(vec![buffer]);
    let request = SendRequest {
        tag: number,
        operation: Operation::Send,
        immediate: None,
        payload,
        is_signalled: true,
        is_solicited: false,
    };
    connection.pair.send(vec![request]).map_err(|error| error.to_string())
}

/// Has another process receive numbers, kills it when it is told to, and starts the next, until it is the turn of `sluice-mirror`.
fn supervise(notes: &Notes) {
    let start = || -> Child { Command::new(std::env::current_exe().unwrap()).arg("--end-receiver").spawn().unwrap() };
    let mut receiver = start();
    while !notes.is_over() {
        if notes.was_told("collect") {
            receiver.kill().unwrap();
            receiver.wait().unwrap();
            return mirror::collect(notes);
        }
        if notes.was_told("kill") {
            receiver.kill().unwrap();
            notes.note("killed", "");
            receiver.wait().unwrap();
            std::thread::sleep(Duration::from_millis(500));
            receiver = start();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    receiver.wait().unwrap();
}

/// Receives numbers, and keeps in a file, for the process after this one, how far it has come. Those that came twice, over two
/// connections, count once. What the device had taken for a process that was killed is missing.
async fn receive_numbers(notes: &Notes) {
    const KEPT: &str = "/tmp/received";
    const NEW: &str = "/tmp/received.new";
    let local = local();
    let mut acceptor = Acceptor::bind(&format!("10.10.0.2:{PORT}"), SETTINGS).await.unwrap();
    let kept = std::fs::read_to_string(KEPT).unwrap_or_else(|_| "0 0".into());
    let (expected, missing) = kept.split_once(' ').unwrap();
    let (mut expected, mut missing): (u64, u64) = (expected.parse().unwrap(), missing.parse().unwrap());
    let mut may_miss = expected > 0;
    notes.note("ready", "");
    let mut connection: Option<Connection> = None;
    let mut ticks = interval(Duration::from_millis(50));
    let (mut came, mut told) = (Vec::new(), 0);
    while !notes.is_over() {
        tokio::select! {
            next = acceptor.next(&local) => match next {
                // A sender that connects anew has left the old connection, on which nothing comes any more.
                Ok(next) => if let Some(old) = connection.replace(next) {
                    old.completions.poll(&mut came).unwrap();
                },
                Err(error) => println!("{error}"),
            },
            count = complete(connection.as_ref(), &mut came) => { count.unwrap(); }
            _ = ticks.tick() => if expected != told {
                told = expected;
                notes.note("received", &format!("{} {missing}", expected - missing));
            },
        }
        for completion in came.drain(..) {
            let Outcome::Received(received) = completion.outcome else { continue };
            let number = u64::from_be_bytes(received.buffers[0][..8].try_into().unwrap());
            if std::mem::take(&mut may_miss) && number > expected {
                missing += number - expected;
                expected = number;
            }
            assert!(number <= expected, "{number} came before {expected}");
            if number == expected {
                expected += 1;
                // Whole, whenever this process is killed.
                std::fs::write(NEW, format!("{expected} {missing}")).unwrap();
                std::fs::rename(NEW, KEPT).unwrap();
            }
            let request = ReceiveRequest { tag: received.tag, buffers: received.buffers };
            // A new connection has no room for those of the old one.
            let _ = connection.as_ref().map(|connection| connection.pair.receive(vec![request]));
        }
    }
}

async fn complete(
    connection: Option<&Connection>,
    came: &mut Vec<sluice_mirror::verbs::Completion>,
) -> Result<usize, sluice_mirror::verbs::CallError> {
    match connection {
        Some(connection) => connection.completions.next(came).await,
        None => std::future::pending().await,
    }
}
