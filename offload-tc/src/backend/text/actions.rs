//! Actions in the syntax of `tc-actions(8)`.

use std::fmt::{Display, Write};
use std::net::IpAddr;

use super::forms::{hex, ip_protocol, label, mac, protocol};
use super::keys::{name_of, options};
use crate::wire::action::{
    Action, Command, Conntrack, Control, Encapsulation, Entry, Family, Header, Helper, Mirred, Mpls, Operation, Police,
    SkbEdit, Vlan, checksum, conntrack_bit,
};

/// Appends an action.
pub(super) fn write(action: &Action, device: &dyn Fn(u32) -> String, text: &mut String) {
    let _ = write!(text, " action {}", action.operation.name());
    let shared = Some(action.index).filter(|index| *index != 0);
    match (&action.operation, shared) {
        (_, Some(index)) => say(text, "index", Some(index)),
        (Operation::Generic, _) => {}
        (operation, _) => words(operation, device, text),
    }
    // For these tc implies what comes next.
    if !matches!(action.operation, Operation::Mirred { .. }) && shared.is_none() {
        let _ = write!(text, " {}", control(action.control));
    }
    if let (Operation::Police(police), None) = (&action.operation, shared) {
        // What tc has in front is for packets that exceed the limit; without a word for the others it lets them pass.
        let _ = write!(text, " / {}", control(police.conform));
    }
    if let Some(cookie) = &action.cookie {
        let _ = write!(text, " cookie {}", hex(cookie.bytes()));
    }
}

fn words(operation: &Operation, device: &dyn Fn(u32) -> String, text: &mut String) {
    match operation {
        Operation::Generic => {}
        Operation::Checksum(what) => {
            const NAMES: [(u32, &str); 7] = [
                (checksum::IPV4_HEADER, "ip4h"),
                (checksum::ICMP, "icmp"),
                (checksum::IGMP, "igmp"),
                (checksum::TCP, "tcp"),
                (checksum::UDP, "udp"),
                (checksum::UDP_LITE, "udplite"),
                (checksum::SCTP, "sctp"),
            ];
            NAMES.iter().filter(|(bit, _)| what & bit != 0).for_each(|(_, name)| flag(text, name, true));
        }
        Operation::Conntrack(action) => conntrack(action, text),
        Operation::Edit(keys) => {
            let _ = write!(text, " ex keys {}", keys.len());
            for key in keys {
                let header = match key.header {
                    Header::Network => "",
                    Header::Ethernet => "eth",
                    Header::Ipv4 => "ipv4",
                    Header::Ipv6 => "ipv6",
                    Header::Tcp => "tcp",
                    Header::Udp => "udp",
                };
                let command = if key.command == Command::Add { "add" } else { "val" };
                let (offset, value, kept) = (key.offset, key.value, !key.mask);
                let _ = write!(text, " at {header}+{offset}: {command} {value:08x} mask {kept:08x}");
            }
        }
        Operation::Mirred { to, interface } => {
            let how = match to {
                Mirred::EgressRedirect => "egress redirect",
                Mirred::EgressMirror => "egress mirror",
                Mirred::IngressRedirect => "ingress redirect",
                Mirred::IngressMirror => "ingress mirror",
            };
            let _ = write!(text, " {how} dev {}", device(*interface));
        }
        Operation::Mpls(action) => mpls(action, text),
        Operation::Police(police) => limits(police, text),
        Operation::Sample { rate, group, truncate } => {
            say(text, "rate", Some(rate));
            say(text, "group", Some(group));
            say(text, "trunc", truncate.as_ref());
        }
        Operation::SkbEdit(SkbEdit { priority, mark, packet_type }) => {
            say(text, "priority", priority.as_ref());
            say(text, "mark", mark.map(|(mark, mask)| format!("{mark}/{mask:#x}")));
            say(text, "ptype", packet_type.map(|kind| if kind == 0 { "host".into() } else { kind.to_string() }));
        }
        Operation::TunnelRelease => text.push_str(" unset"),
        Operation::TunnelSet(header) => encapsulation(header, text),
        Operation::Vlan(action) => vlan(*action, text),
    }
}

fn conntrack(action: &Conntrack, text: &mut String) {
    let has = |bit| action.bits & bit != 0;
    flag(text, "commit", has(conntrack_bit::COMMIT));
    flag(text, "force", has(conntrack_bit::FORCE));
    if has(conntrack_bit::CLEAR) {
        return text.push_str(" clear");
    }
    say(text, "zone", Some(action.zone).filter(|zone| *zone != 0));
    say(text, "mark", action.mark.map(|(mark, mask)| format!("{mark:#x}/{mask:#x}")));
    say(text, "label", action.label.map(|(value, mask)| label(value, mask)));
    flag(text, "nat", has(conntrack_bit::NAT));
    flag(text, "src", has(conntrack_bit::NAT_SOURCE));
    flag(text, "dst", has(conntrack_bit::NAT_DESTINATION));
    let range =
        |(first, last): (IpAddr, IpAddr)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    say(text, "addr", action.translation.addresses.map(range));
    say(text, "port", action.translation.ports.map(|(first, last)| format!("{first}-{last}")));
    say(text, "helper", action.helper.as_ref().map(helper));
}

fn helper(Helper { name, family, protocol }: &Helper) -> String {
    let family = match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    };
    match ip_protocol(*protocol) {
        Some(protocol) => format!("{family}-{protocol}-{name}"),
        None => format!("{family}-{protocol}-{name}"),
    }
}

fn mpls(action: &Mpls, text: &mut String) {
    let (name, entry) = match action {
        Mpls::Pop { protocol } => ("pop", Entry { protocol: Some(*protocol), ..Entry::default() }),
        Mpls::Push(entry) => ("push", *entry),
        Mpls::Modify(entry) => ("modify", *entry),
        Mpls::DecrementTtl => ("dec_ttl", Entry::default()),
        Mpls::PushOutside(entry) => ("mac_push", *entry),
    };
    flag(text, name, true);
    say(text, "protocol", entry.protocol.map(protocol));
    say(text, "label", entry.label);
    say(text, "tc", entry.class);
    say(text, "ttl", entry.ttl);
    say(text, "bos", entry.bottom.map(u8::from));
}

fn limits(police: &Police, text: &mut String) {
    say(text, "rate", police.rate.map(|bytes| format!("{}bit", u128::from(bytes) * 8)));
    say(text, "burst", Some(police.burst).filter(|burst| *burst != 0));
    say(text, "pkts_rate", police.packets.map(|(rate, _)| rate));
    say(text, "pkts_burst", police.packets.map(|(_, burst)| burst));
    say(text, "mtu", Some(police.mtu).filter(|mtu| *mtu != 0));
    let _ = write!(text, " conform-exceed");
}

fn encapsulation(header: &Encapsulation, text: &mut String) {
    text.push_str(" set");
    let (source, destination) = match (header.ipv4, header.ipv6) {
        (Some((source, destination)), _) => (Some(IpAddr::from(source)), Some(IpAddr::from(destination))),
        (None, Some((source, destination))) => (Some(source.into()), Some(destination.into())),
        (None, None) => (None, None),
    };
    say(text, "src_ip", source);
    say(text, "dst_ip", destination);
    say(text, "id", header.key);
    say(text, "dst_port", header.port);
    say(text, "tos", header.tos.map(|tos| format!("{tos:#x}")));
    say(text, "ttl", header.ttl);
    if let Some(value) = &header.options {
        say(text, name_of(value), Some(options(value)));
    }
    flag(text, "nocsum", header.no_checksum);
    flag(text, "nofrag", header.no_fragment);
}

fn vlan(action: Vlan, text: &mut String) {
    match action {
        Vlan::Pop => text.push_str(" pop"),
        Vlan::Push { protocol: kind, id, priority } => {
            let _ = write!(text, " push protocol {} id {id} priority {priority}", protocol(kind));
        }
        Vlan::Modify { protocol: kind, id, priority } => {
            let _ = write!(text, " modify protocol {} id {id}", protocol(kind));
            say(text, "priority", priority);
        }
        Vlan::PopEthernet => text.push_str(" pop_eth"),
        Vlan::PushEthernet { destination, source } => {
            let _ = write!(text, " push_eth dst_mac {} src_mac {}", mac(&destination), mac(&source));
        }
    }
}

fn control(control: Control) -> String {
    match control {
        Control::Ok => "pass".into(),
        Control::Shot => "drop".into(),
        Control::Pipe => "pipe".into(),
        Control::Stolen => "stolen".into(),
        Control::GotoChain(chain) => format!("goto chain {chain}"),
        Control::Jump(count) => format!("jump {count}"),
        Control::Continue => "continue".into(),
        Control::Other(1) => "reclassify".into(),
        Control::Other(number) => number.to_string(),
    }
}

fn say(text: &mut String, name: &str, value: Option<impl Display>) {
    if let Some(value) = value {
        let _ = write!(text, " {name} {value}");
    }
}

fn flag(text: &mut String, name: &str, is_set: bool) {
    if is_set {
        let _ = write!(text, " {name}");
    }
}
