//! `connectx run`, with the stock programs of Debian's ibverbs-utils.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_connectx")).arg("run").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn any_program_sees_the_device_without_being_root() {
    let output = run(&["--", "ibv_devices"]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("mlx5_0"), "{output:?}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_program_is_told_which_device_it_is() {
    for (profile, part, firmware) in [("connectx-5", "4119", "16.35.1000"), ("bluefield-2", "41686", "24.35.1000")] {
        let output = run(&["--profile", profile, "--", "ibv_devinfo", "-v"]);
        let told = text(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        let words: Vec<&str> = told.split_whitespace().collect();
        for pair in [["fw_ver:", firmware], ["vendor_part_id:", part], ["link_layer:", "Ethernet"]] {
            assert!(words.windows(2).any(|two| two == pair), "{pair:?} in {told}");
        }
        assert_eq!(text(&output.stderr), "", "nothing was refused");
    }
}

#[test]
fn what_is_not_modelled_is_told_and_the_program_fails() {
    // It wants a connection to somebody.
    let output = run(&["--", "ibv_rc_pingpong", "-e"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("connectx: QP_CREATE refused with EOPNOTSUPP: QPs of type 2"), "{output:?}");
}

#[test]
fn a_program_that_does_not_exist_is_an_error_and_its_code_is_kept() {
    assert!(text(&run(&["--", "/nonexistent"]).stderr).starts_with("connectx: /nonexistent: "));
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
}

#[test]
fn a_vport_that_the_device_has_not_is_an_error_and_leaves_no_files() {
    let scratch = std::env::temp_dir().join(format!("connectx-run-test-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let arguments = ["run", "--netdev", "lo", "--representor", "99=lo", "--", "true"];
    let output = Command::new(env!("CARGO_BIN_EXE_connectx")).args(arguments).env("TMPDIR", &scratch).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("there is no vport 99"), "{output:?}");
    std::fs::remove_dir(&scratch).expect("nothing is left in it");
}
