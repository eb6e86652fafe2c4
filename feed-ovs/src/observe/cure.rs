//! What would have to change before a refused flow can be offloaded.

use sluice_flow::action::{Action, ActionKind, SLOW_PATH_REASONS, UserData, visit};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::flow::Flow;
use sluice_flow::refusal::Refusal;

/// The cure of flows in a chain that no taken flow leads to.
pub(super) const CURE_OF_CHAIN: &str =
    "whatever has the flows offloaded that lead to this chain: those with recirc(N) of its recirc_id";

const SELECT_GROUPS: &str = "have select groups hash by OVS instead of dp_hash: selection_method=hash with fields=… in the group of \
    OpenFlow; in OVN, `ovn-nbctl set Load_Balancer NAME selection_fields=ip_src,ip_dst,tp_src,tp_dst`";
const SAMPLES: &str =
    "no sampling of this traffic: sFlow and IPFIX are settings of a bridge (`ovs-vsctl clear Bridge NAME sflow ipfix`)";
const SLOW_PATH: &str = "`ovs-appctl ofproto/trace` shows which OpenFlow action or match only ovs-vswitchd can do; without that rule for \
    the traffic in question the flow has another form";
const PROTOCOL: &str = "nothing: ovs-vswitchd itself speaks this protocol, and its few packets stay in software";
const CONTROLLER: &str = "no OpenFlow rule that sends these packets to a controller; in OVN these are logged ACLs, and what ovn-controller \
    answers itself (DHCP, ARP, DNS), of which there are few packets";
const PROCESS: &str = "nothing: a process must see the packet";
const CONNECTIONS: &str = "`connections = \"kernel\"` in [dv] of the configuration, with which --config FILE judges";
const UNTRACKED: &str =
    "nothing: the packets that begin and end a connection stay in software, those in between are in hardware";
const GATEWAY_MTU: &str = "equal MTUs on both sides, so that OpenFlow does without check_pkt_larger; in OVN, no gateway_mtu on the router \
    port";
const LB_OUTPUT: &str =
    "`ovs-vsctl set Port BOND other_config:lb-output-action=false`: OVS then makes a flow for each member";
const USERSPACE_TUNNEL: &str = "nothing with a userspace datapath, which builds outer headers itself; with the kernel's datapath OVS \
    writes set(tunnel(…)), which is taken";
const SNAPLEN: &str = "mirrors without snaplen and OpenFlow outputs without max_len";
const HELPER: &str = "OpenFlow rules without alg=: a gateway in software must see all packets of such a connection";
const LABELS: &str = "marks instead of labels of connections, where the controller has a choice (OVN does it since 22.03 where the \
    datapath takes ct_mark)";
const COMMIT: &str =
    "nothing: the packet that commits the connection stays in software, and those behind it hit another flow";
const TUPLE: &str = "OpenFlow rules without ct_nw_src, ct_nw_dst, ct_tp_src, ct_tp_dst and ct_nw_proto";
const QUEUES: &str = "OpenFlow rules without set_queue, and no QoS queues for this traffic";
const MARK: &str = "OpenFlow rules without pkt_mark for this traffic";
const FRAGMENTS: &str = "an MTU at which these packets are not fragmented";
const NEIGHBOURS: &str = "nothing: neighbour discovery has few packets, which stay in software";
const TTL: &str = "nothing: the packets whose time to live ends must be answered";
const METER: &str = "a meter with one band that drops, whose rate the device has";
const OTHER_PORT: &str = "a port of a kind that the backend has; the reason says what it does not have";
const FEWER: &str = "a flow that does less: fewer outputs, rewrites or tunnels in one";
/// The fallback: what no configuration changes.
const NOTHING: &str = "nothing in the configuration of OVS or Sluice: these flows stay in the datapath of OVS";

/// Returns what would have to change before a flow that was refused for this reason can be offloaded.
pub(super) fn cure(refusal: &Refusal, flow: &Flow) -> &'static str {
    match refusal {
        Refusal::Until { refusal, .. } => cure(refusal, flow),
        Refusal::Action { reason, .. } | Refusal::Field { reason, .. } if reason.contains("`connections` in [dv]") => {
            CONNECTIONS
        }
        Refusal::Action { action, reason } => of_action(*action, reason, flow),
        Refusal::Field { field, .. } => of_field(*field),
        Refusal::Port { .. } | Refusal::PortGone { .. } => OTHER_PORT,
        Refusal::Limit { .. } => FEWER,
        _ => NOTHING,
    }
}

fn of_action(action: ActionKind, reason: &str, flow: &Flow) -> &'static str {
    match action {
        ActionKind::Hash => SELECT_GROUPS,
        ActionKind::Userspace => of_notes(flow),
        ActionKind::Sample | ActionKind::Psample => SAMPLES,
        ActionKind::CheckPktLen => GATEWAY_MTU,
        ActionKind::LbOutput => LB_OUTPUT,
        ActionKind::TnlPush | ActionKind::TnlPop => USERSPACE_TUNNEL,
        ActionKind::Trunc => SNAPLEN,
        ActionKind::DecTtl => TTL,
        ActionKind::Meter => METER,
        ActionKind::Ct if reason.starts_with("helper") || reason.contains("helper") => HELPER,
        ActionKind::Ct if reason.starts_with("label") => LABELS,
        ActionKind::Ct if ["mark", "nat", "force_commit"].iter().any(|word| reason.starts_with(word)) => COMMIT,
        _ => NOTHING,
    }
}

/// What sends packets to a process decides.
fn of_notes(flow: &Flow) -> &'static str {
    let mut cure = None;
    visit(&flow.actions, &mut |action| {
        let Action::Userspace(userspace) = action else { return };
        cure = cure.or(Some(match &userspace.data {
            Some(UserData::SFlow { .. } | UserData::FlowSample(_) | UserData::Ipfix { .. }) => SAMPLES,
            Some(UserData::Controller(_)) => CONTROLLER,
            Some(UserData::SlowPath(reasons)) if is_work(*reasons) => SLOW_PATH,
            Some(UserData::SlowPath(_)) => PROTOCOL,
            Some(UserData::Bytes(_)) | None => PROCESS,
        }));
    });
    cure.unwrap_or(PROCESS)
}

/// Whether the slow path is for an OpenFlow action or match, and not for a protocol.
fn is_work(reasons: u32) -> bool {
    SLOW_PATH_REASONS.iter().any(|(reason, bit)| matches!(*reason, "action" | "match") && reasons & bit != 0)
}

fn of_field(field: Field) -> &'static str {
    match field.spec().attribute {
        Attribute::DpHash => SELECT_GROUPS,
        Attribute::SkbPriority => QUEUES,
        Attribute::SkbMark => MARK,
        Attribute::CtState => UNTRACKED,
        Attribute::CtLabel => LABELS,
        Attribute::CtTuple4 | Attribute::CtTuple6 => TUPLE,
        Attribute::Nd | Attribute::NdExt => NEIGHBOURS,
        _ if matches!(field, Field::Ipv4Frag | Field::Ipv6Frag) => FRAGMENTS,
        _ => NOTHING,
    }
}
