//! What keeps the daemon from starting on an mlx5 NIC: one line that says so, exit code 2, and nothing done.

use std::fs;
use std::path::Path;
use std::process::Command;

use sluice_tests::daemon::{binary, run};
use sluice_tests::mlx5::runner_with;

use crate::agent::{CONFIG, PROFILE};

/// A function of a ConnectX that does not manage the switch.
const NO_MANAGER: &str = "connectx-6-dx-no-eswitch";
/// "It does not start" (`sluiced --help`).
const NOT_STARTED: i32 = 2;

/// Runs the daemon by a program, and returns the line that it ends with.
fn refused(folder: &Path, program: &[String], config: &str) -> String {
    let file = folder.join("sluiced.toml");
    let places = format!("run_dir = \"{0}/run\"\nlock_dir = \"{0}\"\nmetrics = \"none\"\n", folder.display());
    fs::write(&file, places + config).unwrap();
    let ran = run(Command::new(&program[0]).args(&program[1..]).arg(binary("sluiced")).arg("--config").arg(file));
    assert_eq!(ran.code, Some(NOT_STARTED), "{}", ran.err);
    let told: Vec<_> = ran.err.lines().filter(|line| !line.starts_with("connectx: ")).collect();
    let [line] = told[..] else { panic!("not one line: {}", ran.err) };
    assert!(!["ctl", "pid"].iter().any(|end| folder.join(format!("run/sluiced.{end}")).exists()), "nothing is left");
    line.strip_prefix("sluiced: ").unwrap().to_owned()
}

#[test]
fn what_is_missing_of_a_device_is_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |profile, options: &[&str], config: &str| {
        let wires = tempfile::tempdir().unwrap();
        refused(folder.path(), &runner_with(profile, options, wires.path()), config)
    };
    let not_allowed = refused(PROFILE, &[], &CONFIG.replace("takeover = true", ""));
    assert!(not_allowed.contains("`takeover = true` in [dv] allows that"), "{not_allowed}");
    let other = refused(PROFILE, &[], &CONFIG.replace("mlx5_0", "mlx5_3"));
    assert!(other.ends_with("there is no RDMA device mlx5_3, only mlx5_0"), "{other}");
    let unprivileged = refused(PROFILE, &["--unprivileged"], CONFIG);
    assert!(unprivileged.contains("Operation not permitted (os error 1)"), "{unprivileged}");
    assert!(unprivileged.contains("needs CAP_NET_RAW and CAP_SYS_RAWIO"), "{unprivileged}");
    let no_manager = refused(NO_MANAGER, &[], CONFIG);
    assert!(no_manager.contains("mlx5_0 has no switch whose tables software may write"), "{no_manager}");
}

#[test]
fn a_machine_without_devices_or_libraries_is_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let without = |variable: String| refused(folder.path(), &["env".to_owned(), variable], CONFIG);
    let no_device = without("A=B".to_owned());
    assert!(no_device.contains("RDMA device"), "{no_device}");

    // The dynamic linker looks here first, and finds what is no library, or one that has no function.
    let libraries = tempfile::tempdir().unwrap();
    let library = libraries.path().join("libmlx5.so.1");
    let found_here = || without(format!("LD_LIBRARY_PATH={}", libraries.path().display()));
    fs::write(&library, "").unwrap();
    let none = found_here();
    assert!(none.contains("libmlx5.so.1 cannot be loaded"), "{none}");
    assert!(none.ends_with("it comes with rdma-core, in Debian by ibverbs-providers"), "{none}");
    let made = Command::new("cc").args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&library).status().unwrap();
    assert!(made.success());
    let old = found_here();
    assert!(old.ends_with("libmlx5.so.1 has no mlx5dv_is_supported: rdma-core 44 or newer is needed"), "{old}");
}

#[test]
fn a_wrong_key_is_shown_with_its_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sluiced.toml");
    fs::write(&file, CONFIG.replace("takeover = true", "takeover = 1")).unwrap();
    for options in [&["--check"][..], &[]] {
        let ran = run(Command::new(binary("sluiced")).args(options).arg("--config").arg(&file));
        assert_eq!(ran.code, Some(NOT_STARTED), "{}", ran.err);
        assert!(ran.err.contains("takeover = 1") && ran.err.contains('^'), "{}", ran.err);
    }
}
