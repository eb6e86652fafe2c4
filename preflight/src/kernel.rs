//! The kernel: which one, and with which options it was built.

use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use rustix::param::page_size;
use rustix::system::uname;

use crate::check::Check;
use crate::machine::Machine;

/// The largest pages that the agent's allocator is built for, on arm64 (`.cargo/config.toml`).
const LARGEST_PAGE: usize = 64 << 10;

/// Which kernel runs, with what pages.
pub(crate) fn release() -> Check {
    let release = uname().release().to_string_lossy().into_owned();
    let pages = page_size();
    let finding = format!("Linux {release}, pages of {} KiB", pages >> 10);
    if pages <= LARGEST_PAGE {
        Check::ok("kernel", finding)
    } else {
        Check::refuses("kernel", finding, "boot a kernel with pages of at most 64 KiB")
    }
}

/// With which options the kernel was built.
pub(crate) struct Options {
    /// Text and origin, if there is any.
    config: Option<(String, String)>,
}

impl Options {
    /// Reads `/proc/config.gz`, or else the file that distributions put into `/boot`.
    pub(crate) fn read(machine: &Machine) -> Self {
        let release = uname().release().to_string_lossy().into_owned();
        let running = machine.path("/proc/config.gz");
        let unpacked = File::open(&running).ok().and_then(|file| {
            let mut text = String::new();
            GzDecoder::new(file).read_to_string(&mut text).ok().map(|_| text)
        });
        let places = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
        let in_boot = || places.into_iter().find_map(|place| Some((machine.text(&place)?, place)));
        Self { config: unpacked.map(|text| (text, "/proc/config.gz".to_owned())).or_else(in_boot) }
    }

    pub(crate) fn check(&self, name: &str, is_required: bool, purpose: &str) -> Check {
        const NAME: &str = "kernel option";
        let Some((text, origin)) = &self.config else {
            return Check::unknown(NAME, format!("{name}: there is neither /proc/config.gz nor a file in /boot"));
        };
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        match value {
            Some(value @ ("y" | "m")) => Check::ok(NAME, format!("{name}={value}")),
            _ => {
                let finding = format!("{name} is not set ({origin}), which is for {purpose}");
                let cure = format!("a kernel that is built with {name}");
                if is_required { Check::refuses(NAME, finding, cure) } else { Check::warn(NAME, finding, cure) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::check::Verdict;

    #[test]
    fn options_are_read_from_the_running_kernel_or_from_boot_or_are_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { root: folder.path().into(), ..Machine::default() };
        let verdict = |name: &str, is_required| Options::read(&machine).check(name, is_required, "a test").verdict;
        assert_eq!(verdict("CONFIG_A", true), Verdict::Unknown);

        fs::create_dir_all(folder.path().join("boot")).unwrap();
        let boot = folder.path().join(format!("boot/config-{}", uname().release().to_string_lossy()));
        fs::write(boot, "CONFIG_A=y\nCONFIG_AB=m\n# CONFIG_B is not set\n").unwrap();
        assert_eq!(verdict("CONFIG_A", true), Verdict::Ok);
        assert_eq!(verdict("CONFIG_AB", true), Verdict::Ok);
        assert_eq!(verdict("CONFIG_B", true), Verdict::Refuses);
        assert_eq!(verdict("CONFIG_B", false), Verdict::Warn);

        fs::create_dir_all(folder.path().join("proc")).unwrap();
        let mut packed =
            GzEncoder::new(File::create(folder.path().join("proc/config.gz")).unwrap(), Compression::fast());
        packed.write_all(b"# CONFIG_A is not set\nCONFIG_B=y\n").unwrap();
        packed.finish().unwrap();
        assert_eq!((verdict("CONFIG_A", true), verdict("CONFIG_B", true)), (Verdict::Refuses, Verdict::Ok));
    }
}
