//! The mirror of control traffic: `[mirror]`, or the item of `[[mirror]]` that has `protocols`.

use std::net::SocketAddr;

use serde::Deserialize;
use sluice_control::mirror::{Class, ClassSet, MAX_TAGS};
use sluice_flow::port::{PortKind, PortMap, PortNumber};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

use super::error::Fault;
use super::port_reference::PortReference;

/// What is copied to a collector, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirroring {
    /// The classes that are copied.
    pub classes: ClassSet,
    /// The collector, which `sluice-mirror send` is told.
    pub collector: Option<SocketAddr>,
    /// The ports whose packets are copied; `None` for all.
    pub ports: Option<Vec<PortNumber>>,
    /// The port that copies go to, where the device has no other way to let them out.
    pub to: Option<PortNumber>,
    /// Frames with up to so many VLAN tags are copied.
    pub tags: usize,
    /// The bytes of copies that wait in the agent for one client of the mirror socket, for each class, at most.
    pub queue_bytes: usize,
}

impl Default for Mirroring {
    fn default() -> Self {
        Self {
            classes: Class::ALL.into_iter().collect(),
            collector: None,
            ports: None,
            to: None,
            tags: MAX_TAGS,
            queue_bytes: 1 << 20,
        }
    }
}

/// The table as it stands in the file. All that is given is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MirroringTable {
    #[serde(default)]
    protocols: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    collector: Option<Spanned<String>>,
    #[serde(default)]
    ports: Option<Vec<Spanned<PortReference>>>,
    #[serde(default)]
    to: Option<Spanned<PortReference>>,
    #[serde(default)]
    tags: Option<Spanned<i64>>,
    #[serde(default)]
    queue_bytes: Option<Spanned<i64>>,
}

impl MirroringTable {
    /// Takes the table out of a file, if it has one: `[mirror]`, or, beside mirrors of a key, the item of `[[mirror]]` that has `protocols`.
    pub(super) fn take_from(file: &mut DeTable<'_>) -> Result<Option<Spanned<Self>>, Fault> {
        let Some(value) = file.remove("mirror") else { return Ok(None) };
        let span = value.span();
        let items = match value.into_inner() {
            table @ DeValue::Table(_) => return Self::read(Spanned::new(span.clone(), table)).map(Some),
            DeValue::Array(items) => items,
            other => {
                file.insert(Spanned::new(span.clone(), "mirror".into()), Spanned::new(span, other));
                return Ok(None);
            }
        };
        let has_protocols = |item: &Spanned<DeValue<'_>>| {
            item.get_ref().as_table().is_some_and(|table| table.contains_key("protocols"))
        };
        let (of_protocols, of_keys): (Vec<_>, Vec<_>) = items.into_iter().partition(has_protocols);
        let mut rest = DeArray::new();
        of_keys.into_iter().for_each(|item| rest.push(item));
        file.insert(Spanned::new(span.clone(), "mirror".into()), Spanned::new(span, DeValue::Array(rest)));
        let mut of_protocols = of_protocols.into_iter();
        let first = of_protocols.next();
        match of_protocols.next() {
            Some(second) => {
                Err(Fault { span: second.span(), message: "there is a mirror with `protocols` already".into() })
            }
            None => first.map(Self::read).transpose(),
        }
    }

    fn read(table: Spanned<DeValue<'_>>) -> Result<Spanned<Self>, Fault> {
        let span = table.span();
        Ok(Spanned::new(span, Self::deserialize(ValueDeserializer::from(table))?))
    }

    /// Returns what it says. Fails, and says where, if that cannot be.
    pub(super) fn mirroring(&self, ports: &PortMap) -> Result<Mirroring, Fault> {
        let mut mirroring = Mirroring::default();
        if let Some(protocols) = &self.protocols {
            let class = |word: &Spanned<String>| {
                word.get_ref().parse::<Class>().map_err(|error| Fault::at(word, error.to_string()))
            };
            mirroring.classes = protocols.iter().map(class).collect::<Result<_, _>>()?;
        }
        if let Some(address) = &self.collector {
            let wrong = |_| {
                let text = address.get_ref();
                Fault::at(address, format!("expected an address and port such as \"192.0.2.1:4790\", not \"{text}\""))
            };
            mirroring.collector = Some(address.get_ref().parse().map_err(wrong)?);
        }
        let find = |reference: &Spanned<PortReference>| {
            let missing = || Fault::at(reference, format!("there is no port {}", reference.get_ref().text()));
            reference.get_ref().find(ports).ok_or_else(missing)
        };
        mirroring.to = self.to.as_ref().map(find).transpose()?;
        if let Some(references) = &self.ports {
            let mut mirrored = Vec::with_capacity(references.len());
            for reference in references {
                let port = find(reference)?;
                let is_mirror = ports.get(port).is_some_and(|port| port.kind == PortKind::Mirror);
                if is_mirror || Some(port) == mirroring.to {
                    return Err(Fault::at(reference, "copies go to this port: its own packets are not copied".into()));
                }
                mirrored.push(port);
            }
            mirroring.ports = Some(mirrored);
        }
        if let Some(tags) = &self.tags {
            mirroring.tags = between(tags, 0, MAX_TAGS)?;
        }
        if let Some(bytes) = &self.queue_bytes {
            // A frame of 64 KiB fits.
            mirroring.queue_bytes = between(bytes, 1 << 17, 1 << 30)?;
        }
        Ok(mirroring)
    }
}

fn between(number: &Spanned<i64>, least: usize, most: usize) -> Result<usize, Fault> {
    let wrong = || Fault::at(number, format!("expected a number from {least} to {most}, not {}", number.get_ref()));
    usize::try_from(*number.get_ref()).ok().filter(|number| (least..=most).contains(number)).ok_or_else(wrong)
}
