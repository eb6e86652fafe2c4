//! Meters of an Open vSwitch: of one that nobody has changed, and of an Open vSwitch 4.0 that is built with our provider.

use sluice_tests::daemon::Daemon;
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::lab::switch::{Switch, eventually, run};

use crate::handed_over::{self, counted, is_forwarded, is_shown_as};
use crate::source::{self, SOURCE};
use crate::stream::{self, Stream};

/// More than the lab ever sends.
const PLENTY: &str = "meter=1,pktps,burst,bands=type=drop,rate=1000000,burst_size=1000000";
const SCARCE: &str = "meter=1,pktps,burst,bands=type=drop,rate=10,burst_size=10";
/// How often a rate is changed under traffic. Each takes a program of Open vSwitch.
const CHANGES: usize = 20;
const PORTS: &[&str] = &["client", "server"];

pub(crate) fn meters_that_ovs_hands_over_limit_in_the_device_and_are_counted_in_openflow() {
    run("modprobe --all openvswitch act_police");
    let switch = Switch::set_up();
    let vswitchd = handed_over::start_ovs(&switch, PORTS);
    let is_in_device = |daemon: &Daemon| is_shown_as(&vswitchd, "dp:sluice") && is_forwarded(daemon);
    let daemon = limit(&switch, &vswitchd, handed_over::TABLE, &is_in_device);

    // What it has counted is not taken back when an operator takes its number.
    vswitchd.meter("add-meter", PLENTY);
    set_metered_rules(&vswitchd);
    let mut sent = 0;
    eventually("the flow is in the device", || {
        sent += stream::sent_from(SOURCE, 1);
        is_in_device(&daemon)
    });
    sent += stream::sent_from(SOURCE, 50);
    eventually("the meter has counted all", || metered(&vswitchd)[0] == sent);
    let shown = daemon.sluice(&["show-meters"]).out;
    let number = shown.split_once("meter:").unwrap().1.split(',').next().unwrap();
    assert_eq!(daemon.sluice(&["add-meter", number, "--pps=3"]).code, Some(0));
    eventually("the flow has no rule any more", || !is_forwarded(&daemon));
    assert!(metered(&vswitchd)[0] >= sent);
}

/// The kernel tells nobody at which rate a meter limits, so that the library in ovs-vswitchd does.
pub(crate) fn meters_of_an_ovs_in_front_limit_in_the_device_and_are_counted_in_openflow() {
    run("modprobe --all openvswitch act_police");
    let switch = Switch::set_up();
    let mut vswitchd = source::start_with_feedback(&switch, "hw-offload=false min-revalidate-pps=0 max-idle=3600000");
    let daemon = limit(&switch, &vswitchd, source::TABLE, &|daemon| is_forwarded(daemon));

    // One that is gone says no more what limits, and the next one begins anew.
    let has = |rate: &str| daemon.sluice(&["show-meters"]).out.contains(rate);
    vswitchd.meter("add-meter", PLENTY);
    eventually("the device has the meter", || has("rate:1000000,"));
    vswitchd.kill();
    eventually("the device has none", || !has("meter:"));
    vswitchd.start_again();
    vswitchd.meter("add-meter", SCARCE);
    set_metered_rules(&vswitchd);
    eventually("the flow has a rule with the other rate", || {
        stream::some_from(SOURCE, 1);
        is_forwarded(&daemon) && has("rate:10,")
    });
    assert!((0..30).contains(&stream::some_from(SOURCE, 50)), "nothing is limited");
}

/// Has the device limit packets of a flow, and looks whether each is counted.
fn limit(
    switch: &Switch,
    vswitchd: &OffloadingVswitchd,
    table: &str,
    is_in_device: &dyn Fn(&Daemon) -> bool,
) -> Daemon {
    vswitchd.meter("add-meter", PLENTY);
    set_metered_rules(vswitchd);
    let daemon = source::start(switch, table);
    let mut sent = stream::sent_from(SOURCE, 20);
    eventually("the flow has a rule", || {
        sent += stream::sent_from(SOURCE, 1);
        is_in_device(&daemon)
    });
    sent += stream::sent_from(SOURCE, 50);
    eventually("OpenFlow has counted each packet once", || counted(vswitchd) == sent);
    eventually("so has the meter", || metered(vswitchd) == [sent, 0]);

    // Another rate is that of the rule.
    vswitchd.meter("mod-meter", SCARCE);
    eventually("the device has it", || daemon.sluice(&["show-meters"]).out.contains("rate:10,"));
    // The kernel's datapath has begun anew with its own count.
    let [reached, dropped] = metered(vswitchd);
    let passed = stream::some_from(SOURCE, 50);
    assert!((1..30).contains(&passed), "{passed} of 50 have passed");
    let counted = [reached + 50, dropped + 50 - passed];
    eventually("the meter has counted what it has dropped", || metered(vswitchd) == counted);

    // As often as it is changed, no packet of a stream is lost by it.
    vswitchd.meter("mod-meter", PLENTY);
    eventually("the device has it", || daemon.sluice(&["show-meters"]).out.contains("rate:1000000,"));
    let stream = Stream::start();
    (0..CHANGES)
        .for_each(|change| vswitchd.meter("mod-meter", &PLENTY.replace("rate=1", &format!("rate={}", 1 + change % 2))));
    stream.end_without_loss();
    assert!(is_forwarded(&daemon), "the flow has no rule any more");

    count_on(switch, vswitchd, daemon, (table, is_in_device))
}

/// What a meter has counted goes on with the next agent, and it goes with its flows.
fn count_on(
    switch: &Switch,
    vswitchd: &OffloadingVswitchd,
    mut daemon: Daemon,
    (table, is_in_device): (&str, &dyn Fn(&Daemon) -> bool),
) -> Daemon {
    let mut before = metered(vswitchd);
    eventually("all is counted", || std::mem::replace(&mut before, metered(vswitchd)) == before);
    daemon.signal("KILL");
    daemon.wait();
    let daemon = source::start(switch, table);
    let mut more = 0;
    eventually("the flow is in the device again", || {
        more += stream::sent_from(SOURCE, 1);
        is_in_device(&daemon)
    });
    more += stream::sent_from(SOURCE, 20);
    eventually("the meter has counted on", || metered(vswitchd) == [before[0] + more, before[1]]);

    vswitchd.meter("del-meter", "meter=1");
    eventually("the meter is gone", || !daemon.sluice(&["show-meters"]).out.contains("meter:"));
    eventually("so is its rule", || !is_forwarded(&daemon));
    assert_eq!(run("tc actions list action police").lines().filter(|line| line.contains("police")).count(), 0);
    daemon
}

fn set_metered_rules(vswitchd: &OffloadingVswitchd) {
    vswitchd.set_metered_rule(&format!("udp,in_port=client,tp_src={SOURCE},actions=meter:1,output:server"));
    vswitchd.set_metered_rule("priority=1,udp,in_port=client,actions=meter:1,output:server");
}

/// Packets that have reached the meter, and those that it has dropped.
fn metered(vswitchd: &OffloadingVswitchd) -> [u64; 2] {
    let told = vswitchd.meter_counters();
    let after = |what: &str| told.split_once(what).and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    ["packet_in_count:", "0: packet_count:"].map(|what| after(what).unwrap_or_else(|| panic!("no {what} in {told}")))
}
