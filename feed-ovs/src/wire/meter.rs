//! What the family `ovs_meter` tells of.

use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_netdev::netlink::attribute::{Attribute, Attributes, Malformed};

use super::message::after_headers;

const PLACE: &str = "message of ovs_meter";
/// `OVS_METER_BAND_TYPE_DROP`
const DROP: u32 = 1;

/// The number of a meter, which all messages tell.
pub fn read_meter_id(payload: &[u8]) -> Result<MeterId, Malformed> {
    const ID: u16 = 1;
    for attribute in Attributes::new(after_headers(payload, PLACE)?.1, PLACE) {
        let attribute = attribute?;
        if attribute.kind == ID {
            return Ok(MeterId(attribute.u32()?));
        }
    }
    Err(Malformed::Missing { place: PLACE, kind: ID })
}

/// A meter as a request sets it (`OVS_METER_CMD_SET`).
pub fn read_meter(payload: &[u8]) -> Result<Meter, Malformed> {
    const BANDS: u16 = 4;
    let (mut unit, mut bands) = (MeterUnit::Packets, None);
    for attribute in Attributes::new(after_headers(payload, PLACE)?.1, PLACE) {
        let attribute = attribute?;
        match attribute.kind {
            2 => unit = MeterUnit::Kilobits,
            BANDS => bands = Some(attribute.nested(PLACE).map(|band| read_band(&band?)).collect::<Result<_, _>>()?),
            // The number; and what was counted and may be, which requests need not tell.
            1 | 3 | 5..=9 => {}
            _ => return Err(attribute.unknown()),
        }
    }
    let bands = bands.ok_or(Malformed::Missing { place: PLACE, kind: BANDS })?;
    Ok(Meter { id: read_meter_id(payload)?, unit, bands })
}

fn read_band(band: &Attribute<'_>) -> Result<MeterBand, Malformed> {
    const PLACE: &str = "band of a meter";
    const RATE: u16 = 2;
    let (mut rate, mut burst) = (None, 0);
    for attribute in band.nested(PLACE) {
        let attribute = attribute?;
        match attribute.kind {
            1 if attribute.u32()? != DROP => return Err(attribute.value("a band that does not drop")),
            RATE => rate = Some(attribute.u32()?.into()),
            3 => burst = attribute.u32()?.into(),
            1 | 4 => {}
            _ => return Err(attribute.unknown()),
        }
    }
    Ok(MeterBand { rate: rate.ok_or(Malformed::Missing { place: PLACE, kind: RATE })?, burst })
}

#[cfg(test)]
mod tests {
    use sluice_netdev::netlink::attribute::Writer;
    use sluice_netdev::netlink::message::{Header, write};

    use super::*;

    /// A request behind the header of netlink.
    fn request(body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut message = Vec::new();
        let written = write(&mut message, Header { kind: 0x13, flags: 0, sequence: 0, port: 0 }, |writer| {
            writer.raw(&[2, 1, 0, 0, 0, 0, 0, 0]);
            body(writer);
        });
        written.expect("it is short");
        message.split_off(16)
    }

    fn of_band(values: &[(u16, u32)]) -> Vec<u8> {
        request(|message| {
            message.put(1, &7u32.to_ne_bytes());
            message.put(2, &[]);
            message.nest(4, |bands| {
                bands.nest(0, |band| values.iter().for_each(|(kind, value)| band.put(*kind, &value.to_ne_bytes())));
            });
        })
    }

    #[test]
    fn a_meter_is_read_as_it_is_set_and_one_that_makes_no_sense_is_an_error() {
        let whole = of_band(&[(1, 1), (2, 1_000), (3, 50)]);
        assert_eq!(read_meter(&whole), Ok(Meter::simple(MeterId(7), MeterUnit::Kilobits, 1_000, 50)));
        assert_eq!(read_meter_id(&whole), Ok(MeterId(7)));
        assert!(read_meter(&of_band(&[(1, 2), (2, 1_000)])).is_err(), "a band that marks");
        assert!(read_meter(&of_band(&[(1, 1)])).is_err(), "a band without a rate");
        assert!(read_meter(&request(|message| message.put(2, &[]))).is_err(), "without a number");
        for length in 0..whole.len() {
            assert!(read_meter(&whole[..length]).is_err(), "cut to {length} bytes");
        }
    }
}
