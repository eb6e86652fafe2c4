//! Meters as the device has them (`flow_meter_parameters` of the PRM).

use sluice_flow::action::ActionKind;
use sluice_flow::meter::{Meter, MeterBand, MeterUnit};
use sluice_flow::refusal::Refusal;

/// Bytes of a meter's parameters.
pub const METER_PARAMETERS: usize = 32;

/// What packets cost: their bytes from Ethernet on, with all tags, as in OVS's userspace (the kernel's datapath leaves the outermost tag
/// out), or so many each (`meter_mode`; Linux and DPDK reckon with as many for a packet).
const BY_FRAME: u8 = 1;
const BY_PACKET: u8 = 3;
const BYTES_A_PACKET: u128 = 128;
/// A rate is this many bytes a second times the mantissa, halved as often as the exponent says.
const UNIT: u128 = 1_000_000_000;
const GREATEST_EXPONENT: u8 = 31;
const GREATEST_MANTISSA: u128 = 0xff;

/// Returns the parameters of a meter. The device has 8 bits and an exponent for rate and burst, which are what is asked for, and at most
/// one part in 128 more: packets that come at the rate pass, however little the burst is. Fails for what it does not have: more than one
/// band, and what is too much.
pub fn meter_parameters(meter: &Meter) -> Result<[u8; METER_PARAMETERS], Refusal> {
    const VALID: u8 = 1 << 7;
    const STARTS_GREEN: u8 = 2 << 4;
    let refuse = |reason: &str| {
        let reason = format!("meter {}: {reason}", meter.id).into();
        Refusal::Action { action: ActionKind::Meter, reason }
    };
    let [MeterBand { rate, burst }] = meter.bands[..] else {
        return Err(refuse("the device's meters have one band"));
    };
    if rate == 0 {
        return Err(refuse("it would let nothing pass: its rate is zero"));
    }
    // Without a burst, OVS's userspace takes what the rate brings in a second.
    let burst = if burst == 0 { rate } else { burst };
    let (mode, bytes) = match meter.unit {
        MeterUnit::Kilobits => (BY_FRAME, 125),
        MeterUnit::Packets => (BY_PACKET, BYTES_A_PACKET),
    };
    let exponents = 0..=GREATEST_EXPONENT;
    let size = least(exponents.clone(), |exponent| (u128::from(burst) * bytes, 1 << exponent));
    let speed = least(exponents, |exponent| ((u128::from(rate) * bytes) << exponent, UNIT));
    let (Some(size), Some(speed)) = (size, speed) else {
        return Err(refuse("the device does not have a rate or a burst of that size"));
    };
    let mut parameters = [0; METER_PARAMETERS];
    parameters[0] = VALID | STARTS_GREEN | mode;
    parameters[8..12].copy_from_slice([size, speed].as_flattened());
    Ok(parameters)
}

/// Returns the exponent and the mantissa of the least number that is not below what is wanted, which is a fraction for each exponent.
fn least(exponents: impl Iterator<Item = u8>, wanted: impl Fn(u8) -> (u128, u128)) -> Option<[u8; 2]> {
    let mantissa = |exponent: u8| {
        let (numerator, denominator) = wanted(exponent);
        let mantissa = numerator.div_ceil(denominator);
        let error = mantissa * denominator - numerator;
        let is_one = (1..=GREATEST_MANTISSA).contains(&mantissa);
        // Errors are compared across exponents, each in its own unit.
        is_one.then(|| (exponent, u8::try_from(mantissa).unwrap_or(u8::MAX), error, numerator))
    };
    let better = |one: &(u8, u8, u128, u128), other: &(u8, u8, u128, u128)| {
        let share = |(_, _, error, of): &(u8, u8, u128, u128)| (error << 40).checked_div(*of);
        share(one).cmp(&share(other))
    };
    exponents.filter_map(mantissa).min_by(better).map(|(exponent, mantissa, ..)| [exponent, mantissa])
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::meter::MeterId;

    fn of(unit: MeterUnit, rate: u64, burst: u64) -> [u8; METER_PARAMETERS] {
        meter_parameters(&Meter::simple(MeterId(1), unit, rate, burst)).unwrap()
    }

    /// Bytes at once, and a second.
    fn meant(parameters: [u8; METER_PARAMETERS]) -> (f64, f64) {
        let [size, times, halved, rate] = [8, 9, 10, 11].map(|at| parameters[at]);
        (f64::from(times) * 2_f64.powi(size.into()), 1e9 * f64::from(rate) / 2_f64.powi(halved.into()))
    }

    #[test]
    fn rate_and_burst_are_at_most_one_part_in_128_more() {
        for exponent in 0..30 {
            for step in [0, 1, 77, 129, 200, 255] {
                let (rate, burst) = ((256 + step) << exponent >> 8, (511 - step) << exponent >> 8);
                for (unit, bytes) in [(MeterUnit::Kilobits, 125.0), (MeterUnit::Packets, 128.0)] {
                    let (rate, burst) = (rate.max(1), burst.max(1));
                    let (size, speed) = meant(of(unit, rate, burst));
                    #[expect(clippy::cast_precision_loss, reason = "less than 53 bits")]
                    let (wanted_size, wanted_speed) = (burst as f64 * bytes, rate as f64 * bytes);
                    assert!((0.0..=1.0 / 128.0).contains(&(size / wanted_size - 1.0)), "{unit:?} {burst}: {size}");
                    assert!((0.0..=1.0 / 128.0).contains(&(speed / wanted_speed - 1.0)), "{unit:?} {rate}: {speed}");
                }
            }
        }
    }

    #[test]
    fn a_few_packets_at_once_are_so_many() {
        for packets in [1, 5, 100, 255] {
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let bytes = packets as f64 * 128.0;
            assert!((meant(of(MeterUnit::Packets, 10, packets)).0 - bytes).abs() < 0.1, "{packets}");
        }
        assert_eq!(of(MeterUnit::Packets, 7, 0), of(MeterUnit::Packets, 7, 7), "what the rate brings in a second");
        assert_eq!([of(MeterUnit::Kilobits, 8, 1)[0], of(MeterUnit::Packets, 8, 1)[0]], [0xa1, 0xa3]);
    }

    #[test]
    fn a_meter_that_the_device_does_not_have_is_refused() {
        let refusal = |bands: &[(u64, u64)]| {
            let bands = bands.iter().map(|(rate, burst)| MeterBand { rate: *rate, burst: *burst }).collect();
            let meter = Meter { id: MeterId(7), unit: MeterUnit::Kilobits, bands };
            meter_parameters(&meter).unwrap_err().to_string()
        };
        let one_band = "action meter: meter 7: the device's meters have one band";
        assert_eq!([refusal(&[]), refusal(&[(1, 1), (2, 2)])], [one_band; 2]);
        assert_eq!(refusal(&[(0, 1)]), "action meter: meter 7: it would let nothing pass: its rate is zero");
        let size = "action meter: meter 7: the device does not have a rate or a burst of that size";
        assert_eq!([refusal(&[(u64::MAX, 1)]), refusal(&[(1, u64::MAX)])], [size; 2]);
    }
}
