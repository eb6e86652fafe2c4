//! README.md and docs/: what they name exists.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use sluice_tests::daemon::{binary, repository, run};

/// Lines of the README at most: it is for somebody who has ten minutes.
const README_LINES: usize = 150;
/// Endings by which a word with a slash is a path, wherever it begins.
const ENDINGS: [&str; 8] = [".rs", ".md", ".toml", ".py", ".sh", ".yml", ".service", ".txt"];

/// A document of the repository.
struct Document {
    path: String,
    text: String,
}

impl Document {
    /// README.md, and all of docs/ and docs/runbooks/.
    fn all() -> Vec<Self> {
        let mut paths: Vec<_> = ["docs", "docs/runbooks"].into_iter().flat_map(markdown_files).collect();
        paths.sort();
        paths.insert(0, "README.md".to_owned());
        let read = |path: String| Self { text: fs::read_to_string(repository(&path)).expect("a document"), path };
        paths.into_iter().map(read).collect()
    }

    /// The text without blocks of code, and the lines of these blocks.
    fn parts(&self) -> (String, Vec<&str>) {
        let (mut prose, mut code, mut is_code) = (String::new(), Vec::new(), false);
        for line in self.text.lines() {
            if line.starts_with("```") {
                is_code = !is_code;
            } else if is_code {
                code.push(line);
            } else {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        assert!(!is_code, "{}: a block of code does not end", self.path);
        (prose, code)
    }

    /// What stands between two backticks, in one line each.
    fn spans(&self) -> Vec<String> {
        let (prose, _) = self.parts();
        let pieces: Vec<_> = prose.split('`').collect();
        assert!(pieces.len() % 2 == 1, "{}: a backtick has no other", self.path);
        let words = |span: &&str| span.split_whitespace().collect::<Vec<_>>().join(" ");
        pieces.iter().skip(1).step_by(2).map(words).collect()
    }

    /// Where its links lead to within the repository.
    fn links(&self) -> Vec<String> {
        let (prose, _) = self.parts();
        let targets = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        let path = |target: &str| target.split('#').next().unwrap_or_default().to_owned();
        targets.filter(|target| !target.contains("://")).map(path).filter(|path| !path.is_empty()).collect()
    }
}

/// The paths of the documents in a folder.
fn markdown_files(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(repository(folder)).expect("the documents");
    let names = entries.map(|entry| entry.expect("a document").file_name().into_string().expect("a name"));
    names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")).collect()
}

/// Whether a word is a path of the repository: by its ending, or because it begins with a folder of it. A command of the control
/// socket, such as `ovs-appctl revalidator/wait`, is written with the program that sends it.
fn is_path(word: &str) -> bool {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
    let Some((first, _)) = word.split_once('/') else { return false };
    let is_ours = !["", "target"].contains(&first);
    is_plain && is_ours && (repository(first).is_dir() || ENDINGS.iter().any(|ending| word.ends_with(ending)))
}

/// The commands of `sluice` that a piece of code calls.
fn commands(code: &str) -> Vec<&str> {
    let words: Vec<_> = code.split_whitespace().collect();
    let calls = words.iter().enumerate().filter(|(_, word)| **word == "sluice").map(|(at, _)| &words[at + 1..]);
    let command = |rest: &[&'_ str]| rest.iter().position(|word| !word.starts_with('-'));
    let is_command = |word: &&str| {
        word.starts_with(|first: char| first.is_ascii_lowercase())
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    };
    calls.filter_map(|rest| Some(rest[command(rest)?])).filter(is_command).collect()
}

/// Whether a span is the name of a type, or of something in one.
fn is_type(span: &str) -> bool {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    span.starts_with(|first: char| first.is_ascii_uppercase())
        && span.split("::").all(is_name)
        && span.split("::").next().is_some_and(|name| name.contains(|letter: char| letter.is_ascii_lowercase()))
}

/// Adds all words of the Rust files in a folder and below.
fn add_words(folder: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("a file");
        let (name, path) = (entry.file_name(), entry.path());
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            add_words(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a text");
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            found.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
        }
    }
}

#[test]
fn the_readme_takes_ten_minutes() {
    let documents = Document::all();
    let lines = documents[0].text.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines, at most {README_LINES} are wanted");
}

#[test]
fn every_path_and_every_link_leads_somewhere() {
    let mut missing = Vec::new();
    for document in Document::all() {
        let spans = document.spans();
        let words = spans.iter().filter_map(|span| span.split(' ').next());
        let paths = words.filter(|word| is_path(word)).map(repository);
        let folder = repository(&document.path).parent().expect("a folder").to_owned();
        let links = document.links().into_iter().map(|link| folder.join(link));
        missing.extend(paths.chain(links).filter(|path| !path.exists()).map(|path| (document.path.clone(), path)));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_command_is_one_of_sluice() {
    let help = run(Command::new(binary("sluice")).arg("--help"));
    assert_eq!(help.code, Some(0), "{}", help.err);
    let listed = help.out.lines().skip_while(|line| !line.starts_with("Usage")).take_while(|line| *line != "Options:");
    let known: BTreeSet<_> = listed.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert!(known.contains("dump-flows"), "{}", help.out);
    let (mut named, mut unknown) = (0, Vec::new());
    for document in Document::all() {
        let (_, code) = document.parts();
        let pieces = document.spans().into_iter().chain(code.into_iter().map(str::to_owned));
        for piece in pieces {
            named += commands(&piece).len();
            let strange = commands(&piece).into_iter().filter(|command| !known.contains(command));
            unknown.extend(strange.map(|command| format!("{}: sluice {command}", document.path)));
        }
    }
    assert!(named > 10, "only {named} commands were found");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn every_type_is_in_the_code() {
    let mut words = HashSet::new();
    add_words(&repository("."), &mut words);
    let (mut named, mut unknown) = (0, Vec::new());
    for document in Document::all() {
        for span in document.spans().into_iter().filter(|span| is_type(span)) {
            named += 1;
            if !span.split("::").all(|name| words.contains(name)) {
                unknown.push(format!("{}: {span}", document.path));
            }
        }
    }
    assert!(named > 100, "only {named} types were found");
    assert!(unknown.is_empty(), "{unknown:#?}");
}
