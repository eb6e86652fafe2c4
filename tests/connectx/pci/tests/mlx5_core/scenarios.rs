//! The scenarios with which Sluice's tc backend is held against the kernel, once more for hardware alone: every flow is in the
//! device, and packets come out as the software NIC has it, or it is refused with a reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use sluice_connectx::steering::Port;

use crate::agent::{Agent, flow_of, ufid};
use crate::driver::name_ports;
use crate::{HOST_PF, MANAGER, VF0, VF1, World};

/// Behind the numbers of the scenarios' ports, from 1.
const PORTS: [Port; 6] = [Port::Wire, HOST_PF, VF0, VF1, Port::Vport(3), Port::Vport(4)];
/// All that is, and the port of the driver itself.
const ENDS: Ends<'static> = Ends { ports: &PORTS, manager: MANAGER };

/// Scenarios of which some packets come out otherwise, and why that is known.
const KNOWN: &[(&str, &str)] = &[
    ("key nsh: nothing more", "a broken NSH header: OVS drops it, hardware does not look into it"),
    ("key tcp: tcp_flags", "the driver has nine bits for TCP's flags, and is silent on the other three"),
    ("vlan: pop of none", "no tag to take off: the kernel and OVS go on, this device stops, hardware is not known"),
];

pub(crate) fn flows_of_all_kinds_are_in_hardware_or_refused_with_a_reason(world: &World) {
    let guest = &world.guest;
    world.ports.set_host_vfs(0);
    guest.eventually("the host's functions go", "ls /sys/class/net", |names| !names.contains("pf0vf"));
    world.ports.set_host_vfs(4);
    let names = "cat /sys/class/net/*/phys_port_name 2>/dev/null || true";
    guest.eventually("four of them come", names, |names| names.matches("c1pf0vf").count() == 4);
    name_ports(guest);
    let more = "[[port]]\nnumber = 5\nname = \"pf0vf2\"\n[[port]]\nnumber = 6\nname = \"pf0vf3\"\n";
    let agent = Agent::start_with(world, "skip_sw", more);

    let mut told = Told::start(world, &[world.seed.to_string(), world.generated.to_string()]);
    let mut sum = Sum::default();
    println!("  the generated ones are of seed {seed} (--seed={seed} makes them again)", seed = world.seed);
    let mut number = 0;
    while let Some(scenario) = told.next() {
        number += 1;
        let name = scenario["name"].as_str().expect("a name");
        let flows = scenario["flows"].as_array().expect("flows");
        let is_played = name.starts_with("generated") || number % world.every == 0;
        let taken = if is_played { install(|flows| agent.replace(flows), flows, &mut sum) } else { vec![] };
        let played = told.with(&taken);
        if is_played {
            sum.scenarios += 1;
            play(world, &ENDS, name, &played, &mut sum);
        }
    }
    told.end();
    print!("{sum}");
    agent.sluice("del-flows");
    assert_eq!(world.rules(), 0);
    agent.stop();
    assert!(sum.differing.is_empty(), "packets came out otherwise");
    assert!(sum.silent.is_empty(), "flows are refused without a reason: {:#?}", sum.silent);
}

/// The program that tells scenarios.
pub(crate) struct Told {
    program: Child,
    answers: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Told {
    pub(crate) fn start(world: &World, arguments: &[String]) -> Self {
        let mut program = Command::new(world.guest.program("scenarios"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the scenarios can be told");
        let answers = program.stdin.take().expect("a pipe");
        let lines = BufReader::new(program.stdout.take().expect("a pipe")).lines();
        Self { program, answers, lines }
    }

    /// The next scenario, if there is one.
    pub(crate) fn next(&mut self) -> Option<Value> {
        Some(serde_json::from_str(&self.lines.next()?.expect("a line")).expect("an object"))
    }

    /// Its packets, when only those flows are there that are at these places.
    pub(crate) fn with(&mut self, places: &[usize]) -> Value {
        writeln!(self.answers, "{places:?}").expect("the program reads");
        self.next().expect("packets")
    }

    pub(crate) fn end(mut self) {
        let status = self.program.wait().expect("a child can be waited for");
        assert!(status.success(), "the scenarios end with {status}");
    }
}

/// The ports by which packets go in and out, from number 1 on.
pub(crate) struct Ends<'a> {
    pub(crate) ports: &'a [Port],
    /// That of the driver itself, which gets what no rule takes.
    pub(crate) manager: Port,
}

/// Puts a scenario's flows in, in place of all others, and says which of them are in hardware.
pub(crate) fn install(replace: impl FnOnce(&str) -> Vec<Value>, flows: &[Value], sum: &mut Sum) -> Vec<usize> {
    let texts = (1..).zip(flows).map(|(number, flow)| format!("{},{}\n", ufid(number), flow.as_str().expect("a text")));
    let there = replace(&texts.collect::<String>());
    let mut taken = vec![];
    for (place, flow) in flows.iter().enumerate() {
        sum.flows += 1;
        let number = place as u64 + 1;
        let name = ufid(number);
        let is_there = there.iter().any(|flow| flow["ufid"].as_str().is_some_and(|ufid| name.ends_with(ufid)));
        let state = if is_there { flow_of(&there, number) } else { &Value::Null };
        match (state["placement"].as_str(), state["refusal"]["reason"].as_str()) {
            (Some("hardware"), _) => taken.push(place),
            (_, Some(reason)) => *sum.refused.entry(reason.to_owned()).or_default() += 1,
            _ => sum.silent.push(format!("{flow}: {state}")),
        }
    }
    sum.in_hardware += taken.len();
    taken
}

/// Lets the packets in, and compares what comes out.
pub(crate) fn play(world: &World, ends: &Ends<'_>, name: &str, played: &Value, sum: &mut Sum) {
    for packet in played["packets"].as_array().expect("packets") {
        if let Some(why) = packet["why"].as_str() {
            *sum.left_out.entry(why.to_owned()).or_default() += 1;
            continue;
        }
        let port = |number: &Value| {
            ends.ports[number.as_u64().and_then(|number| usize::try_from(number).ok()).expect("a port") - 1]
        };
        let sent = packet["sent"].as_array().expect("frames").iter();
        let mut expected: Vec<_> = sent.map(|sent| (port(&sent[0]), bytes(&sent[1]))).collect();
        let walk = world.receive(port(&packet["port"]), &bytes(&packet["frame"]));
        // What no rule takes goes up to the driver, where nobody forwards it.
        let mut sent: Vec<_> = walk.sent.iter().filter(|(port, _)| *port != ends.manager).cloned().collect();
        sent.sort();
        expected.sort();
        if sent == expected {
            sum.equal += 1;
        } else if let Some((_, why)) = KNOWN.iter().find(|(known, _)| *known == name) {
            *sum.left_out.entry((*why).to_owned()).or_default() += 1;
        } else {
            sum.differing.push(format!("{name}: {packet}\n{walk}"));
        }
    }
}

fn bytes(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("a frame in hexadecimal");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal")).collect()
}

/// What came of all of them.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) scenarios: usize,
    flows: usize,
    pub(crate) in_hardware: usize,
    /// Flows that are not, by the reason.
    refused: BTreeMap<String, usize>,
    /// Flows that are not, without a reason.
    pub(crate) silent: Vec<String>,
    /// Packets that came out as they should.
    pub(crate) equal: usize,
    /// Packets that were not compared or are known to differ, by the reason.
    left_out: BTreeMap<String, usize>,
    /// Packets that came out otherwise, with their ways.
    pub(crate) differing: Vec<String>,
}

impl std::fmt::Display for Sum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 20;
        let Self { scenarios, flows, in_hardware, refused, silent, equal, left_out, differing } = self;
        let mut refusals = String::new();
        for (reason, count) in refused {
            writeln!(refusals, "  {count:>6} {reason}")?;
        }
        writeln!(
            out,
            "  {scenarios} scenarios: of {flows} flows {in_hardware} are in hardware, {} are refused, {} without a reason:\n\
             {refusals}  {equal} packets came out as they should, {} otherwise; not compared, or known to differ, were:",
            refused.values().sum::<usize>() + silent.len(),
            silent.len(),
            differing.len(),
        )?;
        for (reason, count) in left_out {
            writeln!(out, "  {count:>6} {reason}")?;
        }
        differing.iter().take(SHOWN).try_for_each(|text| writeln!(out, "  otherwise: {text}"))
    }
}
