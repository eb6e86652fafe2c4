//! The kernel's connections, made and changed by the stock `conntrack` in a network namespace of the test's own.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use sluice_flow::ChainId;
use sluice_flow::backend::{Backend, ChainChange, ChainOperation, Change, OpenConfig, Operation};
use sluice_flow::connection::{Connection, Selection, State, TcpState};
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::table::{FlowId, Generation};
use sluice_flow::time::ManualClock;
use sluice_offload_dv::connections::{ConnectionSource, KernelConnections, SourceError};
use sluice_offload_dv::switch::ConnectionChange;
use sluice_offload_dv::{Config, ConnectionsOf, DvNic};
use sluice_tests::mlx5::{Out, Ports, on_device};
use sluice_tests::world::eventually;

use crate::frames::{Packet, UDP};
use crate::rig::{PORTS, connection, flow};

/// Set for the program in the namespace.
const INSIDE: &str = "SLUICE_TEST_NAMESPACE";

/// Plays the rest of the test called `name` in a network namespace that has no connections.
pub(crate) fn in_namespace(name: &str, play: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        return play();
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net"]).arg(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(INSIDE, "1");
    let output = command.output().expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn conntrack(arguments: &str) -> String {
    let output = Command::new("conntrack").args(arguments.split(' ')).output().expect("conntrack is installed");
    assert!(output.status.success(), "conntrack {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// From 10.0.0.1:1111 to 10.0.0.2:2222.
pub(crate) const NAMED: &str = "--src 10.0.0.1 --dst 10.0.0.2 --sport 1111 --dport 2222";
pub(crate) const SEEN: &str = "--status ASSURED,SEEN_REPLY --timeout 100";

fn next(source: &mut KernelConnections) -> ConnectionChange {
    let mut changes = Vec::new();
    eventually("it is told", || {
        source.wait(Duration::from_millis(100), &mut changes).unwrap();
        !changes.is_empty()
    });
    assert_eq!(changes.len(), 1, "{changes:?}");
    changes.remove(0)
}

fn told(source: &mut KernelConnections) -> Connection {
    match next(source) {
        ConnectionChange::Is(connection) => *connection,
        gone @ ConnectionChange::Gone { .. } => panic!("{gone:?}"),
    }
}

fn listed(source: &mut KernelConnections) -> Vec<Connection> {
    let mut all = Vec::new();
    source.list(&mut |connection| all.push(connection)).unwrap();
    all
}

#[test]
fn a_connection_is_told_of_from_its_beginning_to_its_end() {
    in_namespace("kernel::a_connection_is_told_of_from_its_beginning_to_its_end", || {
        let mut source = KernelConnections::open().unwrap();
        conntrack(&format!("-I -p udp {NAMED} {SEEN} --zone 7 --mark 5 --src-nat 10.0.0.9:5000"));
        let connection = told(&mut source);
        let Connection { zone, original, reply, mark, label, status, .. } = connection.clone();
        assert_eq!((zone, mark, label), (7, 5, 0));
        assert_eq!((original.source_port, original.destination_port, original.protocol), (1111, 2222, 17));
        assert_eq!(original.source.to_string(), "10.0.0.1");
        assert_eq!((reply.destination.to_string(), reply.destination_port), ("10.0.0.9".to_owned(), 5000));
        // Seen in both directions, assured, confirmed, source translated.
        assert_eq!(status & 0b11_1110, 0b01_1110);
        let mut all = listed(&mut source);
        // A second may have passed.
        all.iter_mut().for_each(|one| one.timeout = connection.timeout);
        assert_eq!(all, [connection]);
        conntrack(&format!("-D -p udp {NAMED} --zone 7"));
        assert_eq!(next(&mut source), ConnectionChange::Gone { zone: 7, original, id: None });
        assert_eq!(listed(&mut source), []);
    });
}

#[test]
fn an_update_tells_all_that_is_true_of_the_connection() {
    in_namespace("kernel::an_update_tells_all_that_is_true_of_the_connection", || {
        let mut source = KernelConnections::open().unwrap();
        let six = "--src fd00::1 --dst fd00::2 --sport 1111 --dport 80";
        conntrack(&format!("-I -p tcp {six} --state ESTABLISHED {SEEN}"));
        let first = told(&mut source);
        assert!(matches!(first.state, State::Tcp { state: TcpState::Established, .. }), "{first:?}");
        assert!(first.original.source.is_ipv6());
        // The event tells of the mark, and not of the state.
        conntrack(&format!("-U -p tcp {six} --mark 9"));
        let second = told(&mut source);
        assert_eq!((second.mark, second.state), (9, first.state));
    });
}

#[test]
fn a_connection_that_is_kept_lives_for_its_timeout_from_then_on() {
    in_namespace("kernel::a_connection_that_is_kept_lives_for_its_timeout_from_then_on", || {
        let mut source = KernelConnections::open().unwrap();
        conntrack(&format!("-I -p udp {NAMED} {SEEN} --zone 7"));
        conntrack(&format!("-I -p tcp {NAMED} --state ESTABLISHED {SEEN}"));
        let mut changes = Vec::new();
        eventually("both are told of", || {
            source.wait(Duration::from_millis(100), &mut changes).unwrap();
            changes.len() == 2
        });
        let mut all = listed(&mut source);
        assert_eq!(all.len(), 2);
        all.iter_mut().for_each(|connection| connection.timeout = Duration::from_secs(5_000));
        source.keep(&all).unwrap();
        // Nothing is told of that.
        conntrack(&format!("-I -p udp --src 10.1.0.1 --dst 10.0.0.2 --sport 1 --dport 2 {SEEN}"));
        assert_eq!(told(&mut source).original.source_port, 1);
        conntrack("-D -p udp --src 10.1.0.1");
        assert!(matches!(next(&mut source), ConnectionChange::Gone { zone: 0, .. }));
        let kept = listed(&mut source);
        assert!(kept.iter().all(|one| one.timeout > Duration::from_secs(4_000)), "{kept:?}");
        conntrack(&format!("-U -p tcp {NAMED} --timeout 50"));
        // One that is gone does not keep the other from being kept, and is told of, whether the kernel has told of its end or not.
        conntrack(&format!("-D -p udp {NAMED} --zone 7"));
        source.keep(&all).unwrap();
        let kept = listed(&mut source);
        assert_eq!(kept.len(), 1);
        assert!(kept[0].timeout > Duration::from_secs(4_000), "{:?}", kept[0].timeout);
        let is_end = |change: &ConnectionChange| matches!(change, ConnectionChange::Gone { zone: 7, .. });
        eventually("it is told of twice", || {
            source.wait(Duration::from_millis(100), &mut changes).unwrap();
            changes.iter().filter(|change| is_end(change)).count() == 2
        });
    });
}

#[test]
fn a_connection_that_is_in_a_zone_in_one_direction_only_is_not_for_the_device() {
    in_namespace("kernel::a_connection_that_is_in_a_zone_in_one_direction_only_is_not_for_the_device", || {
        let mut source = KernelConnections::open().unwrap();
        conntrack(&format!("-I -p udp {NAMED} {SEEN} --orig-zone 7"));
        conntrack(&format!("-I -p udp {NAMED} {SEEN} --zone 9"));
        assert_eq!(told(&mut source).zone, 9);
        assert_eq!(listed(&mut source).iter().map(|one| one.zone).collect::<Vec<_>>(), [9]);
    });
}

#[test]
fn a_connection_that_has_ended_is_not_kept_whether_its_end_was_told_or_not() {
    in_namespace("kernel::a_connection_that_has_ended_is_not_kept_whether_its_end_was_told_or_not", || {
        let mut source = KernelConnections::open().unwrap();
        conntrack(&format!("-I -p tcp {NAMED} --state ESTABLISHED {SEEN}"));
        let mut connection = told(&mut source);
        connection.timeout = Duration::from_secs(5_000);
        conntrack(&format!("-U -p tcp {NAMED} --state TIME_WAIT --timeout 50"));
        source.keep(&[connection]).unwrap();
        let all = listed(&mut source);
        assert!(all[0].timeout <= Duration::from_secs(50), "{:?}", all[0].timeout);
        // As it was found, and as it is told.
        let mut changes = Vec::new();
        eventually("both are there", || {
            source.wait(Duration::from_millis(100), &mut changes).unwrap();
            changes.len() == 2
        });
        for change in changes {
            let ConnectionChange::Is(connection) = change else { panic!("{change:?}") };
            assert!(matches!(connection.state, State::Tcp { state: TcpState::TimeWait, .. }), "{connection:?}");
        }
    });
}

/// More connections than the kernel keeps events of for a listener without privileges.
const MANY: usize = 20_000;

/// Has so many connections begin from 10.1.0.1 on, and what another line says.
fn begin(count: usize, last: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let line = |index: usize| {
        let (high, low) = (index / 250, index % 250 + 1);
        format!("-I -p udp --src 10.1.{high}.{low} --dst 10.0.0.2 --sport 1 --dport 2 {SEEN}\n")
    };
    let lines = (0..count).map(line).chain([last.to_owned()]);
    std::fs::write(file.path(), lines.collect::<String>()).unwrap();
    conntrack(&format!("-R {}", file.path().display()));
}

/// Has many connections begin, and then one of which the kernel has seen one direction only, and waits until the source says that it has
/// lost something.
fn lose(source: &mut KernelConnections) {
    begin(MANY, &format!("-I -p udp {NAMED} --timeout 100\n"));
    let mut changes = Vec::new();
    let lost = loop {
        if let Err(error) = source.wait(Duration::from_millis(100), &mut changes) {
            break error;
        }
        assert!(!changes.is_empty(), "nothing was lost");
        changes.clear();
    };
    assert!(matches!(lost, SourceError::Lost), "{lost}");
}

#[test]
fn a_source_says_that_it_has_lost_something_and_lists_it() {
    in_namespace("kernel::a_source_says_that_it_has_lost_something_and_lists_it", || {
        let mut source = KernelConnections::open().unwrap();
        lose(&mut source);
        assert_eq!(listed(&mut source).len(), MANY + 1);
    });
}

#[test]
fn what_happens_after_a_loss_is_told_and_nothing_that_is_older_than_the_listing() {
    in_namespace("kernel::what_happens_after_a_loss_is_told_and_nothing_that_is_older_than_the_listing", || {
        let mut source = KernelConnections::open().unwrap();
        lose(&mut source);
        assert_eq!(listed(&mut source).len(), MANY + 1);
        conntrack("-D -p udp --src 10.1.0.1 --dst 10.0.0.2 --sport 1 --dport 2");
        // And one that has begun is asked for, although its beginning was lost.
        let mut told = BTreeSet::new();
        eventually("both are told of", || {
            let mut changes = Vec::new();
            source.wait(Duration::from_millis(100), &mut changes).unwrap();
            told.extend(changes.into_iter().map(|change| match change {
                ConnectionChange::Gone { original, .. } => (original.source.to_string(), false),
                ConnectionChange::Is(connection) => (connection.original.source.to_string(), true),
            }));
            told.len() >= 2
        });
        assert_eq!(told, [("10.0.0.1".to_owned(), true), ("10.1.0.1".to_owned(), false)].into());
    });
}

#[test]
fn flushed_connections_are_shown_as_soon_as_the_kernel_has_removed_them() {
    in_namespace("kernel::flushed_connections_are_shown_as_soon_as_the_kernel_has_removed_them", || {
        let mut source = KernelConnections::open().unwrap();
        begin(100, "");
        let table = source.table().unwrap();
        let mut shown = Vec::new();
        let flushed = table.flush(&Selection::default(), &mut |some| {
            shown.push((some.len(), listed(&mut source).len()));
        });
        assert_eq!(flushed.unwrap(), 100);
        assert_eq!(shown, [(64, 36), (36, 0)]);
    });
}

/// The backend on a device, with the connections of this namespace.
pub(crate) struct World<'a> {
    nic: DvNic,
    pub(crate) clock: Arc<ManualClock>,
    ports: &'a Ports,
    wire: Out,
    representor: Out,
}

impl<'a> World<'a> {
    fn open(ports: &'a Ports) -> Self {
        Self::open_with(ports, Box::new(KernelConnections::open().unwrap()))
    }

    fn open_with(ports: &'a Ports, source: Box<dyn ConnectionSource>) -> Self {
        Self::open_at(ports, source, Arc::new(ManualClock::default()))
    }

    /// The same with a clock that the source has, too.
    pub(crate) fn open_at(ports: &'a Ports, source: Box<dyn ConnectionSource>, clock: Arc<ManualClock>) -> Self {
        let vports =
            (1..).zip(PORTS).map(|(number, (vport, _))| (format!("p{number}"), vport)).collect::<BTreeMap<_, _>>();
        let config = Config { takeover: true, connections: Some(ConnectionsOf::Kernel), vports, ..Config::default() };
        let open = OpenConfig::new("mlx5_0", clock.clone());
        let nic = DvNic::open_with(&config, &open, Some(source)).unwrap();
        for number in 1..=4 {
            let name = format!("p{number}").parse().unwrap();
            nic.attach_port(&Port { number: PortNumber(number), name, kind: PortKind::Physical }).unwrap();
        }
        let world = Self { nic, clock, ports, wire: ports.out("wire"), representor: ports.out("vport-65534") };
        let mut queue = world.nic.install_queue().unwrap();
        let mut opened = vec![];
        queue.submit_chain(ChainChange { chain: ChainId(1), operation: ChainOperation::Open }, &mut opened);
        eventually("the chain is open", || {
            queue.poll_chains(&mut opened);
            !opened.is_empty()
        });
        let ip = "in_port(2),eth(),eth_type(0x0800),ipv4(frag=no)";
        let later = format!("recirc_id(0x1),ct_state(+trk+est),{ip}");
        for (slot, (key, actions)) in (1..).zip([(&*later, "1"), (ip, "ct(),recirc(1)")]) {
            let id = FlowId { slot, incarnation: 1 };
            let change =
                Change { flow: id, generation: Generation(1), operation: Operation::Install(flow(key, actions)) };
            let mut done = vec![];
            queue.submit(&mut vec![change], &mut done);
            eventually("the flow is installed", || {
                queue.poll(&mut done);
                !done.is_empty()
            });
            assert!(done[0].result.is_ok(), "{:?}", done[0].result);
        }
        world
    }

    /// Whether a packet of the connection goes to the wire, and not to its representor.
    pub(crate) fn is_in_hardware(&self) -> bool {
        let frame = Packet::v4(UDP).frame();
        self.ports.send("vport-0", &frame);
        let mut found = None;
        eventually("the frame comes out", || {
            let outs = [(true, &self.wire), (false, &self.representor)];
            found =
                outs.into_iter().find_map(|(is_wire, out)| out.at_once().filter(|out| *out == frame).map(|_| is_wire));
            found.is_some()
        });
        found.unwrap()
    }
}

#[test]
fn packets_of_the_kernels_connections_stay_in_the_device_until_the_connection_ends() {
    let name = "kernel::packets_of_the_kernels_connections_stay_in_the_device_until_the_connection_ends";
    in_namespace(name, || {
        on_device("bluefield-3", name, |ports| {
            let begin = format!("-I -p udp {NAMED} {SEEN}");
            let end = format!("-D -p udp {NAMED}");
            conntrack(&begin);
            let world = World::open(ports);
            eventually("it is listed", || world.is_in_hardware());
            // It began before anybody listened: of its end nothing is told (`nf_conntrack_events` of 2), and it is not listed again.
            conntrack(&end);
            world.clock.advance(Duration::from_secs(60));
            eventually("it is not in the device any more", || !world.is_in_hardware());
            conntrack(&begin);
            eventually("it is in the device again", || world.is_in_hardware());
            conntrack(&end);
            let gone = Instant::now();
            eventually("it is not in the device any more", || !world.is_in_hardware());
            assert!(gone.elapsed() < Duration::from_secs(1), "{:?}", gone.elapsed());
        });
    });
}

#[test]
fn the_kernel_keeps_a_connection_whose_packets_only_the_device_sees() {
    let name = "kernel::the_kernel_keeps_a_connection_whose_packets_only_the_device_sees";
    in_namespace(name, || {
        on_device("bluefield-3", name, |ports| {
            let world = World::open(ports);
            conntrack(&format!("-I -p udp {NAMED} --status ASSURED,SEEN_REPLY --timeout 900"));
            eventually("it is in the device", || world.is_in_hardware());
            let left = || {
                let text = conntrack("-L -p udp");
                text.split_whitespace().nth(2).unwrap().parse::<u32>().unwrap()
            };
            let lower = || conntrack(&format!("-U -p udp {NAMED} --timeout 300"));
            lower();
            // No time has passed for the agent.
            assert!(world.is_in_hardware());
            assert!(left() <= 300);
            world.clock.advance(Duration::from_secs(10));
            eventually("the kernel is told", || left() > 800);
            // Nothing moves.
            lower();
            world.clock.advance(Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(500));
            assert!(left() <= 300);
        });
    });
}

#[test]
fn what_is_told_during_a_listing_is_not_lost_however_long_that_takes() {
    /// In all more than the kernel keeps for a listener without privileges, and few at a time.
    const BATCHES: usize = 80;
    const BATCH: usize = 250;
    in_namespace("kernel::what_is_told_during_a_listing_is_not_lost_however_long_that_takes", || {
        begin(4_000, "");
        let mut source = KernelConnections::open().unwrap();
        let (mut seen, mut begun) = (0, 0);
        let mut visit = |_| {
            seen += 1;
            if seen % 50 == 0 && begun < BATCHES {
                let file = tempfile::NamedTempFile::new().unwrap();
                let line = |host: usize| {
                    format!("-I -p udp --src 10.2.{begun}.{host} --dst 10.0.0.2 --sport 1 --dport 2 {SEEN}\n")
                };
                std::fs::write(file.path(), (1..=BATCH).map(line).collect::<String>()).unwrap();
                conntrack(&format!("-R {}", file.path().display()));
                begun += 1;
            }
        };
        source.list(&mut visit).unwrap();
        assert_eq!(begun, BATCHES);
        let mut told = BTreeSet::new();
        eventually("all that have begun meanwhile are told of", || {
            let mut changes = Vec::new();
            source.wait(Duration::from_millis(100), &mut changes).unwrap();
            told.extend(changes.into_iter().filter_map(|change| match change {
                ConnectionChange::Is(connection) => Some(connection.original.source),
                ConnectionChange::Gone { .. } => None,
            }));
            told.len() == BATCHES * BATCH
        });
    });
}

/// A source that loses the end of its only connection.
struct Forgetful {
    connection: Connection,
    /// Whether the loss is to be told.
    has_lost: Receiver<()>,
    is_over: bool,
}

impl ConnectionSource for Forgetful {
    fn list(&mut self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError> {
        if !self.is_over {
            visit(self.connection.clone());
        }
        Ok(())
    }

    fn wait(&mut self, patience: Duration, _: &mut Vec<ConnectionChange>) -> Result<(), SourceError> {
        if self.has_lost.recv_timeout(patience).is_err() {
            return Ok(());
        }
        self.is_over = true;
        Err(SourceError::Lost)
    }

    fn keep(&mut self, _: &[Connection]) -> Result<(), SourceError> {
        Ok(())
    }
}

#[test]
fn a_connection_whose_end_was_lost_leaves_the_device_all_the_same() {
    let name = "kernel::a_connection_whose_end_was_lost_leaves_the_device_all_the_same";
    on_device("bluefield-3", name, |ports| {
        let (lose, has_lost) = channel();
        let world =
            World::open_with(ports, Box::new(Forgetful { connection: connection(0), has_lost, is_over: false }));
        eventually("it is in the device", || world.is_in_hardware());
        lose.send(()).unwrap();
        eventually("it is not in the device any more", || !world.is_in_hardware());
    });
}
