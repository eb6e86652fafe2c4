//! Meters of an Open vSwitch 4.0 that is built with our provider.

use sluice_tests::daemon::Daemon;
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::lab::switch::{Switch, eventually, run};

use crate::handed_over::{TABLE, counted, is_forwarded, is_shown_as, start_ovs};
use crate::source::{self, SOURCE};
use crate::stream::{self, Stream};

/// More than the lab ever sends.
const PLENTY: &str = "meter=1,pktps,burst,bands=type=drop,rate=1000000,burst_size=1000000";
const SCARCE: &str = "meter=1,pktps,burst,bands=type=drop,rate=10,burst_size=10";
const CHANGES: usize = 100;

pub(crate) fn meters_that_ovs_hands_over_limit_in_the_device_and_are_counted_in_openflow() {
    run("modprobe --all openvswitch act_police");
    let switch = Switch::set_up();
    let vswitchd = start_ovs(&switch, &["client", "server"]);
    vswitchd.meter("add-meter", PLENTY);
    vswitchd.set_metered_rule(&format!("udp,in_port=client,tp_src={SOURCE},actions=meter:1,output:server"));
    vswitchd.set_metered_rule("priority=1,udp,in_port=client,actions=meter:1,output:server");
    let daemon = source::start(&switch, TABLE);
    let mut sent = stream::sent_from(SOURCE, 20);
    eventually("the flow has a rule", || {
        sent += stream::sent_from(SOURCE, 1);
        is_shown_as(&vswitchd, "dp:sluice") && is_forwarded(&daemon)
    });
    sent += stream::sent_from(SOURCE, 50);
    eventually("OpenFlow has counted each packet once", || counted(&vswitchd) == sent);
    eventually("so has the meter", || metered(&vswitchd) == [sent, 0]);

    // Another rate is that of the rule.
    vswitchd.meter("mod-meter", SCARCE);
    eventually("the device has it", || daemon.sluice(&["show-meters"]).out.contains("rate:10,"));
    // The kernel's datapath has begun anew with its own count.
    let [reached, dropped] = metered(&vswitchd);
    let passed = stream::some_from(SOURCE, 50);
    assert!((1..30).contains(&passed), "{passed} of 50 have passed");
    let counted = [reached + 50, dropped + 50 - passed];
    eventually("the meter has counted what it has dropped", || metered(&vswitchd) == counted);

    // As often as it is changed, no packet of a stream is lost by it.
    vswitchd.meter("mod-meter", PLENTY);
    eventually("the device has it", || daemon.sluice(&["show-meters"]).out.contains("rate:1000000,"));
    let stream = Stream::start();
    (0..CHANGES)
        .for_each(|change| vswitchd.meter("mod-meter", &PLENTY.replace("rate=1", &format!("rate={}", 1 + change % 2))));
    stream.end_without_loss();
    assert!(is_forwarded(&daemon), "the flow has no rule any more");

    count_on(&switch, &vswitchd, daemon);
}

/// What a meter has counted goes on with the next agent, and it goes with its flows.
fn count_on(switch: &Switch, vswitchd: &OffloadingVswitchd, mut daemon: Daemon) {
    let mut before = metered(vswitchd);
    eventually("all is counted", || std::mem::replace(&mut before, metered(vswitchd)) == before);
    daemon.signal("KILL");
    daemon.wait();
    let daemon = source::start(switch, TABLE);
    let mut more = 0;
    eventually("the flow has left the datapath again", || {
        more += stream::sent_from(SOURCE, 1);
        is_shown_as(vswitchd, "dp:sluice")
    });
    more += stream::sent_from(SOURCE, 20);
    eventually("the meter has counted on", || metered(vswitchd) == [before[0] + more, before[1]]);

    vswitchd.meter("del-meter", "meter=1");
    eventually("the meter is gone", || !daemon.sluice(&["show-meters"]).out.contains("meter:"));
    eventually("so is its rule", || !is_forwarded(&daemon));
    assert_eq!(run("tc actions list action police").lines().filter(|line| line.contains("police")).count(), 0);
}

/// Packets that have reached the meter, and those that it has dropped.
fn metered(vswitchd: &OffloadingVswitchd) -> [u64; 2] {
    let told = vswitchd.meter_counters();
    let after = |what: &str| told.split_once(what).and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    ["packet_in_count:", "0: packet_count:"].map(|what| after(what).unwrap_or_else(|| panic!("no {what} in {told}")))
}
