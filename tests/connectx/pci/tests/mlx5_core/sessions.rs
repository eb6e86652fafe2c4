//! Sessions of OPI's interface: both directions go by hardware, by the kernel's tc and past it, and a firewall behind the manager of the eswitch
//! sees how connections begin and end.

use serde_json::{Value, json};
use sluice_connectx::steering::Port;

use crate::direct::{Agent, Eswitch, direct};
use crate::frames::{End, UDP, tcp, udp};
use crate::{VF0, World};

/// Who asks, behind a function, and who answers, behind the wire.
const CLIENT: End = ([10, 0, 0, 1], 4000);
const SERVER: End = ([10, 0, 0, 2], 443);
/// Packets in each direction.
const THERE: usize = 7;
const BACK: usize = 5;
/// Bytes of a segment without data.
const SEGMENT: usize = 54;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;

pub(crate) fn sessions_of_opi_go_by_hardware_and_end_with_exact_counts(eswitch: &Eswitch<'_>) {
    eswitch.world.guest.bring("firewall");
    let by_tc = "backend = \"tc\"\ntc.policy = \"skip_sw\"".to_owned();
    for (backend, is_by_tc) in [(by_tc, true), (direct("p0"), false)] {
        let agent = Agent::start_with(eswitch, &backend);
        let beside = Beside { eswitch, agent, is_by_tc };
        beside.datagrams_go_both_ways_and_are_counted();
        beside.a_session_that_is_idle_is_closed_with_what_it_has_counted();
        beside.a_connection_begins_and_ends_at_the_firewall();
        beside.agent.eventually("no flow is left", <[Value]>::is_empty);
        beside.agent.end("TERM");
    }
}

/// The firewall beside an agent.
struct Beside<'a> {
    eswitch: &'a Eswitch<'a>,
    agent: Agent<'a>,
    is_by_tc: bool,
}

impl Beside<'_> {
    fn datagrams_go_both_ways_and_are_counted(&self) {
        self.add(1, "udp", 300);
        exchange(self.eswitch.world);
        assert_eq!(self.delete(1, [THERE, BACK]), json!([THERE, THERE * UDP, BACK, BACK * UDP]));
    }

    fn a_session_that_is_idle_is_closed_with_what_it_has_counted(&self) {
        self.add(2, "udp", 2);
        exchange(self.eswitch.world);
        let counted = [THERE, THERE * UDP, BACK, BACK * UDP];
        assert_eq!(self.tell("closed"), json!({ "session": 2, "counted": counted, "reason": "_TIMEOUT" }));
    }

    fn a_connection_begins_and_ends_at_the_firewall(&self) {
        let Eswitch { world, manager, .. } = *self.eswitch;
        let asks = |flags| tcp(CLIENT, SERVER, [100, 500], flags);
        let answers = |flags| tcp(SERVER, CLIENT, [500, 100], flags);
        self.add(3, "tcp", 300);
        for flags in [SYN, ACK, FIN | ACK] {
            let [there, back] = if flags == ACK { [Port::Wire, VF0] } else { [manager; 2] };
            world.pass(VF0, &asks(flags), &[(there, &asks(flags))]);
            world.pass(Port::Wire, &answers(flags), &[(back, &answers(flags))]);
        }
        assert_eq!(self.delete(3, [1, 1]), json!([1, SEGMENT, 1, SEGMENT]));
    }

    /// Adds a session between client and server, which ends after so many seconds without a packet. It is in the device when this returns.
    fn add(&self, id: u64, protocol: &str, cache_timeout: u32) {
        let end = |([a, b, c, d], port): End| format!("{a}.{b}.{c}.{d}:{port}");
        let words = format!("add {id} {protocol} {} {} 3 1 {cache_timeout}", end(CLIENT), end(SERVER));
        self.eswitch.world.guest.run(&format!("/tmp/firewall /tmp/agent/run {words}"));
    }

    /// Deletes a session whose two flows have had so many packets, and gives what it has counted.
    fn delete(&self, id: u64, packets: [usize; 2]) -> Value {
        if self.is_by_tc {
            // The driver reads its counters once a second, and does not when a rule goes.
            self.agent.eventually("the driver has read its counters", |flows| {
                packets.iter().all(|packets| flows.iter().any(|flow| flow["packets"] == *packets))
            });
        }
        self.tell(&format!("delete {id}"))["counted"].take()
    }

    /// What the firewall hears of the session that its command ends.
    fn tell(&self, words: &str) -> Value {
        let said = self.eswitch.world.guest.run(&format!("/tmp/firewall /tmp/agent/run {words}"));
        serde_json::from_str(&said).expect("a session")
    }
}

/// Datagrams of a session, all of which leave by its other port as they came.
fn exchange(world: &World) {
    let [there, back] = [(CLIENT, SERVER), (SERVER, CLIENT)].map(|(from, to)| udp(from.0, to.0, from.1, to.1));
    (0..THERE).for_each(|_| world.pass(VF0, &there, &[(Port::Wire, &there)]));
    (0..BACK).for_each(|_| world.pass(Port::Wire, &back, &[(VF0, &back)]));
}
