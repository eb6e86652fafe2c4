//! `tc` of iproute2, which shows one device after the other in one process: in a machine without KVM the start of a program takes longest.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// `tc`, which is started when it is first asked.
#[derive(Default)]
pub(crate) struct Tc(Option<Running>);

struct Running {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Tc {
    /// The filters of a device, with counters, as JSON; or what it complains of.
    pub(crate) fn filters(&mut self, device: &str) -> Result<String, String> {
        let mut running = self.0.take().unwrap_or_else(Running::start);
        // Where it has ended meanwhile, there is no answer.
        let _ = writeln!(running.questions, "filter show dev {device} ingress");
        let mut answer = String::new();
        let _ = running.answers.read_line(&mut answer);
        if !answer.ends_with('\n') {
            return Err(format!("tc, asked for {device}: {answer}{}", running.end()));
        }
        self.0 = Some(running);
        Ok(answer)
    }
}

impl Running {
    fn start() -> Self {
        // Each answer is a line, and is written when it ends.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "tc", "-s", "-d", "-j", "-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("coreutils and iproute2");
        let questions = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, questions, answers }
    }

    /// Ends it, and gives its complaints.
    fn end(mut self) -> String {
        drop(self.questions);
        let mut words = String::new();
        if let Some(mut complaints) = self.process.stderr.take() {
            let _ = complaints.read_to_string(&mut words);
        }
        let status = self.process.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("{status}: {}", words.trim())
    }
}

impl Drop for Tc {
    fn drop(&mut self) {
        self.0.take().map(Running::end);
    }
}
