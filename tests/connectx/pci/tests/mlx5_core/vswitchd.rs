//! Another client of the driver than Sluice: Debian's own Open vSwitch, which puts its flows into tc.

use sluice_connectx::steering::Port;

use crate::frames::{UDP, tagged, udp};
use crate::{HOST_PF, VF0, VF1, World};

/// Starts it, with a bridge on all ports, for hardware alone.
const START: &str = "
    modprobe openvswitch
    mkdir /tmp/ovs
    export OVS_RUNDIR=/tmp/ovs OVS_LOGDIR=/tmp/ovs OVS_DBDIR=/tmp/ovs
    quietly='-vconsole:off -vfile:off -vsyslog:off'
    vsctl() { ovs-vsctl --timeout=60 --db=unix:/tmp/ovs/db.sock \"$@\"; }
    ovsdb-tool create /tmp/ovs/conf.db /usr/share/openvswitch/vswitch.ovsschema
    setsid ovsdb-server /tmp/ovs/conf.db --remote=punix:/tmp/ovs/db.sock $quietly >/dev/null 2>&1 </dev/null &
    echo $! >/tmp/ovs/pid
    until [ -S /tmp/ovs/db.sock ]; do sleep 0.1; done
    vsctl --no-wait init
    vsctl --no-wait set Open_vSwitch . other_config:hw-offload=true other_config:tc-policy=skip_sw
    setsid ovs-vswitchd unix:/tmp/ovs/db.sock --unixctl=/tmp/ovs/ctl $quietly >/dev/null 2>&1 </dev/null &
    for port in p0 pf0hpf pf0vf0 pf0vf1; do ip link set $port up; done
    vsctl add-br br0 -- set bridge br0 fail-mode=secure \
        -- add-port br0 p0 -- add-port br0 pf0hpf -- add-port br0 pf0vf0 -- add-port br0 pf0vf1";

/// One OpenFlow rule for each frame below.
const RULES: &str = "
    cat >/tmp/ovs/rules <<'END'
in_port=pf0vf0,udp,tp_dst=53,actions=output:p0
in_port=pf0vf0,udp,tp_dst=54,actions=drop
in_port=p0,udp,nw_dst=10.0.0.1,actions=output:pf0vf0
in_port=p0,udp,nw_dst=10.0.0.2,actions=push_vlan:0x8100,set_field:4196->vlan_vid,output:pf0vf1
in_port=p0,udp,nw_dst=10.0.0.3,actions=output:pf0hpf,output:pf0vf1
in_port=pf0vf1,udp,dl_vlan=100,actions=pop_vlan,output:p0
END
    ovs-ofctl -O OpenFlow13 add-flows unix:/tmp/ovs/br0.mgmt /tmp/ovs/rules";

const STOP: &str = "
    ovs-appctl -t /tmp/ovs/ctl exit --cleanup
    kill $(cat /tmp/ovs/pid)
    for ((n = 0; n < 100; n++)); do ip link show br0 >/dev/null 2>&1 || break; sleep 0.1; done
    rm -r /tmp/ovs";

pub(crate) fn openvswitch_has_its_flows_in_hardware_and_packets_go_by_them(world: &World) {
    const TIMES: usize = 5;
    let guest = &world.guest;
    guest.run(START);
    guest.run(RULES);
    let query = |port| udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, port);
    let answer = |to| udp([10, 9, 9, 9], [10, 0, 0, to], 53, 1000);
    type Sent = (Port, Vec<u8>);
    let cases: [(Port, Vec<u8>, Vec<Sent>); 6] = [
        (VF0, query(53), vec![(Port::Wire, query(53))]),
        (VF0, query(54), vec![]),
        (Port::Wire, answer(1), vec![(VF0, answer(1))]),
        (Port::Wire, answer(2), vec![(VF1, tagged(&answer(2), 100))]),
        (Port::Wire, answer(3), vec![(HOST_PF, answer(3)), (VF1, answer(3))]),
        (VF1, tagged(&query(55), 100), vec![(Port::Wire, query(55))]),
    ];
    // The first of each is nobody's in hardware: it goes up to Open vSwitch, which forwards it and has a flow for the others.
    world.hca.lock().take_sent();
    for (from, frame, _) in &cases {
        world.receive(*from, frame);
    }
    let dump = "ovs-appctl -t /tmp/ovs/ctl dpctl/dump-flows -m type=offloaded";
    let shown = guest.eventually("its flows are in hardware", dump, |shown| shown.lines().count() == cases.len());
    assert_eq!(shown.matches("offloaded:yes, dp:tc").count(), cases.len(), "{shown}");
    assert_eq!(world.rules(), cases.len(), "{}", world.hca.lock().steering().dump());
    let mut sent = world.hca.lock().take_sent();
    let mut expected: Vec<_> = cases.iter().flat_map(|(_, _, leaves)| leaves.clone()).collect();
    sent.sort();
    expected.sort();
    assert_eq!(sent, expected, "what it forwarded itself");

    for (from, frame, leaves) in &cases {
        let leaves: Vec<_> = leaves.iter().map(|(port, frame)| (*port, frame.as_slice())).collect();
        (0..TIMES).for_each(|_| world.pass(*from, frame, &leaves));
    }
    guest.eventually("hardware's packets are counted by its flows", dump, |shown| {
        let counted = |bytes| format!("packets:{TIMES}, bytes:{},", TIMES * bytes);
        shown.matches(&counted(UDP)).count() + shown.matches(&counted(UDP + 4)).count() == cases.len()
    });
    guest.eventually("and by its rules", "ovs-ofctl dump-flows unix:/tmp/ovs/br0.mgmt", |shown| {
        shown.matches(&format!("n_packets={}, ", TIMES + 1)).count() == cases.len()
    });
    guest.run(STOP);
    assert_eq!(world.rules(), 0, "{}", world.hca.lock().steering().dump());
}
