//! OVS on wires of its own: its flows in tc where it puts them there, and in its kernel module where it does not.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_agent::unixctl::Client;
use sluice_flow::PortNumber;
use sluice_flow::action::ActionList;
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::port::PortNames;
use sluice_flow::text::{Style, write_actions, write_key};

use super::kernel::run;
use super::wire::{LONGEST, Wire};
use super::{OffloadingVswitchd, Sent, WIRES};

/// How long a frame may take that is expected.
const PATIENCE: Duration = Duration::from_millis(200);

/// The network namespace that it is in: it deletes datapaths that are not its own.
pub const OVS_SPACE: &str = "ovs";

/// An ovs-vswitchd with a wire for each of the lab's.
pub struct OvsPeer {
    /// Ends with this.
    _vswitchd: OffloadingVswitchd,
    control: Client,
    wires: BTreeMap<PortNumber, Wire>,
    numbers: Numbers,
    buffer: Vec<u8>,
}

/// The numbers that the lab's ports have in the peer's datapath, as text. OVS 3.1 takes names in keys only.
struct Numbers(BTreeMap<PortNumber, String>);

impl PortNames for Numbers {
    fn number(&self, name: &str) -> Option<PortNumber> {
        self.0.iter().find(|(_, named)| *named == name).map(|(number, _)| *number)
    }

    fn name(&self, number: PortNumber) -> Option<&str> {
        self.0.get(&number).map(String::as_str)
    }
}

/// The name of the peer's device for a port of the lab.
pub fn device(port: PortNumber) -> String {
    format!("ovs{port}")
}

impl OvsPeer {
    /// Starts it, beside whatever the lab has.
    pub fn start() -> Self {
        let wires: BTreeMap<_, _> = WIRES.map(PortNumber).map(|port| (port, Wire::new(&device(port)))).collect();
        let devices: Vec<_> = wires.keys().map(|port| device(*port)).collect();
        let devices: Vec<_> = devices.iter().map(String::as_str).collect();
        run("ip", &["netns", "add", OVS_SPACE]);
        for device in &devices {
            run("ip", &["link", "set", device, "netns", OVS_SPACE]);
            run("ip", &["-n", OVS_SPACE, "link", "set", device, "mtu", "9000", "multicast", "off", "up"]);
        }
        let vswitchd = OffloadingVswitchd::start_in(Some(OVS_SPACE), &devices);
        let number = |port: &PortNumber| (*port, vswitchd.port(&device(*port)).to_string());
        let numbers = Numbers(wires.keys().map(number).collect());
        // A packet that misses installs nothing.
        vswitchd.appctl(&["upcall/set-flow-limit", "0"]).expect("a command that it knows");
        let control = Client::connect(Path::new(&vswitchd.path("vswitchd.ctl"))).expect("it listens");
        Self { _vswitchd: vswitchd, control, wires, numbers, buffer: vec![0; LONGEST] }
    }

    /// Puts flows in, in place of all others, or says which is not taken.
    pub fn set_up(&mut self, flows: &[(Match, ActionList)]) -> Result<(), String> {
        self.call("dpctl/del-flows", &[])?;
        self.call("dpctl/flush-conntrack", &[])?;
        for (matching, actions) in flows {
            let style = Style { names: Some(&self.numbers), ..Style::default() };
            let (mut key, mut list) = (String::new(), String::new());
            let _ = write_key(&mut key, &MaskedKey::new(matching), &style);
            let _ = write_actions(&mut list, actions, &style);
            self.call("dpctl/add-flow", &[&key, &list]).map_err(|words| format!("{key} {list}: {words}"))?;
        }
        self.collect();
        Ok(())
    }

    /// What it says of its flows, with where each is.
    pub fn dump(&mut self) -> String {
        self.control.call_text("dpctl/dump-flows", &["-m", "--names"]).unwrap_or_else(|error| error.to_string())
    }

    /// Lets a frame in, and waits for as many to come out as are expected, but not for long.
    pub fn inject(&mut self, port: PortNumber, frame: &[u8], expected: usize) -> Sent {
        self.wires[&port].send(frame);
        let mut sent = self.collect();
        let start = Instant::now();
        while sent.values().map(Vec::len).sum::<usize>() < expected && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(500));
            for (port, frames) in self.collect() {
                sent.entry(port).or_default().extend(frames);
            }
        }
        sent
    }

    fn call(&mut self, method: &str, parameters: &[&str]) -> Result<(), String> {
        self.control.call(method, parameters, &mut |_| {}).map_err(|error| error.to_string())
    }

    fn collect(&mut self) -> Sent {
        let mut sent = Sent::new();
        for (port, wire) in &self.wires {
            while let Some(frame) = wire.receive(&mut self.buffer) {
                sent.entry(*port).or_default().push(frame);
            }
        }
        sent
    }
}
