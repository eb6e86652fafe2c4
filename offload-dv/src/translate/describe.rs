//! A rule in words: those of the PRM for what it looks at, and those of libmlx5 for what it does.

use std::fmt::{self, Display, Formatter, Write};

use super::actions::{Plan, Sampling, Tag};
use super::changes::Changes;
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
        if self.matched.guarantees.leaves_fragments {
            text.push_str("; fragments are left to software");
        }
        text.push_str("; actions ");
        if let Some(Tracking { zone, translates, is_inside }) = self.plan.tracking {
            let translated = match (translates, is_inside) {
                (false, _) => "",
                (true, false) => " with translation",
                (true, true) => " (those with translation are left to software)",
            };
            let _ = write!(text, "look up the connection in zone {zone}{translated}; if found ");
        }
        let of_first = done(&self.plan, name_of);
        let _ = write!(text, "{}", std::iter::once("count".to_owned()).chain(of_first).collect::<Vec<_>>().join(", "));
        describe_behind(&self.plan, name_of, &mut text);
        text
    }
}

/// Adds what the rules behind one do, each with those behind itself.
fn describe_behind(plan: &Plan, name_of: &dyn Fn(u16) -> String, text: &mut String) {
    for plan in &plan.behind {
        let _ = write!(text, "; then: {}", done(plan, name_of).join(", "));
        describe_behind(plan, name_of, text);
    }
}

/// Says what a rule does besides counting.
fn done(plan: &Plan, name_of: &dyn Fn(u16) -> String) -> Vec<String> {
    let mut done = Vec::new();
    if plan.unwraps {
        done.push("decap".to_owned());
    }
    done.extend(changes(plan.pops, &plan.modifications, &plan.pushes));
    if let Some(Wrapping { headers, hop }) = &plan.wraps {
        let bytes: String = headers.iter().map(|byte| format!("{byte:02x}")).collect();
        done.push(format!("encap({bytes})"));
        done.push(format!("to the next hop of {}", hop.destination));
    }
    done.extend(plan.meter.map(|id| format!("meter({id}), of those that pass")));
    let deferred = plan.deferred.as_ref().map(|changes| format!(" with {changes} deferred")).unwrap_or_default();
    done.extend(plan.jump.map(|chain| format!("to the table of chain {chain}{deferred}")));
    if let Some(Sampling { ratio, outputs }) = &plan.sampling {
        let names: Vec<_> = outputs.iter().map(|vport| name_of(*vport)).collect();
        done.push(format!("sample(one in {ratio}, to {})", names.join(" and ")));
    }
    let behind = match plan.behind.len() {
        0 => None,
        1 => Some("a later rule".to_owned()),
        number => Some(format!("{number} later rules")),
    };
    let places: Vec<_> = plan.outputs.iter().map(|vport| name_of(*vport)).chain(behind).collect();
    if !places.is_empty() {
        done.push(format!("to {}", places.join(" and ")));
    }
    if !plan.leads() {
        done.push("drop".to_owned());
    }
    done
}

/// Says what is changed in a packet.
fn changes(pops: usize, modifications: &[u64], pushes: &[Tag]) -> Vec<String> {
    let mut changes = vec!["pop_vlan".to_owned(); pops];
    if !modifications.is_empty() {
        let words: Vec<_> = modifications.iter().map(|word| format!("{word:#018x}")).collect();
        changes.push(format!("modify_header({})", words.join(" ")));
    }
    changes.extend(pushes.iter().map(|tag| format!("push_vlan({:#06x} {:#06x})", tag.tpid, tag.tci)));
    changes
}

impl Display for Changes {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&changes(self.pops, self.modifications.words(), &self.pushes).join(", "))
    }
}
