//! Collectors that do not keep up, and classes that flood.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use sluice_control::mirror::Class;
use sluice_mirror::connection::Local;
use sluice_mirror::sender;
use sluice_mirror::source::{AgentSource, Batching, Source};
use sluice_mirror::wire::Cause;
use sluice_tests::mlx5::on_device;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::agent::Agent;
use crate::captures::{frames, frames_of};
use crate::rig::{Rig, frame, number, play, speak, until};

/// A pipe of which nobody reads until it is told to.
pub(crate) struct Pipe {
    written: Arc<Mutex<Vec<u8>>>,
    /// Disconnected once somebody reads.
    stands_still: Option<Receiver<()>>,
    /// Bytes that fit before that.
    room: usize,
}

pub(crate) fn pipe(room: usize) -> (Pipe, Arc<Mutex<Vec<u8>>>, Sender<()>) {
    let written = Arc::<Mutex<Vec<u8>>>::default();
    let (goes_on, stands_still) = channel();
    (Pipe { written: Arc::clone(&written), stands_still: Some(stands_still), room }, written, goes_on)
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written.lock().unwrap().len() + bytes.len() > self.room {
            // It never yields anything.
            self.stands_still.take().map(|stands_still| stands_still.recv());
        }
        self.written.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_collector_that_stands_still_costs_counted_drops_and_no_memory() {
    let name = "pressure::a_collector_that_stands_still_costs_counted_drops_and_no_memory";
    on_device("bluefield-3", name, |_| {
        play(async {
            const ALL: u64 = 60_000;
            // Even in full batches more than what the pipe takes and the credit for one class.
            const EARLIER: u64 = 4_000;
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let (pipe, written, goes_on) = pipe(100_000);
            let collector = rig.collect_into_pipe(pipe).await;
            let sender = rig.send(Batching { size: 16 << 10, age: Duration::from_millis(1), batches: 8 });
            let agent = speak(agent, |agent| {
                agent.greet();
                (0..EARLIER).for_each(|number| agent.copy(&frame(Class::Arp, number, 64)));
            })
            .await;
            until(|| rig.sent("credit_messages", Class::Arp), |credit| *credit == 0).await;
            let before = memory();
            let agent =
                speak(agent, |agent| (EARLIER..ALL).for_each(|number| agent.copy(&frame(Class::Arp, number, 64))))
                    .await;
            // Nothing is read any more, and the agent has not waited for that.
            let held = || rig.sent("queued_frames", Class::Arp) + rig.sent("acknowledged_frames_total", Class::Arp);
            until(|| held() + rig.sent("dropped_frames_total", Class::Arp), |sum| *sum == ALL).await;
            let grown = memory().saturating_sub(before);
            assert!(grown < 1 << 20, "{grown} bytes more for {} frames", ALL - EARLIER);
            assert!(rig.sent("dropped_frames_total", Class::Arp) > 50_000);
            // Other classes go as far as the collector: one batch is what it holds.
            let _agent = speak(agent, |agent| agent.copy(&frame(Class::Lldp, 0, 64))).await;
            until(|| rig.sent("batches_under_way", Class::Lldp), |batches| *batches == 1).await;
            drop(goes_on);
            rig.acknowledged(Class::Lldp, 1).await;
            until(|| rig.sent("queued_frames", Class::Arp), |frames| *frames == 0).await;
            collector.stop().await;
            sender.stop().await;
            let written = frames_of(&written.lock().unwrap());
            let arp = written.iter().filter(|frame| number(&frame.bytes).0 == Class::Arp).count() as u64;
            assert_eq!(arp + rig.sent("dropped_frames_total", Class::Arp), ALL);
        });
    });
}

#[test]
fn a_flood_of_arp_costs_no_frame_of_bfd_or_lacp() {
    let name = "pressure::a_flood_of_arp_costs_no_frame_of_bfd_or_lacp";
    on_device("bluefield-3", name, |_| {
        play(async {
            const FLOOD: u64 = 60_000;
            const EACH: u64 = 300;
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            // It takes some time for each piece that it writes.
            struct Slow(Arc<Mutex<Vec<u8>>>);
            impl Write for Slow {
                fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                    std::thread::sleep(Duration::from_millis(4));
                    self.0.lock().unwrap().extend(bytes);
                    Ok(bytes.len())
                }

                fn flush(&mut self) -> io::Result<()> {
                    Ok(())
                }
            }
            let written = Arc::<Mutex<Vec<u8>>>::default();
            let collector = rig.collect_into_pipe(Slow(Arc::clone(&written))).await;
            let sender = rig.send(Batching { size: 8 << 10, age: Duration::from_millis(1), batches: 16 });
            let agent = speak(agent, |agent| {
                agent.greet();
                for number in 0..FLOOD {
                    agent.copy(&frame(Class::Arp, number, 64));
                    if number % (FLOOD / EACH) == 0 {
                        let number = number / (FLOOD / EACH);
                        agent.copy(&frame(Class::Bfd, number, 66));
                        agent.copy(&frame(Class::Lacp, number, 124));
                    }
                }
            })
            .await;
            for class in [Class::Bfd, Class::Lacp] {
                rig.acknowledged(class, EACH).await;
                assert_eq!(rig.sent("dropped_frames_total", class), 0, "{class}");
            }
            let over =
                || rig.sent("acknowledged_frames_total", Class::Arp) + rig.sent("dropped_frames_total", Class::Arp);
            until(over, |over| *over == FLOOD).await;
            assert!(rig.sent("dropped_frames_total", Class::Arp) > FLOOD / 4, "it was a flood");
            collector.stop().await;
            sender.stop().await;
            drop(agent);
            let written = frames_of(&written.lock().unwrap());
            for class in [Class::Bfd, Class::Lacp] {
                let numbers: Vec<_> =
                    written.iter().map(|frame| number(&frame.bytes)).filter(|(of, _)| *of == class).collect();
                assert_eq!(numbers, (0..EACH).map(|number| (class, number)).collect::<Vec<_>>());
            }
        });
    });
}

#[test]
fn what_the_agent_could_not_hand_over_counts_with_its_cause() {
    let name = "pressure::what_the_agent_could_not_hand_over_counts_with_its_cause";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let collector = rig.collect().await;
            let sender = rig.send(Batching::default());
            let agent = speak(agent, |agent| {
                agent.greet();
                (0..30_000).for_each(|number| agent.copy_or_lose(&frame(Class::Nd, number, 86)));
                agent.tell_losses();
                agent.babble(b"\x01\x63\0\0 of a later version");
                agent.babble(b"nothing that anybody knows");
                agent.copy(&frame(Class::Nd, 30_000, 86));
            })
            .await;
            let over =
                || rig.sent("acknowledged_frames_total", Class::Nd) + rig.sent("dropped_frames_total", Class::Nd);
            until(over, |over| *over == 30_001).await;
            // Another sender in the agent's eyes: what it loses is counted anew.
            drop(agent);
            std::fs::remove_file(rig.socket()).unwrap();
            let agent = Agent::new(&rig.socket());
            let _agent = speak(agent, |agent| {
                agent.greet();
                agent.copy(&frame(Class::Nd, 30_001, 86));
            })
            .await;
            until(over, |over| *over == 30_002).await;
            sleep(Duration::from_millis(100)).await;
            collector.stop().await;
            sender.stop().await;
        });
    });
}

#[test]
fn a_pipe_that_breaks_ends_the_collector_with_the_reason() {
    on_device("bluefield-3", "pressure::a_pipe_that_breaks_ends_the_collector_with_the_reason", |_| {
        play(async {
            const ALL: u64 = 300;
            /// Keeps what is written, and breaks before that is more bytes than the second field says.
            struct Broken(Arc<Mutex<Vec<u8>>>, usize);
            impl Write for Broken {
                fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                    let mut written = self.0.lock().unwrap();
                    if written.len() + bytes.len() > self.1 {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    written.extend(bytes);
                    Ok(bytes.len())
                }

                fn flush(&mut self) -> io::Result<()> {
                    Ok(())
                }
            }
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let written = Arc::<Mutex<Vec<u8>>>::default();
            let collector = rig.collect_into_pipe(Broken(Arc::clone(&written), 12_000)).await;
            let sender = rig.send(Batching { size: 4 << 10, ..Batching::default() });
            let _agent = speak(agent, |agent| {
                agent.greet();
                (0..ALL).for_each(|number| agent.copy(&frame(Class::Arp, number, 64)));
            })
            .await;
            let error = collector.ended().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            // The next collector gets what the broken one has not acknowledged.
            let collector = rig.collect().await;
            rig.acknowledged(Class::Arp, ALL).await;
            collector.stop().await;
            sender.stop().await;
            let [piped, filed] = [frames_of(&written.lock().unwrap()), frames(rig.folder.path())];
            assert!(!piped.is_empty() && !filed.is_empty(), "{} and {}", piped.len(), filed.len());
            let numbers: BTreeSet<_> = piped.iter().chain(&filed).map(|frame| number(&frame.bytes).1).collect();
            assert!(numbers.into_iter().eq(0..ALL));
        });
    });
}

#[test]
fn an_agent_that_always_has_more_to_say_lets_the_sender_do_other_things() {
    let name = "pressure::an_agent_that_always_has_more_to_say_lets_the_sender_do_other_things";
    on_device("bluefield-3", name, |_| {
        play(async {
            // As many messages as are read before others get a turn.
            const TURN: u64 = 128;
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let local = Local::open("mlx5_0", sender::capacity(64)).unwrap();
            let batching = Batching { size: 4096, age: Duration::from_secs(60), batches: 1 };
            let mut source = AgentSource::new(&rig.socket(), local.domain(), batching).unwrap();
            let arp = || frame(Class::Arp, 0, 64);
            let greeted = speak(agent, move |agent| {
                agent.greet();
                (0..50).for_each(|_| agent.copy(&arp()));
            });
            let (batch, agent) = tokio::join!(source.next(), greeted);
            // All memory of the class.
            let batch = batch.unwrap();
            let more = agent.fill(&arp());
            assert!(more > TURN, "{more}");
            let all = 50 + more - u64::from(batch.frames);
            let mut dropped = source.drops(Class::Arp)[Cause::QueueFull];
            while dropped < all {
                {
                    let mut next = source.next();
                    let is_done = poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_ready())).await;
                    assert!(!is_done, "a batch, for which there is no memory");
                }
                let now = source.drops(Class::Arp)[Cause::QueueFull];
                assert!(now - dropped <= TURN, "{} messages at a time", now - dropped);
                dropped = now;
                yield_now().await;
            }
        });
    });
}

/// Resident memory of this process, in bytes.
fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
