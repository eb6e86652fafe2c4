//! Every form of every action, with what it comes to.
#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests may say what they expect, too")]

use sluice_flow::action::{
    Action, Commit, Conntrack, HashAlgorithm, Nat, NatSide, NshMetadata, PortPick, Translation, TunnelPush, UserData,
    visit,
};
use sluice_flow::port::{Port, PortKind, PortMap, PortNumber};
use sluice_flow::text::{Style, parse_actions, parse_line, write_actions};

mod odp_actions {
    pub(crate) mod forms;
}

use odp_actions::forms::forms;

fn read(text: &str) -> Vec<Action> {
    match parse_actions(text, &()) {
        Ok(actions) => actions.to_vec(),
        Err(error) => panic!("{}", error.caret(text)),
    }
}

fn written(actions: &[Action]) -> String {
    let mut text = String::new();
    write_actions(&mut text, actions, &Style::default()).unwrap();
    text
}

fn one(text: &str) -> Action {
    let [action] = &read(text)[..] else { panic!("{text} is one action") };
    action.clone()
}

#[test]
fn what_ovs_prints_is_read_and_written_the_same() {
    let forms = forms();
    for form in &forms {
        assert_eq!(written(&read(form)), *form);
    }
    // A port named like a number would be read as one, so that this list tells lists from their actions, too.
    let all = forms.iter().filter(|form| *form != "drop").cloned().collect::<Vec<_>>().join(", ");
    assert_eq!(written(&read(&all)), all.replace(", ", ","));
}

#[test]
fn what_ovs_prints_with_another_spelling_is_read_the_same() {
    for (text, canonical) in [
        // OVS prints what it does not read.
        ("clone(drop),1", "clone(),1"),
        ("sample(sample=5.0%,actions(drop))", "sample(sample=5.0%,actions())"),
        ("userspace(pid=1,slow_path(cfm,bfd,0x80))", "userspace(pid=1,slow_path(cfm|bfd|0x80))"),
        ("userspace(pid=0,ipfix(output_port=4294967295)),drop", "userspace(pid=0,ipfix(output_port=4294967295))"),
        ("check_pkt_len(size=1,gt(1,drop),le(drop))", "check_pkt_len(size=1,gt(1),le(drop))"),
        ("psample(group=1,cookie=0)", "psample(group=1,cookie=0x00)"),
        ("psample(group=1,cookie=0xabc)", "psample(group=1,cookie=0x0abc)"),
        ("push_nsh(mdtype=2,md2=0)", "push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x0,si=255)"),
        ("push_nsh(mdtype=2,md2=0x10203)", "push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x0,si=255,md2=0x00010203)"),
        // OVS reads what it does not print.
        ("userspace(pid=0x10,slow_path(3))", "userspace(pid=16,slow_path(cfm|bfd))"),
        ("userspace(pid=1,slow_path())", "userspace(pid=1,slow_path(0))"),
        ("recirc(10)", "recirc(0xa)"),
        ("ct()", "ct"),
        ("ct(nat())", "ct(nat)"),
        ("ct(zone=0,mark=1/0,label=0x5/0x0)", "ct"),
        ("ct(commit,mark=1,label=1)", "ct(commit,mark=0x1/0xffffffff,label=0x1)"),
        ("ct(commit,nat(src=1.2.3.4-1.2.3.4:5-5))", "ct(commit,nat(src=1.2.3.4:5))"),
        ("ct(commit,nat(src=[::1]))", "ct(commit,nat(src=::1))"),
        ("ct(commit,nat(src=::0.1.0.5))", "ct(commit,nat(src=::1:5))"),
        ("push_nsh()", "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x0,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0)"),
        ("check_pkt_len(size=0x10,gt(),le())", "check_pkt_len(size=16,gt(drop),le(drop))"),
        // Neither, but nobody can mistake it.
        ("pop_nsh", "pop_nsh()"),
        ("ct(nat(random, src=1.1.1.1), commit)", "ct(commit,nat(src=1.1.1.1,random))"),
    ] {
        assert_eq!(written(&read(text)), canonical, "{text}");
        assert_eq!(read(canonical), read(text), "{text}");
    }
}

#[test]
fn a_dumped_line_ends_where_its_actions_end() {
    let line = "in_port(1), packets:0, bytes:0, used:never, actions:sample(sample=1.0%,actions(1)),drop, \
                dp-extra-info:miniflow_bits(4,1)";
    let line = parse_line(line, &()).unwrap();
    assert_eq!(line.actions[..], read("sample(sample=1.0%,actions(1))"));
    assert_eq!(line.extra.other.as_deref(), Some("miniflow_bits(4,1)"));
}

#[test]
fn what_is_read_is_typed() {
    let addresses = ("fe80::1".parse().unwrap(), "fe80::9".parse().unwrap());
    let expected = Conntrack {
        commit: Commit::Force,
        zone: 5,
        mark: Some((1, 3)),
        label: Some((2, u128::MAX)),
        helper: Some("ftp".into()),
        timeout: Some("policy".into()),
        nat: Some(Nat::New(Translation {
            side: NatSide::Destination,
            addresses: Some(addresses),
            ports: Some((255, 4096)),
            persistent: true,
            pick: PortPick::Hash,
        })),
    };
    let text = "ct(force_commit,zone=5,mark=0x1/0x3,label=0x2,helper=ftp,timeout=policy,\
                nat(dst=[fe80::1]-[fe80::9]:255-4096,persistent,hash))";
    assert_eq!(one(text), Action::Conntrack(expected.into()));
    assert_eq!(one("hash(sym_l4(7))"), Action::Hash { algorithm: HashAlgorithm::SymmetricL4, basis: 7 });
    assert_eq!(
        one("sample(sample=100%,actions(1))"),
        Action::Sample { probability: u32::MAX, actions: [Action::Output(PortNumber(1))].into() }
    );
    let Action::Userspace(userspace) = one("userspace(pid=1,slow_path(bfd|match),tunnel_out_port=7)") else { panic!() };
    assert_eq!((userspace.data, userspace.tunnel_port), (Some(UserData::SlowPath(0x42)), Some(PortNumber(7))));
    let Action::PushNsh(header) = one("push_nsh(mdtype=2,md2=0x010203040506070)") else { panic!() };
    assert_eq!(header.metadata, NshMetadata::Tlvs([0, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70].into()));
    let mut seen = 0;
    visit(&read("clone(sample(sample=1%,actions(check_pkt_len(size=1,gt(1),le(dec_ttl(le_1(2)))))))"), &mut |_| {
        seen += 1
    });
    assert_eq!(seen, 6);
}

#[test]
fn outer_headers_are_bytes_of_the_wire() {
    let text = "tnl_push(tnl_port(6),header(size=58,type=5,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x0800),\
                ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0x3,ttl=64,frag=0x4000),udp(src=0,dst=6081,csum=0xffff),\
                geneve(oam,crit,vni=0x1c7,options({class=0xffff,type=0x80,len=4,0xa}))),out_port(1))";
    let Action::TunnelPush(push) = one(text) else { panic!("{text}") };
    #[rustfmt::skip]
    let expected = [
        0xf8, 0xbc, 0x12, 0x44, 0x34, 0xb6, 0xf8, 0xbc, 0x12, 0x46, 0x58, 0xe0, 0x08, 0x00,
        // The sum over the IPv4 header is 0x4503 + 0x4000 + 0x4011 + 0x0101 + 0x0258 + 0x0101 + 0x025c = 0xcbca.
        0x45, 3, 0, 0, 0, 0, 0x40, 0, 64, 17, 0x34, 0x35, 1, 1, 2, 88, 1, 1, 2, 92,
        0, 0, 0x17, 0xc1, 0, 0, 0xff, 0xff,
        2, 0xc0, 0x65, 0x58, 0, 1, 0xc7, 0, 0xff, 0xff, 0x80, 1, 0, 0, 0, 0xa,
    ];
    assert_eq!(push.header[..], expected);
    assert_eq!((push.tunnel_port, push.out_port, push.tunnel_type), (PortNumber(6), PortNumber(1), 5));
}

#[test]
fn outer_headers_without_words_are_written_as_bytes() {
    let Action::TunnelPush(said) = one(&forms().into_iter().find(|form| form.contains("vxlan(")).unwrap()) else {
        panic!()
    };
    let written_push = |push: TunnelPush| {
        let action = Action::TunnelPush(push.into());
        let text = written(std::slice::from_ref(&action));
        assert_eq!(one(&text), action, "{text}");
        text
    };
    // A length, a wrong checksum, a byte more, a byte less, nothing, a type that nobody knows.
    for place in [16, 25] {
        let mut push = said.as_ref().clone();
        push.header[place] ^= 1;
        assert!(written_push(push).contains("header(size=50,type=4,bytes(f8bc12"));
    }
    for header in [[&said.header[..], &[0]].concat(), said.header[..49].to_vec(), Vec::new()] {
        assert!(written_push(TunnelPush { header: header.into(), ..*said.clone() }).contains("bytes("));
    }
    assert!(written_push(TunnelPush { tunnel_type: 105, ..*said.clone() }).contains("type=105,bytes("));
    assert!(!written_push(*said).contains("bytes("));
}

#[test]
fn wrong_arguments_are_pointed_at() {
    let srv6 = |size: u32, segments: &str| {
        format!(
            "tnl_push(tnl_port(6),header(size={size},type=112,eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,\
             dl_type=0x86dd),ipv6(src=::1,dst=::2,label=0,proto=43,tclass=0x0,hlimit=64),srv6(segments_left=2,\
             segs({segments}))),out_port(1))"
        )
    };
    for (text, place, expected) in [
        // What OVS tests to be wrong.
        ("encap_nsh@:{@", "encap", "an action or a port: \"encap_nsh@:{@\" is neither"),
        (&srv6(94, "::a,::b"), ")))", "3 segments in all, one more than are left"),
        (&srv6(126, "::a,::b,::c,::d"), ")))", "3 segments in all, one more than are left"),
        ("psample(group_id=12,cookie=0x01)", "group_id", "a field of psample(): group, cookie"),
        ("psample(cookie=0x010203)", ")", "group in psample()"),
        ("psample(group=12,cookie=0x010203,group=12)", "group=12)", "each field once: group is here twice"),
        ("psample(group=abc)", "abc", "a number"),
        ("psample(group=12,cookie=wrong)", "wrong", "0x and the hexadecimal digits of at most 16 bytes"),
        ("psample()", ")", "group in psample()"),
        // Limits.
        (
            "psample(group=1,cookie=0x0102030405060708090a0b0c0d0e0f1011)",
            "0x01",
            "0x and the hexadecimal digits of at most 16 bytes",
        ),
        ("ct(zone=65536)", "65536", "a number up to 65535 (0xffff)"),
        ("ct(helper=sixteen_letters_)", "sixteen", "a name of at most 15 characters"),
        ("ct(timeout=)", ")", "a name of at most 31 characters"),
        ("sample(sample=100.1%,actions(1))", "100.1", "a percentage from 0 to 100"),
        ("sample(sample=0.000000000000000000001%,actions(1))", "0.00", "a percentage of at most 20 decimals"),
        ("push_mpls(label=1048576,tc=0,ttl=1,bos=1,eth_type=0x8847)", "1048576", "a number up to 1048575 (0xfffff)"),
        ("push_nsh(ttl=64)", "64", "a number up to 63 (0x3f)"),
        // What does not go together.
        ("ct(commit,force_commit)", "force", "commit or force_commit, not both"),
        ("ct(nat(random))", "random", "src or dst in nat()"),
        ("ct(nat(src,dst))", ")", "src or dst, not both"),
        ("ct(nat(src=1.1.1.1,hash,random))", "random", "hash or random, not both"),
        ("ct(nat(src=1.1.1.2-1.1.1.1))", "1.1.1.1", "an address not below 1.1.1.2"),
        ("ct(nat(src=1.1.1.2-::1))", "::1", "an address not below 1.1.1.2"),
        ("ct(nat(src=1.1.1.1:0))", "0)", "a port from 1 to 65535"),
        ("ct(nat(src=1.1.1.1:5-4))", "4)", "a port from 5 to 65535"),
        ("ct(nat(src=[::1]:))", ")", "a number"),
        ("ct(nat(src=1.1.1.1.1))", "1.1.1.1.1", "an IP address"),
        ("userspace(actions)", ")", "pid in userspace()"),
        ("userspace(pid=1,userdata(01),slow_path(0))", "slow_path", "one note: there is another at byte 16"),
        ("userspace(pid=1,userdata(012))", "))", "another hexadecimal digit: two make an byte"),
        ("userspace(pid=1,slow_path(cfm|nope))", "nope", "a reason: cfm, bfd, lacp, stp, lldp, action, match"),
        ("push_nsh(mdtype=3)", "3", "1 (contexts) or 2 (TLVs)"),
        ("push_nsh(mdtype=2,c3=0x1)", "0x1", "md2, not contexts, with mdtype=2"),
        ("push_nsh(md2=0x00)", "0x00", "contexts, not md2, with mdtype=1"),
        ("push_nsh(mdtype=2,md2=1234)", "1234", "hexadecimal digits after 0x"),
        ("add_mpls(label=1,tc=0,ttl=1,bos=1,eth_type=0x800)", "0x800", "0x8847 or 0x8848"),
        ("push_eth(src=00:00:00:00:00:01)", ")", "dst in push_eth()"),
        ("hash(l3(1))", "l3", "l4 or sym_l4"),
        ("check_pkt_len(size=1,gt(1))", ")", "le in check_pkt_len()"),
        ("check_pkt_len(size=1,gt,le(1))", ",le", "\"(\""),
        ("clone(1", "", "\")\""),
        ("clone(1))", ")", "\",\" between actions"),
        ("clone(1;2)", "1;2", "an action or a port: \"1;2\" is neither"),
        ("sample(sample=1%,actions(bad))", "bad", "an action or a port: \"bad\" is neither"),
        ("ct(commit", "", "\")\" for ct("),
        ("ct(commit;)", ";", "\",\" or \")\""),
    ] {
        let error = parse_actions(text, &()).unwrap_err();
        assert_eq!(error.expected, expected, "{}", error.caret(text));
        assert!(text[error.offset..].starts_with(place), "{}", error.caret(text));
    }
}

#[test]
fn what_outer_headers_say_of_themselves_must_be_so() {
    let vxlan = forms().into_iter().find(|form| form.contains("vxlan(")).unwrap();
    for (from, to, place, expected) in [
        ("size=50", "size=51", "51", "50, the size of these headers, at most 512"),
        ("type=4", "type=5", "5,", "4, the type of these headers"),
        ("dl_type=0x0800", "dl_type=0x0806", "0x0806", "0x0800 or 0x86dd"),
        ("dl_type=0x0800", "dl_type=0x86dd", "ipv4", "\"ipv6(\""),
        ("vxlan(", "vxlam(", "vxlam", "vxlan, geneve or gtpu"),
        ("vni=0x1c7", "vni=0x1000000", "0x1000000", "a number up to 16777215 (0xffffff)"),
        ("tos=0,", "", ")", "tos in ipv4()"),
        ("udp(", "tcp(", "tcp", "udp, gre, erspan or srv6"),
        (",out_port(1)", "", ")", "out_port in tnl_push()"),
    ] {
        let text = vxlan.replace(from, to);
        let error = parse_actions(&text, &()).unwrap_err();
        assert_eq!(error.expected, expected, "{}", error.caret(&text));
        assert!(text[error.offset..].starts_with(place), "{}", error.caret(&text));
    }
    let bytes = |count: usize| {
        format!("tnl_push(tnl_port(1),header(size={count},type=4,bytes({})),out_port(1))", "00".repeat(count))
    };
    assert!(parse_actions(&bytes(512), &()).is_ok());
    assert!(parse_actions(&bytes(513), &()).is_err());
}

#[test]
fn geneve_options_have_the_room_of_the_header() {
    let push = |options: &[usize]| {
        let length: usize = options.iter().map(|length| 4 + length).sum();
        let options: String = options.iter().map(|length| format!("{{class=0x1,type=0x2,len={length},0}}")).collect();
        format!(
            "tnl_push(tnl_port(1),header(size={},type=5,eth(dst=00:00:00:00:00:01,src=00:00:00:00:00:02,dl_type=0x0800),\
             ipv4(src=1.1.1.1,dst=1.1.1.2,proto=17,tos=0,ttl=64,frag=0x0),udp(src=0,dst=6081,csum=0x0),\
             geneve(vni=0x0,options({options}))),out_port(1))",
            50 + length
        )
    };
    let full = push(&[124, 120]);
    assert_eq!(written(&read(&full)), full);
    assert!(parse_actions(&push(&[124, 124]), &()).unwrap_err().expected.contains("at most 252 bytes of options"));
    assert!(parse_actions(&push(&[128]), &()).is_err());
    assert!(parse_actions(&push(&[2]), &()).is_err());
}

#[test]
fn userdata_fits_into_a_netlink_attribute() {
    let text = |bytes: usize, rest: &str| format!("userspace(pid=1234567,userdata({}){rest})", "aa".repeat(bytes));
    for (rest, most) in [(",actions", 65512), (",tunnel_out_port=10", 65508), ("", 65516)] {
        let fits = text(most, rest);
        assert_eq!(written(&read(&fits)), fits);
        let error = parse_actions(&text(most + 1, rest), &()).unwrap_err();
        assert_eq!(error.offset, "userspace(pid=1234567,".len(), "{rest}");
        assert!(error.expected.starts_with("userdata shorter by "), "{}", error.expected);
    }
}

#[test]
fn lists_nest_and_are_as_long_as_in_ovs() {
    for (open, list, close) in [
        ("clone", "(", ")"),
        ("sample(sample=1.0%,actions", "(", "))"),
        ("dec_ttl(le_1", "(", "))"),
        ("check_pkt_len(size=1,gt", "(1),le(", "))"),
    ] {
        let nested = |depth: usize| format!("{}1{}", [open, list].concat().repeat(depth), close.repeat(depth));
        assert_eq!(written(&read(&nested(32))), nested(32));
        let error = parse_actions(&nested(33), &()).unwrap_err();
        let place = 32 * [open, list].concat().len() + open.len();
        assert_eq!((error.offset, &*error.expected), (place, "at most 32 lists of actions within each other"));
        assert!(parse_actions(&nested(100_000), &()).is_err());
        assert!(parse_actions(&open.repeat(100_000), &()).is_err());
    }
    let many = |count: usize| format!("1,clone({})", vec!["2"; count].join(","));
    assert_eq!(written(&read(&many(8191))), many(8191));
    let error = parse_actions(&many(8192), &()).unwrap_err();
    assert_eq!((error.offset, &*error.expected), (8 + 2 * 8191, "at most 8191 actions"));
}

#[test]
fn ports_within_actions_have_names() {
    let mut ports = PortMap::default();
    for (number, name) in [(1, "p1"), (2, "vxlan_sys_4789")] {
        ports
            .insert(Port { number: PortNumber(number), name: name.parse().expect("a name"), kind: PortKind::Physical })
            .unwrap();
    }
    let named = "tnl_pop(vxlan_sys_4789),clone(p1),userspace(pid=0,ipfix(output_port=p1),tunnel_out_port=vxlan_sys_4789),\
                 tnl_push(tnl_port(vxlan_sys_4789),header(size=1,type=4,bytes(00)),out_port(p1))";
    let numbered = "tnl_pop(2),clone(1),userspace(pid=0,ipfix(output_port=1),tunnel_out_port=2),\
                    tnl_push(tnl_port(2),header(size=1,type=4,bytes(00)),out_port(1))";
    assert_eq!(parse_actions(named, &ports).unwrap()[..], read(numbered));
    let mut text = String::new();
    write_actions(&mut text, &read(numbered), &Style { more: false, names: Some(&ports) }).unwrap();
    assert_eq!(text, named);
}
