//! Limits of zones of tracked connections: `dpctl/ct-set-limits`, `dpctl/ct-get-limits` and `dpctl/ct-del-limits`, with
//! the text of `lib/dpctl.c` and `lib/ct-dpif.c` of OVS. They last as long as the agent runs.

use sluice_flow::connection::ZoneLimits;
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use crate::service::AgentView;

/// `dpctl/ct-set-limits`: all arguments are read before any limit is set.
pub(super) fn set(agent: &AgentView, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let limits = read_limits(named(agent, arguments)?).map_err(invalid)?;
    for (zone, limit) in limits {
        agent
            .connections()
            .and_then(|tracked| tracked.set_zone_limit(zone, limit))
            .map_err(|refusal| Failure::new(format_args!("failed to set conntrack limit: {refusal}")))?;
    }
    Ok(())
}

/// `dpctl/ct-del-limits`
pub(super) fn delete(agent: &AgentView, arguments: &Arguments, _: &mut dyn Output) -> Result<(), Failure> {
    let mut rest = named(agent, arguments)?;
    let mut zones = Vec::new();
    if let [first, others @ ..] = rest
        && first == "default"
    {
        zones.push(None);
        rest = others;
    }
    zones.extend(read_zones(rest).map_err(invalid)?.into_iter().map(Some));
    for zone in zones {
        agent
            .connections()
            .and_then(|tracked| tracked.remove_zone_limit(zone))
            .map_err(|refusal| Failure::new(format_args!("failed to delete conntrack limit: {refusal}")))?;
    }
    Ok(())
}

/// `dpctl/ct-get-limits`
pub(super) fn get(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    let zones = read_zones(arguments.after_datapath(agent, 1)?).map_err(invalid)?;
    let limits = agent.connections().and_then(|tracked| tracked.zone_limits(&zones));
    let ZoneLimits { default, zones } =
        limits.map_err(|refusal| Failure::new(format_args!("failed to get conntrack limit: {refusal}")))?;
    writeln!(out, "default limit={default}")?;
    for limit in zones {
        writeln!(out, "zone={},limit={},count={}", limit.zone, limit.limit, limit.count)?;
    }
    Ok(())
}

/// What is named behind the datapath, which must be something.
fn named<'a>(agent: &AgentView, arguments: &'a Arguments) -> Result<&'a [String], Failure> {
    let rest = arguments.after_datapath(agent, usize::MAX)?;
    if rest.is_empty() { Err(invalid("too few arguments".into())) } else { Ok(rest) }
}

fn invalid(reason: String) -> Failure {
    Failure::os(reason, "Invalid argument")
}

/// `[default=L] [zone=N,limit=L]...`
fn read_limits(mut rest: &[String]) -> Result<Vec<(Option<u16>, u32)>, String> {
    let mut limits = Vec::new();
    if let [first, others @ ..] = rest
        && let Some(limit) = first.strip_prefix("default=")
    {
        limits.push((None, limit.parse().map_err(|_| "invalid default limit")?));
        rest = others;
    }
    for text in rest {
        let (mut zone, mut limit) = (None, None);
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let wrong = |_| format!("failed to parse field {key}");
            match key {
                _ if value.is_empty() => return Err(format!("field {key} missing value")),
                "zone" => zone = Some(value.parse().map_err(wrong)?),
                "limit" => limit = Some(value.parse().map_err(wrong)?),
                _ => return Err(format!("invalid zone limit field: {key}")),
            }
        }
        match (zone, limit) {
            (Some(zone), Some(limit)) => limits.push((Some(zone), limit)),
            _ => return Err("failed to parse zone limit".into()),
        }
    }
    Ok(limits)
}

/// `[zone=N1[,N2]...]`
fn read_zones(rest: &[String]) -> Result<Vec<u16>, String> {
    match rest {
        [] => Ok(Vec::new()),
        [text] => {
            let zones = text.strip_prefix("zone=").ok_or_else(|| format!("invalid argument {text}"))?;
            let zones = zones.split(',').filter(|zone| !zone.is_empty());
            zones.map(|zone| zone.parse().map_err(|_| "invalid zone".to_owned())).collect()
        }
        [_, extra, ..] => Err(format!("invalid argument {extra}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn limits_are_read_as_ovs_reads_them() {
        let read = |text: &str| read_limits(&words(text));
        let expected = vec![(None, 10), (Some(7), 0), (Some(65535), u32::MAX)];
        assert_eq!(read("default=10 zone=7,limit=0 limit=4294967295,zone=65535"), Ok(expected));
        for (text, reason) in [
            ("default=many", "invalid default limit"),
            ("default=4294967296", "invalid default limit"),
            ("zone=1", "failed to parse zone limit"),
            ("zone=1,limit=", "field limit missing value"),
            ("zone=65536,limit=1", "failed to parse field zone"),
            ("zone=1,limit=-1", "failed to parse field limit"),
            ("zone=1,limits=1", "invalid zone limit field: limits"),
            ("zone=1,limit=1 default=5", "invalid zone limit field: default"),
        ] {
            assert_eq!(read(text), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn zones_are_read_as_ovs_reads_them() {
        let read = |text: &str| read_zones(&words(text));
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("zone=5,0,65535"), Ok(vec![5, 0, 65535]));
        assert_eq!(read("zone=5,x"), Err("invalid zone".to_owned()));
        assert_eq!(read("5"), Err("invalid argument 5".to_owned()));
        assert_eq!(read("zone=5 zone=6"), Err("invalid argument zone=6".to_owned()));
    }
}
