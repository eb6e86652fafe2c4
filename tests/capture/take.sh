#!/usr/bin/env bash
# take.sh - retakes the demo's input from scratch: captures of real traffic through a real Open vSwitch
# (kernel datapath) and the flows its ovs-vswitchd installed for that traffic.
#
#   take.sh --install     get what is needed (as root; apt, and one PyPI package into a venv), then stop
#   take.sh [OUTDIR]      boot the lab VM, take everything, copy it to OUTDIR (default: this script's folder)
#   take.sh --inside DIR  the part that runs inside the VM (called by the line above, never by hand:
#                         it creates network namespaces, links and an OVS in the machine it runs on)
#
# The VM is Debian's own kernel under QEMU's software emulation (no KVM needed), started by virtme-ng; it sees
# the host's files read-only, all state lives in tmpfs, and it is gone when the commands are done (some 3 minutes).
# In KERNEL= one may name another /boot/vmlinuz-*; in LAB_VENV= where the venv with virtme-ng is.
set -euo pipefail

# Debian 12 packages: the VM ...                    and what is used inside it.
APT_PACKAGES="qemu-system-x86 linux-image-amd64 python3 python3-venv busybox-static kmod udev
              openvswitch-switch iproute2 iputils-ping ethtool tcpdump procps"
PIP_PACKAGES="virtme-ng==1.42"
LAB_VENV=${LAB_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice-lab/venv}

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SELF=$HERE/$(basename "${BASH_SOURCE[0]}")
FILES="client.pcap server.pcap vlan-host.pcap uplink.pcap rules.txt ports.txt"

say() { echo "take.sh: $*" >&2; }
die() { say "$*"; exit 1; }

# ------------------------------------------------------------------------------------------------ on the host

install_needed() {
    local had_ovs=0
    ! dpkg -s openvswitch-switch >/dev/null 2>&1 || had_ovs=1
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    # shellcheck disable=SC2086  # lists of words
    apt-get install -y --no-install-recommends $APT_PACKAGES
    # A newly installed package may start the host's own Open vSwitch, which the lab does not use.
    [ $had_ovs = 1 ] || systemctl disable --now openvswitch-switch.service 2>/dev/null || true
    python3 -m venv "$LAB_VENV"
    # shellcheck disable=SC2086
    "$LAB_VENV/bin/pip" install --quiet $PIP_PACKAGES
}

outside() {
    local out=$1 kernel work
    PATH=$LAB_VENV/bin:$PATH    # vng calls virtme-run, which must be on PATH
    command -v vng >/dev/null || die "no vng (virtme-ng); run: $0 --install"
    kernel=${KERNEL:-$(ls -v /boot/vmlinuz-* 2>/dev/null | tail -1)}
    [ -n "$kernel" ] || die "no /boot/vmlinuz-*; run: $0 --install"

    work=$(mktemp -d)           # the one folder the guest may write to
    # shellcheck disable=SC2064  # $work is wanted as it is now
    trap "rm -rf '$work'" EXIT
    say "booting $kernel"
    timeout 900 vng -r "$kernel" --disable-kvm --user root --cpus 2 --memory 2G --rwdir "$work" \
        -- "bash '$SELF' --inside '$work' > '$work/log' 2>&1; sync" </dev/null >"$work/console" 2>&1 || true
    cat "$work/log" >&2 || cat "$work/console" >&2
    [ -e "$work/done" ] || die "the part inside the VM did not finish"

    mkdir -p "$out"
    for f in $FILES; do install -m 644 "$work/$f" "$out/$f"; done
    # One line of the README tells what it was taken with.
    [ ! -e "$out/README.md" ] || sed -i "s|^Taken with: .*|Taken with: $(cat "$work/versions")|" "$out/README.md"
    say "done: $(cat "$work/versions")"
}

# ------------------------------------------------------------------------------------------------ inside the VM
#
#   namespace    address                               port of br0
#   client       10.0.0.1   fd00::1   02:00:00:00:00:01  client            (OpenFlow port 1)
#   server       10.0.0.2   fd00::2   02:00:00:00:00:02  server            (2); also 10.0.0.12, 10.9.0.2, 10.77.0.2
#   vlan-host    10.0.0.3   fd00::3   02:00:00:00:00:03  vlan-host         (3); on eth0.100, sends 802.1Q, VLAN 100
#   remote       10.0.0.4   fd00::4   02:00:00:00:00:04  vxlan42           (4); on a VXLAN device, VNI 42, whose
#                                     underlay 172.31.0.2 reaches `uplink`, 172.31.0.1, in the root namespace
#   nobody       10.0.0.254 10.9.0.1  02:00:00:00:00:fe  the router made of OpenFlow rules
#   nobody       10.0.0.100           02:00:00:00:00:64  the virtual IP in front of 10.0.0.2 and 10.0.0.12

in_ns() { ip netns exec "$@"; }

# Frames on the veths shall be as on a wire: checksums filled in, no segment larger than the MTU, tags in the frame.
plain() {   # plain "COMMAND PREFIX" DEVICE
    for f in tx rx sg tso gso gro txvlan rxvlan; do $1 ethtool -K "$2" $f off >/dev/null 2>&1 || true; done
}

# A namespace `name` whose eth0 is a veth to port `port` in the root namespace. No IPv6 noise of the kernel's own
# (no link-local addresses, so no router solicitations; no duplicate address detection).
make_host() {   # make_host NAME PORT MAC
    ip netns add "$1"
    ip link add "$2" type veth peer name eth0 netns "$1"
    in_ns "$1" sysctl -qw net.ipv6.conf.all.accept_ra=0 net.ipv6.conf.all.accept_dad=0 \
        net.ipv6.conf.default.accept_ra=0 net.ipv6.conf.default.accept_dad=0 \
        net.ipv6.conf.default.addr_gen_mode=1 net.ipv6.conf.eth0.addr_gen_mode=1
    in_ns "$1" ip link set eth0 address "$3"
    plain "" "$2"
    plain "ip netns exec $1" eth0
    in_ns "$1" ip link set lo up
    in_ns "$1" ip link set eth0 up
    ip link set "$2" up
}

make_hosts() {
    sysctl -qw net.ipv6.conf.default.disable_ipv6=1     # the root namespace shall not talk by itself
    make_host client client 02:00:00:00:00:01
    make_host server server 02:00:00:00:00:02
    make_host vlan-host vlan-host 02:00:00:00:00:03
    make_host remote uplink 02:00:00:00:00:11

    in_ns client ip addr add 10.0.0.1/24 dev eth0
    in_ns client ip -6 addr add fd00::1/64 dev eth0 nodad
    in_ns client ip route add 10.9.0.0/24 via 10.0.0.254                        # through the OpenFlow router
    in_ns client ip route add 10.77.0.2/32 encap mpls 100 via inet 10.0.0.2     # labelled, label 100

    in_ns server ip addr add 10.0.0.2/24 dev eth0
    for a in 10.0.0.12/24 10.9.0.2/32 10.77.0.2/32; do in_ns server ip addr add $a dev eth0; done
    in_ns server ip -6 addr add fd00::2/64 dev eth0 nodad
    in_ns server ip route add 10.9.0.1 dev eth0 table 9                         # answers go back through the router
    in_ns server ip route add default via 10.9.0.1 src 10.9.0.2 table 9
    in_ns server ip rule add from 10.9.0.2 lookup 9

    in_ns vlan-host ip link add link eth0 name eth0.100 type vlan id 100
    plain "ip netns exec vlan-host" eth0.100
    in_ns vlan-host ip addr add 10.0.0.3/24 dev eth0.100
    in_ns vlan-host ip link set eth0.100 up
    in_ns vlan-host ip -6 addr add fd00::3/64 dev eth0.100 nodad

    # The underlay has fixed neighbours: nothing but VXLAN is then on it.
    ip link set uplink address 02:00:00:00:00:10
    ip addr add 172.31.0.1/24 dev uplink
    ip neigh replace 172.31.0.2 lladdr 02:00:00:00:00:11 dev uplink nud permanent
    in_ns remote ip addr add 172.31.0.2/24 dev eth0
    in_ns remote ip neigh replace 172.31.0.1 lladdr 02:00:00:00:00:10 dev eth0 nud permanent
    in_ns remote ip link add vxlan42 address 02:00:00:00:00:04 type vxlan id 42 dev eth0 \
        remote 172.31.0.1 dstport 4789
    plain "ip netns exec remote" vxlan42
    in_ns remote ip addr add 10.0.0.4/24 dev vxlan42
    in_ns remote ip link set vxlan42 up
    in_ns remote ip -6 addr add fd00::4/64 dev vxlan42 nodad
}

# An ovsdb-server and an ovs-vswitchd of our own, all their files under $1.
start_ovs() {
    export OVS_RUNDIR=$1 OVS_DBDIR=$1 OVS_LOGDIR=$1 OVS_SYSCONFDIR=$1
    ovsdb-tool create "$1/conf.db" /usr/share/openvswitch/vswitch.ovsschema
    ovsdb-server "$1/conf.db" --remote=punix:"$1/db.sock" --pidfile="$1/ovsdb-server.pid" --detach --no-chdir \
        --log-file="$1/ovsdb-server.log" -vconsole:off
    ovs-vsctl --no-wait init
    # Flows stay until the dump, however long nothing uses them (10 minutes).
    ovs-vsctl --no-wait set Open_vSwitch . other_config:max-idle=600000
    ovs-vswitchd --pidfile="$1/ovs-vswitchd.pid" --detach --no-chdir --log-file="$1/ovs-vswitchd.log" -vconsole:off
    ovs-vsctl --timeout=60 -- add-br br0 -- set-fail-mode br0 secure \
        -- add-port br0 client    -- set Interface client    ofport_request=1 \
        -- add-port br0 server    -- set Interface server    ofport_request=2 \
        -- add-port br0 vlan-host -- set Interface vlan-host ofport_request=3 \
        -- add-port br0 vxlan42   -- set Interface vxlan42   ofport_request=4 type=vxlan \
           options:remote_ip=172.31.0.2 options:key=flow
    plain "" vxlan_sys_4789     # or it merges inner segments before the bridge counts them
}

# What OpenFlow needs to answer an ARP request for an address nobody has: ARP_REPLY MAC-HEX IP-HEX MAC.
arp_reply() {
    echo "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:$3,load:2->NXM_OF_ARP_OP[],\
move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],\
load:$1->NXM_NX_ARP_SHA[],load:$2->NXM_OF_ARP_SPA[],in_port"
}

add_rules() {
    local c=02:00:00:00:00:01 s=02:00:00:00:00:02 v=02:00:00:00:00:03 r=02:00:00:00:00:04
    local gw=02:00:00:00:00:fe vip=02:00:00:00:00:64
    # 4196 is VLAN 100 with the "present" bit of OpenFlow.
    local to_vlan="push_vlan:0x8100,set_field:4196->vlan_vid,output:3" to_remote="set_field:42->tun_id,output:4"
    ovs-ofctl -O OpenFlow13 add-flows br0 - <<RULES
# Table 0: what is special.
# telnet is dropped, for anybody
table=0,priority=300,tcp,tp_dst=23,actions=drop
# the router's and the virtual IP's ARP: only ovs-vswitchd can do this, so it becomes userspace(slow_path)
table=0,priority=250,arp,arp_op=1,arp_tpa=10.0.0.254,actions=$(arp_reply 0x0200000000fe 0x0a0000fe $gw)
table=0,priority=250,arp,arp_op=1,arp_tpa=10.9.0.1,actions=$(arp_reply 0x0200000000fe 0x0a090001 $gw)
table=0,priority=250,arp,arp_op=1,arp_tpa=10.0.0.100,actions=$(arp_reply 0x020000000064 0x0a000064 $vip)
# the client's labelled packets: label off, then looked at again (a recirculation)
table=0,priority=240,in_port=1,mpls,mpls_label=100,actions=pop_mpls:0x0800,resubmit(,3)
# a load balancer: the 5-tuple's hash chooses one of two addresses of the server
table=0,priority=200,in_port=1,tcp,nw_dst=10.0.0.100,tp_dst=8080,actions=multipath(symmetric_l4,1024,modulo_n,2,0,NXM_NX_REG1[]),resubmit(,4)
table=0,priority=200,in_port=2,tcp,tp_src=8080,actions=mod_nw_src:10.0.0.100,mod_dl_src:$vip,mod_dl_dst:$c,output:1
# DNS between the client and the server
table=0,priority=200,in_port=1,udp,tp_dst=53,actions=output:2
table=0,priority=200,in_port=2,udp,tp_src=53,actions=output:1
# HTTPS is stateful: connection tracking
table=0,priority=200,in_port=1,tcp,tp_dst=443,actions=ct(table=2,zone=7)
table=0,priority=200,in_port=2,tcp,tp_src=443,actions=ct(table=2,zone=7)
# syslog is shown to the controller
table=0,priority=200,in_port=1,udp,tp_dst=514,actions=controller(max_len=128),output:2
# the router: 10.9.0.0/24 and back
table=0,priority=150,dl_dst=$gw,ip,nw_dst=10.9.0.0/24,actions=dec_ttl,mod_dl_src:$gw,mod_dl_dst:$s,output:2
table=0,priority=150,dl_dst=$gw,ip,nw_dst=10.0.0.1,actions=dec_ttl,mod_dl_src:$gw,mod_dl_dst:$c,output:1
# the VLAN port: only VLAN 100 may come in, without its tag it is like the others
table=0,priority=100,in_port=3,dl_vlan=100,actions=pop_vlan,resubmit(,1)
table=0,priority=90,in_port=3,actions=drop
table=0,priority=10,actions=resubmit(,1)
# Table 1: by destination MAC; broadcast and multicast to all others.
table=1,priority=100,dl_dst=$c,actions=output:1
table=1,priority=100,dl_dst=$s,actions=output:2
table=1,priority=100,dl_dst=$v,actions=$to_vlan
table=1,priority=100,dl_dst=$r,actions=$to_remote
table=1,priority=100,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=output:1,output:2,$to_remote,$to_vlan
# Table 2: after connection tracking.
table=2,priority=100,in_port=1,ct_state=+trk+new,tcp,actions=ct(commit,zone=7),output:2
table=2,priority=100,in_port=1,ct_state=+trk+est,tcp,actions=output:2
table=2,priority=100,in_port=2,ct_state=+trk+est,tcp,actions=output:1
# Table 3: after the label is off.
table=3,priority=100,ip,nw_dst=10.77.0.0/24,actions=mod_dl_dst:$s,output:2
# Table 4: the balancer's choice.
table=4,priority=100,ip,reg1=0,actions=mod_nw_dst:10.0.0.2,mod_dl_dst:$s,output:2
table=4,priority=100,ip,reg1=1,actions=mod_nw_dst:10.0.0.12,mod_dl_dst:$s,output:2
RULES
}

# The programs the hosts run: a server for HTTP (any TCP port), DNS and syslog; a client for each.
write_peer() {
    cat >"$1" <<'PY'
import socket, struct, sys, threading, time

def reader(conn):                           # "GET /N" is answered with N bytes
    with conn:
        request = b""
        while b"\r\n\r\n" not in request:
            more = conn.recv(4096)
            if not more:
                return
            request += more
        size = int(request.split()[1].lstrip(b"/"))
        head = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % size
        conn.sendall(head + (b"0123456789abcdef" * (size // 16 + 1))[:size])

def serve():
    def tcp(port):
        s = socket.create_server(("0.0.0.0", port), backlog=16)
        while True:
            threading.Thread(target=reader, args=(s.accept()[0],), daemon=True).start()
    def dns():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("0.0.0.0", 53))
        while True:
            q, who = s.recvfrom(512)
            # the same question, and one A record: 10.0.0.2, for 60 s
            answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton("10.0.0.2")
            s.sendto(q[:2] + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0) + q[12:] + answer, who)
    def sink():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("0.0.0.0", 514))
        while True:
            s.recvfrom(2048)
    for f, a in ((dns, ()), (sink, ()), (tcp, (80,)), (tcp, (443,)), (tcp, (8080,))):
        threading.Thread(target=f, args=a, daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()

def http(host, port, size, count, source):  # `count` connections from source ports source, source+1, ...
    for i in range(count):
        with socket.create_connection((host, port), timeout=30, source_address=("", source + i)) as s:
            s.sendall(b"GET /%d HTTP/1.0\r\nHost: %s\r\n\r\n" % (size, host.encode()))
            got = b""
            while more := s.recv(65536):
                got += more
        if len(got.split(b"\r\n\r\n", 1)[1]) != size:
            sys.exit(f"http {host}:{port}: {len(got)} bytes")

def dns(host, count):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(30)
    for i in range(count):
        name = b"".join(bytes([len(p)]) + p for p in (b"host%d" % i, b"example", b"org")) + b"\0"
        s.sendto(struct.pack("!HHHHHH", 0x1000 + i, 0x0100, 1, 0, 0, 0) + name + struct.pack("!HH", 1, 1), (host, 53))
        s.recvfrom(512)

def syslog(host, count):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for i in range(count):
        s.sendto(b"<13>Jan  1 00:00:%02d client demo: message %d" % (i, i), (host, 514))
        time.sleep(0.3)

def telnet(host):                           # is dropped: some SYNs and no answer
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.settimeout(4)
    try:
        s.connect((host, 23))
        sys.exit("telnet was answered")
    except (socket.timeout, OSError):
        pass

what, args = sys.argv[1], [int(a) if a.isdigit() else a for a in sys.argv[2:]]
{"serve": serve, "http": http, "dns": dns, "syslog": syslog, "telnet": telnet}[what](*args)
PY
}

traffic() {     # traffic PEER-PROGRAM; every line must succeed
    local peer="python3 -u $1" p
    p() { in_ns "$1" ping -q -i 0.2 -W 10 "${@:2}" >/dev/null; }

    say "traffic: client and server"
    p client -c 5 10.0.0.2
    p client -c 4 fd00::2
    p client -c 2 -s 2000 10.0.0.2                              # IP fragments
    in_ns client $peer dns 10.0.0.2 6
    in_ns client $peer http 10.0.0.2 80 8000 3 40001
    say "traffic: virtual IP, router, connection tracking, controller, drop, label"
    in_ns client $peer http 10.0.0.100 8080 5000 4 41001
    p client -c 4 10.9.0.2
    in_ns client $peer http 10.9.0.2 80 4000 1 42001
    in_ns client $peer http 10.0.0.2 443 4000 2 43001
    in_ns client $peer syslog 10.0.0.2 5
    in_ns client $peer telnet 10.0.0.2
    p client -c 4 10.77.0.2
    say "traffic: VLAN"
    p client -c 4 10.0.0.3
    p vlan-host -c 4 fd00::1
    in_ns vlan-host $peer http 10.0.0.2 80 8000 2 44001
    in_ns client $peer http 10.0.0.3 80 6000 1 46001
    in_ns vlan-host $peer telnet 10.0.0.1
    say "traffic: VXLAN"
    p remote -c 5 10.0.0.2
    p remote -c 4 fd00::2
    in_ns remote $peer http 10.0.0.2 80 10000 2 45001
    p client -c 4 10.0.0.4
    in_ns server $peer http 10.0.0.4 80 8000 1 47001
    p remote -c 3 10.0.0.3
}

inside() {
    local out=$1 lab=/run/sluice-lab host port file servers=() pids=()
    [ -d "$out" ] || die "no folder $out"
    grep -q virtme /proc/cmdline || die "this is not the lab VM"
    mkdir -p $lab
    for m in openvswitch vport_vxlan vxlan veth 8021q mpls_router mpls_iptunnel; do modprobe $m; done
    say "hosts"; make_hosts
    say "OVS";   start_ovs $lab; add_rules

    write_peer $lab/peer.py
    for host in server vlan-host remote; do
        in_ns $host python3 -u $lab/peer.py serve >$lab/serve-$host.log 2>&1 &
        servers+=($!)
    done
    for host in server vlan-host remote; do
        for _ in $(seq 100); do grep -q ready $lab/serve-$host.log && break; sleep 0.3; done
    done

    # Listener reports and the like of the addresses just made shall be over; flows they left behind go.
    sleep 5
    ovs-appctl revalidator/purge

    # What enters the bridge, at each port. Taps see a frame before the bridge takes it.
    for port in client server vlan-host uplink; do
        tcpdump -i $port -Q in -s 0 -B 4096 -U --immediate-mode -Z root -w $lab/$port.pcap 2>$lab/$port.tcpdump &
        pids+=($!)
    done
    for port in client server vlan-host uplink; do
        for _ in $(seq 100); do grep -q 'listening on' $lab/$port.tcpdump && break; sleep 0.3; done
    done

    traffic $lab/peer.py
    sleep 8                     # late ARP and neighbour probes come some 5 s after the last use
    kill -INT "${pids[@]}"; wait "${pids[@]}" || true

    # As ovs-appctl prints them, not a letter changed.
    ovs-appctl dpctl/dump-flows -m --names >$lab/rules.txt
    ovs-appctl dpctl/show >$lab/ports.txt
    echo "kernel $(uname -r), $(ovs-vswitchd --version | head -1), $(tcpdump --version 2>&1 | head -1)" >$lab/versions

    for port in client server vlan-host uplink; do
        say "$port: $(tr '\n' ' ' <$lab/$port.tcpdump)"
        grep -q '^0 packets dropped by kernel' $lab/$port.tcpdump || die "$port: frames lost"
    done
    grep -E 'WARN|ERR|EMER' $lab/ovs-vswitchd.log >&2 || true
    kill "${servers[@]}"
    for file in $FILES versions; do cp $lab/$file "$out/$file"; done
    touch "$out/done"
}

case ${1:-} in
    --install) install_needed ;;
    --inside) inside "${2:?folder}" ;;
    -h|--help) sed -n '2,12s/^# \{0,1\}//p' "$SELF" ;;
    -*) die "unknown option $1" ;;
    *) outside "${1:-$HERE}" ;;
esac
