//! Mirrors as objects.

use sluice_flow::backend::{Checker, Facet};
use sluice_flow::mirror::Mirror;
use sluice_flow::port::PortNames;
use sluice_flow::text::{self, Style};
use sluice_flow::{Backend, MaskedKey, Refusal};

use super::id::ObjectId;
use super::port::port_number;
use super::registry::{Absence, ObjectKind, Registry};
use super::set::Objects;

impl ObjectKind for Mirror {
    type Id = String;

    const KEY: &'static str = "mirror";

    fn id(&self) -> String {
        self.name.clone()
    }

    fn check(&self, checker: &mut dyn Checker) -> Result<(), Refusal> {
        checker.mirror(self)
    }

    fn make(&self, backend: &dyn Backend, _: Absence) -> Result<(), Refusal> {
        Facet::Mirrors.require(backend.mirrors())?.set_mirror(self)
    }

    fn unmake(name: &String, backend: &dyn Backend) -> Result<(), Refusal> {
        Facet::Mirrors.require(backend.mirrors())?.remove_mirror(name)
    }

    /// `NAME KEY PORT[,PORT]...`.
    fn read(words: &[String], ports: &dyn PortNames) -> Result<Self, String> {
        let [name, key, copies] = words else { return Err("a name, a key and ports are needed".into()) };
        let wrong = |error: text::ParseError| format!("parsing flow key (Invalid argument)\n{}", error.caret(key));
        let matching = text::parse_key(key, ports).map_err(wrong)?.matching;
        let copies = copies.split(',').map(|text| port_number(text, ports)).collect::<Result<_, _>>()?;
        let mirror = Self::new(name.as_str(), matching, copies)?;
        if mirror.is_reserved() {
            return Err(format!("the name of a mirror does not begin with \"{}\"", Self::RESERVED));
        }
        Ok(mirror)
    }

    fn write(&self) -> String {
        let Self { name, matches, copies } = self;
        let copies: Vec<_> = copies.iter().map(ToString::to_string).collect();
        let mut line = format!("{name} ");
        // A mirror that was read has one match. Writing to a string does not fail.
        for matching in matches {
            let _ = text::write_key(&mut line, &MaskedKey::new(matching), &Style::default());
            line.push(' ');
        }
        line + &copies.join(",")
    }

    fn registry(objects: &Objects) -> &Registry<Self> {
        &objects.mirrors
    }

    fn registry_mut(objects: &mut Objects) -> &mut Registry<Self> {
        &mut objects.mirrors
    }
}

impl From<String> for ObjectId {
    fn from(name: String) -> Self {
        Self::Mirror(name)
    }
}
