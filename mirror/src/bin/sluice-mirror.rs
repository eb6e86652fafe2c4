//! `sluice-mirror`, both ends of the mirror.

fn main() -> std::process::ExitCode {
    sluice_mirror::program::run()
}
