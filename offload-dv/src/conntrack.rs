//! Tracked connections as operators see them: those of the source, whether the device has them or not.

use sluice_flow::backend::Connections;
use sluice_flow::connection::{Connection, Selection, ZoneLimits};
use sluice_flow::refusal::Refusal;
use sluice_flow::timeout::TimeoutPolicy;

use crate::backend::DvNic;
use crate::connections::SourceError;

impl Connections for DvNic {
    fn set_timeout_policy(&self, _: &TimeoutPolicy) -> Result<(), Refusal> {
        Err(no_timeout_policies())
    }

    fn remove_timeout_policy(&self, _: &str) -> Result<(), Refusal> {
        Err(no_timeout_policies())
    }

    fn visit_connections(&self, zone: Option<u16>, visit: &mut dyn FnMut(Connection)) -> Result<(), Refusal> {
        let visited = self.connection_table()?.visit(&mut |connection| {
            if zone.is_none_or(|zone| zone == connection.zone) {
                visit(connection);
            }
        });
        visited.map_err(failed)
    }

    fn add_connection(&self, connection: &Connection) -> Result<(), Refusal> {
        self.connection_table()?.add(connection.clone()).map_err(failed)
    }

    fn flush_connections(&self, of: &Selection) -> Result<usize, Refusal> {
        // The kernel does not report the end of each connection (`nf_conntrack_events`), so the device is told here. One that has failed
        // forwards nothing any more.
        let flushed = self.connection_table()?.flush(of, &mut |gone| {
            let _ = self.owner().post(move |desk| {
                if let Err(refusal) = desk.rules.switch().change_connections(gone) {
                    tracing::warn!("flushed connections may stay in the device until all are listed again: {refusal}");
                }
            });
        });
        flushed.map_err(failed)
    }

    fn connection_buckets(&self) -> Result<Vec<usize>, Refusal> {
        Err(refuse("it is not known how connections are spread over buckets"))
    }

    fn connection_count(&self) -> Result<usize, Refusal> {
        self.connection_table()?.count().map_err(failed)
    }

    fn connection_limit(&self) -> Result<u32, Refusal> {
        self.connection_table()?.limit().map_err(failed)
    }

    fn set_connection_limit(&self, limit: u32) -> Result<(), Refusal> {
        self.connection_table()?.set_limit(limit).map_err(failed)
    }

    fn set_zone_limit(&self, _: Option<u16>, _: u32) -> Result<(), Refusal> {
        Err(no_zone_limits())
    }

    fn remove_zone_limit(&self, _: Option<u16>) -> Result<(), Refusal> {
        Err(no_zone_limits())
    }

    fn zone_limits(&self, _: &[u16]) -> Result<ZoneLimits, Refusal> {
        Err(no_zone_limits())
    }
}

/// Says why there are no timeout policies.
pub(crate) fn no_timeout_policies() -> Refusal {
    refuse(
        "whoever tracks connections gives them their timeouts; the kernel's are net.netfilter.nf_conntrack_*_timeout*",
    )
}

fn no_zone_limits() -> Refusal {
    refuse("there is no limit for the connections of a zone")
}

fn failed(error: SourceError) -> Refusal {
    refuse(format!("connections: {error}"))
}

fn refuse(reason: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::Device { reason: reason.into() }
}
