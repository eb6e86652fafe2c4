//! Both programs as processes that are killed, and a pipe that somebody reads while it is written.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_control::mirror::Class;

use crate::agent::{Agent, Copied};
use crate::captures::{files, frames, tshark};
use crate::lab::ADDRESS;
use crate::programs::{Program, until};
use crate::stories;

stories![
    both_programs_are_killed_in_turn_and_each_frame_is_written_once,
    a_live_tshark_prints_what_is_collected_into_its_pipe,
];

const CLASSES: [Class; 3] = [Class::Arp, Class::Lldp, Class::Bfd];

/// What the agent has handed to one sender of a class: frames from one number up to another.
type Handed = Vec<(u64, u64)>;

fn both_programs_are_killed_in_turn_and_each_frame_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let (listen, socket) = (format!("{ADDRESS}:4790"), folder.path().join("mirror.sock"));
    let capture = folder.path().join("control.pcapng");
    let collect =
        || Program::collect(folder.path(), &["--listen", &listen, "--write", capture.to_str().unwrap()]).ready();
    let send = || {
        let (socket, agent) = (socket.to_str().unwrap(), ["--no-rings", "--name", "leaf-1"]);
        Program::send(folder.path(), &[&["--collector", &listen, "--agent", socket][..], &agent].concat())
    };
    let mut agent = Agent::new(&socket);
    let (mut collector, mut sender) = (collect(), send());
    agent.greet();
    let is_over = AtomicBool::new(false);
    let (acknowledged, handed, collector, sender) = std::thread::scope(|scope| {
        let talk = scope.spawn(|| talk(agent, &is_over));
        // Of each sender, up to where it knows that its frames have arrived.
        let mut known = Vec::new();
        for turn in 0..2 {
            flows(&sender);
            let lost = sender.said("is lost");
            let killed = collector.kill();
            until("the sender sees it", || sender.said("is lost") > lost);
            println!("a killed collector was seen after {:?}", killed.elapsed());
            // Long enough for attempts that are in vain.
            std::thread::sleep(Duration::from_millis(700));
            let before = sender.metric("send_connections_total");
            collector = collect();
            let back = Instant::now();
            until("the sender is connected", || sender.metric("send_connections_total") > before);
            let took = back.elapsed();
            println!("the sender was connected {took:?} after the collector was back");
            // A multiple of a second, for whoever else is at work here.
            assert!(took < Duration::from_secs(3), "{took:?}");
            flows(&sender);

            known.push(CLASSES.map(|class| sender.of("send_acknowledged_frames_total", class)));
            assert_eq!(sender.metric("send_dropped_frames_total"), 0);
            let ends = collector.said(" ends: ");
            let killed = sender.kill();
            until("the collector sees it", || collector.said(" ends: ") > ends);
            println!("a killed sender was seen after {:?} (turn {turn})", killed.elapsed());
            sender = send().ready();
        }
        flows(&sender);
        is_over.store(true, Ordering::Relaxed);
        let handed = talk.join().unwrap();
        let all = |class: usize| handed[class].last().map(|(first, end)| end - first).unwrap();
        for (place, class) in CLASSES.into_iter().enumerate() {
            until("all has arrived", || sender.of("send_acknowledged_frames_total", class) == all(place));
        }
        known.push([0, 1, 2].map(all));
        (known, handed, collector, sender)
    });
    sender.stop();
    collector.stop();
    let mut written = [const { Vec::new() }; 3];
    for frame in frames(folder.path()) {
        let place = CLASSES.iter().position(|class| class.code() == frame.bytes[11]).unwrap();
        written[place].push(u64::from_be_bytes(frame.bytes[14..22].try_into().unwrap()));
    }
    for (place, numbers) in written.iter().enumerate() {
        let mut left = &numbers[..];
        for ((first, end), acknowledged) in handed[place].iter().zip(&acknowledged) {
            let here = left.iter().take_while(|number| *number < end).count();
            // Without a gap, whatever became of the collector; what a sender had when it was killed went with it.
            assert!(
                left[..here].iter().copied().eq(*first..first + here as u64),
                "{first}..{end}: {:?}",
                &left[..here]
            );
            assert!(here as u64 >= acknowledged[place], "{here} of {acknowledged:?}");
            println!("{}: {here} of {} frames, each once", CLASSES[place], end - first);
            left = &left[here..];
        }
        assert_eq!((left.len(), handed[place].len()), (0, 3));
    }
    let files = files(folder.path());
    assert_eq!(files.len(), 3);
    files.iter().for_each(|file| drop(tshark(file, &["frame.number"])));
}

/// Hands frames to whatever sender is there until it is over, and returns which each sender got.
fn talk(mut agent: Agent, is_over: &AtomicBool) -> [Handed; 3] {
    let mut handed = [const { vec![] }; 3];
    let mut numbers = [0; 3];
    while !is_over.load(Ordering::Relaxed) {
        let begun = numbers;
        'talking: while !is_over.load(Ordering::Relaxed) {
            for (number, class) in numbers.iter_mut().zip(CLASSES) {
                if !agent.copy_if_there(&frame(class, *number)) {
                    break 'talking;
                }
                *number += 1;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        for (place, handed) in handed.iter_mut().enumerate() {
            handed.push((begun[place], numbers[place]));
        }
        if !is_over.load(Ordering::Relaxed) {
            agent.greet();
        }
    }
    handed
}

/// Waits until frames have arrived through a sender as it is now.
fn flows(sender: &Program) {
    let arrived = || sender.metric("send_acknowledged_frames_total");
    let before = arrived();
    until("frames flow", || arrived() > before + 300);
}

fn a_live_tshark_prints_what_is_collected_into_its_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    const FIELDS: [&str; 6] = ["-T", "fields", "-e", "eth.type", "-e", "frame.interface_name"];
    let (listen, socket) = (format!("{ADDRESS}:4790"), folder.join("mirror.sock"));
    let mut agent = Agent::new(&socket);
    let (collector, pipe) = Program::collect_to_pipe(folder, &["--listen", &listen, "--write", "-"]);
    let mut tshark = Command::new("tshark")
        .args(["-i", "-", "-l", "-n"])
        .args(FIELDS)
        .stdin(pipe)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(folder.join("tshark.log")).unwrap())
        .spawn()
        .unwrap();
    let socket = socket.to_str().unwrap();
    let _sender = Program::send(folder, &["--collector", &listen, "--agent", socket, "--no-rings"]);
    agent.greet();
    let complaints = || std::fs::read_to_string(folder.join("tshark.log")).unwrap();
    let mut lines = BufReader::new(tshark.stdout.take().unwrap()).lines();
    // Each is printed while the next is not even sent.
    for number in 0..5 {
        agent.copy(&frame(Class::Lldp, number));
        let line = lines.next().unwrap_or_else(|| panic!("{}", complaints()));
        assert_eq!(line.unwrap(), "0x88cc\tclient");
    }
    collector.stop();
    assert!(tshark.wait().unwrap().success(), "{}", complaints());
}

fn frame(class: Class, number: u64) -> Copied {
    let ethertype: [u8; 2] = if class == Class::Lldp { [0x88, 0xcc] } else { [0x88, 0xb5] };
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, class.code()]);
    bytes.extend(ethertype);
    bytes.extend(number.to_be_bytes());
    bytes.extend([0; 42]);
    Copied { class, in_port: 1, ufid: None, bytes }
}
