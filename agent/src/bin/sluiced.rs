//! `sluiced`, the daemon.

fn main() -> std::process::ExitCode {
    sluice_agent::daemon::run()
}
