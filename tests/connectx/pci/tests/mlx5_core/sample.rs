//! Samples: packets go on by hardware, and of so many one comes to the driver, too, which hands it to psample.

use sluice_connectx::steering::Port;

use crate::agent::{Agent, flow_of, ufid};
use crate::packet::{Packet, TCP};
use crate::{MANAGER, VF0, VF1, World};

/// Writes a line for each sample that psample tells of: device, whole length, group, one of how many, bytes
/// (`include/uapi/linux/psample.h`).
const LISTENER: &str = r##"
import re, socket, struct, subprocess
said = subprocess.run(["genl", "ctrl", "get", "name", "psample"], capture_output=True, text=True).stdout
group = int(re.search(r"ID-(0x[0-9a-f]+) +name: packets", said).group(1), 16)
listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
listener.bind((0, 0))
listener.setsockopt(270, 1, group)
print("listens", flush=True)
while True:
    message, at, found = listener.recv(1 << 16)[20:], 0, {}
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        found[kind] = message[at + 4:at + length]
        at += (length + 3) & ~3
    number = lambda kind: int.from_bytes(found[kind], "little")
    print(socket.if_indextoname(number(0)), number(2), number(3), number(5), found[6].hex(), flush=True)
"##;

/// A rule's sample, of so many packets one, how many come, and how many bytes are told of each.
const ROWS: [(&str, usize, usize, usize); 3] =
    [("rate 1 group 5", 1, 3, SHORT), ("rate 4 group 5", 4, 9, SHORT), ("rate 1 group 5 trunc 20", 1, 1, 20)];
const FRAME: usize = 72;
/// The driver asks how long a packet is before it puts the Ethernet header back, and cuts as much off its end.
const SHORT: usize = FRAME - 14;

/// What psample tells, from here on.
struct Samples<'a> {
    world: &'a World,
}

impl<'a> Samples<'a> {
    fn listen(world: &'a World) -> Self {
        world.guest.run(&format!(
            "modprobe -a psample act_sample
             cat >/tmp/listener.py <<'END'\n{LISTENER}\nEND
             setsid python3 /tmp/listener.py >>/tmp/samples 2>&1 & echo $! >/tmp/listener.pid"
        ));
        world.guest.eventually("somebody listens to psample", "cat /tmp/samples", |said| said.contains("listens"));
        Self { world }
    }

    /// Whether just these are told of, after the last time that this was asked.
    fn are(&self, lines: &str) {
        let guest = &self.world.guest;
        guest.eventually("samples are told of", "cat /tmp/samples", |said| said.ends_with(lines));
        assert_eq!(guest.run("cat /tmp/samples; truncate --size=8 /tmp/samples"), format!("listens\n{lines}"));
    }
}

impl Drop for Samples<'_> {
    fn drop(&mut self) {
        self.world.guest.attempt("kill $(cat /tmp/listener.pid); rm /tmp/samples");
    }
}

/// The bytes of a frame as they are told, and a line for a sample of it.
fn line(port: &str, frame: &[u8], group: u32, rate: usize, told: usize) -> String {
    let bytes: String = frame[..told].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{port} {} {group} {rate} {bytes}\n", frame.len())
}

pub(crate) fn samples_are_taken_of_what_hardware_forwards(world: &World) {
    let guest = &world.guest;
    let samples = Samples::listen(world);
    guest.run("ip link set pf0vf0 up; tc qdisc add dev pf0vf0 ingress");
    let packet = Packet::v4(TCP);
    let (frame, tagged) = (packet.frame(), Packet { tags: vec![(0x8100, 100)], ..packet.clone() }.frame());
    for (sample, rate, packets, told) in ROWS {
        guest.run(&format!(
            "tc filter add dev pf0vf0 ingress protocol ip pref 1 flower skip_sw ip_proto tcp \
                action sample {sample} action vlan push id 100 pipe action mirred egress redirect dev p0"
        ));
        let mut lines = String::new();
        for number in 1..=packets {
            let walk = world.receive(VF0, &frame);
            let mut sent = vec![(Port::Wire, tagged.clone())];
            if number % rate == 0 {
                sent.insert(0, (MANAGER, frame.clone()));
                lines += &line("pf0vf0", &frame, 5, rate, told);
            }
            assert_eq!(walk.sent, sent, "{walk}");
        }
        samples.are(&lines);
        guest.eventually("packets are counted", "tc -s filter show dev pf0vf0 ingress", |shown| {
            shown.contains("in_hw in_hw_count 1")
                && shown.contains(&format!("Sent hardware {} bytes {packets} pkt", packets * FRAME))
        });
        guest.run("tc filter del dev pf0vf0 ingress");
    }
    guest.run("tc qdisc del dev pf0vf0 ingress");
}

pub(crate) fn flows_of_the_agent_are_sampled_in_hardware(world: &World) {
    let samples = Samples::listen(world);
    let agent = Agent::start(world, "skip_sw");
    world.guest.run("ip link set pf0vf0 up; ip link set pf0vf1 up");
    for (number, port, sample) in
        [(1, "pf0vf0", "psample(group=7)"), (2, "pf0vf1", "sample(sample=50.0%,actions(psample(group=8)))")]
    {
        let key = format!("{},in_port({port}),eth_type(0x0800),ipv4(proto=6,frag=no)", ufid(number));
        agent.add(&key, &format!("{sample},p0"));
    }
    let flows = agent.flows();
    assert!(flows.iter().all(|flow| flow["placement"] == "hardware"), "{flows:#?}");
    let frame = Packet::v4(TCP).frame();
    for (from, packets) in [(VF0, 1), (VF1, 2)] {
        let walks = (0..packets).map(|_| world.receive(from, &frame).sent);
        let at_wire = walks.filter(|sent| sent.contains(&(Port::Wire, frame.clone()))).count();
        assert_eq!(at_wire, packets);
    }
    samples.are(&(line("pf0vf0", &frame, 7, 1, SHORT) + &line("pf0vf1", &frame, 8, 2, SHORT)));
    agent.eventually("packets are counted", |flows| {
        flow_of(flows, 1)["packets"] == 1 && flow_of(flows, 2)["packets"] == 2
    });
    agent.stop();
}
