//! An OVN above the Open vSwitch in the guest, which is one of its chassis. What the other one sends and receives is made and read here: OVN knows
//! it as a record of its southbound database, with a workload. A router is between the two workloads, and the chassis carry its packets to each
//! other by Geneve, with OVN's option. The workload here is behind a function of the device.

use sluice_connectx::steering::Port;

use crate::VF0;
use crate::beside::{
    FROM, HERE, THERE, TIMES, UNDERLAY, goes_by_hardware, hands_flows_over, has_left, keeps_flows, leave_no_qdisc,
    one_has_left, until,
};
use crate::direct::{Agent, Eswitch};
use crate::frames::{HOST, ROUTER, routed, udp};
use crate::tunnels::{self, Kind, goes_to_wire, own_address};
use crate::vswitchd::Vswitchd;

/// The other workload, and the router on its side.
const OTHER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];
const ROUTER_THERE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0c];

const START: &str = "
    mkdir /tmp/ovn
    export OVN_RUNDIR=/tmp/ovn OVN_LOGDIR=/tmp/ovn OVS_RUNDIR=/tmp/ovs
    quietly='-vconsole:off -vsyslog:off -vfile:warn'
    beside() { setsid \"$@\" $quietly --log-file=/tmp/ovn/$1.log >/dev/null 2>&1 </dev/null & echo $! >>/tmp/ovn/pids; }
    for name in nb sb; do
        ovsdb-tool create /tmp/ovn/$name.db /usr/share/ovn/ovn-$name.ovsschema
        beside ovsdb-server /tmp/ovn/$name.db --remote=punix:/tmp/ovn/$name.sock --unixctl=/tmp/ovn/$name.ctl
        until [ -S /tmp/ovn/$name.sock ]; do sleep 0.1; done
    done
    export OVN_NB_DB=unix:/tmp/ovn/nb.sock OVN_SB_DB=unix:/tmp/ovn/sb.sock
    ovn-nbctl init
    ovn-sbctl init
    beside ovn-northd --ovnnb-db=$OVN_NB_DB --ovnsb-db=$OVN_SB_DB --unixctl=/tmp/ovn/northd.ctl
    ovn-nbctl ls-add s1 -- ls-add s2 -- lr-add r \
        -- lrp-add r r-s1 02:00:00:00:00:02 10.0.0.254/24 -- lrp-add r r-s2 02:00:00:00:00:0c 10.9.9.254/24 \
        -- lsp-add s1 s1-r -- lsp-set-type s1-r router -- lsp-set-addresses s1-r router -- lsp-set-options s1-r router-port=r-s1 \
        -- lsp-add s2 s2-r -- lsp-set-type s2-r router -- lsp-set-addresses s2-r router -- lsp-set-options s2-r router-port=r-s2 \
        -- lsp-add s1 here -- lsp-set-addresses here '02:00:00:00:00:01 10.0.0.6' \
        -- lsp-set-port-security here '02:00:00:00:00:01 10.0.0.6' \
        -- lsp-add s2 there -- lsp-set-addresses there '02:00:00:00:00:0b 10.9.9.9'
    vsctl() { ovs-vsctl --timeout=60 --db=unix:/tmp/ovs/db.sock \"$@\"; }
    vsctl set open . external-ids:system-id=one external-ids:ovn-remote=$OVN_SB_DB external-ids:ovn-bridge=br0 \
        external-ids:ovn-encap-type=geneve external-ids:ovn-encap-ip=192.0.2.1 \
        -- del-port br0 p0 -- del-port br0 pf0hpf -- del-port br0 pf0vf1 -- set interface pf0vf0 external-ids:iface-id=here
    beside ovn-controller unix:/tmp/ovs/db.sock
    ovn-sbctl chassis-add two geneve 192.0.2.2
    ovn-sbctl set chassis two other_config:ct-no-masked-label=true \
        -- set encap $(ovn-sbctl --bare --columns=_uuid find encap chassis_name=two) options:csum=true
    ovn-nbctl --timeout=60 --wait=sb sync
    ovn-sbctl lsp-bind there two
    ovn-nbctl --timeout=60 --wait=hv sync";

/// Has the address of this end of tunnels at the bridge that the uplink is a port of.
const TUNNELS_END_AT_BRIDGE: &str = "
    ovs-vsctl --timeout=60 --db=unix:/tmp/ovs/db.sock add-br br1 -- add-port br1 p0 \
        -- set bridge br1 other-config:hwaddr=\\\"$(cat /sys/class/net/p0/address)\\\"
    ip link set br1 up
    ip address add 192.0.2.1/24 dev br1
    ip neigh replace 192.0.2.2 lladdr 02:00:00:00:00:22 dev br1 nud permanent";

const STOP: &str = "
    kill $(cat /tmp/ovn/pids)
    for pid in $(cat /tmp/ovn/pids); do while [ -e /proc/$pid ]; do sleep 0.1; done; done
    rm -r /tmp/ovn";

/// Allows what workloads begin, and the answers.
const ACCESS_LISTS: &str = "\
    acl-add s1 from-lport 1000 'inport == \"here\" && ip4' allow-related -- acl-add s1 to-lport 900 'outport == \"here\" && ip4' drop";

/// Has a load balancer for [`BALANCER`].
const LOAD_BALANCER: &str = "lb-add balancer 10.9.0.9:80 10.9.9.9:62 udp -- ls-lb-add s1 balancer";
const BALANCER: [u8; 4] = [10, 9, 0, 9];

/// By the kernel's tc.
pub(crate) fn workloads_go_by_hardware_by_tc(eswitch: &Eswitch<'_>, backend: &str) {
    play(eswitch, &Lab { backend, is_past_tc: false, ends_at_bridge: false });
    play(eswitch, &Lab { backend, is_past_tc: false, ends_at_bridge: true });
}

/// Past the kernel's tc.
pub(crate) fn workloads_go_by_hardware_past_tc(eswitch: &Eswitch<'_>, backend: &str) {
    play(eswitch, &Lab { backend, is_past_tc: true, ends_at_bridge: false });
    let backend = &format!("{backend}\ndv.leaves_by = {{ br1 = \"p0\" }}");
    play(eswitch, &Lab { backend, is_past_tc: true, ends_at_bridge: true });
}

/// What differs.
struct Lab<'a> {
    backend: &'a str,
    is_past_tc: bool,
    /// Whether a bridge has the address of this end of tunnels, and not the uplink.
    ends_at_bridge: bool,
}

/// Plays it in front of Open vSwitch, and with one that hands its flows over, if there is one.
fn play(eswitch: &Eswitch<'_>, lab: &Lab<'_>) {
    play_with(eswitch, lab, keeps_flows(eswitch));
    if let Some(handing_over) = hands_flows_over(eswitch) {
        play_with(eswitch, lab, handing_over);
    }
}

fn play_with(eswitch: &Eswitch<'_>, lab: &Lab<'_>, (vswitchd, source): (Vswitchd<'_>, &str)) {
    let mut ovn = Ovn::start(eswitch, vswitchd, lab);
    // The port of a bridge has a number of the datapath.
    let ports = if lab.ends_at_bridge { "" } else { UNDERLAY };
    let agent = Agent::start_beside(eswitch, lab.backend, &format!("{ports}{source}underlay = \"p0\"\n"));
    ovn.packets_go_by_hardware(&Stream::between([60, 60], THERE));
    ovn.nbctl(ACCESS_LISTS);
    ovn.packets_go_by_hardware(&Stream::between([61, 61], THERE));
    ovn.nbctl(LOAD_BALANCER);
    ovn.packets_go_by_hardware(&Stream::between([80, 62], BALANCER));
    agent.end("TERM");
    ovn.stop();
    leave_no_qdisc(eswitch);
}

/// A stream of datagrams between the workloads.
struct Stream {
    /// What the one here sends, and what the other one gets of it.
    asked: [Vec<u8>; 2],
    /// What the other chassis sends for the other one, and what this one gets of it.
    answered: [Vec<u8>; 2],
    is_translated: bool,
}

impl Stream {
    /// One to a port of an address, which may be translated, and to the port that it becomes.
    fn between([to, becomes]: [u16; 2], address: [u8; 4]) -> Self {
        let answered = |from, port| routed(udp(from, HERE, port, FROM), &ROUTER, &HOST);
        Self {
            asked: [udp(HERE, address, FROM, to), routed(udp(HERE, THERE, FROM, becomes), &ROUTER_THERE, &OTHER)],
            answered: [answered(THERE, becomes), answered(address, to)],
            is_translated: address != THERE,
        }
    }
}

/// OVN beside an Open vSwitch in the guest.
struct Ovn<'a> {
    eswitch: &'a Eswitch<'a>,
    vswitchd: Vswitchd<'a>,
    lab: &'a Lab<'a>,
    /// Packets of each direction that Open vSwitch has counted.
    counted: [usize; 2],
}

impl<'a> Ovn<'a> {
    /// Starts it.
    #[track_caller]
    fn start(eswitch: &'a Eswitch<'_>, vswitchd: Vswitchd<'a>, lab: &'a Lab<'_>) -> Self {
        let guest = &eswitch.world.guest;
        guest.run(START);
        guest.run(if lab.ends_at_bridge { TUNNELS_END_AT_BRIDGE } else { tunnels::SET_UP });
        Self { eswitch, vswitchd, lab, counted: [0; 2] }
    }

    #[track_caller]
    fn stop(self) {
        self.eswitch.world.guest.run(STOP);
        if !self.lab.ends_at_bridge {
            self.eswitch.world.guest.run(tunnels::TAKE_DOWN);
        }
        self.vswitchd.stop();
    }

    /// Packets between the workloads go by hardware in both directions, as OVN says, and its flows count each once. Past tc, hardware does not
    /// translate what comes by a tunnel.
    #[track_caller]
    fn packets_go_by_hardware(&mut self, stream: &Stream) {
        let Eswitch { world, manager, .. } = *self.eswitch;
        let Stream { asked: [asked, there], answered: [answered, back], is_translated } = stream;
        let [to_there, to_here] = [self.header("s2", "s2-r", "there"), self.header("s1", "s1-r", "here")];
        let mut wrapped = Kind::geneve(&to_here).wrapped(answered);
        wrapped[..6].copy_from_slice(&own_address(world));
        // The first is forwarded by software, and the stream is one once there is an answer.
        world.hca.lock().take_sent();
        world.receive(VF0, asked);
        one_has_left(world, Port::Wire, |sent| sent.ends_with(there));
        let by_hardware = !(self.lab.is_past_tc && *is_translated);
        let answers = if by_hardware {
            goes_by_hardware(world, (Port::Wire, &wrapped), &[(VF0, back.clone())])
        } else {
            world.pass(Port::Wire, &wrapped, &[(manager, &wrapped)]);
            has_left(world, VF0, back);
            1
        };
        let asks = until(world, (VF0, asked), goes_to_wire);
        for _ in 0..TIMES {
            let walk = world.receive(VF0, asked);
            assert!(goes_to_wire(&walk), "{walk}");
            assert_eq!(Kind::geneve(&to_there).opened(world, &walk.sent[0].1), there, "{walk}");
            if by_hardware {
                world.pass(Port::Wire, &wrapped, &[(VF0, back)]);
            } else {
                world.pass(Port::Wire, &wrapped, &[(manager, &wrapped)]);
                has_left(world, VF0, back);
            }
        }
        self.have_counted([1 + asks + TIMES, answers + TIMES]);
    }

    /// OVN's flows that send packets out count so many more in each direction.
    #[track_caller]
    fn have_counted(&mut self, more: [usize; 2]) {
        for (counted, more) in self.counted.iter_mut().zip(more) {
            *counted += more;
        }
        let [asks, answers] = self.counted;
        self.vswitchd.has_counted("OVN's flows that send packets out have counted each", |shown| {
            let has_counted = |output: &str, packets: usize| {
                let is_it = |line: &str| line.contains(output) && line.contains(&format!("n_packets={packets}, "));
                shown.lines().any(is_it)
            };
            has_counted("output:\"ovn-two-0\"", asks) && has_counted("output:pf0vf0", answers)
        });
    }

    fn nbctl(&self, words: &str) {
        self.eswitch.world.guest.run(&format!("ovn-nbctl --db=unix:/tmp/ovn/nb.sock --timeout=60 --wait=hv {words}"));
    }

    /// Geneve's header of packets to a port of a logical switch, with OVN's option.
    fn header(&self, switch: &str, from: &str, to: &str) -> Vec<u8> {
        let key = |table: &str, find: &str| -> u32 {
            let sbctl = "ovn-sbctl --db=unix:/tmp/ovn/sb.sock --bare --columns=tunnel_key find";
            self.eswitch.world.guest.run(&format!("{sbctl} {table} {find}")).trim().parse().expect("a key")
        };
        let network = key("datapath_binding", &format!("external_ids:name={switch}"));
        let [from, to] = [from, to].map(|port| key("port_binding", &format!("logical_port={port}")));
        // Two words of options; Ethernet; class 0x0102, type 0x80, one word. That it is critical is nothing that act_tunnel_key says.
        let critical = u32::from(self.lab.is_past_tc) << 22;
        let words = [0x0200_6558 | critical, network << 8, 0x0102_8001, from << 16 | to];
        words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
    }
}
