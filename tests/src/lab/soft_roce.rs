//! Soft-RoCE, the RDMA device that the kernel makes of any network device.

use std::fs::{read_dir, read_to_string, write};

use super::iproute::batch;
use super::run;
use crate::world::eventually;

/// The name of the device.
pub const DEVICE: &str = "rxe0";

/// Makes it of one end of a virtual cable, with this address. Frames of 4200 bytes give it packets of 4096.
pub fn in_one_machine(address: &str) {
    prepare();
    batch(&[
        "link set lo up".into(),
        "link add rdma0 mtu 4200 type veth peer name rdma1".into(),
        format!("address add {address}/24 dev rdma0"),
        "link set rdma1 mtu 4200 up".into(),
        "link set rdma0 up".into(),
    ]);
    begin("rdma0");
}

/// Makes it of the network device with this Ethernet address, which is called `cable` then and gets the address 10.10.0.NUMBER.
pub fn at_a_cable(ethernet: &str, number: u8) {
    prepare();
    let is_it = |name: &String| {
        read_to_string(format!("/sys/class/net/{name}/address")).is_ok_and(|found| found.trim() == ethernet)
    };
    let devices = read_dir("/sys/class/net").expect("network devices");
    let mut names = devices.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let name = names.find(is_it).expect("a network device with that address");
    batch(&[
        format!("link set {name} down"),
        format!("link set {name} name cable mtu 4200"),
        "link set lo up".into(),
        format!("address add 10.10.0.{number}/24 dev cable"),
        "link set cable up".into(),
    ]);
    begin("cable");
}

fn prepare() {
    run("modprobe --all rdma_rxe rdma_ucm ib_uverbs veth virtio_net");
    write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("a setting of the kernel");
}

fn begin(netdev: &str) {
    run(&format!("rdma link add {DEVICE} type rxe netdev {netdev}"));
    eventually("the port of the device is active", || {
        read_to_string(format!("/sys/class/infiniband/{DEVICE}/ports/1/state"))
            .is_ok_and(|state| state.contains("ACTIVE"))
    });
}
