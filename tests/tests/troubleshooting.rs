//! docs/troubleshooting.md: its commands print what it says.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use sluice_tests::daemon::{Daemon, binary, repository, run};

/// The demo's agent, with its ports.
const CONFIG: &str = include_str!("../demo/sluiced.toml");

/// A command of the document, with the lines that it prints there.
struct Step {
    command: String,
    printed: Vec<String>,
}

fn steps() -> Vec<Step> {
    let text = fs::read_to_string(repository("docs/troubleshooting.md")).expect("the document");
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    for line in text.lines() {
        match (line.strip_prefix("```"), line.strip_prefix("$ ")) {
            (Some(kind), _) => is_console = kind == "console",
            (None, Some(command)) if is_console => {
                steps.push(Step { command: command.to_owned(), printed: Vec::new() });
            }
            _ if is_console => steps.last_mut().expect("a command comes first").printed.push(line.to_owned()),
            _ => {}
        }
    }
    steps
}

/// Whether all lines of a document are among those that were printed, in their order, where `…` stands for anything.
fn is_told(document: &[String], printed: &str) -> bool {
    let mut printed = printed.lines();
    document.iter().filter(|line| line.trim() != "…").all(|line| printed.any(|printed| is_like(line, printed)))
}

fn is_like(document: &str, printed: &str) -> bool {
    let mut parts = document.split('…');
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut is_open = false;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        is_open = part.is_empty();
    }
    is_open || rest.trim_end().is_empty()
}

#[test]
fn what_is_told_to_whoever_was_woken_up_is_what_is_there() {
    let daemon = Daemon::start(CONFIG);
    daemon.sluice(&["add-flow", "in_port(client),eth_type(0x0800)", "server"]);
    daemon.sluice(&["add-flow", "in_port(server),eth_type(0x0800)", "lb_output(1)"]);
    daemon.sluice(&["add-flow", "in_port(server),eth_type(0x0806)", "7"]);
    let programs = binary("sluice").parent().expect("a folder").display().to_string();
    let steps = steps();
    assert!(steps.len() > 8, "only {} commands were found", steps.len());
    for Step { command, printed } in steps {
        let mut said = String::new();
        // A flow whose port has come is tried again by itself, and that takes a moment.
        for _ in 0..100 {
            let path = format!("{programs}:{}", std::env::var("PATH").expect("a path"));
            let variables = [("PATH", path), ("SLUICE_RUN_DIR", daemon.run_dir().display().to_string())];
            let ran = run(Command::new("bash").args(["-c", &command]).envs(variables));
            said = ran.out + &ran.err;
            if is_told(&printed, &said) {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        assert!(is_told(&printed, &said), "{command}\n{said}\nis not what is told:\n{}", printed.join("\n"));
    }
}
