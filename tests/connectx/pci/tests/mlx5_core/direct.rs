//! Direct rules in the guest: the unmodified mlx5_core and mlx5_ib, the unmodified libmlx5, and Sluice's agent with its dv backend.
//! Packets go from the wire to the host's functions and back, in this process.
//!
//! The device says more than that of the other stories: that software may own tables. The kernel would then write its own in the same
//! way, which devlink's `flow_steering_mode` keeps from it. Of RoCE the device has no more than what direct rules need, so that
//! `enable_roce` is off; and mlx5_ib comes before switchdev mode, since the one of 6.1 makes no device afterwards.
//!
//! On a BlueField the ports are the host's functions, in a host those that its own driver enabled.

use serde_json::Value;
use sluice_connectx::profile::{BLUEFIELD_3, CONNECTX_6_DX_VFS, Profile};
use sluice_connectx::steering::Port;

use crate::driver::{DEVICE, go_to_switchdev, refusals, set_functions};
use crate::frames::{UDP, udp};
use crate::{HOST_PF, VF0, VF1, World, beside, plain, router, sessions};

/// What the agent is told, but for the backend and the device.
const CONFIG: &str = r#"
run_dir = "/tmp/agent/run"
state_dir = "/tmp/agent/state"
lock_dir = "/tmp/agent"
metrics = "none"
idle_timeout = "none"
poll_interval = "200ms"
"#;

/// An eswitch in the guest.
pub(crate) struct Eswitch<'a> {
    pub(crate) world: &'a World,
    /// The driver's own function, which gets what no rule takes.
    pub(crate) manager: Port,
    /// Its ports, and where their packets are: the wire and three functions.
    pub(crate) ports: [(&'static str, Port); 4],
}

pub(crate) fn direct_rules_carry_packets_in_the_guest(world: &World) {
    world.end_agent();
    world.guest.remove();
    for profile in [crate::DEVICE, BLUEFIELD_3, CONNECTX_6_DX_VFS] {
        with_software_steering(world, profile, |eswitch| {
            the_first_packet_is_the_representors_and_the_rest_is_in_hardware(eswitch);
            a_second_name_of_the_device_is_the_same_device(eswitch);
            what_the_kernel_has_in_hardware_is_not_taken_over(eswitch);
            match profile {
                BLUEFIELD_3 => {
                    sessions::sessions_of_opi_go_by_hardware_and_end_with_exact_counts(eswitch);
                    router::established_connections_of_a_router_go_by_hardware(eswitch);
                    beside::openvswitch_goes_on_in_hardware_by_tc_and_past_it(eswitch);
                }
                _ => plain::flows_do_by_tc_and_past_it_what_they_do_in_the_nic_in_software(eswitch),
            }
        });
    }
    world.ports.exchange(crate::DEVICE);
    world.guest.rescan();
    go_to_switchdev(&world.guest);
}

/// Has a device in the slot whose tables software may own, in switchdev mode, with an RDMA device; and all of that gone at the end,
/// of which nothing is left.
fn with_software_steering(world: &World, profile: Profile, story: impl FnOnce(&Eswitch<'_>)) {
    const FUNCTIONS: u16 = 3;
    let guest = &world.guest;
    let is_host = !profile.embedded_cpu;
    let third = if is_host { ("pf0vf2", Port::Vport(FUNCTIONS)) } else { ("pf0hpf", HOST_PF) };
    let ports = [("p0", Port::Wire), third, ("pf0vf0", VF0), ("pf0vf1", VF1)];
    let eswitch = Eswitch { world, manager: Port::Vport(profile.own_vport()), ports };
    world.ports.exchange(profile.with_software_steering());
    guest.rescan();
    guest.run(&format!(
        "device=$({DEVICE})
         devlink dev param set $device name flow_steering_mode value dmfs cmode runtime
         devlink dev param set $device name enable_roce value false cmode driverinit
         devlink dev reload $device
         modprobe mlx5_ib"
    ));
    guest.bring("sluiced");
    guest.bring("sluice");
    a_switch_that_goes_by_addresses_has_nothing_to_take_over(&eswitch);
    go_to_switchdev(guest);
    if is_host {
        set_functions(guest, FUNCTIONS);
    }
    let representors = guest.run("rdma link");
    for (name, _) in ports {
        assert!(representors.contains(&format!("netdev {name} ")), "{representors}");
    }
    story(&eswitch);
    if is_host {
        set_functions(guest, 0);
    }
    guest.run("rmmod mlx5_ib; rm -r /tmp/agent");
    guest.remove();
    let hca = world.hca.lock();
    assert_eq!(hca.left(), Vec::<String>::new(), "{}", profile.name);
    assert_eq!(refusals(&hca), [""; 0], "{}", profile.name);
}

/// An agent on an eswitch.
pub(crate) struct Agent<'a>(&'a Eswitch<'a>);

impl<'a> Agent<'a> {
    /// Starts one with the dv backend on the device that has this name, which has no flows.
    #[track_caller]
    fn start(eswitch: &'a Eswitch<'_>, device: &str) -> Self {
        Self::start_with(eswitch, &direct(device))
    }

    /// Starts one with this backend, which has no flows.
    #[track_caller]
    pub(crate) fn start_with(eswitch: &'a Eswitch<'_>, backend: &str) -> Self {
        let agent = Self::new(eswitch);
        agent.configure("sluiced", backend);
        agent.run();
        agent
    }

    /// Starts one with this backend and the source of a table of its configuration, which the kernel tells of connections.
    #[track_caller]
    pub(crate) fn start_with_source(eswitch: &'a Eswitch<'_>, backend: &str, table: &str) -> Self {
        let agent = Self::new(eswitch);
        agent.configure("sluiced", backend);
        eswitch.world.guest.run(&format!("cat >>/tmp/agent/sluiced.toml <<'END'\n{table}END"));
        agent.run();
        let is_heard = |shown: &str| shown.contains("  source    conntrack: connections of the kernel");
        eswitch.world.guest.eventually("the kernel is heard", "/tmp/sluice --run-dir /tmp/agent/run show", is_heard);
        agent
    }

    /// Starts one with this backend in front of an Open vSwitch, from which it has ports and flows. It has the ports. `tables` are those of
    /// its configuration that say so.
    #[track_caller]
    pub(crate) fn start_beside(eswitch: &'a Eswitch<'_>, backend: &str, tables: &str) -> Self {
        let agent = Self::new(eswitch);
        agent.write("sluiced", &format!("{backend}{CONFIG}{tables}"));
        agent.run();
        let is_read =
            |shown: &str| shown.contains("  source    ovs: ovs-system, ") && !shown.contains("cannot be read");
        eswitch.world.guest.eventually("the datapath is read", "/tmp/sluice --run-dir /tmp/agent/run show", is_read);
        agent
    }

    /// One that was never started.
    fn new(eswitch: &'a Eswitch<'_>) -> Self {
        eswitch.world.guest.run("rm -rf /tmp/agent; mkdir /tmp/agent");
        Self(eswitch)
    }

    fn configure(&self, name: &str, backend: &str) {
        let ports = (1..).zip(self.0.ports).map(|(number, (name, _))| {
            let kind = if name == "p0" { "physical" } else { "representor" };
            format!("[[port]]\nnumber = {number}\nname = \"{name}\"\nkind = \"{kind}\"\n")
        });
        self.write(name, &format!("{backend}{CONFIG}{}", ports.collect::<String>()));
    }

    fn write(&self, name: &str, config: &str) {
        self.0.world.guest.run(&format!("cat >/tmp/agent/{name}.toml <<'END'\n{config}END"));
    }

    /// Starts the process, and waits until it answers.
    #[track_caller]
    pub(crate) fn run(&self) {
        self.0.world.guest.run(
            "setsid /tmp/sluiced --config /tmp/agent/sluiced.toml >>/tmp/agent/log 2>&1 </dev/null &
             echo $! >/tmp/agent/pid
             for _ in {1..100}; do
                 ! /tmp/sluice --run-dir /tmp/agent/run show >/dev/null 2>&1 || exit 0
                 sleep 0.2
             done
             cat /tmp/agent/log; exit 1",
        );
    }

    /// Starts another one, which does not come to life, and gives what it said.
    #[track_caller]
    fn another_is_refused(&self, device: &str) -> String {
        self.configure("other", &direct(device));
        self.0.world.guest.run("sed -i 's,/tmp/agent/run,/tmp/agent/other,' /tmp/agent/other.toml");
        let ran = self.0.world.guest.attempt("timeout 20 /tmp/sluiced --config /tmp/agent/other.toml");
        assert!(ran.code != 0 && ran.err.starts_with("sluiced: "), "{ran:?}");
        ran.err
    }

    #[track_caller]
    pub(crate) fn sluice(&self, words: &str) -> String {
        self.0.world.guest.run(&format!("/tmp/sluice --run-dir /tmp/agent/run {words}"))
    }

    #[track_caller]
    fn add(&self, key: &str, actions: &str) {
        self.sluice(&format!("add-flow --permanent '{key}' '{actions}'"));
    }

    /// Waits until the flows are as wanted, and gives them.
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let dump = "/tmp/sluice --run-dir /tmp/agent/run dump-flows -m --json";
        let parsed = |shown: &str| serde_json::from_str::<Vec<Value>>(shown).expect("flows");
        parsed(&self.0.world.guest.eventually(what, dump, |shown| is_so(&parsed(shown))))
    }

    /// Waits until the flow whose key has `text` in it has counted so many packets, of [`UDP`] bytes each.
    #[track_caller]
    fn has_counted(&self, text: &str, packets: usize) {
        self.eventually("the flow has counted its packets", |flows| {
            let flow = flows.iter().find(|flow| flow["key"].as_str().is_some_and(|key| key.contains(text)));
            let flow = flow.unwrap_or_else(|| panic!("no flow of {text}: {flows:#?}"));
            assert_eq!(flow["state"], "offloaded", "{flow}");
            flow["packets"] == packets && flow["bytes"] == packets * UDP
        });
    }

    pub(crate) fn end(&self, signal: &str) {
        self.0.world.guest.run(&format!(
            "kill -{signal} $(cat /tmp/agent/pid); while [ -e /proc/$(cat /tmp/agent/pid) ]; do sleep 0.05; done"
        ));
    }
}

/// What the agent is told to have the dv backend on a device.
pub(crate) fn direct(device: &str) -> String {
    format!("backend = \"dv\"\ndevice = \"{device}\"\ndv.takeover = true")
}

/// The names of the device: by libibverbs, on its bus, and of the uplink's network device.
fn names(world: &World) -> [String; 3] {
    let address = world.guest.run("basename /sys/bus/pci/drivers/mlx5_core/0000:*");
    [rdma_name(world), address.trim().to_owned(), "p0".to_owned()]
}

/// The name that libibverbs has for the device, once udev has given it the one that it is to have.
fn rdma_name(world: &World) -> String {
    let name = world.guest.eventually("udev names the device", "ls /sys/class/infiniband", |name| {
        !name.is_empty() && !name.contains("mlx5_")
    });
    name.trim().to_owned()
}

fn query(to: u8) -> Vec<u8> {
    udp([10, 9, 9, 9], [10, 0, 0, to], 53, 1000)
}

fn flow(port: &str, to: u8) -> String {
    format!("in_port({port}),eth(),eth_type(0x0800),ipv4(dst=10.0.0.{to},proto=17,frag=no),udp(dst=1000)")
}

fn the_first_packet_is_the_representors_and_the_rest_is_in_hardware(eswitch: &Eswitch<'_>) {
    let world = eswitch.world;
    const REST: usize = 20;
    let guest = &world.guest;
    let agent = Agent::start(eswitch, &rdma_name(world));
    // A rule in software counts what comes to the kernel by the representor.
    guest.run(
        "ip link set p0 up
         tc qdisc add dev p0 ingress
         tc filter add dev p0 ingress protocol ip pref 1 flower skip_hw action pass",
    );
    let kernel_has_seen = |packets| {
        let seen = |shown: &str| shown.contains(&format!(" bytes {packets} pkt "));
        guest.eventually("the kernel has seen so many packets", "tc -s filter show dev p0 ingress", seen);
    };
    world.pass(Port::Wire, &query(1), &[(eswitch.manager, &query(1))]);
    kernel_has_seen(1);

    agent.add(&flow("p0", 1), "pf0vf0");
    for _ in 0..REST {
        world.pass(Port::Wire, &query(1), &[(VF0, &query(1))]);
    }
    world.pass(Port::Wire, &query(2), &[(eswitch.manager, &query(2))]);
    agent.has_counted("10.0.0.1", REST);
    // The other flow's, and none of this one.
    kernel_has_seen(2);
    guest.run("tc qdisc del dev p0 ingress");

    // Each port is the vport that the kernel says.
    let (third, at_third) = eswitch.ports[1];
    agent.add(&flow("p0", 3), third);
    agent.add(&flow(third, 4), "pf0vf1");
    agent.add(&flow("pf0vf1", 5), "p0");
    world.pass(Port::Wire, &query(3), &[(at_third, &query(3))]);
    world.pass(at_third, &query(4), &[(VF1, &query(4))]);
    world.pass(VF1, &query(5), &[(Port::Wire, &query(5))]);
    world.pass(VF0, &query(5), &[(eswitch.manager, &query(5))]);

    // That of an embedded processor's own function has no name of a port: the RDMA device knows it. A host's own has none.
    let representors = guest.run("rdma link");
    let mut own: Vec<&str> = representors.split(" netdev ").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
    own.retain(|name| eswitch.ports.iter().all(|(other, _)| other != name));
    assert_eq!(own.len(), usize::from(eswitch.manager != Port::Vport(0)), "{representors}");
    let refused = guest.attempt("/tmp/sluice --run-dir /tmp/agent/run add-port 6 lo");
    assert!(refused.err.contains("its network device is no port of the eswitch of"), "{refused:?}");
    if let [own] = own[..] {
        agent.sluice(&format!("add-port 5 {own}"));
        agent.add(&flow("p0", 6), own);
        world.pass(Port::Wire, &query(6), &[(eswitch.manager, &query(6))]);
        agent.has_counted("10.0.0.6", 1);
        // By that vport comes what representors send, too.
        let refused =
            guest.attempt(&format!("/tmp/sluice --run-dir /tmp/agent/run add-flow --permanent '{}' p0", flow(own, 7)));
        let reason = "field in_port: the kernel forwards what the manager of the eswitch sends";
        assert!(refused.code == 2 && refused.err.contains(reason), "{refused:?}");
    }

    for signal in ["KILL", "TERM"] {
        agent.end(signal);
        world.pass(Port::Wire, &query(1), &[(eswitch.manager, &query(1))]);
        agent.run();
        guest.eventually("the flows are back", "/tmp/sluice --run-dir /tmp/agent/run dump-flows -m", |dump| {
            dump.matches("offloaded:yes").count() == 4 + own.len()
        });
        world.pass(Port::Wire, &query(1), &[(VF0, &query(1))]);
    }
    agent.end("TERM");
}

fn a_second_name_of_the_device_is_the_same_device(eswitch: &Eswitch<'_>) {
    let world = eswitch.world;
    let names = names(world);
    let [rdma, address, _] = &names;
    // Each of them will do.
    let agent = Agent::start(eswitch, "p0");
    let shown = agent.sluice("show");
    assert!(shown.contains(&format!("  device    eswitch of {address} ({rdma}), in switchdev mode\n")), "{shown}");
    assert!(!shown.contains("that are no [[port]]"), "{shown}");
    agent.sluice("del-port 4");
    let shown = agent.sluice("show");
    assert!(shown.contains("            ports of the eswitch that are no [[port]]: pf0vf1\n"), "{shown}");
    agent.add(&flow("p0", 1), "pf0vf0");
    world.pass(Port::Wire, &query(1), &[(VF0, &query(1))]);
    for name in &names {
        let said = agent.another_is_refused(name);
        assert!(said.contains(&format!("device {address} is in use by pid ")), "{name}: {said}");
    }
    agent.end("TERM");
}

fn what_the_kernel_has_in_hardware_is_not_taken_over(eswitch: &Eswitch<'_>) {
    let world = eswitch.world;
    let guest = &world.guest;
    let agent = Agent::new(eswitch);
    let filter = |to: u8, flag: &str| {
        format!(
            "tc filter add dev pf0vf0 ingress protocol ip pref 1 flower {flag} dst_ip 10.0.0.{to} ip_proto udp \
             action mirred egress redirect dev p0"
        )
    };
    guest.run(&format!("tc qdisc add dev pf0vf0 ingress; {}; {}", filter(7, "skip_sw"), filter(8, "skip_hw")));
    let said = agent.another_is_refused("p0");
    assert!(said.contains("the kernel has filters in the hardware of this eswitch, at pf0vf0 (1): "), "{said}");
    world.pass(VF0, &query(7), &[(Port::Wire, &query(7))]);

    // Those in software see what misses, as before.
    guest.run(&format!("tc qdisc del dev pf0vf0 ingress; tc qdisc add dev pf0vf0 ingress; {}", filter(8, "skip_hw")));
    let agent = Agent::start(eswitch, "p0");
    world.pass(VF0, &query(7), &[(eswitch.manager, &query(7))]);
    agent.end("KILL");
    guest.run(&format!("tc qdisc del dev pf0vf0 ingress; tc qdisc add dev pf0vf0 ingress; {}", filter(7, "skip_sw")));
    world.pass(VF0, &query(7), &[(Port::Wire, &query(7))]);
    guest.run("tc qdisc del dev pf0vf0 ingress");
}

fn a_switch_that_goes_by_addresses_has_nothing_to_take_over(eswitch: &Eswitch<'_>) {
    let world = eswitch.world;
    let [rdma, address, _] = names(world);
    let said = Agent::new(eswitch).another_is_refused(&rdma);
    assert!(said.contains(&format!("the eswitch of {address} is in legacy mode")), "{said}");
    assert!(said.contains(&format!("devlink dev eswitch set pci/{address} mode switchdev")), "{said}");
}
