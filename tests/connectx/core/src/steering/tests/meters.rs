use std::time::Duration;

use super::device::*;
use super::refusals::refused;
use crate::steering::layout::flow_context as context;
use crate::steering::meter::aso::{LOG_BLOCK, OBJECT};
use crate::steering::{Port, fields as f, status};

const EXECUTE_ASO: u32 = 0x4000;
const FLOW_METER: u32 = 2;
const GREEN: u32 = 2;
const DOMAIN: u32 = 7;
/// All that is written of a meter: its flags, and what is behind the reserved bytes.
const FIRST: u64 = 0x80ff_ffff << 32;
const SECOND: u64 = 0x80ff_ffff;

/// 1,953,125 bytes a second and so many at once, of frames as a whole.
fn meter(size: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = 0x80 | 2 << 4 | 1;
    bytes[8..12].copy_from_slice(&[0, size, 9, 1]);
    bytes
}

fn object(first: [u8; 32], second: [u8; 32]) -> [u8; OBJECT] {
    [first, second].concat().try_into().unwrap()
}

/// What an entry says of a meter.
#[derive(Clone, Copy)]
struct Execute {
    object: u32,
    meter: u32,
    register: u32,
    kind: u32,
    color: u32,
}

const METER: Execute = Execute { object: 0, meter: 0, register: 5, kind: FLOW_METER, color: GREEN };

fn executing(table: TableRef, group: u32, wanted: &Wanted<'_>, execute: Execute) -> Vec<u8> {
    let mut input = wanted.input(table, group);
    let bytes = &mut input[crate::steering::layout::bytes::FLOW_CONTEXT + context::ASO..];
    for (field, value) in [
        (context::ASO_VALID, 1),
        (context::ASO_OBJECT, execute.object),
        (context::ASO_METER, execute.meter),
        (context::ASO_RETURN_REGISTER, execute.register),
        (context::ASO_TYPE, execute.kind),
        (context::ASO_INITIAL_COLOR, execute.color),
    ] {
        field.put(bytes, value);
    }
    input
}

const SET: u16 = crate::steering::layout::opcode::SET_FLOW_TABLE_ENTRY;

/// A switch whose packets of the host are metered, and go on to vport 2 if they are green and to vport 1 if they are red.
fn metering(device: &mut Device, execute: Execute) -> TableRef {
    let (root, colors) = (device.table(FDB, 0), device.table(FDB, 1));
    device.set_root(root);
    let low = |color| [(f::METADATA_REG_C_5, color)];
    for (index, color, vport) in [(0, GREEN, 2), (1, 0, 1)] {
        device.rule(colors, index, Wanted { matches: &low(color), ..forward(To::Vport(vport)) });
    }
    let group = device.group(root, 0..=0, &[]);
    let wanted = Wanted { actions: FORWARD | EXECUTE_ASO, to: vec![To::Table(colors)], ..Wanted::default() };
    device.command(SET, &mut executing(root, group, &wanted, execute)).unwrap();
    root
}

#[test]
fn an_entry_has_a_meter_color_its_packets_and_the_next_table_tells_them_apart() {
    let mut device = Device::new();
    let (green, red) = (vec![Port::Vport(2)], vec![Port::Vport(1)]);
    let first = device.0.create_meter_objects(0, DOMAIN, LOG_BLOCK, &[0; OBJECT]).unwrap();
    let root = metering(&mut device, Execute { object: first + 63, meter: 1, ..METER });
    assert_eq!(device.ports(Port::Vport(0)), [], "nobody has written the meter");
    let walk = device.receive(Port::Vport(0), &crate::packet::sample::tcp_frame());
    assert!(walk.to_string().contains("nobody has written the meter"), "{walk}");

    let frame = u64::try_from(crate::packet::sample::tcp_frame().len()).unwrap();
    let size = u8::try_from(2 * frame).unwrap();
    let write = |device: &mut Device, mask, data| device.0.write_meter_object(DOMAIN, first + 63, mask, &data);
    write(&mut device, FIRST, object(meter(1), meter(size))).unwrap();
    assert_eq!(device.ports(Port::Vport(0)), [], "that was the other one");
    write(&mut device, SECOND, object(meter(1), meter(size))).unwrap();
    let colors = |device: &mut Device| [(); 3].map(|()| device.ports(Port::Vport(0)));
    assert_eq!(colors(&mut device), [green.clone(), green.clone(), red.clone()]);
    device.0.pass_time(Duration::from_nanos(frame * 512));
    assert_eq!(colors(&mut device), [green.clone(), red.clone(), red.clone()]);
    write(&mut device, SECOND, object(meter(1), meter(size))).unwrap();
    assert_eq!(colors(&mut device), [green.clone(), green, red], "written anew, it is full");

    assert_eq!(device.0.query_meter_object(0, first + 63).unwrap(), (DOMAIN, object(meter(1), meter(size))));
    refused(device.0.destroy_meter_objects(0, first), status::BAD_RESOURCE_STATE, "is used 1 times");
    device.delete_entry(root, 0).unwrap();
    device.0.destroy_meter_objects(0, first).unwrap();
    refused(device.0.destroy_meter_objects(0, first), status::BAD_RESOURCE, "does not exist");
}

#[test]
fn an_entry_that_asks_for_other_than_a_meter_that_there_is_is_refused() {
    let mut device = Device::new();
    let object = device.0.create_meter_objects(0, DOMAIN, LOG_BLOCK, &[0; OBJECT]).unwrap();
    let (table, receive) = (device.table(FDB, 0), device.table(NIC_RX, 0));
    let (group, other) = (device.group(table, 0..=0, &[]), device.group(receive, 0..=0, &[]));
    let wanted = Wanted { actions: DROP | EXECUTE_ASO, ..Wanted::default() };
    let good = Execute { object, ..METER };
    let mut set =
        |table, group, wanted: &Wanted<'_>, execute| device.command(SET, &mut executing(table, group, wanted, execute));
    refused(set(table, group, &wanted, Execute { object: object + 64, ..good }), status::BAD_RESOURCE, "ASO object");
    refused(set(table, group, &wanted, Execute { register: 2, ..good }), status::BAD_PARAMETER, "flow_meter_reg_id");
    refused(set(table, group, &wanted, Execute { kind: 4, ..good }), status::BAD_PARAMETER, "aso_type 0x4");
    refused(set(table, group, &wanted, Execute { color: 0, ..good }), status::BAD_PARAMETER, "init_color");
    refused(set(receive, other, &wanted, good), status::BAD_PARAMETER, "execute ASO is not allowed");
    let without = Wanted { actions: DROP, ..Wanted::default() };
    refused(set(table, group, &without, good), status::BAD_PARAMETER, "is not set, and there are objects");
    refused(device.try_set(table, group, &wanted), status::BAD_PARAMETER, "has no object");
}

#[test]
fn what_is_written_into_an_object_is_checked() {
    let mut device = Device::new();
    for log in [0, LOG_BLOCK - 1, LOG_BLOCK + 1, 31] {
        refused(
            device.0.create_meter_objects(0, DOMAIN, log, &[0; OBJECT]),
            status::BAD_PARAMETER,
            "log_meter_aso_granularity",
        );
    }
    let overflowing = object([&[0xc0][..], &[0; 31]].concat().try_into().unwrap(), [0; 32]);
    refused(
        device.0.create_meter_objects(0, DOMAIN, LOG_BLOCK, &overflowing),
        status::BAD_PARAMETER,
        "bucket_overflow",
    );
    assert_eq!(device.0.objects_left(), 0);

    let first = device.0.create_meter_objects(5, DOMAIN, LOG_BLOCK, &object(meter(9), [0; 32])).unwrap();
    assert_eq!(device.0.written_meters(), 64, "the first of each");
    refused(device.0.query_meter_object(6, first), status::BAD_RESOURCE, "does not exist");
    let mut write = |domain, number, mask, data| device.0.write_meter_object(domain, number, mask, &data).unwrap_err();
    let data = object(meter(7), meter(7));
    let tokens = object(meter(7), [&meter(7)[..12], &[1; 20]].concat().try_into().unwrap());
    for (failure, why) in [
        (write(DOMAIN + 1, first, FIRST, data), "is of PD 0x7, and the queue of 0x8"),
        (write(DOMAIN, first + 64, FIRST, data), "does not exist"),
        (write(DOMAIN, first, FIRST | SECOND, tokens), "tokens of a meter 0x1 is not modelled"),
        (write(DOMAIN, first, SECOND, object(meter(7), [0; 32])), "valid 0x0 is not modelled"),
    ] {
        assert!(failure.contains(why), "{failure}");
    }
    let written = |device: &mut Device| device.0.query_meter_object(5, first).unwrap().1;
    assert_eq!(written(&mut device), object(meter(9), [0; 32]), "a write that fails writes nothing");
    // The byte with the size's mantissa alone.
    device.0.write_meter_object(DOMAIN, first, 1 << (63 - 9), &data).unwrap();
    assert_eq!(written(&mut device), object(meter(7), [0; 32]));
}
