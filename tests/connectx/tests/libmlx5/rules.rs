//! Tables, rules and packets, on every generation.

use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::{Action, Domain, Kind, Match};

use crate::rig::{GENERATIONS, comes_out, counters, datagram, exactly, five_tuple, play, read_counter, value};

#[test]
fn a_rule_counts_and_forwards_what_it_matches_and_nothing_else() {
    for profile in GENERATIONS {
        play(profile, |plugged, context| {
            let domain = Domain::create(context, Kind::Fdb).unwrap();
            let (root, table) = (domain.table(0).unwrap(), domain.table(1).unwrap());
            let all = root.matcher(0, &Match::default()).unwrap();
            let to_table = Action::to_table(&table).unwrap();
            let _jump = all.rule(&Match::default(), &[&to_table]).unwrap();
            let (block, first) = counters(context, 3);
            let (count, to) = (Action::count(&block, 5).unwrap(), domain.to_vport(0xffff).unwrap());
            let end = Action::drop_packets().unwrap();
            let (mask, wanted) = exactly(&five_tuple([10, 0, 0, 2]));
            let matcher = table.matcher(1, &mask).unwrap();
            let _forwarding = matcher.rule(&wanted, &[&count, &to]).unwrap();
            let _dropping = matcher.rule(&value(&five_tuple([10, 0, 0, 3])), &[&end]).unwrap();
            domain.sync().unwrap();

            let manager = Port::Vport(profile.own_vport());
            for (number, from) in [Port::Wire, Port::Vport(0)].into_iter().enumerate() {
                let frame = datagram([10, 0, 0, 2]);
                assert_eq!(comes_out(plugged, from, &frame), Some(Port::Wire));
                let read = read_counter(&block, first + 5);
                let packets = number as u64 + 1;
                assert_eq!((read.packets, read.octets), (packets, packets * frame.len() as u64));
                assert_eq!(comes_out(plugged, from, &datagram([10, 0, 0, 3])), None);
                assert_eq!(comes_out(plugged, from, &datagram([10, 0, 0, 4])), Some(manager), "the default");
            }
            assert_eq!(read_counter(&block, first + 4).packets, 0);
        });
    }
}
