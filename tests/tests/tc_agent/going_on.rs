//! A kernel that hands a packet which missed in a later chain of tc to Open vSwitch at that recirculation id (`CONFIG_NET_TC_SKB_EXT`).

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use serde_json::Value;
use sluice_feed_ovs::Kernel;
use sluice_feed_ovs::wire::Datapath;
use sluice_tests::daemon::Daemon;
use sluice_tests::lab::OffloadingVswitchd;
use sluice_tests::lab::switch::{CLIENT, Switch, eventually, run, sluice};
use sluice_tests::openvswitch::set_features;

use crate::source::{KEYS, SOURCE, TABLE, ours, start_with_feedback};
use crate::stream;

/// The port that the client's address seems to send from.
const TRANSLATED: u16 = 7000;

/// Whether this kernel is such a one.
pub(crate) fn is_possible() -> bool {
    Command::new("zgrep")
        .args(["-qx", "CONFIG_NET_TC_SKB_EXT=y", "/proc/config.gz"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|it| it.success())
}

pub(crate) fn translated_connections_have_rules_and_what_misses_goes_on_in_ovs_where_it_missed() {
    run("modprobe --all openvswitch act_ct");
    let switch = Switch::set_up();
    let mut vswitchd = start_with_feedback(&switch, "hw-offload=false min-revalidate-pps=0");
    translate(&vswitchd);
    let daemon = switch.start_on::<&str>(&[], KEYS, TABLE);
    eventually("ovs-vswitchd hears what is counted", || daemon.log().contains("adds what is counted here"));
    let show = sluice(&daemon, &["show"]);
    assert!(show.contains("a packet that misses in a later chain goes on in Open vSwitch"), "{show}");

    // The first packet of each state of the connection misses where the rules of the first chain have sent it, translated.
    let mut sent = stream::sent_from(SOURCE, 20);
    eventually("packets of a new connection have rules in both chains", || in_place(&daemon, "client") == 2);
    sent += stream::sent_from(SOURCE, 5);
    sent += talk(30);
    eventually("packets of the connection have rules, too", || in_place(&daemon, "server") == 2);
    eventually("OpenFlow has counted what was sent so far", || counted(&vswitchd) == sent);
    let misses = daemon.metric("sluice_chain_misses_total").unwrap();
    let before = counts(&daemon);
    sent += talk(50);
    eventually("the rules have forwarded all of them", || counts(&daemon) == before.map(|packets| packets + 50));
    assert!(misses >= 1.0, "packets had missed in later chains");
    assert_eq!(daemon.metric("sluice_chain_misses_total"), Some(misses));
    assert!(!sluice(&daemon, &["show"]).contains("have missed in later chains"), "none was counted twice");
    eventually("OpenFlow has counted each packet once", || counted(&vswitchd) == sent);
    assert_eq!(connections(), 1, "no packet has begun again as one of another connection");

    // An ovs-vswitchd that starts deletes its flows, and leaves its datapath asked for it.
    vswitchd.kill_and_start();
    translate(&vswitchd);
    eventually("the connection goes on", || stream::talk(SOURCE, 1) == 1);
    talk(30);
    eventually("packets of the connection have rules again", || in_place(&daemon, "server") == 2);
    assert_eq!(connections(), 1);
    assert!(!daemon.log().contains("is asked again"));

    // Another program may take that back.
    let datapath = || Kernel::open().unwrap().datapaths().unwrap().remove(0);
    let Datapath { index, features, .. } = datapath();
    assert!(datapath().shares_recirculation());
    set_features(index, features.unwrap() & !Datapath::RECIRC_SHARING);
    eventually("the datapath is asked again", || datapath().features == features);
    eventually("the log says so", || daemon.log().contains("is asked again"));
    talk(30);
    assert_eq!(connections(), 1);
}

/// Has a connection of the client seem to be from another port. Whatever comes without one is dropped.
pub(crate) fn translate(vswitchd: &OffloadingVswitchd) {
    for rule in [
        "table=0,udp,ct_state=-trk,actions=ct(zone=7,nat,table=1)".to_owned(),
        format!(
            "cookie=1,table=1,udp,in_port=client,ct_state=+trk+new,actions=ct(commit,zone=7,nat(src={CLIENT}:{TRANSLATED})),output:server"
        ),
        format!("cookie=1,table=1,udp,in_port=client,tp_src={TRANSLATED},ct_state=+trk+est,actions=output:server"),
        format!("table=1,udp,in_port=server,tp_dst={SOURCE},ct_state=+trk+est,actions=output:client"),
    ] {
        vswitchd.set_rule(&rule);
    }
}

/// All datagrams and their answers come through.
pub(crate) fn talk(count: u64) -> u64 {
    assert_eq!(stream::talk(SOURCE, count), count);
    count
}

/// In how many of the two chains packets from a port have a rule.
pub(crate) fn in_place(daemon: &Daemon, port: &str) -> usize {
    let words = [format!("in_port({port})"), "proto=17".to_owned()];
    let is_one = |flow: &&Value| flow["state"] == "partial" && words.iter().all(|word| key(flow).contains(word));
    let flows = ours(daemon);
    let chains: BTreeSet<_> = flows.iter().filter(is_one).map(|flow| key(flow).starts_with("recirc_id(0)")).collect();
    chains.len()
}

fn key(flow: &Value) -> &str {
    flow["key"].as_str().unwrap()
}

/// Packets that the rules of an established connection have forwarded, from either port.
pub(crate) fn counts(daemon: &Daemon) -> [u64; 2] {
    ["client", "server"].map(|port| {
        let words = [format!("in_port({port})"), "+est".to_owned()];
        let flows = ours(daemon);
        let of_it = flows.iter().filter(|flow| words.iter().all(|word| key(flow).contains(word)));
        of_it.map(|flow| flow["packets"].as_u64().unwrap()).sum()
    })
}

/// Packets of the client that OpenFlow has counted behind the recirculation.
pub(crate) fn counted(vswitchd: &OffloadingVswitchd) -> u64 {
    let rules = vswitchd.rules();
    let counts = rules.lines().filter(|line| line.contains("cookie=0x1,")).map(|line| {
        let digits = line.split("n_packets=").nth(1).unwrap().split(',').next().unwrap();
        digits.parse::<u64>().unwrap()
    });
    counts.sum()
}

/// Connections over UDP that the kernel knows.
pub(crate) fn connections() -> usize {
    run("conntrack -L -p udp").lines().count()
}
