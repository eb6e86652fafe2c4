//! What every program does: list, open, ask, allocate, and close.

use sluice_connectx::profile::{
    BLUEFIELD_2, BLUEFIELD_2_HOST, CONNECTX_6_DX, CONNECTX_6_DX_FIRMWARE_STEERING, CONNECTX_6_DX_NO_ESWITCH,
};
use sluice_connectx_preload::plug;
use sluice_connectx_uverbs::Privileges;
use sluice_libmlx5::dv::{Domain, Kind, Match, Object, Uar, command};
use sluice_libmlx5::verbs::{Context, devices};

use crate::rig::{GENERATIONS, device, exactly, five_tuple, open, play};

#[test]
fn a_device_is_listed_opened_and_asked_and_leaves_nothing() {
    for profile in GENERATIONS {
        play(profile, |plugged, context| {
            assert!(devices().unwrap().contains(&plugged.name()));
            let attributes = context.attributes().unwrap();
            let (major, minor, subminor) = profile.firmware;
            assert_eq!(attributes.firmware, format!("{major}.{minor}.{subminor:04}"));
            assert_eq!((attributes.vendor, attributes.part), (0x15b3, u32::from(profile.device_id)));
            assert!(attributes.ports >= 1);
            let mut memory = vec![0; 10_000];
            let domain = context.protection_domain().unwrap();
            let region = domain.register(&mut memory).unwrap();
            assert_eq!(region.keys().0, region.keys().1);
            let queue = context.completion_queue(100).unwrap();
            assert_eq!(queue.room(), 127);
            Uar::allocate(context).unwrap();
        });
    }
}

#[test]
fn a_device_that_is_unplugged_is_listed_no_more() {
    // Without any device there is no list.
    let _other = device(BLUEFIELD_2);
    let plugged = device(CONNECTX_6_DX);
    let name = plugged.name();
    drop(plugged);
    assert!(!devices().unwrap().contains(&name));
    assert!(Context::open(&name).is_err());
}

#[test]
fn what_a_program_leaves_is_destroyed_when_it_closes_and_told() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    std::mem::forget(context.protection_domain().unwrap());
    drop(context);
    let left = plugged.device().left();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].starts_with("PD 0x") && left[0].ends_with("of a context that was closed"), "{left:?}");
}

#[test]
fn commands_that_are_not_for_programs_or_not_modelled_are_refused_and_told() {
    let plugged = device(BLUEFIELD_2);
    let context = open(&plugged);
    // DESTROY_MKEY of somebody else's, and making an object of an unknown kind.
    let mut input = [0; 16];
    input[..2].copy_from_slice(&0x202_u16.to_be_bytes());
    assert!(command(&context, &input, 16).is_err());
    input[..2].copy_from_slice(&0x904_u16.to_be_bytes());
    assert!(Object::create(&context, &input, 16).is_err());
    input[..2].copy_from_slice(&0xa00_u16.to_be_bytes());
    input[7] = 0x2c;
    assert!(Object::create(&context, &input, 16).is_err());
    let refusals = plugged.device().refusals();
    let told = |words: &str| assert!(refusals.iter().any(|refusal| refusal.contains(words)), "{refusals:#?}");
    told("DEVX_OTHER refused with EINVAL: DESTROY_MKEY is not for programs");
    told("CREATE_SQ refused with status 0x50");
    told("general objects of type 0x2c are not modelled");
    drop(context);
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn without_privileges_there_is_no_steering_memory() {
    let plugged = plug(BLUEFIELD_2, Privileges::NONE).unwrap();
    let context = open(&plugged);
    {
        let domain = Domain::create(&context, Kind::Fdb).unwrap();
        assert!(domain.table(1).is_err());
        assert!(domain.table(0).unwrap().matcher(0, &Match::default()).is_err());
    }
    drop(context);
    let refusals = plugged.device().refusals();
    for words in ["steering memory needs CAP_NET_RAW and CAP_SYS_RAWIO", "flows need CAP_NET_RAW"] {
        assert!(refusals.iter().any(|refusal| refusal.contains(words)), "{refusals:#?}");
    }
    assert_eq!(plugged.device().left(), Vec::<String>::new());
}

#[test]
fn a_function_that_does_not_manage_the_switch_has_no_tables_there() {
    for profile in [CONNECTX_6_DX_NO_ESWITCH, BLUEFIELD_2_HOST] {
        play(profile, |_, context| {
            let switch = Domain::create(context, Kind::Fdb).unwrap();
            assert!(switch.table(1).is_err());
            let own = Domain::create(context, Kind::NicReceive).unwrap();
            let table = own.table(1).unwrap();
            let (mask, _) = exactly(&five_tuple([10, 0, 0, 2]));
            table.matcher(0, &mask).unwrap();
        });
    }
}

#[test]
fn a_device_without_software_steering_has_the_kernels_tables_only() {
    play(CONNECTX_6_DX_FIRMWARE_STEERING, |_, context| {
        let domain = Domain::create(context, Kind::NicReceive).unwrap();
        assert!(domain.table(1).is_err());
        let (mask, _) = exactly(&five_tuple([10, 0, 0, 2]));
        domain.table(0).unwrap().matcher(0, &mask).unwrap();
    });
}
