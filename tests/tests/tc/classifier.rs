//! Rules of flower on the lab's devices.

use std::collections::BTreeMap;
use std::process::Command;

use sluice_flow::flow::Flow;
use sluice_flow::meter::MeterId;
use sluice_flow::port::{PortKind, PortNumber};
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::dump::{Detail, Lister, Listing};
use sluice_offload_tc::install::{Installer, Policy, Request};
use sluice_offload_tc::priorities::Priorities;
use sluice_offload_tc::probe;
use sluice_offload_tc::rule::AgentId;
use sluice_offload_tc::surroundings::{Device, DeviceKind, Features, Surroundings};
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::filter::{Filter, FilterId, FilterView};
use sluice_offload_tc::wire::statistics::Count;
use sluice_tests::lab::{Kernel, Sent, ports};
use sluice_tests::scenario::Scenario;

/// "File exists": a rule that matches the same is there.
pub(crate) const EXISTS: i32 = 17;

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
        let mut devices = LabDevices::find();
        let mut installer = Installer::open(Policy::SkipHardware).expect("a socket");
        for device in devices.devices() {
            installer.make_hooks(device.interface).expect("hooks");
            installer.make_hooks(device.interface).expect("hooks that are there are well, too");
        }
        let hook = devices.ports[&PortNumber(1)].hook();
        devices.features = probe::features(&mut installer, hook).expect("a kernel that says what it can");
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
        rule.flower.flags = Policy::SkipHardware.flags();
        let priority = self.priorities.acquire(rule.priority, rule.protocol)?;
        let id = FilterId { hook: rule.hook, chain: rule.chain, priority, protocol: rule.protocol, handle };
        Ok(Filter { id, flower: rule.flower })
    }

    /// Puts a rule in.
    pub(crate) fn add(&mut self, filter: &Filter) -> Result<(), Refusal> {
        self.add_all(std::slice::from_ref(filter)).pop().expect("one for each")
    }

    /// Puts rules in, and says what became of each.
    pub(crate) fn add_all(&mut self, filters: &[Filter]) -> Vec<Result<(), Refusal>> {
        let requests: Vec<_> = filters.iter().cloned().map(Request::Add).collect();
        let results = self.installer.submit(&requests);
        let installed = filters.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(filter, _)| filter.id);
        self.installed.extend(installed);
        results.into_iter().map(|result| result.map(drop)).collect()
    }

    /// How many rules are in.
    pub(crate) fn installed(&self) -> usize {
        self.installed.len()
    }

    /// Lets a frame in.
    pub(crate) fn inject(&mut self, port: PortNumber, frame: &[u8], expected: usize) -> Sent {
        self.kernel.inject(port, frame, expected)
    }

    /// Shows every rule at every port.
    pub(crate) fn list(&mut self, detail: Detail, see: &mut dyn FnMut(&FilterView<'_>)) {
        for device in self.devices.devices() {
            let listed = self.lister.list(device.hook(), None, detail, &mut |view| {
                see(view);
                Ok(())
            });
            assert_eq!(listed.expect("a listing"), Listing::Whole);
        }
    }
}

/// The devices of the lab's ports.
pub(crate) struct LabDevices {
    pub(crate) ports: BTreeMap<PortNumber, Device>,
    /// What the kernel can match, once it was found out.
    pub(crate) features: Features,
}

impl LabDevices {
    pub(crate) fn find() -> Self {
        let device = |port: sluice_flow::port::Port| {
            let index = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", port.name)).expect("a device");
            let kind = match port.kind {
                PortKind::Tunnel(tunnel) => DeviceKind::Tunnel(tunnel.protocol),
                _ => DeviceKind::Wire,
            };
            (port.number, Device { interface: index.trim().parse().expect("a number"), kind })
        };
        Self { ports: ports().into_iter().map(device).collect(), features: Features::default() }
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = &Device> {
        self.ports.values()
    }

    /// The name of a device.
    pub(crate) fn name(&self, interface: u32) -> String {
        self.port(interface).map_or_else(|| format!("if{interface}"), |(port, _)| format!("lab{port}"))
    }
}

impl Surroundings for LabDevices {
    fn device(&self, port: PortNumber) -> Option<Device> {
        self.ports.get(&port).copied()
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        self.ports.iter().find(|(_, device)| device.interface == interface).map(|(port, device)| (*port, *device))
    }

    fn police(&self, _: MeterId) -> Option<u32> {
        None
    }

    fn meter(&self, _: u32) -> Option<MeterId> {
        None
    }

    fn features(&self) -> Features {
        self.features
    }
}

/// What a rule counted.
pub(crate) type Counts = BTreeMap<u32, Count>;

/// Runs a program that must succeed, and gives what it prints.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    try_to_run(program, arguments).unwrap_or_else(|words| panic!("{words}"))
}

/// Runs a program, and gives what it prints, or what it complains of.
pub(crate) fn try_to_run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{program} {}: {}: {}", arguments.join(" "), output.status, words.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
