//! Actions (`enum` of `TCA_ACT_*` and `TCA_OPTIONS` in `include/uapi/linux/pkt_cls.h`).

mod common;
mod conntrack;
mod control;
mod edit;
mod header;
mod police;
mod tunnel;

use sluice_netdev::netlink::attribute::{Attribute, Attributes, Fields, Malformed, Writer};

use self::common::{Common, without_parameters};
use super::statistics::Statistics;

pub use conntrack::{Conntrack, Family, Helper, Translation, bit as conntrack_bit};
pub use control::Control;
pub use edit::{Command, EditKey, Header};
pub use header::{Entry, Mpls, Vlan, checksum};
pub use police::Police;
pub use tunnel::Encapsulation;

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const INDEX: u16 = 3;
const STATISTICS: u16 = 4;
const PADDING: u16 = 5;
const COOKIE: u16 = 6;
const FLAGS: u16 = 7;
const HW_STATS: u16 = 8;
const USED_HW_STATS: u16 = 9;
const HARDWARE_COUNT: u16 = 10;
/// `TCA_ACT_FLAGS_NO_PERCPU_STATS`
const NO_PERCPU_STATISTICS: u32 = 1;

/// Flags of an action that stands by itself (`TCA_ACT_FLAGS_*`). A rule can share it only if it has the same flags.
pub mod flag {
    /// Not for hardware.
    pub const SKIP_HW: u32 = 1 << 1;
    /// For hardware only.
    pub const SKIP_SW: u32 = 1 << 2;
}

/// At most this many actions in a rule (`TCA_ACT_MAX_PRIO`).
pub const MAX_ACTIONS: usize = 32;

/// One action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What it does.
    pub operation: Operation,
    /// What comes next.
    pub control: Control,
    /// The index of an action that several rules share; 0 for an action of this rule. The kernel shows an index for every
    /// action.
    pub index: u32,
    /// The note on it, which the kernel keeps.
    pub cookie: Option<Cookie>,
    /// Whether it has one set of counters instead of one per processor, which makes it smaller and faster to add.
    pub is_counted_once: bool,
    /// How hardware may count it (`TCA_ACT_HW_STATS_*`); `None` for any way.
    pub hardware_counters: Option<u8>,
    /// Answer: its counters.
    pub statistics: Option<Statistics>,
}

/// A note on an action (`TCA_ACT_COOKIE`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cookie {
    bytes: [u8; Self::LIMIT],
    length: u8,
}

/// What an action does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Updates checksums (`act_csum`): bits of [`checksum`].
    Checksum(u32),
    /// Tracks the connection (`act_ct`).
    Conntrack(Box<Conntrack>),
    /// Edits headers (`act_pedit`).
    Edit(Vec<EditKey>),
    /// Does nothing but what [`Action::control`] says (`act_gact`).
    Generic,
    /// Sends the packet, or a copy, to a device (`act_mirred`).
    Mirred {
        /// Redirect or mirror, to egress or ingress.
        to: Mirred,
        /// The index of the device.
        interface: u32,
    },
    /// Changes label stack entries (`act_mpls`).
    Mpls(Mpls),
    /// Checks the rate or the length of packets (`act_police`).
    Police(Box<Police>),
    /// Samples packets to a sampling group (`act_sample`).
    Sample {
        /// One in this many packets.
        rate: u32,
        /// The group.
        group: u32,
        /// At most this many bytes of each packet.
        truncate: Option<u32>,
    },
    /// Sets metadata of the packet (`act_skbedit`).
    SkbEdit(SkbEdit),
    /// Releases the outer header (`act_tunnel_key`).
    TunnelRelease,
    /// Sets the outer header (`act_tunnel_key`).
    TunnelSet(Box<Encapsulation>),
    /// Changes VLAN tags and Ethernet headers (`act_vlan`).
    Vlan(Vlan),
}

/// Where a packet goes at a device (`TCA_EGRESS_REDIR` and the like).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirred {
    /// The packet is sent.
    EgressRedirect = 1,
    /// A copy is sent.
    EgressMirror = 2,
    /// The packet is received.
    IngressRedirect = 3,
    /// A copy is received.
    IngressMirror = 4,
}

/// Arguments of `act_skbedit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkbEdit {
    /// The priority.
    pub priority: Option<u32>,
    /// Value and mask of the mark.
    pub mark: Option<(u32, u32)>,
    /// The packet type (`PACKET_HOST` is 0).
    pub packet_type: Option<u16>,
}

impl Action {
    /// An action of one rule.
    pub const fn new(operation: Operation, control: Control) -> Self {
        Self {
            operation,
            control,
            index: 0,
            cookie: None,
            is_counted_once: true,
            hardware_counters: None,
            statistics: None,
        }
    }

    /// Writes it. `flags` are bits of [`flag`] for an action that stands by itself; in a rule those of the rule count.
    pub(super) fn emit(&self, place: u16, flags: u32, writer: &mut Writer<'_>) {
        writer.nest(place, |writer| {
            writer.put_text(KIND, self.operation.name());
            if let Some(cookie) = &self.cookie {
                writer.put(COOKIE, cookie.bytes());
            }
            let flags = flags | if self.is_counted_once { NO_PERCPU_STATISTICS } else { 0 };
            if flags != 0 {
                put_bits(FLAGS, flags, writer);
            }
            if let Some(ways) = self.hardware_counters {
                put_bits(HW_STATS, ways.into(), writer);
            }
            writer.nest(OPTIONS, |writer| self.emit_options(writer));
        });
    }

    fn emit_options(&self, writer: &mut Writer<'_>) {
        let common = Common { index: self.index, control: self.control };
        match &self.operation {
            Operation::Checksum(what) => {
                common.put(1, writer, |writer| writer.raw(&what.to_ne_bytes()));
            }
            Operation::Conntrack(action) => action.emit(common, writer),
            Operation::Edit(keys) => edit::emit(keys, common, writer),
            Operation::Generic => common.put(2, writer, |_| ()),
            Operation::Mirred { to, interface } => common.put(2, writer, |writer| {
                writer.raw(&(*to as i32).to_ne_bytes());
                writer.raw(&interface.to_ne_bytes());
            }),
            Operation::Mpls(action) => action.emit(common, writer),
            Operation::Police(action) => action.emit(common, writer),
            Operation::Sample { rate, group, truncate } => {
                common.put(2, writer, |_| ());
                writer.put(3, &rate.to_ne_bytes());
                if let Some(bytes) = truncate {
                    writer.put(4, &bytes.to_ne_bytes());
                }
                writer.put(5, &group.to_ne_bytes());
            }
            Operation::SkbEdit(action) => action.emit(common, writer),
            Operation::TunnelRelease => tunnel::emit(None, common, writer),
            Operation::TunnelSet(header) => tunnel::emit(Some(header), common, writer),
            Operation::Vlan(action) => action.emit(common, writer),
        }
    }

    /// Reads the nest of an action.
    pub(super) fn parse(nest: &Attribute<'_>) -> Result<Self, Malformed> {
        const PLACE: &str = "action";
        let (mut kind, mut options) = (None, None);
        let mut found = Self { is_counted_once: false, ..Self::new(Operation::Generic, Control::Ok) };
        for attribute in nest.nested(PLACE) {
            let attribute = attribute?;
            match attribute.kind {
                KIND => kind = Some(attribute),
                OPTIONS => options = Some(attribute),
                INDEX => found.index = attribute.u32()?,
                STATISTICS => found.statistics = Some(Statistics::parse(attribute.nested("statistics"))?),
                COOKIE => found.cookie = Some(Cookie::new(attribute.payload).ok_or_else(|| attribute.length())?),
                FLAGS => found.is_counted_once = bits(&attribute)? & NO_PERCPU_STATISTICS != 0,
                HW_STATS => {
                    let ways = u8::try_from(bits(&attribute)?);
                    found.hardware_counters = Some(ways.map_err(|_| attribute.value("more bits than there are"))?);
                }
                PADDING | USED_HW_STATS | HARDWARE_COUNT => {}
                _ => return Err(attribute.unknown()),
            }
        }
        let kind = kind.ok_or(Malformed::Missing { place: PLACE, kind: KIND })?;
        if let Some(options) = options {
            let (operation, common) = Operation::parse(&kind, options.payload)?;
            (found.operation, found.control, found.index) = (operation, common.control, common.index);
        }
        Ok(found)
    }
}

impl Operation {
    /// The name of the action's kind.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Checksum(_) => "csum",
            Self::Conntrack(_) => "ct",
            Self::Edit(_) => "pedit",
            Self::Generic => "gact",
            Self::Mirred { .. } => "mirred",
            Self::Mpls(_) => "mpls",
            Self::Police(_) => "police",
            Self::Sample { .. } => "sample",
            Self::SkbEdit(_) => "skbedit",
            Self::TunnelRelease | Self::TunnelSet(_) => "tunnel_key",
            Self::Vlan(_) => "vlan",
        }
    }

    fn parse(kind: &Attribute<'_>, options: &[u8]) -> Result<(Self, Common), Malformed> {
        let nest = |place| Attributes::new(options, place);
        Ok(match kind.text()? {
            "csum" => parse_checksum(nest("csum"))?,
            "ct" => with(Conntrack::parse(nest("ct"))?, |found| Self::Conntrack(Box::new(found))),
            "gact" => parse_generic(nest("gact"))?,
            "mirred" => parse_mirred(nest("mirred"))?,
            "mpls" => with(Mpls::parse(nest("mpls"))?, Self::Mpls),
            "pedit" => with(edit::parse(nest("pedit"))?, Self::Edit),
            "police" => with(Police::parse(nest("police"))?, |found| Self::Police(Box::new(found))),
            "sample" => parse_sample(nest("sample"))?,
            "skbedit" => with(SkbEdit::parse(nest("skbedit"))?, Self::SkbEdit),
            "tunnel_key" => with(tunnel::parse(nest("tunnel_key"))?, |header| match header {
                Some(header) => Self::TunnelSet(Box::new(header)),
                None => Self::TunnelRelease,
            }),
            "vlan" => with(Vlan::parse(nest("vlan"))?, Self::Vlan),
            name => return Err(kind.value(name.to_owned())),
        })
    }
}

/// Wraps what a kind of action has of its own, and keeps what is common.
fn with<T>((found, common): (T, Common), operation: impl FnOnce(T) -> Operation) -> (Operation, Common) {
    (operation(found), common)
}

/// Writes actions, numbered from 1.
pub(super) fn emit_list(actions: &[Action], writer: &mut Writer<'_>) {
    (1..).zip(actions).for_each(|(place, action)| action.emit(place, 0, writer));
}

/// Reads actions, in the order of their numbers.
pub(super) fn parse_list(nest: Attributes<'_>) -> Result<Vec<Action>, Malformed> {
    let mut actions = Vec::new();
    for attribute in nest {
        let attribute = attribute?;
        actions.push((attribute.kind, Action::parse(&attribute)?));
    }
    actions.sort_by_key(|(place, _)| *place);
    Ok(actions.into_iter().map(|(_, action)| action).collect())
}

/// The attributes of kind, counters and cookie, for readers of nothing else.
pub(super) const COUNTED: [u16; 3] = [KIND, STATISTICS, COOKIE];

fn parse_checksum(options: Attributes<'_>) -> Result<(Operation, Common), Malformed> {
    let mut found = None;
    for attribute in options {
        let attribute = attribute?;
        match attribute.kind {
            1 => {
                let mut fields = Fields::new(attribute.payload, "csum");
                let common = Common::read(&mut fields)?;
                found = Some((Operation::Checksum(fields.u32()?), common));
            }
            2 | 3 => {}
            _ => return Err(attribute.unknown()),
        }
    }
    found.ok_or(without_parameters("csum", 1))
}

fn parse_generic(options: Attributes<'_>) -> Result<(Operation, Common), Malformed> {
    let mut found = None;
    for attribute in options {
        let attribute = attribute?;
        match attribute.kind {
            2 => found = Some((Operation::Generic, Common::read(&mut Fields::new(attribute.payload, "gact"))?)),
            1 | 4 => {}
            // An action with a random part is not ours.
            _ => return Err(attribute.unknown()),
        }
    }
    found.ok_or(without_parameters("gact", 2))
}

fn parse_mirred(options: Attributes<'_>) -> Result<(Operation, Common), Malformed> {
    let mut found = None;
    for attribute in options {
        let attribute = attribute?;
        match attribute.kind {
            2 => {
                let mut fields = Fields::new(attribute.payload, "mirred");
                let common = Common::read(&mut fields)?;
                let to = match fields.i32()? {
                    1 => Mirred::EgressRedirect,
                    2 => Mirred::EgressMirror,
                    3 => Mirred::IngressRedirect,
                    4 => Mirred::IngressMirror,
                    other => return Err(attribute.value(other.to_string())),
                };
                found = Some((Operation::Mirred { to, interface: fields.u32()? }, common));
            }
            1 | 3 => {}
            _ => return Err(attribute.unknown()),
        }
    }
    found.ok_or(without_parameters("mirred", 2))
}

fn parse_sample(options: Attributes<'_>) -> Result<(Operation, Common), Malformed> {
    let (mut common, mut rate, mut group, mut truncate) = (None, 0, 0, None);
    for attribute in options {
        let attribute = attribute?;
        match attribute.kind {
            2 => common = Some(Common::read(&mut Fields::new(attribute.payload, "sample"))?),
            3 => rate = attribute.u32()?,
            4 => truncate = Some(attribute.u32()?),
            5 => group = attribute.u32()?,
            1 | 6 => {}
            _ => return Err(attribute.unknown()),
        }
    }
    let common = common.ok_or(without_parameters("sample", 2))?;
    Ok((Operation::Sample { rate, group, truncate }, common))
}

impl SkbEdit {
    fn emit(&self, common: Common, writer: &mut Writer<'_>) {
        common.put(2, writer, |_| ());
        if let Some(priority) = self.priority {
            writer.put(3, &priority.to_ne_bytes());
        }
        if let Some((mark, mask)) = self.mark {
            writer.put(5, &mark.to_ne_bytes());
            writer.put(8, &mask.to_ne_bytes());
        }
        if let Some(packet_type) = self.packet_type {
            writer.put(7, &packet_type.to_ne_bytes());
        }
    }

    fn parse(options: Attributes<'_>) -> Result<(Self, Common), Malformed> {
        let (mut found, mut common, mut mask) = (Self::default(), None, u32::MAX);
        for attribute in options {
            let attribute = attribute?;
            match attribute.kind {
                2 => common = Some(Common::read(&mut Fields::new(attribute.payload, "skbedit"))?),
                3 => found.priority = Some(attribute.u32()?),
                5 => found.mark = Some((attribute.u32()?, mask)),
                7 => found.packet_type = Some(attribute.u16()?),
                8 => mask = attribute.u32()?,
                1 | 6 => {}
                _ => return Err(attribute.unknown()),
            }
        }
        found.mark = found.mark.map(|(mark, _)| (mark, mask));
        Ok((found, common.ok_or(without_parameters("skbedit", 2))?))
    }
}

/// `struct nla_bitfield32`: values, and which bits are valid.
fn put_bits(kind: u16, bits: u32, writer: &mut Writer<'_>) {
    writer.fill(kind, |writer| {
        writer.raw(&bits.to_ne_bytes());
        writer.raw(&bits.to_ne_bytes());
    });
}

fn bits(attribute: &Attribute<'_>) -> Result<u32, Malformed> {
    let mut fields = Fields::new(attribute.payload, "bits");
    Ok(fields.u32()? & fields.u32()?)
}

impl Cookie {
    /// At most this many bytes (`TC_COOKIE_MAX_SIZE`).
    pub const LIMIT: usize = 16;

    /// A note; `None` if it is too long.
    pub fn new(note: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::LIMIT];
        bytes.get_mut(..note.len())?.copy_from_slice(note);
        Some(Self { bytes, length: u8::try_from(note.len()).ok()? })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.into()]
    }
}

impl From<[u8; 16]> for Cookie {
    fn from(bytes: [u8; 16]) -> Self {
        Self { bytes, length: 16 }
    }
}

impl std::fmt::Debug for Cookie {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}
