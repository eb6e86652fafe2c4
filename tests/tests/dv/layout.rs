//! Layouts and constants against the header that is installed.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use sluice_offload_dv::mlx5::LAYOUT;

#[test]
fn layouts_and_constants_are_those_of_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let mut text =
        "#include <infiniband/mlx5dv.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for (expression, _) in LAYOUT {
        writeln!(text, "printf(\"%zu\\n\", (size_t)({expression}));").unwrap();
    }
    text.push_str("return 0;\n}\n");
    fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(program).output().unwrap();
    let values = String::from_utf8(output.stdout).unwrap();
    let values: Vec<usize> = values.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(values.len(), LAYOUT.len());
    for ((expression, ours), theirs) in LAYOUT.iter().zip(values) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}
