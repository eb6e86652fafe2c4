//! What the control socket understands: the commands of OVS that its tools and users expect, and `sluice/…` for what OVS
//! has no command for.
//!
//! Layout and wording follow `lib/dpctl.c` and `ofproto-dpif-upcall.c` of OVS, so that the stock `ovs-appctl` and the
//! scripts around it work as they are.

mod arguments;
mod audit;
mod connection_selection;
mod conntrack;
mod datapath;
mod dump;
mod explain;
mod file;
mod filter;
mod flows;
mod json;
mod mirrors;
mod object;
mod orphans;
mod packets;
mod ports;
mod process;
mod revalidator;
mod timeouts;
mod trace;
mod watch;
mod zone_limits;

use std::fmt;
use std::sync::Arc;

use crate::agent::Agent;
use sluice_unixctl::{Command, Output, Registry, Request};

use self::arguments::Arguments;

/// The name under which error texts speak of the agent, as OVS puts its program's name before them.
const PROGRAM: &str = "sluiced";

/// What a command does with the agent.
type Action = fn(&Agent, &Arguments, &mut dyn Output) -> Result<(), Failure>;

/// Why a command failed; the whole text that the client sees.
#[derive(Debug)]
struct Failure(String);

/// Registers every command that needs only the agent. `exit` and `sluice/reload` belong to the daemon.
pub fn register(registry: &mut Registry, agent: &Arc<Agent>) {
    for Row { name, usage, arguments: (min_args, max_args), options, action } in COMMANDS {
        let agent = agent.clone();
        let run = move |request: &Request<'_>, out: &mut dyn Output| {
            Arguments::parse(request.args, options)
                .map(|arguments| Arguments { peer: Some(request.peer), ..arguments })
                .and_then(|arguments| action(&agent, &arguments, out))
                .map_err(|f| f.0)
        };
        registry.register(Command { name, usage, min_args: *min_args, max_args: *max_args, run: Box::new(run) });
    }
}

/// How flows are shown.
const SHOW: &[&str] = &["-m", "--more", "--names", "--no-names"];
/// How connections are shown.
const LIST: &[&str] = &["-m", "--more", "-s", "--statistics"];
/// How a flow is taken on.
const ADD: &[&str] =
    &["-s", "--statistics", "--no-wait", "--priority", "--idle-timeout", "--hard-timeout", "--permanent"];
/// How a flow is changed.
const MODIFY: &[&str] = &[
    "-s",
    "--statistics",
    "--no-wait",
    "--priority",
    "--idle-timeout",
    "--hard-timeout",
    "--permanent",
    "--may-create",
    "--keep-old-rule",
    "--clear",
];
/// How a flow is found and deleted.
const DELETE: &[&str] = &["-s", "--statistics", "--no-wait", "--priority"];
/// For programs instead of people.
const JSON: &[&str] = &["--json"];
/// How a flow is explained.
const EXPLAIN: &[&str] = &["--json", "--priority"];
/// How many flows are taken on at once.
const BULK: &[&str] = &["--no-wait"];
/// How many flows are changed at once.
const BULK_MODIFY: &[&str] = &["--no-wait", "--may-create", "--keep-old-rule", "--clear"];

const FLUSH_CONNTRACK: &str = "[dp] [zone=N] [mark=X[/M]] [labels=Y[/N]] [ct-orig-tuple [ct-reply-tuple]]";

const COMMANDS: &[Row] = &[
    row("coverage/show", "", 0, 0, &[], process::coverage),
    row("dpctl/add-flow", "[OPTIONS] [dp] flow actions", 2, 9, ADD, flows::add),
    row("dpctl/add-flows", "[OPTIONS] [dp] file", 1, 4, BULK, flows::add_file),
    row("dpctl/ct-bkts", "[dp] [gt=N]", 0, 2, &[], conntrack::buckets),
    row("dpctl/ct-del-limits", "[dp] [default] [zone=N1[,N2]...]", 1, 3, &[], zone_limits::delete),
    row("dpctl/ct-get-limits", "[dp] [zone=N1[,N2]...]", 0, 2, &[], zone_limits::get),
    row("dpctl/ct-get-maxconns", "[dp]", 0, 1, &[], conntrack::limit),
    row("dpctl/ct-get-nconns", "[dp]", 0, 1, &[], conntrack::count),
    row("dpctl/ct-set-limits", "[dp] [default=L] [zone=N,limit=L]...", 1, usize::MAX, &[], zone_limits::set),
    row("dpctl/ct-set-maxconns", "[dp] maxconns", 1, 2, &[], conntrack::set_limit),
    row("dpctl/ct-stats-show", "[-m] [dp] [zone=N]", 0, 3, &["-m", "--more"], conntrack::statistics),
    row("dpctl/del-flow", "[OPTIONS] [dp] flow", 1, 5, DELETE, flows::delete),
    row("dpctl/del-flows", "[OPTIONS] [dp] [file]", 0, 4, BULK, flows::delete_file),
    row("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0, 4, LIST, conntrack::dump),
    row("dpctl/dump-dps", "", 0, 0, &[], datapath::list),
    row("dpctl/dump-flows", "[-m] [--names] [dp] [filter=..] [type=..]", 0, 6, SHOW, dump::text),
    row("dpctl/flush-conntrack", FLUSH_CONNTRACK, 0, 6, &[], conntrack::flush),
    row("dpctl/get-flow", "[-m] [--names] [dp] ufid", 1, 4, SHOW, dump::one),
    row("dpctl/help", "", 0, usize::MAX, &[], process::list_commands),
    row("dpctl/list-commands", "", 0, usize::MAX, &[], process::list_commands),
    row("dpctl/mod-flow", "[OPTIONS] [dp] flow actions", 2, 12, MODIFY, flows::modify),
    row("dpctl/mod-flows", "[OPTIONS] [dp] file", 1, 5, BULK_MODIFY, flows::modify_file),
    row("dpctl/offload-stats-show", "[dp]", 0, 1, &[], datapath::offload_statistics),
    row("dpctl/show", "[-s] [dp]", 0, 2, &["-s", "--statistics"], datapath::show),
    row("memory/show", "", 0, 0, &[], process::memory),
    row("revalidator/pause", "", 0, 0, &[], revalidator::pause),
    row("revalidator/purge", "", 0, 0, &[], revalidator::purge),
    row("revalidator/resume", "", 0, 0, &[], revalidator::resume),
    row("revalidator/wait", "", 0, 0, &[], revalidator::wait),
    row("sluice/add-flows", "[OPTIONS] text", 1, 4, BULK, flows::add_text),
    row("sluice/add-ct-timeout", "name [key=seconds]...", 1, 17, &[], timeouts::add),
    row("sluice/add-meter", "id kbps|pps rate[:burst]...", 3, 10, &[], ports::add_meter),
    row("sluice/add-mirror", "name key port[,port]...", 3, 3, &[], mirrors::add),
    row("sluice/add-port", "number name [kind] [udp-port] [underlay]", 2, 5, &[], ports::add_port),
    row("sluice/audit", "[--fix] [--json]", 0, 2, &["--fix", "--json"], audit::audit),
    row("sluice/del-ct-timeout", "name", 1, 1, &[], timeouts::delete),
    row("sluice/del-meter", "id", 1, 1, &[], ports::delete_meter),
    row("sluice/del-mirror", "name", 1, 1, &[], mirrors::delete),
    row("sluice/del-port", "port", 1, 1, &[], ports::delete_port),
    row("sluice/dump-flows", "[-m] [filter=..] [type=..]", 0, 5, &["-m", "--more"], dump::json),
    row("sluice/explain", "[--json] [--priority=N] ufid | flow actions", 1, 4, EXPLAIN, explain::one),
    row("sluice/explain-lines", "text", 1, 1, &[], explain::lines),
    row("sluice/flush", "", 0, 0, &[], flows::flush),
    row("sluice/flush-orphans", "[--yes | --owner=ID...]", 0, 64, &["--yes", "--owner"], orphans::flush),
    row("sluice/get-flow", "ufid", 1, 1, &[], dump::one_json),
    row("sluice/inject", "port frame..", 2, 4097, &[], packets::inject),
    row("sluice/show", "", 0, 0, &[], json::show),
    row("sluice/show-ct-timeouts", "", 0, 0, &[], timeouts::show),
    row("sluice/show-meters", "[--json]", 0, 1, JSON, ports::show_meters),
    row("sluice/show-mirrors", "", 0, 0, &[], mirrors::show),
    row("sluice/stats", "", 0, 0, &[], json::statistics),
    row("sluice/trace", "port frame..", 2, 257, &[], trace::trace),
    row("sluice/watch", "[--json]", 0, 1, JSON, watch::watch),
    row("upcall/show", "", 0, 0, &[], revalidator::show),
];

/// One command.
struct Row {
    name: &'static str,
    usage: &'static str,
    /// The least and the greatest number of arguments; options count.
    arguments: (usize, usize),
    options: &'static [&'static str],
    action: Action,
}

const fn row(
    name: &'static str,
    usage: &'static str,
    least: usize,
    most: usize,
    options: &'static [&'static str],
    action: Action,
) -> Row {
    Row { name, usage, arguments: (least, most), options, action }
}

impl Failure {
    /// A failure in OVS's form: program, what was attempted, and the text of an error number.
    fn os(attempt: impl fmt::Display, error: &str) -> Self {
        Self(format!("{PROGRAM}: {attempt} ({error})"))
    }

    /// A failure in words.
    fn new(text: impl fmt::Display) -> Self {
        Self(format!("{PROGRAM}: {text}"))
    }
}

/// The client is gone; nobody will read this.
impl From<fmt::Error> for Failure {
    fn from(_: fmt::Error) -> Self {
        Self("the client is gone".into())
    }
}
