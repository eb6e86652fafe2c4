//! Which mirrors there are to be.

use sluice_control::mirror::{Class, ClassSet};
use sluice_flow::key::Match;
use sluice_flow::mirror::Mirror;
use sluice_flow::port::{Port, PortKind, PortMap, PortNumber};
use sluice_flow::text::parse_key;

use crate::config;

/// A mirror that is to be there, but for where its copies go.
pub(super) struct Wanted {
    pub(super) class: Class,
    pub(super) port: PortNumber,
    matches: Vec<Match>,
}

impl Wanted {
    /// Returns its name, the same in every run.
    pub(super) fn name(class: Class, port: PortNumber) -> String {
        format!("{}{class}.{port}", Mirror::RESERVED)
    }

    /// Returns the mirror. Fails if there can be no such mirror on any device.
    pub(super) fn mirror(self, copies: Vec<PortNumber>) -> Result<Mirror, String> {
        Mirror::of_any(Self::name(self.class, self.port), self.matches, copies)
    }
}

/// Returns the ports whose packets are copied, in order. Ports of kind mirror, and the one that copies go to, are not among them.
pub(super) fn mirrored_ports<'p>(
    config: &'p config::Mirroring,
    ports: &'p PortMap,
) -> impl Iterator<Item = &'p Port> + 'p {
    let is_wanted = |number| config.ports.as_ref().is_none_or(|wanted| wanted.contains(&number));
    ports
        .iter()
        .filter(move |port| is_wanted(port.number) && port.kind != PortKind::Mirror && config.to != Some(port.number))
}

/// Returns the classes that have mirrors of their own.
pub(super) fn mirrored_classes(config: &config::Mirroring) -> ClassSet {
    config.classes.iter().filter(|class| !class.selectors().is_empty()).collect()
}

/// Returns the mirror of a class at a port. Fails if the keys of the class are none that a flow can have.
pub(super) fn wanted(class: Class, port: PortNumber, tags: usize) -> Result<Wanted, String> {
    let parse = |key: &String| parse_key(&format!("in_port({port}),{key}"), &()).map(|parsed| parsed.matching);
    let matches = class.flow_keys(tags).iter().map(parse).collect::<Result<_, _>>();
    Ok(Wanted { class, port, matches: matches.map_err(|error| format!("a key of class {class}: {error:?}"))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_keys_that_a_mirror_can_have() {
        for class in Class::ALL.into_iter().filter(|class| *class != Class::Flow) {
            let mirror = wanted(class, PortNumber(7), 2).unwrap().mirror(vec![PortNumber(1)]).unwrap();
            assert_eq!((mirror.name, mirror.matches.len() % 5), (format!("~{class}.7"), 0));
        }
    }
}
