//! `sluice replay` against a fake agent: what is sent, at which pace, and what is said of a broken capture.

#[expect(dead_code, reason = "what the tests of the other commands need")]
// Clippy takes only what is marked so for part of a test.
#[cfg(test)]
mod support;

use std::time::{Duration, Instant};

use self::support::FakeAgent;

/// An agent that lets every frame in: all hit, but those that begin with 0xff miss, and 0xee is refused.
fn agent() -> FakeAgent {
    FakeAgent::new()
        .answers("sluice/inject", |args, out| {
            if args[0] == "9" {
                return Err("sluiced: there is no port 9".to_owned());
            }
            let frames = &args[1..];
            if let Some(bad) = frames.iter().position(|frame| frame.starts_with("ee")) {
                return Err(format!("sluiced: frame {bad}: no way"));
            }
            let missed = frames.iter().filter(|frame| frame.starts_with("ff")).count();
            let hit = frames.len() - missed;
            writeln!(out, "frames:{} hit:{hit} missed:{missed} missed_later:0 sent:{hit}", frames.len())
                .map_err(|e| e.to_string())
        })
        .start()
}

/// A classic capture of Ethernet frames, each with its time in milliseconds.
// Clippy takes only what is marked so for part of a test.
#[cfg(test)]
fn capture(frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut put = |words: &[u32]| words.iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
    put(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for (milliseconds, data) in frames {
        let length = u32::try_from(data.len()).unwrap();
        let header = [1_700_000_000 + milliseconds / 1000, milliseconds % 1000 * 1000, length, length];
        header.iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
        file.extend_from_slice(data);
    }
    file
}

#[test]
fn every_frame_goes_in_in_order_and_the_counts_add_up() {
    let agent = agent();
    let frames: Vec<_> =
        (0..600_u16).map(|index| (0, [index.to_be_bytes().as_slice(), &[0xab; 58]].concat())).collect();
    let mut frames = frames;
    frames.push((0, vec![0xff; 60]));
    frames.push((0, vec![1; 13]));
    let file = agent.file("capture", capture(&frames));
    let run = agent.run(&["replay", &file, "--in-port", "client", "--speed", "flat"]);
    assert!(run.stdout.starts_with("frames:601 hit:600 missed:1 missed_later:0 sent:600 packets/s:"), "{}", run.stdout);
    assert!(
        run.stdout.ends_with("\n1 frames were left out, being shorter than an Ethernet header\n"),
        "{}",
        run.stdout
    );
    assert_eq!((run.stderr.as_str(), run.code), ("", Some(0)));
    let questions = agent.questions();
    assert_eq!(questions.iter().map(|question| question.len() - 2).collect::<Vec<_>>(), [256, 256, 89]);
    assert!(questions.iter().all(|question| question[1] == "client"));
    assert!(questions[1][2].starts_with("0100abab"), "{}", questions[1][2]);
}

#[test]
fn a_request_holds_no_more_than_256_kib() {
    let agent = agent();
    let frames = vec![(0, vec![7; 9_000]); 40];
    let file = agent.file("capture", capture(&frames));
    let run = agent.run(&["replay", &file, "--in-port", "1", "--speed", "flat"]);
    assert!(run.stdout.starts_with("frames:40 "), "{run:?}");
    let sizes: Vec<usize> =
        agent.questions().iter().map(|question| question[2..].iter().map(String::len).sum()).collect();
    assert!(sizes.len() == 3 && sizes.iter().all(|&size| size <= 256 << 10), "{sizes:?}");
}

#[test]
fn the_pace_is_the_captures_own_or_a_multiple() {
    let agent = agent();
    let frames: Vec<_> = (0..4).map(|index| (index * 100, vec![7; 60])).collect();
    let file = agent.file("capture", capture(&frames));
    let time = |speed: &[&str]| {
        let begin = Instant::now();
        let run = agent.run(&[&["replay", &file, "--in-port", "1"], speed].concat());
        assert!(run.stdout.starts_with("frames:4 "), "{run:?}");
        begin.elapsed()
    };
    assert!(time(&[]) >= Duration::from_millis(300));
    // One for each frame, unless the machine let this wait for so long that two were due.
    assert!((2..=4).contains(&agent.questions().len()), "each frame at its own moment");
    assert!(time(&["--speed", "0.5x"]) >= Duration::from_millis(600));
    agent.questions();
    time(&["--speed", "flat"]);
    assert_eq!(agent.questions().len(), 1);
}

#[test]
fn a_capture_that_ends_early_is_replayed_up_to_there() {
    let agent = agent();
    let mut bytes = capture(&vec![(0, vec![7; 60]); 3]);
    bytes.pop();
    let file = agent.file("capture", bytes);
    let run = agent.run(&["replay", &file, "--in-port", "1"]);
    assert!(run.stdout.starts_with("frames:2 hit:2 missed:0 missed_later:0 sent:2 "), "{}", run.stdout);
    assert_eq!(
        (run.stderr, run.code),
        (format!("sluice: {file}: the file ends within the record that begins at byte 176\n"), Some(1))
    );
}

#[test]
fn what_cannot_be_replayed_is_refused_before_a_frame_is_sent() {
    let agent = agent();
    let mut cooked = capture(&[(0, vec![7; 60])]);
    cooked[20] = 113;
    for (content, reason) in [
        (cooked, "link type LINUX_SLL (113) at byte 20; only Ethernet can be replayed"),
        (b"not a capture".to_vec(), "neither pcap nor pcapng: it begins with [6e, 6f, 74, 20]"),
    ] {
        let file = agent.file("capture", content);
        let run = agent.run(&["replay", &file, "--in-port", "1"]);
        assert_eq!((run.stdout.as_str(), run.stderr), ("", format!("sluice: {file}: {reason}\n")));
        assert_eq!((run.code, agent.questions().len()), (Some(1), 0));
    }
}

#[test]
fn the_agents_no_is_2_and_says_which_frames_it_is_about() {
    let agent = agent();
    let file = agent.file("capture", capture(&[(0, vec![7; 60])]));
    let run = agent.run(&["replay", &file, "--in-port", "9"]);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", "sluiced: there is no port 9\n"));
    assert_eq!(run.code, Some(2));

    let mut frames = vec![(0, vec![7; 60]); 300];
    frames[299].1 = vec![0xee; 60];
    let file = agent.file("capture", capture(&frames));
    let run = agent.run(&["replay", &file, "--in-port", "1", "--speed", "flat"]);
    assert!(run.stdout.starts_with("frames:256 hit:256 "), "{}", run.stdout);
    let place = "sluice: the frames of this request are frames 256 to 299 of the replay";
    assert_eq!((run.stderr, run.code), (format!("sluiced: frame 43: no way\n{place}\n"), Some(2)));
}
