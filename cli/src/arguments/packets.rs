//! What is typed about packets that are let in or traced.

use std::path::PathBuf;

use clap::Args;

use crate::speed::Speed;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A capture, pcap or pcapng
    #[arg(value_name = "PCAP")]
    pub(crate) file: PathBuf,
    /// The port at which the frames come in, by number or name
    #[arg(long, value_name = "PORT")]
    pub(crate) in_port: String,
    /// "own" is the pace of the capture, "flat" is as fast as possible, "10x" is ten times the pace of the capture
    #[arg(long, value_name = "SPEED", default_value = "own")]
    pub(crate) speed: Speed,
}

#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// A frame without FCS, in hexadecimal, or a capture, pcap or pcapng
    #[arg(value_name = "PACKET|PCAP")]
    pub(crate) packet: String,
    /// The port at which the packet comes in, by number or name
    #[arg(long, value_name = "PORT")]
    pub(crate) in_port: String,
    /// Trace at most this many frames of a capture
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) count: u16,
}
