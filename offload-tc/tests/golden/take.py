#!/usr/bin/env python3
"""Takes what `tc` says to the kernel for each line of commands.txt, and what the kernel shows of the rule then.

Run from the top of the tree, as root on a kernel that has it all:

    tests/lab/run --out offload-tc/tests/golden -- python3 offload-tc/tests/golden/take.py

It writes golden.txt: a line for each, with the name, tc's request and the kernel's listing, in hexadecimal. With names as
arguments, only those are taken anew. Lines that tc or the kernel refuse are told, and left out.
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
DUMP = re.compile(r"^ \| [0-9a-f]{5,}  ((?:[0-9a-f]{2} {1,2})+)")


def run(*words):
    subprocess.run(words, check=True)


def traced(direction, words):
    """Runs tc, and gives the bytes of each system call that moved some over its socket."""
    trace = "/tmp/trace"
    ran = subprocess.run(
        ["strace", "-o", trace, "-e", "trace=sendmsg,recvmsg", "-e", f"{direction}=3", "tc", *words],
        capture_output=True, text=True)
    calls, current = [], None
    for line in pathlib.Path(trace).read_text().splitlines():
        if not line.startswith(" "):
            current = bytearray()
            calls.append(current)
        elif (found := DUMP.match(line)) and current is not None:
            current += bytes.fromhex(found[1])
    return ran, [bytes(call) for call in calls if call]


def messages(datagram):
    while len(datagram) >= 16:
        length = int.from_bytes(datagram[:4], sys.byteorder)
        yield int.from_bytes(datagram[4:6], sys.byteorder), datagram[:length]
        datagram = datagram[(length + 3) // 4 * 4:]


def main():
    for module in ("veth", "cls_flower", "sch_ingress", "act_mirred", "act_vlan", "act_mpls", "act_pedit", "act_csum",
                   "act_tunnel_key", "act_ct", "act_skbedit", "act_sample", "act_police", "act_gact"):
        run("modprobe", module)
    for number in (0, 2, 4):
        run("ip", "link", "add", f"v{number}", "index", str(100 + number), "type", "veth", "peer", "name",
            f"v{number + 1}")
        run("ip", "link", "set", f"v{number}", "up")
    golden = HERE / "golden.txt"
    taken = {line.split(" ", 1)[0]: line for line in golden.read_text().splitlines(True)} if sys.argv[1:] else {}
    names = []
    for line in (HERE / "commands.txt").read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        name, words = line.split(": ", 1)
        names.append(name)
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        run("tc", "qdisc", "add", "dev", "v0", "clsact")
        ran, sent = traced("write", ["filter", "add", "dev", "v0", "ingress", "chain", "3", "pref", "7", "handle", "0x11",
                                     *words.split()])
        if ran.returncode:
            print(f"{name}: {ran.stderr.strip()[:200]}")
        else:
            request = next(call for call in sent if any(kind == 44 for kind, _ in messages(call)))
            _, received = traced("read", ["filter", "show", "dev", "v0", "ingress"])
            shown = [message for call in received for kind, message in messages(call) if kind == 44]
            # Calls that only peek show the same once more.
            shown = list(dict.fromkeys(shown))
            taken[name] = f"{name} {request.hex()} {b''.join(shown).hex()}\n"
        run("tc", "qdisc", "del", "dev", "v0", "clsact")
    out = pathlib.Path(os.environ["LAB_OUT"]) / "golden.txt"
    out.write_text("".join(taken[name] for name in names if name in taken))
    print(f"{len(taken)} taken")


main()
