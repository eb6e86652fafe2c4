//! Tunnels in hardware: headers put on and taken off, for every kind that the driver takes.

use sluice_connectx::steering::Port;

use crate::packet::{Packet, TCP};
use crate::{VF0, World};

const SET_UP: &str = "
    ip link set p0 up; ip address add 192.0.2.1/24 dev p0
    ip neigh replace 192.0.2.2 lladdr 02:00:00:00:00:22 dev p0 nud permanent
    ip link add vx type vxlan external dstport 4789
    ip link add gnv type geneve external dstport 6081
    ip link add gre type gretap external
    for device in vx gnv gre; do ip link set $device up; tc qdisc add dev $device ingress; done
    tc qdisc add dev pf0vf0 ingress";

pub(crate) fn tunnels_begin_and_end_in_hardware(world: &World) {
    world.guest.run(SET_UP);
    for (device, more, enc) in [("vx", "dst_port 4789", "enc_dst_port 4789"), ("gnv", "dst_port 6081", "enc_dst_port 6081"), ("gre", "", "")] {
        let ran = world.guest.attempt(&format!(
            "tc filter add dev pf0vf0 ingress protocol ip pref 1 flower skip_sw src_mac 02:00:00:00:00:01 ip_proto tcp \\
                 action tunnel_key set src_ip 192.0.2.1 dst_ip 192.0.2.2 id 42 {more} nocsum pipe mirred egress redirect dev {device}"
        ));
        eprintln!("{device} encap: {ran:?}");
        let packet = Packet::v4(TCP);
        eprintln!("{}", world.receive(VF0, &packet.frame()));
        let ran = world.guest.attempt(&format!(
            "tc filter add dev {device} ingress protocol ip pref 1 flower skip_sw enc_src_ip 192.0.2.2 enc_dst_ip 192.0.2.1 \\
                 enc_key_id 42 {enc} action tunnel_key unset pipe mirred egress redirect dev pf0vf0"
        ));
        eprintln!("{device} decap: {ran:?}");
        let ran = world.guest.attempt(&format!("tc -s filter show dev {device} ingress; tc -s filter show dev pf0vf0 ingress; tc filter del dev pf0vf0 ingress; dmesg | tail -5"));
        eprintln!("{}", ran.out);
        let _ = Port::Wire;
    }
    world.guest.run("tc qdisc del dev pf0vf0 ingress; for device in vx gnv gre; do ip link del $device; done; ip address del 192.0.2.1/24 dev p0");
}
