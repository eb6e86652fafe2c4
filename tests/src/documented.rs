//! The keys of JSON that `docs/json.md` documents.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::daemon::repository;

/// The keys of the table under a heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(repository("docs/json.md")).expect("the documentation");
    let section = text.split("\n## ").find(|section| section.lines().next() == Some(heading));
    let lines = section.unwrap_or_else(|| panic!("docs/json.md has no section {heading}")).lines();
    let keys = lines.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    keys.map(str::to_owned).collect()
}

/// The paths of all keys in a value.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                found.insert(path.clone());
                keys(member, &path, found);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| keys(element, &format!("{path}[]"), found)),
        _ => {}
    }
}

/// Whether a path is the documented one, in which a star is one name.
fn is_documented_as(path: &str, documented: &str) -> bool {
    let (path, documented) = (path.split('.'), documented.split('.'));
    path.clone().count() == documented.clone().count()
        && path.zip(documented).all(|(name, known)| known == "*" || name == known)
}

/// Compares the keys of some samples, none of which must have all of them, with the table under a heading. Elements of an array are
/// samples. What is within some keys is left out.
///
/// # Panics
///
/// If a key is printed and not documented, or the other way round.
pub fn compare(heading: &str, samples: &[Value], within: &[&str]) {
    let documented = documented(heading);
    let mut found = BTreeSet::new();
    for sample in samples {
        keys(sample, "", &mut found);
    }
    let found: BTreeSet<_> = found.iter().map(|path| path.trim_start_matches("[].").to_owned()).collect();
    let elsewhere = |path: &String| within.iter().any(|other| path.starts_with(&format!("{other}.")));
    for path in found.iter().filter(|path| !elsewhere(path)) {
        assert!(
            documented.iter().any(|known| is_documented_as(path, known)),
            "{heading}: {path} is not in docs/json.md"
        );
    }
    for known in documented.iter().filter(|known| !elsewhere(known)) {
        assert!(found.iter().any(|path| is_documented_as(path, known)), "{heading}: {known} is not printed: {found:?}");
    }
}
