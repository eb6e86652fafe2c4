//! Rules of flower on the lab's devices.

use std::collections::BTreeMap;
use std::process::Command;

use sluice_flow::backend::OffloadPolicy;
use sluice_flow::flow::Flow;
use sluice_flow::meter::MeterId;
use sluice_flow::port::{PortKind, PortNumber};
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::dump::{Detail, Lister, Listing};
use sluice_offload_tc::install::{Installer, Request, flags};
use sluice_offload_tc::priorities::Priorities;
use sluice_offload_tc::rule::AgentId;
use sluice_offload_tc::surroundings::{Device, DeviceKind, Features, Surroundings};
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::filter::{Filter, FilterId, FilterView};
use sluice_offload_tc::wire::statistics::Count;
use sluice_tests::lab::{Kernel, Sent, ports};
use sluice_tests::scenario::Scenario;

pub(crate) const AGENT: AgentId = AgentId(0x5eed);

/// The lab's devices, with an Open vSwitch module behind that has no flows and so keeps all that misses.
pub(crate) struct Classifier {
    kernel: Kernel,
    pub(crate) devices: LabDevices,
    pub(crate) installer: Installer,
    lister: Lister,
    priorities: Priorities,
    installed: Vec<FilterId>,
}

impl Classifier {
    pub(crate) fn open() -> Self {
        let kernel = Kernel::open();
        let modules = "cls_flower sch_ingress act_mirred act_vlan act_mpls act_pedit act_csum act_tunnel_key act_ct \
                       act_skbedit act_sample act_police act_gact";
        run("modprobe", &[&["--all"], modules.split_whitespace().collect::<Vec<_>>().as_slice()].concat());
        let devices = LabDevices::find();
        let mut installer = Installer::open(OffloadPolicy::SkipHardware).expect("a socket");
        for device in devices.0.values() {
            installer.make_hooks(device.interface).expect("hooks");
            installer.make_hooks(device.interface).expect("hooks that are there are well, too");
        }
        let lister = Lister::open().expect("a socket");
        Self { kernel, devices, installer, lister, priorities: Priorities::default(), installed: vec![] }
    }

    /// Takes all rules out, and has the module behind forget all.
    pub(crate) fn clear(&mut self) {
        let deletions: Vec<_> = self.installed.drain(..).map(Request::Delete).collect();
        for result in self.installer.submit(&deletions) {
            result.expect("a rule that was there");
        }
        self.kernel.set_up(&Scenario::new("nothing")).expect("no flows");
    }

    /// The filter of a flow, under a name that nothing else has.
    pub(crate) fn filter(&mut self, flow: &Flow, handle: u32) -> Result<Filter, Refusal> {
        let mut rule = translate::rule(flow, AGENT, &self.devices)?;
        rule.flower.flags = flags(OffloadPolicy::SkipHardware);
        let priority = self.priorities.acquire(rule.priority, rule.protocol)?;
        let id = FilterId { hook: rule.hook, chain: rule.chain, priority, protocol: rule.protocol, handle };
        Ok(Filter { id, flower: rule.flower })
    }

    /// Puts a rule in.
    pub(crate) fn add(&mut self, filter: &Filter) -> Result<(), Refusal> {
        let result = self.installer.submit(&[Request::Add(filter.clone())]).pop().expect("one for each");
        result.map(|_| self.installed.push(filter.id))
    }

    /// Lets a frame in.
    pub(crate) fn inject(&mut self, port: PortNumber, frame: &[u8], expected: usize) -> Sent {
        self.kernel.inject(port, frame, expected)
    }

    /// Shows every rule at every port.
    pub(crate) fn list(&mut self, detail: Detail, see: &mut dyn FnMut(&FilterView<'_>)) {
        for device in self.devices.0.values() {
            let listed = self.lister.list(device.hook(), None, detail, &mut |view| {
                see(view);
                Ok(())
            });
            assert_eq!(listed.expect("a listing"), Listing::Whole);
        }
    }
}

/// The devices of the lab's ports.
pub(crate) struct LabDevices(pub(crate) BTreeMap<PortNumber, Device>);

impl LabDevices {
    fn find() -> Self {
        let device = |port: sluice_flow::port::Port| {
            let index = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", port.name)).expect("a device");
            let kind = match port.kind {
                PortKind::Tunnel(tunnel) => DeviceKind::Tunnel(tunnel.protocol),
                _ => DeviceKind::Wire,
            };
            (port.number, Device { interface: index.trim().parse().expect("a number"), kind })
        };
        Self(ports().into_iter().map(device).collect())
    }
}

impl Surroundings for LabDevices {
    fn device(&self, port: PortNumber) -> Option<Device> {
        self.0.get(&port).copied()
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        self.0.iter().find(|(_, device)| device.interface == interface).map(|(port, device)| (*port, *device))
    }

    fn police(&self, _: MeterId) -> Option<u32> {
        None
    }

    fn meter(&self, _: u32) -> Option<MeterId> {
        None
    }

    /// Those of Linux 6.1.
    fn features(&self) -> Features {
        Features { number_of_tags: true, tunnel_flags: false, no_fragment: false }
    }
}

/// What a rule counted.
pub(crate) type Counts = BTreeMap<u32, Count>;

/// Runs a program that must succeed, and gives what it prints.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {words}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
