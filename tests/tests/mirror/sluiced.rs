//! The whole way: packets into the NIC in software of a real agent, and out of a capture file.

use sluice_control::mirror::Class;
use sluice_mirror::source::Batching;
use sluice_tests::control_frames;
use sluice_tests::daemon::Daemon;
use sluice_tests::mlx5::on_device;

use crate::captures::{files, frames, tshark};
use crate::rig::{Rig, folder, play, until};

const CONFIG: &str = r#"
idle_timeout = "none"
poll_interval = "20ms"
[mirror]
[[port]]
number = 1
name = "client"
[[port]]
number = 2
name = "server"
"#;

#[test]
fn control_frames_of_a_real_agent_come_out_of_the_file_with_port_and_ufid() {
    let name = "sluiced::control_frames_of_a_real_agent_come_out_of_the_file_with_port_and_ufid";
    on_device("bluefield-3", name, |_| {
        let daemon = Daemon::start(CONFIG);
        let works = |args: &[&str]| {
            let ran = daemon.sluice(args);
            assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)), "{args:?}");
            ran.out
        };
        works(&["add-flow", "in_port(client),eth_type(0x0806)", "server"]);
        let flows = works(&["dump-flows", "-m"]);
        let ufid = flows.split_once("ufid:").unwrap().1.split_once(',').unwrap().0;
        let samples = control_frames::samples();
        let capture = daemon.folder().join("frames.pcap");
        let all: Vec<_> = samples.iter().map(|sample| sample.frame.clone()).collect();
        std::fs::write(&capture, control_frames::pcap(&all)).unwrap();
        play(async {
            let rig = Rig::new();
            let collector = rig.collect().await;
            let sender = rig.send_from(&daemon.run_dir().join("mirror.sock"), Batching::default());
            until(|| daemon.metric("sluice_mirror_socket_clients").unwrap_or(0.0), |clients| *clients == 1.0).await;
            works(&["replay", capture.to_str().unwrap(), "--in-port", "client", "--speed", "flat"]);
            for class in Class::ALL {
                let expected = samples.iter().filter(|sample| sample.class == Some(class)).count() as u64;
                rig.acknowledged(class, expected).await;
            }
            collector.stop().await;
            sender.stop().await;
            let mut written = frames(folder(&rig));
            let mut expected: Vec<_> =
                samples.iter().filter(|sample| sample.class.is_some()).map(|sample| sample.frame.clone()).collect();
            assert_eq!(written.len(), expected.len());
            let arp: Vec<_> = written.iter().filter(|frame| frame.bytes[12..14] == [0x08, 0x06]).collect();
            assert!(!arp.is_empty());
            for frame in arp {
                assert_eq!(frame.comments, [format!("ufid:{ufid}")]);
            }
            assert!(written.iter().all(|frame| frame.interface == "client"));
            written.sort_by(|one, other| one.bytes.cmp(&other.bytes));
            expected.sort();
            assert!(written.iter().map(|frame| &frame.bytes).eq(&expected));
            let file = files(folder(&rig)).pop().unwrap();
            assert_eq!(tshark(&file, &["frame.number"]).len(), expected.len());
        });
    });
}
