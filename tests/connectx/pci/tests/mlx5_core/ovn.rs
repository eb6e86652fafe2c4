//! An OVN above the Open vSwitch in the guest, which is one of its chassis. What the other one sends and receives is made and read here: OVN knows
//! it as a record of its southbound database, with a workload. A router is between the two workloads, and the chassis carry its packets to each
//! other by Geneve, with OVN's option. The workload here is behind a function of the device.

use sluice_connectx::steering::Port;

use crate::beside::{
    FROM, HERE, THERE, TIMES, UNDERLAY, goes_by_hardware, hands_flows_over, keeps_flows, leave_no_qdisc, one_has_left,
    until,
};
use crate::direct::{Agent, Eswitch};
use crate::frames::{HOST, ROUTER, routed, udp};
use crate::tunnels::{self, Kind, goes_to_wire, own_address};
use crate::vswitchd::Vswitchd;
use crate::{VF0, World};

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

const STOP: &str = "
    kill $(cat /tmp/ovn/pids)
    for pid in $(cat /tmp/ovn/pids); do while [ -e /proc/$pid ]; do sleep 0.1; done; done
    rm -r /tmp/ovn";

/// Allows what workloads begin, and the answers.
const ACCESS_LISTS: &str = "\
    acl-add s1 from-lport 1000 'inport == \"here\" && ip4' allow-related -- acl-add s1 to-lport 900 'outport == \"here\" && ip4' drop";

/// By the kernel's tc.
pub(crate) fn workloads_go_by_hardware_by_tc(eswitch: &Eswitch<'_>, backend: &str) {
    // act_tunnel_key says of no option that it is critical.
    play(eswitch, backend, false);
}

/// Past the kernel's tc.
pub(crate) fn workloads_go_by_hardware_past_tc(eswitch: &Eswitch<'_>, backend: &str) {
    play(eswitch, backend, true);
}

/// Plays it in front of Open vSwitch, and with one that hands its flows over, if there is one.
fn play(eswitch: &Eswitch<'_>, backend: &str, is_critical: bool) {
    play_with(eswitch, backend, is_critical, keeps_flows(eswitch));
    if let Some(handing_over) = hands_flows_over(eswitch) {
        play_with(eswitch, backend, is_critical, handing_over);
    }
}

fn play_with(eswitch: &Eswitch<'_>, backend: &str, is_critical: bool, (vswitchd, source): (Vswitchd<'_>, &str)) {
    let ovn = Ovn::start(eswitch.world, is_critical);
    let agent = Agent::start_beside(eswitch, backend, &format!("{UNDERLAY}{source}underlay = \"p0\"\n"));
    let mut counted = [0; 2];
    ovn.packets_go_by_hardware(&vswitchd, 60, &mut counted);
    ovn.track_connections();
    ovn.packets_go_by_hardware(&vswitchd, 61, &mut counted);
    agent.end("TERM");
    ovn.stop();
    vswitchd.stop();
    leave_no_qdisc(eswitch);
}

/// OVN beside an Open vSwitch in the guest.
struct Ovn<'a> {
    world: &'a World,
    /// Whether headers of Geneve say that OVN's option is critical, which it is.
    is_critical: bool,
}

impl<'a> Ovn<'a> {
    /// Starts it.
    #[track_caller]
    fn start(world: &'a World, is_critical: bool) -> Self {
        world.guest.run(tunnels::SET_UP);
        world.guest.run(START);
        Self { world, is_critical }
    }

    #[track_caller]
    fn stop(self) {
        self.world.guest.run(STOP);
        self.world.guest.run(tunnels::TAKE_DOWN);
    }

    /// Packets between the workloads go by hardware in both directions, as OVN says. `counted` are those of both directions that Open vSwitch has
    /// counted, and counts these, too.
    #[track_caller]
    fn packets_go_by_hardware(&self, vswitchd: &Vswitchd<'_>, to: u16, counted: &mut [usize; 2]) {
        let world = self.world;
        let asked = udp(HERE, THERE, FROM, to);
        let there = routed(asked.clone(), &ROUTER_THERE, &OTHER);
        // The other chassis has routed it.
        let answered = routed(udp(THERE, HERE, to, FROM), &ROUTER, &HOST);
        let [to_there, to_here] = [self.header("s2", "s2-r", "there"), self.header("s1", "s1-r", "here")];
        let mut wrapped = Kind::geneve(&to_here).wrapped(&answered);
        wrapped[..6].copy_from_slice(&own_address(world));
        // The first is forwarded by software, and the stream is one once there is an answer.
        world.hca.lock().take_sent();
        world.receive(VF0, &asked);
        one_has_left(world, Port::Wire, |sent| sent.ends_with(&there));
        let answers = goes_by_hardware(world, (Port::Wire, &wrapped), &[(VF0, answered.clone())]);
        let asks = until(world, (VF0, &asked), goes_to_wire);
        for _ in 0..TIMES {
            let walk = world.receive(VF0, &asked);
            assert!(goes_to_wire(&walk), "{walk}");
            assert_eq!(Kind::geneve(&to_there).opened(world, &walk.sent[0].1), there, "{walk}");
            world.pass(Port::Wire, &wrapped, &[(VF0, &answered)]);
        }
        for (counted, more) in counted.iter_mut().zip([1 + asks + TIMES, answers + TIMES]) {
            *counted += more;
        }
        vswitchd.has_counted("OVN's flows that send packets out have counted each", |shown| {
            let has_counted = |output: &str, packets: usize| {
                let is_it = |line: &str| line.contains(output) && line.contains(&format!("n_packets={packets}, "));
                shown.lines().any(is_it)
            };
            has_counted("output:\"ovn-two-0\"", counted[0]) && has_counted("output:pf0vf0", counted[1])
        });
    }

    /// Has access lists that track connections.
    fn track_connections(&self) {
        self.nbctl(ACCESS_LISTS);
    }

    fn nbctl(&self, words: &str) {
        self.world.guest.run(&format!("ovn-nbctl --db=unix:/tmp/ovn/nb.sock --timeout=60 --wait=hv {words}"));
    }

    /// Geneve's header of packets to a port of a logical switch, with OVN's option.
    fn header(&self, switch: &str, from: &str, to: &str) -> Vec<u8> {
        let key = |table: &str, find: &str| -> u32 {
            let sbctl = "ovn-sbctl --db=unix:/tmp/ovn/sb.sock --bare --columns=tunnel_key find";
            self.world.guest.run(&format!("{sbctl} {table} {find}")).trim().parse().expect("a key")
        };
        let network = key("datapath_binding", &format!("external_ids:name={switch}"));
        let [from, to] = [from, to].map(|port| key("port_binding", &format!("logical_port={port}")));
        // Two words of options; Ethernet; class 0x0102, type 0x80, one word.
        let critical = u32::from(self.is_critical) << 22;
        let words = [0x0200_6558 | critical, network << 8, 0x0102_8001, from << 16 | to];
        words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
    }
}
