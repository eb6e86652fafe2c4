//! The ports of a datapath, as far as they were shown or flows name them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use sluice_flow::action::Action;
use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::port::{PortKind, PortNames, PortNumber, Tunnel, TunnelProtocol};

use crate::tunnel_name::{tunnel_of_device, tunnel_protocol};

/// The port that stands for what is below all tunnels: routes, which flows say nothing of, lead there.
pub(super) const UNDERLAY: PortNumber = PortNumber(u32::MAX - 1);
/// Ports that are known by name only have numbers from here on.
const FIRST_UNNUMBERED: u32 = 1 << 20;
/// Ports of a datapath at most: as many as numbers of ports in a datapath of OVS (`MAX_PORTS` in `lib/dpif-netdev.c`, `DP_MAX_PORTS` in the
/// kernel). Of a dump that speaks of more, the others are not known.
pub(super) const LIMIT: usize = 1 << 16;

/// The ports.
#[derive(Default)]
pub(super) struct Ports {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    names: BTreeMap<PortNumber, String>,
    numbers: HashMap<String, PortNumber>,
    /// What ports are, where that was shown or a name tells it.
    kinds: BTreeMap<PortNumber, PortKind>,
}

impl Ports {
    /// Takes a port that was shown, with the word for its kind if there is one.
    pub(super) fn show(&self, number: PortNumber, name: &str, kind: Option<&str>) {
        let mut inner = self.inner.borrow_mut();
        if inner.numbers.len() >= LIMIT && !inner.numbers.contains_key(name) {
            return;
        }
        inner.names.insert(number, name.to_owned());
        inner.numbers.insert(name.to_owned(), number);
        let kind = match kind {
            Some("internal" | "tap") => Some(PortKind::Internal),
            Some(word) => tunnel_protocol(word).map(|protocol| tunnel(protocol, None)),
            None => None,
        };
        if let Some(kind) = kind_of_name(name).or(kind) {
            inner.kinds.insert(number, kind);
        }
    }

    /// Returns what a port is: as it was shown, as its name tells, or as a flow has shown it; `None` where nothing does.
    pub(super) fn kind(&self, number: PortNumber) -> Option<PortKind> {
        self.inner.borrow().kinds.get(&number).cloned()
    }

    /// Takes a port for a tunnel because a flow shows that, unless it is already known as one.
    pub(super) fn learn(&self, number: PortNumber, protocol: TunnelProtocol) {
        let mut inner = self.inner.borrow_mut();
        let is_known = matches!(inner.kinds.get(&number), Some(PortKind::Tunnel(_)));
        if !is_known && inner.kinds.len() < LIMIT {
            inner.kinds.insert(number, tunnel(protocol, None));
        }
    }

    /// Calls a function with the names of ports.
    pub(super) fn named<R>(&self, with: impl FnOnce(&dyn PortNames) -> R) -> R {
        with(&Names(&self.inner.borrow()))
    }
}

/// While a text is read: a name that was not shown becomes a port.
impl PortNames for Ports {
    fn number(&self, name: &str) -> Option<PortNumber> {
        let mut inner = self.inner.borrow_mut();
        if let Some(number) = inner.numbers.get(name) {
            return Some(*number);
        }
        let number = PortNumber(FIRST_UNNUMBERED.checked_add(u32::try_from(inner.numbers.len()).ok()?)?);
        if inner.numbers.len() >= LIMIT {
            return None;
        }
        inner.numbers.insert(name.to_owned(), number);
        inner.names.insert(number, name.to_owned());
        if let Some(kind) = kind_of_name(name) {
            inner.kinds.insert(number, kind);
        }
        Some(number)
    }

    fn name(&self, _: PortNumber) -> Option<&str> {
        None
    }
}

/// While a text is written.
struct Names<'a>(&'a Inner);

impl PortNames for Names<'_> {
    fn number(&self, name: &str) -> Option<PortNumber> {
        self.0.numbers.get(name).copied()
    }

    fn name(&self, number: PortNumber) -> Option<&str> {
        self.0.names.get(&number).map(String::as_str)
    }
}

/// A port that a flow names, and the tunnel that the flow shows it to be.
pub(super) type Named = (PortNumber, Option<TunnelProtocol>);

/// Returns the ports that a flow names. A packet with an outer header comes from a tunnel port, and goes to one after `set(tunnel(…))`.
pub(super) fn named_by(flow: &Flow) -> Vec<Named> {
    let mut ports = Vec::new();
    let (in_port, mask) = flow.matching().get(Field::InPort);
    if let (true, Ok(number)) = (mask != 0, u32::try_from(in_port)) {
        let has = |field| flow.matching().get(field).0 != 0;
        ports.push((PortNumber(number), has(Field::TunnelPresent).then(|| by_options(&has))));
    }
    add_outputs(&flow.actions, &mut ports);
    ports
}

/// OVS writes `set(tunnel(…))` in front of the very output to a tunnel port; outputs behind that one may go to any port.
fn add_outputs(actions: &[Action], ports: &mut Vec<Named>) {
    let mut header = None;
    for action in actions {
        match action {
            Action::SetTunnel(set) => {
                header = Some(by_options(&|field| set.get(field).is_some_and(|(value, _)| value != 0)));
            }
            Action::Output(port) => ports.push((*port, header.take())),
            Action::TunnelPop(port) => ports.push((*port, None)),
            Action::TunnelPush(push) => ports.extend([(push.tunnel_port, None), (push.out_port, None)]),
            other => other.lists().for_each(|list| add_outputs(list, ports)),
        }
    }
}

/// The protocol whose options an outer header has. One without any could be each, which makes no difference to a rule.
fn by_options(has: &dyn Fn(Field) -> bool) -> TunnelProtocol {
    let protocols = [
        (Field::GenevePresent, TunnelProtocol::Geneve),
        (Field::ErspanPresent, TunnelProtocol::Erspan),
        (Field::GtpuPresent, TunnelProtocol::Gtpu),
    ];
    protocols.into_iter().find(|(field, _)| has(*field)).map_or(TunnelProtocol::Vxlan, |(_, protocol)| protocol)
}

fn kind_of_name(name: &str) -> Option<PortKind> {
    tunnel_of_device(name).map(|(protocol, udp_port)| tunnel(protocol, udp_port))
}

fn tunnel(protocol: TunnelProtocol, udp_port: Option<u16>) -> PortKind {
    let udp_port = protocol.default_udp_port().map(|default| udp_port.unwrap_or(default));
    PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: UNDERLAY })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
mod tests {
    use super::*;

    #[test]
    fn only_the_output_right_behind_an_outer_header_shows_a_tunnel_port() {
        let matching = sluice_flow::text::parse_key("in_port(1),eth(),eth_type(0x0800)", &()).unwrap().matching;
        let header = "set(tunnel(tun_id=0x1,dst=1.1.1.1,ttl=64,flags(key)))";
        let actions = format!("2,{header},4,3,clone({header},5),6");
        let flow = Flow::new(
            None,
            sluice_flow::MaskedKey::new(&matching),
            sluice_flow::text::parse_actions(&actions, &()).unwrap(),
            sluice_flow::Priority::default(),
            sluice_flow::Expiry::default(),
            &sluice_flow::ufid::Seed([0; 16]),
        );
        let tunnels: Vec<_> = named_by(&flow).iter().map(|(port, tunnel)| (port.0, tunnel.is_some())).collect();
        assert_eq!(tunnels, [(1, false), (2, false), (4, true), (3, false), (5, true), (6, false)]);
    }

    #[test]
    fn a_name_that_was_not_shown_becomes_a_port_and_keeps_its_number() {
        let ports = Ports::default();
        ports.show(PortNumber(3), "p0", None);
        let number = ports.number("veth1").unwrap();
        assert_eq!((ports.number("p0"), ports.number("veth1")), (Some(PortNumber(3)), Some(number)));
        assert_ne!(ports.number("veth2"), Some(number));
        assert_eq!(ports.named(|names| names.name(number).map(str::to_owned)), Some("veth1".to_owned()));
    }
}
