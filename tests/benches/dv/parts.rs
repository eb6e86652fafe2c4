//! The parts of this program that run on an emulated device.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_flow::Backend;
use sluice_flow::backend::Handle;
use sluice_offload_dv::mlx5::{Action, Context, Counts, Domain, DomainKind, Library, MatchParameter, Object, Rule};
use sluice_offload_dv::switch::Switch;
use sluice_offload_dv::translate::Templates;
use sluice_tests::bench::{processor_time, resident};

use crate::rules::{DEVICE, Kind, Ports, VPORTS, flows};
use crate::worker::{Worker, open};
use crate::{ALL, WHOLE_ROUNDS};

pub(crate) fn play(part: &str) {
    let words: Vec<_> = part.split(' ').collect();
    let (rules, name) = words.split_last().expect("a number of rules");
    let rules = rules.parse().expect("a number of rules");
    match name {
        ["backend"] => backend(Kind::FiveTuple, rules),
        ["perf"] => backend(Kind::FlowPerf, rules),
        ["bare", of @ ..] => drop(bare(of, rules, |install| install())),
        ["timed", "bare", of @ ..] => {
            let mut us = 0.0;
            let longest = bare(of, rules, |install| us = timed(rules, install));
            println!("{}", json!({ "us": us, "longest call in ms": longest.as_secs_f64() * 1e3 }));
        }
        ["workers", workers] => by_workers(workers.parse().expect("a number of workers"), rules),
        ["rounds", rounds] => read_often(rounds.parse().expect("a number of rounds"), rules),
        ["reading"] => reading(rules),
        ["memory", "backend"] => memory_of_backend(rules),
        ["memory", "bare"] => memory_of_bare(rules),
        _ => panic!("there is no part {part}"),
    }
}

/// Installs rules and removes them as a worker does, beside as many flows as there are at most, of which others have none.
fn backend(kind: Kind, rules: usize) {
    let flows = flows(kind, rules.max(ALL));
    let mut handles = vec![Handle(0); flows.len()];
    let nic = open();
    let mut worker = Worker::new(&nic);
    worker.install(0, &flows[..rules], &mut handles);
    worker.remove(0, &handles[..rules]);
}

/// The same rules by libmlx5 alone, or, with "anywhere" and "fixed", rules that do not match the port, in a matcher that libmlx5 lays out as
/// it likes, or for so many. Returns the time that the longest of its calls took.
fn bare(of: &[&str], rules: usize, run: impl FnOnce(&mut dyn FnMut())) -> Duration {
    const ALLOC_FLOW_COUNTER: [u8; 2] = [0x09, 0x39];
    /// A counter bulk has 128 of them for a bit of 1 (`flow_counter_bulk` of ALLOC_FLOW_COUNTER).
    const UNIT: usize = 128;
    const LARGEST: usize = 1 << 14;
    let (kind, is_fixed) = match of {
        [] => (Kind::FiveTuple, false),
        ["anywhere"] => (Kind::WithoutPort, false),
        ["fixed"] => (Kind::WithoutPort, true),
        _ => panic!("there are no rules {of:?}"),
    };
    let mut templates = Templates::new();
    let instance = |flow| templates.instance(flow, &Ports).expect("a rule");
    let instances: Vec<_> = flows(kind, rules.max(ALL)).into_iter().map(instance).collect();
    let (mut mask, mut values) = (*instances[0].template.mask(), Vec::new());
    values.extend(instances.iter().map(|instance| instance.value()));
    if is_fixed {
        // The version of IP says the same, and both do not go into one definer.
        [&mut mask].into_iter().chain(&mut values).for_each(|bits| bits.set(ETHERTYPE.0, ETHERTYPE.1, 0));
    }
    let library = Library::load().expect("libmlx5");
    let context = Context::open(&library, DEVICE).expect("a device");
    let domain = Domain::create(&context, DEVICE, DomainKind::Fdb).expect("a domain");
    domain.allow_duplicate_rules(true);
    let table = domain.table(1).expect("a table");
    let everything = MatchParameter::default();
    let to_table = Action::to_table(&table).expect("an action");
    let root = domain.table(0).expect("the kernel's table").matcher(0, &everything).expect("a matcher");
    let _all = root.rule(&everything, [to_table].into()).expect("a rule");
    let bulk = || {
        let (mut input, mut output) = ([0; 16], [0; 16]);
        input[..2].copy_from_slice(&ALLOC_FLOW_COUNTER);
        input[15] = u8::try_from(LARGEST / UNIT).expect("a byte");
        Counts::new(Object::create(&context, &input, &mut output).expect("counters"), LARGEST)
    };
    let matcher = table.matcher(15, &mask).expect("a matcher");
    if is_fixed {
        matcher.set_layout(rules.next_power_of_two().ilog2()).expect("a fixed layout");
    }
    let shape = matcher.shape([Action::to_vport(&domain, VPORTS[1]).expect("an action")].into());
    let (mut bulks, mut made, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
    run(&mut || {
        bulks.extend((0..rules.max(ALL).div_ceil(LARGEST)).map(|_| bulk()));
        let counter = |index: usize| (&bulks[index / LARGEST], index % LARGEST);
        let rule = |(index, value)| {
            let began = Instant::now();
            let rule = shape.rule(value, Some(counter(index))).expect("a rule");
            longest = longest.max(began.elapsed());
            rule
        };
        made.extend(values[..rules].iter().enumerate().map(rule));
        domain.sync_writes().expect("it is in the device");
    });
    drop(made);
    domain.sync().expect("it is in the device");
    longest
}

/// `ethertype` of `fte_match_set_lyr_2_4`: the first bit, and how many.
const ETHERTYPE: (usize, usize) = (0x30, 16);

/// Has so many workers install rules.
fn by_workers(workers: usize, rules: usize) {
    let flows = flows(Kind::FiveTuple, rules);
    let nic = open();
    let part = rules / workers;
    let us = timed(rules, &mut || {
        thread::scope(|scope| {
            for (index, flows) in flows.chunks(part).enumerate() {
                let nic = &nic;
                let install = move || {
                    let mut handles = vec![Handle(0); flows.len()];
                    Worker::new(nic).install(index * part, flows, &mut handles);
                };
                scope.spawn(install);
            }
        });
    });
    println!("{}", json!({ "us": us }));
}

/// Returns the processor time that some work takes a rule, in microseconds.
fn timed(rules: usize, work: &mut dyn FnMut()) -> f64 {
    let before = processor_time();
    work();
    (processor_time() - before).as_secs_f64() * 1e6 / rules as f64
}

/// Reads the counters of so many rules so often, for callgrind to count what is called.
fn read_often(rounds: usize, rules: usize) {
    let flows = flows(Kind::FiveTuple, rules);
    let mut handles = vec![Handle(0); flows.len()];
    let nic = open();
    Worker::new(&nic).install(0, &flows, &mut handles);
    let mut reader = nic.counter_reader().expect("a reader");
    for _ in 0..rounds {
        reader.read(&mut |_, _| ()).expect("counters");
    }
}

/// Prints what is resident of the backend, of libmlx5 and of the device for a rule.
fn memory_of_backend(rules: usize) {
    let flows = flows(Kind::FiveTuple, rules);
    // Not zero, so that they are resident before.
    let mut handles = vec![Handle(1); rules];
    let nic = open();
    let mut worker = Worker::new(&nic);
    print_memory(rules, 0, &mut || worker.install(0, &flows, &mut handles));
}

/// The same of libmlx5 and the device alone, without what this program has of a rule.
fn memory_of_bare(rules: usize) {
    let own = size_of::<Rule>() + size_of::<usize>();
    bare(&[], rules, |install| print_memory(rules, own, install));
}

fn print_memory(rules: usize, own: usize, install: &mut dyn FnMut()) {
    let before = resident();
    install();
    println!("{}", json!({ "bytes": (resident() - before) as f64 / rules as f64 - own as f64 }));
}

/// Prints the processor time that a round of readings takes a counter, and what the device's dump is of that.
fn reading(rules: usize) {
    let flows = flows(Kind::FiveTuple, rules);
    let dump = {
        let mut templates = Templates::new();
        let library = Library::load().expect("libmlx5");
        let mut switch = Switch::open(&library, DEVICE).expect("a device");
        for flow in &flows {
            let instance = templates.instance(flow.clone(), &Ports).expect("a rule");
            switch.install(instance).expect("it is installed");
        }
        let mut listener = switch.listener().expect("answers");
        averaged(|| {
            for bulk in 0..switch.bulks() {
                switch.ask(bulk, 0);
                switch.answered(listener.wait().expect("an answer"));
            }
            switch.told();
        })
    };
    let nic = open();
    let mut handles = vec![Handle(0); rules];
    Worker::new(&nic).install(0, &flows, &mut handles);
    let mut reader = nic.counter_reader().expect("a reader");
    let mut read = 0;
    let round = averaged(|| {
        read = 0;
        reader.read(&mut |readings, _| read += readings.len()).expect("counters");
    });
    assert_eq!(read, rules, "every counter is read");
    let each = |time: Duration| time.as_secs_f64() * 1e9 / rules as f64;
    println!("{}", json!({ "ns": each(round) - each(dump), "round_ns": each(round), "dump_ns": each(dump) }));
}

/// The processor time of some work, after it was done once.
fn averaged(mut work: impl FnMut()) -> Duration {
    work();
    let before = processor_time();
    (0..WHOLE_ROUNDS).for_each(|_| work());
    (processor_time() - before) / WHOLE_ROUNDS
}
