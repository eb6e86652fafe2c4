//! An agent that answers what a test tells it to, and the command line run against it.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use sluice_unixctl::{Command, Output, Registry, Server, ServerOptions};
use tokio::runtime::{Builder, Runtime};

/// What the command line left behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

/// A fake agent in a run folder of its own.
pub(crate) struct FakeAgent {
    registry: Option<Registry>,
    runtime: Runtime,
    folder: PathBuf,
    /// What it was asked: method and parameters.
    pub(crate) asked: Arc<Mutex<Vec<Vec<String>>>>,
}

impl FakeAgent {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sluice-cli-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { registry: Some(Registry::new("fake")), runtime, folder, asked: Arc::default() }
    }

    /// Says what a command answers.
    pub(crate) fn answers<F>(mut self, name: &'static str, answer: F) -> Self
    where
        F: Fn(&[String], &mut dyn Output) -> Result<(), String> + Send + Sync + 'static,
    {
        let asked = Arc::clone(&self.asked);
        let run = move |request: &sluice_unixctl::Request<'_>, out: &mut dyn Output| {
            let question = [&[name.to_owned()], request.args].concat();
            asked.lock().unwrap().push(question);
            answer(request.args, out)
        };
        let command = Command { name, usage: "", min_args: 0, max_args: 5_000, run: Box::new(run) };
        self.registry.as_mut().unwrap().register(command);
        self
    }

    /// A command with one answer to everything.
    pub(crate) fn says(self, name: &'static str, answer: &'static str) -> Self {
        self.answers(name, move |_, out| out.write_str(answer).map_err(|error| error.to_string()))
    }

    pub(crate) fn start(mut self) -> Self {
        let listener = UnixListener::bind(self.folder.join("sluiced.ctl")).unwrap();
        let registry = Arc::new(self.registry.take().unwrap());
        let server = self.runtime.block_on(async { Server::new(listener, registry, ServerOptions::default()) });
        self.runtime.spawn(server.unwrap().run(std::future::pending()));
        self
    }

    /// Puts a file into the folder.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.folder.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        finish(self.spawn(args))
    }

    /// Runs with something to read on standard input.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> Run {
        let mut child = self.spawn(args);
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        finish(child)
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        let mut process = sluice(args);
        process.env("SLUICE_RUN_DIR", &self.folder);
        process.spawn().unwrap()
    }

    /// What it was asked since it was asked last.
    pub(crate) fn questions(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).unwrap_or_default();
    }
}

/// The command line, not run yet, without an agent.
pub(crate) fn sluice(args: &[&str]) -> Process {
    let mut process = Process::new(env!("CARGO_BIN_EXE_sluice"));
    process.args(args).env_remove("SLUICE_RUN_DIR");
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    process
}

pub(crate) fn finish(child: Child) -> Run {
    let output = child.wait_with_output().unwrap();
    Run {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code(),
    }
}
