//! What the stock ovs-appctl sees.

use super::{Bench, appctl, text};
use crate::ServerOptions;

#[test]
fn the_stock_ovs_appctl_gets_its_answers() {
    let bench = Bench::new(ServerOptions::default());
    let Some(dump) = appctl(&bench, &["dpctl/dump-flows", "-m", "type=offloaded"]) else { return };
    assert_eq!(text(&dump.stdout), "dump [\"-m\", \"type=offloaded\"] é😀\n");
    assert_eq!((text(&dump.stderr), dump.status.code()), ("", Some(0)));
    let version = appctl(&bench, &["version"]).unwrap();
    assert_eq!(text(&version.stdout), "sluiced (Sluice) 0.1.0\n");
    let empty = appctl(&bench, &["echo", ""]).unwrap();
    assert_eq!((text(&empty.stdout), empty.status.code()), ("", Some(0)));
    let hostile = "quotes \" and \\ and \u{1} and tabs\t";
    let echo = appctl(&bench, &["echo", hostile]).unwrap();
    assert_eq!(text(&echo.stdout), format!("{hostile}\n"));
}

#[test]
fn the_stock_ovs_appctl_shows_failures_as_such() {
    let bench = Bench::new(ServerOptions::default());
    for (args, expected) in [
        (&["fail"][..], "no such flow\n"),
        (&["nope"], "\"nope\" is not a valid command (use \"list-commands\" to see a list of valid commands)\n"),
        (&["echo"], "\"echo\" command requires at least 1 arguments\n"),
        (&["echo", "a", "b"], "\"echo\" command takes at most 1 arguments\n"),
        (&["panic"], "\"panic\" command failed inside the agent (it panicked)\n"),
    ] {
        let Some(output) = appctl(&bench, args) else { return };
        let socket = bench.path();
        let ending = format!("ovs-appctl: {}: server returned an error\n", socket.display());
        assert_eq!((text(&output.stdout), output.status.code()), ("", Some(2)));
        assert_eq!(text(&output.stderr), format!("{expected}{ending}"));
    }
}

#[test]
fn the_stock_ovs_appctl_takes_a_long_dump() {
    let bench = Bench::new(ServerOptions::default());
    let Some(output) = appctl(&bench, &["many", "50000"]) else { return };
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).lines().count(), 50_000);
    assert!(text(&output.stdout).ends_with(" 49999\n"));
}

#[test]
fn commands_are_listed_as_open_vswitch_lists_them() {
    let bench = Bench::new(ServerOptions::default());
    let list = bench.client().call_text("list-commands", &[]).unwrap();
    assert!(
        list.starts_with("The available commands are:\n  dpctl/dump-flows        [-m] [type=..]\n  echo "),
        "{list}"
    );
    assert!(list.contains("\n  version                 \n"), "{list}");
}
