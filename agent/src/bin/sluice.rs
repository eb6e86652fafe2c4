//! `sluice`, the command line.

fn main() -> std::process::ExitCode {
    sluice_agent::cli::run()
}
