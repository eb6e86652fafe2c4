//! What is typed about ports, meters and timeout policies.

use clap::{ArgGroup, Args};

#[derive(Debug, Args)]
pub(crate) struct AddPort {
    #[arg(value_name = "NUMBER")]
    number: u32,
    /// The network device for tc, any word for soft; 1 to 64 bytes without blanks or any of (),"/=#
    #[arg(value_name = "NAME")]
    name: String,
    /// physical, representor, internal, vxlan, geneve, gre, erspan, gtpu or mirror
    #[arg(long, value_name = "KIND", default_value = "physical")]
    kind: String,
    /// The UDP port of a vxlan, geneve or gtpu tunnel
    #[arg(long, value_name = "N", requires = "underlay")]
    udp_port: Option<u16>,
    /// The port that the packets of a tunnel use, by number or name
    #[arg(long, value_name = "PORT")]
    underlay: Option<String>,
}

impl AddPort {
    pub(crate) fn params(&self) -> Vec<String> {
        let tunnel = [self.udp_port.map(|port| port.to_string()), self.underlay.clone()];
        let fixed = [self.number.to_string(), self.name.clone(), self.kind.clone()];
        fixed.into_iter().chain(tunnel.into_iter().flatten()).collect()
    }
}

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

impl AddMeter {
    pub(crate) fn params(&self) -> Vec<String> {
        let (unit, rate) = self.kbps.map_or(("pps", self.pps.unwrap_or_default()), |rate| ("kbps", rate));
        let first = self.burst.map_or_else(|| rate.to_string(), |burst| format!("{rate}:{burst}"));
        [self.id.to_string(), unit.to_owned(), first].into_iter().chain(self.bands.iter().cloned()).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddCtTimeout {
    /// As in ct(timeout=NAME)
    #[arg(value_name = "NAME")]
    name: String,
    /// Timeouts in seconds, such as tcp_syn_sent=30 or udp_multiple=300; the others keep their defaults
    #[arg(value_name = "KEY=SECONDS")]
    timeouts: Vec<String>,
}

impl AddCtTimeout {
    pub(crate) fn params(&self) -> Vec<String> {
        std::iter::once(&self.name).chain(&self.timeouts).cloned().collect()
    }
}
