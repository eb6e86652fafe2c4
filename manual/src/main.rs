//! Writes manual pages and completions, which are made of the very parsers of the programs, into a folder as packages have it.
//!
//! `sluice-manual FOLDER` writes `FOLDER/man`, `FOLDER/bash`, `FOLDER/zsh` and `FOLDER/fish`.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [folder] = &arguments[..] else {
        eprintln!("usage: sluice-manual FOLDER");
        return ExitCode::FAILURE;
    };
    match write(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-manual: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    let [man, bash, zsh, fish] = ["man", "bash", "zsh", "fish"].map(|name| folder.join(name));
    for place in [&man, &bash, &zsh, &fish] {
        fs::create_dir_all(place)?;
    }
    let programs = [
        (sluice_cli::command(), "1"),
        (sluice_agent::daemon::command(), "8"),
        (sluice_mirror::program::command(), "8"),
    ];
    for (command, section) in programs {
        let name = command.get_name().to_owned();
        for (shell, place) in [(Shell::Bash, &bash), (Shell::Zsh, &zsh), (Shell::Fish, &fish)] {
            generate_to(shell, &mut command.clone(), &name, place)?;
        }
        pages(command, section, &man)?;
    }
    // The command line knows no more of it than that it is of the daemon.
    page(&sluice_agent::ovs::command(), "sluice-ovs-observe", "1", &man)
}

/// A page for the program, and one for each of its commands: sluice(1), sluice-dump-flows(1) and so on.
fn pages(command: Command, section: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let program = command.get_name().to_owned();
    page(&command, &program, section, folder)?;
    for subcommand in command.get_subcommands() {
        let name = format!("{program}-{}", subcommand.get_name());
        page(subcommand, &name, section, folder)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str, section: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut text = Vec::new();
    let man = Man::new(command.clone().display_name(name)).title(name.to_uppercase()).section(section).manual("Sluice");
    // Without a date a page is the same whenever it is made.
    man.date("").render(&mut text)?;
    fs::write(folder.join(format!("{name}.{section}")), text)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
mod tests {
    use super::*;

    #[test]
    fn every_page_that_one_names_is_there_and_exit_codes_are_said() {
        let folder = env::temp_dir().join(format!("sluice-manual-{}", std::process::id()));
        write(&folder).unwrap();
        let man = folder.join("man");
        let mut named = 0;
        for entry in fs::read_dir(&man).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap().replace("\\-", "-");
            for (name, section) in text.lines().filter_map(|line| line.strip_suffix(')')?.split_once('(')) {
                if matches!(section, "1" | "8") {
                    named += 1;
                    assert!(man.join(format!("{name}.{section}")).exists(), "{}: {name}({section})", path.display());
                }
            }
        }
        assert!(named > 30, "only {named} pages are named");
        for page in ["sluice.1", "sluice-ovs-observe.1", "sluiced.8", "sluice-mirror.8"] {
            let text = fs::read_to_string(man.join(page)).unwrap();
            assert!(text.contains("Exit codes: 0 "), "{page}: {text}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
