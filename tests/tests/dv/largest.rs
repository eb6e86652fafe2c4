//! The largest rules that flows can ask for. libmlx5 takes 20 entries for a rule, 7 of them for actions, and says no more of others than
//! that they do not go. So these show that no flow asks for more, or is refused in its own words before.

use std::sync::Arc;

use sluice_offload_dv::switch::Switch;
use sluice_offload_dv::translate::Templates;
use sluice_tests::mlx5::on_device;

use crate::connections::Tracked;
use crate::rig::{HOST, flow};
use crate::tunnels::{WAY, open};

const PROFILES: [&str; 3] = ["bluefield-2", "bluefield-3", HOST];

/// What is matched of a packet with two tags, in IPv6 and TCP.
const TAGGED: &str = "eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x88a8),vlan(vid=5,pcp=1),\
                      encap(eth_type(0x8100),vlan(vid=6,pcp=2),encap(eth_type(0x86dd),\
                      ipv6(src=fd00::1,dst=fd00::2,label=0x12345,proto=6,tclass=0x20,hlimit=64,frag=no),\
                      tcp(src=1111,dst=2222),tcp_flags(0x10/0x1ff)))";
/// What an earlier `ct()` has found.
const CONNECTION: &str = "ct_state(+trk+est),ct_zone(0x5),ct_mark(0x7),ct_label(0x9)";
/// Every field that is written.
const SET: &str = "set(eth(src=02:11:22:33:44:55,dst=02:66:77:88:99:aa)),\
                   set(ipv6(src=fd00::7,dst=fd00::8,tclass=0x40,hlimit=9)),set(tcp(src=5,dst=6))";
const OUTSIDE: &str = "set(tunnel(tun_id=0x5,ipv6_src=fdaa::1,ipv6_dst=fdaa::9,tos=0xb8,ttl=64,\
                       geneve({class=0x102,type=0x80,len=4,0x10002}{class=0x103,type=0x1,len=8,0x1122334455667788}),\
                       flags(key)))";

fn add(switch: &mut Switch, key: &str, actions: &str) {
    let rule = Templates::new().instance(flow(key, actions), &Tracked).unwrap_or_else(|no| panic!("{actions}: {no}"));
    while let Err(refusal) = switch.install(rule.clone()) {
        let hops = switch.take_asked();
        assert!(!hops.is_empty(), "{key} {actions}: {refusal}");
        hops.into_iter().for_each(|hop| switch.set_way(hop, Ok(WAY)).map(drop).unwrap());
    }
}

#[test]
fn a_match_on_all_fields_at_once_fits_a_rule() {
    for profile in PROFILES {
        on_device(profile, "largest::a_match_on_all_fields_at_once_fits_a_rule", |ports| {
            let mut rig = open(ports);
            rig.switch.set_vports(Arc::new(Tracked));
            rig.switch.accept_connections().unwrap();
            add(&mut rig.switch, &format!("recirc_id(0x1),in_port(2),{CONNECTION},{TAGGED}"), "1");
            let outer = "tun_id=0x5,ipv6_src=fdaa::9,ipv6_dst=fdaa::1,tos=0xb8,ttl=60,tp_src=50000,tp_dst=4789";
            for (port, tunnel) in [
                (10, format!("tunnel({outer},vxlan(gbp(id=0x123,flags=0x48)),flags(+key))")),
                (
                    11,
                    format!(
                        "tunnel({},geneve({{class=0x102,type=0x80,len=4,0x10002}}),flags(-oam+key))",
                        outer.replace("4789", "6081")
                    ),
                ),
                (12, "tunnel(tun_id=0x5,ipv6_src=fdaa::9,ipv6_dst=fdaa::1,tos=0xb8,ttl=60,flags(+key))".to_owned()),
            ] {
                let key = format!("recirc_id(0x1),{tunnel},in_port({port}),{CONNECTION},{TAGGED}");
                add(&mut rig.switch, &key, "2");
            }
        });
    }
}

#[test]
fn all_changes_at_once_fit_a_rule() {
    for profile in PROFILES {
        on_device(profile, "largest::all_changes_at_once_fit_a_rule", |ports| {
            let mut rig = open(ports);
            let pop = "pop_vlan,pop_vlan";
            let push = "push_vlan(vid=7,pcp=0),push_vlan(tpid=0x88a8,vid=8,pcp=0)";
            let first = |from: &str| format!("recirc_id(0),{from},{TAGGED}");
            let from_function = first("in_port(2)");
            add(&mut rig.switch, &from_function, &format!("{pop},{SET},{push},1"));
            add(
                &mut rig.switch,
                &from_function.replace("in_port(2)", "in_port(3)"),
                &format!("{pop},{SET},{push},{OUTSIDE},11"),
            );
            let tunnel = "tunnel(tun_id=0x5,ipv6_src=fdaa::9,ipv6_dst=fdaa::1,flags(+key)),in_port(10)";
            add(&mut rig.switch, &first(tunnel), &format!("{pop},{SET},2"));
            add(&mut rig.switch, &first(&tunnel.replace("0x5", "0x6")), &format!("{SET},2,3"));
        });
    }
}
