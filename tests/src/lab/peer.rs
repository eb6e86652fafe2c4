//! OVS on wires of its own: its flows in tc where it puts them there, and in its kernel module where it does not.

use std::collections::BTreeMap;
use std::path::Path;

use sluice_control::Client;
use sluice_flow::PortNumber;
use sluice_flow::action::{Action, ActionList};
use sluice_flow::field::Field;
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::text::{Style, write_actions, write_key};

use super::kernel::run;
use super::wire::Wires;
use super::{OffloadingVswitchd, Sent, WIRES};

/// The network namespace that it is in: it deletes datapaths that are not its own.
pub const OVS_SPACE: &str = "ovs";

/// An ovs-vswitchd with a wire for each of the lab's.
pub struct OvsPeer {
    /// Ends with this.
    _vswitchd: OffloadingVswitchd,
    control: Client,
    wires: Wires,
    numbers: Numbers,
}

/// The numbers that the lab's ports have in the peer's datapath, which gives them itself.
type Numbers = BTreeMap<PortNumber, PortNumber>;

/// The name of the peer's device for a port of the lab.
pub fn device(port: PortNumber) -> String {
    format!("ovs{port}")
}

impl OvsPeer {
    /// Starts it, beside whatever the lab has.
    pub fn start() -> Self {
        let ports = WIRES.map(PortNumber);
        let wires = Wires::new(ports.clone().map(|port| (port, device(port))));
        let devices: Vec<_> = ports.clone().map(device).collect();
        let devices: Vec<_> = devices.iter().map(String::as_str).collect();
        run("ip", &["netns", "add", OVS_SPACE]);
        for device in &devices {
            run("ip", &["link", "set", device, "netns", OVS_SPACE]);
            run("ip", &["-n", OVS_SPACE, "link", "set", device, "mtu", "9000", "multicast", "off", "up"]);
        }
        let vswitchd = OffloadingVswitchd::start_in(Some(OVS_SPACE), &devices);
        let numbers = ports.map(|port| (port, vswitchd.port(&device(port)))).collect();
        // A packet that misses installs nothing.
        vswitchd.appctl(&["upcall/set-flow-limit", "0"]).expect("a command that it knows");
        let control = Client::connect(Path::new(&vswitchd.path("vswitchd.ctl"))).expect("it listens");
        Self { _vswitchd: vswitchd, control, wires, numbers }
    }

    /// Puts flows in, in place of all others, or says which is not taken.
    pub fn set_up(&mut self, flows: &[(Match, ActionList)]) -> Result<(), String> {
        self.call("dpctl/del-flows", &[])?;
        self.call("dpctl/flush-conntrack", &[])?;
        for (matching, actions) in flows {
            let (matching, actions) = (at_number(*matching, &self.numbers), to_numbers(actions, &self.numbers));
            let (mut key, mut list) = (String::new(), String::new());
            // The module wants every header that an Ethernet type or a protocol promises, though nothing of it counts.
            let style = Style { more: true, ..Style::default() };
            let _ = write_key(&mut key, &MaskedKey::new(&matching), &style);
            let _ = write_actions(&mut list, &actions, &Style::default());
            let list = with_decimal_chains(&list);
            self.call("dpctl/add-flow", &[&key, &list]).map_err(|words| format!("{key} {list}: {words}"))?;
        }
        self.wires.collect();
        Ok(())
    }

    /// What it says of its flows, with where each is.
    pub fn dump(&mut self) -> String {
        self.control.call_text("dpctl/dump-flows", &["-m", "--names"]).unwrap_or_else(|error| error.to_string())
    }

    /// Lets a frame in, and waits for as many to come out as are expected, but not for long.
    pub fn inject(&mut self, port: PortNumber, frame: &[u8], expected: usize) -> Sent {
        self.wires.inject(port, frame, expected)
    }

    fn call(&mut self, method: &str, parameters: &[&str]) -> Result<(), String> {
        self.control.call(method, parameters, &mut |_| {}).map_err(|error| error.to_string())
    }
}

fn at_number(mut matching: Match, numbers: &Numbers) -> Match {
    let port = u32::try_from(matching.key.get(Field::InPort)).ok().map(PortNumber);
    if let Some(number) = port.and_then(|port| numbers.get(&port)) {
        matching.set_exact(Field::InPort, number.0.into());
    }
    matching
}

fn to_numbers(actions: &ActionList, numbers: &Numbers) -> ActionList {
    let inside = |list| to_numbers(list, numbers);
    let renumbered = actions.iter().map(|action| match action {
        Action::Output(port) => Action::Output(numbers.get(port).copied().unwrap_or(*port)),
        Action::Clone(list) => Action::Clone(inside(list)),
        Action::DecTtl(list) => Action::DecTtl(inside(list)),
        Action::Sample { probability, actions } => {
            Action::Sample { probability: *probability, actions: inside(actions) }
        }
        Action::CheckPacketLength { length, greater, less_or_equal } => Action::CheckPacketLength {
            length: *length,
            greater: inside(greater),
            less_or_equal: inside(less_or_equal),
        },
        other => other.clone(),
    });
    renumbered.collect()
}

/// OVS prints the chain of a `recirc` in hexadecimal, as we do, but reads it in decimal.
fn with_decimal_chains(list: &str) -> String {
    let mut parts = list.split("recirc(0x");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (chain, rest) = part.split_once(')').expect("a chain and its end");
        let chain = u32::from_str_radix(chain, 16).expect("a chain's number");
        text += &format!("recirc({chain}){rest}");
    }
    text
}
