//! What was found, as a line or an object.

use std::fmt;

use serde::Serialize;

/// One prerequisite, and what was found of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Which prerequisite, in a word or two of a closed set.
    pub name: &'static str,
    /// How it is met.
    pub verdict: Verdict,
    /// What was found.
    pub finding: String,
    /// What to do about it, if something is to be done.
    pub cure: Option<String>,
}

/// How a prerequisite is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is.
    Ok,
    /// It cannot be told.
    Unknown,
    /// It is not; the agent runs, and something is missing.
    Warn,
    /// It is not; the agent does not start, or takes no flow.
    Refuses,
}

impl Check {
    pub(crate) fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, finding: finding.into(), cure: None }
    }

    pub(crate) fn unknown(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Unknown, finding: finding.into(), cure: None }
    }

    pub(crate) fn warn(name: &'static str, finding: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, finding: finding.into(), cure: Some(cure.into()) }
    }

    pub(crate) fn refuses(name: &'static str, finding: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Refuses, finding: finding.into(), cure: Some(cure.into()) }
    }
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "?",
            Self::Warn => "warn",
            Self::Refuses => "FAIL",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, verdict, finding, cure } = self;
        write!(out, "{:<5} {name:<14} {finding}", verdict.word())?;
        cure.as_ref().map_or(Ok(()), |cure| write!(out, "; cure: {cure}"))
    }
}

/// A line for each check, and one that counts them.
pub fn to_text(checks: &[Check]) -> String {
    let lines: String = checks.iter().map(|check| format!("{check}\n")).collect();
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (refuse, lack, unknown) = (count(Verdict::Refuses), count(Verdict::Warn), count(Verdict::Unknown));
    format!("{lines}{} checks: {refuse} refuse, {lack} warn, {unknown} unknown\n", checks.len())
}

/// One object, with the keys of `docs/json.md`.
pub fn to_json(checks: &[Check]) -> serde_json::Value {
    let is_well = checks.iter().all(|check| check.verdict != Verdict::Refuses);
    serde_json::json!({ "ok": is_well, "checks": checks })
}
