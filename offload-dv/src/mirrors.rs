//! Mirrors: copies of packets before any flow sees them.

use crossbeam_channel::bounded;
use sluice_flow::action::{Action, ActionKind, ActionList};
use sluice_flow::backend::{MirrorCounters, MirrorFault, Mirrors, Outlet, Placement};
use sluice_flow::field::Field;
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Flow, Priority};

use crate::backend::DvNic;
use crate::desk::Desk;
use crate::switch::Copying;
use crate::translate::{Matched, Vports, translate};

/// Returns what a mirror is to the switch. What can be matched and sent is what a flow could.
pub(crate) fn copying(mirror: &Mirror, vports: &dyn Vports) -> Result<Copying, Refusal> {
    let mut copying = Copying { matched: Vec::with_capacity(mirror.matches.len()), copies: Vec::new() };
    for matching in &mirror.matches {
        let (matched, copies) = copying_of(matching, &mirror.copies, vports)?;
        copying.matched.push(matched);
        copying.copies = copies;
    }
    Ok(copying)
}

fn copying_of(matching: &Match, copies: &[PortNumber], vports: &dyn Vports) -> Result<(Matched, Vec<u16>), Refusal> {
    let actions: ActionList = copies.iter().map(|port| Action::Output(*port)).collect();
    let key = MaskedKey::new(matching);
    let flow = Flow::new(None, key, actions, Priority::default(), Expiry::default(), &Seed([0; 16]));
    let rule = translate(&flow, vports)?;
    if rule.table.entrance.is_some() {
        let reason = "mirrors see packets before their tunnel headers are looked at";
        return Err(Refusal::Field { field: Field::InPort, reason: reason.into() });
    }
    if !rule.plan.behind.is_empty() {
        return Err(Refusal::Action { action: ActionKind::Output, reason: "a copy goes there already".into() });
    }
    if rule.matched.guarantees.leaves_fragments {
        let reason = "copying some fragments and not others: the device does not tell first ones from later ones";
        return Err(Refusal::Combination { reason: reason.into() });
    }
    Ok((rule.matched, rule.plan.outputs))
}

impl Mirrors for DvNic {
    fn set_mirror(&self, mirror: &Mirror) -> Result<(), Refusal> {
        let (name, copying) = (mirror.name.clone(), copying(mirror, self.ports())?);
        self.owner().call(move |desk| desk.rules.switch().set_mirror(&name, copying))?
    }

    fn remove_mirror(&self, name: &str) -> Result<(), Refusal> {
        let name = name.to_owned();
        self.owner().call(move |desk| desk.rules.switch().remove_mirror(&name))?
    }

    fn mirror_counters(&self, name: &str) -> Option<MirrorCounters> {
        let name = name.to_owned();
        let (tell, told) = bounded(1);
        let ask = move |desk: &mut Desk| {
            // Who asked hears of nothing if there is no such mirror.
            let Some(bulk) = desk.rules.switch().bulk_of_mirror(&name) else { return };
            desk.ask_then(bulk, move |rules, is_done| {
                let count = rules.switch().mirror_count(&name).filter(|_| is_done);
                tell.send(count).unwrap_or_default();
            });
        };
        self.owner().post(ask).ok()?;
        let count = self.owner().wait(&told).ok()??;
        Some(MirrorCounters { packets: count.packets, bytes: count.bytes, placement: Placement::Hardware })
    }

    fn check_mirrors(&self, _: bool) -> Result<Vec<MirrorFault>, Refusal> {
        // What is in the tables of this process nobody else changes.
        Ok(Vec::new())
    }

    fn outlet(&self) -> Outlet<'_> {
        Outlet::Ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::UPLINK;
    use sluice_flow::port::{Tunnel, TunnelProtocol};
    use sluice_flow::text::parse_key;

    /// The uplink, a function, and a tunnel.
    struct Three;

    impl Vports for Three {
        fn vport(&self, port: PortNumber) -> Result<u16, Refusal> {
            Ok(if port.0 == 1 { UPLINK } else { 0 })
        }

        fn tunnel(&self, port: PortNumber) -> Option<Tunnel> {
            let protocol = TunnelProtocol::Vxlan;
            let tunnel = Tunnel { protocol, udp_port: protocol.default_udp_port(), underlay: PortNumber(1) };
            (port.0 == 3).then_some(tunnel)
        }
    }

    #[test]
    fn what_a_mirror_cannot_see_or_send_is_refused() {
        let of = |key: &str, copy: u32| {
            let matching = parse_key(key, &()).unwrap().matching;
            copying(&Mirror::new("m", matching, vec![PortNumber(copy)]).unwrap(), &Three).map(drop)
        };
        assert!(of("in_port(1)", 2).is_ok());
        let refusal = of("in_port(3)", 2).unwrap_err().to_string();
        assert_eq!(refusal, "field in_port: mirrors see packets before their tunnel headers are looked at");
        assert_eq!(
            of("in_port(2)", 3).unwrap_err().to_string(),
            "action output: a tunnel port needs set(tunnel()) before"
        );
        let some_fragments = of("in_port(1),eth(),eth_type(0x0800),ipv4(frag=0/0x2)", 2).unwrap_err().to_string();
        assert!(some_fragments.starts_with("combination: copying some fragments and not others"), "{some_fragments}");
    }
}
