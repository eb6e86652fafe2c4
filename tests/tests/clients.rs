//! Eight clients at once on the same thousand UFIDs.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use sluice_control::Client;
use sluice_flow::text::{Style, write_actions};
use sluice_flow::{EndReason, Ufid};
use sluice_tests::daemon::{CONFIG, Daemon};
use sluice_tests::world::{World, eventually, quick_config};

const CLIENTS: u64 = 8;
const REQUESTS: u64 = 100_000;
const FLOWS: u64 = 1_000;

#[test]
fn the_last_accepted_state_of_every_flow_is_what_the_device_has() {
    let world = World::soft(quick_config());
    let queue = &world.agent.queue;
    let histories = storm(|| {
        |request: &Request| {
            let accepted = match request.verb {
                Verb::Add => queue.add(world.flow(&request.key(), &request.actions()), None),
                Verb::Modify => queue.modify(world.flow(&request.key(), &request.actions()), false, None),
                Verb::Delete => queue.delete(world.agent.table.find(request.ufid())?, EndReason::Deleted, None),
            };
            accepted.ok().map(|_| request.outcome())
        }
    });
    world.settle();

    let rules = world.installed();
    assert_eq!(rules.len(), world.agent.table.census().live(), "device and table hold the same number");
    check(&histories, |ufid| {
        let mut in_device = rules.iter().filter(|rule| rule.flow.ufid == ufid);
        let mut text = String::new();
        write_actions(&mut text, &in_device.next()?.flow.actions, &Style::default()).unwrap();
        assert!(in_device.next().is_none(), "{ufid} is in the device twice");
        Some(text)
    });
}

#[test]
fn the_same_holds_over_the_control_socket() {
    let daemon = Daemon::start(CONFIG);
    let histories = storm(|| {
        let mut client = Client::connect(&daemon.socket()).unwrap();
        move |request: &Request| {
            let (key, actions) = (request.key(), request.actions());
            let accepted = match request.verb {
                Verb::Add => client.call_text("dpctl/add-flow", &["--no-wait", &key, &actions]),
                Verb::Modify => client.call_text("dpctl/mod-flow", &["--no-wait", &key, &actions]),
                Verb::Delete => client.call_text("dpctl/del-flow", &["--no-wait", &key]),
            };
            accepted.ok().map(|_| request.outcome())
        }
    });
    eventually("every change has an outcome", || daemon.metric("sluice_flows_unsettled") == Some(0.0));

    let audit = daemon.sluice(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}", audit.err);
    let flows: Vec<Value> = serde_json::from_str(&daemon.sluice(&["dump-flows", "--json"]).out).unwrap();
    assert_eq!(audit.out, format!("{} rules, all as wanted (listed by the device)\n", flows.len()));
    check(&histories, |ufid| {
        let flow = flows.iter().find(|flow| flow["ufid"] == ufid.to_string())?;
        assert_eq!(flow["state"], "offloaded");
        Some(flow["actions"].as_str().unwrap().replace("server", "2"))
    });
}

/// What one client asks for.
struct Request {
    verb: Verb,
    flow: u64,
    /// The VLAN that an addition or a modification pushes, by which it is known again.
    stamp: u64,
}

enum Verb {
    Add,
    Modify,
    Delete,
}

impl Request {
    fn ufid(&self) -> Ufid {
        Ufid(u128::from(self.flow) + 1)
    }

    fn key(&self) -> String {
        let Self { flow, .. } = self;
        format!("ufid:{}, in_port(1),eth_type(0x0800),ipv4(proto=17,frag=no),udp(dst={flow})", self.ufid())
    }

    fn actions(&self) -> String {
        format!("push_vlan(vid={},pcp=0),2", self.stamp)
    }

    /// What the flow does if this was the last request; nothing if it is deleted then.
    fn outcome(&self) -> Option<String> {
        (!matches!(self.verb, Verb::Delete)).then(|| self.actions())
    }
}

/// A request that was accepted, between two readings of one counter.
#[derive(Clone, Debug)]
struct Accepted {
    began: u64,
    ended: u64,
    outcome: Option<String>,
}

/// All clients at once, each with a performer of its own that gives the outcome of what was accepted.
fn storm<P: FnMut(&Request) -> Option<Option<String>>>(client: impl Fn() -> P + Sync) -> Vec<Mutex<Vec<Accepted>>> {
    let order = AtomicU64::new(0);
    let histories: Vec<Mutex<Vec<Accepted>>> = (0..FLOWS).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (order, histories, client) = (&order, &histories, &client);
            scope.spawn(move || {
                let mut perform = client();
                let mut random = number + 1;
                for count in 0..REQUESTS / CLIENTS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let verb = match (random >> 40) % 3 {
                        0 => Verb::Add,
                        1 => Verb::Modify,
                        _ => Verb::Delete,
                    };
                    let request = Request { verb, flow: random % FLOWS, stamp: (number << 9 | count & 0x1ff) & 0xfff };
                    let began = order.fetch_add(1, Ordering::SeqCst);
                    let accepted = perform(&request);
                    let ended = order.fetch_add(1, Ordering::SeqCst);
                    if let Some(outcome) = accepted {
                        let history = &histories[usize::try_from(request.flow).unwrap()];
                        history.lock().push(Accepted { began, ended, outcome });
                    }
                }
            });
        }
    });
    histories
}

/// The last accepted request is one after whose end no other accepted one began.
fn check(histories: &[Mutex<Vec<Accepted>>], found: impl Fn(Ufid) -> Option<String>) {
    for (flow, history) in histories.iter().enumerate() {
        let history = history.lock();
        let ufid = Ufid(flow as u128 + 1);
        let last_began = history.iter().map(|request| request.began).max().unwrap_or(0);
        let possible: Vec<_> = history.iter().filter(|request| request.ended >= last_began).collect();
        let found = found(ufid);
        let is_expected = possible.iter().any(|request| request.outcome == found);
        assert!(is_expected, "{ufid}: the device has {found:?}, the last accepted are {possible:?}");
    }
}
