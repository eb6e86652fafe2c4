//! Collectors that come and go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sluice_control::mirror::Class;
use sluice_mirror::collector::{Files, Outputs};
use sluice_mirror::connection::{ConnectError, Connection, Connector, Local};
use sluice_mirror::exchange::{Acceptor, Dialer, Settings};
use sluice_mirror::sender;
use sluice_mirror::source::Batching;
use sluice_tests::mlx5::{on_device, with_options};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::agent::Agent;
use crate::captures::{files, frames, tshark};
use crate::rig::{CONFIG, Rig, folder, frame, number, play, settings, speak, until};

/// Frames of the first story, of each of four classes.
const EACH: u64 = 250_000;

/// What a device says of messages that a queue pair was killed under.
const KILLED: [&str; 1] = ["did not answer"];

#[test]
fn of_a_million_frames_each_is_written_once_or_counted_while_the_collector_is_killed_5_times() {
    let name = "restarts::of_a_million_frames_each_is_written_once_or_counted_while_the_collector_is_killed_5_times";
    with_options("bluefield-3", &[], &KILLED, name, |_| {
        play(async {
            const CLASSES: [Class; 4] = [Class::Arp, Class::Lldp, Class::Bfd, Class::Bgp];
            let rig = Rig::new();
            let mut agent = Agent::new(&rig.socket());
            let sender = rig.send(Batching { size: 16 << 10, age: Duration::from_millis(1), batches: 8 });
            agent = speak(agent, Agent::greet).await;
            let talk = tokio::spawn(speak(agent, move |agent| {
                for number in 0..EACH {
                    CLASSES.iter().for_each(|class| agent.copy(&frame(*class, number, 64)));
                }
            }));
            for kill in 1..=5 {
                let collector = rig.collect().await;
                // Frames come in through each of them, and it dies in the midst of them.
                let sum = || CLASSES.iter().map(|class| rig.sent("acknowledged_frames_total", *class)).sum::<u64>();
                let before = sum();
                until(sum, |now| *now >= before + EACH / 9).await;
                collector.kill().await;
                if kill % 2 == 0 {
                    sleep(Duration::from_millis(30)).await;
                }
            }
            let collector = rig.collect().await;
            let agent = talk.await.unwrap();
            for class in CLASSES {
                let over = || rig.sent("acknowledged_frames_total", class) + rig.sent("dropped_frames_total", class);
                until(over, |over| *over >= EACH).await;
            }
            collector.stop().await;
            sender.stop().await;
            drop(agent);

            // By what the files have, and not by what anybody has counted.
            let mut written: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
            for frame in frames(folder(&rig)) {
                let (class, number) = number(&frame.bytes);
                written.entry(class.code()).or_default().push(number);
            }
            for class in CLASSES {
                let numbers = &written[&class.code()];
                assert!(numbers.is_sorted_by(|one, next| one < next), "{class}: each once, and in their order");
                let drops = rig.sent("dropped_frames_total", class);
                assert_eq!(numbers.len() as u64 + drops, EACH, "{class}: {drops} dropped");
                assert!(numbers.len() > 3_000, "{class}: {}", numbers.len());
            }
            let files = files(folder(&rig));
            assert_eq!(files.len(), 6);
            files.iter().for_each(|file| drop(tshark(file, &["frame.number"])));
        });
    });
}

#[test]
fn frames_for_which_there_is_no_file_are_counted_until_there_is_one_again() {
    let name = "restarts::frames_for_which_there_is_no_file_are_counted_until_there_is_one_again";
    with_options("bluefield-3", &[], &KILLED, name, |_| {
        play(async {
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let place = folder(&rig).join("captures");
            std::fs::create_dir(&place).unwrap();
            // Each batch has a file of its own.
            let files_of = Files { path: place.join("a.pcapng"), size: Some(1), age: None, keep: None };
            let outputs = Outputs { files: Some(files_of), ..Outputs::default() };
            let collector = rig.collect_into(outputs, &CONFIG).await;
            let sender = rig.send(Batching { age: Duration::ZERO, ..Batching::default() });
            let say = |from: u64, to: u64| {
                move |agent: &mut Agent| (from..to).for_each(|number| agent.copy(&frame(Class::Lldp, number, 64)))
            };
            let agent = speak(agent, Agent::greet).await;
            let agent = speak(agent, say(0, 10)).await;
            rig.acknowledged(Class::Lldp, 10).await;
            let before = frames(&place).len() as u64;
            std::fs::remove_dir_all(&place).unwrap();
            let agent = speak(agent, say(10, 20)).await;
            rig.acknowledged(Class::Lldp, 20).await;
            std::fs::create_dir(&place).unwrap();
            sleep(Duration::from_millis(1200)).await;
            let _agent = speak(agent, say(20, 30)).await;
            rig.acknowledged(Class::Lldp, 30).await;
            collector.stop().await;
            sender.stop().await;
            let failed = rig.collected("dropped_frames_total", Class::Lldp);
            // A file that was begun before the folder went may have taken one.
            assert!(before == 10 && (9..=10).contains(&failed), "{before} and {failed}");
            let written = frames(&place);
            assert_eq!(written.len(), 10);
            let told = written.iter().flat_map(|frame| &frame.comments).find(|comment| !comment.starts_with("ufid:"));
            assert_eq!(told, Some(&format!("class lldp, lost before this frame: {failed} file-failed")));
        });
    });
}

#[test]
fn while_no_collector_is_there_frames_wait_then_are_dropped_and_the_file_says_so() {
    let name = "restarts::while_no_collector_is_there_frames_wait_then_are_dropped_and_the_file_says_so";
    with_options("bluefield-3", &[], &KILLED, name, |_| {
        play(async {
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            // No batch goes before it is full, however slowly frames come.
            let sender = rig.send(Batching { size: 4096, age: Duration::from_secs(3), batches: 4 });
            let agent = speak(agent, |agent| {
                agent.greet();
                (0..1000).for_each(|number| agent.copy(&frame(Class::Arp, number, 64)));
            })
            .await;
            // Four batches of 39 frames have room.
            let drops = until(|| rig.sent("dropped_frames_total", Class::Arp), |drops| *drops == 1000 - 4 * 39).await;
            let collector = rig.collect().await;
            rig.acknowledged(Class::Arp, 4 * 39).await;
            let _agent = speak(agent, |agent| agent.copy(&frame(Class::Arp, 1000, 64))).await;
            rig.acknowledged(Class::Arp, 4 * 39 + 1).await;
            collector.stop().await;
            sender.stop().await;
            let written = frames(folder(&rig));
            let numbers: Vec<_> = written.iter().map(|frame| number(&frame.bytes).1).collect();
            assert_eq!(numbers, (0..156).chain([1000]).collect::<Vec<_>>());
            let comments: Vec<_> = written.iter().flat_map(|frame| &frame.comments).collect();
            let told = format!("class arp, lost before this frame: {drops} queue-full");
            assert!(comments.contains(&&told), "{comments:?}");
            let file = files(folder(&rig)).pop().unwrap();
            let lines = tshark(&file, &["frame.drop_count"]);
            assert_eq!(lines.iter().filter(|line| **line == drops.to_string()).count(), 1, "{lines:?}");
        });
    });
}

/// A dialer of whose attempts the beginnings are noted.
struct Noted {
    dialer: Dialer,
    began: Arc<Mutex<Vec<Instant>>>,
}

impl Connector for Noted {
    async fn next(&mut self, local: &Local) -> Result<Connection, ConnectError> {
        self.began.lock().unwrap().push(Instant::now());
        self.dialer.next(local).await
    }
}

#[test]
fn a_sender_whose_connections_end_at_once_waits_before_it_comes_again() {
    let name = "restarts::a_sender_whose_connections_end_at_once_waits_before_it_comes_again";
    with_options("bluefield-3", &[], &KILLED, name, |_| {
        play(async {
            const PAUSE: Duration = Duration::from_millis(100);
            let rig = Rig::new();
            let mut acceptor = Acceptor::bind(rig.address(), settings()).await.unwrap();
            let local = Local::open("mlx5_0", CONFIG.capacity()).unwrap();
            let ends = tokio::spawn(async move {
                loop {
                    drop(acceptor.next(&local).await.unwrap());
                }
            });
            let began = Arc::new(Mutex::new(Vec::new()));
            let connector = Noted { dialer: rig.dialer(), began: Arc::clone(&began) };
            let sender = rig.send_by(connector, (PAUSE, PAUSE), &rig.socket(), Batching::default());
            let attempts = until(|| began.lock().unwrap().clone(), |began| began.len() >= 5).await;
            sender.stop().await;
            ends.abort();
            let waits: Vec<_> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
            // A wait is never shorter, however slow the machine is.
            assert!(waits.iter().all(|wait| *wait >= PAUSE), "{waits:?}");
        });
    });
}

#[test]
fn a_collector_whose_host_does_not_answer_is_not_waited_for_longer_than_was_wanted() {
    let name = "restarts::a_collector_whose_host_does_not_answer_is_not_waited_for_longer_than_was_wanted";
    on_device("bluefield-3", name, |_| {
        play(async {
            // It has room for one that nobody accepts, and answers no other.
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let silent = socket.listen(0).unwrap();
            let address = silent.local_addr().unwrap();
            let _first = TcpStream::connect(address).await.unwrap();
            let local = Local::open("mlx5_0", sender::capacity(4)).unwrap();
            let settings = Settings { patience: Duration::from_millis(200), ..settings() };
            let mut dialer = Dialer { address: address.to_string(), settings };
            // The kernel alone would take two minutes.
            let outcome = timeout(Duration::from_secs(30), dialer.next(&local)).await.expect("an end");
            assert_eq!(outcome.unwrap_err().to_string(), format!("{address}: timed out"));
        });
    });
}
