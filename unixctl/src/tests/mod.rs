//! The server on a socket, asked by the stock ovs-appctl, by our client and by bare streams.

mod open_vswitch;
mod places;
mod replies;
mod requests;
mod stop;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command as Process, Output as ProcessOutput};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sluice_control::Client;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

/// A server on a socket of its own.
struct Bench {
    scratch: TempDir,
    runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Vec<Deferred>>,
    /// How many lines the commands have written, and how often `exit` was asked for; 1 once `hang` is without its client, and 2 to end it.
    lines: Arc<AtomicUsize>,
}

impl Bench {
    fn new(options: ServerOptions) -> Self {
        let scratch = TempDir::new().unwrap();
        let lines = Arc::<AtomicUsize>::default();
        let listener = UnixListener::bind(scratch.path().join("ctl")).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let registry = Arc::new(registry(Arc::clone(&lines)));
        let server = runtime.block_on(async { Server::new(listener, registry, options) }).unwrap();
        let server = runtime.spawn(server.run(async { stopped.await.unwrap_or_default() }));
        Self { scratch, runtime, stop: Some(stop), server, lines }
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("ctl")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn client(&self) -> Client {
        Client::over(self.connect())
    }

    /// Sends bytes and no more, and reads until the server closes.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        read_all(stream)
    }

    /// Waits until the commands have written so many lines, or `exit` was asked for so often.
    fn wait_for_lines(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.lines.load(Ordering::Relaxed) < count {
            assert!(Instant::now() < deadline, "they are not there");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// How long the server takes to end.
    fn wait(self) -> Duration {
        let begin = Instant::now();
        self.runtime.block_on(self.server).unwrap();
        self.runtime.shutdown_background();
        begin.elapsed()
    }

    /// Waits for the end of the server, and answers then what is still to be answered.
    fn wait_and_answer(self, result: Result<&str, &str>) {
        self.runtime.block_on(async {
            for deferred in self.server.await.unwrap() {
                deferred.answer(result).await;
            }
        });
        self.runtime.shutdown_background();
    }
}

fn read_all(mut stream: UnixStream) -> String {
    let mut reply = Vec::new();
    // A connection that is closed on unread bytes ends with a reset, after the reply.
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8(reply).unwrap()
}

fn registry(lines: Arc<AtomicUsize>) -> Registry {
    let mut registry = Registry::new("sluiced (Sluice) 0.1.0");
    let [exits, hangs] = [(); 2].map(|()| Arc::clone(&lines));
    let mut add = |name, usage, min_args, max_args, run: Handler| {
        registry.register(Command { name, usage, min_args, max_args, run });
    };
    add(
        "dpctl/dump-flows",
        "[-m] [type=..]",
        0,
        2,
        Box::new(|request, out| writeln!(out, "dump {:?} é😀", request.args).map_err(|error| error.to_string())),
    );
    add(
        "echo",
        "TEXT",
        1,
        1,
        Box::new(|request, out| out.write_str(&request.args[0]).map_err(|error| error.to_string())),
    );
    add("fail", "", 0, 0, Box::new(|_, _| Err("no such flow".to_owned())));
    add("panic", "", 0, 0, Box::new(|_, _| panic!("on purpose")));
    add(
        "late-failure",
        "",
        0,
        0,
        Box::new(|_, out| {
            out.write_str("half").and_then(|()| out.flush()).map_err(|error| error.to_string())?;
            Err("lost the device".to_owned())
        }),
    );
    add(
        "many",
        "LINES",
        1,
        1,
        Box::new(move |request, out| {
            for line in 0..request.args[0].parse::<usize>().map_err(|error| error.to_string())? {
                writeln!(out, "recirc_id(0),in_port(1),eth(),eth_type(0x0800) {line}")
                    .map_err(|error| error.to_string())?;
                lines.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }),
    );
    add(
        "watch",
        "",
        0,
        0,
        Box::new(|_, out| {
            out.write_str("begin\n").and_then(|()| out.flush()).map_err(|error| error.to_string())?;
            while out.is_wanted() {
                thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        }),
    );
    add(
        "hang",
        "",
        0,
        0,
        Box::new(move |_, out| {
            while out.is_wanted() {
                thread::sleep(Duration::from_millis(1));
            }
            hangs.store(1, Ordering::Relaxed);
            while hangs.load(Ordering::Relaxed) < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }),
    );
    add(
        "sleep",
        "MILLISECONDS",
        1,
        1,
        Box::new(|request, out| {
            thread::sleep(Duration::from_millis(request.args[0].parse().unwrap_or(0)));
            out.write_str("slept").map_err(|error| error.to_string())
        }),
    );
    add(
        "exit",
        "",
        0,
        0,
        Box::new(move |_, out| {
            exits.fetch_add(1, Ordering::Relaxed);
            out.defer();
            Ok(())
        }),
    );
    registry
}

/// Runs the stock ovs-appctl. Where it is missing, the test is skipped, which on a CI machine is a failure.
fn appctl(bench: &Bench, args: &[&str]) -> Option<ProcessOutput> {
    match Process::new("ovs-appctl").arg("-t").arg(bench.path()).arg("-T10").args(args).output() {
        Ok(output) => Some(output),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: ovs-appctl of package openvswitch-switch cannot be run: {error}");
            None
        }
        Err(error) => panic!("ovs-appctl of package openvswitch-switch cannot be run: {error}"),
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
