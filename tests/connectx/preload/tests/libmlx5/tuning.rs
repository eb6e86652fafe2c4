//! What a program tunes of domains and matchers: rules that are there twice, memory that goes back to the device, sizes of tables.

use sluice_connectx::profile::{CONNECTX_6_DX, CONNECTX_7, Profile};
use sluice_connectx::steering::{Port, Step};
use sluice_connectx_preload::Plugged;
use sluice_libmlx5::dv::{Domain, Kind, Layout, Matcher, Table};

use crate::rig::field::{self as f, Field};
use crate::rig::{FORMATS, agreeing, comes_out, datagram, exactly, five_tuple, play, play_in_switch, value, walk};

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

/// The entries of definers that a packet visits.
fn visited(plugged: &Plugged, number: u8) -> Vec<u64> {
    let walk = walk(plugged, Port::Wire, &datagram([10, 0, 1, number]));
    assert_eq!(walk.sent.first().map(|(port, _)| *port), Some(Port::Vport(0)), "10.0.1.{number}");
    let entries = walk.steps.iter().filter_map(|step| match step {
        Step::Entry(entry) if entry.lookup > 0x40f => Some(entry.address),
        _ => None,
    });
    entries.collect()
}

/// A matcher with such a layout, some rules, and of each how its packet finds it; then, with every other rule gone.
fn laid_out(profile: Profile, layout: Option<Layout>, rules: u8, story: impl FnOnce(&[Vec<u64>], &[Vec<u64>])) {
    play_in_switch(profile, |plugged, _, domain, table| {
        let to = domain.to_vport(0).unwrap();
        let of = |number: u8| value(&five_tuple([10, 0, 1, number]));
        let matcher = table.matcher(0, &exactly(&five_tuple([0; 4])).0).unwrap();
        layout.into_iter().for_each(|layout| matcher.set_layout(layout).unwrap());
        let first = matcher.rule(&of(0), &[&to]).unwrap();
        domain.sync().unwrap();
        let alone = visited(plugged, 0);
        let rest: Vec<_> = (1..rules).map(|number| matcher.rule(&of(number), &[&to]).unwrap()).collect();
        domain.sync().unwrap();
        assert!(agreeing(plugged, profile, domain) >= 2 * usize::from(rules));
        let ways: Vec<_> = (0..rules).map(|number| visited(plugged, number)).collect();
        story(&[alone], &ways);
        let left: Vec<_> = rest.into_iter().enumerate().filter(|(number, _)| number % 2 == 1).collect();
        domain.sync().unwrap();
        for (number, _) in &left {
            visited(plugged, u8::try_from(number + 1).unwrap());
        }
        let gone = comes_out(plugged, Port::Wire, &datagram([10, 0, 1, 1]));
        assert_eq!(gone, Some(Port::Vport(profile.own_vport())));
        drop(first);
    });
}

#[test]
fn a_table_of_fixed_size_keeps_it_and_one_that_grows_does_not() {
    const RULES: u8 = 200;
    const SLOTS: u32 = 2;
    let longest = |ways: &[Vec<u64>]| ways.iter().map(Vec::len).max().unwrap();
    for profile in [CONNECTX_6_DX, CONNECTX_7] {
        let layout = Layout { resizable: false, log_rules: Some(SLOTS) };
        let in_chain = usize::from(RULES) >> SLOTS;
        laid_out(profile, Some(layout), RULES, |_, ways| assert!(longest(ways) >= in_chain, "{}", longest(ways)));
        let layout = Layout { resizable: true, ..layout };
        laid_out(profile, Some(layout), RULES, |_, ways| assert!(longest(ways) < in_chain / 2, "{}", longest(ways)));
    }
}

#[test]
fn with_room_for_all_rules_from_the_start_none_has_to_move() {
    const RULES: u8 = 200;
    for profile in [CONNECTX_6_DX, CONNECTX_7] {
        laid_out(profile, None, RULES, |alone, ways| assert_ne!(alone[0], ways[0], "the table has grown"));
        for resizable in [false, true] {
            let layout = Layout { resizable, log_rules: Some(12) };
            laid_out(profile, Some(layout), RULES, |alone, ways| assert_eq!(alone[0], ways[0]));
        }
    }
}

#[test]
fn only_matchers_of_one_definer_are_laid_out() {
    const NOT_SUPPORTED: i32 = 95;
    let layout = Layout { resizable: true, log_rules: Some(4) };
    let both_v6 = [(f::IP_VERSION, 6), (f::SOURCE_V6, 1), (f::DESTINATION_V6, 2)];
    let not_in_one = [(f::IP_VERSION, 4), (f::DSCP, 1), (f::SOURCE_V4, 1)];
    for profile in FORMATS {
        play(profile, |_, context| {
            let domain = Domain::create(context, Kind::Fdb).unwrap();
            let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
            let fails = |matcher: &Matcher<'_>, layout: Layout| {
                assert_eq!(matcher.set_layout(layout).unwrap_err().raw_os_error(), Some(NOT_SUPPORTED));
            };
            let of = |table: &Table<'_>, fields: &[(Field, u128)]| {
                fails(&table.matcher(0, &exactly(fields).0).unwrap(), layout)
            };
            of(&root, &five_tuple([0; 4]));
            of(&table, &both_v6);
            of(&table, &not_in_one);
            let good = table.matcher(0, &exactly(&five_tuple([0; 4])).0).unwrap();
            // 2^23 entries are more than the device has memory for.
            fails(&good, Layout { log_rules: Some(23), ..layout });
            if profile == CONNECTX_7 {
                good.set_layout(layout).unwrap();
            } else {
                fails(&good, layout);
            }
        });
    }
}
