//! Rules with the notes of an earlier build, and the agent that takes them over.

use std::collections::BTreeSet;
use std::fmt::Write;

use sluice_tests::lab::switch::{SERVER, Switch, eventually, run, sluice};

use crate::stream::{PORT, Stream};

/// What an agent of this seed had put in by a build that wrote the first format of notes, for [`FLOWS`] and [`MIRROR`], as the kernel
/// showed it, in the words by which tc puts it in.
const SEED: &str = "00112233445566778899aabbccddeeff";
const FIRST_FORMAT: &str = "\
protocol ipv6 pref 900 handle 0x1 flower skip_hw \
 action mirred egress mirror dev server pipe cookie 736c63694e343e10000000004c52095c no_percpu action gact continue no_percpu
protocol ip pref 61004 handle 0x2 flower ip_proto udp dst_ip 192.168.7.2 dst_port 5000 ip_flags nofrag skip_hw \
 action gact pipe cookie 01010101010141018101010101010101 no_percpu \
 action mirred egress redirect dev server cookie 736c6365030000004c52095ca77f415b no_percpu
protocol ip pref 61004 handle 0x23 flower ip_proto udp dst_ip 192.168.7.9 dst_port 5000 ip_flags nofrag skip_hw \
 action gact pipe cookie 02020202020242028202020202020202 no_percpu \
 action gact drop cookie 736c6365030000004c52095cc6dc0edc no_percpu
protocol ip pref 61000 handle 0x24 flower ip_proto udp ip_ttl 0/0xfe dst_ip 192.168.7.3 ip_flags nofrag skip_hw \
 action gact pipe cookie 03030303030343038303030303030303 no_percpu \
 action gact drop cookie 736c6365038000004c52095c87f7d5e8 no_percpu
protocol ip pref 61004 handle 0x24 flower ip_proto udp dst_ip 192.168.7.3 ip_flags nofrag skip_hw \
 action pedit ex munge ip ttl add 0xff pipe cookie 03030303030343038303030303030303 no_percpu \
 action csum iph pipe cookie 736c6365030000004c52095ce3695091 no_percpu action mirred egress redirect dev server no_percpu
protocol arp pref 61008 handle 0x3 flower skip_hw \
 action gact pipe cookie 05050505050545058505050505050505 no_percpu \
 action gact goto chain 5 cookie 736c6365030000004c52095c87227741 no_percpu
protocol arp pref 61008 chain 5 handle 0x4 flower skip_hw \
 action gact pipe cookie 06060606060646068606060606060606 no_percpu \
 action mirred egress redirect dev server cookie 736c6365030000004c52095c63720f18 no_percpu
protocol all pref 65100 chain 5 handle 0x1 flower skip_hw \
 action gact pass cookie 736c63656d697373000000004c52095c no_percpu";
const FLOWS: [(&str, &str); 5] = [
    (
        "01010101-0101-4101-8101-010101010101,in_port(client),IP,ipv4(dst=192.168.7.2,proto=17,frag=no),udp(dst=5000)",
        "server",
    ),
    (
        "02020202-0202-4202-8202-020202020202,in_port(client),IP,ipv4(dst=192.168.7.9,proto=17,frag=no),udp(dst=5000)",
        "drop",
    ),
    (
        "03030303-0303-4303-8303-030303030303,in_port(client),IP,ipv4(dst=192.168.7.3,proto=17,frag=no)",
        "dec_ttl(le_1(drop)),server",
    ),
    ("05050505-0505-4505-8505-050505050505,in_port(client),eth_type(0x0806)", "recirc(5)"),
    ("06060606-0606-4606-8606-060606060606,recirc_id(5),in_port(client),eth_type(0x0806)", "server"),
];
const MIRROR: &str =
    "[[mirror]]\nname = \"copies\"\nkey = \"in_port(client),eth_type(0x86dd)\"\nports = [\"server\"]\n";
const POLICY: &str = "tc.policy = \"skip_hw\"\nidle_timeout = \"none\"";
/// Of the same agent, in a format that is none yet.
const LATER: &str = "filter add dev client ingress protocol ip pref 61004 handle 0x500 flower dst_ip 192.168.7.77 skip_hw \
     action gact drop cookie 736c6365340000004c52095c00000000";

pub(crate) fn rules_of_an_earlier_format_are_taken_over_without_a_gap_and_those_of_a_later_one_left() {
    assert_eq!((SERVER, PORT), ("192.168.7.2", 5000));
    let switch = Switch::set_up();
    let state = switch.folder().join("state");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("ufid-seed"), format!("{SEED}\n")).unwrap();
    let mut first = switch.start_with(POLICY, MIRROR);
    for (key, actions) in FLOWS {
        sluice(&first, &["add-flow", &format!("ufid:{}", key.replace("IP", "eth_type(0x0800)")), actions]);
    }
    first.signal("KILL");
    first.wait();
    // The state is the same in both builds; the rules are those of the earlier one.
    run("tc qdisc del dev client ingress");
    run("tc qdisc add dev client ingress");
    let batch = FIRST_FORMAT.lines().fold(String::new(), |mut batch, rule| {
        writeln!(batch, "filter add dev client ingress {rule}").unwrap();
        batch
    });
    let file = switch.folder().join("rules");
    std::fs::write(&file, batch + LATER + "\n").unwrap();
    run(&format!("tc -batch {}", file.display()));
    let there = switch.filters("client");
    assert_eq!((there.len(), notes(1).len()), (9, 8), "{there:?}");
    let stream = Stream::start();

    let second = switch.start_with(POLICY, MIRROR);
    let fate = |fate: &str| second.metric(&format!("sluice_start_rules{{fate=\"{fate}\"}}"));
    assert_eq!((fate("adopted"), fate("removed")), (Some(5.0), Some(0.0)), "{}", second.log());
    eventually("all have the notes of this build", || notes(1).is_empty());
    assert_eq!(notes(2).len(), 8);
    assert_eq!(switch.filters("client"), there, "each is where it was");
    let audit = sluice(&second, &["audit"]);
    let newer = "handle 0x500 (of agent 4c52095c, written by a newer sluice: notes of format 3)";
    assert!(audit.contains(newer) && audit.ends_with("6 rules, all as wanted (listed by the device)\n"), "{audit}");
    stream.end_without_loss();
    sluice(&second, &["flush"]);
    assert!(switch.filters("client").iter().any(|name| name.ends_with("handle 0x500")), "it is not touched");
}

/// The notes of a format at the client's port that say whose a rule is. tc gives actions behind one with a note that note, too.
fn notes(format: u8) -> BTreeSet<String> {
    let shown = run("tc filter show dev client ingress");
    let cookies = shown.lines().filter_map(|line| line.trim().strip_prefix("cookie "));
    let is_wanted = |note: &&str| match note.strip_prefix("736c63") {
        // By the table in offload-tc/src/marks.rs.
        Some(_) if note.starts_with("736c63656d697373") || note.starts_with("736c6369") => {
            u8::from_str_radix(&note[16..18], 16).unwrap() == if format == 1 { 0 } else { format }
        }
        Some(_) => u8::from_str_radix(&note[8..9], 16).unwrap() == if format == 1 { 0 } else { format },
        None => false,
    };
    cookies.filter(is_wanted).map(ToOwned::to_owned).collect()
}
