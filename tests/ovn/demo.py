"""Sluice under OVN: traffic by Open vSwitch alone, and the same with Sluice beside it, on three chassis in this machine.

    tests/lab/run -- python3 tests/ovn/demo.py PROGRAMS [OPENVSWITCH]

PROGRAMS is the folder of sluiced, sluice and libsluice_ovs_feedback.so. OPENVSWITCH is that of an Open vSwitch built with deploy/ovs, which hands
its flows over to Sluice. Ends with 0 only if with Sluice all traffic fares as without.
"""

import collections
import sys
import time

from agents import Agent, Look
from network import Network, end_all
from traffic import kinds, pings, ping_on

BEGUN = time.monotonic()
# How long it may take until the counters of flows are those of OpenFlow's rules.
OPENFLOW_IS_BEHIND = 5


def main():
    programs, native = sys.argv[1], next(iter(sys.argv[2:]), None)
    network = Network()
    which = "Open vSwitch that can hand its flows over" if native else "unmodified Open vSwitch"
    title(f"1. Three chassis, each with an {which}, under OVN: switches, a router, access lists, a load balancer, NAT")
    network.start(f"{programs}/libsluice_ovs_feedback.so", native)

    # Neighbours are found, and OVN says that a port is up before all of its flows are in place.
    for kind in kinds():
        kind.play()

    title("2. What its workloads do, by Open vSwitch alone")
    for kind in kinds():
        check(kind, kind.play())
        print(f"  {kind.expected:3} of {kind.count:3}  {kind.words}", flush=True)
    migrate(network, "two")

    title("3. Sluice starts beside each Open vSwitch, with tc in software")
    agents = [Agent(chassis, programs, native) for chassis in network.chassis.values()]
    for agent in agents:
        agent.start()

    title("4. The same, and which part of the packets Sluice forwards past Open vSwitch")
    seen = {}
    before = counted(network)
    for kind in kinds():
        play_beside(kind, agents, seen)
    after = counted(network)
    migrate(network, "three")

    title("5. What OpenFlow and OVN have counted of it, beside the workloads that stayed where they are")
    compare(before, after, agents)

    title("6. The flows that were seen meanwhile, and why some are left to Open vSwitch")
    report(seen)
    if native:
        report_given_back(agents)

    title("7. Sluice ends; Open vSwitch forwards by itself")
    for agent in agents:
        agent.stop()
        if agent.rules() != 0:
            raise SystemExit(f"there are rules left at {agent.chassis.name}")
        for complaint in agent.complaints():
            print(f"  {agent.chassis.name}: {complaint}")
    for kind in kinds():
        check(kind, kind.play())
    print("\nWith Sluice all traffic fares as without.")


def title(words):
    print(f"\n{words} ({time.monotonic() - BEGUN:.0f} s)", flush=True)


def check(kind, succeeded):
    if succeeded != kind.expected:
        raise SystemExit(f"{kind.words}: {succeeded} of {kind.count}, not {kind.expected}")


def play_beside(kind, agents, seen):
    """Plays traffic with Sluice at work, and says who has forwarded it."""
    before = [Look(agent) for agent in agents]
    check(kind, kind.play())
    forwarded = entered = 0
    # Counters are polled.
    time.sleep(0.5)
    for agent, earlier in zip(agents, before):
        look = Look(agent)
        ours, all_of_them = look.since(earlier)
        forwarded += ours
        entered += all_of_them
        seen.update({(agent.chassis.name, ufid): flow for ufid, flow in look.flows.items()})
    share = 100 * forwarded // max(entered, 1)
    print(f"  {kind.expected:3} of {kind.count:3}  {kind.words}: {share} % of {entered} packets", flush=True)


def counted(network):
    """What each workload that stays has sent and received, once Open vSwitch has looked at all of its flows again: by its device and by
    OpenFlow, and by its own kernel and by OVN, whose flow for it is wherever the packets came from."""
    time.sleep(OPENFLOW_IS_BEHIND)
    counts = {}
    for name, place in network.places.items():
        if name != "d":
            workload = network.workloads[name]
            handed = sum(chassis.handed_to(workload) for chassis in network.chassis.values())
            counts[name] = [network.chassis[place].counted(f"to-{name}"), (workload.received(), handed)]
    return counts


def compare(before, after, agents):
    """Compares OpenFlow's and OVN's counters with others. What misses in a later chain, and begins again, is counted twice."""
    misses = sum(agent.chain_misses() for agent in agents)
    go_on = all(agent.goes_on() for agent in agents)
    twice = 0 if go_on else misses
    print(f"  {misses} packets have missed in later chains, {'and have gone on there' if go_on else 'and are counted twice'}")
    for name in before:
        grown = [[now - then for now, then in zip(*counts)] for counts in zip(after[name], before[name])]
        (device, openflow), (received, handed) = grown
        print(f"  {name} has sent {device} packets, {openflow} by OpenFlow, and received {received}, {handed} by OVN")
        if not all(exact <= count <= exact + twice for exact, count in grown):
            raise SystemExit("OpenFlow or OVN has counted something else")


def migrate(network, place):
    """Has a workload move under traffic, after which each ping must be answered, and says how many are lost meanwhile."""
    with ping_on("a", "10.2.0.2") as ping:
        begun = time.monotonic()
        network.migrate("d", place)
        network.settle()
        took = time.monotonic() - begun
    if pings("a", "10.2.0.2", 20) != 20:
        raise SystemExit("a workload that has moved does not answer every ping")
    print(f"  d moves to chassis {place}, which takes OVN {took:.1f} s: {ping.lost} pings are lost, ten of them a second", flush=True)


def report(seen):
    """Says which flows were taken, and of the others why not."""
    taken = [flow for flow in seen.values() if flow["state"] in ("partial", "offloaded")]
    print(f"  {len(taken)} of {len(seen)} flows have rules")
    reasons = collections.defaultdict(list)
    for flow in seen.values():
        if flow["refusal"] is not None:
            reasons[flow["refusal"]["label"], flow["refusal"]["reason"].split(" 0x")[0]].append(flow)
    for (label, reason), flows in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"  {len(flows):3} {label}: {reason}; such as {flows[0]['actions']}")
    unexplained = [flow for flow in seen.values() if flow["state"] == "refused" and flow["refusal"] is None]
    if unexplained:
        raise SystemExit(f"nothing says why these are refused: {unexplained}")
    moving = sum(flow["state"] in ("pending", "deleting") for flow in seen.values())
    print(f"  {moving:3} were on their way in or out when they were seen last")


def report_given_back(agents):
    """Says how many flows Open vSwitch has in the kernel's datapath itself, and why the agents have refused flows."""
    for agent in agents:
        kept, all_of_them = agent.chassis.kept()
        print(f"  {agent.chassis.name}: {kept} of the {all_of_them} flows that there are now are in the kernel's datapath")
    reasons = collections.Counter(reason.split(" 0x")[0] for agent in agents for reason in agent.given_back())
    print("  Not among the flows above are those that were given back, and those of chains that these lead to:")
    for reason, count in reasons.most_common():
        print(f"  {count:3} {reason}")


if __name__ == "__main__":
    try:
        main()
    finally:
        end_all()
