//! Other devices than the BlueField-2 of the stories, in its slot.

use sluice_connectx::profile::{
    BLUEFIELD_2_HOST, BLUEFIELD_3, CONNECTX_5, CONNECTX_6_DX, CONNECTX_6_DX_NO_ESWITCH, CONNECTX_7, Profile,
};
use sluice_connectx::steering::Port;

use crate::driver::{DEVICE, go_to_switchdev};
use crate::frames::udp;
use crate::police;
use crate::{MANAGER, World};

/// The function of a host's own device.
const PF: Port = Port::Vport(0);

pub(crate) fn other_devices_do_what_they_say(world: &World) {
    world.guest.remove();
    with(world, CONNECTX_5, || {
        a_host_switches_by_its_own_device(world);
        police::is_refused(world);
    });
    with(world, CONNECTX_6_DX, || {
        a_host_switches_by_its_own_device(world);
        police::is_done(world, PF);
    });
    with(world, CONNECTX_7, || go_to_switchdev(&world.guest));
    for profile in [CONNECTX_6_DX_NO_ESWITCH, BLUEFIELD_2_HOST] {
        with(world, profile, || a_function_that_does_not_manage_cannot_switch(world));
    }
    with(world, BLUEFIELD_3, || {
        go_to_switchdev(&world.guest);
        let names = world.guest.run("ls /sys/class/net");
        for name in ["p0", "pf0hpf", "pf0vf0", "pf0vf1"] {
            assert!(names.split_whitespace().any(|there| there == name), "{names}");
        }
        police::is_done(world, MANAGER);
    });
    world.ports.exchange(crate::DEVICE);
    world.guest.rescan();
    go_to_switchdev(&world.guest);
}

/// Has another device in the slot, of which the driver leaves nothing.
fn with(world: &World, profile: Profile, story: impl FnOnce()) {
    world.ports.exchange(profile);
    world.guest.rescan();
    let (major, minor, subminor) = profile.firmware;
    let said = world.guest.run("dmesg | grep 'firmware version' | tail -1");
    assert!(said.contains(&format!("firmware version: {major}.{minor}.{subminor}")), "{said}");
    let said = world.guest.run(&format!("devlink dev info $({DEVICE})"));
    assert!(said.contains(&format!("fw.psid {}", profile.psid)), "{said}");
    story();
    world.guest.remove();
    assert_eq!(world.hca.lock().left(), Vec::<String>::new(), "{}", profile.name);
}

fn a_host_switches_by_its_own_device(world: &World) {
    let guest = &world.guest;
    go_to_switchdev(guest);
    let known = guest.run("devlink port show");
    assert!(known.contains("flavour physical port 0") && !known.contains("flavour pci"), "{known}");
    // With no other port there is nothing to switch: packets are dropped or the driver's.
    let rule = |to, action| {
        format!(
            "tc filter add dev p0 ingress protocol ip pref 1 flower skip_sw dst_ip {to} ip_proto udp action {action}"
        )
    };
    guest.run(&format!("tc qdisc add dev p0 ingress; {}", rule("10.0.0.1", "drop")));
    let refused = guest.attempt(&rule("10.0.0.2", "mirred egress redirect dev p0"));
    assert!(refused.err.contains("mlx5_core: devices are both uplink, can't offload forwarding"), "{refused:?}");
    let frame = |to| udp([10, 9, 9, 9], [10, 0, 0, to], 53, 1000);
    world.pass(Port::Wire, &frame(1), &[]);
    world.pass(Port::Wire, &frame(2), &[(PF, &frame(2))]);
    guest.eventually("packets are counted", "tc -s filter show dev p0 ingress", |shown| {
        shown.contains("in_hw in_hw_count 1") && shown.contains("Sent hardware 60 bytes 1 pkt")
    });
    guest.run("tc qdisc del dev p0 ingress");
}

fn a_function_that_does_not_manage_cannot_switch(world: &World) {
    let guest = &world.guest;
    let refused = guest.attempt(&format!("devlink dev eswitch set $({DEVICE}) mode switchdev"));
    assert!(refused.code != 0 && refused.err.contains("Operation not supported"), "{refused:?}");
    guest.eventually(
        "udev leaves the device its name",
        "udevadm settle
         device=$(basename $(dirname /sys/class/net/*/device))
         [ $device = port ] || ip link set $device name port || true
         udevadm settle
         ls /sys/class/net",
        |names| names.contains("port"),
    );
    let rule = "tc qdisc add dev port ingress
                tc filter add dev port ingress protocol ip pref 1 flower skip_sw dst_ip 10.0.0.1 action drop";
    let refused = guest.attempt(rule);
    assert!(refused.code != 0 && refused.err.contains("TC offload is disabled on net device"), "{refused:?}");
    guest.run("tc qdisc del dev port ingress");
}
