#!/usr/bin/env bash
# What happens in the guest: the stock mlx5_core, devlink and tc on the device. What they say goes to files in $LAB_OUT, which
# the test reads; `ready` tells it that packets may come.
set -euo pipefail

say() { cat >"$LAB_OUT/$1.part"; mv "$LAB_OUT/$1.part" "$LAB_OUT/$1"; }
netdev() {
    for device in /sys/class/net/*; do
        if [ "$(cat "$device/phys_port_name" 2>/dev/null)" = "$1" ]; then
            basename "$device"
            return
        fi
    done
    echo "no netdev of port $1" >&2
    return 1
}
finish() { dmesg | grep mlx5_core | say dmesg; }
trap finish EXIT

sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
modprobe mlx5_core
device=pci/$(basename /sys/bus/pci/drivers/mlx5_core/0000:*)
devlink dev eswitch set "$device" mode switchdev
devlink dev eswitch show "$device" | say eswitch
devlink port show | say ports

udevadm settle
p0=$(netdev p0) pf=$(netdev c1pf0) vf0=$(netdev c1pf0vf0) vf1=$(netdev c1pf0vf1)
for netdev in "$p0" "$pf" "$vf0" "$vf1"; do
    tc qdisc add dev "$netdev" ingress
done
filter() { tc filter add dev "$1" ingress protocol "$2" pref "$3" flower skip_sw "${@:4}"; }
filter "$vf0" ip 1 src_ip 10.0.0.1 ip_proto udp dst_port 53 action mirred egress redirect dev "$p0"
filter "$vf0" ip 1 src_ip 10.0.0.1 ip_proto udp dst_port 54 action drop
filter "$p0" ip 1 dst_ip 10.0.0.1 ip_proto udp src_port 53 action mirred egress redirect dev "$vf0"
filter "$p0" ip 1 dst_ip 10.0.0.2 ip_proto udp src_port 53 action vlan push id 100 pipe action mirred egress redirect dev "$vf1"
filter "$p0" ip 1 dst_ip 10.0.0.3 ip_proto udp src_port 53 \
    action mirred egress mirror dev "$pf" pipe action mirred egress redirect dev "$vf1"
filter "$pf" ipv6 2 dst_ip fd00::/64 ip_proto tcp action mirred egress redirect dev "$vf1"
for netdev in "$p0" "$pf" "$vf0" "$vf1"; do
    tc filter show dev "$netdev" ingress
done | say filters
echo | say ready

# The driver reads all counters once a second.
for _ in $(seq 60); do
    tc -s filter show dev "$vf0" ingress | say counters_vf0
    tc -s filter show dev "$p0" ingress | say counters_p0
    ! grep -q 'Sent hardware [0-9]* bytes 5 pkt' "$LAB_OUT/counters_vf0" || break
    sleep 1
done

for netdev in "$p0" "$pf" "$vf0" "$vf1"; do
    tc qdisc del dev "$netdev" ingress
done
echo | say deleted

ip link set "$p0" up
ip link set "$vf0" up
sleep 2
ip -br link show dev "$p0" | say uplink
rmmod mlx5_core
