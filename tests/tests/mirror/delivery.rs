//! What is copied arrives.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use sluice_control::mirror::Class;
use sluice_mirror::collector::{Files, Outputs};
use sluice_mirror::source::Batching;
use sluice_tests::mlx5::on_device;

use crate::agent::{Agent, Copied};
use crate::captures::{files, frames, tshark};
use crate::rig::{CONFIG, Rig, folder, frame, play, speak, until};

#[test]
fn frames_of_all_classes_come_out_byte_for_byte_with_port_and_ufid_and_tshark_reads_the_file() {
    let name = "delivery::frames_of_all_classes_come_out_byte_for_byte_with_port_and_ufid_and_tshark_reads_the_file";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let collector = rig.collect().await;
            let sender = rig.send(Batching::default());
            // From shorter than Ethernet has to the longest that a message can have.
            let lengths = [60, 61, 64, 1514, 9018, 65_000];
            let all: Vec<_> = (0..180_u64)
                .map(|number| {
                    let place = usize::try_from(number).unwrap();
                    frame(Class::ALL[place % 9], number, lengths[place % lengths.len()])
                })
                .collect();
            let said = all.clone();
            let _agent = speak(agent, move |agent| {
                agent.greet();
                said.iter().for_each(|frame| agent.copy(frame));
            })
            .await;
            for class in Class::ALL {
                rig.acknowledged(class, 20).await;
            }
            collector.stop().await;
            sender.stop().await;
            let written = frames(folder(&rig));
            assert_eq!(written.len(), all.len());
            // In each class, in their order.
            for class in Class::ALL {
                let here = written.iter().filter(|frame| frame.bytes[11] == class.code());
                for (here, there) in here.zip(all.iter().filter(|frame| frame.class == class)) {
                    assert!(here.bytes == there.bytes);
                    assert_eq!(here.interface, if there.in_port == 1 { "client" } else { "uplink" });
                    let ufid = there.ufid.map(|ufid| {
                        let hex = format!("{ufid:032x}");
                        format!("ufid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
                    });
                    assert_eq!(here.comments, ufid.into_iter().collect::<Vec<_>>());
                }
            }
            let file = files(folder(&rig)).pop().unwrap();
            let lines = tshark(&file, &["frame.interface_name", "frame.len", "frame.comment"]);
            assert_eq!(lines.len(), 180);
            assert!(lines[0].starts_with("client\t") || lines[0].starts_with("uplink\t"), "{}", lines[0]);
            assert_eq!(rig.sent("dropped_frames_total", Class::Arp), 0);
            assert_eq!(rig.collected("latency_seconds_count", Class::Arp), 20);
        });
    });
}

#[test]
fn a_frame_of_a_new_port_comes_behind_the_name_of_the_port() {
    on_device("bluefield-3", "delivery::a_frame_of_a_new_port_comes_behind_the_name_of_the_port", |_| {
        play(async {
            // A name cannot be sent while a heartbeat is unanswered.
            let mut rig = Rig::new();
            rig.heartbeat = Duration::from_millis(1);
            let agent = Agent::new(&rig.socket());
            let collector = rig.collect().await;
            let sender = rig.send(Batching { age: Duration::ZERO, ..Batching::default() });
            let agent = speak(agent, Agent::greet).await;
            let names: Vec<_> = (1..=200).map(|number| format!("port-of-{number}")).collect();
            for number in 1..=200 {
                let known: Vec<_> = names[..number].iter().map(String::as_str).collect();
                agent.plan(&known);
                agent.copy(&Copied {
                    in_port: u32::try_from(number).unwrap(),
                    ..frame(Class::Arp, u64::try_from(number).unwrap(), 60)
                });
                rig.acknowledged(Class::Arp, u64::try_from(number).unwrap()).await;
            }
            collector.stop().await;
            sender.stop().await;
            let written = frames(folder(&rig));
            let interfaces: Vec<_> = written.into_iter().map(|frame| frame.interface).collect();
            assert_eq!(interfaces, names);
        });
    });
}

#[test]
fn files_are_rotated_by_size_and_each_can_be_read_alone() {
    on_device("bluefield-3", "delivery::files_are_rotated_by_size_and_each_can_be_read_alone", |_| {
        play(async {
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let files_of = Files { size: Some(20_000), ..rig.files() };
            let collector = rig.collect_into(Outputs { files: Some(files_of), ..Outputs::default() }, &CONFIG).await;
            let batching = Batching { size: 4096, age: Duration::from_millis(1), batches: 64 };
            let sender = rig.send(batching);
            let _agent = speak(agent, |agent| {
                agent.greet();
                for number in 0..300 {
                    agent.copy(&frame(Class::Lldp, number, 300));
                }
            })
            .await;
            rig.acknowledged(Class::Lldp, 300).await;
            collector.stop().await;
            sender.stop().await;
            let files = files(folder(&rig));
            assert!((4..12).contains(&files.len()), "{files:?}");
            let read: usize = files.iter().map(|file| tshark(file, &["frame.number"]).len()).sum();
            assert_eq!(read, 300);
        });
    });
}

#[test]
fn files_are_rotated_by_age_also_while_nothing_comes_and_each_says_what_is_in_it() {
    let name = "delivery::files_are_rotated_by_age_also_while_nothing_comes_and_each_says_what_is_in_it";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let files_of = Files { age: Some(Duration::from_secs(2)), ..rig.files() };
            let collector = rig.collect_into(Outputs { files: Some(files_of), ..Outputs::default() }, &CONFIG).await;
            let sender = rig.send(Batching::default());
            let mut agent = speak(agent, Agent::greet).await;
            for part in 0..2 {
                let before = files(folder(&rig)).len();
                agent = speak(agent, move |agent| {
                    (0..10).for_each(|number| agent.copy(&frame(Class::Lldp, 10 * part + number, 300)));
                })
                .await;
                rig.acknowledged(Class::Lldp, 10 * (part + 1)).await;
                until(|| files(folder(&rig)).len(), |count| *count > before).await;
            }
            collector.stop().await;
            sender.stop().await;
            let files = files(folder(&rig));
            let read: Vec<_> = files.iter().map(|file| tshark(file, &["frame.number"]).len()).collect();
            assert_eq!(read.iter().sum::<usize>(), 20);
            // No file begins in the midst of a batch, and the last one is of a time when nothing came.
            assert!(
                files.len() >= 3 && read.iter().all(|count| count % 10 == 0) && read.last() == Some(&0),
                "{read:?}"
            );
        });
    });
}

#[test]
fn a_capture_in_which_ports_come_and_go_is_read_with_each_frame_at_its_port_from_a_file_and_from_a_pipe() {
    let name = "delivery::a_capture_in_which_ports_come_and_go_is_read_with_each_frame_at_its_port_from_a_file_and_from_a_pipe";
    on_device("bluefield-3", name, |_| {
        play(async {
            // More than the collector remembers of a sender.
            const PORTS: u32 = 1500;
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let collector = rig.collect().await;
            let sender = rig.send(Batching::default());
            let _agent = speak(agent, |agent| {
                agent.greet();
                for number in 0..PORTS {
                    agent.copy(&Copied { in_port: 1000 + number, ..frame(Class::Lldp, number.into(), 64) });
                }
            })
            .await;
            rig.acknowledged(Class::Lldp, PORTS.into()).await;
            collector.stop().await;
            sender.stop().await;
            let file = files(folder(&rig)).pop().unwrap();
            let expected: Vec<_> = (0..PORTS).map(|number| format!("port {}", 1000 + number)).collect();
            assert_eq!(tshark(&file, &["frame.interface_name"]), expected);
            let mut live = Command::new("tshark");
            live.args(["-n", "-i", "-", "-T", "fields", "-e", "frame.interface_name"])
                .stdin(File::open(&file).unwrap());
            let printed = String::from_utf8(live.output().expect("tshark runs").stdout).unwrap();
            assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
        });
    });
}

#[test]
fn a_batch_is_sent_once_it_is_full_or_of_age_and_not_before() {
    let name = "delivery::a_batch_is_sent_once_it_is_full_or_of_age_and_not_before";
    on_device("bluefield-3", name, |_| {
        play(async {
            let rig = Rig::new();
            let agent = Agent::new(&rig.socket());
            let collector = rig.collect().await;
            let age = Duration::from_millis(300);
            let sender = rig.send(Batching { age, size: 10_000, batches: 4 });
            let began = Instant::now();
            let agent = speak(agent, |agent| {
                agent.greet();
                agent.copy(&frame(Class::Bfd, 0, 66));
            })
            .await;
            rig.acknowledged(Class::Bfd, 1).await;
            assert!(began.elapsed() >= age, "nobody knows that no other frame follows");
            let _agent =
                speak(agent, |agent| (0..101).for_each(|number| agent.copy(&frame(Class::Arp, number, 60)))).await;
            // A frame takes 104 bytes.
            rig.acknowledged(Class::Arp, 96).await;
            assert_eq!(rig.sent("frames_total", Class::Arp), 96, "the others are not of age yet");
            rig.acknowledged(Class::Arp, 101).await;
            collector.stop().await;
            sender.stop().await;
        });
    });
}
