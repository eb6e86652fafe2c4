//! Messages as the kernel sent them, and messages made up of them.

mod following;
mod reading;
mod writing;

use crate::message::Notice;
use crate::netlink::attribute::{Malformed, Writer};
use crate::netlink::message::{Header, Message};

/// The kind and the bytes of a message that the kernel sent.
pub(crate) fn golden(name: &str) -> (u16, Vec<u8>) {
    let lines = include_str!("golden.txt").lines();
    let line = lines.map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| words[0] == name);
    let line = line.unwrap_or_else(|| panic!("no {name}"));
    let bytes = (0..line[2].len()).step_by(2).map(|at| u8::from_str_radix(&line[2][at..at + 2], 16).unwrap());
    (line[1].parse().unwrap(), bytes.collect())
}

fn read(kind: u16, payload: &[u8]) -> Result<Option<Notice>, Malformed> {
    let header = Header { kind, flags: 0, sequence: 0, port: 77 };
    Notice::read(&Message { header, payload })
}

fn read_golden(name: &str) -> Notice {
    let (kind, payload) = golden(name);
    read(kind, &payload).unwrap().unwrap_or_else(|| panic!("{name} tells nothing"))
}

/// Bytes that a writer wrote.
fn written(body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![];
    let mut writer = Writer::new(&mut bytes);
    body(&mut writer);
    writer.finish().unwrap();
    bytes
}
