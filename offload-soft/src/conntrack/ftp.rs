//! FTP (RFC 959, RFC 2428): where the ends of a control connection say that data will go.
//!
//! What is understood, and what is not, is as in `net/netfilter/nf_conntrack_ftp.c` with its default settings; what is
//! written instead is as in `net/netfilter/nf_nat_ftp.c`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::tuple::Direction;

/// Places behind line ends that are remembered for each direction (`NUM_SEQ_TO_REMEMBER`).
const REMEMBERED: usize = 2;

/// Where lines of a control connection begin, by direction: a command counts only there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines([Vec<u32>; 2]);

impl Lines {
    pub(crate) fn begins_at(&self, direction: Direction, sequence: u32) -> bool {
        self.0[direction as usize].contains(&sequence)
    }

    /// Notes that a line begins at a sequence number, unless that is older than what is known (`update_nl_seq`).
    pub(crate) fn note(&mut self, direction: Direction, sequence: u32) {
        let is_after = |a: u32, b: u32| b.wrapping_sub(a) >= 1 << 31;
        let known = &mut self.0[direction as usize];
        if known.contains(&sequence) {
            return;
        }
        if known.len() < REMEMBERED {
            known.push(sequence);
            return;
        }
        let oldest = if is_after(known[1], known[0]) { 0 } else { 1 };
        if is_after(sequence, known[oldest]) {
            known[oldest] = sequence;
        }
    }
}

/// How an end is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `192,0,2,9,19,137`: of `PORT` and of the answer to `PASV`.
    Numbers,
    /// `|2|2001:db8::9|5001|`: of `EPRT`.
    Extended,
    /// `|||5001|`: of the answer to `EPSV`.
    PortOnly,
}

/// Where data will go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) form: Form,
    /// Where in the text it stands.
    pub(crate) place: Range<usize>,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// What is in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// The beginning of an announcement, or a malformed one.
    Part,
    All(Announcement),
}

/// Looks for an announcement at the beginning of what one end, at `own`, says (`find_pattern`).
pub(crate) fn find(direction: Direction, text: &[u8], own: IpAddr) -> Found {
    let searches = match direction {
        Direction::Original => [(&b"PORT"[..], Some(b' '), Form::Numbers), (b"EPRT", Some(b' '), Form::Extended)],
        Direction::Reply => [(&b"227 "[..], None, Form::Numbers), (b"229 ", Some(b'('), Form::PortOnly)],
    };
    for (word, skip, form) in searches {
        let length = text.len().min(word.len());
        if length == 0 || !text[..length].eq_ignore_ascii_case(&word[..length]) {
            continue;
        }
        if text.len() <= word.len() {
            return Found::Part;
        }
        let mut start = word.len();
        if let Some(skip) = skip {
            let Some(distance) = text[start..].iter().position(|byte| *byte == skip) else {
                return Found::Part;
            };
            start += distance + 1;
        } else {
            // Brackets may be missing, so the first digit counts (RFC 1123, 4.1.2.6).
            let Some(distance) = text[start..].iter().position(u8::is_ascii_digit) else {
                return Found::Part;
            };
            start += distance;
        }
        let rest = &text[start..];
        let read = match form {
            Form::Numbers => read_numbers(rest, own, skip.map(|_| b'\r')),
            Form::Extended => read_extended(rest, own),
            Form::PortOnly => read_port_only(rest, own),
        };
        return read.map_or(Found::Part, |(length, address, port)| {
            Found::All(Announcement { form, place: start..start + length, address, port })
        });
    }
    Found::Nothing
}

type Read = Option<(usize, IpAddr, u16)>;

/// Six numbers and their end, which may be anything if it is not given (`try_rfc959`).
fn read_numbers(text: &[u8], own: IpAddr, end: Option<u8>) -> Read {
    let ([a, b, c, d, high, low], length) = numbers(text, b',', end)?;
    // In IPv6, Linux writes the number over the first four bytes of an address that then is not the own one.
    let address = match own {
        IpAddr::V4(_) => IpAddr::V4(address_v4([a, b, c, d])),
        IpAddr::V6(own) => {
            let mut bytes = own.octets();
            bytes[..4].copy_from_slice(&address_v4([a, b, c, d]).octets());
            IpAddr::V6(bytes.into())
        }
    };
    Some((length, address, wrap(high << 8 | low)))
}

/// `|1|132.235.1.2|6275|` (`try_eprt`).
fn read_extended(text: &[u8], own: IpAddr) -> Read {
    let family = if own.is_ipv4() { b'1' } else { b'2' };
    let [delimiter, said, second, rest @ ..] = text else {
        return None;
    };
    if rest.is_empty() || !is_delimiter(*delimiter) || second != delimiter || *said != family {
        return None;
    }
    let (address, length): (IpAddr, _) = match own {
        IpAddr::V4(_) => {
            let (parts, length) = numbers(rest, b'.', Some(*delimiter))?;
            (address_v4(parts).into(), length)
        }
        IpAddr::V6(_) => {
            let length = rest.iter().position(|byte| byte == delimiter)?;
            let address: Ipv6Addr = std::str::from_utf8(&rest[..length]).ok()?.parse().ok()?;
            (address.into(), length)
        }
    };
    let start = 3 + length + 1;
    let (end, port) = read_port(text, start, *delimiter)?;
    Some((end, address, port))
}

/// `|||6446|` (`try_epsv_response`).
fn read_port_only(text: &[u8], own: IpAddr) -> Read {
    let [delimiter, second, third, _, ..] = text else {
        return None;
    };
    if !is_delimiter(*delimiter) || second != delimiter || third != delimiter {
        return None;
    }
    let (end, port) = read_port(text, 3, *delimiter)?;
    Some((end, own, port))
}

fn is_delimiter(byte: u8) -> bool {
    byte.is_ascii_graphic() && !byte.is_ascii_digit()
}

/// A port up to a delimiter, and where the delimiter ends (`get_port`).
fn read_port(text: &[u8], start: usize, delimiter: u8) -> Option<(usize, u16)> {
    let length = text.get(start..)?.iter().position(|byte| *byte == delimiter)?;
    let mut port = 0u16;
    for byte in &text[start..start + length] {
        port = port.wrapping_mul(10).wrapping_add(digit(*byte)?);
    }
    (port != 0).then_some((start + length + 1, port))
}

/// So many numbers, and where they end (`try_number`). Numbers that are too great wrap, and may be missing.
fn numbers<const COUNT: usize>(text: &[u8], separator: u8, end: Option<u8>) -> Option<([u32; COUNT], usize)> {
    let mut numbers = [0u32; COUNT];
    let mut index = 0;
    for (at, byte) in text.iter().enumerate() {
        if let Some(digit) = digit(*byte) {
            numbers[index] = numbers[index].wrapping_mul(10).wrapping_add(digit.into());
        } else if *byte == separator {
            index += 1;
            if index == COUNT {
                return None;
            }
        } else if index == COUNT - 1 && end.is_none_or(|end| end == *byte) {
            return Some((numbers, at));
        } else {
            return None;
        }
    }
    None
}

fn digit(byte: u8) -> Option<u16> {
    byte.is_ascii_digit().then(|| u16::from(byte - b'0'))
}

fn address_v4([a, b, c, d]: [u32; 4]) -> Ipv4Addr {
    Ipv4Addr::from_bits(a << 24 | b << 16 | c << 8 | d)
}

#[expect(clippy::cast_possible_truncation, reason = "as Linux does with a number that is no port")]
fn wrap(number: u32) -> u16 {
    number as u16
}

/// Writes an end (`nf_nat_ftp_fmt_cmd`).
pub(crate) fn write(form: Form, address: IpAddr, port: u16) -> String {
    match (form, address) {
        (Form::Numbers, address) => {
            let bytes = match address {
                IpAddr::V4(address) => address.octets(),
                IpAddr::V6(address) => {
                    let [a, b, c, d, ..] = address.octets();
                    [a, b, c, d]
                }
            };
            let [a, b, c, d] = bytes;
            format!("{a},{b},{c},{d},{},{}", port >> 8, port & 0xff)
        }
        (Form::Extended, IpAddr::V4(address)) => format!("|1|{address}|{port}|"),
        (Form::Extended, IpAddr::V6(address)) => {
            let groups = address.segments().map(|group| format!("{group:04x}")).join(":");
            format!("|2|{groups}|{port}|")
        }
        (Form::PortOnly, _) => format!("|||{port}|"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Original, Reply};

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));

    /// The text of an announcement, its address and its port.
    fn found(direction: Direction, text: &str, own: IpAddr) -> (String, String, u16) {
        match find(direction, text.as_bytes(), own) {
            Found::All(found) => (text[found.place].to_owned(), found.address.to_string(), found.port),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn expected(place: &str, address: &str, port: u16) -> (String, String, u16) {
        (place.into(), address.into(), port)
    }

    #[test]
    fn commands_and_answers_are_understood() {
        for (direction, text, own, place, address, port) in [
            (Original, "PORT 10,0,0,1,19,137\r\n", V4, "10,0,0,1,19,137", "10.0.0.1", 5001),
            (Original, "port 10,0,0,1,0,7\r", V4, "10,0,0,1,0,7", "10.0.0.1", 7),
            (Original, "EPRT |1|10.0.0.1|5001|\r\n", V4, "|1|10.0.0.1|5001|", "10.0.0.1", 5001),
            (Original, "EPRT !2!fd00::1!5001!\r\n", V6, "!2!fd00::1!5001!", "fd00::1", 5001),
            (Reply, "227 Entering Passive Mode (10,0,0,1,4,1).\r\n", V4, "10,0,0,1,4,1", "10.0.0.1", 1025),
            (Reply, "227 =10,0,0,1,4,1\r\n", V4, "10,0,0,1,4,1", "10.0.0.1", 1025),
            (Reply, "229 Extended Passive (|||6446|)\r\n", V6, "|||6446|", "fd00::1", 6446),
        ] {
            assert_eq!(found(direction, text, own), expected(place, address, port), "{text}");
        }
    }

    #[test]
    fn each_end_has_words_of_its_own() {
        for (direction, text) in [
            (Reply, "PORT 10,0,0,1,19,137\r\n"),
            (Original, "227 Passive (10,0,0,1,4,1)\r\n"),
            (Original, "USER anonymous\r\n"),
            (Reply, "220 Welcome\r\n"),
        ] {
            assert_eq!(find(direction, text.as_bytes(), V4), Found::Nothing, "{text}");
        }
    }

    #[test]
    fn a_beginning_is_told_from_nothing() {
        for (direction, text, own) in [
            (Original, "PO", V4),
            (Original, "PORT", V4),
            (Original, "PORT 10,0,0,1,19,1", V4),
            (Original, "PORT 10,0,0,1,19\r\n", V4),
            (Original, "PORT 10,0,0,1,19,137,1\r\n", V4),
            (Original, "EPRT |2|fd00::1|5001|\r\n", V4),
            (Original, "EPRT |2|fd00::x|5001|\r\n", V6),
            (Original, "EPRT |1|10.0.0.1|0|\r\n", V4),
            (Original, "EPRT |1|10.0.0.1|5001", V4),
            (Reply, "227 Entering Passive Mode\r\n", V4),
            (Reply, "229 Entering (||6446|)", V4),
            (Reply, "229 Entering", V4),
        ] {
            assert_eq!(find(direction, text.as_bytes(), own), Found::Part, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let ends = [(Form::Numbers, V4), (Form::Extended, V4), (Form::Extended, V6), (Form::PortOnly, V6)];
        for (form, address) in ends {
            let (direction, before, behind) = match form {
                Form::Numbers => (Original, "PORT ", "\r\n"),
                Form::Extended => (Original, "EPRT ", "\r\n"),
                Form::PortOnly => (Reply, "229 Entering (", ")\r\n"),
            };
            let written = write(form, address, 40_001);
            let read = found(direction, &format!("{before}{written}{behind}"), address);
            assert_eq!(read, expected(&written, &address.to_string(), 40_001));
        }
        assert_eq!(write(Form::Extended, V6, 7), "|2|fd00:0000:0000:0000:0000:0000:0000:0001|7|");
    }

    #[test]
    fn the_two_latest_line_beginnings_are_remembered() {
        let mut lines = Lines::default();
        for sequence in [u32::MAX - 5, 10, 20, 15, u32::MAX - 9] {
            lines.note(Original, sequence);
        }
        let known = [10, 15, 20].map(|sequence| lines.begins_at(Original, sequence));
        assert_eq!(known, [false, true, true], "15 is later than 10, which was the oldest");
        assert!(!lines.begins_at(Reply, 20));
    }
}
