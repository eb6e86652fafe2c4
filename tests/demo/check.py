#!/usr/bin/env python3
"""Do a flow dump's packet and byte counts agree with what tshark sees in the captures that were replayed?

    check.py --rules DUMP --capture client=client.pcap --capture uplink=uplink.pcap ... \\
             --tunnel vxlan_sys_4789=uplink [--misses N]

DUMP holds lines as `ovs-appctl dpctl/dump-flows -m --names` prints them. Every flow with recirc_id(0) is
translated, masks and all, to a condition on what `tshark -T fields` says of a frame; frames that meet it are
counted and compared with the flow's own `packets:` and `bytes:`. A frame counts with its Ethernet length
without FCS; a tunnel flow is compared with the inner frames of the VXLAN packets in the capture that --tunnel
names. Nothing here reads a packet's bytes: all values, lengths too, are tshark's.

Exit status: 0 all equal, every frame met by exactly one flow, except for --misses N frames met by none; 1 not so;
2 the dump cannot be understood or tshark failed. Flows in later passes (recirc_id other than 0) are left out.

--slack N is for a dump of ovs-vswitchd itself, whose datapath does not count what went by upcall: a flow may then
have counted up to N frames less, if these are as many bytes as the flow's first frames.
"""

import argparse
import ipaddress
import re
import subprocess
import sys

# What is asked of tshark. The part before the first dot is the protocol; a tunnelled frame has the outer header's
# values first, and _split() takes as many away as frame.protocols lists of that protocol in front of vxlan.
TSHARK_FIELDS = """
    frame.number frame.len frame.protocols
    eth.src eth.dst eth.type vlan.id vlan.priority vlan.etype
    mpls.label mpls.exp mpls.bottom mpls.ttl
    arp.src.proto_ipv4 arp.dst.proto_ipv4 arp.opcode arp.src.hw_mac arp.dst.hw_mac
    ip.src ip.dst ip.proto ip.dsfield ip.ttl ip.flags.df ip.flags.mf ip.frag_offset
    ipv6.src ipv6.dst ipv6.flow ipv6.tclass ipv6.hlim ipv6.nxt ipv6.hopopts.nxt ipv6.routing.nxt ipv6.dstopts.nxt
    ipv6.fraghdr.nxt ipv6.fraghdr.offset ipv6.fraghdr.more
    tcp.srcport tcp.dstport tcp.flags udp.srcport udp.dstport udp.length udp.checksum sctp.srcport sctp.dstport
    icmp.type icmp.code icmpv6.type icmpv6.code
    icmpv6.nd.ns.target_address icmpv6.nd.na.target_address icmpv6.opt.src_linkaddr icmpv6.opt.target_linkaddr
    vxlan.vni
""".split()

TCP, UDP, SCTP, ICMP, ICMPV6 = 6, 17, 132, 1, 58
FRAG = {"no": 0, "first": 1, "later": 3}
TCP_FLAGS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ece": 64, "cwr": 128, "ns": 256}
TUNNEL_FLAGS = {"df": 1, "csum": 2, "key": 4, "oam": 8}
CT_STATE = {"new": 1, "est": 2, "rel": 4, "rpl": 8, "inv": 16, "trk": 32, "snat": 64, "dnat": 128}

# Keys that say nothing of the frame; a packet in its first pass has 0 there.
ZERO_KEYS = {"recirc_id", "dp_hash", "skb_priority", "skb_mark", "ct_zone", "ct_mark", "ct_label", "packet_type"}


class Trouble(Exception):
    """The dump has something this program does not understand."""


# ------------------------------------------------------------------------------------------------ values

def number(text):
    """A number, MAC, IPv4 or IPv6 address, or truth value as an int."""
    if re.fullmatch(r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", text):
        return int(text.replace(":", ""), 16)
    if ":" in text or re.fullmatch(r"\d+(\.\d+){3}", text):
        return int(ipaddress.ip_address(text))
    if text in ("True", "False"):
        return int(text == "True")
    try:
        return int(text, 0)
    except ValueError:
        raise Trouble(f"not a value: {text!r}") from None


def masked(text):
    """VALUE[/MASK] as (value, mask); no mask means all bits."""
    value, slash, mask = text.partition("/")
    return number(value), number(mask) if slash else -1


def flag_bits(text, names):
    """Flags as (value, mask): "+syn-ack", "syn|ack", or numbers."""
    if re.fullmatch(r"(?:[+-][a-z]+)+", text):
        value = mask = 0
        for sign, name in re.findall(r"([+-])([a-z]+)", text):
            mask |= names[name]
            value |= names[name] if sign == "+" else 0
        return value, mask
    if re.match(r"\d", text):
        return masked(text)
    return sum(names[name] for name in text.split("|") if name), -1


def split_commas(text):
    """Splits at the commas that are outside parentheses."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


# ------------------------------------------------------------------------------------------------ flows

class Flow:
    """One line of the dump: `conditions` is a list of (name of the frame's value, value, mask)."""

    def __init__(self, line):
        head, found, self.actions = line.partition("actions:")
        if not found:
            raise Trouble(f"no actions: {line!r}")
        self.line, self.in_port, self.recirc_id, self.conditions = line, None, 0, []
        attributes, self.short = {}, []
        for part in split_commas(head):
            key = re.fullmatch(r"([a-z_0-9]+)\((.*)\)", part)
            if key:
                self._key(key.group(1), key.group(2), 0)
            else:
                name, colon, value = part.partition(":")
                if not colon:
                    raise Trouble(f"what is {part!r} in {line!r}")
                attributes[name] = value
        self.packets, self.bytes = int(attributes["packets"]), int(attributes["bytes"])
        self.frames = []

    def _want(self, name, value, mask):
        if mask != 0:
            self.conditions.append((name, value & mask, mask))

    def _key(self, key, text, depth):
        """One KEY(...); `depth` is the number of VLAN tags in front of it."""
        if key == "in_port":
            self.in_port = text
        elif key == "encap":
            for part in split_commas(text):
                self._key(*re.fullmatch(r"([a-z_0-9]+)\((.*)\)", part).groups(), depth + 1)
            return
        elif key in ZERO_KEYS:
            if key == "recirc_id":
                self.recirc_id = number(text)
            elif key != "packet_type":
                self._want("zero", *masked(text))
            return
        elif key == "ct_state":
            self._want("zero", *flag_bits(text, CT_STATE))
            return
        elif key == "eth_type":
            self._want(f"eth_type{depth}", *masked(text))
        elif key == "tcp_flags":
            self._want("tcp_flags", *flag_bits(text, TCP_FLAGS))
        elif key in ("eth", "vlan", "mpls", "arp", "ipv4", "ipv6", "tcp", "udp", "sctp", "icmp", "icmpv6", "nd", "tunnel"):
            self._nested(key, text, depth)
        elif not re.fullmatch(r"[^/]*/[0x ]+", text):       # unknown, and not wholly wildcarded, e.g. key32(00 00/00 00)
            raise Trouble(f"unknown key {key}({text})")
        self._describe(key, text)

    def _nested(self, key, text, depth):
        seen = {}
        for part in split_commas(text):
            sub, equals, value = part.partition("=")
            if key == "tunnel" and not equals:
                inside = re.fullmatch(r"flags\((.*)\)", sub)
                if not inside:
                    raise Trouble(f"unknown tunnel key {part!r}")
                self._want("tunnel.flags", *flag_bits(inside.group(1), TUNNEL_FLAGS))
            elif key == "vlan":
                self._want(f"vlan{depth}.{sub}", *masked(value))
            elif key == "mpls":                             # one group of four for each label of the stack
                index = seen[sub] = seen.get(sub, -1) + 1
                self._want(f"mpls{index}.{sub}", *masked(value))
            elif sub == "frag":
                name, slash, mask = value.partition("/")
                self._want(f"{key}.frag", FRAG[name] if name in FRAG else number(name), number(mask) if slash else -1)
            else:
                self._want(f"{key}.{sub}", *masked(value))

    def _describe(self, key, text):
        """Adds to the short form what is not wildcarded."""
        parts = [part for part in split_commas(text) if not re.search(r"/[0x:. ]+$", part) and part != "frag=no"]
        if parts:
            self.short.append(f"{key}({','.join(parts)})")

    def meets(self, values):
        for name, value, mask in self.conditions:
            have = values.get(name)
            if have is None or have & mask != value:
                return False
        return True


# ------------------------------------------------------------------------------------------------ frames

class Frame:
    """One frame of a capture; of a tunnel's capture, the inner frame of a VXLAN packet."""

    def __init__(self, capture, fields, is_tunnel):
        self.name = f"{capture} frame {fields['frame.number'][0]}"
        self.protocols = fields["frame.protocols"][0]
        outer, inner = _split(fields) if is_tunnel else (fields, None)
        self.tunnelled = inner is not None
        self.values = _values(inner or outer)
        self.length = int(fields["frame.len"][0])
        if self.tunnelled:
            # UDP's length without its header and VXLAN's, both of 8 bytes
            self.length = int(outer["udp.length"][0]) - 16
            self.values.update({
                "tunnel.tun_id": _first(fields, "vxlan.vni"),
                "tunnel.tos": _first(outer, "ip.dsfield"), "tunnel.ttl": _first(outer, "ip.ttl"),
                "tunnel.src": _first(outer, "ip.src"), "tunnel.dst": _first(outer, "ip.dst"),
                "tunnel.ipv6_src": _first(outer, "ipv6.src"), "tunnel.ipv6_dst": _first(outer, "ipv6.dst"),
                "tunnel.tp_src": _first(outer, "udp.srcport"), "tunnel.tp_dst": _first(outer, "udp.dstport"),
                "tunnel.flags": TUNNEL_FLAGS["key"] | (_first(outer, "ip.flags.df") or 0)
                                | (TUNNEL_FLAGS["csum"] if _first(outer, "udp.checksum") else 0)})


def _first(fields, name):
    values = fields.get(name)
    return number(values[0]) if values else None


def _split(fields):
    """Fields of the outer and (of a VXLAN packet, else None) of the inner frame."""
    layers = fields["frame.protocols"][0].split(":")
    if "vxlan" not in layers:
        return fields, None
    before = layers[:layers.index("vxlan")]
    outer, inner = {}, {}
    for name, values in fields.items():
        count = before.count(name.split(".")[0])
        outer[name], inner[name] = values[:count], values[count:]
    return outer, inner


def _values(fields):
    """What the keys of a flow are compared with, by key name. First occurrences: an ICMP error quotes headers."""
    f = lambda name: _first(fields, name)
    values = {"zero": 0, "eth.src": f("eth.src"), "eth.dst": f("eth.dst"), "eth_type0": f("eth.type")}
    for i, tag in enumerate(fields["vlan.id"]):
        values[f"vlan{i}.vid"], values[f"vlan{i}.pcp"] = number(tag), number(fields["vlan.priority"][i])
        values[f"vlan{i}.cfi"] = 1                          # Open vSwitch's sign that there is a tag
        if i < len(fields["vlan.etype"]):
            values[f"eth_type{i + 1}"] = number(fields["vlan.etype"][i])
    for i in range(len(fields["mpls.label"])):
        for sub, name in (("label", "label"), ("tc", "exp"), ("ttl", "ttl"), ("bos", "bottom")):
            values[f"mpls{i}.{sub}"] = number(fields[f"mpls.{name}"][i])
    for sub, name in (("sip", "src.proto_ipv4"), ("tip", "dst.proto_ipv4"), ("op", "opcode"),
                      ("sha", "src.hw_mac"), ("tha", "dst.hw_mac")):
        values[f"arp.{sub}"] = f(f"arp.{name}")

    eth_type = values.get(f"eth_type{len(fields['vlan.id'])}")
    proto = None
    if eth_type == 0x0800:
        proto = f("ip.proto")
        frag = 3 if f("ip.frag_offset") else 1 if f("ip.flags.mf") else 0
        values.update({"ipv4.src": f("ip.src"), "ipv4.dst": f("ip.dst"), "ipv4.proto": proto,
                       "ipv4.tos": f("ip.dsfield"), "ipv4.ttl": f("ip.ttl"), "ipv4.frag": frag})
    elif eth_type == 0x86dd:
        proto, frag = f("ipv6.nxt"), 0
        extension = {0: "hopopts", 43: "routing", 60: "dstopts", 44: "fraghdr"}
        while proto in extension:                           # Open vSwitch's proto is what comes after these
            name = extension.pop(proto)
            if name == "fraghdr":
                frag = 3 if f("ipv6.fraghdr.offset") else 1 if f("ipv6.fraghdr.more") else 0
            proto = f(f"ipv6.{name}.nxt")
        values.update({"ipv6.src": f("ipv6.src"), "ipv6.dst": f("ipv6.dst"), "ipv6.proto": proto,
                       "ipv6.label": f("ipv6.flow"), "ipv6.tclass": f("ipv6.tclass"), "ipv6.hlimit": f("ipv6.hlim"),
                       "ipv6.frag": frag})
    if proto is None or frag == 3:
        return values
    for this, name in ((TCP, "tcp"), (UDP, "udp"), (SCTP, "sctp")):
        if proto == this:
            values[f"{name}.src"], values[f"{name}.dst"] = f(f"{name}.srcport"), f(f"{name}.dstport")
    for this, name in ((ICMP, "icmp"), (ICMPV6, "icmpv6")):
        if proto == this:
            values[f"{name}.type"], values[f"{name}.code"] = f(f"{name}.type"), f(f"{name}.code")
    if proto == TCP:
        values["tcp_flags"] = f("tcp.flags")
    if proto == ICMPV6 and values["icmpv6.type"] in (135, 136):
        kind = "ns" if values["icmpv6.type"] == 135 else "na"
        values.update({"nd.target": f(f"icmpv6.nd.{kind}.target_address"),
                       "nd.sll": f("icmpv6.opt.src_linkaddr") or 0, "nd.tll": f("icmpv6.opt.target_linkaddr") or 0})
    return values


def read_capture(tshark, port, path, is_tunnel):
    command = [tshark, "-n", "-r", path, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=a",
               "-E", "aggregator=,", "-d", "udp.port==4789,vxlan",
               # each frame by itself
               "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-o", "tcp.desegment_tcp_streams:FALSE"]
    for name in TSHARK_FIELDS:
        command += ["-e", name]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        raise Trouble(f"tshark of {path}: {run.stderr.strip()}")
    frames = []
    for line in run.stdout.splitlines():
        values = line.split("\t")
        fields = {name: value.split(",") if value else [] for name, value in zip(TSHARK_FIELDS, values)}
        frames.append(Frame(port, fields, is_tunnel))
    return frames


# ------------------------------------------------------------------------------------------------ comparison

def pair(text):
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def agrees(flow, slack):
    """Whether the flow's counts are tshark's."""
    fewer = len(flow.frames) - flow.packets
    first = sum(frame.length for frame in flow.frames[:max(fewer, 0)])
    return 0 <= fewer <= slack and flow.bytes + first == sum(frame.length for frame in flow.frames)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", required=True, metavar="DUMP", help="flow lines; - for standard input")
    parser.add_argument("--capture", action="append", default=[], type=pair, metavar="PORT=FILE")
    parser.add_argument("--tunnel", action="append", default=[], type=pair, metavar="IN_PORT=CAPTURE")
    parser.add_argument("--misses", type=int, default=0, metavar="N", help="frames that no flow meets (default 0)")
    parser.add_argument("--slack", type=int, default=0, metavar="N", help="see above (default 0)")
    parser.add_argument("--tshark", default="tshark", metavar="PROGRAM")
    arguments = parser.parse_args()

    with (sys.stdin if arguments.rules == "-" else open(arguments.rules, encoding="utf-8")) as file:
        flows = [Flow(line.strip()) for line in file if "actions:" in line]
    later = [flow for flow in flows if flow.recirc_id != 0]
    flows = [flow for flow in flows if flow.recirc_id == 0]
    if not flows:
        raise Trouble("no flows in the dump")

    tunnel_of = {capture: in_port for in_port, capture in arguments.tunnel}
    missed, twice, total = [], [], 0
    for port, path in arguments.capture:
        for frame in read_capture(arguments.tshark, port, path, port in tunnel_of):
            total += 1
            in_port = tunnel_of[port] if frame.tunnelled else port
            met = [flow for flow in flows if flow.in_port == in_port and flow.meets(frame.values)]
            for flow in met:
                flow.frames.append(frame)
            if not met:
                missed.append(frame)
            elif len(met) > 1:
                twice.append((frame, met))

    rows, bad = [("flow", "packets", "tshark", "bytes", "tshark", "")], 0
    for flow in flows:
        ok = agrees(flow, arguments.slack)
        bad += not ok
        rows.append((" ".join(flow.short) + " -> " + flow.actions, flow.packets, len(flow.frames), flow.bytes,
                     sum(frame.length for frame in flow.frames), "ok" if ok else "DIFFERS"))
    for flow, *counts, verdict in rows:
        print("%8s %8s %9s %9s  %-7s  %s" % (*counts, verdict, flow if len(flow) <= 150 else flow[:147] + "..."))

    print(f"\n{len(flows)} flows, {bad} differ; {total} frames, {len(missed)} met by no flow "
          f"({arguments.misses} expected), {len(twice)} by two or more; "
          f"{len(later)} flows of later passes not looked at")
    for frame in missed:
        print(f"no flow: {frame.name}: {frame.length} bytes, {frame.protocols}")
    for frame, met in twice:
        print(f"several flows: {frame.name}: " + " | ".join(" ".join(flow.short) for flow in met))
    return 1 if bad or twice or len(missed) != arguments.misses else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Trouble, OSError) as error:
        print(f"check.py: {error}", file=sys.stderr)
        sys.exit(2)
