//! Pages of programs, by a client that knows just enough for that.

use std::io::{Read, Write};
use std::net::TcpStream;

/// The reply for a page, header and body. None while nobody serves at the address.
pub fn page(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let mut reply = String::new();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
    stream.read_to_string(&mut reply).ok()?;
    Some(reply)
}

/// The samples of a metric on a page of metrics: labels, braces included, and value. None of them while nobody serves.
pub fn samples(address: &str, metric: &str) -> Vec<(String, u64)> {
    let Some(reply) = page(address, "/metrics") else { return Vec::new() };
    let lines = reply.lines().filter_map(|line| line.strip_prefix(metric)?.rsplit_once(' '));
    let samples = lines.filter(|(labels, _)| labels.is_empty() || labels.starts_with('{'));
    samples.filter_map(|(labels, value)| Some((labels.to_owned(), value.parse().ok()?))).collect()
}
