//! Rules of flower on the lab's devices.

use std::collections::BTreeMap;
use std::process::Command;

use sluice_flow::flow::Flow;
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::port::{PortKind, PortNumber};
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::context::{Context, Device, DeviceKind, Features, TunnelFlags};
use sluice_offload_tc::dump::{Detail, Lister, Listing};
use sluice_offload_tc::install::{Installer, Request, flags};
use sluice_offload_tc::marks::AgentId;
use sluice_offload_tc::meters::Meters;
use sluice_offload_tc::priorities::Priorities;
use sluice_offload_tc::probe;
use sluice_offload_tc::rule::Rule;
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::filter::{Filter, FilterId, FilterView};
use sluice_offload_tc::wire::flower::Flower;
use sluice_offload_tc::wire::statistics::Count;
use sluice_tests::lab::{Kernel, Sent, ports};
use sluice_tests::scenario::Scenario;

use crate::iproute::Tc;

/// "File exists": a rule that matches the same is there.
pub(crate) const EXISTS: i32 = 17;

pub(crate) const AGENT: AgentId = AgentId(0x5eed);

/// The lab's devices, with an Open vSwitch module behind that has no flows and so keeps all that misses.
pub(crate) struct Classifier {
    kernel: Kernel,
    pub(crate) devices: LabDevices,
    pub(crate) installer: Installer,
    lister: Lister,
    pub(crate) tc: Tc,
    priorities: Priorities,
    installed: Vec<FilterId>,
    metered: Vec<MeterId>,
}

impl Classifier {
    pub(crate) fn open() -> Self {
        let kernel = Kernel::open();
        let modules = "cls_flower sch_ingress act_mirred act_vlan act_mpls act_pedit act_csum act_tunnel_key act_ct \
                       act_skbedit act_sample act_police act_gact";
        run("modprobe", &[&["--all"], modules.split_whitespace().collect::<Vec<_>>().as_slice()].concat());
        let mut devices = LabDevices::find();
        let mut installer = Installer::open(OffloadPolicy::SkipHardware).expect("a socket");
        for device in devices.devices() {
            installer.make_hooks(device.interface).expect("hooks");
            installer.make_hooks(device.interface).expect("hooks that are there are well, too");
        }
        let hook = devices.ports[&PortNumber(1)].hook();
        devices.features = probe::features(&mut installer, hook).expect("a kernel that says what it can");
        let lister = Lister::open().expect("a socket");
        Self {
            kernel,
            devices,
            installer,
            lister,
            tc: Tc::default(),
            priorities: Priorities::default(),
            installed: vec![],
            metered: vec![],
        }
    }

    /// Takes all rules out, and has the module behind forget all.
    pub(crate) fn clear(&mut self) {
        let deletions: Vec<_> = self.installed.drain(..).map(Request::Delete).collect();
        for result in self.installer.submit(&deletions) {
            result.expect("a rule that was there");
        }
        for meter in std::mem::take(&mut self.metered) {
            self.devices.meters.remove(meter).expect("a meter that no rule uses");
        }
        self.kernel.set_up(&Scenario::new("nothing")).expect("no flows");
    }

    /// Makes meters, until all is cleared.
    pub(crate) fn set_meters(&mut self, meters: &[Meter]) {
        for meter in meters {
            self.devices.meters.set(meter).expect("a meter that tc can have");
            self.metered.push(meter.id);
        }
    }

    /// The filter of a flow, under a name that nothing else has.
    pub(crate) fn filter(&mut self, flow: &Flow, handle: u32) -> Result<Filter, Refusal> {
        let rule = translate::rule(flow, AGENT, &self.devices)?;
        let priority = self.priorities.acquire(rule.priority, rule.protocol)?;
        Ok(named(rule, priority, handle))
    }

    /// The filters of a flow that may be two, the one in front first.
    pub(crate) fn filters(&mut self, flow: &Flow, handle: u32) -> Result<Vec<Filter>, Refusal> {
        let translate::Rules { rule, guard } = translate::rules(flow, AGENT, &self.devices)?;
        let mut filters = vec![];
        if let Some(guard) = guard {
            let priority = Priorities::acquire_in_front(guard.priority, guard.protocol)?;
            filters.push(named(guard, priority, handle));
        }
        let priority = self.priorities.acquire(rule.priority, rule.protocol)?;
        filters.push(named(rule, priority, handle));
        Ok(filters)
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
            let listed = self.lister.list(device.hook(), detail, &mut |view| {
                see(view);
                Ok(())
            });
            assert_eq!(listed.expect("a listing"), Listing::Whole);
        }
    }
}

/// A rule under a name.
pub(crate) fn named(rule: Rule, priority: u16, handle: u32) -> Filter {
    let id = FilterId { hook: rule.hook, chain: rule.chain, priority, protocol: rule.protocol, handle };
    Filter { id, flower: Flower { flags: flags(OffloadPolicy::SkipHardware), ..rule.flower } }
}

/// The devices of the lab's ports.
pub(crate) struct LabDevices {
    pub(crate) ports: BTreeMap<PortNumber, Device>,
    /// What the kernel can match, once it was found out.
    pub(crate) features: Features,
    pub(crate) meters: Meters,
    pub(crate) tunnel_flags: TunnelFlags,
}

impl LabDevices {
    pub(crate) fn find() -> Self {
        let device = |port: sluice_flow::port::Port| {
            let index = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", port.name)).expect("a device");
            let kind = match port.kind {
                PortKind::Tunnel(tunnel) => DeviceKind::Tunnel { udp_port: tunnel.udp_port },
                _ => DeviceKind::Wire,
            };
            (port.number, Device { interface: index.trim().parse().expect("a number"), kind })
        };
        let meters = Meters::open(AGENT, OffloadPolicy::SkipHardware).expect("a socket");
        let (ports, features) = (ports().into_iter().map(device).collect(), Features::default());
        Self { ports, features, meters, tunnel_flags: TunnelFlags::Exact }
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = &Device> {
        self.ports.values()
    }

    /// The name of a device.
    pub(crate) fn name(&self, interface: u32) -> String {
        self.port(interface).map_or_else(|| format!("if{interface}"), |(port, _)| format!("lab{port}"))
    }
}

impl Context for LabDevices {
    fn device(&self, port: PortNumber) -> Option<Device> {
        self.ports.get(&port).copied()
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        self.ports.iter().find(|(_, device)| device.interface == interface).map(|(port, device)| (*port, *device))
    }

    fn police(&self, meter: MeterId) -> Option<u32> {
        self.meters.index_of(meter)
    }

    fn meter(&self, police: u32) -> Option<MeterId> {
        self.meters.meter_of(police)
    }

    fn features(&self) -> Features {
        self.features
    }

    fn tunnel_flags(&self) -> TunnelFlags {
        self.tunnel_flags
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
