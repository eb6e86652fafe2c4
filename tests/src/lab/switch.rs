//! A machine with a switch: the agent's namespace with two ports, and a namespace behind each.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fmt::Display;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::iproute::{attempt, batch, batch_in};
use crate::daemon::{Daemon, new_folder};
pub use crate::world::eventually;

/// The namespaces, which go with this, and the folder of the agents that run one after the other.
pub struct Switch {
    folder: PathBuf,
}

/// The client's address.
pub const CLIENT: &str = "192.168.7.1";
/// The server's.
pub const SERVER: &str = "192.168.7.2";

/// The agent's, and those behind the ports.
const NAMESPACES: [&str; 3] = ["nic", "client", "server"];

/// What every agent here is told, besides its policy.
const CONFIG: &str = "backend = \"tc\"\npoll_interval = \"100ms\"";

impl Switch {
    /// Makes it, and enters the agent's namespace.
    pub fn set_up() -> Self {
        batch(&NAMESPACES.map(|name| format!("netns add {name}")));
        enter("nic");
        batch(&["link set lo up".to_owned()]);
        let switch = Self { folder: new_folder() };
        switch.plug("client");
        switch.plug("server");
        switch
    }

    /// Makes a port and what is behind it. Neighbours are known, so that there are no packets but those of the stories.
    pub fn plug(&self, name: &str) {
        let (own, other) = if name == "client" { (1, 2) } else { (2, 1) };
        batch(&[format!("link add {name} type veth peer name eth0 netns {name}"), format!("link set {name} up")]);
        batch_in(
            name,
            &[
                "link set lo up".to_owned(),
                format!("link set eth0 address 02:00:00:00:00:0{own} up"),
                format!("addr add 192.168.7.{own}/24 dev eth0"),
                format!("neigh add 192.168.7.{other} lladdr 02:00:00:00:00:0{other} dev eth0"),
            ],
        );
    }

    /// Starts an agent with keys of the configuration on top, such as the policy.
    pub fn start(&self, keys: &str) -> Daemon {
        self.start_with(keys, "")
    }

    /// The same with tables of the configuration as well.
    pub fn start_with(&self, keys: &str, tables: &str) -> Daemon {
        self.start_on(&["client", "server"], keys, tables)
    }

    /// The same on other ports.
    pub fn start_on<T: Display>(&self, ports: &[T], keys: &str, tables: &str) -> Daemon {
        let ports = (1..).zip(ports).map(|(number, name)| {
            format!(
                "[[port]]
number = {number}
name = \"{name}\"
"
            )
        });
        let config = format!(
            "{keys}
{CONFIG}
{}{tables}",
            ports.collect::<String>()
        );
        Daemon::start_in(&self.folder, &config, false)
    }

    /// The folder of its agents.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The filters at a port of the agent's, as iproute2 names them: protocol, priority, chain and handle.
    pub fn filters(&self, port: &str) -> Vec<String> {
        let text = run(&format!("tc filter show dev {port} ingress"));
        let names = text.lines().filter(|line| line.starts_with("filter ") && line.contains(" handle "));
        names.map(|line| line.trim().to_owned()).collect()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        attempt(&NAMESPACES.map(|name| format!("netns del {name}")));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Modules that the kernel would load at a request of the first namespace only.
pub fn load_modules() {
    run(
        "modprobe --all cls_flower sch_ingress act_mirred act_gact act_pedit act_csum act_tunnel_key act_police vxlan veth dummy",
    );
}

/// The key of datagrams that come in at the client's port.
pub fn key(destination: &str, port: u16) -> String {
    format!("in_port(client),eth_type(0x0800),ipv4(dst={destination},proto=17,frag=no),udp(dst={port})")
}

/// What tc has to be told to delete one of the client's [`Switch::filters`].
pub fn deletion(filter: &str) -> String {
    let words: Vec<_> = filter.split_whitespace().collect();
    let value = |name| words[words.iter().position(|word| *word == name).unwrap() + 1];
    let (preference, handle) = (value("pref"), value("handle"));
    format!("filter del dev client ingress protocol ip pref {preference} handle {handle} flower")
}

/// Has this thread be in a namespace from now on.
pub fn enter(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Does something in a namespace.
pub fn within<R: Send>(namespace: &str, work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(namespace);
            work()
        });
        thread.join().unwrap()
    })
}

/// Runs a command that shall succeed, and gives what it printed.
#[track_caller]
pub fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `sluice`, which shall succeed, and gives what it printed.
#[track_caller]
pub fn sluice(daemon: &Daemon, args: &[&str]) -> String {
    let ran = daemon.sluice(args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.out, ran.err);
    ran.out
}
