//! What of this bench is to run: all of it, or what the command line names.

/// A part that can be asked for alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Our own part of an installation, without a kernel.
    Native,
    /// Every way of putting rules in.
    Ways,
    /// From kill -9 until ready.
    Restart,
    /// The revalidator, beside that of OVS.
    Revalidation,
    /// From acceptance to installed at half of the highest rate.
    Latency,
}

impl Part {
    const ALL: [(&'static str, Self); 5] = [
        ("native", Self::Native),
        ("ways", Self::Ways),
        ("restart", Self::Restart),
        ("revalidation", Self::Revalidation),
        ("latency", Self::Latency),
    ];
}

/// Some of them.
#[derive(Clone, Debug)]
pub(crate) struct Parts(Vec<Part>);

impl Parts {
    /// Those that the words of the command line name, or all if they name none.
    pub(crate) fn of_command_line() -> Self {
        let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        let named = |word: &String| {
            let found = Part::ALL.iter().find(|(name, _)| name == word);
            found.unwrap_or_else(|| panic!("{word} is none of {:?}", Part::ALL.map(|(name, _)| name))).1
        };
        let parts: Vec<_> = words.iter().map(named).collect();
        Self(if parts.is_empty() { Part::ALL.map(|(_, part)| part).to_vec() } else { parts })
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.0.contains(&part)
    }

    /// Whether any but our own part is asked for.
    pub(crate) fn need_the_lab(&self) -> bool {
        self.0.iter().any(|part| *part != Part::Native)
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        Part::ALL.into_iter().filter(|(_, part)| self.has(*part)).map(|(name, _)| name)
    }
}
