//! Priorities of tc: a band for each flow priority, and in it a place for each protocol.
//!
//! All rules of a tc priority have one protocol, with any masks. Flows of one priority do not overlap, so the order of
//! protocols within a band does not matter. Common protocols have fixed places; others get one while they have rules.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU16;

use sluice_flow::cause::Cause;
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;
use sluice_netdev::HeardPriorities;

use crate::wire::filter::ANY_PROTOCOL;

/// Places of a band. Sixteen bands leave some priorities above and below to others.
const BAND: u16 = 4000;
/// Our first priority. OVS polices at 1, and other people's firewalls should come first, too.
const FIRST: u16 = 1000;
/// The first priority of mirrors, which end where flows begin.
const FIRST_OF_MIRRORS: u16 = FIRST - MIRRORS;
/// At most this many mirrors at a hook.
const MIRRORS: u16 = 100;
/// The first places of each band, at which the monitor hears at once of other people's filters: those of the common
/// protocols, and those that other protocols are given first.
const HEARD: u16 = 64;
/// IPv4, IPv6, both kinds of VLAN tag, ARP, RARP, both kinds of MPLS, and any.
const FIXED: [u16; 9] = [0x0800, 0x86dd, 0x8100, 0x88a8, 0x0806, 0x8035, 0x8847, 0x8848, ANY_PROTOCOL];

/// Protocols whose packets can have a TTL, and so need a guard. The guards' places come before all others of the band.
const IN_FRONT: [u16; 4] = [0x0800, 0x86dd, 0x8100, 0x88a8];

/// The first place for protocols without a fixed one.
#[expect(clippy::cast_possible_truncation, reason = "there are few")]
const FIRST_OF_OTHERS: u16 = (IN_FRONT.len() + FIXED.len()) as u16;

/// Which protocols have a place. A protocol without a fixed place has the same one in every run and every agent, unless
/// another protocol occupies it: so rules with one match meet at one priority, where the kernel takes only one of them.
#[derive(Debug, Default)]
pub struct Priorities {
    /// Place and number of rules of each protocol without a fixed place.
    places: HashMap<u16, (u16, usize)>,
    /// The places in [`Self::places`].
    taken: HashSet<u16>,
}

/// A priority at which rules of a protocol cannot be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rules of this protocol cannot have this priority")]
pub struct NotOurs;

impl Priorities {
    /// The priority in front of all rules of mirrors and flows.
    pub(crate) const IN_FRONT_OF_ALL: u16 = FIRST_OF_MIRRORS - 1;

    /// The priorities at which the monitor hears at once of other people's filters: all of mirrors, and the first [`HEARD`]
    /// of each band.
    pub(crate) fn heard() -> Option<HeardPriorities> {
        let band = NonZeroU16::new(BAND)?;
        Some(HeardPriorities { first: FIRST_OF_MIRRORS, lead: MIRRORS, band, of_each_band: HEARD })
    }

    /// The priority for one more rule.
    pub fn acquire(&mut self, priority: Priority, protocol: u16) -> Result<u16, Refusal> {
        let place = match fixed(protocol) {
            Some(place) => place,
            None => self.place(protocol)?,
        };
        Ok(priority_of(priority, place))
    }

    /// The priority of rules of a protocol with a fixed place, which need not be acquired.
    pub fn fixed(priority: Priority, protocol: u16) -> Option<u16> {
        fixed(protocol).map(|place| priority_of(priority, place))
    }

    /// Counts an existing rule at a priority. Fails if rules of this protocol cannot be there.
    pub fn adopt(&mut self, priority: u16, protocol: u16) -> Result<(), NotOurs> {
        if !Self::has(priority) {
            return Err(NotOurs);
        }
        let place = place_of(priority);
        match (fixed(protocol), self.places.get_mut(&protocol)) {
            (Some(fixed), _) => return if fixed == place { Ok(()) } else { Err(NotOurs) },
            (None, Some((known, users))) if *known == place => *users += 1,
            (None, Some(_)) => return Err(NotOurs),
            (None, None) => {
                if place < FIRST_OF_OTHERS || !self.taken.insert(place) {
                    return Err(NotOurs);
                }
                self.places.insert(protocol, (place, 1));
            }
        }
        Ok(())
    }

    /// The priority of the guard of a flow; it need not be released.
    pub fn acquire_in_front(priority: Priority, protocol: u16) -> Result<u16, Refusal> {
        let (place, _) = places_in_front(protocol).ok_or_else(|| Refusal::Combination {
            reason: "a rule for all Ethernet types has no place for a guard in front of it".into(),
        })?;
        Ok(band(priority) + place)
    }

    /// The priority of the guard of a rule, if it can have one: what [`Self::acquire_in_front`] gives for the same flow.
    pub fn in_front_of(priority: u16, protocol: u16) -> Option<u16> {
        let (in_front, own) = places_in_front(protocol)?;
        (Self::has(priority) && place_of(priority) == own).then(|| priority - own + in_front)
    }

    /// The priority of the rule whose guard is at a priority.
    pub fn behind(priority: u16, protocol: u16) -> Option<u16> {
        let (in_front, own) = places_in_front(protocol)?;
        (Self::has(priority) && place_of(priority) == in_front).then(|| priority - in_front + own)
    }

    /// The priority of a mirror's rule, before all rules of flows. Each mirror of a hook has its own place.
    pub fn of_mirror(place: u16) -> Result<u16, Refusal> {
        let limit = || Refusal::Limit { what: "mirrors at a port".into(), limit: MIRRORS.into() };
        if place < MIRRORS { Ok(FIRST_OF_MIRRORS + place) } else { Err(limit()) }
    }

    /// Whether a priority is that of a mirror's rule.
    pub const fn is_of_mirror(priority: u16) -> bool {
        priority >= FIRST_OF_MIRRORS && priority < FIRST
    }

    /// Counts a rule that is gone.
    pub fn release(&mut self, protocol: u16) {
        let Some((place, users)) = self.places.get_mut(&protocol) else { return };
        *users -= 1;
        if *users == 0 {
            self.taken.remove(place);
            self.places.remove(&protocol);
        }
    }

    /// Whether a priority is one of ours.
    pub const fn has(priority: u16) -> bool {
        priority >= FIRST && priority - FIRST < BAND * (Priority::MAX as u16 + 1)
    }

    fn place(&mut self, protocol: u16) -> Result<u16, Refusal> {
        const PLACES: u16 = BAND - FIRST_OF_OTHERS;
        if let Some((place, users)) = self.places.get_mut(&protocol) {
            *users += 1;
            return Ok(*place);
        }
        let mut candidates = (0..PLACES).map(|step| FIRST_OF_OTHERS + (protocol % PLACES + step) % PLACES);
        let place = candidates.find(|place| self.taken.insert(*place)).ok_or_else(|| {
            Refusal::Limit { what: "Ethernet types in rules at a time".into(), limit: BAND.into() }.until(Cause::Room)
        })?;
        self.places.insert(protocol, (place, 1));
        Ok(place)
    }
}

fn priority_of(priority: Priority, place: u16) -> u16 {
    band(priority) + place
}

fn fixed(protocol: u16) -> Option<u16> {
    const FIRST_FIXED: usize = IN_FRONT.len();
    u16::try_from(FIRST_FIXED + FIXED.iter().position(|fixed| *fixed == protocol)?).ok()
}

/// The place of a protocol's guards, and the place of its other rules.
fn places_in_front(protocol: u16) -> Option<(u16, u16)> {
    let place = IN_FRONT.iter().position(|in_front| *in_front == protocol)?;
    Some((u16::try_from(place).ok()?, fixed(protocol)?))
}

/// The place within its band of one of our priorities.
const fn place_of(priority: u16) -> u16 {
    (priority - FIRST) % BAND
}

/// The first priority of a band.
fn band(priority: Priority) -> u16 {
    FIRST + u16::from(Priority::MAX - priority.get()) * BAND
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn priority(value: u8) -> Priority {
        Priority::new(value).unwrap()
    }

    #[test]
    fn a_higher_priority_of_flows_comes_first_whatever_the_protocol() {
        let mut priorities = Priorities::default();
        for protocol in [0x0800, ANY_PROTOCOL, 0x88b5] {
            let of = [15, 14, 1, 0].map(|value| priorities.acquire(priority(value), protocol).unwrap());
            assert!(of.is_sorted(), "{of:?}");
            for other in [0x86dd, 0x9000] {
                assert!(priorities.acquire(priority(2), other).unwrap() < of[2], "{protocol:#x} against {other:#x}");
            }
        }
    }

    #[test]
    fn places_of_rules_that_are_there_are_kept_for_their_protocol() {
        let mut priorities = Priorities::default();
        let there = priorities.acquire(priority(3), 0x9000).unwrap() + 5;
        assert_eq!(priorities.adopt(there, 0x9005), Ok(()));
        assert_eq!(priorities.adopt(there, 0x9006), Err(NotOurs), "one protocol for each");
        assert_eq!(priorities.adopt(there - 1, 0x9005), Err(NotOurs), "one place for each");
        assert_eq!(priorities.adopt(FIRST - 1, 0x9007), Err(NotOurs));
        assert_eq!(priorities.acquire(priority(3), 0x9005), Ok(there));
        let others: BTreeSet<_> =
            (0xa000..0xa010).map(|other| priorities.acquire(priority(3), other).unwrap()).collect();
        assert_eq!((others.len(), others.contains(&there)), (16, false));
        let ipv4 = priorities.acquire(priority(0), 0x0800).unwrap();
        assert_eq!((priorities.adopt(ipv4, 0x0800), priorities.adopt(ipv4, 0x86dd)), (Ok(()), Err(NotOurs)));
        assert_eq!(Priorities::fixed(priority(0), 0x0800), Some(ipv4));
        assert_eq!(Priorities::fixed(priority(0), 0x9000), None);
    }

    #[test]
    fn a_protocol_has_the_same_place_whatever_came_before_unless_that_is_taken() {
        let places = BAND - FIRST_OF_OTHERS;
        let in_order = |protocols: [u16; 3]| {
            let mut priorities = Priorities::default();
            protocols.map(|protocol| (protocol, priorities.acquire(priority(0), protocol).unwrap()))
        };
        let [a, b, c] = in_order([0x9000, 0x9001, 0x88b5]);
        assert_eq!(in_order([0x88b5, 0x9001, 0x9000]), [c, b, a]);
        let [a, other, _] = in_order([0x9000, 0x9000 + places, 0x88b5]);
        assert_eq!(other.1, a.1 + 1, "of two with one place the second has the next");
    }

    #[test]
    fn what_is_looked_at_first_comes_before_all_others_of_its_priority_and_behind_those_above() {
        let mut priorities = Priorities::default();
        for protocol in IN_FRONT {
            let in_front = Priorities::acquire_in_front(priority(3), protocol).unwrap();
            assert!(Priorities::has(in_front));
            for other in FIXED {
                assert!(in_front < priorities.acquire(priority(3), other).unwrap());
                assert!(in_front > priorities.acquire(priority(4), other).unwrap());
            }
        }
        assert!(Priorities::acquire_in_front(priority(3), ANY_PROTOCOL).is_err());
    }

    #[test]
    fn a_rule_says_where_the_one_in_front_of_it_is_and_that_one_where_it_is_itself() {
        let mut priorities = Priorities::default();
        for (protocol, flows) in IN_FRONT.into_iter().zip([0, 3, 14, 15]) {
            let own = priorities.acquire(priority(flows), protocol).unwrap();
            let in_front = Priorities::acquire_in_front(priority(flows), protocol).unwrap();
            assert_eq!(Priorities::in_front_of(own, protocol), Some(in_front));
            assert_eq!(Priorities::behind(in_front, protocol), Some(own));
            assert_eq!((Priorities::in_front_of(in_front, protocol), Priorities::behind(own, protocol)), (None, None));
        }
        let odd = priorities.acquire(priority(0), 0x9000).unwrap();
        assert_eq!((Priorities::in_front_of(odd, 0x9000), Priorities::in_front_of(odd, 0x0800)), (None, None));
        assert_eq!((Priorities::in_front_of(5, 0x0800), Priorities::behind(5, 0x0800)), (None, None));
    }

    #[test]
    fn mirrors_come_before_all_flows_each_at_its_own_place() {
        let first = Priorities::acquire_in_front(priority(15), 0x0800).unwrap();
        let all: BTreeSet<_> = (0..MIRRORS).map(|place| Priorities::of_mirror(place).unwrap()).collect();
        assert_eq!(all.len(), usize::from(MIRRORS));
        assert!(all.iter().all(|mirror| *mirror < first && !Priorities::has(*mirror)));
        assert!(all.iter().all(|mirror| Priorities::is_of_mirror(*mirror)) && !Priorities::is_of_mirror(first));
        assert_eq!(Priorities::of_mirror(MIRRORS).unwrap_err().label(), "limit");
    }

    #[test]
    fn protocols_never_share_a_priority_and_places_are_given_back() {
        let mut priorities = Priorities::default();
        let mut found = BTreeSet::new();
        let others = (0x9000..).take(usize::from(BAND) - FIXED.len() - IN_FRONT.len());
        for protocol in FIXED.into_iter().chain(others.clone()) {
            let acquired = priorities.acquire(priority(0), protocol).unwrap();
            assert!(Priorities::has(acquired));
            assert!(found.insert(acquired), "{protocol:#x}");
            assert_eq!(priorities.acquire(priority(0), protocol), Ok(acquired), "once more");
        }
        assert_eq!(priorities.acquire(priority(0), 0x7000).unwrap_err().label(), "limit");
        priorities.release(0x9001);
        assert!(priorities.acquire(priority(0), 0x7000).is_err(), "one rule of that protocol is left");
        priorities.release(0x9001);
        assert!(priorities.acquire(priority(0), 0x7000).is_ok());
        assert!(!Priorities::has(FIRST - 1) && !Priorities::has(FIRST + 16 * BAND));
    }
}
