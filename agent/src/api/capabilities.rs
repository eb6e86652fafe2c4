//! `GetCapabilities`: what the backend says of each field and action, asked as it is asked of any flow.

use sluice_api::{rpc, v1};
use sluice_flow::action::ActionKind;
use sluice_flow::field::{FIELDS, Requirement};
use sluice_flow::port::PortMap;
use sluice_flow::text::parse_actions;
use sluice_flow::{ActionList, Expiry, Field, Flow, MaskedKey, Match, PortNumber, Priority};

use super::Api;
use super::errors::{of_error, of_refusal};
use super::fields::number;
use crate::service::AgentView;

/// What the device can do.
pub(super) fn capabilities(api: &Api) -> v1::Capabilities {
    let view = api.service.view();
    let (capabilities, config, ports) = (view.capabilities(), view.config(), view.ports());
    let probe = Probe { view, port: first_port(&ports) };
    v1::Capabilities {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        backend: capabilities.name.to_owned(),
        datapath: view.datapath(),
        facets: view.facets().map(|facet| facet.name().to_owned()).collect(),
        fields: FIELDS.iter().map(|spec| probe.field(spec.field)).collect(),
        actions: ActionKind::ALL.iter().filter_map(|kind| probe.action(*kind)).collect(),
        max_chain_depth: u32::try_from(capabilities.max_chain_depth.min(config.chain_depth)).unwrap_or(u32::MAX),
        flow_limit: config.flow_limit as u64,
        max_lag: capabilities.max_lag.try_into().ok(),
        notes: view.notes_of_device(),
    }
}

fn first_port(ports: &PortMap) -> PortNumber {
    ports.iter().next().map_or(PortNumber(0), |port| port.number)
}

/// Asks of flows that are nobody's.
struct Probe<'a> {
    view: &'a AgentView,
    port: PortNumber,
}

impl Probe<'_> {
    /// Of a flow that drops what has this field, as zero.
    fn field(&self, field: Field) -> v1::FieldSupport {
        let spec = field.spec();
        let mut matching = self.matching();
        meet(&mut matching, spec.attribute.spec().requires);
        if matching.mask.get(field) == 0 {
            matching.set_exact(field, 0);
        }
        v1::FieldSupport {
            field: number(field).into(),
            name: field.to_string(),
            width: spec.width,
            refusal: self.refusal(&matching, ActionList::default()),
        }
    }

    /// Of a flow that does this with TCP in IPv4. `None` of an action that OVS writes and no flow of ours has.
    fn action(&self, kind: ActionKind) -> Option<v1::ActionSupport> {
        let actions = parse_actions(&example(kind, self.port)?, &()).ok()?;
        let mut matching = self.matching();
        meet(&mut matching, Requirement::IpProto(&[6]));
        matching.set_exact(Field::Ipv4Frag, 0);
        Some(v1::ActionSupport { name: kind.name().to_owned(), refusal: self.refusal(&matching, actions) })
    }

    fn matching(&self) -> Match {
        let mut matching = Match::default();
        matching.set_exact(Field::RecircId, 0);
        matching.set_exact(Field::InPort, self.port.0.into());
        matching
    }

    fn refusal(&self, matching: &Match, actions: ActionList) -> Option<rpc::Status> {
        let (priority, expiry) = (Priority::default(), Expiry::default());
        let flow = Flow::new(None, MaskedKey::new(matching), actions, priority, expiry, self.view.seed());
        let error = self.view.dry_run(&flow).err()?;
        Some(error.refusal().map_or_else(|| of_error(&error), of_refusal))
    }
}

/// Has a match fulfil what an attribute requires.
fn meet(matching: &mut Match, requirement: Requirement) {
    let (eth_type, protocol) = match requirement {
        Requirement::Nothing => return,
        Requirement::EthType(types) => (types[0], None),
        Requirement::IpProto(protocols) => (0x0800, Some(protocols[0])),
        Requirement::EthTypeAndProto(eth_type, protocol) => (eth_type, Some(protocol)),
    };
    matching.set_exact(Field::EthType, eth_type.into());
    if let Some(protocol) = protocol {
        matching.set_exact(Field::Ipv4Proto, protocol.into());
    }
}

/// An action of a kind as it may stand in a flow; `None` of one that is another's default or only OVS's own.
fn example(kind: ActionKind, port: PortNumber) -> Option<String> {
    Some(match kind {
        ActionKind::Drop => "drop".to_owned(),
        ActionKind::Output => port.to_string(),
        ActionKind::AddMpls => "add_mpls(label=100,tc=0,ttl=64,bos=1,eth_type=0x8847)".to_owned(),
        ActionKind::CheckPktLen => format!("check_pkt_len(size=200,gt(drop),le({port}))"),
        ActionKind::Clone => format!("clone({port}),{port}"),
        ActionKind::Ct => format!("ct(commit,zone=1),{port}"),
        ActionKind::CtClear => format!("ct_clear,{port}"),
        ActionKind::DecTtl => format!("dec_ttl(le_1(drop)),{port}"),
        ActionKind::Hash => "hash(l4(0)),recirc(1)".to_owned(),
        ActionKind::LbOutput => "lb_output(1)".to_owned(),
        ActionKind::Meter => format!("meter(1),{port}"),
        ActionKind::PopEth => format!("pop_eth,{port}"),
        ActionKind::PopMpls => format!("pop_mpls(eth_type=0x800),{port}"),
        ActionKind::PopNsh => format!("pop_nsh(),{port}"),
        ActionKind::PopVlan => format!("pop_vlan,{port}"),
        ActionKind::Psample => format!("psample(group=1),{port}"),
        ActionKind::PushEth => format!("push_eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),{port}"),
        ActionKind::PushMpls => format!("push_mpls(label=100,tc=0,ttl=64,bos=1,eth_type=0x8847),{port}"),
        ActionKind::PushNsh => {
            format!("push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1,si=1,c1=0x0,c2=0x0,c3=0x0,c4=0x0),{port}")
        }
        ActionKind::PushVlan => format!("push_vlan(vid=7,pcp=0),{port}"),
        ActionKind::Recirc => "recirc(1)".to_owned(),
        ActionKind::Sample => format!("sample(sample=100.0%,actions(drop)),{port}"),
        ActionKind::Set => format!("set(eth(dst=02:00:00:00:00:02)),{port}"),
        ActionKind::SetTunnel => format!("set(tunnel(tun_id=0x7,dst=192.0.2.2,ttl=64,flags(key))),{port}"),
        ActionKind::TnlPop => format!("tnl_pop({port})"),
        ActionKind::Trunc => format!("trunc(100),{port}"),
        ActionKind::Userspace => "userspace(pid=1)".to_owned(),
        ActionKind::TnlPush => return None,
    })
}
