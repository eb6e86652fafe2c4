//! Connection tracking by an indirect action, and flows behind it that tell what came of packets.

use super::{Testpmd, WIRE, packet};

/// A TCP segment between 10.0.0.9:4000, which opens the connection, and 10.0.0.2:80: by flags, how many bytes were sent and are
/// acknowledged in front of it, beginning with the SYN, and how many it carries. The initiator's numbers begin at 1000, the other's at
/// 2000; each offers 512 bytes.
fn segment(from_initiator: bool, flags: u8, sent: u32, acknowledged: u32, bytes: usize) -> Vec<u8> {
    let mut ends = [([10, 0, 0, 9], 4000_u16, 1000_u32), ([10, 0, 0, 2], 80, 2000)];
    if !from_initiator {
        ends.reverse();
    }
    let [own, other] = ends;
    let mut segment = [own.1.to_be_bytes(), other.1.to_be_bytes()].concat();
    segment.extend((own.2 + sent).to_be_bytes());
    segment.extend((other.2 + acknowledged).to_be_bytes());
    segment.extend([0x50, flags, 2, 0, 0, 0, 0, 0]);
    segment.resize(segment.len() + bytes, 0x55);
    let mut packet = packet(other.0, 64, 0)[..34].to_vec();
    packet[16..18].copy_from_slice(&u16::try_from(20 + segment.len()).unwrap().to_be_bytes());
    packet[23] = 6;
    packet[26..30].copy_from_slice(&own.0);
    packet.extend(segment);
    packet.resize(packet.len().max(60), 0);
    packet
}

#[test]
fn connections_are_tracked_by_an_indirect_action_and_flows_tell_what_came_of_their_packets() {
    const FIN: u8 = 0x01;
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    for profile in ["bluefield-2", "connectx-7"] {
        let mut testpmd = Testpmd::start(profile, &[]);
        testpmd.command("set fwd rxonly");
        testpmd.command("start");
        let common = |is_original, enabled| {
            format!(
                "set conntrack com peer 0 is_orig {is_original} enable {enabled} live 0 sack 0 cack 0 last_dir 0 liberal 0 state 0 \
                 max_ack_win 0 r_lim 5 last_win 512 last_seq 2000 last_ack 1001 last_end 2001 last_index 2"
            )
        };
        for command in [
            common(1, 1).as_str(),
            "set conntrack orig scale 15 fin 0 acked 0 unack_data 0 sent_end 1001 reply_end 1513 max_win 512 max_ack 0",
            "set conntrack rply scale 15 fin 0 acked 1 unack_data 0 sent_end 2001 reply_end 2513 max_win 512 max_ack 1001",
        ] {
            assert!(!testpmd.command(command).contains("error"), "{}", testpmd.log);
        }
        let said = testpmd.command("flow indirect_action 0 create action_id 7 ingress action conntrack / end");
        assert!(said.contains("Indirect action #7 created"), "{said}");
        testpmd.flow("0 ingress group 0 pattern eth / end actions jump group 1 / end");
        testpmd
            .flow("0 ingress group 1 pattern eth / ipv4 / tcp dst is 80 / end actions indirect 7 / jump group 2 / end");
        testpmd.command(&common(0, 1));
        let said = testpmd.command("flow indirect_action 0 update 7 action conntrack_update dir / end");
        assert!(said.contains("Indirect action #7 updated"), "{said}");
        testpmd
            .flow("0 ingress group 1 pattern eth / ipv4 / tcp src is 80 / end actions indirect 7 / jump group 2 / end");
        // Valid, and of another state besides; invalid; not tracked; invalid and bad.
        let flows = ["is 1", "is 3", "is 4", "is 8", "is 20"].map(|state| {
            let action = if state == "is 1" { "queue index 0" } else { "drop" };
            testpmd.flow(&format!(
                "0 ingress group 2 pattern eth / ipv4 / tcp / conntrack {state} / end actions count / {action} / end"
            ))
        });
        let mut counts = [(0, 0); 5];
        let mut send = |testpmd: &mut Testpmd, frames: &[(Vec<u8>, usize)]| {
            for (frame, flow) in frames {
                testpmd.send(WIRE, frame);
                counts[*flow].0 += 1;
                counts[*flow].1 += frame.len() as u64;
            }
            for (flow, (packets, bytes)) in flows.iter().zip(counts) {
                testpmd.wait_for_count(flow, packets, bytes);
            }
        };
        send(
            &mut testpmd,
            &[
                (segment(true, ACK, 1, 2, 0), 2),
                (segment(true, ACK, 1, 1, 0), 1),
                (segment(true, ACK, 1, 1, 100), 0),
                (segment(false, ACK, 1, 101, 300), 0),
                (segment(false, ACK, 700, 101, 1), 2),
                (segment(true, SYN | FIN, 101, 301, 0), 4),
            ],
        );
        let said = testpmd.command("flow indirect_action 0 query 7");
        for words in
            ["Enable: 1", "Live: 1", "State: 1", "Last Seq: 2001, Last ACK: 1101", "Last Win: 512, Last End: 2301"]
        {
            assert!(said.contains(words), "{words} in {said}");
        }
        for words in ["Sent end: 1101,", "Sent end: 2301,", "Max ACK: 1101"] {
            assert!(said.contains(words), "{words} in {said}");
        }
        send(
            &mut testpmd,
            &[
                (segment(true, FIN | ACK, 101, 301, 0), 1),
                (segment(false, ACK, 301, 102, 0), 1),
                (segment(false, FIN | ACK, 301, 102, 0), 1),
                (segment(true, ACK, 102, 302, 0), 1),
            ],
        );
        assert!(testpmd.command("flow indirect_action 0 query 7").contains("State: 5"), "{}", testpmd.log);
        testpmd.command(&common(0, 0));
        testpmd.command("flow indirect_action 0 update 7 action conntrack_update ctx / end");
        send(&mut testpmd, &[(segment(true, ACK, 102, 302, 0), 3)]);
        testpmd.wait_for_packets(0, 2);
        testpmd.quit();
    }
}
