//! The family of psample in generic netlink, whose numbers the kernel gives at run time.

use std::ffi::CStr;
use std::io;

use netlink_bindings::nlctrl::OpGetfamilyDo;
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{AsyncSocket as _, Socket, TokioSocket};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

/// `PSAMPLE_GENL_NAME`, and the group of its samples (`PSAMPLE_NL_MCGRP_SAMPLE_NAME`).
const FAMILY: &CStr = c"psample";
const SAMPLES: &CStr = c"packets";

/// `GENL_ID_CTRL`, and `NLM_F_REQUEST`.
const CONTROL: u16 = 0x10;
const REQUEST: u16 = 1;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Opens a socket to which all samples come, with so many bytes for those that wait.
pub(super) fn subscribe(receive_buffer: usize) -> io::Result<TokioSocket> {
    let group = group()?;
    tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    let mut socket = TokioSocket::new(NETLINK_GENERIC)?;
    socket.socket_mut().bind_auto()?;
    if set_socket_recv_buffer_size_force(socket.socket_ref(), receive_buffer).is_err() {
        set_socket_recv_buffer_size(socket.socket_ref(), receive_buffer)?;
    }
    socket.socket_mut().add_membership(group)?;
    Ok(socket)
}

/// The number of the group.
fn group() -> io::Result<u32> {
    let mut body = Vec::new();
    OpGetfamilyDo::encode_request(&mut body).push_family_name(FAMILY);
    let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
    let header = [&length.to_ne_bytes()[..], &CONTROL.to_ne_bytes(), &REQUEST.to_ne_bytes(), &[0; 8]];
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.send(&[&header.concat()[..], &body].concat(), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let (header, body) = answer.split_first_chunk::<HEADER>().ok_or(io::ErrorKind::UnexpectedEof)?;
    if u16::from_ne_bytes([header[4], header[5]]) == ERROR {
        let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    let malformed = |_| io::Error::from(io::ErrorKind::InvalidData);
    let groups = OpGetfamilyDo::decode_request(body).get_mcast_groups().map_err(malformed)?;
    let mut named = groups.filter(|group| group.get_name().is_ok_and(|name| name == SAMPLES));
    let found = named.next().ok_or(io::ErrorKind::NotFound)?;
    found.get_id().map_err(malformed)
}
