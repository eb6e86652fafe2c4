//! What the process may do, and what memory it may pin.

use crate::check::Check;
use crate::machine::Machine;

/// A process, by what `/proc` says of it.
pub(crate) struct Process {
    whose: String,
    status: Option<String>,
    limits: Option<String>,
}

impl Process {
    /// The agent's if it runs, otherwise this one.
    pub(crate) fn read(machine: &Machine, agent: Option<u32>) -> Self {
        let read =
            |of: &str| [format!("/proc/{of}/status"), format!("/proc/{of}/limits")].map(|file| machine.text(file));
        let ([status, limits], whose) = match agent {
            Some(pid) => (read(&pid.to_string()), format!("sluiced (process {pid})")),
            None => (read("self"), "this process".to_owned()),
        };
        Self { whose, status, limits }
    }

    pub(crate) fn capability(&self, name: &str, bit: u8) -> Check {
        const NAME: &str = "capability";
        let effective =
            self.status.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("CapEff:")));
        let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
        match effective {
            None => Check::unknown(NAME, format!("{name} of {}", self.whose)),
            Some(bits) if bits >> bit & 1 == 1 => Check::ok(NAME, format!("{} has {name}", self.whose)),
            Some(_) => Check::refuses(
                NAME,
                format!("{} does not have {name}", self.whose),
                format!("run it as root, or with AmbientCapabilities={name} as the unit does"),
            ),
        }
    }

    pub(crate) fn pinned_memory(&self) -> Check {
        const NAME: &str = "memlock";
        let line = self
            .limits
            .as_deref()
            .and_then(|text| text.lines().find_map(|line| line.strip_prefix("Max locked memory")));
        match line.and_then(|line| line.split_whitespace().next()) {
            None => Check::unknown(NAME, format!("the limit of {}", self.whose)),
            Some("unlimited") => Check::ok(NAME, format!("{} may pin memory without a limit", self.whose)),
            Some(bytes) => Check::warn(
                NAME,
                format!("{} may pin {bytes} bytes, which may be too few for queues and tables", self.whose),
                "LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited",
            ),
        }
    }
}

/// Huge pages are for others: they are told because whoever shares a DPU with DPDK or OVS-DOCA looks for them.
pub(crate) fn huge_pages(machine: &Machine) -> Check {
    let text = machine.text("/proc/meminfo").unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
    };
    match (value("HugePages_Total"), value("HugePages_Free"), value("Hugepagesize")) {
        (Some(total), Some(free), Some(size)) => Check::ok(
            "huge pages",
            format!("{total} of {size} KiB, {free} of them free; Sluice needs none, DPDK and OVS-DOCA do"),
        ),
        _ => Check::ok("huge pages", "none in this kernel; Sluice needs none"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::check::Verdict;

    #[test]
    fn capabilities_and_limits_are_those_of_the_agent_if_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { root: folder.path().into(), ..Machine::default() };
        for (of, bits, limit) in [("self", "0000000000000000", "8388608"), ("77", "0000000000003000", "unlimited")] {
            let place = folder.path().join("proc").join(of);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("status"), format!("Name:\tx\nCapEff:\t{bits}\n")).unwrap();
            fs::write(place.join("limits"), format!("Max locked memory         {limit}   {limit}   bytes\n")).unwrap();
        }
        let verdicts = |agent| {
            let process = Process::read(&machine, agent);
            [process.capability("CAP_NET_ADMIN", 12), process.capability("CAP_NET_RAW", 13), process.pinned_memory()]
                .map(|check| check.verdict)
        };
        assert_eq!(verdicts(Some(77)), [Verdict::Ok; 3]);
        assert_eq!(verdicts(None), [Verdict::Refuses, Verdict::Refuses, Verdict::Warn]);
        assert_eq!(verdicts(Some(78)), [Verdict::Unknown; 3]);
    }
}
