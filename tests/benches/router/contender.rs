//! Who forwards.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sluice_tests::daemon::{Daemon, new_folder};
use sluice_tests::lab::router::{Router, marking};
use sluice_tests::lab::switch::{eventually, run};

use crate::Load;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contender {
    Kernel,
    Flowtable,
    /// With `flags offload`.
    FlowtableOffloaded,
    Sluice,
    /// For connections that have had more than 20 packets, which rules of nftables mark.
    SluiceMarked,
}

impl Contender {
    pub(crate) const ALL: [Self; 5] =
        [Self::Kernel, Self::Flowtable, Self::FlowtableOffloaded, Self::Sluice, Self::SluiceMarked];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel alone",
            Self::Flowtable => "flowtable",
            Self::FlowtableOffloaded => "flowtable, offloaded",
            Self::Sluice => "sluice",
            Self::SluiceMarked => "sluice, by mark",
        }
    }

    /// The word that asks for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Flowtable => "flowtable",
            Self::FlowtableOffloaded => "offloaded",
            Self::Sluice => "sluice",
            Self::SluiceMarked => "marked",
        }
    }
}

/// A contender at its work, in the namespace of the thread that has begun it.
pub(crate) struct Forwarding {
    pub(crate) daemon: Option<Daemon>,
    pub(crate) contender: Contender,
}

impl Forwarding {
    /// Has it forward between the devices `client` and `server`. The agent has its files in a folder.
    pub(crate) fn begin(contender: Contender, load: Load, folder: &Path) -> Self {
        let ran = nft(&["-f", "-"], &rules(contender));
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let daemon = match contender {
            Contender::Sluice => Some(start(load, "", folder)),
            Contender::SluiceMarked => Some(start(load, "mark = \"0x10/0x10\"\n", folder)),
            _ => None,
        };
        Self { daemon, contender }
    }

    /// Packets that the kernel has forwarded itself.
    pub(crate) fn forwarded(&self) -> u64 {
        let ran = nft(&["-j", "list", "chain", "inet", "router", "forward"], "");
        let listed: Value = serde_json::from_slice(&ran.stdout).expect("JSON of nft");
        let items = listed["nftables"].as_array().expect("items").iter();
        let counters = items.flat_map(|item| item["rule"]["expr"].as_array().into_iter().flatten());
        counters.filter_map(|expression| expression["counter"]["packets"].as_u64()).sum()
    }
}

/// Those that this kernel takes on such devices, and what it says of a flowtable for the device if it does not.
pub(crate) fn that_can_run() -> (Vec<Contender>, Option<String>) {
    let refusal = std::thread::spawn(|| {
        let _router = Router::without_translation();
        let ran = nft(&["-f", "-"], &rules(Contender::FlowtableOffloaded));
        (!ran.status.success())
            .then(|| String::from_utf8_lossy(&ran.stderr).lines().next().unwrap_or_default().to_owned())
    });
    let refusal = refusal.join().expect("it is tried");
    let is_refused = |contender: &Contender| *contender == Contender::FlowtableOffloaded && refusal.is_some();
    (Contender::ALL.into_iter().filter(|contender| !is_refused(contender)).collect(), refusal)
}

/// The same chain for all, of which each packet is counted that the kernel forwards itself.
fn rules(contender: Contender) -> String {
    let flags = if contender == Contender::FlowtableOffloaded { "flags offload;" } else { "" };
    let (flowtable, takes) = match contender {
        Contender::Flowtable | Contender::FlowtableOffloaded => (
            format!("flowtable f {{ hook ingress priority 0; devices = {{ client, server }}; {flags} }}\n"),
            "ct state established flow add @f\n",
        ),
        // Without a rule that asks for connections there are none.
        Contender::Kernel | Contender::Sluice | Contender::SluiceMarked => {
            (String::new(), "ct state established accept\n")
        }
    };
    let marking = if contender == Contender::SluiceMarked { marking() } else { String::new() };
    format!(
        "table inet router {{\n{flowtable}chain forward {{\ntype filter hook forward priority 0;\ncounter\n{takes}}}\n}}\n{marking}"
    )
}

fn start(load: Load, keys: &str, folder: &Path) -> Daemon {
    // A direction begins with three flows.
    let (connections, flows) = (load.sessions * 6 / 5, load.sessions * 8);
    let config = format!(
        "backend = \"tc\"\ntc.policy = \"skip_hw\"\nflow_limit = {flows}\n\
         [[port]]\nnumber = 1\nname = \"client\"\n[[port]]\nnumber = 2\nname = \"server\"\n\
         [source.conntrack]\nconnections = {connections}\n{keys}"
    );
    let daemon = Daemon::start_in(folder, &config, false);
    eventually("the kernel is heard", || daemon.metric("sluice_source_up{source=\"conntrack\"}") == Some(1.0));
    daemon
}

fn nft(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new("nft");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("nft; `scripts/setup bench` brings it");
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// A router of namespaces with a contender.
pub(crate) struct Scene {
    pub(crate) forwarding: Forwarding,
    pub(crate) router: Router,
}

impl Scene {
    /// Makes it, with timeouts of connection tracking in seconds.
    pub(crate) fn new(contender: Contender, load: Load, timeouts: &[(&str, u32)]) -> Self {
        let router = Router::without_translation();
        set_timeouts(timeouts);
        let forwarding = Forwarding::begin(contender, load, router.folder());
        Self { forwarding, router }
    }

    /// Packets that the router has received.
    pub(crate) fn received(&self) -> u64 {
        let listed: Value = serde_json::from_str(&run("ip -s -j link show")).expect("JSON of ip");
        let devices = listed.as_array().expect("devices").iter();
        let ports = devices.filter(|device| ["client", "server"].map(Some).contains(&device["ifname"].as_str()));
        ports.map(|device| device["stats64"]["rx"]["packets"].as_u64().expect("a count")).sum()
    }
}

/// Timeouts of connection tracking in the namespace of this thread, in seconds.
pub(crate) fn set_timeouts(timeouts: &[(&str, u32)]) {
    for (name, seconds) in timeouts {
        let file = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        std::fs::write(&file, seconds.to_string()).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

/// A folder for an agent of a router that has none.
pub(crate) fn folder() -> std::path::PathBuf {
    let folder = new_folder();
    std::fs::create_dir_all(&folder).expect("a folder in memory");
    folder
}
