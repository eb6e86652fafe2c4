//! A sender and collectors in one process, on one emulated device.

use std::fmt::Debug;
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use prometheus::{Registry, TextEncoder};
use sluice_control::mirror::Class;
use sluice_mirror::collector::{Collector, CollectorConfig, CollectorMetrics, Files, Outputs};
use sluice_mirror::connection::{Connector, Local};
use sluice_mirror::exchange::{Acceptor, Dialer, Settings};
use sluice_mirror::sender::{self, Sender, SenderConfig, SenderMetrics};
use sluice_mirror::source::{AgentSource, Batching};
use sluice_mirror::verbs::{Access, Psn};
use sluice_mirror::wire;
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::agent::{Agent, Copied};

/// What both ends are configured with.
pub(crate) fn settings() -> Settings {
    Settings {
        terms: wire::terms(),
        required: wire::FRAMES,
        port: 1,
        gid_index: 1,
        access: Access { remote_write: true },
        psn: Psn::new(0),
        min_rnr_timer: 12,
        timeout: 14,
        retries: 7,
        // A message that meets no receive request fails at once: credit is what keeps that from happening.
        rnr_retries: 0,
        patience: Duration::from_secs(10),
    }
}

pub(crate) fn play(story: impl Future<Output = ()>) {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(story);
}

/// A folder with the agent's socket and the collector's files, and an address.
pub(crate) struct Rig {
    pub(crate) folder: TempDir,
    pub(crate) sent: Registry,
    pub(crate) collected: Registry,
    /// How often senders send a heartbeat.
    pub(crate) heartbeat: Duration,
    address: String,
}

/// A collector that runs.
pub(crate) struct Collecting {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
}

/// A sender that runs.
pub(crate) struct Sending {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

pub(crate) const CONFIG: CollectorConfig =
    CollectorConfig { messages: 4, bytes: 256 << 10, longest: 68 << 10, connections: 4 };

impl Rig {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        Self {
            folder,
            sent: Registry::new(),
            collected: Registry::new(),
            heartbeat: Duration::from_millis(50),
            address,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("mirror.sock")
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn files(&self) -> Files {
        Files { path: self.folder.path().join("control.pcapng"), size: None, age: None, keep: None }
    }

    pub(crate) async fn collect(&self) -> Collecting {
        self.collect_into(Outputs { files: Some(self.files()), ..Outputs::default() }, &CONFIG).await
    }

    pub(crate) async fn collect_into_pipe(&self, pipe: impl Write + Send + 'static) -> Collecting {
        self.collect_into(Outputs { pipe: Some(Box::new(pipe)), ..Outputs::default() }, &CONFIG).await
    }

    pub(crate) async fn collect_into(&self, outputs: Outputs, config: &CollectorConfig) -> Collecting {
        // Of a collector that comes back, the counts go on.
        let metrics = CollectorMetrics::new(&Registry::new()).unwrap();
        let metrics = match CollectorMetrics::new(&self.collected) {
            Ok(first) => first,
            Err(_) => metrics,
        };
        let local = Local::open("mlx5_0", config.capacity()).unwrap();
        let collector = Collector::new(local, *config, outputs, metrics).unwrap();
        let acceptor = Acceptor::bind(&self.address, settings()).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            // A collector that is killed is not told.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        Collecting { stop: Some(stop), task: tokio::spawn(collector.run(acceptor, stopped)) }
    }

    pub(crate) fn send(&self, batching: Batching) -> Sending {
        self.send_from(&self.socket(), batching)
    }

    pub(crate) fn send_from(&self, socket: &Path, batching: Batching) -> Sending {
        let back_off = (Duration::from_millis(5), Duration::from_millis(50));
        self.send_by(self.dialer(), back_off, socket, batching)
    }

    pub(crate) fn dialer(&self) -> Dialer {
        Dialer { address: self.address.clone(), settings: settings() }
    }

    /// One that connects in another way.
    pub(crate) fn send_by(
        &self,
        connector: impl Connector + 'static,
        back_off: (Duration, Duration),
        socket: &Path,
        batching: Batching,
    ) -> Sending {
        let metrics = SenderMetrics::new(&self.sent).unwrap();
        let local = Local::open("mlx5_0", sender::capacity(64)).unwrap();
        let source = AgentSource::new(socket, local.domain(), batching).unwrap();
        let config = SenderConfig { name: "leaf-1".to_owned(), id: 0x5eed, back_off, heartbeat: self.heartbeat };
        let sender = Sender::new(local, config, vec![Box::new(source)], metrics);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            sender.run(connector, async { drop(stopped.await) }).await.unwrap();
        });
        Sending { stop, task }
    }

    /// A counter of the sender or of the collector; the sum over all causes if there are some.
    pub(crate) fn count(registry: &Registry, name: &str, class: Class) -> u64 {
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let label = format!("class=\"{}\"", class.name());
        let of = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(&label));
        of.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    pub(crate) fn sent(&self, name: &str, class: Class) -> u64 {
        Self::count(&self.sent, &format!("sluice_mirror_send_{name}"), class)
    }

    pub(crate) fn collected(&self, name: &str, class: Class) -> u64 {
        Self::count(&self.collected, &format!("sluice_mirror_collect_{name}"), class)
    }

    /// Waits until the collector has acknowledged so many frames of a class.
    pub(crate) async fn acknowledged(&self, class: Class, frames: u64) {
        until(|| self.sent("acknowledged_frames_total", class), |count| *count >= frames).await;
    }
}

impl Collecting {
    /// Ends it in order.
    pub(crate) async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }

    /// Ends it as a killed process ends.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// How it ended by itself.
    pub(crate) async fn ended(self) -> std::io::Result<()> {
        self.task.await.unwrap()
    }
}

impl Sending {
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

/// Waits until something is so.
pub(crate) async fn until<T: Debug>(mut look: impl FnMut() -> T, is_right: impl Fn(&T) -> bool) -> T {
    let began = Instant::now();
    loop {
        let seen = look();
        if is_right(&seen) {
            return seen;
        }
        assert!(began.elapsed() < Duration::from_secs(40), "{seen:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// A frame of a class with that number in it.
pub(crate) fn frame(class: Class, number: u64, length: usize) -> Copied {
    let ethertype: [u8; 2] = match class {
        Class::Arp => [0x08, 0x06],
        Class::Lldp => [0x88, 0xcc],
        _ => [0x88, 0xb5],
    };
    let mut bytes = vec![0xff; 6];
    bytes.extend([2, 0, 0, 0, 0, class.code()]);
    bytes.extend(ethertype);
    bytes.extend(number.to_be_bytes());
    bytes.extend((0..=250).cycle().take(length.saturating_sub(bytes.len())));
    Copied {
        class,
        in_port: 1 + u32::from(number % 2 == 1),
        ufid: number.is_multiple_of(3).then_some(u128::from(number) << 64 | 7),
        bytes,
    }
}

/// The class and the number of a frame that [`frame`] has made.
pub(crate) fn number(bytes: &[u8]) -> (Class, u64) {
    let number = u64::from_be_bytes(bytes[14..22].try_into().unwrap());
    (Class::of_code(bytes[11]).unwrap(), number)
}

/// Has the agent say what it says in a thread where it may wait, and returns it.
pub(crate) async fn speak(mut agent: Agent, say: impl FnOnce(&mut Agent) + Send + 'static) -> Agent {
    tokio::task::spawn_blocking(move || {
        say(&mut agent);
        agent
    })
    .await
    .unwrap()
}

pub(crate) fn folder(rig: &Rig) -> &Path {
    rig.folder.path()
}
