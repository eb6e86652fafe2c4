//! What a program tunes of domains and matchers: rules that are there twice, and memory that goes back to the device.

use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Domain, Kind};

use crate::rig::{FORMATS, comes_out, datagram, exactly, five_tuple, play, play_in_switch, value};

#[test]
fn of_a_rule_that_is_there_twice_the_first_acts_until_it_is_gone() {
    for profile in FORMATS {
        play_in_switch(profile, |plugged, _, domain, table| {
            let (wire, host) = (domain.to_vport(0xffff).unwrap(), domain.to_vport(0).unwrap());
            let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
            let matcher = table.matcher(0, &mask).unwrap();
            let port = || {
                domain.sync().unwrap();
                let ports = [Port::Wire, Port::Vport(0)].map(|from| comes_out(plugged, from, &datagram([10, 0, 0, 2])));
                assert_eq!(ports[0], ports[1]);
                ports[0].unwrap()
            };
            let first = matcher.rule(&wanted, &[&wire]).unwrap();
            let second = matcher.rule(&wanted, &[&host]).unwrap();
            assert_eq!(port(), Port::Wire);
            drop(first);
            assert_eq!(port(), Port::Vport(0), "the other one is left");
            let third = matcher.rule(&wanted, &[&wire]).unwrap();
            assert_eq!(port(), Port::Vport(0), "it was there before");
            drop(third);
            assert_eq!(port(), Port::Vport(0));
            drop(second);
            assert_eq!(port(), Port::Vport(profile.own_vport()), "none is left");
        });
    }
}

#[test]
fn a_domain_that_allows_no_duplicates_refuses_them_and_keeps_what_is_there() {
    const EXISTS: i32 = 17;
    for profile in FORMATS {
        play_in_switch(profile, |plugged, _, domain, table| {
            let (wire, host) = (domain.to_vport(0xffff).unwrap(), domain.to_vport(0).unwrap());
            let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
            let (matcher, behind) = (table.matcher(0, &mask).unwrap(), table.matcher(1, &mask).unwrap());
            let arrives = || {
                domain.sync().unwrap();
                comes_out(plugged, Port::Vport(0), &datagram([10, 0, 0, 2]))
            };
            domain.allow_duplicate_rules(false);
            let first = matcher.rule(&wanted, &[&wire]).unwrap();
            let error = matcher.rule(&wanted, &[&host]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(EXISTS));
            let _other = matcher.rule(&value(&five_tuple([10, 0, 0, 3])), &[&host]).unwrap();
            let _same_in_another = behind.rule(&wanted, &[&host]).unwrap();
            assert_eq!(arrives(), Some(Port::Wire));
            drop(first);
            assert_eq!(arrives(), Some(Port::Vport(0)), "of the rule that was refused nothing is left in front");
            domain.allow_duplicate_rules(true);
            let _first = matcher.rule(&wanted, &[&wire]).unwrap();
            let _second = matcher.rule(&wanted, &[&host]).unwrap();
            assert_eq!(arrives(), Some(Port::Wire));
        });
    }
}

#[test]
fn memory_that_nothing_is_left_in_goes_back_to_the_device_if_it_is_reclaimed() {
    for profile in FORMATS {
        play(profile, |plugged, context| {
            let domain = Domain::create(context, Kind::Fdb).unwrap();
            let held = || plugged.device().with(|hca| hca.steering().memory_handed_out());
            let fill_and_empty = || {
                let table = domain.table(1).unwrap();
                let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
                let matcher = table.matcher(0, &mask).unwrap();
                let to = domain.to_vport(0xffff).unwrap();
                let _rule = matcher.rule(&wanted, &[&to]).unwrap();
                domain.sync_memory().unwrap();
                assert!(held() > 0, "there is a rule in it");
            };
            assert_eq!(held(), 0);
            fill_and_empty();
            let once = held();
            domain.sync_memory().unwrap();
            assert_eq!(held(), once, "the library keeps it for other tables");
            fill_and_empty();
            assert_eq!(held(), once, "which get it again");
            domain.reclaim_device_memory(true);
            fill_and_empty();
            assert_eq!(held(), once, "the device may still be at it");
            domain.sync_memory().unwrap();
            assert_eq!(held(), 0);
            domain.reclaim_device_memory(false);
            fill_and_empty();
            domain.sync_memory().unwrap();
            assert_eq!(held(), once);
        });
    }
}
