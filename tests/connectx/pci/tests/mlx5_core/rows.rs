//! Many rules at a time: put in with one call of tc, looked at with one dump, told apart by the packets' destination.

use serde_json::Value;

use crate::World;
use crate::packet::Packet;

/// The packet as the rule of a number wants it.
pub(crate) fn marked(packet: &Packet, number: usize) -> Packet {
    Packet { to: mark(number), ..packet.clone() }
}

fn mark(number: usize) -> [u8; 6] {
    [0x02, 0, 0, 0, 1, u8::try_from(number).expect("few rules")]
}

/// Rules that are in hardware.
pub(crate) struct Installed<'a> {
    world: &'a World,
    port: &'static str,
}

impl<'a> Installed<'a> {
    /// Puts rules in at a port: protocol, flower's words, actions.
    #[track_caller]
    pub(crate) fn put_in<'b>(
        world: &'a World,
        port: &'static str,
        rules: impl Iterator<Item = (&'b str, &'b str, &'b str)>,
    ) -> Self {
        // Rules of a protocol share a priority, as tc wants it.
        let priorities = ["ip", "ipv6", "802.1q", "802.1ad", "all"];
        let mut lines = String::new();
        let mut wanted = 0;
        for (number, (protocol, words, actions)) in rules.enumerate() {
            let priority = 1 + priorities.iter().position(|known| *known == protocol).expect("a priority");
            let [a, b, c, d, e, f] = mark(number);
            lines.push_str(&format!(
                "filter add dev {port} ingress protocol {protocol} pref {priority} handle {} flower skip_sw \
                 dst_mac {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} {words} action {actions}\n",
                number + 1
            ));
            wanted += 1;
        }
        world.guest.run(&format!(
            "for port in p0 pf0hpf pf0vf0 pf0vf1; do tc qdisc add dev $port ingress; done
             cat >/tmp/rules <<'END'\n{lines}END\ntc -batch /tmp/rules"
        ));
        let installed = Self { world, port };
        let rules = installed.rules();
        let in_hardware = |rule: &&Value| rule["in_hw"] == true && rule["in_hw_count"] == 1 && rule["skip_sw"] == true;
        assert_eq!((rules.len(), rules.iter().filter(in_hardware).count()), (wanted, wanted), "{rules:#?}");
        installed
    }

    /// What tc tells of each rule, in the order of their numbers.
    fn rules(&self) -> Vec<Value> {
        let dump = self.world.guest.run(&format!("tc -s -j filter show dev {} ingress", self.port));
        rules(&dump)
    }

    /// Waits until the kernel has counted as many packets of each rule as hit it.
    #[track_caller]
    pub(crate) fn count(&self, hits: &[u64]) {
        let show = format!("tc -s -j filter show dev {} ingress", self.port);
        self.world.guest.eventually(&format!("the counters are {hits:?}"), &show, |dump| {
            let counted: Vec<_> = rules(dump).iter().map(packets).collect();
            counted == hits
        });
    }

    pub(crate) fn take_out(self) {
        self.world.guest.run("for port in p0 pf0hpf pf0vf0 pf0vf1; do tc qdisc del dev $port ingress; done");
    }
}

/// The packets of a rule's first action.
fn packets(rule: &Value) -> u64 {
    rule["actions"][0]["stats"]["packets"].as_u64().expect("a counter")
}

/// The rules of a dump, by their handles. What a priority begins with has none.
fn rules(dump: &str) -> Vec<Value> {
    let filters: Vec<Value> = serde_json::from_str(dump).expect("a list");
    let options = filters.into_iter().map(|mut filter| filter["options"].take());
    let mut rules: Vec<_> = options.filter(|options| options["handle"].is_number()).collect();
    rules.sort_by_key(|rule| rule["handle"].as_u64());
    rules
}
