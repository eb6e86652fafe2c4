"""Sluice on each chassis, and what it says of the flows of its Open vSwitch."""

import json
import pathlib

from network import eventually, run

CONFIG = """
run_dir = "{0}/run"
lock_dir = "{0}"
state_dir = "{0}/state"
device = "{1}"
backend = "tc"
tc.policy = "skip_hw"
metrics = "none"
poll_interval = "200ms"
[[port]]
number = 10000
name = "wire"
[source.ovs]
underlay = "wire"
handed_over = {2}
"""


class Agent:
    """The agent of a chassis."""

    def __init__(self, chassis, programs, native):
        self.chassis = chassis
        self.programs = pathlib.Path(programs)
        self.is_handed_over = native is not None
        self.process = None

    def start(self):
        """Starts it, and waits until it has read the datapath."""
        file = self.chassis.folder / "sluiced.toml"
        file.write_text(CONFIG.format(self.chassis.folder, self.chassis.name, str(self.is_handed_over).lower()))
        self.process = self.chassis.spawn(str(self.programs / "sluiced"), "--config", str(file))
        self.sluice("wait", "--timeout", "2m")
        eventually("the datapath is read", lambda: "source    ovs" in self.sluice("show"))

    def stop(self):
        """Ends it in order."""
        self.sluice("exit")
        code = self.process.wait(timeout=60)
        if code != 0:
            raise SystemExit(f"the agent of {self.chassis.name} ended with {code}")

    def complaints(self):
        """What it has logged as a warning or as an error."""
        log = self.chassis.folder / "sluiced.log"
        return [line for line in log.read_text().splitlines() if " WARN " in line or " ERROR " in line]

    def given_back(self):
        """Why it has refused flows that were handed over, which it has no longer then: a reason for each, as it has logged it."""
        log = self.chassis.folder / "sluiced.log"
        refused = [line.split(" refused ufid:")[1] for line in log.read_text().splitlines() if " refused ufid:" in line]
        return [reason.split(", ", 1)[1] for reason in refused]

    def sluice(self, *words):
        """Runs a command of `sluice`."""
        return run(str(self.programs / "sluice"), "--run-dir", f"{self.chassis.folder}/run", *words)

    def flows(self):
        """All flows by their UFID."""
        return {flow["ufid"]: flow for flow in json.loads(self.sluice("dump-flows", "--json"))}

    def chain_misses(self):
        """Packets that a first flow has counted, and that then went to the datapath all the same."""
        return self.show()["lookups"]["chain_misses"]

    def goes_on(self):
        """Whether these go on in the datapath where they missed."""
        return self.show()["sources"]["states"]["ovs"]["chain_miss"].startswith("goes on")

    def show(self):
        """What it says of itself."""
        return json.loads(self.sluice("show", "--json"))

    def rules(self):
        """How many rules of tc are at the ports of the chassis."""
        links = json.loads(run("ip", "-n", self.chassis.name, "-json", "link", "show"))
        shown = [run("tc", "-n", self.chassis.name, "filter", "show", "dev", link["ifname"], "ingress") for link in links]
        return sum(text.count(" handle 0x") for text in shown)


class Look:
    """What an agent's flows have counted at a moment."""

    def __init__(self, agent):
        self.flows = agent.flows()
        self.misses = agent.chain_misses()
        self.entered = agent.chassis.entered()

    def since(self, before):
        """Packets that Sluice has forwarded since another look, and all that have come in."""
        forwarded = before.misses - self.misses
        for ufid, flow in self.flows.items():
            if flow["recirc_id"] == 0:
                earlier = before.flows[ufid]["packets"] if ufid in before.flows else 0
                # One that is made anew begins with nothing.
                forwarded += flow["packets"] - earlier if flow["packets"] >= earlier else flow["packets"]
        return max(forwarded, 0), self.entered - before.entered
