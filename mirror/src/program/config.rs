//! The configuration files of both ends.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use sluice_control::duration::parse_duration;
use sluice_host::logging::LogConfig;

use crate::collector::{CollectorConfig, Files};
use crate::source::Batching;
use crate::source::ring::RingSize;

/// What both ends have.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Shared {
    /// The RDMA device, as `ibv_devices` names it; without a name, the only one.
    pub(super) device: String,
    /// Port of the device, for `connect = "socket"`.
    pub(super) port: u8,
    /// Place of the own address in the port's table, for `connect = "socket"`.
    pub(super) gid_index: u8,
    /// How to connect.
    pub(super) connect: Way,
    /// Where metrics are served; without it, at a port of each end's own.
    pub(super) metrics: Option<Metrics>,
    /// The log.
    pub(super) log: LogConfig,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            device: String::new(),
            port: 1,
            gid_index: 1,
            connect: Way::Cm,
            metrics: None,
            log: LogConfig::default(),
        }
    }
}

/// A configuration file. One file may serve both ends, each of which reads its own table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConfigFile {
    /// What both ends have.
    pub(super) mirror: Shared,
    /// What only a sender has.
    pub(super) send: Send,
    /// What only a collector has.
    pub(super) collect: Collect,
}

/// What only a sender has.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Send {
    /// The collector; without one, the agent's plan names it.
    pub(super) collector: Option<String>,
    /// The agent's mirror socket.
    pub(super) agent: PathBuf,
    /// The name in the collector's files; without one, the host's.
    pub(super) name: Option<String>,
    pub(super) batch_size: usize,
    #[serde(deserialize_with = "duration")]
    pub(super) batch_age: Duration,
    pub(super) batches: usize,
    /// Whether packet rings are read.
    pub(super) rings: bool,
    pub(super) ring_block: u32,
    pub(super) ring_blocks: u32,
    /// Groups of the kernel's samples that are read.
    pub(super) sample_groups: Vec<u32>,
}

impl Default for Send {
    fn default() -> Self {
        let Batching { size, age, batches } = Batching::default();
        Self {
            collector: None,
            agent: "/run/sluice/mirror.sock".into(),
            name: None,
            batch_size: size,
            batch_age: age,
            batches,
            rings: true,
            ring_block: 64 << 10,
            ring_blocks: 64,
            sample_groups: Vec::new(),
        }
    }
}

impl Send {
    pub(super) fn batching(&self) -> Batching {
        Batching { size: self.batch_size, age: self.batch_age, batches: self.batches }
    }

    pub(super) fn ring(&self) -> RingSize {
        // Rings know no shorter time.
        let retire_after = self.batch_age.max(Duration::from_millis(1));
        RingSize { block_bytes: self.ring_block, blocks: self.ring_blocks, retire_after }
    }

    /// Checks what the types do not.
    pub(super) fn check(&self) -> Result<(), String> {
        if !(4096..=16 << 20).contains(&self.batch_size) {
            return Err(format!("batch_size cannot be {}, but 4096 to 16 MiB", self.batch_size));
        }
        if !(1..=65_536).contains(&self.batches) {
            return Err(format!("batches cannot be {}, but 1 to 65536", self.batches));
        }
        if !self.ring_block.is_multiple_of(4096) || !(4096..=16 << 20).contains(&self.ring_block) {
            return Err(format!("ring_block cannot be {}, but a multiple of 4096 up to 16 MiB", self.ring_block));
        }
        if !(2..=65_536).contains(&self.ring_blocks) {
            return Err(format!("ring_blocks cannot be {}, but 2 to 65536", self.ring_blocks));
        }
        Ok(())
    }
}

/// What only a collector has.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Collect {
    /// Where it listens.
    pub(super) listen: String,
    /// `FOLDER/NAME.pcapng`, or `-` for standard output.
    pub(super) write: Option<PathBuf>,
    pub(super) rotate_size: Option<u64>,
    #[serde(deserialize_with = "optional_duration")]
    pub(super) rotate_age: Option<Duration>,
    pub(super) keep: Option<usize>,
    /// A TAP that frames are injected into.
    pub(super) tap: Option<String>,
    pub(super) messages: u32,
    pub(super) bytes: u64,
    pub(super) longest: u32,
    pub(super) connections: usize,
}

impl Default for Collect {
    fn default() -> Self {
        let CollectorConfig { messages, bytes, longest, connections } = CollectorConfig::default();
        Self {
            listen: "[::]:4790".to_owned(),
            write: None,
            rotate_size: None,
            rotate_age: None,
            keep: None,
            tap: None,
            messages,
            bytes,
            longest,
            connections,
        }
    }
}

impl Collect {
    pub(super) fn collector(&self) -> CollectorConfig {
        let &Self { messages, bytes, longest, connections, .. } = self;
        CollectorConfig { messages, bytes, longest, connections }
    }

    /// Whether the capture goes to standard output.
    pub(super) fn is_pipe(&self) -> bool {
        self.write.as_deref() == Some(Path::new("-"))
    }

    pub(super) fn files(&self) -> Option<Files> {
        let path = self.write.clone().filter(|_| !self.is_pipe())?;
        Some(Files { path, size: self.rotate_size, age: self.rotate_age, keep: self.keep })
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.collector().check()?;
        if self.write.is_none() && self.tap.is_none() {
            return Err("nothing is to be done with frames: name a file with write, or a tap".to_owned());
        }
        if self.files().is_none() && (self.rotate_size.is_some() || self.rotate_age.is_some() || self.keep.is_some()) {
            return Err("rotate_size, rotate_age and keep are for files".to_owned());
        }
        if self.write.as_deref().is_some_and(|path| path.file_stem().is_none()) {
            return Err("write must name a file, or be \"-\"".to_owned());
        }
        Ok(())
    }
}

/// How ends connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By RDMA's connection manager.
    Cm,
    /// By a TCP socket.
    Socket,
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cm" => Ok(Self::Cm),
            "socket" => Ok(Self::Socket),
            _ => Err(format!("expected \"cm\" or \"socket\", not \"{text}\"")),
        }
    }
}

impl<'de> Deserialize<'de> for Way {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(Error::custom)
    }
}

/// Where metrics are served, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metrics(pub(super) Option<SocketAddr>);

impl Metrics {
    /// Those at a port of the own host.
    pub(super) fn local(port: u16) -> Self {
        Self(Some(SocketAddr::from((Ipv6Addr::LOCALHOST, port))))
    }
}

impl FromStr for Metrics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let wrong = |_| format!("expected an address and port such as \"[::1]:9320\", or \"none\", not \"{text}\"");
        text.parse().map(|address| Self(Some(address))).map_err(wrong)
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(Error::custom)
    }
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(from)?).map_err(Error::custom)
}

fn optional_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

/// Reads a file, or returns the defaults if there is none.
pub(super) fn read(path: Option<&Path>) -> Result<ConfigFile, String> {
    let Some(path) = path else { return Ok(ConfigFile::default()) };
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| located(path, &text, &error))
}

/// One line: file, line and reason.
fn located(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count());
    let reason = error.message().lines().collect::<Vec<_>>().join(" ");
    match line {
        Some(line) => format!("{}:{line}: {reason}", path.display()),
        None => format!("{}: {reason}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/sluice-mirror.toml");

    /// The keys of the example with what they have there, whether they are commented out or not.
    fn uncommented() -> String {
        let text = std::fs::read_to_string(EXAMPLE).unwrap();
        let is_key = |line: &str| line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        let line = |line: &str| match line.strip_prefix('#') {
            Some(key) if is_key(key) => format!("{key}\n"),
            Some(_) => String::new(),
            None => format!("{line}\n"),
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn the_example_has_the_defaults_and_every_key() {
        let read: ConfigFile = read(Some(EXAMPLE.as_ref())).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", ConfigFile::default()));
        let all: ConfigFile = toml::from_str(&uncommented()).unwrap();
        all.send.check().unwrap();
        all.collect.check().unwrap();
        let table: toml::Table = toml::from_str(&uncommented()).unwrap();
        let keys = |table: &str, of: &toml::Table| of[table].as_table().unwrap().len();
        // As many as the types have.
        let counts = ["mirror", "send", "collect"].map(|name| keys(name, &table));
        let fields = |shown: String| shown.matches(": ").count();
        let shared = fields(format!("{:?}", Shared { metrics: None, log: LogConfig::default(), ..Shared::default() }));
        // The log has two keys in a table of its own.
        assert_eq!(counts[0], shared - 2);
        assert_eq!(counts[1], fields(format!("{:?}", Send::default())));
        assert_eq!(counts[2], fields(format!("{:?}", Collect { listen: String::new(), ..Collect::default() })));
    }

    #[test]
    fn a_ring_waits_for_a_millisecond_where_batches_wait_for_less() {
        for (batch_age, retire_after) in [("0.5ms", 1), ("1ms", 1), ("20ms", 20)] {
            let read: ConfigFile = toml::from_str(&format!("[send]\nbatch_age = \"{batch_age}\"")).unwrap();
            read.send.check().unwrap();
            assert_eq!(read.send.ring().retire_after, Duration::from_millis(retire_after), "{batch_age}");
        }
    }

    #[test]
    fn a_mistake_is_told_in_one_line_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mirror.toml");
        for (text, reason) in [
            ("[mirror]\nconnect = \"rdma\"", ":2: expected \"cm\" or \"socket\", not \"rdma\""),
            ("\n\n[send]\nage = 1", ":4: unknown field `age`"),
            ("[collect]\nrotate_age = \"soon\"", ":2: expected a time such as"),
            ("[mirror]\nmetrics = \"9320\"", ":2: expected an address and port such as"),
            ("[send", ":1: "),
        ] {
            std::fs::write(&path, text).unwrap();
            let told = read(Some(&path)).unwrap_err();
            assert!(told.starts_with(&format!("{}{reason}", path.display())) && told.lines().count() == 1, "{told}");
        }
        let missing = read(Some("/nowhere/mirror.toml".as_ref())).unwrap_err();
        assert_eq!(missing, "/nowhere/mirror.toml: No such file or directory (os error 2)");
    }
}
