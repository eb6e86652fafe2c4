//! The kernel's netlink interface for RDMA devices, as far as DPDK asks it: which ports a device has, and which network device belongs
//! to each (`rdma/rdma_netlink.h`).
//!
//! The answers are those of the folder that stands for `/sys`. A device of which nothing is said there has one port, and is found
//! without netlink; libibverbs always is.

use std::fs::{File, read_to_string};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

const DEVICE: &str = "mlx5_0";
/// Length of a header, and longer than any request.
const HEADER: usize = 16;
const MOST: usize = 4096;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const MULTIPART: u16 = 2;

/// Messages of the interface.
const GET: u16 = 5 << 10 | 1;
const PORT_GET: u16 = 5 << 10 | 5;

const DEVICE_INDEX: u16 = 1;
const DEVICE_NAME: u16 = 2;
/// Of a device: how many ports it has.
const PORT_INDEX: u16 = 3;
const NETDEV_INDEX: u16 = 50;

/// A socket on which the device is listed, if there is something to be said of its ports.
pub(crate) fn open() -> Option<io::Result<OwnedFd>> {
    let root = PathBuf::from(std::env::var_os("SYSFS_PATH")?);
    netdev(&root, 1)?;
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
    Some(pair.map_err(io::Error::from).and_then(|(theirs, ours)| {
        std::thread::Builder::new().name("nldev".to_owned()).spawn(move || serve(&root, File::from(ours)))?;
        Ok(theirs)
    }))
}

fn serve(root: &Path, mut socket: File) {
    let mut request = [0; MOST];
    while let Ok(length @ 1..) = socket.read(&mut request) {
        for message in answers(root, &request[..length]) {
            if socket.write_all(&message).is_err() {
                return;
            }
        }
    }
}

/// The messages that answer a request.
fn answers(root: &Path, request: &[u8]) -> Vec<Vec<u8>> {
    const NO_DEVICE: i32 = -19;
    const NOT_SUPPORTED: i32 = -95;
    let Some(header) = request.get(..HEADER) else { return Vec::new() };
    let kind = u16::from_le_bytes([header[4], header[5]]);
    let sequence = &header[8..12];
    let message = |kind, flags, body: &[u8]| message(kind, flags, sequence, body);
    // An error that is none says that all is answered.
    let status = |error: i32| message(ERROR, 0, &[&error.to_le_bytes()[..], header].concat());
    match kind {
        GET => {
            let count = (1..).take_while(|port| folder(root, *port).exists()).last().unwrap_or(0);
            let device = [device(), number(PORT_INDEX, count)].concat();
            vec![message(GET, MULTIPART, &device), message(DONE, MULTIPART, &[0; 4])]
        }
        PORT_GET => match attribute(&request[HEADER..], PORT_INDEX).filter(|port| folder(root, *port).exists()) {
            None => vec![status(NO_DEVICE)],
            Some(port) => {
                let index = netdev(root, port).map(|index| number(NETDEV_INDEX, index)).unwrap_or_default();
                let port = [device(), number(PORT_INDEX, port), index].concat();
                vec![message(PORT_GET, 0, &port), status(0)]
            }
        },
        _ => vec![status(NOT_SUPPORTED)],
    }
}

/// Where the files of a port are.
fn folder(root: &Path, port: u32) -> PathBuf {
    root.join(format!("class/infiniband/{DEVICE}/ports/{port}"))
}

/// Index of a port's network device.
fn netdev(root: &Path, port: u32) -> Option<u32> {
    let name = read_to_string(folder(root, port).join("gid_attrs/ndevs/0")).ok()?;
    if_nametoindex(name.trim_end()).ok()
}

fn device() -> Vec<u8> {
    let name: Vec<u8> = DEVICE.bytes().chain([0]).collect();
    [number(DEVICE_INDEX, 0), padded(DEVICE_NAME, &name)].concat()
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    padded(kind, &value.to_le_bytes())
}

fn padded(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = [&length.to_le_bytes(), &kind.to_le_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A number among the attributes of a request.
fn attribute(mut rest: &[u8], kind: u16) -> Option<u32> {
    while let Some((header, _)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([header[0], header[1]]));
        if header[2..] == kind.to_le_bytes() {
            return Some(u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?));
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

fn message(kind: u16, flags: u16, sequence: &[u8], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes(), &kind.to_le_bytes()[..], &flags.to_le_bytes(), sequence, &[0; 4], body].concat()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn kinds(answers: &[Vec<u8>]) -> Vec<u16> {
        answers.iter().map(|answer| u16::from_le_bytes([answer[4], answer[5]])).collect()
    }

    #[test]
    fn a_device_is_listed_with_its_ports_and_each_with_its_network_device() {
        let root = std::env::temp_dir().join(format!("connectx-nldev-{}", std::process::id()));
        for port in 1..=2 {
            std::fs::create_dir_all(folder(&root, port).join("gid_attrs/ndevs")).unwrap();
        }
        std::fs::write(folder(&root, 2).join("gid_attrs/ndevs/0"), "lo\n").unwrap();
        let ask = |kind, body: &[u8]| answers(&root, &message(kind, 0, &[7, 0, 0, 0], body));
        let listed = ask(GET, &[]);
        assert_eq!(kinds(&listed), [GET, DONE]);
        assert_eq!((attribute(&listed[0][HEADER..], PORT_INDEX), listed[0][8]), (Some(2), 7));
        let second = ask(PORT_GET, &[number(DEVICE_INDEX, 0), number(PORT_INDEX, 2)].concat());
        assert_eq!(kinds(&second), [PORT_GET, ERROR]);
        assert_eq!(attribute(&second[0][HEADER..], NETDEV_INDEX), Some(1), "lo is the first everywhere");
        let first = ask(PORT_GET, &number(PORT_INDEX, 1));
        assert_eq!(attribute(&first[0][HEADER..], NETDEV_INDEX), None);
        for refused in [ask(PORT_GET, &number(PORT_INDEX, 3)), ask(99, &[])] {
            assert_eq!(kinds(&refused), [ERROR]);
            assert!(refused[0][HEADER + 3] & 0x80 != 0, "the error is negative");
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
