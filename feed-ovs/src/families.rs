//! The families of the Open vSwitch module, and who hears of changes to what they manage: numbers that the kernel chooses.

use sluice_netdev::netlink::attribute::{Attributes, Malformed};

/// A family with its multicast group, which is called the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) number: u16,
    pub(crate) group: u32,
}

/// The families that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Families {
    pub(crate) datapath: Family,
    pub(crate) vport: Family,
    pub(crate) flow: Family,
    /// That of meters, by which a program tells of them. The kernel tells nobody.
    pub(crate) meter: Option<u16>,
}

/// Those that were found so far.
#[derive(Default)]
pub(crate) struct Found([Option<Family>; 3]);

impl Found {
    const NAMES: [&str; 3] = ["ovs_datapath", "ovs_vport", "ovs_flow"];

    /// Reads what the controller of generic netlink says of a family (`CTRL_CMD_NEWFAMILY`), behind the header of generic netlink.
    pub(crate) fn read(&mut self, attributes: &[u8]) -> Result<(), Malformed> {
        const PLACE: &str = "family";
        let (mut name, mut number, mut groups) = (None, None, None);
        for attribute in Attributes::new(attributes, PLACE) {
            let attribute = attribute?;
            match attribute.kind {
                1 => number = Some(attribute.u16()?),
                2 => name = Some(attribute.text()?),
                7 => groups = Some(attribute),
                _ => {}
            }
        }
        let Some(index) = name.and_then(|name| Self::NAMES.iter().position(|wanted| *wanted == name)) else {
            return Ok(());
        };
        let mut group = None;
        for item in groups.iter().flat_map(|groups| groups.nested(PLACE)) {
            group = group.or(read_group(item?.payload, Self::NAMES[index])?);
        }
        self.0[index] = number.zip(group).map(|(number, group)| Family { number, group });
        Ok(())
    }

    /// Returns all of them, if all are there.
    pub(crate) fn all(self) -> Option<Families> {
        let [datapath, vport, flow] = self.0;
        Some(Families { datapath: datapath?, vport: vport?, flow: flow?, meter: None })
    }
}

/// Returns the number of a group if it has this name.
fn read_group(attributes: &[u8], wanted: &str) -> Result<Option<u32>, Malformed> {
    let (mut name, mut number) = (None, None);
    for attribute in Attributes::new(attributes, "multicast group of a family") {
        let attribute = attribute?;
        match attribute.kind {
            1 => name = Some(attribute.text()?),
            2 => number = Some(attribute.u32()?),
            _ => {}
        }
    }
    Ok(number.filter(|_| name == Some(wanted)))
}
