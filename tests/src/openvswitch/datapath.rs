//! A datapath of the module: ports, meters and flows.

use rustix::net::netlink;
use sluice_flow::action::Action;
use sluice_flow::key::Match;
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::port::PortNumber;

use super::attributes::Attributes;
use super::generic::{Failure, Generic};
use super::{Unsayable, encode_actions, encode_match};

const NEW: u8 = 1;
const DELETE: u8 = 2;
const SET: u8 = 4;
/// `OVS_METER_CMD_SET` and `OVS_METER_CMD_DEL`: this family counts otherwise.
const METER_SET: u8 = 2;
const METER_DELETE: u8 = 3;

const DP_NAME: u16 = 1;
const DP_UPCALL_PID: u16 = 2;
const DP_USER_FEATURES: u16 = 5;
const VPORT_PORT_NO: u16 = 1;
const VPORT_TYPE: u16 = 2;
const VPORT_NAME: u16 = 3;
const VPORT_UPCALL_PID: u16 = 5;
const VPORT_TYPE_NETDEV: u32 = 1;
const FLOW_KEY: u16 = 1;
const FLOW_ACTIONS: u16 = 2;
const FLOW_MASK: u16 = 7;
const FLOW_UFID: u16 = 9;
const METER_ID: u16 = 1;
const METER_KBPS: u16 = 2;
const METER_BANDS: u16 = 4;
const BAND_TYPE: u16 = 1;
const BAND_RATE: u16 = 2;
const BAND_BURST: u16 = 3;
const BAND_TYPE_DROP: u32 = 1;

/// Why a flow is not in the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotInstalled {
    /// It has no form of the module's.
    Unsayable(Unsayable),
    /// The module did not want it.
    Refused(Failure),
}

impl std::fmt::Display for NotInstalled {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsayable(what) => write!(out, "cannot be said: {what}"),
            Self::Refused(failure) => failure.fmt(out),
        }
    }
}

/// A datapath without anybody who hears of misses: they are dropped.
pub struct Datapath {
    generic: Generic,
    families: Families,
    /// `struct ovs_header`: the interface index of the local port, by which the datapath is known.
    header: [u8; 4],
}

/// Asks the datapath with this index for these features, and for no others.
pub fn set_features(index: u32, features: u32) {
    let mut generic = Generic::open();
    let family = generic.family("ovs_datapath").expect("the module is there");
    let mut attributes = Attributes::default();
    attributes.put_u32(DP_USER_FEATURES, features);
    generic
        .ask(family, SET, 2, &[&index.to_ne_bytes(), attributes.bytes()].concat())
        .unwrap_or_else(|failure| panic!("features {features:#x}: {failure}"));
}

/// The numbers of the module's netlink families.
struct Families {
    vport: u16,
    flow: u16,
    meter: u16,
}

impl Datapath {
    /// Makes a datapath. The module must be loaded.
    pub fn create(name: &str) -> Self {
        let mut generic = Generic::open();
        let [datapath, vport, flow, meter] = ["ovs_datapath", "ovs_vport", "ovs_flow", "ovs_meter"]
            .map(|name| generic.family(name).unwrap_or_else(|| panic!("the kernel has no {name}")));
        let mut attributes = Attributes::default();
        attributes.put_text(DP_NAME, name).put_u32(DP_UPCALL_PID, 0).put_u32(DP_USER_FEATURES, 0);
        generic
            .ask(datapath, NEW, 2, &[&[0; 4], attributes.bytes()].concat())
            .unwrap_or_else(|failure| panic!("no datapath: {failure}"));
        let index = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).expect("its local port is there");
        let header = index.trim().parse::<u32>().expect("a number").to_ne_bytes();
        Self { generic, families: Families { vport, flow, meter }, header }
    }

    /// Makes a network device a port.
    pub fn add_port(&mut self, number: PortNumber, device: &str) {
        let mut attributes = Attributes::default();
        attributes
            .put_u32(VPORT_PORT_NO, number.0)
            .put_u32(VPORT_TYPE, VPORT_TYPE_NETDEV)
            .put_text(VPORT_NAME, device)
            .put_u32(VPORT_UPCALL_PID, 0);
        let family = self.families.vport;
        self.ask(family, NEW, &attributes).unwrap_or_else(|failure| panic!("port {device}: {failure}"));
    }

    /// Puts a flow in.
    pub fn add_flow(&mut self, ufid: u128, full: &Match, actions: &[Action]) -> Result<(), NotInstalled> {
        let (key, mask) = encode_match(full).map_err(NotInstalled::Unsayable)?;
        let actions = encode_actions(actions).map_err(NotInstalled::Unsayable)?;
        // Four words in host order, highest first, as Open vSwitch prints them.
        let words: Vec<u8> = ufid.to_be_bytes().chunks(4).flat_map(|word| word.iter().rev().copied()).collect();
        let mut attributes = Attributes::default();
        attributes.put(FLOW_UFID, &words).put(FLOW_KEY, &key).put(FLOW_MASK, &mask).put(FLOW_ACTIONS, &actions);
        self.ask(self.families.flow, NEW, &attributes).map_err(NotInstalled::Refused)?;
        Ok(())
    }

    /// Takes all flows out.
    pub fn flush(&mut self) {
        self.ask(self.families.flow, DELETE, &Attributes::default())
            .unwrap_or_else(|failure| panic!("flows stay: {failure}"));
    }

    /// Makes a meter.
    pub fn set_meter(&mut self, meter: &Meter) {
        let short = |value| u32::try_from(value).expect("the module's rates have 32 bits");
        let mut bands = Attributes::default();
        for (index, MeterBand { rate, burst }) in (0..).zip(&meter.bands) {
            let mut band = Attributes::default();
            band.put_u32(BAND_TYPE, BAND_TYPE_DROP).put_u32(BAND_RATE, short(*rate)).put_u32(BAND_BURST, short(*burst));
            bands.nest(index, &band);
        }
        let mut attributes = Attributes::default();
        attributes.put_u32(METER_ID, meter.id.0);
        if meter.unit == MeterUnit::Kilobits {
            attributes.put_flag(METER_KBPS);
        }
        attributes.nest(METER_BANDS, &bands);
        self.ask(self.families.meter, METER_SET, &attributes)
            .unwrap_or_else(|failure| panic!("meter {}: {failure}", meter.id));
    }

    /// Takes a meter out.
    pub fn remove_meter(&mut self, meter: MeterId) {
        let mut attributes = Attributes::default();
        attributes.put_u32(METER_ID, meter.0);
        self.ask(self.families.meter, METER_DELETE, &attributes)
            .unwrap_or_else(|failure| panic!("meter {meter} stays: {failure}"));
    }

    fn ask(&mut self, family: u16, command: u8, attributes: &Attributes) -> Result<Vec<Vec<u8>>, Failure> {
        self.generic.ask(family, command, 1, &[&self.header, attributes.bytes()].concat())
    }
}

/// Empties the kernel's table of connections (`IPCTNL_MSG_CT_DELETE` without a filter).
pub fn forget_connections() {
    const NFNL_SUBSYS_CTNETLINK: u16 = 1;
    const IPCTNL_MSG_CT_DELETE: u16 = 2;
    let mut netfilter = Generic::to(netlink::NETFILTER);
    netfilter
        .request(NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE, &[0; 4])
        .unwrap_or_else(|failure| panic!("connections stay: {failure}"));
}
