//! What of a `ct` action the device cannot do.

use std::borrow::Cow;
use std::net::IpAddr;

use sluice_flow::action::{ActionKind, Commit, Conntrack as Action, Nat, Translation};
use sluice_flow::refusal::Refusal;

use crate::packet::eth_type;

use super::gateway::Kind;
use super::policies::Policies;

/// Whether the device can do a `ct` action to packets of this Ethernet type and this protocol of IP, as far as a match
/// guarantees them.
pub(crate) fn check(
    action: &Action,
    ethernet_type: Option<u16>,
    protocol: Option<u8>,
    policies: &Policies,
) -> Result<(), Refusal> {
    let is_ipv6 = match ethernet_type {
        Some(eth_type::IPV4) => false,
        Some(eth_type::IPV6) => true,
        _ => {
            let reason = "ct without a match on eth_type(0x0800) or eth_type(0x86dd)";
            return Err(Refusal::Combination { reason: reason.into() });
        }
    };
    if let Some(name) = &action.timeout {
        policies.get(name)?;
    }
    if let Some(name) = &action.helper {
        check_helper(name, protocol)?;
    }
    let commits = action.commit != Commit::No;
    if !commits && (action.mark.is_some() || action.label.is_some()) {
        return refuse("mark and label can be set only with commit");
    }
    if action.mark.is_some_and(|(_, mask)| mask == 0) || action.label.is_some_and(|(_, mask)| mask == 0) {
        return refuse("the mask of mark or label has no bit");
    }
    match &action.nat {
        Some(Nat::New(_)) if !commits => refuse("a new translation is possible only with commit"),
        Some(Nat::New(translation)) => check_translation(translation, is_ipv6),
        Some(Nat::Existing) | None => Ok(()),
    }
}

/// As in the kernel, only a flow that matches the protocol can have a gateway (`ovs_ct_add_helper`).
fn check_helper(name: &str, protocol: Option<u8>) -> Result<(), Refusal> {
    let Some(kind) = Kind::named(name) else {
        return refuse(format!("helper={name}: there is no such application layer gateway"));
    };
    let needed = kind.protocol();
    if protocol != Some(needed) {
        return refuse(format!("helper={name} without a match on proto={needed}"));
    }
    Ok(())
}

fn check_translation(translation: &Translation, is_ipv6: bool) -> Result<(), Refusal> {
    let Some((first, last)) = translation.addresses else {
        return if translation.ports.is_some() { refuse("nat with ports, but without addresses") } else { Ok(()) };
    };
    if matches!((first, last), (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_))) {
        return refuse("nat with addresses of both families");
    }
    if first.is_ipv6() != is_ipv6 {
        return refuse("nat with addresses of another family than the packet's");
    }
    if first > last {
        return refuse("the first address of nat is behind the last");
    }
    Ok(())
}

fn refuse(reason: impl Into<Cow<'static, str>>) -> Result<(), Refusal> {
    Err(Refusal::Action { action: ActionKind::Ct, reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::action::{NatSide, PortPick};

    fn reason(action: &Action, ethernet_type: Option<u16>) -> String {
        check(action, ethernet_type, None, &Policies::default()).unwrap_err().to_string()
    }

    #[test]
    fn what_does_not_exist_is_refused_by_its_name() {
        let action = Action { timeout: Some("slow".into()), ..Action::default() };
        assert!(reason(&action, Some(eth_type::IPV4)).contains("timeout=slow"));
        for name in ["sip", "amanda", "pptp"] {
            let action = Action { helper: Some(name.into()), ..Action::default() };
            let expected = format!("helper={name}: there is no such application layer gateway");
            assert!(reason(&action, Some(eth_type::IPV6)).contains(&expected));
        }
    }

    #[test]
    fn a_gateway_needs_the_protocol_that_it_reads() {
        let check = |name: &str, protocol| {
            let action = Action { helper: Some(name.into()), ..Action::default() };
            check(&action, Some(eth_type::IPV4), protocol, &Policies::default())
        };
        assert_eq!((check("ftp", Some(6)), check("tftp", Some(17))), (Ok(()), Ok(())));
        for (name, protocol) in [("ftp", None), ("ftp", Some(17)), ("tftp", Some(6))] {
            assert!(check(name, protocol).unwrap_err().to_string().contains("match on proto"));
        }
    }

    #[test]
    fn only_ip_is_tracked() {
        for ethernet_type in [None, Some(eth_type::ARP)] {
            assert!(reason(&Action::default(), ethernet_type).contains("eth_type"));
        }
        assert_eq!(check(&Action::default(), Some(eth_type::IPV6), None, &Policies::default()), Ok(()));
    }

    #[test]
    fn nothing_is_set_without_a_commit() {
        let action = Action { mark: Some((1, 1)), ..Action::default() };
        assert!(reason(&action, Some(eth_type::IPV4)).contains("commit"));
        let action = Action { commit: Commit::Yes, label: Some((0, 0)), ..Action::default() };
        assert!(reason(&action, Some(eth_type::IPV4)).contains("mask"));
    }

    #[test]
    fn a_range_of_addresses_has_one_family_and_a_direction() {
        let with = |first: &str, last: &str| {
            let translation = Translation {
                side: NatSide::Source,
                addresses: Some((first.parse().unwrap(), last.parse().unwrap())),
                ports: None,
                persistent: false,
                pick: PortPick::Default,
            };
            let action = Action { commit: Commit::Yes, nat: Some(Nat::New(translation)), ..Action::default() };
            check(&action, Some(eth_type::IPV4), None, &Policies::default())
        };
        assert_eq!(with("10.0.0.1", "10.0.0.9"), Ok(()));
        for (first, last) in [("10.0.0.9", "10.0.0.1"), ("10.0.0.1", "fd00::1"), ("fd00::1", "fd00::2")] {
            assert!(with(first, last).is_err());
        }
    }
}
