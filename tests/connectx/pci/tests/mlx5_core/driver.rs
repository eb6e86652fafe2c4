//! The driver by itself, with the stock devlink and tc.

use sluice_connectx::hca::Hca;
use sluice_connectx::steering::Port;

use crate::frames::{UDP, tagged, tcp_v6, udp};
use crate::guest::Guest;
use crate::{HOST_PF, MANAGER, VF0, VF1, World};

/// Names as BlueField's own udev rules give them, so that scripts read well; those of a host's functions are like them. udev, which names ports
/// as well, may take one away again, or change a name while it is changed here. So all names must have been right in two passes.
const RENAME: &str = r#"
right=0
for pass in {1..50}; do
    udevadm settle
    right=$((right + 1))
    for device in /sys/class/net/*; do
        port=$(cat "$device/phys_port_name" 2>/dev/null || true)
        case $port in
            p0) name=p0 ;;
            c1pf0) name=pf0hpf ;;
            c1pf0vf*) name=pf0vf${port#c1pf0vf} ;;
            pf0vf*) name=$port ;;
            *) continue ;;
        esac
        [ "${device##*/}" != "$name" ] || continue
        right=0
        ip link set "${device##*/}" name "$name" || true
    done
    [ $right -lt 2 ] || exit 0
done
echo "ports do not keep their names:"
ip link show
exit 1
"#;

/// Gives the ports their names.
pub(crate) fn name_ports(guest: &Guest) {
    guest.run(RENAME);
}

/// Brings a device that has its driver to switchdev mode, and gives the ports their names.
#[track_caller]
pub(crate) fn go_to_switchdev(guest: &Guest) {
    let said = guest.run(&format!(
        "devlink dev eswitch set $({DEVICE}) mode switchdev
         devlink dev eswitch show $({DEVICE})"
    ));
    assert!(said.contains("mode switchdev"), "{said}");
    name_ports(guest);
}

/// Has the host have so many virtual functions, which nobody drives, of a device that has its driver; their ports get their names.
pub(crate) fn set_functions(guest: &Guest, number: u16) {
    guest.run(&format!(
        "function=$(readlink -f /sys/bus/pci/drivers/mlx5_core/0000:*)
         echo 0 >$function/sriov_drivers_autoprobe
         echo {number} >$function/sriov_numvfs"
    ));
    name_ports(guest);
}

/// Says which one it is.
pub(crate) const DEVICE: &str = "echo pci/$(basename /sys/bus/pci/drivers/mlx5_core/0000:*)";

pub(crate) fn the_driver_takes_the_device_and_goes_to_switchdev(world: &World) {
    let guest = &world.guest;
    guest.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1; modprobe mlx5_core");
    go_to_switchdev(guest);
    let ports = guest.run("devlink port show");
    for flavour in ["flavour physical port 0", "flavour pcipf controller 1 pfnum 0", "vfnum 0", "vfnum 1"] {
        assert!(ports.contains(flavour), "no {flavour} in\n{ports}");
    }
}

pub(crate) fn packets_go_where_tc_said_and_are_counted(world: &World) {
    let guest = &world.guest;
    guest.run(
        "for port in p0 pf0hpf pf0vf0 pf0vf1; do tc qdisc add dev $port ingress; done
         filter() { tc filter add dev $1 ingress protocol $2 pref $3 flower skip_sw \"${@:4}\"; }
         filter pf0vf0 ip 1 src_ip 10.0.0.1 ip_proto udp dst_port 53 action mirred egress redirect dev p0
         filter pf0vf0 ip 1 src_ip 10.0.0.1 ip_proto udp dst_port 54 action drop
         filter p0 ip 1 dst_ip 10.0.0.1 ip_proto udp src_port 53 action mirred egress redirect dev pf0vf0
         filter p0 ip 1 dst_ip 10.0.0.2 ip_proto udp src_port 53 \
             action vlan push id 100 pipe action mirred egress redirect dev pf0vf1
         filter p0 ip 1 dst_ip 10.0.0.3 ip_proto udp src_port 53 \
             action mirred egress mirror dev pf0hpf pipe action mirred egress redirect dev pf0vf1
         filter pf0hpf ipv6 2 dst_ip fd00::/64 ip_proto tcp action mirred egress redirect dev pf0vf1",
    );
    let filters = guest.run("for port in p0 pf0hpf pf0vf0; do tc filter show dev $port ingress; done");
    let rules = filters.matches("skip_sw").count();
    assert_eq!((rules, filters.matches("in_hw in_hw_count 1").count()), (6, 6), "{filters}");

    let query = udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 53);
    for _ in 0..5 {
        world.pass(VF0, &query, &[(Port::Wire, &query)]);
    }
    let refused = udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 54);
    for _ in 0..2 {
        world.pass(VF0, &refused, &[]);
    }
    // Of another function, or of another address, it is no rule's.
    world.pass(VF1, &query, &[(MANAGER, &query)]);
    let stranger = udp([10, 0, 0, 9], [10, 9, 9, 9], 1000, 53);
    world.pass(VF0, &stranger, &[(MANAGER, &stranger)]);

    let answer = |to| udp([10, 9, 9, 9], [10, 0, 0, to], 53, 1000);
    world.pass(Port::Wire, &answer(1), &[(VF0, &answer(1))]);
    world.pass(Port::Wire, &answer(2), &[(VF1, &tagged(&answer(2), 100))]);
    world.pass(Port::Wire, &answer(3), &[(HOST_PF, &answer(3)), (VF1, &answer(3))]);
    let here = 0xfd00_u128 << 112 | 7;
    world.pass(HOST_PF, &tcp_v6(1, here), &[(VF1, &tcp_v6(1, here))]);
    world.pass(HOST_PF, &tcp_v6(1, 7), &[(MANAGER, &tcp_v6(1, 7))]);

    // The driver reads all counters once a second.
    guest.eventually("packets are counted", "tc -s filter show dev pf0vf0 ingress", |shown| {
        let counted = |packets| shown.contains(&format!("Sent hardware {} bytes {packets} pkt", packets * UDP));
        counted(5) && counted(2)
    });

    guest.run("for port in p0 pf0hpf pf0vf0 pf0vf1; do tc qdisc del dev $port ingress; done");
    world.pass(VF0, &query, &[(MANAGER, &query)]);
}

/// What the driver makes of some lists that put tags on and take tags off: a rule that takes the second one off alone.
const PUSHED_AND_POPPED: &str = "action second VLAN tag comes without the first";

/// What libmlx5 asks of a host's function only to find out whether it is there.
const PROBE: &str = "only an embedded CPU has host functions";

/// What the driver was refused and should not have been.
pub(crate) fn refusals(hca: &Hca) -> Vec<String> {
    let is_known = |refusal: &String| [PUSHED_AND_POPPED, PROBE].iter().any(|known| refusal.contains(known));
    hca.refusals().iter().map(ToString::to_string).filter(|refusal| !is_known(refusal)).collect()
}

/// What a story wants to go wrong.
const TO_FAIL: &str = "a write that was to fail";

pub(crate) fn the_driver_opens_its_devices(world: &World) {
    let shown = world.guest.eventually(
        "the uplink is up",
        "ip link set p0 up; ip link set pf0vf0 up; ip -br link show dev p0; ip -br link show dev pf0vf0",
        |shown| shown.matches("LOWER_UP").count() == 2,
    );
    assert_eq!(shown.lines().count(), 2, "{shown}");
}

pub(crate) fn the_driver_goes_and_leaves_nothing(world: &World) {
    world.end_agent();
    world.guest.run("rmmod mlx5_core");
    let hca = world.hca.lock();
    assert_eq!(refusals(&hca), Vec::<String>::new(), "the driver was refused");
    let complaints = hca.complaints().iter().filter(|complaint| !complaint.contains(TO_FAIL));
    assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&String>::new(), "the driver did what the device does not expect");
    assert_eq!(hca.left(), Vec::<String>::new(), "the driver left something");
}
