//! The options of the flower classifier.

use sluice_netdev::netlink::attribute::{Attributes, Malformed, Writer};

use super::action::{Action, emit_list, parse_list};
use super::key::{Key, KeyMatch};
use super::labels::{self, LabelMatch};
use super::options::Options;

const RECEIVED_BY: u16 = 2;
const ACTIONS: u16 = 3;
const FLAGS: u16 = 22;
const OPTIONS: u16 = 84;
const OPTIONS_MASK: u16 = 85;
const HARDWARE_COUNT: u16 = 86;
const LABELS: u16 = 99;
const CFM: u16 = 107;
const CFM_LEVEL: u16 = 1;
const CFM_OPCODE: u16 = 2;
/// The keys of a rule.
const USUAL: usize = 16;

/// Bits of [`Flower::flags`] (`TCA_CLS_FLAGS_*`).
pub mod flag {
    /// Not for hardware.
    pub const SKIP_HW: u32 = 1;
    /// For hardware only.
    pub const SKIP_SW: u32 = 2;
    /// Answer: hardware has the rule.
    pub const IN_HW: u32 = 4;
    /// Answer: hardware does not have the rule.
    pub const NOT_IN_HW: u32 = 8;
    /// The driver's message is wanted even if software takes the rule.
    pub const VERBOSE: u32 = 16;
}

/// Match and actions of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flower {
    /// The name of the device by which the packet is being received (`indev`); with a LAG that is a member, and then the LAG itself.
    pub received_by: Option<Box<str>>,
    /// Keys that are numbers, in the order of the table.
    pub keys: Vec<KeyMatch>,
    /// Options of the tunnel header.
    pub options: Option<OptionsMatch>,
    /// Entries of the label stack, if others than the first are matched, or only that there is one.
    pub labels: Vec<LabelMatch>,
    /// Connectivity fault management.
    pub cfm: Option<CfmMatch>,
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Answer: the number of devices that have it.
    pub hardware_count: Option<u32>,
}

/// Options of a tunnel header, value and mask, of the same kind and lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsMatch {
    /// The values.
    pub value: Options,
    /// The bits that are compared.
    pub mask: Options,
}

/// A match on a CFM frame (IEEE 802.1ag); Linux 6.4 and later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CfmMatch {
    /// Maintenance domain level.
    pub level: Option<u8>,
    /// Opcode.
    pub opcode: Option<u8>,
}

impl Flower {
    /// Value and mask of a key; `None` if it is not matched.
    pub fn get(&self, key: Key) -> Option<(u128, u128)> {
        self.keys.iter().find(|found| found.key == key).map(|found| (found.value, found.mask))
    }

    /// Writes the options.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        if let Some(name) = &self.received_by {
            writer.put_text(RECEIVED_BY, name);
        }
        self.keys.iter().for_each(|key| key.emit(writer));
        if let Some(OptionsMatch { value, mask }) = &self.options {
            value.emit(OPTIONS, writer);
            mask.emit(OPTIONS_MASK, writer);
        }
        if !self.labels.is_empty() {
            labels::emit(LABELS, &self.labels, writer);
        }
        if let Some(cfm) = self.cfm {
            writer.nest(CFM, |writer| {
                if let Some(level) = cfm.level {
                    writer.put(CFM_LEVEL, &[level]);
                }
                if let Some(opcode) = cfm.opcode {
                    writer.put(CFM_OPCODE, &[opcode]);
                }
            });
        }
        if self.flags != 0 {
            writer.put(FLAGS, &self.flags.to_ne_bytes());
        }
        writer.nest(ACTIONS, |writer| emit_list(&self.actions, writer));
    }

    /// Reads the options. An unknown attribute is an error, because the rule may match less than it seems to.
    pub fn parse(attributes: Attributes<'_>) -> Result<Self, Malformed> {
        // Most rules have at most this many keys.
        let mut found = Self { keys: Vec::with_capacity(USUAL), ..Self::default() };
        let mut masks = Vec::with_capacity(USUAL);
        let (mut options, mut options_mask) = (None, None);
        for attribute in attributes {
            let attribute = attribute?;
            match (Key::of_attribute(attribute.kind), attribute.kind) {
                (Some((key, false)), _) => found.keys.push(KeyMatch::exact(key, key.read(&attribute)?)),
                (Some((key, true)), _) => masks.push((key, key.read(&attribute)?)),
                (None, RECEIVED_BY) => found.received_by = Some(attribute.text()?.into()),
                (None, ACTIONS) => found.actions = parse_list(attribute.nested("actions"))?,
                (None, FLAGS) => found.flags = attribute.u32()?,
                (None, OPTIONS) => options = Some(Options::parse(&attribute)?),
                (None, OPTIONS_MASK) => options_mask = Some(Options::parse(&attribute)?),
                (None, HARDWARE_COUNT) => found.hardware_count = Some(attribute.u32()?),
                (None, LABELS) => found.labels = labels::parse(&attribute)?,
                (None, CFM) => found.cfm = Some(CfmMatch::parse(attribute.nested("CFM"))?),
                (None, _) => return Err(attribute.unknown()),
            }
        }
        found.options = match (options, options_mask) {
            (None, None) => None,
            (Some(value), Some(mask)) => Some(OptionsMatch { value, mask }),
            (Some(_), None) => return Err(Malformed::Missing { place: "flower", kind: OPTIONS_MASK }),
            (None, Some(_)) => return Err(Malformed::Missing { place: "flower", kind: OPTIONS }),
        };
        for (key, mask) in masks {
            match found.keys.iter_mut().find(|value| value.key == key) {
                Some(value) => value.mask = mask,
                None => return Err(Malformed::Missing { place: "flower", kind: key.spec().value }),
            }
        }
        found.keys.retain_mut(|key| {
            key.value &= key.mask;
            key.mask != 0
        });
        found.keys.sort_unstable_by_key(|key| key.key);
        Ok(found)
    }
}

impl CfmMatch {
    fn parse(nest: Attributes<'_>) -> Result<Self, Malformed> {
        let mut found = Self::default();
        for attribute in nest {
            let attribute = attribute?;
            match attribute.kind {
                CFM_LEVEL => found.level = Some(attribute.u8()?),
                CFM_OPCODE => found.opcode = Some(attribute.u8()?),
                _ => return Err(attribute.unknown()),
            }
        }
        Ok(found)
    }
}
