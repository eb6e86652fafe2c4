//! What libmlx5 writes into steering memory, and what becomes of writes that are late.

use sluice_connectx::profile::BLUEFIELD_2;
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Domain, Kind};

use crate::rig::{
    FORMATS, agreeing, comes_out, datagram, device, exactly, five_tuple, open, play, play_in_switch, value,
};

#[test]
fn the_librarys_own_dump_of_a_domain_is_what_the_memory_holds() {
    for profile in FORMATS {
        play(profile, |plugged, context| {
            let domain = Domain::create(context, Kind::Fdb).unwrap();
            let table = domain.table(1).unwrap();
            let (mask, _) = exactly(&five_tuple([10, 0, 0, 2]));
            let matcher = table.matcher(1, &mask).unwrap();
            let to = domain.to_vport(0xffff).unwrap();
            let address = |number: u8| value(&five_tuple([10, 0, 1, number]));
            let _rules: Vec<_> = (0..100).map(|number| matcher.rule(&address(number), &[&to]).unwrap()).collect();
            domain.sync().unwrap();
            let entries = agreeing(plugged, profile, &domain);
            assert!(entries >= 200, "{entries} entries");
        });
    }
}

#[test]
fn a_rule_is_not_there_before_its_writes_are_carried_out() {
    play_in_switch(BLUEFIELD_2, |plugged, _, domain, table| {
        let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
        let matcher = table.matcher(1, &mask).unwrap();
        let to = domain.to_vport(0xffff).unwrap();
        domain.sync().unwrap();
        let arrives = || comes_out(plugged, Port::Vport(0), &datagram([10, 0, 0, 2])) == Some(Port::Wire);
        plugged.device().hold();
        // So few requests that libmlx5 does not wait for them.
        let _rule = matcher.rule(&wanted, &[&to]).unwrap();
        assert!(!arrives());
        let mut steps = 0;
        while plugged.device().step() {
            steps += 1;
        }
        assert!(arrives(), "after {steps} requests");
        assert!(steps >= 4, "an entry for each side, each a write and a read");
        plugged.device().release();
        domain.sync().unwrap();
    });
}

#[test]
fn a_program_that_is_kept_in_step_is_never_ahead_of_the_device() {
    play_in_switch(BLUEFIELD_2, |plugged, _, domain, table| {
        let (mask, _) = exactly(&five_tuple([10, 0, 0, 2]));
        let matcher = table.matcher(1, &mask).unwrap();
        let to = domain.to_vport(0xffff).unwrap();
        plugged.device().keep_in_step();
        for number in 0..100 {
            let _rule = matcher.rule(&value(&five_tuple([10, 0, 1, number])), &[&to]).unwrap();
            // While another test opens a device, letting go of a lock tells none.
            plugged.device().posted();
            assert!(!plugged.device().step(), "a request of rule {number} was left");
        }
    });
}

#[test]
fn a_write_that_fails_fails_rules_and_the_library_comes_to_an_end_once_it_hears_that_the_device_is_ill() {
    const DEVICE_FATAL: u32 = 8;
    const NOTICED_WITHIN: u8 = 32;
    for profile in FORMATS {
        println!("on {}", profile.name);
        let plugged = device(profile);
        let context = open(&plugged);
        {
            let domain = Domain::create(&context, Kind::Fdb).unwrap();
            let table = domain.table(1).unwrap();
            let (mask, _) = exactly(&five_tuple([10, 0, 0, 2]));
            // Of each matcher one rule: an error that libmlx5 notices while a table grows is swallowed, and the table is given back twice.
            let matchers: Vec<_> =
                (0..NOTICED_WITHIN).map(|priority| table.matcher(priority.into(), &mask).unwrap()).collect();
            let to = domain.to_vport(0xffff).unwrap();
            let rule = |number: u8| matchers[usize::from(number)].rule(&value(&five_tuple([10, 0, 1, number])), &[&to]);
            let _before = rule(0).unwrap();
            domain.sync().unwrap();
            plugged.device().with(|hca| hca.fail_write(1));
            // The library looks for completions only when eight requests are out, so that some rules are made past the error.
            let mut made = Vec::new();
            let error = (1..NOTICED_WITHIN).find_map(|number| match rule(number) {
                Ok(rule) => {
                    made.push(rule);
                    None
                }
                Err(error) => Some(error),
            });
            println!("after {} rules: {error:?}", made.len());
            assert!(error.is_some(), "no rule failed");
            // It would wait for ever for requests that came back with errors, of which it counts none as done. Of a device that is ill
            // it waits for nothing any more.
            plugged.device().tell_fatal().unwrap();
            assert_eq!(context.event().unwrap(), DEVICE_FATAL);
        }
        drop(context);
        assert_eq!(plugged.device().left(), Vec::<String>::new());
        let complaints = plugged.device().with(|hca| hca.complaints().to_vec());
        assert!(complaints[0].ends_with("a write that was to fail"), "{complaints:?}");
        assert_eq!(complaints.len(), 1, "{complaints:?}");
    }
}
