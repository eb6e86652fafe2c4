//! `sluice-mirror` from outside, as far as it goes without a device.

use std::process::Command;

use sluice_tests::daemon::{Ran, binary, run};

fn mirror(args: &[&str]) -> Ran {
    run(Command::new(binary("sluice-mirror")).args(args))
}

#[test]
fn a_mistake_is_told_in_one_line_and_by_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mirror.toml");
    std::fs::write(&file, "[send]\nbatches = 0\n").unwrap();
    let file = file.to_str().unwrap();
    for (args, code, words) in [
        (&["send", "--config", file][..], 2, "batches cannot be 0, but 1 to 65536"),
        (&["send", "--config", "/nowhere"], 2, "/nowhere: No such file or directory"),
        (&["collect"], 2, "nothing is to be done with frames: name a file with write, or a tap"),
        (&["collect", "--write", "-", "--keep", "3"], 2, "rotate_size, rotate_age and keep are for files"),
        (&["collect", "--write", "/nowhere/a.pcapng", "--device", "mlx5_77"], 2, "there is no RDMA device mlx5_77"),
        (&["send", "--device", "mlx5_77"], 2, "there is no RDMA device mlx5_77"),
    ] {
        let ran = mirror(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("sluice-mirror: ") && ran.err.contains(words), "{args:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
    }
    for args in [&["send", "--connect", "by hand"][..], &["collect", "--rotate-age", "soon"], &["listen"], &[]] {
        assert_eq!(mirror(args).code, Some(1), "{args:?}");
    }
    for args in
        [&["send", "--check"][..], &["collect", "--check", "--write", "a.pcapng"], &["--help"], &["send", "--help"]]
    {
        assert_eq!(mirror(args).code, Some(0), "{args:?}");
    }
}
