//! `doctor`: all that somebody who is to help asks for, as one text.

mod addresses;

use std::io::Write;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Value, json};
use sluice_control::{READY, READY_COMMAND};

use self::addresses::without_addresses;
use super::preflight::Of;
use super::statistics;
use crate::command::{Agent, Outcome, Run};
use crate::connection::Connection;
use crate::error::CliError;

const REFUSALS: &str = "sluice/refusals";
const AUDIT: &str = "sluice/audit";

/// Print preflight, audit, refusals, log and queue as one text, for a ticket
///
/// No keys, actions or addresses of flows are in it, and nothing of the configuration but what preflight names. Exits 2 if anything is
/// not as it should be, a missing agent included.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    of: Of,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Run for Doctor {
    fn run(&self, agent: &Agent, out: &mut dyn Write) -> Result<Outcome, CliError> {
        let (text, preflight) = match self.of.look(agent, self.json) {
            Ok(looked) => looked,
            // Whoever asks for help shall read that, too, and the rest.
            Err(error) if self.json => {
                (json!({ "ok": false, "error": error.to_string() }).to_string(), Outcome::Refused)
            }
            Err(error) => (format!("{error}\n"), Outcome::Refused),
        };
        let examined = agent.connect().and_then(|mut connection| Examined::of(&mut connection));
        let is_well = preflight == Outcome::Done && examined.as_ref().is_ok_and(Examined::is_well);
        if self.json {
            let preflight: Value = serde_json::from_str(&text).map_err(|_| CliError::answer("--preflight", &text))?;
            let object = match examined {
                Ok(examined) => examined.object(is_well, preflight),
                Err(error) => json!({ "ok": false, "preflight": preflight, "agent": error.to_string() }),
            };
            writeln!(out, "{object}").map_err(CliError::Output)?;
        } else {
            self.write(out, &text, examined).map_err(CliError::Output)?;
        }
        Ok(if is_well { Outcome::Done } else { Outcome::Refused })
    }
}

impl Doctor {
    fn write(&self, out: &mut dyn Write, preflight: &str, examined: Result<Examined, CliError>) -> std::io::Result<()> {
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        writeln!(out, "sluice doctor, {now}, sluice {}\n\n== preflight\n{preflight}", env!("CARGO_PKG_VERSION"))?;
        match examined {
            Ok(examined) => examined.write(out),
            Err(error) => writeln!(out, "== agent\n{error}"),
        }
    }
}

/// What a running agent says of itself.
struct Examined {
    ready: String,
    statistics: Value,
    audit: Value,
    refusals: Value,
}

impl Examined {
    fn of(connection: &mut Connection) -> Result<Self, CliError> {
        let mut object = |method: &'static str, params: &[&str]| -> Result<Value, CliError> {
            let text = connection.text(method, params)?;
            serde_json::from_str(&text).map_err(|_| CliError::answer(method, &text))
        };
        let mut refusals = object(REFUSALS, &[])?;
        for refused in refusals.as_array_mut().into_iter().flatten() {
            // Such as that of a tunnel whose next hop does not answer.
            if let Some(Value::String(reason)) = refused.get_mut("reason") {
                *reason = without_addresses(reason);
            }
        }
        // A device that does not list its rules is told of, and is no reason to tell nothing.
        let audit = object(AUDIT, &["--json"]).or_else(|error| match error {
            CliError::Refused(reason) => Ok(json!({ "clean": null, "error": reason })),
            error => Err(error),
        })?;
        let statistics = statistics::get(connection)?;
        let ready = connection.text(READY_COMMAND, &[])?.trim_end().to_owned();
        Ok(Self { ready, statistics, audit, refusals })
    }

    /// Refusals are no fault of the agent.
    fn is_well(&self) -> bool {
        self.ready == READY && self.audit["clean"] != false
    }

    fn object(self, is_well: bool, preflight: Value) -> Value {
        let Self { ready, statistics, mut audit, refusals } = self;
        // Those have keys of flows.
        for list in ["differences", "mended"] {
            let rules = audit.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            rules.for_each(|rule| rule["key"] = Value::Null);
        }
        if let Value::Object(members) = &mut audit {
            let foreign = members.get("foreign").and_then(Value::as_array).map_or(0, Vec::len);
            members.insert("foreign".into(), foreign.into());
        }
        json!({
            "ok": is_well,
            "preflight": preflight,
            "agent": ready,
            "audit": audit,
            "refusals": refusals,
            "stats": statistics,
        })
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let Self { ready, statistics, audit, refusals } = self;
        let value = |path: &str| statistics::text(statistics.pointer(path).unwrap_or(&Value::Null));
        writeln!(out, "== agent\n{}, sluiced {}: {ready}", value("/datapath"), value("/version"))?;
        let notes = statistics.pointer("/backend/notes").and_then(Value::as_array).into_iter().flatten();
        notes.into_iter().try_for_each(|note| writeln!(out, "{}", statistics::text(note)))?;
        let states = statistics.pointer("/flows/states").and_then(Value::as_object).into_iter().flatten();
        let states: Vec<_> = states.map(|(state, count)| format!("{state} {count}")).collect();
        writeln!(out, "flows {} of {}: {}", value("/flows/live"), value("/flows/limit"), states.join(", "))?;
        writeln!(
            out,
            "counters polled every {} s, {} polls not complete, {} counters ran backwards",
            value("/revalidator/period_seconds"),
            value("/revalidator/failures"),
            value("/revalidator/backwards")
        )?;
        for orphan in statistics.pointer("/orphans").and_then(Value::as_array).into_iter().flatten() {
            writeln!(out, "orphans: {}", statistics::text(orphan))?;
        }

        writeln!(out, "\n== audit")?;
        let differences = audit["differences"].as_array().map_or(&[][..], Vec::as_slice);
        match audit["error"].as_str() {
            Some(error) => writeln!(out, "{}", error.trim_end())?,
            None => writeln!(
                out,
                "{} rules, {} differences, {} flows wait, {} rules of others",
                statistics::text(&audit["rules"]),
                differences.len(),
                statistics::text(&audit["pending"]),
                audit["foreign"].as_array().map_or(0, Vec::len)
            )?,
        }
        for difference in differences.iter().take(20) {
            let which = ["ufid", "meter", "mirror"].map(|name| statistics::text(&difference[name]));
            let which = which.iter().find(|name| *name != "-").map_or("?", String::as_str);
            writeln!(out, "{}: {which}", statistics::text(&difference["kind"]))?;
        }

        writeln!(out, "\n== top refusals")?;
        let refusals = refusals.as_array().map_or(&[][..], Vec::as_slice);
        if refusals.is_empty() {
            writeln!(out, "no flow is refused")?;
        }
        for refused in refusals.iter().take(10) {
            let word = |name: &str| statistics::text(&refused[name]);
            writeln!(
                out,
                "{:>8}  {}; for example {}; cure: {}",
                word("flows"),
                word("reason"),
                word("example"),
                word("cure")
            )?;
        }

        writeln!(out, "\n== log of flows and queue")?;
        match statistics.get("journal") {
            None | Some(Value::Null) => writeln!(out, "flows are not kept")?,
            Some(_) => writeln!(
                out,
                "{} records, write lag {} s, sync lag {} s, failure {}, damage {}",
                value("/journal/records"),
                value("/journal/write_lag_seconds"),
                value("/journal/sync_lag_seconds"),
                value("/journal/failure"),
                value("/journal/damage")
            )?,
        }
        writeln!(out, "{} changes wait, of {} at most", value("/flows/unsettled"), value("/flows/unsettled_limit"))?;
        for (index, worker) in statistics["workers"].as_array().into_iter().flatten().enumerate() {
            let number = |name: &str| statistics::text(&worker[name]);
            writeln!(
                out,
                "worker {index}: {} queued, {} in flight, {} installed, {} s to install on average",
                number("queued"),
                number("in_flight"),
                number("installed"),
                number("latency_average_seconds")
            )?;
        }
        Ok(())
    }
}
