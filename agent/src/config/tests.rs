use std::path::Path;
use std::time::Duration;

use serde_json::json;
use sluice_feed_conntrack::Mark;
use sluice_flow::meter::{Meter, MeterBand, MeterId, MeterUnit};
use sluice_flow::port::{PortKind, PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::timeout::{TimeoutKey, TimeoutPolicy};

use super::*;
use crate::backends::Configured;

const SAMPLE: &str = include_str!("../../../deploy/sluiced.toml");

fn load(text: &str) -> Loaded {
    Config::parse(text, "test.toml", None).unwrap_or_else(|error| panic!("{error}"))
}

fn parse(text: &str) -> Config {
    load(text).config
}

fn error(text: &str) -> String {
    Config::parse(text, "test.toml", None).unwrap_err().to_string()
}

fn backend(name: &str) -> Configured {
    Configured::named(name).unwrap()
}

/// All keys that the parser knows, in its own words.
fn known_keys(text: &str) -> Vec<String> {
    let message = error(text);
    let (_, keys) = message.lines().next().unwrap_or_default().split_once(", expected ").expect("no list of keys");
    keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(parse(""), Config::default());
    assert_eq!(Config::default().state_dir(), Path::new("/run/sluice/state"));
    assert_eq!(parse("run_dir = \"/r\"").state_dir(), Path::new("/r/state"));
}

#[test]
fn the_sample_file_is_the_default() {
    assert_eq!(parse(SAMPLE), Config::default());
}

#[test]
fn the_sample_file_knows_every_key_also_those_without_a_default() {
    // "#key = ..." is a key that is commented out, "# text" is text.
    let is_key = |line: &&str| !line.starts_with("# ") && *line != "#";
    let whole: String =
        SAMPLE.lines().filter(is_key).map(|line| format!("{}\n", line.trim_start_matches('#'))).collect();
    let config = parse(&whole);
    assert!(!config.ports.is_empty() && !config.meters.is_empty() && !config.mirrors.is_empty());
    let has = |key: &str| {
        whole.lines().any(|line| {
            line.split('=').next().is_some_and(|name| name.trim() == key)
                || line == format!("[{key}]")
                || line == format!("[[{key}]]")
                || line.starts_with(&format!("[{key}."))
        })
    };
    let of_backends: Vec<_> =
        Configured::all().flat_map(|backend| known_keys(&format!("[{}]\nbogus = 1", backend.name()))).collect();
    let keys = [
        known_keys("bogus = 1"),
        known_keys("[log]\nbogus = 1"),
        of_backends,
        known_keys("[[port]]\nnumber = 1\nname = \"a\"\nbogus = 1"),
        known_keys("[[meter]]\nid = 1\nbogus = 1"),
        known_keys("[[mirror]]\nname = \"a\"\nkey = \"\"\nports = []\nbogus = 1"),
        known_keys("[mirror]\nbogus = 1"),
        known_keys("[[ct_timeout]]\nname = \"a\"\nbogus = 1"),
        known_keys("[source.ovs]\nbogus = 1"),
        known_keys("[source.conntrack]\nbogus = 1"),
    ];
    for key in keys.concat() {
        assert!(has(&key), "deploy/sluiced.toml does not mention `{key}`");
    }
}

#[test]
fn what_the_device_could_never_take_is_shown_without_it() {
    let tc = |text: &str| Config::parse(text, "test.toml", Some(&backend("tc"))).unwrap_err().to_string();
    let port = |number: u32, name: &str| format!("[[port]]\nnumber = {number}\nname = \"{name}\"\n");
    let tunnel = |number, name, kind| format!("{}kind = \"{kind}\"\nunderlay = 1\n", port(number, name));
    let two_of_a_kind = port(1, "p") + &tunnel(2, "g", "gre") + &tunnel(3, "h", "gre");
    for (found, expected) in [
        (tc(&port(1, "name-of-17-bytes-")), ":3:8: port name-of-17-bytes-: no network device can have this name"),
        (tc(&port(1, "eth0:1")), ":3:8: port eth0:1: no network device can have this name"),
        (
            tc(&(port(1, "p") + &tunnel(2, "g", "gtpu"))),
            ":6:8: port g: the kernel has no collect-metadata device for GTP-U",
        ),
        (tc("[[meter]]\nid = 3\npps = 1\nbands = [{ rate = 1 }]"), ":2:6: meter 3: "),
        (tc("[[ct_timeout]]\nname = \"a\""), ":2:8: timeout policy a: "),
        (error(&two_of_a_kind), ":11:8: port h: another tunnel of its kind is on this underlay"),
    ] {
        assert!(found.starts_with(&format!("test.toml{expected}")), "{found}");
    }
}

#[test]
fn only_a_regular_file_of_a_bounded_size_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let load = |path: &Path| Config::load(path, None).map(|_| ()).map_err(|error| error.to_string());
    let pipe = scratch.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for path in [&pipe, Path::new("/dev/zero"), scratch.path()] {
        assert_eq!(load(path).unwrap_err(), format!("cannot read {}: it is not a regular file", path.display()));
    }
    let large = scratch.path().join("large");
    std::fs::File::create(&large).unwrap().set_len((4 << 20) + 1).unwrap();
    assert_eq!(load(&large).unwrap_err(), format!("cannot read {}: it is larger than 4 MiB", large.display()));
}

#[test]
fn a_backend_has_a_table_of_its_own() {
    let tc = parse("backend = \"tc\"\n[tc]\npolicy = \"skip_hw\"\ntunnel_flags = \"as_ovs\"");
    assert_eq!((tc.backend.name(), &*tc.device), ("tc", "tc0"));
    assert_eq!(json!(tc.backend.settings()), json!({ "policy": "skip_hw", "tunnel_flags": "as_ovs" }));
    assert_eq!(json!(backend("tc").settings()), json!({ "policy": "none", "tunnel_flags": "auto" }));
    assert_eq!(json!(parse("soft.hardware_rules = 9").backend.settings()), json!({ "hardware_rules": 9 }));
    assert_eq!(json!(backend("soft").settings()), json!({ "hardware_rules": null }));
    for (text, expected) in [
        (
            "[tc]\npolicy = \"hardware\"",
            ":2:10: unknown value `hardware`, expected one of `none`, `skip_sw`, `skip_hw`",
        ),
        ("[tc]\ntunnel_flags = \"loose\"", ":2:16: unknown value `loose`, expected one of `auto`, `exact`, `as_ovs`"),
        ("[soft]\nhardware_rules = 0", ":2:18: expected a number from 1 to 2147483648, not 0"),
        ("[soft]\npolicy = \"none\"", ":2:1: unknown key `policy`, expected `hardware_rules`"),
        ("soft = \"none\"", ":1:8: expected a table, as in [soft]"),
        ("[[tc]]\npolicy = \"none\"", ":1:1: expected a table, as in [tc]"),
    ] {
        // A table is right or wrong, whichever backend is chosen.
        for chosen in ["soft", "tc"] {
            let found = Config::parse(text, "test.toml", Some(&backend(chosen))).unwrap_err().to_string();
            assert!(found.starts_with(&format!("test.toml{expected}")), "{text}: {found}");
        }
    }
}

#[test]
fn a_file_may_have_the_tables_of_several_backends() {
    let text = "[soft]\nhardware_rules = 7\n[tc]\npolicy = \"skip_sw\"";
    let settings = |name: &str| {
        let Loaded { config, moved, .. } = Config::parse(text, "test.toml", Some(&backend(name))).unwrap();
        assert_eq!((config.backend.name(), moved), (name, vec![]));
        json!(config.backend.settings())
    };
    assert_eq!(settings("soft"), json!({ "hardware_rules": 7 }));
    assert_eq!(settings("tc"), json!({ "policy": "skip_sw", "tunnel_flags": "auto" }));
}

#[test]
fn a_key_that_has_moved_into_a_table_is_read_where_it_was_and_told_of() {
    let said = |loaded: &Loaded| loaded.moved.iter().map(ToString::to_string).collect::<Vec<_>>();
    let tc = load("backend = \"tc\"\npolicy = \"skip_sw\"\ntunnel_flags = \"exact\"");
    assert_eq!(json!(tc.config.backend.settings()), json!({ "policy": "skip_sw", "tunnel_flags": "exact" }));
    assert_eq!(
        said(&tc),
        ["test.toml:2:1: `policy` belongs in [tc] now", "test.toml:3:1: `tunnel_flags` belongs in [tc] now"]
    );
    let soft = load("hardware_rules = 5\n[tc]\npolicy = \"none\"");
    assert_eq!(json!(soft.config.backend.settings()), json!({ "hardware_rules": 5 }));
    assert_eq!(said(&soft), ["test.toml:1:1: `hardware_rules` belongs in [soft] now"]);
    let both = load("backend = \"tc\"\npolicy = \"skip_sw\"\n[tc]\ntunnel_flags = \"exact\"");
    assert_eq!(json!(both.config.backend.settings()), json!({ "policy": "skip_sw", "tunnel_flags": "exact" }));

    assert_eq!(
        error("idle_timeout = 5\npolicy = \"skip_hw\"\n"),
        "test.toml:2:1: `policy` belongs in [tc], and is not for backend \"soft\"\n  |\n2 | policy = \"skip_hw\"\n  | ^^^^^^"
    );
    for (text, expected) in [
        ("tunnel_flags = \"exact\"", ":1:1: `tunnel_flags` belongs in [tc], and is not for backend \"soft\""),
        (
            "hardware_rules = 7\nbackend = \"tc\"",
            ":1:1: `hardware_rules` belongs in [soft], and is not for backend \"tc\"",
        ),
        ("hardware_rules = 7\n[soft]\nhardware_rules = 7", ":1:1: `hardware_rules` is in [soft], too"),
        ("hardware_rules = 0", ":1:18: expected a number from 1 to 2147483648, not 0"),
        ("backend = \"tc\"\npolicy = \"hardware\"", ":2:10: unknown value `hardware`"),
        ("backend = \"tc\"\ntunnel_flags = \"loose\"", ":2:16: unknown value `loose`"),
    ] {
        let found = error(text);
        assert!(found.starts_with(&format!("test.toml{expected}")), "{text}: {found}");
    }
}

#[test]
fn a_backend_that_is_given_wins_over_the_one_in_the_file() {
    let given = |text, name| Config::parse(text, "test.toml", Some(&backend(name))).map(|loaded| loaded.config);
    assert_eq!(given("policy = \"skip_sw\"", "tc").unwrap().backend.settings()["policy"], "skip_sw");
    assert_eq!(&*given("", "tc").unwrap().device, "tc0");
    assert_eq!(&*given("device = \"a\"", "tc").unwrap().device, "a");
    given("backend = \"tc\"\npolicy = \"skip_sw\"", "soft").unwrap_err();
    given("backend = \"tc\"\n[tc]\npolicy = \"skip_sw\"", "soft").unwrap();
    assert_eq!(Config::for_backend(backend("tc")), given("", "tc").unwrap());
    assert_eq!(Config::for_backend(Configured::default()), Config::default());
}

#[test]
fn an_unknown_key_is_shown_in_its_line_with_what_is_known() {
    let text = error("backend = \"soft\"\n\tidle_timout = \"10s\"\n");
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(
        first.starts_with("test.toml:2:2: unknown key `idle_timout`, expected one of `backend`, `device`"),
        "{first}"
    );
    assert!(
        first.contains("`idle_timeout`") && first.contains("`port`") && first.ends_with(", `soft`, `tc`, `dv`"),
        "{first}"
    );
    assert_eq!(rest, "  |\n2 | \tidle_timout = \"10s\"\n  | \t^^^^^^^^^^^");
}

#[test]
fn a_wrong_value_is_marked() {
    assert_eq!(
        error("workers = 0"),
        "test.toml:1:11: expected a number from 1 to 64, not 0\n  |\n1 | workers = 0\n  |           ^"
    );
    for (text, expected) in [
        ("backend = \"dpdk\"", "no backend dpdk in this build, only soft"),
        (
            "idle_timeout = \"10\"",
            "expected a time such as \"500ms\", \"10s\" or \"5m\", not \"10\" (\"none\" means never)",
        ),
        ("idle_timeout = 0", "a time is more than zero (\"none\" means never)"),
        ("idle_timeout = true", "expected a time such as \"500ms\""),
        ("poll_interval = \"none\"", "expected a time such as"),
        ("poll_interval = -1", "a time is more than zero"),
        ("poll_interval = 1e300", "a time is a year at most"),
        (
            "metrics = \"localhost\"",
            "expected an address and port such as \"[::1]:9319\", or \"none\", not \"localhost\"",
        ),
        ("run_dir = \"run\"", "expected a path that begins with \"/\", not \"run\""),
        ("control_mode = \"0999\"", "expected a file mode in octal such as \"0660\", not \"0999\""),
        ("log.level = \"inof\"", "unknown log level \"inof\", expected one of off, error, warn, info, debug, trace"),
        ("log.format = \"xml\"", "unknown value `xml`, expected `text` or `json`"),
        ("rebalance_interval = 0", "a time is more than zero (\"none\" means never)"),
        ("flow_limit = \"many\"", "invalid type: string \"many\""),
        ("workers = 1\nworkers = 2", "duplicate key"),
        ("workers = ", ""),
    ] {
        let found = error(text);
        assert!(found.contains(expected), "{text}: {found}");
        assert!(found.contains('^'), "{text}: {found}");
    }
}

#[test]
fn a_table_where_a_list_of_them_belongs_is_said_to_want_double_brackets() {
    let said = error("[port]\nnumber = 1\nname = \"p0\"\n");
    assert!(said.contains("a list of tables has double brackets, as in [[port]]"), "{said}");
}

#[test]
fn times_are_text_or_seconds() {
    let config =
        parse("idle_timeout = 1.5\nhard_timeout = \"2h\"\npoll_interval = \"250ms\"\nretry_interval = \"none\"");
    assert_eq!(config.idle_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(config.hard_timeout, Some(Duration::from_secs(7200)));
    assert_eq!(config.poll_interval, Duration::from_millis(250));
    assert_eq!(config.retry_interval, None);
}

#[test]
fn a_sync_interval_of_zero_is_taken_in_every_form() {
    for zero in ["0", "0.0", "\"0\"", "\"0s\"", "\"0ms\""] {
        assert_eq!(parse(&format!("sync_interval = {zero}")).sync_interval, Duration::ZERO, "{zero}");
    }
    assert_eq!(parse("sync_interval = \"20ms\"").sync_interval, Duration::from_millis(20));
    let text = error("sync_interval = \"-1s\"");
    assert!(text.contains("expected a time such as") && text.contains("(0 means every batch)"), "{text}");
}

#[test]
fn a_connection_is_left_to_the_kernel_for_a_minute_at_the_most() {
    let after = |time: &str| Config::parse(&format!("[source.conntrack]\nafter = {time}"), "test.toml", None);
    for (text, time) in [("0", 0), ("\"0\"", 0), ("\"1500ms\"", 1_500), ("2", 2_000), ("\"1m\"", 60_000)] {
        let config = after(text).unwrap();
        assert_eq!(config.config.sources.conntrack.unwrap().after, Duration::from_millis(time), "{text}");
    }
    let error = after("\"61s\"").unwrap_err().to_string();
    assert!(error.starts_with("test.toml:2:9: ") && error.contains("expected a time from 0 to 60 s"), "{error}");
}

#[test]
fn a_mark_of_connections_has_no_bits_that_its_mask_leaves_out() {
    let mark = |text: &str| Config::parse(&format!("[source.conntrack]\nmark = \"{text}\""), "test.toml", None);
    for (text, value, mask) in
        [("0x10/0x10", 16, 16), ("7", 7, u32::MAX), ("0/1", 0, 1), ("0/0", 0, 0), ("0xffffffff", u32::MAX, u32::MAX)]
    {
        let config = mark(text).unwrap();
        assert_eq!(config.config.sources.conntrack.unwrap().mark, Mark { value, mask }, "{text}");
    }
    for (text, said) in [
        ("", "expected a mark of connections"),
        ("0x10/", "expected a mark of connections"),
        ("0x100000000", "expected a mark of connections"),
        ("all", "expected a mark of connections"),
        ("0x11/0x10", "the value has bits that the mask leaves out"),
    ] {
        let error = mark(text).unwrap_err().to_string();
        assert!(error.starts_with("test.toml:2:8: ") && error.contains(said), "{error}");
    }
}

#[test]
fn ports_are_read_with_their_kinds() {
    let config = parse(
        r#"
        [[port]]
        number = 3
        name = "vx0"
        kind = "vxlan"
        underlay = "p0"
        [[port]]
        number = 4
        name = "gnv0"
        kind = "geneve"
        udp_port = 7000
        underlay = 1
        [[port]]
        number = 5
        name = "gre0"
        kind = "gre"
        underlay = 1
        [[port]]
        number = 6
        name = "erspan0"
        kind = "erspan"
        underlay = 1
        [[port]]
        number = 7
        name = "gtpu0"
        kind = "gtpu"
        underlay = 1
        [[port]]
        number = 1
        name = "p0"
        [[port]]
        number = 2
        name = "pf0vf0"
        kind = "representor"
        "#,
    );
    let tunnel = |protocol, udp_port| PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: PortNumber(1) });
    let kinds: Vec<_> = config.ports.iter().map(|port| (port.number.0, port.kind.clone())).collect();
    assert_eq!(
        kinds,
        [
            (3, tunnel(TunnelProtocol::Vxlan, Some(4789))),
            (4, tunnel(TunnelProtocol::Geneve, Some(7000))),
            (5, tunnel(TunnelProtocol::Gre, None)),
            (6, tunnel(TunnelProtocol::Erspan, None)),
            (7, tunnel(TunnelProtocol::Gtpu, Some(2152))),
            (1, PortKind::Physical),
            (2, PortKind::Representor),
        ]
    );
}

#[test]
fn meters_are_read_with_their_rates() {
    let config = parse(
        "[[meter]]\nid = 1\nkbps = 1000\nburst = 100\n[[meter]]\nid = 2\npps = 50\nbands = [{ rate = 9, burst = 3 }]\n",
    );
    assert_eq!(config.meters[0], Meter::simple(MeterId(1), MeterUnit::Kilobits, 1000, 100));
    assert_eq!(config.meters[1].bands, [MeterBand { rate: 50, burst: 0 }, MeterBand { rate: 9, burst: 3 }]);
}

#[test]
fn mirrors_are_read_with_the_names_of_ports() {
    let config = parse(
        "[[port]]\nnumber = 1\nname = \"p0\"\n[[port]]\nnumber = 2\nname = \"tap\"\n[[port]]\nnumber = 3\nname = \"p2\"\n\
         [[mirror]]\nname = \"http\"\nkey = \"in_port(p0),eth_type(0x0800),ipv4(proto=6),tcp(dst=80)\"\nports = [\"tap\", 3]",
    );
    let [mirror] = config.mirrors.as_slice() else { panic!("{:?}", config.mirrors) };
    assert_eq!((mirror.name.as_str(), mirror.port()), ("http", PortNumber(1)));
    assert_eq!(mirror.copies, [PortNumber(2), PortNumber(3)]);
    assert!(mirror.matches[0].is_exactly(sluice_flow::Field::TcpDst, 80));
}

#[test]
fn timeout_policies_are_read_with_their_seconds() {
    let config =
        parse("[[ct_timeout]]\nname = \"short\"\ntcp_unack = 20\ntcp_syn_sent = 5\n[[ct_timeout]]\nname = \"b\"\n");
    let timeouts: Vec<_> = config.ct_timeouts[0].timeouts().collect();
    assert_eq!(timeouts, [(TimeoutKey::TcpSynSent, 5), (TimeoutKey::TcpUnack, 20)]);
    assert_eq!(config.ct_timeouts[1], TimeoutPolicy::new("b"));
}

#[test]
fn every_timeout_has_a_key() {
    let keys = known_keys("[[ct_timeout]]\nname = \"a\"\nbogus = 1");
    for key in TimeoutKey::ALL {
        assert!(keys.contains(&key.name().to_owned()), "{}", key.name());
        let config = parse(&format!("[[ct_timeout]]\nname = \"a\"\n{} = 7", key.name()));
        assert_eq!(config.ct_timeouts[0].timeouts().collect::<Vec<_>>(), [(*key, 7)]);
    }
}

#[test]
fn ports_and_meters_that_contradict_each_other_are_shown_where_they_are() {
    let p0 = "[[port]]\nnumber = 1\nname = \"p0\"\n";
    for (text, expected) in [
        ("[[port]]\nnumber = 1\nname = \"p1\"", ":5:10: port 1 is \"p0\" already"),
        ("[[port]]\nnumber = 2\nname = \"p0\"", ":6:8: \"p0\" is port 1 already"),
        ("[[port]]\nnumber = 2\nname = \"a b\"", ":6:8: a port's name is one word"),
        ("[[port]]\nnumber = 2\nname = \"7\"", ":6:8: the name \"7\" would be taken for a port's number"),
        ("[[port]]\nnumber = -2\nname = \"x\"", ":5:10: invalid value"),
        ("[[port]]\nnumber = 2", ":4:1: missing key `name`"),
        ("[[port]]\nnumber = 2\nname = \"x\"\nkind = \"wire\"", ":7:8: unknown value `wire`"),
        ("[[port]]\nnumber = 2\nname = \"x\"\nkind = \"vxlan\"", ":6:8: tunnel \"x\" needs an `underlay`"),
        (
            "[[port]]\nnumber = 2\nname = \"x\"\nkind = \"vxlan\"\nunderlay = 9",
            ":8:12: there is no port 9 to be the underlay",
        ),
        (
            "[[port]]\nnumber = 2\nname = \"x\"\nkind = \"vxlan\"\nunderlay = \"x\"",
            ":8:12: port \"x\" cannot be an underlay",
        ),
        (
            "[[port]]\nnumber = 2\nname = \"x\"\nkind = \"vxlan\"\nunderlay = true",
            ":8:12: expected the number or the name of a port",
        ),
        (
            "[[port]]\nnumber = 2\nname = \"x\"\nkind = \"vxlan\"\nunderlay = 1\nudp_port = 0",
            ":9:12: a UDP port is from 1",
        ),
        ("[[port]]\nnumber = 2\nname = \"x\"\nudp_port = 4789", ":7:12: `udp_port` is for ports of kind \"vxlan\""),
        (
            "[[port]]\nnumber = 2\nname = \"x\"\nkind = \"gre\"\nunderlay = 1\nudp_port = 4789",
            ":9:12: `udp_port` is for ports of kind \"vxlan\", \"geneve\" and \"gtpu\", this one is \"gre\"",
        ),
        ("[[meter]]\nid = 1", ":5:6: meter 1 needs either `kbps` or `pps`"),
        ("[[meter]]\nid = 1\npps = 1\nkbps = 1", ":6:7: meter 1 has both"),
        ("[[meter]]\nid = 1\npps = 0", ":6:7: meter 1 would let nothing pass"),
        ("[[meter]]\nid = 1\npps = 1\n[[meter]]\nid = 1\npps = 1", ":8:6: meter 1 is there twice"),
        ("[[mirror]]\nname = \"a\"\nkey = \"in_port(9)\"\nports = [1]", ":6:7: there is no port 9 to be mirrored"),
        (
            "[[mirror]]\nname = \"a\"\nkey = \"in_port(p0)\"\nports = [1, \"x\"]",
            ":7:13: there is no port \"x\" to copy to",
        ),
        (
            "[[mirror]]\nname = \"a\"\nkey = \"in_port(p0),eth(\"\nports = [1]",
            ":6:7: mirror \"a\": behind \"in_port(p0),eth(\", ",
        ),
        ("[[mirror]]\nname = \"a\"\nkey = \"eth_type(0x0800)\"\nports = [1]", ":5:8: a mirror is of one port"),
        ("[[mirror]]\nname = \"a\"\nkey = \"in_port(1)\"\nports = []", ":5:8: a mirror copies to 1 to 30 ports"),
        (
            "[[mirror]]\nname = \"a\"\nkey = \"in_port(1)\"\nports = [1]\n[[mirror]]\nname = \"a\"\nkey = \"in_port(1)\"\nports = [1]",
            ":9:8: mirror \"a\" is there twice",
        ),
        ("[[ct_timeout]]\nname = \"a b\"", ":5:8: the name of a timeout policy is one word"),
        (
            "[[ct_timeout]]\nname = \"a\"\nudp_single = -1",
            ":6:14: invalid value: integer `-1`, expected a number from 0 to 4294967295",
        ),
        ("[[ct_timeout]]\nname = \"a\"\n[[ct_timeout]]\nname = \"a\"", ":7:8: timeout policy \"a\" is there twice"),
    ] {
        let found = error(&format!("{p0}{text}"));
        assert!(found.starts_with(&format!("test.toml{expected}")), "{text}: {found}");
    }
}

#[test]
fn an_error_about_a_value_has_no_words_of_rust() {
    const TABLES: [&str; 9] = [
        "",
        "[log]\n",
        "[source]\n",
        "[source.ovs]\n",
        "[source.conntrack]\n",
        "[api]\n",
        "[mirror]\n",
        "[soft]\n",
        "[[port]]\nnumber = 1\nname = \"x\"\n",
    ];
    const VALUES: [&str; 9] = ["1", "-1", "1.5", "\"x\"", "true", "[]", "[1]", "{ nothing = 1 }", "1979-05-27"];
    const RUST: [&str; 14] = [
        "i64", "u64", "u32", "u16", "usize", "f64", "struct", "sequence", "map", "enum", "variant", "tuple", "unit",
        "newtype",
    ];
    for table in TABLES {
        for key in known_keys(&format!("{table}nothing = 1")) {
            for value in VALUES {
                let text = format!("{table}{key} = {value}");
                let Err(error) = Config::parse(&text, "test.toml", None) else { continue };
                let error = error.to_string();
                let said = error.lines().next().unwrap_or_default();
                let is_of_rust = |word: &str| RUST.contains(&word) || said.contains("expected expected");
                let words = said.split(|letter: char| !letter.is_alphanumeric());
                assert!(!words.into_iter().any(is_of_rust), "{text}: {said}");
            }
        }
    }
}

#[test]
fn a_reload_takes_what_it_can_and_names_the_rest() {
    let old = Config::default();
    let new = parse(
        "rebalance_interval = \"none\"\nsoft.hardware_rules = 9\nidle_timeout = \"1m\"\nworkers = 4\nlog.level = \"debug\"\nlog.format = \"json\"\n[[port]]\nnumber = 1\nname = \"p0\"",
    );
    let (next, difference) = old.take_over(&new);
    assert_eq!(difference.applicable, ["rebalance_interval", "idle_timeout", "log.level"]);
    assert_eq!(difference.needs_restart, ["soft.hardware_rules", "workers", "log.format"]);
    assert_eq!(
        difference.to_string(),
        "changed: rebalance_interval, idle_timeout, log.level; needs a restart: soft.hardware_rules, workers, log.format"
    );
    assert_eq!((&next.backend, next.rebalance_interval), (&old.backend, None));
    assert_eq!((next.workers, next.log.format), (old.workers, old.log.format));
    assert_eq!((next.idle_timeout, &next.ports), (new.idle_timeout, &new.ports));
    assert!(next.difference(&next).is_empty());
    assert_eq!(next.difference(&new).needs_restart, difference.needs_restart);
    assert!(next.difference(&new).applicable.is_empty());
    let of_tc = |keys: &str| parse(&format!("backend = \"tc\"\n{keys}"));
    assert_eq!(old.difference(&of_tc("tc.policy = \"skip_hw\"")).needs_restart, ["backend", "device"]);
    let moved = of_tc("").difference(&of_tc("tc.policy = \"skip_hw\"\ntc.tunnel_flags = \"exact\""));
    assert_eq!(moved.needs_restart, ["tc.policy", "tc.tunnel_flags"]);
    assert!(of_tc("policy = \"skip_hw\"").difference(&of_tc("tc.policy = \"skip_hw\"")).is_empty());
}

#[test]
fn a_key_that_needs_a_restart_is_named_by_every_reload_until_then() {
    let old = Config::default();
    let new = parse(
        "device = \"x\"\nrun_dir = \"/a\"\nstate_dir = \"/b\"\npersist = false\nsync_interval = \"2s\"\nlock_dir = \"/c\"\n\
         metrics = \"none\"\nworkers = 4\nchain_depth = 3\nadopt_orphans = true\ncontrol_mode = \"0600\"\n\
         control_group = \"root\"\nlog.format = \"json\"\nsoft.hardware_rules = 9\n[source.ovs]\n\
         [api]\nlisten = \"127.0.0.1:1\"\ncertificate = \"/d\"\nkey = \"/e\"\nclient_ca = \"/f\"",
    );
    let (next, difference) = old.take_over(&new);
    assert_eq!((difference.applicable.as_slice(), difference.needs_restart.len()), (&[][..], 16), "{difference}");
    assert_eq!(next.difference(&new), difference);
    assert!(next.difference(&old).is_empty(), "{}", next.difference(&old));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Path::new("/no/such/file.toml"), None).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /no/such/file.toml: No such file"), "{error}");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(\\PC|[\n\t=\"\\[\\]]){0,60}") {
        let _ = Config::parse(&text, "x", None).map_err(|error| error.to_string());
    }

    #[test]
    fn no_value_makes_it_panic(key in "(idle_timeout|poll_interval|metrics|control_mode|log.level|workers|port|meter|mirror)", value in "(\"\\PC{0,8}\"|[-0-9.e]{1,8}|\\[\\]|true)") {
        let _ = Config::parse(&format!("{key} = {value}"), "x", None).map_err(|error| error.to_string());
    }
}
