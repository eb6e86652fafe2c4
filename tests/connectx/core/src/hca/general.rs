//! General objects: blocks of steering memory, arguments of rewrites, samplers, meters, ASO objects of meters, of first hits and of
//! connection tracking, options of Geneve, match definers.

use super::state::Hca;
use crate::command::{Answer, Failure, Input, Output, Status, layouts as l, require};
use crate::layout::{Field, Layout};
use crate::objects::Kind;
use crate::profile::{MAX_OPTION_DATA, Type};
use crate::steering;
use crate::steering::address::{Side, Terminal};
use crate::steering::definers::Refused;
use crate::steering::meter::{Metering, PARAMETERS, aso};
use crate::steering::sampler::Sampling;
use crate::steering::ste::large;
use crate::steering::tracking;

pub(crate) fn create(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::general_object as f;
    let kind = named_type(hca, input)?;
    let (uid, log) = (input.get_u16(l::header::UID), input.get(f::LOG_OBJ_RANGE));
    let ranges = matches!(kind, Type::Argument | Type::MeterObjects | Type::FirstHits | Type::ConnectionTracking);
    require(log == 0 || ranges, Status::BadParameter, 0x040b, "objects of this type do not come in ranges")?;
    let refused = |reason| Failure::new(Status::BadParameter, 0x0409, reason);
    let mut protection = None;
    let mut access = |hca: &Hca, domain| {
        protection = Some(hca.objects.check(Kind::Pd, domain)?);
        Ok::<_, Failure>(domain)
    };
    let id = match kind {
        Type::SteeringMemory => {
            let body = Input::new(&l::steering_memory::LAYOUT, input.tail())?;
            let (address, log_size) = (body.get(l::steering_memory::START), body.get(l::steering_memory::LOG_SIZE));
            hca.steering.icm.allocate(address, log_size).map_err(refused)?
        }
        Type::Argument => {
            let body = Input::new(&l::modify_header_argument::LAYOUT, input.tail())?;
            access(hca, body.get_u32(l::modify_header_argument::ACCESS_PD))?;
            hca.steering.arguments.allocate(log).map_err(refused)?
        }
        Type::MeterObjects => {
            let body = Input::new(&l::meter_object::LAYOUT, input.tail())?;
            let domain = access(hca, body.get_u32(l::meter_object::ACCESS_PD))?;
            let mut meters = [0; aso::OBJECT];
            for (part, word) in meters.chunks_exact_mut(8).zip(METERS) {
                part.copy_from_slice(&body.get(word).to_be_bytes());
            }
            hca.steering.create_meter_objects(uid, domain, log, &meters).map_err(of_steering)?
        }
        Type::FirstHits => {
            let body = Input::new(&l::first_hits::LAYOUT, input.tail())?;
            let domain = access(hca, body.get_u32(l::first_hits::ACCESS_PD))?;
            hca.steering.hits.allocate(domain, log).map_err(refused)?
        }
        Type::ConnectionTracking => {
            use l::connection_tracking as f;
            let body = Input::new(&f::LAYOUT, input.tail())?;
            let domain = body.get_u32(f::ACCESS_PD);
            hca.objects.check(Kind::Pd, domain)?;
            let is_zero = body.tail().len() == tracking::OBJECT && body.tail().iter().all(|byte| *byte == 0);
            require(is_zero, Status::BadParameter, 0x0411, "objects of connection tracking begin with zeros")?;
            hca.steering.connections.create(uid, domain, log).map_err(of_steering)?
        }
        Type::GeneveOption => {
            use l::geneve_option as o;
            let body = Input::new(&o::LAYOUT, input.tail())?;
            let known = body.get(o::FTE_INDEX) == 0 && (1..=MAX_OPTION_DATA).contains(&body.get(o::DATA_LENGTH));
            require(known, Status::BadParameter, 0x040e, "of options only the first word of one is looked at")?;
            let option = (body.get_u16(o::CLASS), body.get(o::TYPE).to_be_bytes()[7]);
            let more = |reason| Failure::new(Status::LimitExceeded, 0x040f, reason);
            hca.steering.look_for_option(option).map_err(more)?
        }
        Type::MatchDefiner => {
            use l::match_definer as d;
            let body = Input::new(&d::LAYOUT, input.tail())?;
            let format = body.get_u16(d::FORMAT_ID);
            let has = format < 64 && hca.profile.match_definers >> format & 1 == 1;
            require(has, Status::BadParameter, 0x0410, format!("the device has no definers of format {format}"))?;
            let mut mask = [0; large::FIELDS];
            for (part, word) in mask.chunks_exact_mut(8).zip([d::MASK_0, d::MASK_1, d::MASK_2, d::MASK_3]) {
                part.copy_from_slice(&body.get(word).to_be_bytes());
            }
            hca.steering.definers.add(format, mask).map_err(|why| match why {
                Refused::NotModelled(reason) => Failure::new(Status::BadParameter, 0x0411, reason),
                Refused::Full => Failure::new(Status::LimitExceeded, 0x0412, "no match definers are left"),
            })?
        }
        Type::Sampler => hca.steering.create_sampler(uid, &sampling(input)?).map_err(of_steering)?,
        Type::Meter => hca.steering.create_meter(uid, &metering(input)?).map_err(of_steering)?,
    };
    if let Some(protection) = protection {
        hca.objects.hold_by_general((kind as u16, id), protection);
    }
    Ok(Output::new(&l::general_object_out::LAYOUT).set(l::general_object_out::ID, id))
}

/// Samplers and meters say where entries are to lead; ASO objects, what was written into them, what
/// became of that, or which of their lines were hit.
/// The type that a command names, of those that the device has.
fn named_type(hca: &Hca, input: &Input<'_>) -> Result<Type, Failure> {
    let number = input.op_mod();
    let found = Type::ALL.into_iter().find(|kind| *kind as u16 == number && hca.profile.has(*kind));
    let reason = || format!("general objects of type {number:#x} are not modelled, or not of this device");
    found.ok_or_else(|| Failure::new(Status::BadParameter, 0x0408, reason()))
}

pub(crate) fn query(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let (kind, id) = (named_type(hca, input)?, input.get_u32(l::general_object::ID));
    let uid = input.get_u16(l::header::UID);
    let mut body = vec![];
    let mut put = |layout: &Layout, fields: [Field; 2], terminal: Terminal| {
        body.resize(layout.length, 0);
        for (field, side) in fields.into_iter().zip([Side::Receive, Side::Transmit]) {
            field.write(&mut body, terminal.address(side));
        }
    };
    match kind {
        Type::Sampler => {
            use l::sampler as f;
            hca.steering.check_sampler(uid, id).map_err(of_steering)?;
            put(&f::LAYOUT, [f::ADDRESS_RX, f::ADDRESS_TX], Terminal::Sampler(id));
        }
        Type::Meter => {
            use l::meter as f;
            hca.steering.check_meter(uid, id).map_err(of_steering)?;
            put(&f::LAYOUT, [f::ADDRESS_RX, f::ADDRESS_TX], Terminal::Meter(id));
        }
        Type::MeterObjects => {
            use l::meter_object as f;
            let (domain, meters) = hca.steering.query_meter_object(uid, id).map_err(of_steering)?;
            body.resize(f::LAYOUT.length, 0);
            f::ACCESS_PD.write(&mut body, domain.into());
            body.truncate(f::LAYOUT.length - meters.len());
            body.extend(meters);
        }
        Type::FirstHits => {
            let unknown = |reason| Failure::new(Status::BadResource, 0x040a, reason);
            body.resize(l::first_hits::LAYOUT.length, 0);
            body.extend(hca.steering.hits.bytes(id).map_err(unknown)?);
        }
        Type::ConnectionTracking => {
            use l::connection_tracking as f;
            let (domain, bytes) = hca.steering.connections.query(uid, id).map_err(of_steering)?;
            body.resize(f::LAYOUT.length, 0);
            f::ACCESS_PD.write(&mut body, domain.into());
            body.extend(bytes);
        }
        Type::SteeringMemory | Type::Argument | Type::GeneveOption | Type::MatchDefiner => {
            return Err(Failure::new(Status::BadOperation, 0x040c, format!("{kind:?} cannot be asked for")));
        }
    }
    Ok(Output::new(&l::general_object_out::LAYOUT).set(l::general_object_out::ID, id).append(&body))
}

/// Only meters can be changed; those in ASO objects by requests of send queues.
pub(crate) fn modify(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let kind = named_type(hca, input)?;
    require(kind == Type::Meter, Status::BadOperation, 0x040d, format!("{kind:?} cannot be changed"))?;
    let (uid, id) = (input.get_u16(l::header::UID), input.get_u32(l::general_object::ID));
    let selected = Input::new(&l::meter::LAYOUT, input.tail())?.get(l::meter::MODIFY_FIELD_SELECT);
    hca.steering.modify_meter(uid, id, selected, &metering(input)?).map_err(of_steering)?;
    Ok(Output::empty())
}

pub(crate) fn destroy(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let (kind, id) = (named_type(hca, input)?, input.get_u32(l::general_object::ID));
    let uid = input.get_u16(l::header::UID);
    let refused = |reason| Failure::new(Status::BadResource, 0x040a, reason);
    match kind {
        Type::SteeringMemory => hca.steering.icm.free(id).map_err(refused)?,
        Type::Argument => hca.steering.arguments.free(id).map_err(refused)?,
        Type::MeterObjects => hca.steering.destroy_meter_objects(uid, id).map_err(of_steering)?,
        Type::FirstHits => hca.steering.hits.free(id).map_err(refused)?,
        Type::ConnectionTracking => hca.steering.connections.destroy(uid, id).map_err(of_steering)?,
        Type::GeneveOption => hca.steering.look_for_no_option(id).map_err(refused)?,
        Type::MatchDefiner => hca.steering.definers.remove(id).map_err(refused)?,
        Type::Sampler => hca.steering.destroy_sampler(uid, id).map_err(of_steering)?,
        Type::Meter => hca.steering.destroy_meter(uid, id).map_err(of_steering)?,
    }
    hca.objects.release_by_general((kind as u16, id));
    Ok(Output::empty())
}

/// Both meters of an object, in words of 8 bytes.
const METERS: [Field; 8] = {
    use l::meter_object as f;
    [f::FIRST_0, f::FIRST_1, f::FIRST_2, f::FIRST_3, f::SECOND_0, f::SECOND_1, f::SECOND_2, f::SECOND_3]
};

fn sampling(input: &Input<'_>) -> Result<Sampling, Failure> {
    use l::sampler as f;
    let body = Input::new(&f::LAYOUT, input.tail())?;
    let byte = |field| body.get(field).to_be_bytes()[7];
    Ok(Sampling {
        table_type: byte(f::TABLE_TYPE),
        level: byte(f::LEVEL),
        ignores_level: body.is_set(f::IGNORE_FLOW_LEVEL),
        ratio: body.get_u32(f::SAMPLE_RATIO),
        sample_table: body.get_u32(f::SAMPLE_TABLE),
        default_table: body.get_u32(f::DEFAULT_TABLE),
    })
}

fn metering(input: &Input<'_>) -> Result<Metering, Failure> {
    use l::meter as f;
    let body = Input::new(&f::LAYOUT, input.tail())?;
    let byte = |field| body.get(field).to_be_bytes()[7];
    let mut parameters = [0; PARAMETERS];
    let words = [f::PARAMETERS_0, f::PARAMETERS_1, f::PARAMETERS_2, f::PARAMETERS_3];
    for (part, word) in parameters.chunks_exact_mut(8).zip(words) {
        part.copy_from_slice(&body.get(word).to_be_bytes());
    }
    Ok(Metering {
        active: body.is_set(f::ACTIVE),
        register: byte(f::RETURN_REG_ID),
        table_type: byte(f::TABLE_TYPE),
        table: body.get_u32(f::TABLE),
        parameters,
    })
}

fn of_steering(failure: steering::Failure) -> Failure {
    use steering::status;
    let status = match failure.status {
        status::BAD_RESOURCE => Status::BadResource,
        status::EXCEEDS_LIMIT => Status::LimitExceeded,
        status::BAD_RESOURCE_STATE => Status::BadResourceState,
        _ => Status::BadParameter,
    };
    Failure::new(status, failure.syndrome, failure.reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::test::{initialized, made, run, status};
    use crate::memory::test::Flat;
    use crate::profile::{BLUEFIELD_2, CONNECTX_5, CONNECTX_6_DX, Profile};

    const FDB: u64 = 4;

    fn device(profile: Profile) -> Hca {
        initialized(profile.with_software_steering())
    }

    fn flow_table(hca: &mut Hca, level: u8) -> u32 {
        let mut input = [0; 0x40];
        input[..2].copy_from_slice(&0x930_u16.to_be_bytes());
        (input[16], input[25]) = (4, level);
        let output = hca.execute(&Flat::new(0), &input);
        assert_eq!(status(&output), 0);
        u32::from_be_bytes(output[8..12].try_into().unwrap())
    }

    fn destroyed_table(hca: &mut Hca, id: u32) -> u8 {
        let mut input = [0; 0x40];
        input[..2].copy_from_slice(&0x931_u16.to_be_bytes());
        input[16] = 4;
        input[20..24].copy_from_slice(&id.to_be_bytes());
        status(&hca.execute(&Flat::new(0), &input))
    }

    fn body(layout: &Layout, fields: &[(Field, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; layout.length];
        fields.iter().for_each(|(field, value)| assert!(field.write(&mut bytes, *value)));
        bytes
    }

    fn command(hca: &mut Hca, opcode: u16, kind: Type, id: u32, tail: &[u8]) -> Vec<u8> {
        let fields = [(l::general_object::ID, u64::from(id))];
        run(hca, opcode, kind as u16, &l::general_object::LAYOUT, &fields, tail)
    }

    fn id(output: &[u8]) -> u32 {
        assert_eq!(status(output), 0);
        u32::from_be_bytes(output[8..12].try_into().unwrap())
    }

    #[test]
    fn tables_stay_as_long_as_a_sampler_or_a_meter_leads_to_them() {
        use l::{meter as m, sampler as s};
        let mut hca = device(BLUEFIELD_2);
        let (taken, onward) = (flow_table(&mut hca, 5), flow_table(&mut hca, 6));
        let given = |ratio| {
            body(
                &s::LAYOUT,
                &[
                    (s::TABLE_TYPE, FDB),
                    (s::LEVEL, 4),
                    (s::SAMPLE_RATIO, ratio),
                    (s::SAMPLE_TABLE, taken.into()),
                    (s::DEFAULT_TABLE, onward.into()),
                ],
            )
        };
        assert_eq!(status(&command(&mut hca, 0xa00, Type::Sampler, 0, &given(0))), Status::BadParameter as u8);
        let sampler = id(&command(&mut hca, 0xa00, Type::Sampler, 0, &given(9)));
        let told = command(&mut hca, 0xa02, Type::Sampler, sampler, &[]);
        assert_eq!(s::ADDRESS_RX.at(16).read(&told), Some(Terminal::Sampler(sampler).address(Side::Receive)));
        let valid = (m::PARAMETERS_0, 1 << 63 | 3 << 60);
        let metering =
            body(&m::LAYOUT, &[(m::TABLE_TYPE, FDB), (m::TABLE, onward.into()), (m::RETURN_REG_ID, 5), valid]);
        let without = body(&m::LAYOUT, &[(m::TABLE_TYPE, FDB), (m::TABLE, onward.into())]);
        assert_eq!(status(&command(&mut hca, 0xa00, Type::Meter, 0, &without)), Status::BadParameter as u8);
        let meter = id(&command(&mut hca, 0xa00, Type::Meter, 0, &metering));
        assert_ne!(status(&command(&mut hca, 0xa01, Type::Meter, meter, &metering)), 0, "nothing is selected");
        assert_ne!(
            status(&command(&mut hca, 0xa01, Type::Sampler, sampler, &given(3))),
            0,
            "samplers stay as they are"
        );
        for table in [taken, onward] {
            assert_eq!(destroyed_table(&mut hca, table), Status::BadResourceState as u8);
        }
        assert_eq!(status(&command(&mut hca, 0xa03, Type::Sampler, sampler, &[])), 0);
        assert_eq!(destroyed_table(&mut hca, taken), 0);
        assert_ne!(destroyed_table(&mut hca, onward), 0, "the meter leads there");
        assert_eq!(status(&command(&mut hca, 0xa03, Type::Meter, meter, &[])), 0);
        assert_eq!(status(&command(&mut hca, 0xa03, Type::Meter, meter, &[])), Status::BadResource as u8);
        assert_eq!(destroyed_table(&mut hca, onward), 0);
    }

    #[test]
    fn arguments_and_first_hits_come_in_ranges_and_need_a_domain() {
        use l::{first_hits as h, general_object as g, modify_header_argument as a};
        let mut hca = device(CONNECTX_6_DX);
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let range = |hca: &mut Hca, kind: Type, log, tail: &[u8]| {
            run(hca, 0xa00, kind as u16, &g::LAYOUT, &[(g::LOG_OBJ_RANGE, log)], tail)
        };
        let argument = body(&a::LAYOUT, &[(a::ACCESS_PD, pd)]);
        let hits = body(&h::LAYOUT, &[(h::ACCESS_PD, pd)]);
        for (kind, tail) in [(Type::Argument, argument), (Type::FirstHits, hits)] {
            let (first, second) = (id(&range(&mut hca, kind, 3, &tail)), id(&range(&mut hca, kind, 0, &tail)));
            assert_eq!(second, first + 8);
            assert_ne!(status(&range(&mut hca, kind, 31, &tail)), 0);
            let nobodys = vec![0; tail.len()];
            assert_eq!(status(&range(&mut hca, kind, 0, &nobodys)), Status::BadResource as u8);
            for id in [first, second] {
                assert_eq!(freed_domain(&mut hca, pd), Status::ResourceBusy as u8);
                assert_eq!(status(&command(&mut hca, 0xa03, kind, id, &[])), 0);
                assert_eq!(status(&command(&mut hca, 0xa03, kind, id, &[])), Status::BadResource as u8);
            }
        }
        assert_eq!(freed_domain(&mut hca, pd), 0);
    }

    fn freed_domain(hca: &mut Hca, pd: u64) -> u8 {
        status(&run(hca, 0x801, 0, &l::object::LAYOUT, &[(l::object::ID, pd)], &[]))
    }

    #[test]
    fn the_domain_of_meters_in_objects_stays_until_they_are_gone() {
        use l::meter_object as m;
        let mut hca = device(BLUEFIELD_2);
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let range = [(l::general_object::LOG_OBJ_RANGE, 6)];
        let tail = body(&m::LAYOUT, &[(m::ACCESS_PD, pd)]);
        let made = run(&mut hca, 0xa00, Type::MeterObjects as u16, &l::general_object::LAYOUT, &range, &tail);
        let meters = id(&made);
        assert_ne!(status(&command(&mut hca, 0xa03, Type::MeterObjects, meters + 1, &[])), 0);
        assert_eq!(freed_domain(&mut hca, pd), Status::ResourceBusy as u8);
        assert_eq!(status(&command(&mut hca, 0xa03, Type::MeterObjects, meters, &[])), 0);
        assert_eq!(freed_domain(&mut hca, pd), 0);
    }

    #[test]
    fn match_definers_are_of_formats_that_the_device_has_and_of_fields_that_are_known() {
        use l::match_definer as d;
        let mut hca = device(Profile { match_definers: 1 << 22, ..CONNECTX_6_DX });
        let given = |format, mask| body(&d::LAYOUT, &[(d::FORMAT_ID, format), (d::MASK_0, mask)]);
        let definer = id(&command(&mut hca, 0xa00, Type::MatchDefiner, 0, &given(22, u64::MAX)));
        let refused = |hca: &mut Hca, tail: &[u8]| status(&command(hca, 0xa00, Type::MatchDefiner, 0, tail));
        for (format, mask) in [(24, 0), (64, 0), (65535, 0)] {
            assert_eq!(refused(&mut hca, &given(format, mask)), Status::BadParameter as u8);
        }
        let queue_pair_type = body(&d::LAYOUT, &[(d::FORMAT_ID, 22), (d::MASK_1, 0x0c00_0000)]);
        assert_eq!(refused(&mut hca, &queue_pair_type), Status::BadParameter as u8);
        let mut larger = given(22, 0);
        larger[0x5f] = 1;
        assert_ne!(refused(&mut hca, &larger), 0, "a word that only larger definers have");
        assert_eq!(status(&command(&mut hca, 0xa02, Type::MatchDefiner, definer, &[])), Status::BadOperation as u8);
        assert!(hca.left().contains(&"1 objects of steering".to_owned()));
        assert_eq!(status(&command(&mut hca, 0xa03, Type::MatchDefiner, definer, &[])), 0);
        assert_eq!(status(&command(&mut hca, 0xa03, Type::MatchDefiner, definer, &[])), Status::BadResource as u8);
        while status(&command(&mut hca, 0xa00, Type::MatchDefiner, 0, &given(22, 0))) == 0 {}
        assert_eq!(refused(&mut hca, &given(22, 0)), Status::LimitExceeded as u8);
    }

    #[test]
    fn connections_come_in_blocks_that_begin_with_zeros_and_the_second_page_says_of_how_many() {
        use l::{connection_tracking as c, general_object as g};
        let mut hca = device(CONNECTX_6_DX);
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let create = |hca: &mut Hca, log, pd, last: u8| {
            let mut tail = body(&c::LAYOUT, &[(c::ACCESS_PD, pd)]);
            tail.resize(tail.len() + tracking::OBJECT - 1, 0);
            tail.push(last);
            run(hca, 0xa00, Type::ConnectionTracking as u16, &g::LAYOUT, &[(g::LOG_OBJ_RANGE, log)], &tail)
        };
        let (first, second) = (id(&create(&mut hca, 6, pd, 0)), id(&create(&mut hca, 20, pd, 0)));
        assert_eq!(second, first + 64);
        for refused in [create(&mut hca, 5, pd, 0), create(&mut hca, 21, pd, 0), create(&mut hca, 6, pd, 1)] {
            assert_eq!(status(&refused), Status::BadParameter as u8);
        }
        assert_eq!(status(&create(&mut hca, 6, pd + 1, 0)), Status::BadResource as u8);
        let changed = command(&mut hca, 0xa01, Type::ConnectionTracking, first, &[0; 0x80]);
        assert_eq!(status(&changed), Status::BadOperation as u8);
        let told = command(&mut hca, 0xa02, Type::ConnectionTracking, first + 63, &[]);
        assert_eq!(c::ACCESS_PD.at(16).read(&told), Some(pd));
        assert_eq!(told[0x50..], [0; tracking::OBJECT]);
        for block in [first, second] {
            assert_eq!(status(&command(&mut hca, 0xa03, Type::ConnectionTracking, block, &[])), 0);
            assert_eq!(
                status(&command(&mut hca, 0xa02, Type::ConnectionTracking, block, &[])),
                Status::BadResource as u8
            );
        }
        let page = |hca: &mut Hca| run(hca, 0x100, 32 << 1 | 1, &l::query_hca_cap::LAYOUT, &[], &[]);
        assert_eq!(page(&mut hca)[0x10 + 0x18..][..4], [0, 6, 20, 24]);
        for profile in [device(CONNECTX_5), initialized(CONNECTX_6_DX)].iter_mut() {
            assert_eq!(status(&page(profile)), Status::BadParameter as u8);
        }
    }

    #[test]
    fn a_device_refuses_types_of_objects_that_it_does_not_say_that_it_has() {
        let has = |profile: Profile| profile.with_software_steering().general_objects();
        assert_eq!(has(CONNECTX_5), 1 << 0x08 | 1 << 0x0a | 1 << 0x0b | 1 << 0x20);
        assert_eq!(has(BLUEFIELD_2), has(CONNECTX_5) | 1 << 0x24 | 1 << 0x25 | 1 << 0x31);
        assert_eq!(has(CONNECTX_6_DX), has(BLUEFIELD_2) | 1 << 0x18 | 1 << 0x23);
        let of_the_kernel = [CONNECTX_5, CONNECTX_6_DX].map(|profile| profile.general_objects());
        assert_eq!(of_the_kernel, [1 << 0x0b, 1 << 0x0b | 1 << 0x20 | 1 << 0x24]);
        let mut hca = device(CONNECTX_5);
        let refused =
            [Type::MatchDefiner, Type::Argument, Type::MeterObjects, Type::FirstHits, Type::ConnectionTracking];
        for kind in refused {
            assert_eq!(status(&command(&mut hca, 0xa00, kind, 0, &[0; 0x40])), Status::BadParameter as u8);
        }
    }
}
