//! What each backend takes of the flow language, found out by asking the code that translates for it.

mod actions;
mod backends;
mod matches;
mod probe;

pub use backends::{Backend, LabVports, METER, flow, tc};
pub use probe::{with_field, with_header};

use std::fmt::{self, Write};

use sluice_flow::field::FieldSpec;
use sluice_flow::refusal::Refusal;

/// What a backend takes of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// All of it, in every form that was asked for.
    All,
    /// A field, on all of its bits or not at all.
    Exact,
    /// Some of it; this is not.
    InPart(Refusal),
    /// Nothing.
    Nothing(Refusal),
}

/// Something of the language.
pub struct Row {
    /// What it is, in the words of a flow.
    pub what: String,
    /// What each backend takes of it, in words.
    pub taken: [String; Backend::ALL.len()],
}

/// The document `docs/language.md`.
pub fn document() -> String {
    let mut text = String::from(HEAD);
    for (title, first, rows) in [
        ("Fields that are matched", "field", matches::rows()),
        ("Actions", "action", actions::rows()),
        ("Fields that are set", "field", actions::sets()),
    ] {
        table(&mut text, title, first, &rows).expect("a text grows");
    }
    text
}

/// The row of all backends.
fn row(what: impl Into<String>, ask: impl Fn(Backend) -> Taken) -> Row {
    Row { what: what.into(), taken: Backend::ALL.map(|backend| ask(backend).to_string()) }
}

/// The rows of fields, those of neighbours in one attribute of which the same is taken in one.
fn of_fields<'a>(fields: impl Iterator<Item = &'a FieldSpec>, ask: impl Fn(Backend, &FieldSpec) -> Taken) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut last = None;
    for spec in fields {
        let next = row(spec.field.to_string(), |backend| ask(backend, spec));
        match rows.last_mut().filter(|row| last == Some(spec.attribute) && row.taken == next.taken) {
            Some(row) => row.what = format!("{}, {}", row.what, spec.name),
            None => rows.push(next),
        }
        last = Some(spec.attribute);
    }
    rows
}

fn table(text: &mut String, title: &str, first: &str, rows: &[Row]) -> fmt::Result {
    writeln!(text, "\n## {title}\n\n| {first} | {} |", Backend::ALL.map(Backend::name).join(" | "))?;
    writeln!(text, "|---|{}", "---|".repeat(Backend::ALL.len()))?;
    for row in rows {
        writeln!(text, "| {} | {} |", row.what, row.taken.join(" | "))?;
    }
    Ok(())
}

impl fmt::Display for Taken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => out.write_str("yes"),
            Self::Exact => out.write_str("exact"),
            Self::InPart(refusal) => write!(out, "in part: {}", reason(refusal)),
            Self::Nothing(refusal) => write!(out, "no: {}", reason(refusal)),
        }
    }
}

/// The reason of a refusal without the name of what it is about, which the row has. A bar would end the cell.
fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Field { reason, .. } | Refusal::Action { reason, .. } => reason.to_string(),
        Refusal::Until { refusal, .. } => reason(refusal),
        other => other.to_string(),
    }
    .replace('|', "\\|")
}

const HEAD: &str = "\
# The flow language, backend by backend

What the translation of each backend takes, and the reason that a flow with anything else is refused with. `cargo run -p sluice-tests
--bin language` prints this page from the code, and `cargo test -p sluice-tests --test language` compares it.

The rows are found out by asking for one field or action at a time: *yes* is any value under any mask, *exact* any value on all of its
bits or not at all, *in part* some forms and not the one that the reason is of. What goes together is another question, which `sluice
explain` answers for a flow. For `tc` the kernel is the newest, for `dv` nothing was asked of a device.
";
