//! TFTP (RFC 1350): a server answers a request from another port (`net/netfilter/nf_conntrack_tftp.c`).

use crate::packet::headers::Wire;

/// Whether a datagram asks for a transfer.
pub(crate) fn is_request(payload: &[u8]) -> bool {
    const READ: u16 = 1;
    const WRITE: u16 = 2;
    payload.len() >= 2 && matches!(u16::read(payload, 0), READ | WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reading_and_writing_are_requests() {
        let requests = [0u8, 1, 2, 3, 4, 5].map(|code| is_request(&[0, code, b'x']));
        assert_eq!(requests, [false, true, true, false, false, false]);
        assert!(!is_request(&[0]));
    }
}
