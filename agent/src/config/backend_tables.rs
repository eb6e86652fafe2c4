//! The tables of the backends, and those of their keys that stood at the top of the file before there were tables.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Fault;
use crate::backends::Configured;

/// What a file says of the backends.
pub(super) struct BackendTables<'t> {
    tables: Vec<(Configured, Option<Spanned<DeValue<'t>>>)>,
    moved: Vec<Moved>,
}

/// A key that stands at the top.
pub(super) struct Moved {
    pub(super) key: &'static str,
    pub(super) table: &'static str,
    pub(super) span: Range<usize>,
}

impl<'t> BackendTables<'t> {
    /// Takes all of it out of a file, and the former keys into their tables.
    pub(super) fn take_from(file: &mut DeTable<'t>) -> Result<Self, Fault> {
        let (mut tables, mut moved) = (Vec::new(), Vec::new());
        for backend in Configured::all() {
            let name = backend.name();
            let mut table = file.remove(name);
            if let Some(value) = table.as_ref().filter(|value| !value.get_ref().is_table()) {
                return Err(Fault { span: value.span(), message: format!("expected a table, as in [{name}]") });
            }
            for key in backend.former_keys() {
                let Some((written, value)) = file.remove_entry(*key) else { continue };
                let span = written.span();
                let table = table.get_or_insert_with(|| Spanned::new(span.clone(), DeValue::Table(DeTable::new())));
                if let DeValue::Table(entries) = table.get_mut()
                    && entries.insert(written, value).is_some()
                {
                    return Err(Fault { span, message: format!("`{key}` is in [{name}], too") });
                }
                moved.push(Moved { key, table: name, span });
            }
            tables.push((backend, table));
        }
        Ok(Self { tables, moved })
    }

    /// Reads the tables of all backends, and returns the one that is chosen with its own, and the keys that stand at the top. A table of
    /// another backend is passed over once it is right, so that one file does for several; a key at the top is not.
    pub(super) fn read(self, chosen: &Configured) -> Result<(Configured, Vec<Moved>), Fault> {
        let is_chosen = |name| name == chosen.name();
        if let Some(Moved { key, table, span }) = self.moved.iter().find(|moved| !is_chosen(moved.table)) {
            let message = format!("`{key}` belongs in [{table}], and is not for backend \"{}\"", chosen.name());
            return Err(Fault { span: span.clone(), message });
        }
        let mut configured = chosen.clone();
        for (backend, table) in self.tables {
            let Some(table) = table else { continue };
            let read = backend.read(table)?;
            if is_chosen(read.name()) {
                configured = read;
            }
        }
        Ok((configured, self.moved))
    }
}
