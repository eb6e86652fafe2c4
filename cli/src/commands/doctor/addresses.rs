//! Texts of the agent without the addresses in them, for who is not to know a network.

use std::net::{IpAddr, SocketAddr};

/// What stands for an address.
const ADDRESS: &str = "ADDRESS";

/// A text with [`ADDRESS`] for each Ethernet, IPv4 and IPv6 address.
pub(super) fn without_addresses(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(|letter| !is_of_address(letter)).unwrap_or(rest.len()));
        let length = address_in_front(word);
        if length > 0 {
            cleaned.push_str(ADDRESS);
        }
        cleaned.push_str(&word[length..]);
        let next = after.find(is_of_address).unwrap_or(after.len());
        cleaned.push_str(&after[..next]);
        rest = &after[next..];
    }
    cleaned
}

fn is_of_address(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '.' || letter == ':'
}

/// How long the address is that a word is, but for full stops and colons behind it; 0 if it is none.
fn address_in_front(word: &str) -> usize {
    let mut address = word;
    while !is_address(address) {
        match address.strip_suffix(['.', ':']) {
            Some(shorter) => address = shorter,
            None => return 0,
        }
    }
    address.len()
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok() || is_ethernet(text)
}

fn is_ethernet(text: &str) -> bool {
    let is_byte = |digits: &str| digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    text.split(':').count() == 6 && text.split(':').all(is_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_and_all_else_stays() {
        for (text, cleaned) in [
            (
                "action set(tunnel): 192.0.2.7: neighbour 192.0.2.1 on p0 does not answer",
                "action set(tunnel): ADDRESS: neighbour ADDRESS on p0 does not answer",
            ),
            ("2001:db8::7: no way", "ADDRESS: no way"),
            ("to 2001:db8::: no way", "to ADDRESS: no way"),
            ("(fe80::1%p0, [2001:db8::7]:4789)", "(ADDRESS%p0, [ADDRESS]:4789)"),
            ("192.0.2.7:4789/24, 10.0.0.1-10.0.0.9.", "ADDRESS/24, ADDRESS-ADDRESS."),
            ("02:00:00:aB:00:01 is a group's", "ADDRESS is a group's"),
            ("field eth_type: 0x86dd…é 22.41.1000", "field eth_type: 0x86dd…é 22.41.1000"),
            ("kernel: dead:beef (errno 22): .", "kernel: dead:beef (errno 22): ."),
            ("", ""),
        ] {
            assert_eq!(without_addresses(text), cleaned);
        }
    }
}
