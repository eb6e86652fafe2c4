"""A small OVN in this machine: three chassis, each a network namespace with an Open vSwitch of its own, and workloads behind them.

Logical switches and a router between them; port security, access lists with connection tracking at two of them, a load balancer at the
third, and address translation to a network outside, which one of the chassis is at. Everything of OVN and of Open vSwitch is Debian's, unchanged;
or ovs-vswitchd is one that is built with deploy/ovs.
"""

import json
import os
import pathlib
import re
import subprocess
import time

FOLDER = pathlib.Path("/run/ovn-lab")
WEB = FOLDER / "web"
SCHEMAS = {"nb": "/usr/share/ovn/ovn-nb.ovsschema", "sb": "/usr/share/ovn/ovn-sb.ovsschema"}
OPENVSWITCH = "/usr/share/openvswitch"
MODULES = ["openvswitch", "veth", "geneve", "bridge", "nf_conntrack", "nf_nat", "sch_ingress", "cls_flower", "act_mirred", "act_ct"]
# What an outer header needs of the 1,500 bytes of the wire.
MTU = 1400
# Open vSwitch 3.1 takes a machine that has been up for less for one without processors.
UPTIME = 12

LOAD_BALANCER = "10.9.0.9"
OUTSIDE = "172.16.0.9"
FLOATING = "172.16.0.10"


def run(*words, **options):
    """Runs a program to its end, and returns what it says."""
    ran = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {ran.stdout}")
    return ran.stdout


def eventually(what, is_so, seconds=60):
    """Waits until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Workload:
    """A namespace with an address of OVN, which serves pages on ports 80 and 81."""

    def __init__(self, name, switch, host):
        self.name = name
        self.switch = switch
        self.address = f"10.{switch[-1]}.0.{host}"
        self.ethernet = f"02:00:00:00:0{switch[-1]}:0{host}"

    def plug_in(self, chassis):
        """Makes its link to a chassis, which OVN knows it by. Elsewhere it is gone."""
        device = f"to-{self.name}"
        chassis.ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        chassis.ip("link", "set", device, "up", "mtu", str(MTU))
        ip_in(self.name, "link", "set", "eth0", "address", self.ethernet, "mtu", str(MTU), "up")
        send_each_frame(self.name)
        ip_in(self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        ip_in(self.name, "route", "add", "default", "via", f"10.{self.switch[-1]}.0.254")
        chassis.vsctl("add-port", "br-int", device, "--", "set", "interface", device, f"external_ids:iface-id={self.name}")

    def pull_out(self, chassis):
        """Takes its link away."""
        device = f"to-{self.name}"
        chassis.vsctl("del-port", device)
        chassis.ip("link", "del", device)

    def received(self):
        """IPv4 packets that it has received, as its own kernel counts them."""
        names, counts = (line.split() for line in run("ip", "netns", "exec", self.name, "grep", "^Ip:", "/proc/net/snmp").splitlines())
        return int(counts[names.index("InReceives")])


def ip_in(space, *words):
    """Runs a command of `ip` in a namespace."""
    run("ip", "-n", space, *words)


def send_each_frame(space):
    """Has a workload cut its segments itself, for tc counts the frames that they become, and devices what they are handed."""
    run("ip", "netns", "exec", space, "ethtool", "-K", "eth0", "tso", "off", "gso", "off")


def deliver_each_frame(chassis):
    """Has a chassis hand frames that come by tunnels to workloads one by one, for their kernel counts what it is handed."""
    device = "genev_sys_6081"
    eventually(f"{chassis} has tunnels", lambda: device in run("ip", "-n", chassis, "-brief", "link", "show"))
    run("ip", "netns", "exec", chassis, "ethtool", "-K", device, "gro", "off")


class Chassis:
    """A namespace with its ovs-vswitchd and ovn-controller."""

    def __init__(self, name, number):
        self.name = name
        self.address = f"192.168.77.{number}"
        self.folder = FOLDER / name
        self.environment = {**os.environ, "OVS_RUNDIR": str(self.folder), "OVN_RUNDIR": str(self.folder)}

    def ip(self, *words):
        """Runs a command of `ip` in its namespace."""
        ip_in(self.name, *words)

    def vsctl(self, *words):
        """Runs commands on its Open vSwitch, and returns what they say."""
        return run("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", "--timeout=60", *words)

    def entered(self):
        """Packets that have come in from workloads, from outside and by tunnels, as their devices have counted."""
        links = json.loads(run("ip", "-n", self.name, "-stats", "-json", "link", "show"))
        ours = [link for link in links if link["ifname"].startswith(("to-", "genev_sys"))]
        return sum(link["stats64"]["rx"]["packets"] for link in ours)

    def kept(self):
        """Flows that the kernel's datapath has, and all that Open vSwitch has."""
        shown = run("ovs-appctl", "-t", f"{self.folder}/vswitchd.ctl", "dpctl/dump-flows", "-m").splitlines()
        return sum("dp:ovs" in line for line in shown), len(shown)

    def counted(self, device):
        """Packets that have come in at a port as its device has counted, and as the first table of OpenFlow has."""
        link = json.loads(run("ip", "-n", self.name, "-stats", "-json", "link", "show", "dev", device))[0]
        rules = run("ovs-ofctl", "dump-flows", f"unix:{self.folder}/br-int.mgmt", f"table=0,in_port={self.number_of(device)}")
        return link["stats64"]["rx"]["packets"], sum(int(packets) for packets in re.findall(r"n_packets=(\d+)", rules))

    def handed_to(self, workload):
        """Packets that OVN's logical flow has given to a workload here, by OVN's own listing of its flows with their counters."""
        ovs = f"--ovs=unix:{self.folder}/br-int.mgmt"
        words = ["ovn-sbctl", f"--db=unix:{FOLDER}/sb.sock", "--timeout=60", ovs, "--stats", "lflow-list", workload.switch]
        looked_up = f"match=(eth.dst == {workload.ethernet})"
        packets, is_its = 0, False
        for line in run(*words).splitlines():
            if "match=(" in line:
                is_its = "ls_in_l2_lkup" in line and looked_up in line
            elif is_its:
                packets += sum(int(count) for count in re.findall(r"n_packets=(\d+)", line))
        return packets

    def number_of(self, device):
        """OpenFlow's number of a port."""
        return self.vsctl("get", "interface", device, "ofport").strip()

    def spawn(self, *words, **more):
        """Starts a program in its namespace."""
        return spawn(self.folder / f"{pathlib.Path(words[0]).name}.log", "ip", "netns", "exec", self.name, *words,
                     env={**self.environment, **more})

    def start(self, library, native):
        """Starts Open vSwitch with our library, or one whose folder is given, which hands its flows over; and OVN's controller."""
        self.folder.mkdir(parents=True)
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", f"to-{self.name}", "master", "fabric", "type", "veth", "peer", "name", "wire", "netns", self.name)
        run("ip", "link", "set", f"to-{self.name}", "up")
        self.ip("link", "set", "lo", "up")
        self.ip("link", "set", "wire", "up")
        self.ip("addr", "add", f"{self.address}/24", "dev", "wire")
        run("ovsdb-tool", "create", f"{self.folder}/conf.db", f"{native or OPENVSWITCH}/vswitch.ovsschema")
        self.spawn("ovsdb-server", f"{self.folder}/conf.db", f"--remote=punix:{self.folder}/db.sock")
        eventually("the database of a chassis is there", (self.folder / "db.sock").exists)
        self.vsctl("--no-wait", "init")
        settings = {
            "system-id": self.name,
            "ovn-remote": f"unix:{FOLDER}/sb.sock",
            "ovn-encap-type": "geneve",
            "ovn-encap-ip": self.address,
            "ovn-bridge-mappings": "outside:br-outside",
        }
        self.vsctl("--no-wait", "set", "open", ".", *[f'external-ids:{key}="{value}"' for key, value in settings.items()])
        vswitchd = [f"unix:{self.folder}/db.sock", f"--unixctl={self.folder}/vswitchd.ctl"]
        if native:
            settings = ["hw-offload=true", "hw-offload-priority=sluice", f"sluice-run-dir={self.folder}/run"]
            self.vsctl("--no-wait", "set", "open", ".", *[f"other_config:{setting}" for setting in settings])
            self.spawn(f"{native}/ovs-vswitchd", *vswitchd)
        else:
            self.spawn("ovs-vswitchd", *vswitchd, LD_PRELOAD=library, SLUICE_OVS_FEEDBACK=f"{self.folder}/run/ovs-feedback.sock")
        eventually("ovs-vswitchd answers", (self.folder / "vswitchd.ctl").exists)
        self.vsctl("--may-exist", "add-br", "br-outside")
        self.spawn("ovn-controller", f"unix:{self.folder}/db.sock")


# Whatever runs beside this program.
processes = []


def spawn(log, *words, **options):
    """Starts a program that runs beside this one."""
    with open(log, "a") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **options)
    processes.append(process)
    return process


def end_all():
    """Ends what was started."""
    for process in processes:
        process.terminate()


class Network:
    """All of it."""

    def __init__(self):
        self.chassis = {name: Chassis(name, number) for number, name in enumerate(["one", "two", "three"], 1)}
        self.workloads = {
            name: Workload(name, switch, host)
            for name, switch, host in [("a", "s1", 1), ("b", "s1", 2), ("c", "s2", 1), ("d", "s2", 2), ("e", "s3", 1)]
        }
        self.places = {"a": "one", "b": "one", "c": "two", "d": "three", "e": "one"}

    def start(self, library, native):
        """Starts everything, and waits until pages can be had."""
        for module in MODULES:
            run("modprobe", module)
        WEB.mkdir(parents=True)
        (WEB / "page").write_text("A page.\n")
        (WEB / "bulk").write_bytes(bytes(4_000_000))
        run("ip", "link", "add", "fabric", "up", "type", "bridge")
        self.start_central()
        while float(pathlib.Path("/proc/uptime").read_text().split()[0]) < UPTIME:
            time.sleep(0.1)
        for chassis in self.chassis.values():
            chassis.start(library, native)
        self.describe()
        for name, workload in self.workloads.items():
            run("ip", "netns", "add", name)
            ip_in(name, "link", "set", "lo", "up")
            workload.plug_in(self.chassis[self.places[name]])
        self.start_outside()
        self.settle()
        for name in self.chassis:
            deliver_each_frame(name)
        for space in [*self.workloads, "outside"]:
            for port in ["80", "81"]:
                spawn(FOLDER / "httpd.log", "ip", "netns", "exec", space, "busybox", "httpd", "-f", "-p", port, "-h", str(WEB))

    def start_central(self):
        """OVN's databases, and what makes logical flows of one for the other."""
        for name, schema in SCHEMAS.items():
            run("ovsdb-tool", "create", f"{FOLDER}/{name}.db", schema)
            spawn(FOLDER / f"{name}.log", "ovsdb-server", f"{FOLDER}/{name}.db", f"--remote=punix:{FOLDER}/{name}.sock",
                  f"--unixctl={FOLDER}/{name}.ctl")
            eventually("a database of OVN is there", (FOLDER / f"{name}.sock").exists)
        run("ovn-nbctl", f"--db=unix:{FOLDER}/nb.sock", "init")
        run("ovn-sbctl", f"--db=unix:{FOLDER}/sb.sock", "init")
        spawn(FOLDER / "northd.log", "ovn-northd", f"--ovnnb-db=unix:{FOLDER}/nb.sock", f"--ovnsb-db=unix:{FOLDER}/sb.sock",
              f"--unixctl={FOLDER}/northd.ctl")

    def nbctl(self, text):
        """Runs commands, a line each, as one transaction."""
        words = " -- ".join(line.strip() for line in text.strip().splitlines())
        run("sh", "-c", f"exec ovn-nbctl --db=unix:{FOLDER}/nb.sock --timeout=120 {words}")

    def describe(self):
        """The logical network."""
        self.nbctl(f"""
            ls-add s1
            ls-add s2
            ls-add s3
            ls-add public
            lr-add r
            lrp-add r r-s1 02:00:00:00:01:fe 10.1.0.254/24
            lrp-add r r-s2 02:00:00:00:02:fe 10.2.0.254/24
            lrp-add r r-s3 02:00:00:00:04:fe 10.3.0.254/24
            lrp-add r r-public 02:00:00:00:03:fe 172.16.0.1/24
            lrp-set-gateway-chassis r-public three
            lsp-add public public-outside
            lsp-set-type public-outside localnet
            lsp-set-addresses public-outside unknown
            lsp-set-options public-outside network_name=outside
            lr-nat-add r snat 172.16.0.1 10.1.0.0/24
            lr-nat-add r dnat_and_snat {FLOATING} 10.2.0.2
            lb-add balancer {LOAD_BALANCER}:80 10.2.0.1:80,10.2.0.2:80 tcp
            ls-lb-add s3 balancer
        """)
        for switch in ["s1", "s2", "s3", "public"]:
            self.nbctl(f"""
                lsp-add {switch} {switch}-r
                lsp-set-type {switch}-r router
                lsp-set-addresses {switch}-r router
                lsp-set-options {switch}-r router-port=r-{switch}
            """)
        for workload in self.workloads.values():
            addresses = f"'{workload.ethernet} {workload.address}'"
            self.nbctl(f"""
                lsp-add {workload.switch} {workload.name}
                lsp-set-addresses {workload.name} {addresses}
                lsp-set-port-security {workload.name} {addresses}
            """)
        for switch in ["s1", "s2"]:
            self.nbctl(f"""
                acl-add {switch} from-lport 1000 ip4 allow-related
                acl-add {switch} to-lport 1000 icmp4 allow-related
                acl-add {switch} to-lport 1000 'ip4 && tcp.dst == 80' allow-related
                acl-add {switch} to-lport 900 'ip4 && tcp' drop
            """)

    def start_outside(self):
        """A host outside, behind a bridge of the third chassis."""
        gateway = self.chassis["three"]
        run("ip", "netns", "add", "outside")
        gateway.ip("link", "add", "to-outside", "up", "type", "veth", "peer", "name", "eth0", "netns", "outside")
        ip_in("outside", "link", "set", "lo", "up")
        ip_in("outside", "link", "set", "eth0", "up")
        send_each_frame("outside")
        ip_in("outside", "addr", "add", f"{OUTSIDE}/24", "dev", "eth0")
        gateway.vsctl("add-port", "br-outside", "to-outside")

    def settle(self):
        """Waits until all chassis have what the northbound database says."""
        run("ovn-nbctl", f"--db=unix:{FOLDER}/nb.sock", "--timeout=120", "--wait=hv", "sync")

    def migrate(self, name, place):
        """Has a workload go on at another chassis."""
        workload = self.workloads[name]
        workload.pull_out(self.chassis[self.places[name]])
        self.places[name] = place
        workload.plug_in(self.chassis[place])
