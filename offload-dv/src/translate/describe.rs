//! A rule in words: those of the PRM for what it looks at, and those of libmlx5 for what it does.

use std::fmt::Write;

use super::geneve::GeneveOption;
use super::headers::Wrapping;
use super::places;
use super::rule::Rule;
use super::tracking::Tracking;

impl Rule {
    /// Says what rule it is, with ports called as `name_of` calls their vports.
    pub fn describe(&self, name_of: &dyn Fn(u16) -> String) -> String {
        let inside = if self.table.entrance.is_some() { " inside a tunnel" } else { "" };
        let mut text = format!("chain {}{inside}: match", self.table.chain);
        for place in places::all() {
            let (mask, value) = (place.get(&self.matched.mask), place.get(&self.matched.value));
            // An IPv4 address lies in the last bits of an IPv6 address.
            if mask == 0 || place.is_of_other_version(&self.matched.mask) {
                continue;
            }
            // Writing into a String does not fail.
            let _ = write!(text, " {}={value:#x}", place.name());
            if mask != place.full_mask() && !place.is_its_own_mask() {
                let _ = write!(text, "/{mask:#x}");
            }
        }
        if let Some(GeneveOption { class, kind }) = self.matched.guarantees.option {
            let _ = write!(text, " of option {class:#x}:{kind:#x}");
        }
        text.push_str("; actions ");
        if let Some(Tracking { zone, translates }) = self.plan.tracking {
            let translated = if translates { " with translation" } else { "" };
            let _ = write!(text, "to the connections of zone {zone}{translated}; of those found ");
        }
        text.push_str("count");
        if self.plan.unwraps {
            text.push_str(", decap");
        }
        for _ in 0..self.plan.pops {
            text.push_str(", pop_vlan");
        }
        if !self.plan.modifications.is_empty() {
            let words: Vec<_> = self.plan.modifications.iter().map(|word| format!("{word:#018x}")).collect();
            let _ = write!(text, ", modify_header({})", words.join(" "));
        }
        for tag in &self.plan.pushes {
            let _ = write!(text, ", push_vlan({:#06x} {:#06x})", tag.tpid, tag.tci);
        }
        if let Some(Wrapping { headers, hop }) = &self.plan.wraps {
            let bytes: String = headers.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = write!(text, ", encap({bytes}), to the next hop of {}", hop.destination);
            return text;
        }
        match (self.plan.jump, &self.plan.outputs[..]) {
            (Some(chain), _) => {
                let _ = write!(text, ", to the table of chain {chain}");
            }
            (None, []) => text.push_str(", drop"),
            (None, vports) => {
                let names: Vec<_> = vports.iter().map(|vport| name_of(*vport)).collect();
                let _ = write!(text, ", to {}", names.join(" and "));
            }
        }
        text
    }
}
