//! `sluice`, the command line.

fn main() -> std::process::ExitCode {
    sluice_cli::run()
}
