//! The machine at the other end of the cable, where the collector is. It does what it is told over a socket, as a shell would.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use sluice_tests::lab::cable::Cable;
use sluice_tests::lab::soft_roce::at_a_cable;

/// What begins the arguments of a machine's program; the rest is its side.
const SIDE: &str = "--side=";
/// The address of the far machine.
pub(crate) const ADDRESS: &str = "10.10.0.2";
const SHELL: u16 = 4700;
/// Ends the far machine.
const END: &str = "exit";
/// Machines take this long to start, and more where others are at work.
const START: Duration = Duration::from_secs(240);

/// Starts both machines, and plays in the near one what the arguments say.
pub(crate) fn both_machines() -> ExitCode {
    let folder = tempfile::tempdir().unwrap();
    let _cable = Cable::new(folder.path(), 18);
    let machines = ["left", "right"].map(|side| -> Child {
        let myself = std::env::current_exe().unwrap();
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/pair"));
        command.arg(side).arg(folder.path()).arg("--").arg(myself).arg(format!("{SIDE}{side}"));
        command.args(std::env::args_os().skip(1)).spawn().unwrap()
    });
    let have_ended_well = machines.map(|mut machine| machine.wait().unwrap().success());
    if have_ended_well == [true; 2] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Which of two machines this is, if it is one of two.
pub(crate) fn side() -> Option<String> {
    std::env::args().find_map(|argument| argument.strip_prefix(SIDE).map(str::to_owned))
}

/// Prepares the near machine.
pub(crate) fn begin() {
    at_a_cable("52:54:00:00:00:01", 1);
    let begun = Instant::now();
    while TcpStream::connect((ADDRESS, SHELL)).is_err() {
        assert!(begun.elapsed() < START, "the other machine does not answer");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What a command of the shell prints in the far machine.
pub(crate) fn told(command: &str) -> String {
    String::from_utf8(printed(command)).unwrap()
}

/// The same for what is no text.
pub(crate) fn printed(command: &str) -> Vec<u8> {
    let mut shell = TcpStream::connect((ADDRESS, SHELL)).unwrap();
    shell.write_all(command.as_bytes()).unwrap();
    shell.shutdown(Shutdown::Write).unwrap();
    let mut printed = Vec::new();
    shell.read_to_end(&mut printed).unwrap();
    printed
}

/// Ends the far machine.
pub(crate) fn end() {
    told(END);
}

/// Is the far machine.
pub(crate) fn serve() -> ExitCode {
    at_a_cable("52:54:00:00:00:02", 2);
    let listener = TcpListener::bind((ADDRESS, SHELL)).unwrap();
    loop {
        let (mut caller, _) = listener.accept().unwrap();
        let mut command = String::new();
        caller.read_to_string(&mut command).unwrap();
        if command == END {
            return ExitCode::SUCCESS;
        }
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        // Nobody reads it who has ended meanwhile.
        let _ = caller.write_all(&output.stdout);
    }
}
