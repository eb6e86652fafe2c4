//! Sluice's agent in the guest, with its tc backend on the driver's ports: what it says of flows, what the kernel says, what
//! the device has in its tables, and where the packets go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sluice_connectx::hca::{CommandFault, Trouble};
use sluice_connectx::steering::{Port, TableKind};

use crate::frames::{HOST, UDP, datagram, ethernet, ipv4, tagged, udp};
use crate::guest::Ran;
use crate::{HOST_PF, MANAGER, VF0, VF1, World};

pub(crate) const SET_FLOW_TABLE_ENTRY: u16 = 0x936;
const DELETE_FLOW_TABLE_ENTRY: u16 = 0x938;

/// An agent that runs, without flows at first and at last. One story after the other has the same, as long as they want it so:
/// its start takes seconds in the machine.
pub(crate) struct Agent<'a> {
    world: &'a World,
}

impl<'a> Agent<'a> {
    pub(crate) fn start(world: &'a World, policy: &str) -> Self {
        Self::start_with(world, policy, "")
    }

    /// Starts it with more in its configuration.
    pub(crate) fn start_with(world: &'a World, policy: &str, more: &str) -> Self {
        let ports = ["p0", "pf0hpf", "pf0vf0", "pf0vf1"];
        let ports = (1..).zip(ports).map(|(number, name)| format!("[[port]]\nnumber = {number}\nname = \"{name}\"\n"));
        let config = format!(
            "backend = \"tc\"
tc.policy = \"{policy}\"
run_dir = \"/tmp/agent/run\"
state_dir = \"/tmp/agent/state\"
lock_dir = \"/tmp/agent\"
metrics = \"none\"
idle_timeout = \"none\"
poll_interval = \"200ms\"
retry_interval = \"2s\"
{}{more}",
            ports.collect::<String>()
        );
        let agent = Self { world };
        if world.agent.lock().as_ref() != Some(&config) {
            world.end_agent();
            world.guest.bring("sluiced");
            world.guest.bring("sluice");
            world.guest.run(&format!("mkdir /tmp/agent; cat >/tmp/agent/sluiced.toml <<'END'\n{config}END"));
            agent.run();
            *world.agent.lock() = Some(config);
        }
        agent
    }

    /// Starts the process, and waits until it answers.
    fn run(&self) {
        self.world.guest.run(
            "setsid /tmp/sluiced --config /tmp/agent/sluiced.toml >>/tmp/agent/log 2>&1 </dev/null &
             echo $! >/tmp/agent/pid
             for _ in {1..100}; do
                 ! /tmp/sluice --run-dir /tmp/agent/run show >/dev/null 2>&1 || exit 0
                 sleep 0.2
             done
             cat /tmp/agent/log; exit 1",
        );
    }

    pub(crate) fn attempt(&self, words: &str) -> Ran {
        self.world.guest.attempt(&self.command(words))
    }

    #[track_caller]
    pub(crate) fn sluice(&self, words: &str) -> String {
        self.world.guest.run(&self.command(words))
    }

    fn command(&self, words: &str) -> String {
        command(words)
    }

    #[track_caller]
    pub(crate) fn add(&self, key: &str, actions: &str) {
        self.sluice(&format!("add-flow '{key}' '{actions}'"));
    }

    /// Puts flows in, a line each, in place of all others, and gives all as objects.
    #[track_caller]
    pub(crate) fn replace(&self, flows: &str) -> Vec<Value> {
        self.world.replace_flows(flows)
    }

    /// All flows, as objects.
    pub(crate) fn flows(&self) -> Vec<Value> {
        parsed(&self.sluice("dump-flows -m --json"))
    }

    /// Waits until the flows are as wanted, and gives them.
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        self.eventually_of(what, "dump-flows -m --json", is_so)
    }

    /// The same with another dump than one that asks the kernel for every flow.
    #[track_caller]
    pub(crate) fn eventually_of(&self, what: &str, dump: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        parsed(&self.world.guest.eventually(what, &self.command(dump), |out| is_so(&parsed(out))))
    }

    fn kill(&self) {
        self.world
            .guest
            .run("kill -9 $(cat /tmp/agent/pid); while [ -e /proc/$(cat /tmp/agent/pid) ]; do sleep 0.05; done");
    }

    /// Deletes all flows, which must leave no rule anywhere.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.sluice("del-flows");
        assert_eq!(self.world.rules(), 0, "the device still has rules:\n{}", self.world.hca.lock().steering().dump());
        assert_eq!(self.world.kernels_rules(), Vec::<String>::new());
    }
}

impl World {
    /// Has the agent end, if one runs.
    pub(crate) fn end_agent(&self) {
        if self.agent.lock().take().is_some() {
            self.guest.run(
                "kill $(cat /tmp/agent/pid); while [ -e /proc/$(cat /tmp/agent/pid) ]; do sleep 0.05; done
                 for port in p0 pf0hpf pf0vf0 pf0vf1; do tc qdisc del dev $port ingress; done
                 rm -r /tmp/agent",
            );
        }
    }

    /// Puts flows into the agent that runs, a line each, in place of all others, and gives all as objects.
    #[track_caller]
    pub(crate) fn replace_flows(&self, flows: &str) -> Vec<Value> {
        let [remove, add, dump] = ["del-flows", "add-flows /tmp/agent/flows", "dump-flows -m --json"].map(command);
        let script = format!(
            "cat >/tmp/agent/flows <<'END'\n{flows}END
             {remove} >/dev/null; {add} >/dev/null 2>&1 || true; {dump}"
        );
        parsed(&self.guest.run(&script))
    }

    /// Rules in the device: entries of the switch that count, for the driver's own do not.
    pub(crate) fn rules(&self) -> usize {
        self.hca.lock().steering().counted_entries(TableKind::Fdb)
    }

    /// Rules in the kernel, as tc shows them, a text each.
    fn kernels_rules(&self) -> Vec<String> {
        let shown = self.guest.run("for port in p0 pf0hpf pf0vf0 pf0vf1; do tc -s filter show dev $port ingress; done");
        let mut rules: Vec<String> = vec![];
        for line in shown.lines() {
            if line.starts_with("filter ") {
                rules.push(String::new());
            }
            let rule = rules.last_mut().expect("the first line begins a filter");
            rule.push_str(line);
            rule.push('\n');
        }
        // What chains and priorities begin with has no handle.
        rules.retain(|rule| rule.lines().next().is_some_and(|line| line.contains(" handle ")));
        rules
    }
}

fn command(words: &str) -> String {
    format!("/tmp/sluice --run-dir /tmp/agent/run {words}")
}

fn parsed(dump: &str) -> Vec<Value> {
    serde_json::from_str(dump).unwrap_or_else(|error| panic!("{error}: {dump}"))
}

/// A flow, a frame for it, and where that goes.
struct Case {
    key: &'static str,
    actions: &'static str,
    from: Port,
    frame: Vec<u8>,
    leaves: Vec<(Port, Vec<u8>)>,
}

/// What a BlueField is for: to and from the wire, between functions, to several, with tags and rewritten headers.
fn cases() -> Vec<Case> {
    let query = |port| udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, port);
    let answer = |to| udp([10, 9, 9, 9], [10, 0, 0, to], 53, 1000);
    let rewritten = {
        let mut packet = ipv4([10, 9, 9, 9], [10, 0, 1, 4], 17, &datagram(53, 1000));
        packet[8] = 63;
        packet[10..12].fill(0);
        let sum = crate::frames::checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        [&[2, 0, 0, 0, 0, 0xb][..], &[2, 0, 0, 0, 0, 0xa], &[8, 0], &packet].concat()
    };
    vec![
        Case {
            key: "in_port(pf0vf0),eth_type(0x0800),ipv4(src=10.0.0.1,proto=17,frag=no),udp(dst=53)",
            actions: "p0",
            from: VF0,
            frame: query(53),
            leaves: vec![(Port::Wire, query(53))],
        },
        Case {
            key: "in_port(pf0vf0),eth_type(0x0800),ipv4(src=10.0.0.1,proto=17,frag=no),udp(dst=54)",
            actions: "drop",
            from: VF0,
            frame: query(54),
            leaves: vec![],
        },
        Case {
            key: "in_port(p0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
                  ipv4(dst=10.0.0.1,proto=17,frag=no),udp(src=53)",
            actions: "pf0vf0",
            from: Port::Wire,
            frame: answer(1),
            leaves: vec![(VF0, answer(1))],
        },
        Case {
            key: "in_port(p0),eth_type(0x0800),ipv4(dst=10.0.0.2,proto=17,frag=no),udp(src=53)",
            actions: "push_vlan(vid=100,pcp=3),pf0vf1",
            from: Port::Wire,
            frame: answer(2),
            leaves: vec![(VF1, tagged(&answer(2), 3 << 13 | 100))],
        },
        Case {
            key: "in_port(pf0vf1),eth_type(0x8100),vlan(vid=100,pcp=3),encap(eth_type(0x0800),ipv4(src=10.0.0.2,frag=no))",
            actions: "pop_vlan,p0",
            from: VF1,
            frame: tagged(&udp([10, 0, 0, 2], [10, 9, 9, 9], 1000, 53), 3 << 13 | 100),
            leaves: vec![(Port::Wire, udp([10, 0, 0, 2], [10, 9, 9, 9], 1000, 53))],
        },
        Case {
            key: "in_port(p0),eth_type(0x0800),ipv4(dst=10.0.0.3,proto=17,frag=no),udp(src=53)",
            actions: "pf0hpf,pf0vf1",
            from: Port::Wire,
            frame: answer(3),
            leaves: vec![(HOST_PF, answer(3)), (VF1, answer(3))],
        },
        Case {
            key: "in_port(p0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
                  ipv4(dst=10.0.0.4,proto=17,ttl=64,frag=no),udp(src=53)",
            actions: "set(eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b)),set(ipv4(dst=10.0.1.4,ttl=63)),pf0vf0",
            from: Port::Wire,
            frame: answer(4),
            leaves: vec![(VF0, rewritten)],
        },
        Case {
            key: "in_port(pf0vf1),eth_type(0x88b5)",
            actions: "pf0vf0",
            from: VF1,
            frame: ethernet(0x88b5, &[0x77; 46]),
            leaves: vec![(VF0, ethernet(0x88b5, &[0x77; 46]))],
        },
    ]
}

pub(crate) fn flows_are_in_hardware_and_packets_go_where_they_say(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    let cases = cases();
    for (number, case) in (1..).zip(&cases) {
        agent.add(&format!("{},{}", ufid(number), case.key), case.actions);
    }
    every_flow_is_in_hardware(world, &agent, cases.len());

    // Another number for each, so that no two can be taken for each other.
    for (number, case) in (1..).zip(&cases) {
        let leaves: Vec<_> = case.leaves.iter().map(|(port, frame)| (*port, frame.as_slice())).collect();
        for _ in 0..number {
            world.pass(case.from, &case.frame, &leaves);
        }
    }
    let stranger = udp([10, 0, 0, 9], [10, 9, 9, 9], 1000, 53);
    world.pass(VF0, &stranger, &[(MANAGER, &stranger)]);
    let is_counted = |flows: &[Value], (number, case): (u64, &Case)| {
        let flow = flow_of(flows, number);
        let bytes = number * case.frame.len() as u64;
        flow["packets"] == number && flow["bytes"] == bytes && flow["hardware"]["packets"] == number
    };
    let flows =
        agent.eventually("every packet is counted", |flows| (1..).zip(&cases).all(|case| is_counted(flows, case)));
    assert!(flows.iter().all(|flow| flow["software"]["packets"] == 0), "{flows:?}");

    jumps_between_chains_are_in_hardware(world, &agent, cases.len());
    agent.stop();
    world.pass(VF0, &cases[0].frame, &[(MANAGER, &cases[0].frame)]);
}

pub(crate) fn ufid(number: u64) -> String {
    format!("ufid:00000000-0000-0000-0000-{number:012x}")
}

/// The flow of a [`ufid`].
#[track_caller]
pub(crate) fn flow_of(flows: &[Value], number: u64) -> &Value {
    let is_it = |flow: &&Value| flow["ufid"].as_str().is_some_and(|name| ufid(number).ends_with(name));
    flows.iter().find(is_it).unwrap_or_else(|| panic!("no flow {number}: {flows:#?}"))
}

#[track_caller]
fn every_flow_is_in_hardware(world: &World, agent: &Agent<'_>, number: usize) {
    let flows = agent.flows();
    let in_hardware = |flow: &Value| flow["state"] == "offloaded" && flow["placement"] == "hardware";
    assert!(flows.iter().all(in_hardware), "{flows:#?}");
    assert_eq!(flows.len(), number);
    let rules = world.kernels_rules();
    assert!(rules.iter().all(|rule| rule.contains("\n  skip_sw\n  in_hw in_hw_count 1\n")), "{}", rules.concat());
    assert_eq!(rules.len(), number);
    assert_eq!(world.rules(), number, "the device has other rules than the agent");
    assert_eq!(agent.sluice("audit"), format!("{number} rules, all as wanted (listed by the device)\n"));
}

/// A flow that sends packets to chain 1, and one there, after which comes the agent's own rule for what no flow wants.
fn jumps_between_chains_are_in_hardware(world: &World, agent: &Agent<'_>, before: usize) {
    agent.add("recirc_id(1),in_port(pf0hpf),eth_type(0x0800),ipv4(dst=10.9.0.0/255.255.0.0,frag=no)", "p0");
    agent.add(
        "recirc_id(0),in_port(pf0hpf),eth_type(0x0800),ipv4(src=10.0.0.3,proto=17,frag=no),udp(dst=53)",
        "set(eth(dst=02:00:00:00:00:0b)),recirc(1)",
    );
    let flows = agent.flows();
    assert_eq!(flows.iter().filter(|flow| flow["placement"] == "hardware").count(), before + 2, "{flows:#?}");
    assert_eq!(world.rules(), before + 3, "two flows and the end of the chain");
    assert_eq!(agent.sluice("audit"), format!("{} rules, all as wanted (listed by the device)\n", before + 2));
    let to = |destination| ipv4([10, 0, 0, 3], destination, 17, &datagram(1000, 53));
    let rewritten = |packet: &[u8]| [&[2, 0, 0, 0, 0, 0xb][..], &HOST, &[8, 0], packet].concat();
    for _ in 0..20 {
        let known = to([10, 9, 1, 1]);
        world.pass(HOST_PF, &ethernet(0x0800, &known), &[(Port::Wire, &rewritten(&known))]);
    }
    // As it has come to be in the first chain.
    let unknown = to([10, 8, 1, 1]);
    world.pass(HOST_PF, &ethernet(0x0800, &unknown), &[(MANAGER, &rewritten(&unknown))]);
    agent.eventually("both flows of the chains are counted", |flows| {
        let counted = |chain, packets| {
            flows.iter().any(|flow| {
                flow["recirc_id"] == chain && flow["packets"] == packets && flow["bytes"] == packets * UDP as u64
            })
        };
        counted(1, 20) && counted(0, 21)
    });
}

pub(crate) fn what_the_driver_refuses_is_refused_in_its_words(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    let entries = world.hca.lock().executed(SET_FLOW_TABLE_ENTRY);
    // `parse_cls_flower` of the driver takes no ARP.
    let arp = "in_port(pf0vf0),eth_type(0x0806),arp(sip=10.0.0.1)";
    let added = agent.attempt(&format!("add-flow '{arp}' p0"));
    assert_eq!(added.code, 2, "{added:?}");
    assert!(added.err.contains("mlx5_core: Unsupported key"), "{added:?}");
    let flows = agent.flows();
    assert_eq!(flows[0]["refusal"]["label"], "kernel", "{flows:?}");
    let reason = flows[0]["refusal"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("mlx5_core: Unsupported key"), "{reason}");
    assert_eq!(world.hca.lock().executed(SET_FLOW_TABLE_ENTRY), entries, "the driver asked the device");
    agent.sluice("del-flows");

    // A device without resources is asked again by the kernel itself: at once, and for as long as it takes (the driver makes
    // EAGAIN of it, and `tc_new_tfilter` begins anew).
    let fail = |times, status, syndrome| {
        let trouble = Trouble::Refused { status, syndrome };
        world.hca.lock().inject(CommandFault { opcode: SET_FLOW_TABLE_ENTRY, after: 0, times, trouble });
    };
    const NO_RESOURCES: u8 = 0x0f;
    const BAD_PARAMETER: u8 = 0x03;
    // The driver's log takes ten lines in five seconds.
    const OFTEN: u32 = 5;
    fail(OFTEN, NO_RESOURCES, 0x51c1);
    let entries = world.hca.lock().executed(SET_FLOW_TABLE_ENTRY);
    agent.add("in_port(pf0vf0),eth_type(0x0800),ipv4(dst=10.9.9.9,proto=6,frag=no),tcp(dst=80)", "p0");
    let said = world.guest.run("dmesg | grep SET_FLOW_TABLE_ENTRY");
    assert!(said.contains("no resources(0xf), syndrome (0x51c1)"), "{said}");
    assert!(world.hca.lock().executed(SET_FLOW_TABLE_ENTRY) > entries + u64::from(OFTEN));
    assert_eq!(world.rules(), 1);

    // What it takes for a mistake is refused, and tried again later.
    fail(1, BAD_PARAMETER, 0x51c2);
    let flow = "in_port(pf0vf0),eth_type(0x0800),ipv4(dst=10.9.9.9,proto=6,frag=no),tcp(dst=81)";
    let added = agent.attempt(&format!("add-flow '{flow}' p0"));
    assert_eq!(added.code, 2, "{added:?}");
    assert!(added.err.contains("kernel: Invalid argument"), "{added:?}");
    let said = world.guest.run("dmesg | grep SET_FLOW_TABLE_ENTRY");
    assert!(said.contains("bad parameter(0x3), syndrome (0x51c2)"), "{said}");
    agent.eventually("the flow is tried again", |flows| flows.iter().all(|flow| flow["placement"] == "hardware"));
    assert_eq!(world.rules(), 2);
    agent.stop();
}

const STREAM: u16 = 32;

fn stream_frame(port: u16) -> Vec<u8> {
    udp([10, 0, 0, 1], [10, 9, 9, 9], 1000, 5000 + port)
}

pub(crate) fn an_agent_that_is_killed_finds_its_rules_again_and_no_packet_is_lost(world: &World) {
    let agent = Agent::start(world, "skip_sw");
    let lines = (0..STREAM).map(|port| {
        let key = "in_port(pf0vf0),eth_type(0x0800),ipv4(dst=10.9.9.9,proto=17,frag=no)";
        format!("{key},udp(dst={}),actions:p0\n", 5000 + port)
    });
    world.guest.run(&format!("cat >/tmp/agent/flows <<'END'\n{}END", lines.collect::<String>()));
    agent.sluice("add-flows /tmp/agent/flows");
    every_flow_is_in_hardware(world, &agent, usize::from(STREAM));
    let commands = || {
        let hca = world.hca.lock();
        [SET_FLOW_TABLE_ENTRY, DELETE_FLOW_TABLE_ENTRY].map(|opcode| hca.executed(opcode))
    };
    let before = commands();

    let is_over = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let stream = scope.spawn(|| stream(world, &is_over));
        agent.kill();
        agent.run();
        let adopted = |out: &str| {
            let stats: Value = serde_json::from_str(out).expect("an object");
            stats["events"]["adopted"] == STREAM
        };
        world.guest.eventually("all rules are taken over", &agent.command("stats --json"), adopted);
        every_flow_is_in_hardware(world, &agent, usize::from(STREAM));
        is_over.store(true, Ordering::Relaxed);
        stream.join().expect("the stream has lost nothing")
    });
    assert_eq!(commands(), before, "the device was asked for something");
    agent.eventually("every packet is counted, also those of the time without an agent", |flows| {
        let packets = flows.iter().map(|flow| flow["packets"].as_u64().expect("a number")).sum::<u64>();
        packets == sent
    });
    agent.stop();
}

/// Sends packets of all flows in turns until it is over, and says how many.
fn stream(world: &World, is_over: &AtomicBool) -> u64 {
    let frames: Vec<_> = (0..STREAM).map(stream_frame).collect();
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        for frame in &frames {
            world.pass(VF0, frame, &[(Port::Wire, frame)]);
            sent += 1;
            thread::sleep(Duration::from_millis(1));
        }
    }
    sent
}

pub(crate) fn with_policy_none_flows_are_in_both(world: &World) {
    let agent = Agent::start(world, "none");
    let case = &cases()[0];
    agent.add(case.key, case.actions);
    let flows = agent.flows();
    assert_eq!(flows[0]["placement"], "hardware and software", "{flows:?}");
    assert_eq!(flows[0]["state"], "offloaded", "{flows:?}");
    let rules = world.kernels_rules();
    assert!(rules[0].contains("\n  in_hw in_hw_count 1\n") && !rules[0].contains("skip_sw"), "{}", rules[0]);
    for _ in 0..7 {
        world.pass(case.from, &case.frame, &[(Port::Wire, &case.frame)]);
    }
    agent.eventually("what hardware saw is counted", |flows| {
        let counted = |by: &str| flows[0][by]["packets"].as_u64();
        (counted("hardware"), counted("software"), flows[0]["packets"].as_u64()) == (Some(7), Some(0), Some(7))
    });

    // What the driver refuses is the kernel's alone, and said to be.
    agent.add("in_port(pf0vf0),eth_type(0x0806),arp(sip=10.0.0.1)", "p0");
    let flows = agent.flows();
    let arp = flows.iter().find(|flow| flow["key"].as_str().is_some_and(|key| key.contains("arp"))).expect("the flow");
    assert_eq!((&arp["placement"], &arp["state"]), (&"software only".into(), &"partial".into()), "{arp}");
    assert_eq!(world.rules(), 1);
    assert_eq!(agent.sluice("audit"), "2 rules, all as wanted (listed by the device)\n");
    agent.stop();
}
