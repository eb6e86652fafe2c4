//! Mirrors: copies of packets, taken before any flow sees them.
//!
//! A mirror is a stage before the first chain that always goes on, so that what becomes of a packet is the same with it and
//! without. Several mirrors may copy the same packet.

use crate::field::Field;
use crate::key::Match;
use crate::name;
use crate::port::PortNumber;

/// A mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Its name.
    pub name: String,
    /// Which packets are copied: of one port, as they come to the first chain. A packet that several of these take is copied once. Never
    /// empty.
    pub matches: Vec<Match>,
    /// Where copies go, in order.
    pub copies: Vec<PortNumber>,
}

impl Mirror {
    /// As many bytes as a name has at most.
    pub const MAX_NAME: usize = 31;
    /// As many ports as copies go to at most.
    pub const MAX_COPIES: usize = 30;
    /// What the name of a mirror begins with that the agent makes by itself.
    pub const RESERVED: char = '~';
    /// As many matches as a mirror has at most.
    pub const MAX_MATCHES: usize = 64;

    /// A mirror of the packets that one match takes, or why there cannot be such a one on any device.
    pub fn new(name: impl Into<String>, matching: Match, copies: Vec<PortNumber>) -> Result<Self, String> {
        Self::of_any(name, vec![matching], copies)
    }

    /// A mirror of the packets that any of the matches takes, or why there cannot be such a one on any device.
    pub fn of_any(name: impl Into<String>, matches: Vec<Match>, copies: Vec<PortNumber>) -> Result<Self, String> {
        let name = name.into();
        name::check("the name of a mirror", &name, Self::MAX_NAME).map_err(|error| error.to_string())?;
        if matches.is_empty() || matches.len() > Self::MAX_MATCHES {
            return Err(format!("a mirror has 1 to {} matches", Self::MAX_MATCHES));
        }
        for matching in &matches {
            if matching.mask.get(Field::InPort) != Field::InPort.full_mask() {
                return Err("a mirror is of one port: its key needs in_port".to_owned());
            }
            if matching.key.get(Field::InPort) != matches[0].key.get(Field::InPort) {
                return Err("a mirror is of one port: its keys have the same in_port".to_owned());
            }
            if matching.key.get(Field::RecircId) != 0 {
                return Err("a mirror comes before the first chain: its key has no recirc_id but 0".to_owned());
            }
        }
        if copies.is_empty() || copies.len() > Self::MAX_COPIES {
            return Err(format!("a mirror copies to 1 to {} ports", Self::MAX_COPIES));
        }
        if copies.iter().enumerate().any(|(at, port)| copies[..at].contains(port)) {
            return Err("a mirror copies to a port once".to_owned());
        }
        Ok(Self { name, matches, copies })
    }

    /// Returns whether its name is one of those that the agent gives by itself.
    pub fn is_reserved(&self) -> bool {
        self.name.starts_with(Self::RESERVED)
    }

    /// The port whose packets are copied.
    pub fn port(&self) -> PortNumber {
        PortNumber(u32::try_from(self.matches[0].key.get(Field::InPort)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u32) -> Match {
        let mut matching = Match::default();
        matching.set_exact(Field::InPort, port.into());
        matching
    }

    #[test]
    fn a_mirror_is_of_one_port_before_the_first_chain_and_copies_to_each_port_once() {
        let to = |ports: &[u32]| ports.iter().map(|port| PortNumber(*port)).collect::<Vec<_>>();
        let mirror = Mirror::new("tap", at(1), to(&[2, 3])).unwrap();
        assert_eq!((mirror.port(), mirror.copies.len()), (PortNumber(1), 2));
        let mut later = at(1);
        later.set_exact(Field::RecircId, 7);
        let mut first = at(1);
        first.set_exact(Field::RecircId, 0);
        assert!(Mirror::new("tap", first, to(&[2])).is_ok());
        for (matching, copies) in [(Match::default(), vec![2]), (later, vec![2]), (at(1), vec![]), (at(1), vec![2, 2])]
        {
            assert!(Mirror::new("tap", matching, to(&copies)).is_err(), "{copies:?}");
        }
        assert!(Mirror::new("tap", at(1), to(&(2..40).collect::<Vec<_>>())).is_err());
        assert!(Mirror::of_any("tap", vec![at(1), first], to(&[2])).is_ok());
        for matches in [vec![], vec![at(1), at(3)], vec![at(1), Match::default()], vec![at(1); 65]] {
            assert!(Mirror::of_any("tap", matches, to(&[2])).is_err());
        }
        for name in ["", "a b", "a,b", &"x".repeat(32)] {
            assert!(Mirror::new(name, at(1), to(&[2])).is_err(), "{name}");
        }
    }
}
