//! The page for people at `/` of the metrics address. It is whole without a script; with one it renews itself.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use sluice_flow::backend::Placement;
use sluice_offload::LATENCY_BUCKETS;

use super::events::{Noted, What};
use super::readiness::readiness;
use crate::agent::Agent;
use crate::service::{RefusedFlows, Service, Survey};

/// The page around what changes: `{title}` and `{main}` are put in.
const FRAME: &str = include_str!("status_page.html");

/// A survey is renewed after this time at the earliest, and takes at most a tenth of the time, however many look at the page.
const SURVEY_AGE: Duration = Duration::from_secs(2);
const SURVEY_SHARE: u32 = 10;

/// So many reasons and events are shown.
const SHOWN: usize = 12;

/// Makes the page.
pub struct StatusPage {
    agent: Arc<Agent>,
    service: Service,
    survey: Mutex<Option<(Instant, Arc<Survey>)>>,
}

impl StatusPage {
    /// The page of an agent.
    pub fn new(agent: Arc<Agent>) -> Self {
        Self { service: Service::new(agent.clone()), agent, survey: Mutex::default() }
    }

    /// The page as of now.
    pub fn html(&self) -> String {
        let mut main = String::new();
        // Writing to a string does not fail.
        let _ = self.write_main(&mut main);
        FRAME.replace("{title}", &escaped(&self.agent.datapath())).replace("{main}", &main)
    }

    /// What a walk over all flows found, lately.
    fn survey(&self) -> Arc<Survey> {
        let mut last = self.survey.lock();
        if let Some((until, survey)) = &*last
            && Instant::now() < *until
        {
            return survey.clone();
        }
        let began = Instant::now();
        let survey = Arc::new(self.service.view().survey());
        *last = Some((Instant::now() + SURVEY_AGE.max(began.elapsed() * SURVEY_SHARE), survey.clone()));
        survey
    }

    fn write_main(&self, out: &mut String) -> fmt::Result {
        let survey = self.survey();
        self.write_header(out)?;
        self.write_tiles(out, &survey)?;
        write_refusals(out, &survey.refusals)?;
        self.write_queue(out)?;
        self.write_mirrors(out)?;
        write_events(out, &self.agent.events.noted())
    }

    fn write_header(&self, out: &mut String) -> fmt::Result {
        let datapath = escaped(&self.agent.datapath());
        let (class, state) = match readiness(&self.agent) {
            Ok(()) => ("good", "ready".to_owned()),
            Err(reason) => ("bad", format!("not ready: {}", escaped(&reason))),
        };
        write!(out, "<header><h1>Sluice {datapath}</h1><span class=\"badge {class}\" id=\"state\">{state}</span>")?;
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let version = env!("CARGO_PKG_VERSION");
        writeln!(out, "<span class=\"quiet\">sluiced {version}, <time>{now}</time></span></header>")
    }

    fn write_tiles(&self, out: &mut String, survey: &Survey) -> fmt::Result {
        let census = self.agent.table.census();
        let (live, limit) = (census.live(), census.flow_limit());
        let (waiting, waiting_limit) = (census.unsettled(), self.agent.config().dirty_limit);
        let hardware = census.placed(Placement::Hardware) + census.placed(Placement::Both);
        let refused: u64 = survey.refusals.iter().map(|refused| refused.flows).sum();
        out.push_str("<section class=\"tiles\">\n");
        tile(out, "flows", &live.to_string(), &format!("of {limit} at most"), share(live as u64, limit as u64))?;
        let flows = share(hardware as u64, live as u64);
        tile(out, "flows in hardware", &percent(flows), &format!("{hardware} of {live}"), flows)?;
        let packets = share(survey.hardware_packets, survey.packets);
        let counted = format!("of {} counted by flows", survey.packets);
        tile(out, "packets in hardware", &percent(packets), &counted, packets)?;
        tile(out, "flows refused", &refused.to_string(), "the reasons are below", None)?;
        let queue = share(waiting as u64, waiting_limit as u64);
        tile(out, "changes that wait", &waiting.to_string(), &format!("of {waiting_limit} at most"), queue)?;
        tile(out, "time to install, p99", &self.install_p99(), "since the start", None)?;
        let published = self.agent.revalidation.published();
        let age = self.agent.clock.now().since(published.last.began).as_secs_f64();
        let age = if published.rounds == 0 { "none yet".into() } else { format!("{age:.1} s") };
        let period = format!("polled every {:.1} s", published.last.period.as_secs_f64());
        tile(out, "age of the counters", &age, &period, None)?;
        out.push_str("</section>\n");
        Ok(())
    }

    /// The bucket in which one installation in a hundred or more is, as its upper bound.
    fn install_p99(&self) -> String {
        let reports = self.agent.queue.reports();
        let installed: u64 = reports.iter().map(|report| report.installed).sum();
        if installed == 0 {
            return "none yet".into();
        }
        let within = |index: usize| reports.iter().map(|report| report.latency_buckets[index]).sum::<u64>();
        let bound = (0..LATENCY_BUCKETS.len()).find(|index| within(*index) * 100 >= installed * 99);
        bound.map_or("over 10 s".into(), |index| format!("≤ {:?}", Duration::from_secs_f64(LATENCY_BUCKETS[index])))
    }

    fn write_queue(&self, out: &mut String) -> fmt::Result {
        out.push_str("<h2>Queue</h2>\n<div class=\"wide\"><table><tr><th>worker<th class=\"number\">queued<th class=\"number\">in flight<th class=\"number\">installed<th class=\"number\">time to install, average</tr>\n");
        for (worker, report) in self.agent.queue.reports().iter().enumerate() {
            let average = Duration::from_secs_f64(report.latency_average.max(0.0));
            let latency = if report.installed > 0 { format!("{average:.1?}") } else { "none yet".into() };
            let numbers = [report.queued.to_string(), report.in_flight.to_string(), report.installed.to_string()];
            write!(out, "<tr><td>{worker}")?;
            numbers.iter().try_for_each(|number| write!(out, "<td class=\"number\">{number}"))?;
            writeln!(out, "<td class=\"number\">{latency}</tr>")?;
        }
        out.push_str("</table></div>\n");
        Ok(())
    }

    fn write_mirrors(&self, out: &mut String) -> fmt::Result {
        let (objects, counted) = (self.agent.objects(), self.agent.device_counters());
        let mut mirrors = objects.mirrors().peekable();
        out.push_str("<h2>Mirrors</h2>\n");
        if mirrors.peek().is_none() {
            out.push_str("<p class=\"quiet\">There are none.</p>\n");
            return Ok(());
        }
        out.push_str(
            "<div class=\"wide\"><table><tr><th>mirror<th class=\"number\">packets<th class=\"number\">bytes</tr>\n",
        );
        for mirror in mirrors {
            write!(out, "<tr><td><code>{}</code>", escaped(&mirror.name))?;
            match counted.mirror(&mirror.name) {
                Some(counters) => {
                    let (packets, bytes) = (counters.packets, counters.bytes);
                    writeln!(out, "<td class=\"number\">{packets}<td class=\"number\">{bytes}</tr>")?;
                }
                None => writeln!(out, "<td class=\"number\">not known<td class=\"number\">not known</tr>")?,
            }
        }
        out.push_str("</table></div>\n");
        Ok(())
    }
}

fn tile(out: &mut String, title: &str, value: &str, about: &str, share: Option<f64>) -> fmt::Result {
    write!(out, "<div class=\"tile\"><span>{title}</span><b>{value}</b>")?;
    if let Some(share) = share {
        write!(out, "<meter min=\"0\" max=\"1\" value=\"{share:.3}\">{}</meter>", percent(Some(share)))?;
    }
    writeln!(out, "<span>{about}</span></div>")
}

fn write_refusals(out: &mut String, refusals: &[RefusedFlows]) -> fmt::Result {
    out.push_str("<h2>Refusals</h2>\n");
    if refusals.is_empty() {
        out.push_str("<p class=\"quiet\">No flow is refused.</p>\n");
        return Ok(());
    }
    out.push_str(
        "<div class=\"wide\"><table><tr><th class=\"number\">flows<th>reason<th>for example<th>what to do</tr>\n",
    );
    for RefusedFlows { reason, flows, example, cure, .. } in refusals.iter().take(SHOWN) {
        let (reason, cure) = (escaped(reason), escaped(cure));
        writeln!(
            out,
            "<tr><td class=\"number\">{flows}<td>{reason}<td><code>sluice explain {example}</code><td>{cure}</tr>"
        )?;
    }
    out.push_str("</table></div>\n");
    if refusals.len() > SHOWN {
        writeln!(out, "<p class=\"quiet\">And {} other reasons.</p>", refusals.len() - SHOWN)?;
    }
    Ok(())
}

fn write_events(out: &mut String, noted: &[Noted]) -> fmt::Result {
    out.push_str("<h2>Events</h2>\n<div class=\"wide\"><table><tr><th>time (UTC)<th>what</tr>\n");
    for Noted { at, what } in noted.iter().take(SHOWN) {
        let what = match what {
            What::Flow(event) => escaped(&event.to_string()),
            What::Agent(words) => escaped(words),
        };
        let at = humantime::format_rfc3339_seconds(*at);
        writeln!(out, "<tr><td><time>{at}</time><td>{what}</tr>")?;
    }
    out.push_str("</table></div>\n");
    Ok(())
}

/// `None` of nothing.
fn share(part: u64, all: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share for people to read")]
    (all > 0).then(|| part as f64 / all as f64)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("none yet".into(), |share| format!("{:.1} %", share * 100.0))
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_is_text_and_no_markup() {
        let mut out = String::new();
        let refused = RefusedFlows {
            label: "port",
            reason: "port <script>alert(1)</script>: \"gone\"".into(),
            flows: 3,
            example: sluice_flow::Ufid(7),
            cure: "add it",
        };
        write_refusals(&mut out, &[refused]).unwrap();
        assert!(out.contains("port &lt;script&gt;alert(1)&lt;/script&gt;: &quot;gone&quot;"), "{out}");
        assert!(!out.contains("<script"), "{out}");
    }
}
