//! `sluiced`, the daemon. `sluice ovs observe` is in it, too, because the backends are.

use std::process::ExitCode;

use sluice_control::OBSERVE_OVS;

/// Flows are taken on by one thread, freed by another and added again by a third. With the C library's allocator the memory of
/// 1,000,000 flows that were deleted stayed with the thread that had asked for it, and each time that they were added again
/// 50 to 100 MB were added to what is held; with this one it stays as it is, and their deletion takes half as long.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == OBSERVE_OVS => sluice_agent::ovs::run(arguments),
        _ => sluice_agent::daemon::run(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
mod tests {
    /// `make test-pages` shows it at work; this fails at once where somebody takes the setting away.
    #[test]
    fn on_arm_the_allocator_is_built_for_pages_of_64_kib() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cargo/config.toml");
        let config: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        for target in ["AARCH64_UNKNOWN_LINUX_GNU", "AARCH64_UNKNOWN_LINUX_MUSL"] {
            let variable = format!("{target}_JEMALLOC_SYS_WITH_LG_PAGE");
            assert_eq!(config["env"][&variable].as_str(), Some("16"), "{variable}");
        }
    }
}
