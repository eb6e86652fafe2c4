//! Name, notes and counters of a rule, read in place without parsing the rule.

use sluice_netdev::netlink::attribute::{Attributes, Malformed};

use super::action::COUNTED;
use super::filter::{FilterId, FilterView};
use super::statistics::{Count, Statistics};

const FLOWER_ACTIONS: u16 = 3;
const FLOWER_FLAGS: u16 = 22;

/// The first bytes of the note on a shared policer.
pub(crate) const SHARED: [u8; 4] = *b"slcm";

/// What a dump says about a rule, terse or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleView<'a> {
    /// The name of the rule.
    pub id: FilterId,
    /// Bits of [`flower::flag`](super::flower::flag).
    pub flags: u32,
    /// The notes on its first two actions.
    pub cookies: [&'a [u8]; 2],
    /// What software counted: the maximum over the actions, because every action sees each packet until one drops it. Shared
    /// policers are left out, because they also count other rules' packets: those with a note that says so, and all behind
    /// the second action, whose notes are not read.
    pub software: Count,
    /// What hardware counted, likewise.
    pub hardware: Count,
}

impl<'a> RuleView<'a> {
    /// Reads a flower filter.
    pub fn new(filter: &FilterView<'a>) -> Result<Self, Malformed> {
        let empty: &[u8] = &[];
        let mut found = Self {
            id: filter.id,
            flags: 0,
            cookies: [empty; 2],
            software: Count::default(),
            hardware: Count::default(),
        };
        for attribute in filter.options() {
            let attribute = attribute?;
            match attribute.kind {
                FLOWER_FLAGS => found.flags = attribute.u32()?,
                FLOWER_ACTIONS => {
                    for action in attribute.nested("actions") {
                        let action = action?;
                        found.add(action.kind, action.nested("action"))?;
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn add(&mut self, place: u16, action: Attributes<'a>) -> Result<(), Malformed> {
        let [kind, statistics, cookie] = COUNTED;
        let place = usize::from(place).wrapping_sub(1);
        let (mut is_policer, mut counted, mut note): (_, _, &[u8]) = (false, Statistics::default(), &[]);
        for attribute in action {
            let attribute = attribute?;
            if attribute.kind == kind {
                is_policer = attribute.payload == b"police\0";
            } else if attribute.kind == statistics {
                counted = Statistics::parse(attribute.nested("statistics"))?;
            } else if attribute.kind == cookie {
                note = attribute.payload;
            }
        }
        let is_shared = is_policer && (place >= self.cookies.len() || note.starts_with(&SHARED));
        if !is_shared {
            self.software = self.software.max(counted.software());
            self.hardware = self.hardware.max(counted.hardware);
        }
        if let Some(cookie) = self.cookies.get_mut(place) {
            *cookie = note;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sluice_netdev::netlink::attribute::Writer;

    use super::super::filter::Hook;
    use super::*;

    #[test]
    fn a_policer_is_shared_that_says_so_or_is_behind_the_notes() {
        let counted = |place: u16, note: &[u8]| {
            let mut buffer = vec![];
            let mut writer = Writer::new(&mut buffer);
            writer.put_text(1, "police");
            writer.nest(4, |writer| {
                writer.put(1, &[&90u64.to_ne_bytes()[..], &3u32.to_ne_bytes(), &[0; 4]].concat());
            });
            writer.put(COUNTED[2], note);
            writer.finish().unwrap();
            let hook = Hook::Ingress { interface: 1 };
            let id = FilterId { hook, chain: 0, priority: 1, protocol: 3, handle: 1 };
            let none: &[u8] = &[];
            let (flags, cookies) = (0, [none; 2]);
            let mut rule = RuleView { id, flags, cookies, software: Count::default(), hardware: Count::default() };
            rule.add(place, Attributes::new(&buffer, "test")).unwrap();
            rule.software.packets
        };
        assert_eq!([1, 2, 3].map(|place| counted(place, b"slce1234")), [3, 3, 0]);
        assert_eq!([1, 2, 3].map(|place| counted(place, b"slcm1234")), [0; 3]);
    }
}
