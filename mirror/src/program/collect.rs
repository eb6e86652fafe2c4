//! `sluice-mirror collect`.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use prometheus::Registry;
use sluice_control::duration::parse_duration;
use tokio::task::spawn_blocking;

use super::config::{self, ConfigFile, Metrics};
use super::serve::{Pages, device, told_to_stop};
use super::ways::Acceptor;
use super::{Common, End, play};
use crate::collector::{Collector, CollectorMetrics, Outputs, open_tap};
use crate::connection::Local;

/// Port of the own host where metrics are served, if nothing else is said.
const METRICS: u16 = 9321;

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    common: Common,
    /// Listen at this address and port; wins over the file
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Write FOLDER/NAME_00001.pcapng and so on, or "-" for standard output, as `tshark -i -` reads it; wins over the file
    #[arg(long, value_name = "FOLDER/NAME.pcapng")]
    write: Option<PathBuf>,
    /// Begin the next file once one has so many bytes; wins over the file
    #[arg(long, value_name = "BYTES")]
    rotate_size: Option<u64>,
    /// Begin the next file once the first frames of one are so old, such as "1h"; wins over the file
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    rotate_age: Option<Duration>,
    /// Keep so many files, and delete older ones; wins over the file
    #[arg(long, value_name = "FILES")]
    keep: Option<usize>,
    /// Inject frames into this TAP, which is made if it is not there; wins over the file
    #[arg(long, value_name = "NAME")]
    tap: Option<String>,
}

pub(super) fn run(options: &Options) -> Result<(), End> {
    let ConfigFile { mirror: mut shared, collect: mut file, .. } = config::read(options.common.config.as_deref())?;
    options.common.apply(&mut shared);
    file.listen = options.listen.clone().unwrap_or(file.listen);
    file.write = options.write.clone().or(file.write);
    file.rotate_size = options.rotate_size.or(file.rotate_size);
    file.rotate_age = options.rotate_age.or(file.rotate_age);
    file.keep = options.keep.or(file.keep);
    file.tap = options.tap.clone().or(file.tap);
    file.check()?;
    if options.common.check {
        return Ok(());
    }
    if file.is_pipe() && stdout().is_terminal() {
        return Err(End::NotStarted("a capture is not written to a terminal".into()));
    }
    play(&shared.log, || async {
        let stop = told_to_stop();
        let config = file.collector();
        let local = Local::open(&device(&shared.device)?, config.capacity())?;
        let registry = Registry::new();
        let metrics = CollectorMetrics::new(&registry)?;
        let outputs = Outputs {
            files: file.files(),
            pipe: if file.is_pipe() { Some(Box::new(stdout())) } else { None },
            tap: file.tap.as_deref().map(open_tap).transpose()?,
        };
        let acceptor = Acceptor::bind(&file.listen, &shared).await?;
        let _pages = Pages::serve(shared.metrics.unwrap_or(Metrics::local(METRICS)), registry)?;
        // A last file that is big takes long to read.
        let opened = spawn_blocking(move || Collector::new(local, config, outputs, metrics));
        tokio::pin!(stop);
        let collector = tokio::select! {
            collector = opened => collector??,
            () = &mut stop => return Ok(()),
        };
        collector.run(acceptor, stop).await.map_err(|error| End::Failed(error.into()))
    })
}
