//! Messages about meters: what ovs-vswitchd asks for, what the kernel answers, and what is added to that.

use std::io::IoSliceMut;

use sluice_flow::meter::MeterUnit;

use super::message::{NETLINK_HEADER, aligned, attributes, chunk, long, message, put};
use super::output::Output;
use crate::attachment::Attachment;
use crate::layout::{Life, Name};
use crate::meters::{MeterCount, SettingKind};
use crate::records::Found;

/// `struct genlmsghdr` behind the header of netlink.
const HEADER: usize = NETLINK_HEADER + 8;
/// Where `struct ovs_header` is.
const DATAPATH: usize = NETLINK_HEADER + 4;

/// `enum ovs_meter_cmd`
mod command {
    pub(super) const SET: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const GET: u8 = 4;
}

/// `enum ovs_meter_attr`, and that of bands
mod attribute {
    pub(super) const ID: u16 = 1;
    pub(super) const KILOBITS: u16 = 2;
    pub(super) const STATISTICS: u16 = 3;
    pub(super) const BANDS: u16 = 4;

    pub(super) const BAND_KIND: u16 = 1;
    pub(super) const BAND_RATE: u16 = 2;
    pub(super) const BAND_BURST: u16 = 3;
    pub(super) const BAND_STATISTICS: u16 = 4;
}

/// `OVS_METER_BAND_TYPE_DROP`
const DROP: u32 = 1;

/// A request to change a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of the message, which its answer has, too.
    pub sequence: u32,
    /// The datapath, by the number of its device.
    pub datapath: u32,
    /// What is to be under the number of the meter.
    pub kind: SettingKind,
}

/// The answer to a request to change a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// That of the request.
    pub sequence: u32,
    /// The meter.
    pub meter: u32,
}

/// Reads a message that ovs-vswitchd is about to send. `None` if it changes no meter.
pub fn requested(request: &[u8], family: u16) -> Option<Request> {
    let request = of_family(request, 0, family)?;
    let kind = match command_of(request)? {
        command::SET => wanted(request)?,
        command::DELETE => SettingKind::None,
        _ => return None,
    };
    Some(Request { sequence: word(request, 8)?, datapath: word(request, DATAPATH)?, kind })
}

/// Reads a message that ovs-vswitchd has received. `None` if it does not say that a meter has changed.
pub fn agreed(datagram: &[u8], family: u16) -> Option<Agreed> {
    let answer = of_family(datagram, 0, family)?;
    if !matches!(command_of(answer)?, command::SET | command::DELETE) {
        return None;
    }
    Some(Agreed { sequence: word(answer, 8)?, meter: meter(answer)? })
}

/// Adds to what the kernel says a meter has counted. Nothing gets longer.
pub fn change_meters(datagram: &mut [u8], buffers: &mut [IoSliceMut<'_>], family: u16, attachment: &Attachment) {
    let mut at = 0;
    let mut is_changed = false;
    while let Some((kind, end)) = message(datagram, at) {
        if kind == family
            && let Some(answer) = datagram.get_mut(at..end)
            && command_of(answer) == Some(command::GET)
        {
            is_changed |= add(answer, attachment).is_some();
        }
        at = aligned(end);
    }
    if is_changed {
        Output::new(buffers).write(datagram);
    }
}

/// Adds to one answer, if the meter is one that the library has told of.
fn add(answer: &mut [u8], attachment: &Attachment) -> Option<()> {
    let (meter, datapath) = (meter(answer)?, word(answer, DATAPATH)?);
    let setting = attachment.meters().get(meter)?;
    if setting.kind == SettingKind::None || setting.datapath != datapath {
        return None;
    }
    let (mut reached, mut dropped) = (None, None);
    attributes(answer, HEADER, |kind, place, length| match (kind, length) {
        (attribute::STATISTICS, 16) => reached = Some(place),
        // That of the first band, which is the only one.
        (attribute::BANDS, _) => {
            each_of_first_band(answer, place, length, |kind, place, length| {
                if (kind, length) == (attribute::BAND_STATISTICS, 16) {
                    dropped = Some(place);
                }
            });
        }
        _ => {}
    });
    for (count, place) in [(MeterCount::Reached, reached), (MeterCount::Dropped, dropped)] {
        let Found::At(record) = attachment.records().find(Name::from(count.name(meter))) else { continue };
        let (Some(place), Life::Live) = (place, record.life) else { continue };
        if attachment.marks().has(&record) {
            continue;
        }
        for (place, more) in [(place, record.totals.packets), (place.wrapping_add(8), record.totals.bytes)] {
            let sum = long(answer, place)?.wrapping_add(more);
            put(answer, place, sum.to_ne_bytes());
        }
    }
    Some(())
}

/// What a request wants a meter to be. `None` if it makes no sense, and the kernel refuses it.
fn wanted(request: &[u8]) -> Option<SettingKind> {
    let (mut unit, mut bands) = (MeterUnit::Packets, None);
    attributes(request, HEADER, |kind, place, length| match kind {
        attribute::KILOBITS => unit = MeterUnit::Kilobits,
        attribute::BANDS => bands = Some((place, length)),
        _ => {}
    });
    let (place, length) = bands?;
    let (mut drops, mut rate, mut burst) = (false, None, 0);
    let is_one = each_of_first_band(request, place, length, |kind, place, length| match (kind, length) {
        (attribute::BAND_KIND, 4) => drops = word(request, place) == Some(DROP),
        (attribute::BAND_RATE, 4) => rate = word(request, place),
        (attribute::BAND_BURST, 4) => burst = word(request, place).unwrap_or(0),
        _ => {}
    });
    Some(match rate {
        Some(rate) if is_one && drops => SettingKind::Band { unit, rate, burst },
        _ => SettingKind::Other,
    })
}

/// Passes on the attributes of the first of some bands, which are the payload of an attribute. Returns whether it is the only one.
fn each_of_first_band(message: &[u8], place: usize, length: usize, mut see: impl FnMut(u16, usize, usize)) -> bool {
    let Some(bands) = place.checked_add(length).and_then(|end| message.get(..end)) else { return false };
    let mut first = None;
    let mut count = 0usize;
    attributes(bands, place, |_, place, length| {
        first = first.or(Some((place, length)));
        count = count.wrapping_add(1);
    });
    if let Some((place, length)) = first
        && let Some(band) = place.checked_add(length).and_then(|end| bands.get(..end))
    {
        attributes(band, place, &mut see);
    }
    count == 1
}

/// The message that begins at a place, if it is of the family.
fn of_family(datagram: &[u8], at: usize, family: u16) -> Option<&[u8]> {
    let (kind, end) = message(datagram, at)?;
    (kind == family).then(|| datagram.get(at..end)).flatten()
}

fn command_of(message: &[u8]) -> Option<u8> {
    chunk::<1>(message, NETLINK_HEADER).map(|[command]| command)
}

fn meter(message: &[u8]) -> Option<u32> {
    let mut meter = None;
    attributes(message, HEADER, |kind, place, length| {
        if (kind, length) == (attribute::ID, 4) {
            meter = word(message, place);
        }
    });
    meter
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    chunk(bytes, at).map(u32::from_ne_bytes)
}
