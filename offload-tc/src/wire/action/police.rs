//! Rates and lengths (`act_police`, `struct tc_police` in `include/uapi/linux/pkt_cls.h`).

use sluice_netdev::netlink::attribute::{Attributes, Fields, Malformed, Writer};

use super::common::{Common, without_parameters};
use super::control::Control;

const PARAMETERS: u16 = 1;
const RATE_TABLE: u16 = 2;
const AVERAGE_RATE: u16 = 4;
const RESULT: u16 = 5;
const RATE64: u16 = 8;
const PACKET_RATE: u16 = 10;
const PACKET_BURST: u16 = 11;
/// The size of a cell of the table in bytes, as a power of two; not 0.
const CELL_LOG: u8 = 3;
/// What the kernel shows for a length of 0.
const ANY_LENGTH: u32 = u32::MAX;
/// `TC_LINKLAYER_ETHERNET`
const ETHERNET: u8 = 1;

/// A policer (`act_police`). [`Action::control`](super::Action::control) says what happens to packets that exceed it.
///
/// With a rate or a length this makes the object or changes it. Without, it refers to an existing one, and fails if there is
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Police {
    /// What happens to packets that conform.
    pub conform: Control,
    /// Bytes a second. In software the Ethernet header is not counted.
    pub rate: Option<u64>,
    /// The burst, in ticks of 64 ns at the rate (`PSCHED_TICKS2NS`).
    pub burst: u32,
    /// The longest packet that conforms, including the Ethernet header. 0 means any, but with a rate 255 cells of the table,
    /// which are 2,040 bytes; for any length use [`u32::MAX`] then.
    pub mtu: u32,
    /// Packets a second, and the burst in ticks of 64 ns at that rate.
    pub packets: Option<(u64, u64)>,
}

impl Police {
    /// A reference to an object by the index of its action.
    pub const fn reference(conform: Control) -> Self {
        Self { conform, rate: None, burst: 0, mtu: 0, packets: None }
    }

    pub(super) fn emit(&self, common: Common, writer: &mut Writer<'_>) {
        let (rate, cells) = match self.rate {
            None => (0, 0),
            // The kernel requires the table although it no longer reads it.
            Some(rate) => (u32::try_from(rate).unwrap_or(u32::MAX), 256usize),
        };
        writer.fill(PARAMETERS, |writer| {
            let limit = 0u32;
            writer.raw(&common.index.to_ne_bytes());
            writer.raw(&common.control.number().to_ne_bytes());
            for word in [limit, self.burst, self.mtu] {
                writer.raw(&word.to_ne_bytes());
            }
            put_rate(rate, writer);
            put_rate(0, writer);
            let references_bindings_capabilities = [0; 12];
            writer.raw(&references_bindings_capabilities);
        });
        if cells != 0 {
            writer.fill(RATE_TABLE, |writer| (0..cells).for_each(|_| writer.raw(&[0; 4])));
        }
        if self.conform != Control::Ok {
            writer.put(RESULT, &self.conform.number().to_ne_bytes());
        }
        if let Some(rate) = self.rate.filter(|rate| u32::try_from(*rate).is_err()) {
            writer.put(RATE64, &rate.to_ne_bytes());
        }
        if *self == Self::reference(self.conform) && common.index != 0 {
            // A reference to an object that is gone would make one that lets everything pass. The kernel ignores an average
            // rate if the object exists, and otherwise refuses to make one without an estimator.
            writer.put(AVERAGE_RATE, &1u32.to_ne_bytes());
        }
        if let Some((rate, burst)) = self.packets {
            writer.put(PACKET_RATE, &rate.to_ne_bytes());
            writer.put(PACKET_BURST, &burst.to_ne_bytes());
        }
    }

    pub(super) fn parse(options: Attributes<'_>) -> Result<(Self, Common), Malformed> {
        let mut found = Self { conform: Control::Ok, rate: None, burst: 0, mtu: 0, packets: None };
        let (mut common, mut packet_rate, mut packet_burst) = (None, None, 0);
        for attribute in options {
            let attribute = attribute?;
            match attribute.kind {
                PARAMETERS => {
                    let mut fields = Fields::new(attribute.payload, "police");
                    let (index, control) = (fields.u32()?, Control::from_number(fields.i32()?));
                    let _limit = fields.u32()?;
                    (found.burst, found.mtu) = (fields.u32()?, fields.u32()?);
                    if found.mtu == ANY_LENGTH {
                        found.mtu = 0;
                    }
                    let _shape: [u8; 8] = fields.bytes()?;
                    let rate = fields.u32()?;
                    found.rate = found.rate.or((rate != 0).then_some(rate.into()));
                    common = Some(Common { index, control });
                }
                RESULT => found.conform = Control::from_number(attribute.u32()?.cast_signed()),
                RATE64 => found.rate = Some(attribute.u64()?),
                PACKET_RATE => packet_rate = Some(attribute.u64()?),
                PACKET_BURST => packet_burst = attribute.u64()?,
                RATE_TABLE | AVERAGE_RATE | 6 | 7 => {}
                _ => return Err(attribute.unknown()),
            }
        }
        found.packets = packet_rate.map(|rate| (rate, packet_burst));
        Ok((found, common.ok_or(without_parameters("police", PARAMETERS))?))
    }
}

/// `struct tc_ratespec`
fn put_rate(rate: u32, writer: &mut Writer<'_>) {
    let (overhead, mpu) = ([0; 2], [0; 2]);
    let (shape, cell_align) = if rate == 0 { ([0, 0], 0i16) } else { ([CELL_LOG, ETHERNET], -1) };
    writer.raw(&shape);
    writer.raw(&overhead);
    writer.raw(&cell_align.to_ne_bytes());
    writer.raw(&mpu);
    writer.raw(&rate.to_ne_bytes());
}
