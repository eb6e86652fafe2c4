//! `[[port]]`, `[[meter]]`, `[[mirror]]` and `[[ct_timeout]]`: what depends on something else in the file, and therefore is checked as a
//! whole.

use std::ops::Range;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_flow::NameError;
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortMap, PortName, PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::text;
use sluice_flow::timeout::{TimeoutKey, TimeoutPolicy};
use sluice_objects::ObjectId;
use toml::Spanned;

use super::error::Fault;
use super::mirroring::{Mirroring, MirroringTable};
use super::port_reference::PortReference;

/// The part of the file that is looked at here.
#[derive(Deserialize)]
pub(super) struct Tables {
    #[serde(default)]
    device: Option<IgnoredAny>,
    #[serde(default)]
    control_group: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    metrics: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    port: Vec<PortTable>,
    #[serde(default)]
    meter: Vec<MeterTable>,
    #[serde(default)]
    mirror: Vec<MirrorTable>,
    #[serde(default)]
    ct_timeout: Vec<CtTimeoutTable>,
}

/// What is right.
pub(super) struct Checked {
    pub(super) ports: Vec<Port>,
    pub(super) meters: Vec<Meter>,
    pub(super) mirrors: Vec<Mirror>,
    pub(super) mirroring: Option<Mirroring>,
    pub(super) ct_timeouts: Vec<TimeoutPolicy>,
    /// Where each of them is.
    pub(super) spans: Vec<(ObjectId, Range<usize>)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortTable {
    number: Spanned<u32>,
    name: Spanned<String>,
    #[serde(default)]
    kind: Option<Spanned<Kind>>,
    #[serde(default)]
    udp_port: Option<Spanned<u16>>,
    #[serde(default)]
    underlay: Option<Spanned<PortReference>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Physical,
    Representor,
    Internal,
    Vxlan,
    Geneve,
    Gre,
    Erspan,
    Gtpu,
    Mirror,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "Word")]
enum Kind {
    Physical,
    Representor,
    Internal,
    Tunnel(TunnelProtocol),
    Mirror,
}

impl From<Word> for Kind {
    fn from(word: Word) -> Self {
        match word {
            Word::Physical => Self::Physical,
            Word::Representor => Self::Representor,
            Word::Internal => Self::Internal,
            Word::Vxlan => Self::Tunnel(TunnelProtocol::Vxlan),
            Word::Geneve => Self::Tunnel(TunnelProtocol::Geneve),
            Word::Gre => Self::Tunnel(TunnelProtocol::Gre),
            Word::Erspan => Self::Tunnel(TunnelProtocol::Erspan),
            Word::Gtpu => Self::Tunnel(TunnelProtocol::Gtpu),
            Word::Mirror => Self::Mirror,
        }
    }
}

/// The kinds that are tunnels.
const TUNNELS: &str = "\"vxlan\", \"geneve\", \"gre\", \"erspan\" and \"gtpu\"";
/// Those of them that go over UDP.
const OVER_UDP: &str = "\"vxlan\", \"geneve\" and \"gtpu\"";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeterTable {
    id: Spanned<u32>,
    #[serde(default)]
    kbps: Option<Spanned<u64>>,
    #[serde(default)]
    pps: Option<Spanned<u64>>,
    #[serde(default)]
    burst: u64,
    #[serde(default)]
    bands: Vec<BandTable>,
}

/// One more band, in the unit of its meter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BandTable {
    rate: Spanned<u64>,
    #[serde(default)]
    burst: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MirrorTable {
    name: Spanned<String>,
    key: Spanned<String>,
    ports: Vec<Spanned<PortReference>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CtTimeoutTable {
    name: Spanned<String>,
    tcp_syn_sent: Option<u32>,
    tcp_syn_recv: Option<u32>,
    tcp_established: Option<u32>,
    tcp_fin_wait: Option<u32>,
    tcp_close_wait: Option<u32>,
    tcp_last_ack: Option<u32>,
    tcp_time_wait: Option<u32>,
    tcp_close: Option<u32>,
    tcp_syn_sent2: Option<u32>,
    tcp_retransmit: Option<u32>,
    tcp_unack: Option<u32>,
    udp_first: Option<u32>,
    udp_single: Option<u32>,
    udp_multiple: Option<u32>,
    icmp_first: Option<u32>,
    icmp_reply: Option<u32>,
}

impl Tables {
    /// Whether the device is named.
    pub(super) const fn names_device(&self) -> bool {
        self.device.is_some()
    }

    /// Where the group of the control socket is named.
    pub(super) fn control_group(&self) -> Option<Range<usize>> {
        self.control_group.as_ref().map(Spanned::span)
    }

    /// Where the address of the metrics is.
    pub(super) fn metrics(&self) -> Option<Range<usize>> {
        self.metrics.as_ref().map(Spanned::span)
    }

    fn spans(&self) -> Vec<(ObjectId, Range<usize>)> {
        let ports = self.port.iter().map(|port| (ObjectId::Port(PortNumber(*port.number.get_ref())), port.name.span()));
        let meters = self.meter.iter().map(|meter| (ObjectId::Meter(MeterId(*meter.id.get_ref())), meter.id.span()));
        let mirrors =
            self.mirror.iter().map(|mirror| (ObjectId::Mirror(mirror.name.get_ref().clone()), mirror.name.span()));
        let policies = self
            .ct_timeout
            .iter()
            .map(|policy| (ObjectId::TimeoutPolicy(policy.name.get_ref().as_str().into()), policy.name.span()));
        ports.chain(meters).chain(mirrors).chain(policies).collect()
    }

    /// The ports, meters, mirrors and timeout policies, if all that depends on each other is right.
    pub(super) fn check(self, mirroring: Option<&MirroringTable>) -> Result<Checked, Fault> {
        let spans = self.spans();
        for (index, port) in self.port.iter().enumerate() {
            port.check_against(&self.port[..index])?;
        }
        for (index, meter) in self.meter.iter().enumerate() {
            let id = *meter.id.get_ref();
            if self.meter[..index].iter().any(|earlier| *earlier.id.get_ref() == id) {
                return Err(fault(&meter.id, format!("meter {id} is there twice")));
            }
        }
        let ports: Vec<_> = self.port.iter().map(|port| port.port(&self.port)).collect::<Result<_, _>>()?;
        let meters = self.meter.iter().map(MeterTable::meter).collect::<Result<_, _>>()?;
        for (index, mirror) in self.mirror.iter().enumerate() {
            let name = mirror.name.get_ref();
            if self.mirror[..index].iter().any(|earlier| earlier.name.get_ref() == name) {
                return Err(fault(&mirror.name, format!("mirror \"{name}\" is there twice")));
            }
        }
        let mut map = PortMap::default();
        // They do not contradict each other.
        ports.iter().cloned().for_each(|port| map.insert(port).unwrap_or_default());
        let mirrors = self.mirror.iter().map(|mirror| mirror.mirror(&map)).collect::<Result<_, _>>()?;
        for (index, policy) in self.ct_timeout.iter().enumerate() {
            let name = policy.name.get_ref();
            if self.ct_timeout[..index].iter().any(|earlier| earlier.name.get_ref() == name) {
                return Err(fault(&policy.name, format!("timeout policy \"{name}\" is there twice")));
            }
        }
        let ct_timeouts = self.ct_timeout.iter().map(CtTimeoutTable::policy).collect::<Result<_, _>>()?;
        let mirroring = mirroring.map(|table| table.mirroring(&map)).transpose()?;
        Ok(Checked { ports, meters, mirrors, mirroring, ct_timeouts, spans })
    }
}

impl PortTable {
    fn check_against(&self, earlier: &[Self]) -> Result<(), Fault> {
        let (number, name) = (*self.number.get_ref(), self.name.get_ref());
        if PortNumber(number).is_tap() {
            return Err(fault(&self.number, format!("the number of a port is below {}", PortNumber::FIRST_TAP)));
        }
        if let Some(other) = earlier.iter().find(|other| *other.number.get_ref() == number) {
            return Err(fault(&self.number, format!("port {number} is \"{}\" already", other.name.get_ref())));
        }
        if let Some(other) = earlier.iter().find(|other| other.name.get_ref() == name) {
            return Err(fault(&self.name, format!("\"{name}\" is port {} already", other.number.get_ref())));
        }
        self.port_name().map(|_| ())
    }

    fn port_name(&self) -> Result<PortName, Fault> {
        self.name.get_ref().parse().map_err(|error: NameError| fault(&self.name, error.to_string()))
    }

    fn port(&self, all: &[Self]) -> Result<Port, Fault> {
        let kind = match self.kind() {
            Kind::Physical => self.without_tunnel(PortKind::Physical)?,
            Kind::Representor => self.without_tunnel(PortKind::Representor)?,
            Kind::Internal => self.without_tunnel(PortKind::Internal)?,
            Kind::Mirror => self.without_tunnel(PortKind::Mirror)?,
            Kind::Tunnel(protocol) => self.tunnel(protocol, all)?,
        };
        Ok(Port { number: PortNumber(*self.number.get_ref()), name: self.port_name()?, kind })
    }

    fn kind(&self) -> Kind {
        self.kind.as_ref().map_or(Kind::Physical, |kind| *kind.get_ref())
    }

    fn without_tunnel(&self, kind: PortKind) -> Result<PortKind, Fault> {
        let only = |key, kinds| format!("`{key}` is for ports of kind {kinds}, this one is \"{}\"", kind.name());
        match (&self.udp_port, &self.underlay) {
            (Some(udp_port), _) => Err(fault(udp_port, only("udp_port", OVER_UDP))),
            (None, Some(underlay)) => Err(fault(underlay, only("underlay", TUNNELS))),
            (None, None) => Ok(kind),
        }
    }

    fn tunnel(&self, protocol: TunnelProtocol, all: &[Self]) -> Result<PortKind, Fault> {
        let Some(reference) = &self.underlay else {
            let name = self.name.get_ref();
            return Err(fault(&self.name, format!("tunnel \"{name}\" needs an `underlay`, the port its packets take")));
        };
        let found = all.iter().find(|port| match reference.get_ref() {
            PortReference::Number(number) => port.number.get_ref() == number,
            PortReference::Name(name) => port.name.get_ref() == name,
        });
        let Some(underlay) = found else {
            return Err(fault(
                reference,
                format!("there is no port {} to be the underlay", reference.get_ref().text()),
            ));
        };
        if matches!(underlay.kind(), Kind::Tunnel(_) | Kind::Mirror) {
            return Err(fault(reference, format!("port \"{}\" cannot be an underlay", underlay.name.get_ref())));
        }
        let udp_port = match (&self.udp_port, protocol.default_udp_port()) {
            (None, default) => default,
            (Some(udp_port), None) => {
                let kind = protocol.name();
                let message = format!("`udp_port` is for ports of kind {OVER_UDP}, this one is \"{kind}\"");
                return Err(fault(udp_port, message));
            }
            (Some(udp_port), Some(_)) if *udp_port.get_ref() == 0 => {
                return Err(fault(udp_port, "a UDP port is from 1 to 65535".to_owned()));
            }
            (Some(udp_port), Some(_)) => Some(*udp_port.get_ref()),
        };
        Ok(PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: PortNumber(*underlay.number.get_ref()) }))
    }
}

impl MeterTable {
    fn meter(&self) -> Result<Meter, Fault> {
        let id = *self.id.get_ref();
        let (unit, rate) = match (&self.kbps, &self.pps) {
            (Some(kbps), None) => (MeterUnit::Kilobits, kbps),
            (None, Some(pps)) => (MeterUnit::Packets, pps),
            (Some(_), Some(pps)) => return Err(fault(pps, format!("meter {id} has both `kbps` and `pps`"))),
            (None, None) => return Err(fault(&self.id, format!("meter {id} needs either `kbps` or `pps`"))),
        };
        let first = (rate, self.burst);
        let more = self.bands.iter().map(|band| (&band.rate, band.burst));
        let mut bands = Vec::new();
        for (rate, burst) in std::iter::once(first).chain(more) {
            if *rate.get_ref() == 0 {
                return Err(fault(rate, format!("meter {id} would let nothing pass")));
            }
            if bands.len() == MeterBand::LIMIT {
                return Err(fault(rate, format!("meter {id} has more than {} bands", MeterBand::LIMIT)));
            }
            bands.push(MeterBand { rate: *rate.get_ref(), burst });
        }
        Ok(Meter { id: MeterId(id), unit, bands })
    }
}

impl MirrorTable {
    fn mirror(&self, ports: &PortMap) -> Result<Mirror, Fault> {
        let name = self.name.get_ref();
        let key = self.key.get_ref();
        let parsed = text::parse_key(key, ports).map_err(|error| {
            let before = key.get(..error.offset).unwrap_or(key);
            fault(&self.key, format!("mirror \"{name}\": behind \"{before}\", expected {}", error.expected))
        })?;
        let port = |reference: &Spanned<PortReference>| {
            reference
                .get_ref()
                .find(ports)
                .ok_or_else(|| fault(reference, format!("there is no port {} to copy to", reference.get_ref().text())))
        };
        let copies = self.ports.iter().map(port).collect::<Result<_, _>>()?;
        let mirror =
            Mirror::new(name.as_str(), parsed.matching, copies).map_err(|message| fault(&self.name, message))?;
        if mirror.is_reserved() {
            return Err(fault(
                &self.name,
                format!("the names of mirrors from \"{}\" on are those of [mirror]", Mirror::RESERVED),
            ));
        }
        if ports.get(mirror.port()).is_none() {
            return Err(fault(&self.key, format!("there is no port {} to be mirrored", mirror.port())));
        }
        Ok(mirror)
    }
}

impl CtTimeoutTable {
    fn policy(&self) -> Result<TimeoutPolicy, Fault> {
        let name = self.name.get_ref();
        TimeoutPolicy::check_name(name).map_err(|error| fault(&self.name, error.to_string()))?;
        let mut policy = TimeoutPolicy::new(name.as_str());
        for (key, seconds) in [
            (TimeoutKey::TcpSynSent, self.tcp_syn_sent),
            (TimeoutKey::TcpSynRecv, self.tcp_syn_recv),
            (TimeoutKey::TcpEstablished, self.tcp_established),
            (TimeoutKey::TcpFinWait, self.tcp_fin_wait),
            (TimeoutKey::TcpCloseWait, self.tcp_close_wait),
            (TimeoutKey::TcpLastAck, self.tcp_last_ack),
            (TimeoutKey::TcpTimeWait, self.tcp_time_wait),
            (TimeoutKey::TcpClose, self.tcp_close),
            (TimeoutKey::TcpSynSent2, self.tcp_syn_sent2),
            (TimeoutKey::TcpRetransmit, self.tcp_retransmit),
            (TimeoutKey::TcpUnack, self.tcp_unack),
            (TimeoutKey::UdpFirst, self.udp_first),
            (TimeoutKey::UdpSingle, self.udp_single),
            (TimeoutKey::UdpMultiple, self.udp_multiple),
            (TimeoutKey::IcmpFirst, self.icmp_first),
            (TimeoutKey::IcmpReply, self.icmp_reply),
        ] {
            if let Some(seconds) = seconds {
                policy.set(key, seconds);
            }
        }
        Ok(policy)
    }
}

fn fault<T>(place: &Spanned<T>, message: String) -> Fault {
    Fault::at(place, message)
}
