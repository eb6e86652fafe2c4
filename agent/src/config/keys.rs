//! The keys, and what they are if nothing is said.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_flow::meter::Meter;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::Port;
use sluice_flow::timeout::TimeoutPolicy;
use sluice_host::logging::LogConfig;
use sluice_objects::Objects;

use super::api::Api;
use super::forms;
use super::mirroring::Mirroring;
use super::sources::Sources;
use crate::backends::Configured;

/// What the agent is told to do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The kind of device that carries the flows, one of those that are built in ([`crate::backends`]), with its own keys. In the file
    /// `backend` is its name, and its keys are in a table that is called the same. The default is the first one.
    #[serde(deserialize_with = "forms::backend")]
    pub backend: Configured,
    /// The device, as the backend names it; tools show the datapath under that name. Default: one that the backend gives.
    pub device: String,
    /// Where the control socket `sluiced.ctl` and the pidfile `sluiced.pid` are. Default `"/run/sluice"`.
    #[serde(deserialize_with = "forms::absolute_path")]
    pub run_dir: PathBuf,
    /// Where the agent keeps what outlives it. Default: the folder that systemd gives to the unit, or `state` under `run_dir` if
    /// there is none; see [`Config::state_dir`].
    #[serde(deserialize_with = "forms::some_absolute_path")]
    pub state_dir: Option<PathBuf>,
    /// Whether flows survive the agent: accepted flows are kept in `state_dir` and are wanted again at the next start. The same holds
    /// for ports, meters, mirrors and timeout policies that came at run time. Default true.
    pub persist: bool,
    /// How often the log of flows is synced to the disk. A power cut loses at most the changes of this interval; the death of the agent
    /// alone loses nothing. 0 syncs every batch before it is answered. Default `"1s"`.
    #[serde(deserialize_with = "forms::duration_or_zero")]
    pub sync_interval: Duration,
    /// The folder of the locks, which only the agents' user can write. All agents of a machine must name the same folder. Default
    /// `"/run/sluice-locks"`.
    #[serde(deserialize_with = "forms::absolute_path")]
    pub lock_dir: PathBuf,
    /// Address and port of the metrics, or `"none"`. Default `"[::1]:9319"`.
    #[serde(deserialize_with = "forms::metrics")]
    pub metrics: Option<SocketAddr>,
    /// How many threads install flows, 1 to 64; no more run than help the device. Default 2.
    #[serde(deserialize_with = "forms::workers")]
    pub workers: usize,
    /// At most this many flows wait for the device; further ones are refused as busy. Default 65536.
    #[serde(deserialize_with = "forms::positive")]
    pub dirty_limit: usize,
    /// At most this many flows are kept. Above the limit the least used ones are evicted, except permanent ones. Default 200000.
    #[serde(deserialize_with = "forms::positive")]
    pub flow_limit: usize,
    /// How often, while hardware is full, its room is given to the flows with the most packets a second, or `"none"` for never.
    /// Needs a backend that also counts the rules in software. Default `"3s"`.
    #[serde(deserialize_with = "forms::optional_duration")]
    pub rebalance_interval: Option<Duration>,
    /// A flow is removed after this time without a packet, or `"none"` for never. Default `"10s"`.
    #[serde(deserialize_with = "forms::optional_duration")]
    pub idle_timeout: Option<Duration>,
    /// A flow is removed this long after its acceptance, used or not, or `"none"` for never. Default `"none"`.
    #[serde(deserialize_with = "forms::optional_duration")]
    pub hard_timeout: Option<Duration>,
    /// How often counters are read. Default `"500ms"`.
    #[serde(deserialize_with = "forms::duration")]
    pub poll_interval: Duration,
    /// How often refused flows are tried again even if the device has reported no change, or `"none"` for never. Default `"30s"`.
    #[serde(deserialize_with = "forms::optional_duration")]
    pub retry_interval: Option<Duration>,
    /// A packet passes at most this many chains, 1 to 256, or as many as the device can if that is fewer. Default 16.
    #[serde(deserialize_with = "forms::chain_depth")]
    pub chain_depth: usize,
    /// Whether the agent adopts, at its start, the rules of owners whose agent does not run, such as its own if its state was lost. They
    /// become flows as they are read back. Default `false`: the rules stay and are listed.
    pub adopt_orphans: bool,
    /// What the agent does with the flows in the device when it exits: `"leave"` them (default) or `"flush"` them.
    pub on_exit: OnExit,
    /// The mode of the control socket, in octal. Whatever the mode, only root, the agent's own user and members of the group are
    /// served. Default `"0660"`.
    #[serde(deserialize_with = "forms::mode")]
    pub control_mode: u32,
    /// The group that may use the control socket, by name or number. Default: the agent's own.
    #[serde(deserialize_with = "forms::group")]
    pub control_group: Option<String>,
    /// At most this many messages a minute are logged from one place in the code; the rest is counted. 0 for no limit. Default 60.
    pub log_rate: u32,
    /// `[source]`: where flows come from besides commands. Default: from nowhere.
    #[serde(rename = "source")]
    pub sources: Sources,
    /// `[api]`: the gRPC interface. Default: on the socket `api.sock` in `run_dir` alone.
    pub api: Api,
    /// `[log]`: the log.
    pub log: LogConfig,
    /// `[[port]]`: the ports. Each has `number`, `name`, and optionally `kind`: `"physical"` (default),
    /// `"representor"`, `"internal"`, `"vxlan"`, `"geneve"`, `"gre"`, `"erspan"`, `"gtpu"` or `"mirror"`. Tunnels have an
    /// `underlay`, the number or name of the port that their packets take; those of kind `"vxlan"`, `"geneve"` and `"gtpu"`
    /// may have a `udp_port`.
    #[serde(rename = "port", deserialize_with = "read_later")]
    pub ports: Vec<Port>,
    /// `[[meter]]`: the meters. Each has `id`, either `kbps` or `pps`, and optionally `burst` in the same unit (kilobits or packets); `bands` holds further bands, each with `rate` and optionally `burst`.
    #[serde(rename = "meter", deserialize_with = "read_later")]
    pub meters: Vec<Meter>,
    /// `[[mirror]]`: the mirrors, which copy packets before any flow sees them. Each has a `name`, a `key` as that of a flow, of
    /// one port and the first chain, and `ports`, the numbers or names of the ports that copies go to.
    #[serde(rename = "mirror", deserialize_with = "read_later")]
    pub mirrors: Vec<Mirror>,
    /// `[mirror]`: which control traffic is copied to a collector. Beside mirrors of a key it is the item of `[[mirror]]` that has
    /// `protocols`. Keys: `protocols` (default: all [classes](sluice_control::mirror::Class)), `collector`, `ports` (default: all), `to`
    /// (a port of the device, only where copies have no other way out), `tags` (0 to 2, default 2) and `queue_bytes` (default 1048576).
    #[serde(skip)]
    pub mirroring: Option<Mirroring>,
    /// `[[ct_timeout]]`: the timeout policies of connections. Each has a `name` and any of the keys of
    /// [`sluice_flow::timeout::TimeoutKey`], in seconds.
    #[serde(rename = "ct_timeout", deserialize_with = "read_later")]
    pub ct_timeouts: Vec<TimeoutPolicy>,
}

impl Default for Config {
    fn default() -> Self {
        let backend = Configured::default();
        Self {
            device: backend.default_device().to_owned(),
            backend,
            run_dir: PathBuf::from("/run/sluice"),
            state_dir: None,
            persist: true,
            sync_interval: Duration::from_secs(1),
            lock_dir: PathBuf::from("/run/sluice-locks"),
            metrics: Some(SocketAddr::from((Ipv6Addr::LOCALHOST, 9319))),
            workers: 2,
            dirty_limit: 65_536,
            flow_limit: 200_000,
            rebalance_interval: Some(Duration::from_secs(3)),
            idle_timeout: Some(Duration::from_secs(10)),
            hard_timeout: None,
            poll_interval: Duration::from_millis(500),
            retry_interval: Some(Duration::from_secs(30)),
            chain_depth: 16,
            adopt_orphans: false,
            on_exit: OnExit::Leave,
            control_mode: 0o660,
            control_group: None,
            log_rate: 60,
            sources: Sources::default(),
            api: Api::default(),
            log: LogConfig::default(),
            ports: Vec::new(),
            meters: Vec::new(),
            mirrors: Vec::new(),
            mirroring: None,
            ct_timeouts: Vec::new(),
        }
    }
}

/// What becomes of the flows in the device when the agent exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExit {
    /// They stay.
    Leave,
    /// They are removed.
    Flush,
}

impl Config {
    /// The default of everything, for a backend.
    pub fn for_backend(backend: Configured) -> Self {
        Self { device: backend.default_device().to_owned(), backend, ..Self::default() }
    }

    /// The ports, meters, timeout policies and mirrors.
    pub fn objects(&self) -> Objects {
        let mut objects = Objects::default();
        self.ports.iter().cloned().for_each(|port| objects.configure(port));
        self.meters.iter().cloned().for_each(|meter| objects.configure(meter));
        self.ct_timeouts.iter().cloned().for_each(|policy| objects.configure(policy));
        self.mirrors.iter().cloned().for_each(|mirror| objects.configure(mirror));
        objects
    }

    /// Where what outlives the agent is kept.
    pub fn state_dir(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(|| self.run_dir.join("state"))
    }
}

fn read_later<'de, D: serde::Deserializer<'de>, T>(deserializer: D) -> Result<Vec<T>, D::Error> {
    IgnoredAny::deserialize(deserializer)?;
    Ok(Vec::new())
}
