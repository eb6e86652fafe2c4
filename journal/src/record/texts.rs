//! Actions in records.

use std::collections::HashMap;

use sluice_flow::ActionList;
use sluice_flow::text::{Style, parse_actions, write_actions};

use super::error::RecordError;
use crate::frame::LONGEST;

/// Action lists whose text is kept at hand.
const TEXTS_KEPT: usize = 4_096;

/// Actions as text, both ways. Few lists serve many flows, so that some are kept at hand.
#[derive(Default)]
pub(crate) struct ActionTexts {
    /// By where the list is, which flows share; with the list, so that no other can be in its place.
    written: HashMap<usize, (ActionList, Box<str>), foldhash::fast::RandomState>,
    read: HashMap<Box<[u8]>, ActionList>,
}

impl ActionTexts {
    /// The text of a list; `None` if it would be read as something else.
    pub(super) fn write(&mut self, actions: &ActionList) -> Option<&str> {
        let place = actions.as_ptr().addr();
        if !self.written.contains_key(&place) {
            let mut text = String::new();
            write_actions(&mut text, actions, &Style::default()).ok()?;
            parse_actions(&text, &()).ok().filter(|read| read == actions && text.len() <= LONGEST / 2)?;
            if self.written.len() >= TEXTS_KEPT {
                self.written.clear();
            }
            self.written.insert(place, (actions.clone(), text.into()));
        }
        self.written.get(&place).map(|(_, text)| &**text)
    }

    pub(super) fn read(&mut self, text: &[u8]) -> Result<ActionList, RecordError> {
        if let Some(known) = self.read.get(text) {
            return Ok(known.clone());
        }
        let wrong = |reason: String| RecordError::Actions { text: String::from_utf8_lossy(text).into_owned(), reason };
        let words = std::str::from_utf8(text).map_err(|error| wrong(error.to_string()))?;
        let actions = parse_actions(words, &()).map_err(|error| wrong(error.to_string()))?;
        if self.read.len() >= TEXTS_KEPT {
            self.read.clear();
        }
        self.read.insert(text.into(), actions.clone());
        Ok(actions)
    }
}
