//! What the control socket understands: the commands of OVS that its tools and users expect, and `sluice/…` for what OVS
//! has no command for.
//!
//! Layout and wording follow `lib/dpctl.c` and `ofproto-dpif-upcall.c` of OVS, so that the stock `ovs-appctl` and the
//! scripts around it work as they are.

//!
//! Each is a codec: it makes a request of the [`service`](crate::service) from its arguments, and writes what that returns.

mod arguments;
mod audit;
mod bulk;
mod connection_line;
mod connection_selection;
mod conntrack;
mod datapath;
mod dump;
mod explain;
mod failure;
mod flow_json;
mod flow_mirrors;
mod flow_text;
mod flows;
mod json;
mod mirrors;
mod orphans;
mod packets;
mod ports;
mod process;
mod refusals;
mod revalidator;
mod timeouts;
mod trace;
mod watch;
mod zone_limits;

use std::sync::Arc;

use crate::agent::Agent;
use crate::service::{AgentView, Receipt, Service};
use sluice_unixctl::{Command, Output, Registry, Request};

use self::Action::{Durable, Transient};
use self::arguments::Arguments;
use self::failure::Failure;

/// What a command does.
#[derive(Clone, Copy)]
enum Action {
    /// Changes nothing that survives a restart.
    Transient(fn(&AgentView, &Arguments, &mut dyn Output) -> Result<(), Failure>),
    /// Changes flows or objects, and succeeds only once the change is durable.
    Durable(fn(&Service, &Arguments, &mut dyn Output) -> Result<Receipt, Failure>),
}

/// Registers every command that needs only the agent. `exit` and `sluice/reload` belong to the daemon.
pub fn register(registry: &mut Registry, agent: &Arc<Agent>) {
    let service = Arc::new(Service::new(agent.clone()));
    for Row { name, usage, arguments: (min_args, max_args), options, action } in COMMANDS {
        let service = service.clone();
        let run = move |request: &Request<'_>, out: &mut dyn Output| {
            Arguments::parse(request.args, options)
                .map(|arguments| Arguments { peer: Some(request.peer), ..arguments })
                .and_then(|arguments| match action {
                    Transient(act) => act(service.view(), &arguments, out),
                    Durable(act) => act(&service, &arguments, out).map(|_: Receipt| ()),
                })
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
    row("coverage/show", "", 0, 0, &[], Transient(process::coverage)),
    row("dpctl/add-flow", "[OPTIONS] [dp] flow actions", 2, 9, ADD, Durable(flows::add)),
    row("dpctl/add-flows", "[OPTIONS] [dp] file", 1, 4, BULK, Durable(bulk::add_file)),
    row("dpctl/ct-bkts", "[dp] [gt=N]", 0, 2, &[], Transient(conntrack::buckets)),
    row("dpctl/ct-del-limits", "[dp] [default] [zone=N1[,N2]...]", 1, 3, &[], Transient(zone_limits::delete)),
    row("dpctl/ct-get-limits", "[dp] [zone=N1[,N2]...]", 0, 2, &[], Transient(zone_limits::get)),
    row("dpctl/ct-get-maxconns", "[dp]", 0, 1, &[], Transient(conntrack::limit)),
    row("dpctl/ct-get-nconns", "[dp]", 0, 1, &[], Transient(conntrack::count)),
    row("dpctl/ct-set-limits", "[dp] [default=L] [zone=N,limit=L]...", 1, usize::MAX, &[], Transient(zone_limits::set)),
    row("dpctl/ct-set-maxconns", "[dp] maxconns", 1, 2, &[], Transient(conntrack::set_limit)),
    row("dpctl/ct-stats-show", "[-m] [dp] [zone=N]", 0, 3, &["-m", "--more"], Transient(conntrack::statistics)),
    row("dpctl/del-flow", "[OPTIONS] [dp] flow", 1, 5, DELETE, Durable(flows::delete)),
    row("dpctl/del-flows", "[OPTIONS] [dp] [file]", 0, 4, BULK, Durable(bulk::delete_file)),
    row("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0, 4, LIST, Transient(conntrack::dump)),
    row("dpctl/dump-dps", "", 0, 0, &[], Transient(datapath::list)),
    row("dpctl/dump-flows", "[-m] [--names] [dp] [filter=..] [type=..]", 0, 6, SHOW, Transient(dump::text)),
    row("dpctl/flush-conntrack", FLUSH_CONNTRACK, 0, 6, &[], Transient(conntrack::flush)),
    row("dpctl/get-flow", "[-m] [--names] [dp] ufid", 1, 4, SHOW, Transient(dump::one)),
    row("dpctl/help", "", 0, usize::MAX, &[], Transient(list_commands)),
    row("dpctl/list-commands", "", 0, usize::MAX, &[], Transient(list_commands)),
    row("dpctl/mod-flow", "[OPTIONS] [dp] flow actions", 2, 12, MODIFY, Durable(flows::modify)),
    row("dpctl/mod-flows", "[OPTIONS] [dp] file", 1, 5, BULK_MODIFY, Durable(bulk::modify_file)),
    row("dpctl/offload-stats-show", "[dp]", 0, 1, &[], Transient(datapath::offload_statistics)),
    row("dpctl/show", "[-s] [dp]", 0, 2, &["-s", "--statistics"], Transient(datapath::show)),
    row("memory/show", "", 0, 0, &[], Transient(process::memory)),
    row("revalidator/pause", "", 0, 0, &[], Transient(revalidator::pause)),
    row("revalidator/purge", "", 0, 0, &[], Durable(flows::flush)),
    row("revalidator/resume", "", 0, 0, &[], Transient(revalidator::resume)),
    row("revalidator/wait", "", 0, 0, &[], Transient(revalidator::wait)),
    row("sluice/add-flows", "[OPTIONS] text", 1, 4, BULK, Durable(bulk::add_text)),
    row("sluice/add-connection", "connection", 1, 1, &[], Transient(conntrack::add)),
    row("sluice/add-ct-timeout", "name [key=seconds]...", 1, 17, &[], Durable(timeouts::add)),
    row("sluice/add-meter", "id kbps|pps rate[:burst]...", 3, 10, &[], Durable(ports::add_meter)),
    row("sluice/add-mirror", "name key port[,port]...", 3, 3, &[], Durable(mirrors::add)),
    row("sluice/add-port", "number name [kind] [udp-port] [underlay]", 2, 5, &[], Durable(ports::add_port)),
    row("sluice/audit", "[--fix] [--json]", 0, 2, &["--fix", "--json"], Transient(audit::audit)),
    row("sluice/del-ct-timeout", "name", 1, 1, &[], Durable(timeouts::delete)),
    row("sluice/del-meter", "id", 1, 1, &[], Durable(ports::delete_meter)),
    row("sluice/del-mirror", "name", 1, 1, &[], Durable(mirrors::delete)),
    row("sluice/del-port", "port", 1, 1, &[], Durable(ports::delete_port)),
    row("sluice/dump-flows", "[-m] [filter=..] [type=..]", 0, 5, &["-m", "--more"], Transient(dump::json)),
    row("sluice/explain", "[--json] [--priority=N] ufid | flow actions", 1, 4, EXPLAIN, Transient(explain::one)),
    row("sluice/explain-lines", "text", 1, 1, &[], Transient(explain::lines)),
    row("sluice/flush", "", 0, 0, &[], Durable(flows::flush)),
    row("sluice/flush-orphans", "[--yes | --owner=ID...]", 0, 64, &["--yes", "--owner"], Transient(orphans::flush)),
    row("sluice/get-flow", "ufid", 1, 1, &[], Transient(dump::one_json)),
    row("sluice/inject", "port frame..", 2, 4097, &[], Transient(packets::inject)),
    row("sluice/refusals", "", 0, 0, &[], Transient(refusals::show)),
    row("sluice/show", "", 0, 0, &[], Transient(json::show)),
    row("sluice/show-ct-timeouts", "", 0, 0, &[], Transient(timeouts::show)),
    row("sluice/show-meters", "[--json]", 0, 1, JSON, Transient(ports::show_meters)),
    row("sluice/show-mirrors", "", 0, 0, &[], Transient(mirrors::show)),
    row("sluice/stats", "", 0, 0, &[], Transient(json::statistics)),
    row("sluice/trace", "port frame..", 2, 257, &[], Transient(trace::trace)),
    row("sluice/watch", "[--json]", 0, 1, JSON, Transient(watch::watch)),
    row("upcall/show", "", 0, 0, &[], Transient(revalidator::show)),
];

/// `dpctl/list-commands`, and `dpctl/help`, which only `ovs-dpctl` has.
fn list_commands(_: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    writeln!(out, "The available commands are:")?;
    for row in COMMANDS.iter().filter(|row| row.name.starts_with("dpctl/")) {
        writeln!(out, "  {:<29} {}", row.name, row.usage)?;
    }
    Ok(())
}

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
