//! Debian's own Open vSwitch in the guest. By itself it is another client of the driver than Sluice, and puts its flows into tc.

use sluice_connectx::steering::Port;

use crate::frames::{UDP, tagged, udp};
use crate::guest::Guest;
use crate::{HOST_PF, VF0, VF1, World};

/// Starts it, with a bridge on all ports, once the machine has run for 10 s: before that Open vSwitch takes it for one without processors, and nobody
/// hears of packets (`count_cpu_cores` in `lib/ovs-thread.c` of 3.1). `$schemas` is the folder of the schema of its database, `$settings` are what that
/// has, `$environment` is the daemon's own.
const START: &str = "
    modprobe openvswitch
    until [ $(cut -d. -f1 /proc/uptime) -ge 10 ]; do sleep 0.2; done
    mkdir /tmp/ovs
    export OVS_RUNDIR=/tmp/ovs OVS_LOGDIR=/tmp/ovs OVS_DBDIR=/tmp/ovs
    quietly='-vconsole:off -vfile:off -vsyslog:off'
    vsctl() { ovs-vsctl --timeout=60 --db=unix:/tmp/ovs/db.sock \"$@\"; }
    ovsdb-tool create /tmp/ovs/conf.db $schemas/vswitch.ovsschema
    setsid ovsdb-server /tmp/ovs/conf.db --remote=punix:/tmp/ovs/db.sock $quietly >/dev/null 2>&1 </dev/null &
    echo $! >/tmp/ovs/pid
    until [ -S /tmp/ovs/db.sock ]; do sleep 0.1; done
    vsctl --no-wait init
    for setting in $settings; do vsctl --no-wait set Open_vSwitch . other_config:$setting; done
    env $environment setsid ovs-vswitchd unix:/tmp/ovs/db.sock --unixctl=/tmp/ovs/ctl $quietly >/dev/null 2>&1 </dev/null &
    for port in p0 pf0hpf pf0vf0 pf0vf1; do ip link set $port up; done
    for ((n = 0; n < 100; n++)); do ! ip link show p0 | grep -q LOWER_UP || break; sleep 0.1; done
    ip link show p0 >&2
    vsctl add-br br0 -- set bridge br0 fail-mode=secure \
        -- add-port br0 p0 -- add-port br0 pf0hpf -- add-port br0 pf0vf0 -- add-port br0 pf0vf1";

const STOP: &str = "
    ovs-appctl -t /tmp/ovs/ctl exit --cleanup
    kill $(cat /tmp/ovs/pid)
    for ((n = 0; n < 100; n++)); do ip link show br0 >/dev/null 2>&1 || break; sleep 0.1; done
    rm -r /tmp/ovs";

/// One OpenFlow rule for each of the [`cases`].
pub(crate) const RULES: &str = "\
in_port=pf0vf0,udp,tp_dst=53,actions=output:p0
in_port=pf0vf0,udp,tp_dst=54,actions=drop
in_port=p0,udp,nw_dst=10.0.0.1,actions=output:pf0vf0
in_port=p0,udp,nw_dst=10.0.0.2,actions=push_vlan:0x8100,set_field:4196->vlan_vid,output:pf0vf1
in_port=p0,udp,nw_dst=10.0.0.3,actions=output:pf0hpf,output:pf0vf1
in_port=pf0vf1,udp,dl_vlan=100,actions=pop_vlan,output:p0
";

/// What leaves, and where.
type Sent = (Port, Vec<u8>);

/// An Open vSwitch that runs in the guest.
pub(crate) struct Vswitchd<'a>(&'a Guest);

impl<'a> Vswitchd<'a> {
    #[track_caller]
    pub(crate) fn start(guest: &'a Guest, settings: &str, environment: &str) -> Self {
        guest.run(&format!("schemas=/usr/share/openvswitch settings='{settings}' environment='{environment}'{START}"));
        Self(guest)
    }

    /// The same with the programs and the schema of a folder.
    #[track_caller]
    pub(crate) fn start_of(folder: &str, guest: &'a Guest, settings: &str) -> Self {
        guest.run(&format!("PATH={folder}:$PATH schemas={folder} settings='{settings}' environment=''{START}"));
        Self(guest)
    }

    /// Puts OpenFlow rules in, a line each.
    #[track_caller]
    pub(crate) fn add_rules(&self, rules: &str) {
        self.0.run(&format!(
            "cat >/tmp/ovs/rules <<'END'\n{rules}END\novs-ofctl -O OpenFlow13 add-flows unix:/tmp/ovs/br0.mgmt /tmp/ovs/rules"
        ));
    }

    /// Adds a meter of OpenFlow.
    #[track_caller]
    pub(crate) fn add_meter(&self, meter: &str) {
        self.0.run(&format!("ovs-ofctl -O OpenFlow13 add-meter unix:/tmp/ovs/br0.mgmt {meter}"));
    }

    /// Has the kernel forget all connections.
    #[track_caller]
    pub(crate) fn forget_connections(&self) {
        self.0.run("ovs-appctl -t /tmp/ovs/ctl dpctl/flush-conntrack");
    }

    /// Changes its bridge, as ovs-vsctl is told.
    #[track_caller]
    pub(crate) fn configure(&self, words: &str) {
        self.0.run(&format!("ovs-vsctl --timeout=60 --db=unix:/tmp/ovs/db.sock {words}"));
    }

    /// Waits until what it counts for its meters is as wanted.
    #[track_caller]
    pub(crate) fn has_metered(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        self.0.eventually(what, "ovs-ofctl -O OpenFlow13 meter-stats unix:/tmp/ovs/br0.mgmt", is_so);
    }

    /// Waits until what it counts for its OpenFlow rules is as wanted.
    #[track_caller]
    pub(crate) fn has_counted(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        self.0.eventually(what, "ovs-ofctl --names dump-flows unix:/tmp/ovs/br0.mgmt", is_so);
    }

    #[track_caller]
    pub(crate) fn stop(self) {
        self.0.run(STOP);
    }
}

/// A frame for each of the [`RULES`], where it comes in, and what leaves.
pub(crate) fn cases() -> [(Port, Vec<u8>, Vec<Sent>); 6] {
    [
        (VF0, query(53), vec![(Port::Wire, query(53))]),
        (VF0, query(54), vec![]),
        (Port::Wire, answer(1), vec![(VF0, answer(1))]),
        (Port::Wire, answer(2), vec![(VF1, tagged(&answer(2), 100))]),
        (Port::Wire, answer(3), vec![(HOST_PF, answer(3)), (VF1, answer(3))]),
        (VF1, tagged(&query(55), 100), vec![(Port::Wire, query(55))]),
    ]
}

pub(crate) fn query(port: u16) -> Vec<u8> {
    udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, port)
}

pub(crate) fn answer(to: u8) -> Vec<u8> {
    udp([10, 9, 9, 9], [10, 0, 0, to], 53, 1000)
}

/// Has the first packet of each case go up to Open vSwitch, which forwards it and has a flow for the others.
#[track_caller]
pub(crate) fn send_first_packets(world: &World) {
    world.hca.lock().take_sent();
    for (from, frame, _) in &cases() {
        world.receive(*from, frame);
    }
}

/// Checks that what it has forwarded itself is the first packet of each case.
#[track_caller]
pub(crate) fn first_packets_have_come(world: &World) {
    let mut sent = world.hca.lock().take_sent();
    let mut expected: Vec<_> = cases().into_iter().flat_map(|(_, _, leaves)| leaves).collect();
    sent.sort();
    expected.sort();
    assert_eq!(sent, expected, "what it forwarded itself");
}

/// Has as many packets of each case go by hardware alone.
#[track_caller]
pub(crate) fn packets_go_by_hardware(world: &World, times: usize) {
    for (from, frame, leaves) in &cases() {
        let leaves: Vec<_> = leaves.iter().map(|(port, frame)| (*port, frame.as_slice())).collect();
        (0..times).for_each(|_| world.pass(*from, frame, &leaves));
    }
}

pub(crate) fn openvswitch_has_its_flows_in_hardware_and_packets_go_by_them(world: &World) {
    const TIMES: usize = 5;
    let guest = &world.guest;
    let vswitchd = Vswitchd::start(guest, "hw-offload=true tc-policy=skip_sw", "");
    vswitchd.add_rules(RULES);
    let flows = cases().len();
    send_first_packets(world);
    let dump = "ovs-appctl -t /tmp/ovs/ctl dpctl/dump-flows -m type=offloaded";
    let shown = guest.eventually("its flows are in hardware", dump, |shown| shown.lines().count() == flows);
    assert_eq!(shown.matches("offloaded:yes, dp:tc").count(), flows, "{shown}");
    assert_eq!(world.rules(), flows, "{}", world.hca.lock().steering().dump());
    first_packets_have_come(world);

    packets_go_by_hardware(world, TIMES);
    guest.eventually("hardware's packets are counted by its flows", dump, |shown| {
        let counted = |bytes| format!("packets:{TIMES}, bytes:{},", TIMES * bytes);
        shown.matches(&counted(UDP)).count() + shown.matches(&counted(UDP + 4)).count() == flows
    });
    vswitchd
        .has_counted("and by its rules", |shown| shown.matches(&format!("n_packets={}, ", TIMES + 1)).count() == flows);
    vswitchd.stop();
    assert_eq!(world.rules(), 0, "{}", world.hca.lock().steering().dump());
}
