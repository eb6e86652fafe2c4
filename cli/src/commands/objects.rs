//! Commands about ports, meters, mirrors and timeout policies.

use clap::{ArgGroup, Args};

use crate::command::{Request, given};

/// Add a port, which survives a restart
///
/// Flows that were accepted for a port of this number and name before it was removed are installed again.
#[derive(Debug, Args)]
pub(crate) struct AddPort {
    #[arg(value_name = "NUMBER")]
    number: u32,
    /// What the backend knows its device by, such as a network device; 1 to 64 bytes without blanks or any of (),"/=#
    #[arg(value_name = "NAME")]
    name: String,
    /// physical, representor, internal, vxlan, geneve, gre, erspan, gtpu or mirror
    #[arg(long, value_name = "KIND", default_value = "physical")]
    kind: String,
    /// The UDP port of a vxlan, geneve or gtpu tunnel [default: 4789, 6081 or 2152]
    #[arg(long, value_name = "N", requires = "underlay")]
    udp_port: Option<u16>,
    /// The port that the packets of a tunnel use, by number or name
    #[arg(long, value_name = "PORT")]
    underlay: Option<String>,
}

impl Request for AddPort {
    const METHOD: &str = "sluice/add-port";

    fn params(&self) -> Vec<String> {
        let tunnel = [self.udp_port.map(|port| port.to_string()), self.underlay.clone()];
        let fixed = [self.number.to_string(), self.name.clone(), self.kind.clone()];
        fixed.into_iter().chain(tunnel.into_iter().flatten()).collect()
    }
}

/// Remove a port; the flows that name it are refused until it is back
///
/// A flow is accepted for a port, not for its number: if a port of another name gets the number, the flow stays refused.
/// mod-flow accepts a flow anew, for the ports that have its numbers then. A port of the configuration file comes back at
/// the next start or reload.
#[derive(Debug, Args)]
pub(crate) struct DelPort {
    /// Its number or name
    #[arg(value_name = "PORT")]
    port: String,
}

impl Request for DelPort {
    const METHOD: &str = "sluice/del-port";

    fn params(&self) -> Vec<String> {
        vec![self.port.clone()]
    }
}

/// Add a meter, or change its rate
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rate").required(true)))]
pub(crate) struct AddMeter {
    #[arg(value_name = "ID")]
    id: u32,
    /// Let this many kilobits a second pass
    #[arg(long, value_name = "N", group = "rate")]
    kbps: Option<u64>,
    /// Let this many packets a second pass
    #[arg(long, value_name = "N", group = "rate")]
    pps: Option<u64>,
    /// Let this many kilobits or packets pass at once [default: those of a second]
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
    /// Add a band, in the same unit; at most seven
    #[arg(long = "band", value_name = "RATE[:BURST]")]
    bands: Vec<String>,
}

impl Request for AddMeter {
    const METHOD: &str = "sluice/add-meter";

    fn params(&self) -> Vec<String> {
        let (unit, rate) = self.kbps.map_or(("pps", self.pps.unwrap_or_default()), |rate| ("kbps", rate));
        let first = self.burst.map_or_else(|| rate.to_string(), |burst| format!("{rate}:{burst}"));
        [self.id.to_string(), unit.to_owned(), first].into_iter().chain(self.bands.iter().cloned()).collect()
    }
}

/// Remove a meter
#[derive(Debug, Args)]
pub(crate) struct DelMeter {
    /// Its number
    #[arg(value_name = "ID")]
    id: u32,
}

impl Request for DelMeter {
    const METHOD: &str = "sluice/del-meter";

    fn params(&self) -> Vec<String> {
        vec![self.id.to_string()]
    }
}

/// List the meters
#[derive(Debug, Args)]
pub(crate) struct ShowMeters {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Request for ShowMeters {
    const METHOD: &str = "sluice/show-meters";

    fn params(&self) -> Vec<String> {
        given([(self.json, "--json")]).collect()
    }
}

/// Add a mirror, or change it: packets are copied before any flow sees them
#[derive(Debug, Args)]
pub(crate) struct AddMirror {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// Which packets, written as the key of a flow; of one port
    #[arg(value_name = "KEY")]
    key: String,
    /// Where copies go, by number or name
    #[arg(value_name = "PORT[,PORT...]")]
    ports: String,
}

impl Request for AddMirror {
    const METHOD: &str = "sluice/add-mirror";

    fn params(&self) -> Vec<String> {
        vec![self.name.clone(), self.key.clone(), self.ports.clone()]
    }
}

/// Remove a mirror
#[derive(Debug, Args)]
pub(crate) struct DelMirror {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
}

impl Request for DelMirror {
    const METHOD: &str = "sluice/del-mirror";

    fn params(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// List the mirrors
#[derive(Debug, Args)]
pub(crate) struct ShowMirrors {}

impl Request for ShowMirrors {
    const METHOD: &str = "sluice/show-mirrors";
}

/// Add or change a connection whose packets the device is to forward
///
/// For the backend dv with `connections = "commands"`.
#[derive(Debug, Args)]
pub(crate) struct AddConnection {
    /// As dump-conntrack of ovs-appctl shows it: 'udp,orig=(src=..,dst=..,sport=..,dport=..),reply=(..),zone=N,mark=N,labels=N,timeout=N';
    /// all but orig may be left out. `ovs-appctl dpctl/flush-conntrack` removes it
    #[arg(value_name = "CONNECTION")]
    connection: String,
}

impl Request for AddConnection {
    const METHOD: &str = "sluice/add-connection";

    fn params(&self) -> Vec<String> {
        vec![self.connection.clone()]
    }
}

/// Add a timeout policy for connections, or change it
#[derive(Debug, Args)]
pub(crate) struct AddCtTimeout {
    /// As in ct(timeout=NAME)
    #[arg(value_name = "NAME")]
    name: String,
    /// Timeouts in seconds, such as tcp_syn_sent=30 or udp_multiple=300; the others keep their defaults
    #[arg(value_name = "KEY=SECONDS")]
    timeouts: Vec<String>,
}

impl Request for AddCtTimeout {
    const METHOD: &str = "sluice/add-ct-timeout";

    fn params(&self) -> Vec<String> {
        std::iter::once(&self.name).chain(&self.timeouts).cloned().collect()
    }
}

/// Remove a timeout policy
#[derive(Debug, Args)]
pub(crate) struct DelCtTimeout {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
}

impl Request for DelCtTimeout {
    const METHOD: &str = "sluice/del-ct-timeout";

    fn params(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

/// List the timeout policies
#[derive(Debug, Args)]
pub(crate) struct ShowCtTimeouts {}

impl Request for ShowCtTimeouts {
    const METHOD: &str = "sluice/show-ct-timeouts";
}
