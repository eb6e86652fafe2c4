//! The arguments of single actions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::FieldSet;
use sluice_flow::action::{
    Action, Commit, Conntrack, FlowSample, GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE, HashAlgorithm, Nat, NatSide, NshHeader,
    NshMetadata, OuterHeaders, OuterNetwork, OuterTunnel, OuterUdp, PortPick, SampleDirection, ToController,
    Translation, TunnelPush, UserData, Userspace,
};
use sluice_flow::field::{Attribute, Field, GENEVE_CHUNKS};
use sluice_flow::port::{Port, PortNumber};

use super::Maker;
use super::draw::Draw;
use super::feature::{Feature, Form};
use super::matching::{geneve_bytes, geneve_options};

pub(super) fn conntrack(maker: &mut Maker<'_>, version6: bool, draw: &mut Draw<'_>) -> Conntrack {
    let mut allows = |form| maker.allows(Feature::Form(form));
    let commit = match draw.below(4) {
        1 | 2 if allows(Form::CtCommit) => Commit::Yes,
        3 if allows(Form::CtForceCommit) => Commit::Force,
        _ => Commit::No,
    };
    let zone = if draw.chance(50) && allows(Form::CtZone) { draw.bits16() } else { 0 };
    let mut ct = Conntrack { commit, zone, ..Conntrack::default() };
    let translates = draw.chance(60);
    if commit == Commit::No {
        if translates && allows(Form::Nat) {
            ct.nat = Some(Nat::Existing);
        }
        return ct;
    }
    if translates {
        ct.nat = translation(&mut allows, version6, draw);
    }
    if draw.chance(30) && allows(Form::CtMark) {
        let mask = u32::try_from(draw.mask(32)).unwrap_or(u32::MAX);
        ct.mark = Some((draw.bits32() & mask, mask));
    }
    if draw.chance(30) && allows(Form::CtLabel) {
        let mask = draw.mask(128);
        ct.label = Some((draw.bits(128) & mask, mask));
    }
    if draw.chance(20) && allows(Form::CtHelper) {
        ct.helper = Some(draw.pick(&["ftp", "tftp"]).into());
    }
    if draw.chance(20) && allows(Form::CtTimeout) {
        ct.timeout = Some(draw.pick(&["ovs_tp_1_tcp4", "policy"]).into());
    }
    ct
}

fn translation(allows: &mut dyn FnMut(Form) -> bool, version6: bool, draw: &mut Draw<'_>) -> Option<Nat> {
    let side = match draw.below(3) {
        1 if allows(Form::NatSource) => NatSide::Source,
        2 if allows(Form::NatDestination) => NatSide::Destination,
        _ => return allows(Form::Nat).then_some(Nat::Existing),
    };
    let mut nat = Translation { side, addresses: None, ports: None, persistent: false, pick: PortPick::Default };
    let wants_address = draw.chance(80) || !allows(Form::NatOwnAddress);
    if wants_address && (!version6 || allows(Form::NatIpv6)) {
        let width = if version6 { 128 } else { 32 };
        let address = |bits: u128| match u32::try_from(bits) {
            Ok(bits) if !version6 => IpAddr::V4(Ipv4Addr::from_bits(bits)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        };
        let first = draw.bits(width).max(1);
        let ranged = draw.chance(50) && allows(Form::NatRange);
        let last = if ranged { draw.bits(width).max(first) } else { first };
        nat.addresses = Some((address(first), address(last)));
        let ported = draw.below(3);
        let may_port = !version6 || ported > 0 && allows(Form::NatIpv6Port);
        let port = draw.bits16().max(1);
        nat.ports = match ported {
            1 if may_port && allows(Form::NatPort) => Some((port, port)),
            2 if may_port && allows(Form::NatPortRange) => Some((port, draw.bits16().max(port))),
            _ => None,
        };
        nat.persistent = draw.chance(30) && allows(Form::NatPersistent);
        nat.pick = match draw.below(4) {
            2 if allows(Form::NatHash) => PortPick::Hash,
            3 if allows(Form::NatRandom) => PortPick::Random,
            _ => PortPick::Default,
        };
    }
    Some(Nat::New(nat))
}

/// The outer header of `set(tunnel(…))`, complete enough for the kernel: a destination and a time to live.
pub(super) fn tunnel(maker: &mut Maker<'_>, draw: &mut Draw<'_>) -> FieldSet {
    let version6 = draw.chance(40) && maker.allows(Feature::SetTunnel(Field::TunnelIpv6Dst));
    let (source, destination) = if version6 {
        (Field::TunnelIpv6Src, Field::TunnelIpv6Dst)
    } else {
        (Field::TunnelIpv4Src, Field::TunnelIpv4Dst)
    };
    let mut fields: Vec<(Field, u128, u128)> = Vec::new();
    let width = destination.spec().width;
    let mut exactly = |field: Field, value: u128| fields.push((field, value, field.full_mask()));
    exactly(destination, draw.bits(width).max(1));
    exactly(Field::TunnelTtl, draw.bits(8));
    for field in [source, Field::TunnelTos, Field::TunnelTpSrc, Field::TunnelTpDst] {
        if draw.chance(40) && maker.allows(Feature::SetTunnel(field)) {
            exactly(field, draw.bits(field.spec().width));
        }
    }
    // The header carries an identifier exactly if the flag `key` says so (`OVS_TUNNEL_KEY_ATTR_ID`).
    let identified = draw.chance(60) && maker.allows(Feature::SetTunnel(Field::TunnelId));
    if identified {
        exactly(Field::TunnelId, draw.bits(64).max(1));
    }
    if (identified || draw.chance(40)) && maker.allows(Feature::SetTunnel(Field::TunnelFlags)) {
        exactly(Field::TunnelFlags, draw.bits(4) & !4 | u128::from(identified) << 2);
    }
    let mut allows = |field| maker.allows(Feature::SetTunnel(field));
    match draw.below(10) {
        4 if allows(Field::VxlanGbpPresent) => {
            exactly(Field::VxlanGbpPresent, 1);
            exactly(Field::VxlanGbpId, draw.bits(16));
            exactly(Field::VxlanGbpFlags, draw.bits(8));
        }
        5 if allows(Field::ErspanPresent) => {
            exactly(Field::ErspanPresent, 1);
            exactly(Field::ErspanVersion, 1);
            exactly(Field::ErspanIndex, draw.bits(20));
        }
        6 if allows(Field::ErspanPresent) => {
            exactly(Field::ErspanPresent, 1);
            exactly(Field::ErspanVersion, 2);
            exactly(Field::ErspanDirection, draw.bits(1));
            exactly(Field::ErspanHardwareId, draw.bits(6));
        }
        7 if allows(Field::GtpuPresent) => {
            exactly(Field::GtpuPresent, 1);
            exactly(Field::GtpuFlags, draw.bits(8));
            exactly(Field::GtpuMessageType, draw.bits(8));
        }
        8.. if allows(Field::GenevePresent) => {
            let (bytes, masks): (Vec<_>, Vec<_>) = geneve_options(draw, maker).iter().flat_map(geneve_bytes).unzip();
            exactly(Field::GenevePresent, 1);
            exactly(Field::GeneveLength, bytes.len() as u128);
            let bits = |bytes: &[u8]| {
                bytes.iter().enumerate().fold(0, |bits, (at, byte)| bits | u128::from(*byte) << (120 - 8 * at))
            };
            for ((chunk, bytes), masks) in GENEVE_CHUNKS.iter().zip(bytes.chunks(16)).zip(masks.chunks(16)) {
                fields.push((*chunk, bits(bytes), bits(masks)));
            }
        }
        _ => {}
    }
    fields.sort_unstable_by_key(|(field, ..)| *field);
    FieldSet { attribute: Attribute::Tunnel, fields: fields.into() }
}

pub(super) fn nsh(maker: &mut Maker<'_>, next_protocol: u8, draw: &mut Draw<'_>) -> Option<NshHeader> {
    let tlvs = draw.chance(40);
    if !maker.allows(Feature::Form(if tlvs { Form::NshTlvs } else { Form::NshContexts })) {
        return None;
    }
    Some(NshHeader {
        flags: draw.bits8() & 3,
        ttl: draw.bits8() & 63,
        next_protocol,
        path: draw.bits32() & 0xff_ffff,
        index: draw.bits8(),
        metadata: if tlvs {
            let long = draw.chance(40) && maker.allows(Feature::Form(Form::NshLongTlvs));
            let words = draw.pick(if long { &[51usize, 60, 61] } else { &[1, 2, 50] });
            let mut bytes = draw.bytes(4 * words);
            if bytes[..4] == [0; 4] && !maker.allows(Feature::Form(Form::NshZeroTlvs)) {
                bytes[0] = 1;
            }
            NshMetadata::Tlvs(bytes.into())
        } else {
            NshMetadata::Contexts([(); 4].map(|()| draw.bits32()))
        },
    })
}

pub(super) fn hash(maker: &mut Maker<'_>, draw: &mut Draw<'_>) -> Option<Action> {
    let (algorithm, form) =
        draw.pick(&[(HashAlgorithm::L4, Form::HashL4), (HashAlgorithm::SymmetricL4, Form::HashSymmetric)]);
    maker.allows(Feature::Form(form)).then(|| Action::Hash { algorithm, basis: draw.bits32() })
}

pub(super) fn probability(maker: &mut Maker<'_>, draw: &mut Draw<'_>) -> Option<u32> {
    let fine = draw.chance(40) && maker.allows(Feature::Form(Form::SampleFine));
    if fine {
        return Some(draw.bits32()).filter(|probability| !is_in_tenths(*probability));
    }
    let permille = u16::try_from(draw.below(1001)).unwrap_or_default();
    maker.allows(Feature::Form(Form::SampleInTenths)).then(|| of_permille(permille))
}

/// What OVS makes of a percentage (`parse_odp_action` in `lib/odp-util.c`).
fn of_permille(permille: u16) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the largest")]
    let probability = (f64::from(u32::MAX) * (f64::from(permille) / 10.0 / 100.0) + 0.5).floor() as u32;
    probability
}

fn is_in_tenths(probability: u32) -> bool {
    let permille = (u64::from(probability) * 1000 + u64::from(u32::MAX) / 2) / u64::from(u32::MAX);
    u16::try_from(permille).is_ok_and(|permille| of_permille(permille) == probability)
}

pub(super) fn userspace(maker: &mut Maker<'_>, draw: &mut Draw<'_>, ports: &[Port]) -> Option<Userspace> {
    let data = match draw.below(7) {
        0 => None,
        1 => Some(UserData::SFlow { vid: draw.bits16() & 0xfff, pcp: draw.bits8() & 7, output: draw.bits32() }),
        2 => Some(UserData::SlowPath((draw.bits32() & 0x7f).max(1))),
        3 => Some(UserData::FlowSample(FlowSample {
            probability: draw.bits16(),
            collector_set_id: draw.bits32(),
            obs_domain_id: draw.bits32(),
            obs_point_id: draw.bits32(),
            output_port: PortNumber(draw.bits32()),
            direction: draw.pick(&[None, Some(SampleDirection::Ingress), Some(SampleDirection::Egress)]),
        })),
        4 => Some(UserData::Ipfix { output_port: PortNumber(draw.bits32()) }),
        5 => Some(UserData::Controller(ToController {
            reason: draw.bits16(),
            dont_send: draw.chance(50),
            continuation: draw.chance(50),
            recirc_id: draw.bits32(),
            rule_cookie: u64::try_from(draw.bits(64)).unwrap_or_default(),
            controller_id: draw.bits16(),
            max_len: draw.bits16(),
        })),
        // As many bytes as no note of OVS has (`union user_action_cookie` and the eight of old ones).
        _ => {
            let few = draw.chance(40) && maker.allows(Feature::Form(Form::ToProcessFewBytes));
            let length = draw.pick(if few { &[1, 2, 7] } else { &[8, 9, 31] });
            Some(UserData::Bytes(draw.bytes(length).into()))
        }
    };
    if !maker.allows(Feature::Form(note(data.as_ref()))) {
        return None;
    }
    Some(Userspace {
        pid: draw.bits32(),
        data,
        actions: draw.chance(30) && maker.allows(Feature::Form(Form::ToProcessActions)),
        tunnel_port: (draw.chance(30) && maker.allows(Feature::Form(Form::ToProcessTunnel)))
            .then(|| draw.pick(ports).number),
    })
}

/// Outer headers for `tnl_push`. What is filled in for each packet (lengths, most checksums, the source port) is zero.
pub(super) fn tunnel_push(
    maker: &mut Maker<'_>,
    draw: &mut Draw<'_>,
    port: impl Fn(&mut Draw<'_>) -> PortNumber,
) -> Option<TunnelPush> {
    let form = draw.pick(&[
        Form::PushVxlan,
        Form::PushGeneve,
        Form::PushGre,
        Form::PushErspan,
        Form::PushGtpu,
        Form::PushSrv6,
        Form::PushBytes,
    ]);
    if !maker.allows(Feature::Form(form)) {
        return None;
    }
    let version6 = (form == Form::PushSrv6 || draw.chance(40)) && maker.allows(Feature::Form(Form::PushOverIpv6));
    if form == Form::PushSrv6 && !version6 {
        return None;
    }
    let protocol = match form {
        Form::PushGre | Form::PushErspan => IPPROTO_GRE,
        Form::PushSrv6 => IPPROTO_ROUTING,
        _ => IPPROTO_UDP,
    };
    let headers = OuterHeaders {
        destination: u64::try_from(draw.bits(48)).unwrap_or_default(),
        source: u64::try_from(draw.bits(48)).unwrap_or_default(),
        network: outer_network(version6, protocol, draw),
        tunnel: outer_tunnel(form, maker, draw),
    };
    let mut header = headers.bytes();
    if let (Form::PushBytes, Some(last)) = (form, header.last_mut()) {
        // The byte behind the network identifier, which is reserved.
        *last = draw.bits8().max(1);
    }
    let (tunnel_port, out_port) = (port(draw), port(draw));
    Some(TunnelPush { tunnel_port, out_port, tunnel_type: headers.tunnel_type(), header: header.into() })
}

const IPPROTO_UDP: u8 = 17;
const IPPROTO_ROUTING: u8 = 43;
const IPPROTO_GRE: u8 = 47;

fn outer_network(version6: bool, protocol: u8, draw: &mut Draw<'_>) -> OuterNetwork {
    if version6 {
        OuterNetwork::Ipv6 {
            source: Ipv6Addr::from_bits(draw.bits(128)),
            destination: Ipv6Addr::from_bits(draw.bits(128)),
            label: draw.bits32() & 0xf_ffff,
            next_header: protocol,
            traffic_class: draw.bits8(),
            hop_limit: draw.bits8(),
        }
    } else {
        OuterNetwork::Ipv4 {
            source: Ipv4Addr::from_bits(draw.bits32()),
            destination: Ipv4Addr::from_bits(draw.bits32()),
            protocol,
            tos: draw.bits8(),
            ttl: draw.bits8(),
            fragment: draw.pick(&[0x4000, 0]),
        }
    }
}

fn outer_tunnel(form: Form, maker: &mut Maker<'_>, draw: &mut Draw<'_>) -> OuterTunnel {
    let udp =
        |destination, draw: &mut Draw<'_>| OuterUdp { source: 0, destination, checksum: draw.pick(&[0, u16::MAX]) };
    match form {
        Form::PushGeneve => OuterTunnel::Geneve {
            udp: udp(6081, draw),
            oam: draw.chance(30),
            critical: draw.chance(30),
            vni: draw.bits32() & 0xff_ffff,
            options: if draw.chance(50) { geneve_options(draw, maker) } else { Vec::new() },
        },
        Form::PushGre => {
            let optional = |draw: &mut Draw<'_>| draw.chance(40).then(|| draw.bits32());
            let (key, sequence) = (optional(draw), optional(draw));
            let checksum = draw.chance(40).then_some(0);
            let flag = |there: bool, bit: u16| if there { bit } else { 0 };
            let flags = flag(checksum.is_some(), GRE_CHECKSUM)
                | flag(key.is_some(), GRE_KEY)
                | flag(sequence.is_some(), GRE_SEQUENCE);
            OuterTunnel::Gre { flags, protocol: 0x6558, checksum, key, sequence }
        }
        Form::PushErspan if draw.chance(50) => OuterTunnel::Erspan2 {
            session: draw.bits16() & 0x3ff,
            direction: draw.chance(50),
            hardware_id: draw.bits8() & 0x3f,
        },
        Form::PushErspan => OuterTunnel::Erspan1 { session: draw.bits16() & 0x3ff, index: draw.bits32() & 0xf_ffff },
        Form::PushGtpu => OuterTunnel::Gtpu {
            udp: udp(2152, draw),
            flags: draw.bits8(),
            message_type: draw.bits8(),
            endpoint: draw.bits32(),
        },
        Form::PushSrv6 => {
            let count = 1 + draw.below(6);
            OuterTunnel::Srv6((0..count).map(|_| Ipv6Addr::from_bits(draw.bits(128))).collect())
        }
        _ => OuterTunnel::Vxlan {
            udp: udp(4789, draw),
            flags: draw.pick(&[0x0800_0000, 0x8800_0000]),
            vni: draw.bits32() & 0xff_ffff,
        },
    }
}

fn kind_of_tunnel(tunnel: &OuterTunnel) -> Form {
    match tunnel {
        OuterTunnel::Vxlan { .. } => Form::PushVxlan,
        OuterTunnel::Geneve { .. } => Form::PushGeneve,
        OuterTunnel::Gre { .. } => Form::PushGre,
        OuterTunnel::Erspan1 { .. } | OuterTunnel::Erspan2 { .. } => Form::PushErspan,
        OuterTunnel::Gtpu { .. } => Form::PushGtpu,
        OuterTunnel::Srv6(_) => Form::PushSrv6,
    }
}

fn note(data: Option<&UserData>) -> Form {
    match data {
        None => Form::ToProcess,
        Some(UserData::SFlow { .. }) => Form::ToProcessSFlow,
        Some(UserData::SlowPath(_)) => Form::ToProcessSlowPath,
        Some(UserData::FlowSample(_)) => Form::ToProcessFlowSample,
        Some(UserData::Ipfix { .. }) => Form::ToProcessIpfix,
        Some(UserData::Controller(_)) => Form::ToProcessController,
        Some(UserData::Bytes(_)) => Form::ToProcessBytes,
    }
}

/// In which forms an action is; worked out of the action alone.
pub(super) fn features(action: &Action, add: &mut dyn FnMut(Feature)) {
    let mut form = |there: bool, form| {
        if there {
            add(Feature::Form(form));
        }
    };
    match action {
        Action::Conntrack(ct) => conntrack_features(ct, &mut form),
        Action::Hash { algorithm, .. } => {
            form(*algorithm == HashAlgorithm::L4, Form::HashL4);
            form(*algorithm == HashAlgorithm::SymmetricL4, Form::HashSymmetric);
        }
        Action::Psample { cookie, .. } => form(!cookie.is_empty(), Form::Cookie),
        Action::PushNsh(header) => {
            form(matches!(header.metadata, NshMetadata::Contexts(_)), Form::NshContexts);
            if let NshMetadata::Tlvs(tlvs) = &header.metadata {
                form(true, Form::NshTlvs);
                form(tlvs.len() > 200, Form::NshLongTlvs);
                form(tlvs.starts_with(&[0; 4]), Form::NshZeroTlvs);
            }
        }
        Action::PushVlan(tag) => {
            form(tag.tpid == 0x88a8, Form::PushServiceTag);
            form(!tag.cfi, Form::PushTagWithoutCfi);
        }
        Action::Sample { probability, .. } => {
            form(is_in_tenths(*probability), Form::SampleInTenths);
            form(!is_in_tenths(*probability), Form::SampleFine);
        }
        Action::Set(set) => {
            form(set.fields.iter().any(|(field, _, mask)| *mask != field.full_mask()), Form::MaskedSet);
            add(Feature::Set(set.attribute));
        }
        Action::SetTunnel(set) => set.fields.iter().for_each(|(field, ..)| add(Feature::SetTunnel(*field))),
        Action::TunnelPush(push) => {
            let headers = OuterHeaders::read(push.tunnel_type, &push.header);
            form(true, headers.map_or(Form::PushBytes, |headers| kind_of_tunnel(&headers.tunnel)));
            form(push.header.get(12..14) == Some(&[0x86, 0xdd]), Form::PushOverIpv6);
        }
        Action::Userspace(up) => {
            form(true, note(up.data.as_ref()));
            form(matches!(&up.data, Some(UserData::Bytes(bytes)) if bytes.len() < 8), Form::ToProcessFewBytes);
            form(up.actions, Form::ToProcessActions);
            form(up.tunnel_port.is_some(), Form::ToProcessTunnel);
        }
        _ => {}
    }
}

fn conntrack_features(ct: &Conntrack, form: &mut dyn FnMut(bool, Form)) {
    form(ct.commit == Commit::Yes, Form::CtCommit);
    form(ct.commit == Commit::Force, Form::CtForceCommit);
    form(ct.zone != 0, Form::CtZone);
    form(ct.mark.is_some(), Form::CtMark);
    form(ct.label.is_some(), Form::CtLabel);
    form(ct.helper.is_some(), Form::CtHelper);
    form(ct.timeout.is_some(), Form::CtTimeout);
    form(ct.nat == Some(Nat::Existing), Form::Nat);
    let Some(Nat::New(nat)) = &ct.nat else { return };
    form(nat.side == NatSide::Source, Form::NatSource);
    form(nat.side == NatSide::Destination, Form::NatDestination);
    form(nat.addresses.is_none(), Form::NatOwnAddress);
    let version6 = nat.addresses.is_some_and(|(first, _)| first.is_ipv6());
    form(nat.addresses.is_some_and(|(first, last)| first != last), Form::NatRange);
    form(nat.ports.is_some_and(|(first, last)| first == last), Form::NatPort);
    form(nat.ports.is_some_and(|(first, last)| first != last), Form::NatPortRange);
    form(version6, Form::NatIpv6);
    form(version6 && nat.ports.is_some(), Form::NatIpv6Port);
    form(nat.persistent, Form::NatPersistent);
    form(nat.pick == PortPick::Hash, Form::NatHash);
    form(nat.pick == PortPick::Random, Form::NatRandom);
}
