//! What a rule does not ask the kernel for.

#![allow(unsafe_code)]

use std::process::Command;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long, sock_filter};
use sluice_connectx::profile::{BLUEFIELD_2, BLUEFIELD_3};
use sluice_connectx::steering::Port;
use sluice_libmlx5::dv::Action;

use crate::rig::{comes_out, counters, datagram, exactly, five_tuple, play_in_switch, read_counter, value};

#[test]
fn rules_are_written_and_taken_back_without_a_system_call_for_their_memory() {
    const PLAYING: &str = "CONNECTX_PLAYS_ALONE";
    if std::env::var_os(PLAYING).is_none() {
        // In a process of its own, which ends by such a call.
        let name = "system_calls::rules_are_written_and_taken_back_without_a_system_call_for_their_memory";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", name, "--nocapture"]).env(PLAYING, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
        return;
    }
    for profile in [BLUEFIELD_2, BLUEFIELD_3] {
        play_in_switch(profile, |plugged, context, domain, table| {
            let (block, first) = counters(context, 0);
            let (count, to) = (Action::count(&block, 0).unwrap(), domain.to_vport(1).unwrap());
            let (mask, _) = exactly(&five_tuple([10, 0, 0, 2]));
            let matcher = table.matcher(0, &mask).unwrap();
            forbid(&[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev]);
            let address = |number: u8| [10, 0, 1, number];
            let rule = |number| matcher.rule(&value(&five_tuple(address(number))), &[&count, &to]).unwrap();
            let rules: Vec<_> = (0..100).map(rule).collect();
            domain.sync().unwrap();
            for number in 0..100 {
                assert_eq!(comes_out(plugged, Port::Wire, &datagram(address(number))), Some(Port::Vport(1)));
            }
            assert_eq!(read_counter(&block, first).packets, 100);
            drop(rules);
            domain.sync().unwrap();
            assert_ne!(comes_out(plugged, Port::Wire, &datagram(address(0))), Some(Port::Vport(1)));
        });
    }
}

/// Has any of these calls end the process from now on, whichever thread makes it.
fn forbid(calls: &[c_long]) {
    /// Where `struct seccomp_data` has the call's number.
    const NUMBER: u32 = 0;
    let step =
        |code: u32, skipped: u8, k: u32| sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: skipped, k };
    let mut program = vec![step(BPF_LD | BPF_W | BPF_ABS, 0, NUMBER)];
    for call in calls {
        program.push(step(BPF_JMP | BPF_JEQ | BPF_K, 1, u32::try_from(*call).unwrap()));
        program.push(step(BPF_RET | BPF_K, 0, libc::SECCOMP_RET_KILL_PROCESS));
    }
    program.push(step(BPF_RET | BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let list = libc::sock_fprog { len: u16::try_from(program.len()).unwrap(), filter: program.as_mut_ptr() };
    let (filter, threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the kernel copies the program, which is there until it has.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_seccomp, filter, threads, &raw const list)
    };
    assert_eq!(done, 0);
}
