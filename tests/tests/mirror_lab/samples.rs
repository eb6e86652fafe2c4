//! Samples of the kernel, as a mirror in hardware gives them.

use std::time::Duration;

use sluice_control::mirror::Class;
use sluice_flow::Ufid;
use sluice_mirror::source::psample::SampleSource;
use sluice_mirror::source::{Batching, Source};
use sluice_mirror::wire::Cause;
use sluice_mirror::wire::frames::frames as frames_of;
use sluice_tests::daemon::Daemon;

use sluice_tests::lab::run;
use tokio::sync::watch;

use crate::lab::{local, play};
use crate::stories;
use crate::wires::{frames, plan, wire};

stories![
    samples_carry_the_frame_its_port_and_the_ufid_of_the_flow_and_those_that_are_lost_are_counted,
    samples_that_flows_of_the_agent_take_name_the_flow,
    samples_of_a_device_that_is_made_anew_under_its_name_name_its_port,
];

const GROUP: u32 = 18;
const UFID: u128 = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;

/// Whether the kernel gives samples the cookie of their action, which it does from 6.11 on.
fn has_cookies() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(11))
}

fn samples_carry_the_frame_its_port_and_the_ufid_of_the_flow_and_those_that_are_lost_are_counted() {
    play(async {
        run("modprobe --all psample act_sample cls_matchall sch_ingress");
        let local = local(1, 64);
        let wire = wire("tap5");
        run("tc qdisc add dev tap5 clsact");
        run(&format!("tc filter add dev tap5 ingress matchall action sample rate 1 group {GROUP} cookie {UFID:032x}"));
        let batching = Batching { size: 1 << 17, age: Duration::from_millis(5), batches: 8 };
        let mut source = SampleSource::open(local.domain(), &[(GROUP, Class::Flow)], batching).unwrap();
        source.follow(&plan("tap5", &[Class::Flow]));
        assert_eq!(source.ports()[0].name, "tap5");

        let sent = frames(300);
        sent.iter().for_each(|frame| wire.send(frame));
        let (came, lost) = collect(&mut source, sent.len()).await;
        assert_eq!((came.len(), lost), (sent.len(), 0));
        for ((frame, port, ufid), sent) in came.iter().zip(&sent) {
            // The kernel takes the outer VLAN tag out before tc sees the frame, and a sample has no place for it.
            let tag = if matches!(sent[12..14], [0x81, 0x00] | [0x88, 0xa8]) { 4 } else { 0 };
            assert_eq!(*frame, [&sent[..12], &sent[12 + tag..]].concat());
            assert_eq!((*port, *ufid), (Some(1), has_cookies().then_some(UFID)));
        }

        // More than the socket has room for while nobody reads.
        let flood: Vec<_> = frames(3000).into_iter().cycle().take(12_000).collect();
        flood.iter().for_each(|frame| wire.send(frame));
        let (came, lost) = collect(&mut source, 100).await;
        // The number of the next sample that comes tells of those before it.
        wire.send(&sent[0]);
        let (last, all_lost) = collect(&mut source, 1).await;
        println!(
            "{} of {} samples came, {all_lost} were lost (first {lost})",
            came.len() + last.len(),
            flood.len() + 1
        );
        assert_eq!(came.len() + last.len() + usize::try_from(all_lost).unwrap(), flood.len() + 1);
        assert!(all_lost > 0);
    });
}

/// What an agent on tap6 and tap7 is configured with.
const AGENT: &str = r#"
backend = "tc"
idle_timeout = "none"
[[port]]
number = 1
name = "tap6"
[[port]]
number = 2
name = "tap7"
"#;

fn samples_that_flows_of_the_agent_take_name_the_flow() {
    play(async {
        run("modprobe --all psample act_sample cls_flower sch_ingress act_mirred act_gact act_skbedit act_pedit");
        let local = local(1, 64);
        let batching = Batching { size: 1 << 17, age: Duration::from_millis(5), batches: 8 };
        let mut source = SampleSource::open(local.domain(), &[(GROUP, Class::Flow)], batching).unwrap();
        source.follow(&plan("tap6", &[Class::Flow]));
        let (wire, _other) = (wire("tap6"), wire("tap7"));
        let sent = &frames(1)[0];
        let sample = format!("psample(group={GROUP})");
        let to_all = |before: &str, behind: &str| format!("{before}{sample}{behind}");
        // The second policy leaves no room for the name in the second place, since hardware may take the flow.
        let agents = [
            (
                "skip_hw",
                vec![
                    (to_all("", ",tap7"), true),
                    (to_all("tap7,", ""), true),
                    (to_all("tap7,set(eth(src=02:00:00:00:00:05)),", ",tap7"), true),
                ],
            ),
            ("none", vec![(to_all("", ",tap7"), true), (to_all("tap7,", ""), false)]),
        ];
        for (policy, flows) in agents {
            let daemon = Daemon::start(&format!("tc.policy = \"{policy}\"\n{AGENT}"));
            let works = |arguments: &[&str]| {
                let ran = daemon.sluice(arguments);
                assert_eq!((ran.err.as_str(), ran.code), ("", Some(0)), "{arguments:?}");
            };
            for (number, (actions, is_named)) in flows.into_iter().enumerate() {
                let ufid = UFID + number as u128;
                works(&["add-flow", &format!("ufid:{},in_port(tap6),eth()", Ufid(ufid)), &actions]);
                wire.send(sent);
                let (came, _) = collect(&mut source, 1).await;
                let named: Vec<_> = came.iter().map(|(_, _, ufid)| *ufid).collect();
                assert_eq!(named, [(has_cookies() && is_named).then_some(ufid)], "{policy} {actions}");
                works(&["del-flows"]);
            }
        }
    });
}

fn samples_of_a_device_that_is_made_anew_under_its_name_name_its_port() {
    play(async {
        run("modprobe --all psample act_sample cls_matchall sch_ingress");
        let local = local(1, 64);
        let batching = Batching { size: 1 << 17, age: Duration::from_millis(5), batches: 8 };
        let (_tell, told) = watch::channel(Some(plan("tap8", &[Class::Flow])));
        let source = SampleSource::open(local.domain(), &[(GROUP, Class::Flow)], batching).unwrap();
        let mut source = source.following(told);
        for _ in 0..2 {
            let wire = wire("tap8");
            run("tc qdisc add dev tap8 clsact");
            run(&format!("tc filter add dev tap8 ingress matchall action sample rate 1 group {GROUP}"));
            // The first ones may come before the device is found.
            let is_named = |(_, port, _): &Sampled| *port == Some(1);
            loop {
                wire.send(&frames(1)[0]);
                if collect(&mut source, 1).await.0.iter().any(is_named) {
                    break;
                }
            }
        }
    });
}

type Sampled = (Vec<u8>, Option<u32>, Option<u128>);

/// What comes until there is so much and no more for a while, and how many samples the source has lost so far.
async fn collect(source: &mut SampleSource, least: usize) -> (Vec<Sampled>, u64) {
    let (mut came, mut silences) = (vec![], 0);
    while silences < 20 {
        match tokio::time::timeout(Duration::from_millis(300), source.next()).await {
            Err(_) if came.len() >= least => break,
            Err(_) => silences += 1,
            Ok(batch) => {
                let batch = batch.unwrap();
                for frame in frames_of(&batch.buffer) {
                    let frame = frame.unwrap();
                    came.push((frame.bytes.to_vec(), frame.in_port, frame.ufid));
                }
                source.give_back(batch.class, batch.buffer);
            }
        }
    }
    let drops = source.drops(Class::Flow);
    assert_eq!(drops.total(), drops[Cause::SampleFull]);
    (came, drops[Cause::SampleFull])
}
