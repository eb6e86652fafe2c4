//! Lines, read.

use std::sync::Arc;
use std::time::Duration;

use super::actions::read_actions;
use super::cursor::{Cursor, Separators, error_at};
use super::line::{EXTRA_LABEL, TCP_FLAG_LETTERS};
use super::read_extra::{read_extra, read_seconds};
use super::read_key::{no_attribute, read_key};
use super::read_value::Found;
use super::recent_actions::RecentActions;
use super::shapes::{Example, Shapes};
use super::{Extra, FlowLine, Offloaded, ParseError};
use crate::action::ActionKind;
use crate::flow::{Flow, Manner};
use crate::key::{Key, Mask, MaskedKey, Match};
use crate::origin::Origin;
use crate::parts::SharedParts;
use crate::port::PortNames;
use crate::recent::{RecentMasks, RecentTerms};
use crate::ufid::{Seed, Ufid};

/// What may stand between key and actions, each but the last followed by one value.
const LABELS: [&str; 7] = ["packets:", "bytes:", "used:", "flags:", "offloaded:", "dp:", "actions:"];

/// Reads a flow, in the form in which `dump-flows` or `dump-flows -m` prints it, or as a key, a blank and actions.
pub fn parse_line(text: &str, names: &dyn PortNames) -> Result<FlowLine, ParseError> {
    let mut line = FlowLine::default();
    let mut cursor = Cursor::new(text);
    let (ufid, separators, _) = read_key(&mut cursor, names, &mut line.matching, None)?;
    line.ufid = ufid;
    read_rest(&mut cursor, separators, names, None, &mut line)?;
    Ok(line)
}

/// Reads many lines as [`parse_line`] reads one, and faster: the room for a flow is used again, and what differs from an
/// earlier line in values alone is not taken apart anew.
pub struct LineReader<'n> {
    names: &'n dyn PortNames,
    shapes: Shapes,
    recent_actions: RecentActions,
    recent_masks: RecentMasks,
    recent_terms: RecentTerms,
    line: FlowLine,
    /// Words of the match that the last line has written.
    written: u128,
    /// The mask of the last line.
    mask: Arc<Mask>,
    /// The fields of the last line of which the shape was not known.
    found: Vec<Found>,
    origin: Origin,
}

impl<'n> LineReader<'n> {
    /// A reader of texts that speak of these ports.
    pub fn new(names: &'n dyn PortNames) -> Self {
        Self {
            names,
            shapes: Shapes::default(),
            recent_actions: RecentActions::default(),
            recent_masks: RecentMasks::default(),
            recent_terms: RecentTerms::default(),
            line: FlowLine::default(),
            written: 0,
            mask: Arc::new(Mask::new(&Key::ZERO)),
            found: Vec::new(),
            origin: Origin::default(),
        }
    }

    /// Reads flows for the table whose parts these are.
    #[must_use]
    pub fn sharing(self, parts: Arc<SharedParts>) -> Self {
        Self { recent_terms: self.recent_terms.sharing(parts), ..self }
    }

    /// Whose flows they are, if not those of commands.
    #[must_use]
    pub fn of(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    /// Reads a flow.
    pub fn read(&mut self, text: &str) -> Result<&FlowLine, ParseError> {
        let mut cursor = Cursor::new(text);
        let separators = self.read_match(&mut cursor)?;
        read_rest(&mut cursor, separators, self.names, Some(&mut self.recent_actions), &mut self.line)?;
        Ok(&self.line)
    }

    /// Reads the key of a flow whose actions are a text of their own, to be [read](Self::read_actions) next.
    pub fn read_key(&mut self, text: &str) -> Result<(), ParseError> {
        let mut cursor = Cursor::new(text);
        self.read_match(&mut cursor)?;
        if cursor.at_end() { Ok(()) } else { Err(no_attribute(&cursor)) }
    }

    /// Reads the actions of the flow whose key was read last. There is one at least, as in a line: a text that is missing is no `drop`.
    pub fn read_actions(&mut self, text: &str) -> Result<(), ParseError> {
        if let Some(known) = self.recent_actions.get(text) {
            self.line.actions = known;
            return Ok(());
        }
        let mut cursor = Cursor::new(text);
        cursor.skip_separators();
        if cursor.at_end() {
            return Err(cursor.error("an action such as drop"));
        }
        self.line.actions = read_actions(&mut cursor, self.names, None)?;
        self.recent_actions.keep(text, &self.line.actions);
        Ok(())
    }

    /// Reads a key as far as it goes into a line that says nothing else yet, and says what stands between it and what follows.
    fn read_match(&mut self, cursor: &mut Cursor<'_>) -> Result<Separators, ParseError> {
        let separators = match self.shapes.read(cursor) {
            Some(known) => {
                self.written = known.write(&mut self.line.matching, self.written);
                if !known.is_repeated {
                    self.mask = known.mask();
                }
                self.line.ufid = known.ufid();
                known.separators
            }
            None => self.read_new_shape(cursor)?,
        };
        let FlowLine { ufid: _, matching: _, actions: _, statistics, offloaded, layer, extra } = &mut self.line;
        (*statistics, *offloaded, *layer, *extra) = Default::default();
        Ok(separators)
    }

    fn read_new_shape(&mut self, cursor: &mut Cursor<'_>) -> Result<Separators, ParseError> {
        self.line.matching = Match::default();
        self.written = 0;
        self.found.clear();
        let start = cursor.clone();
        let read = read_key(cursor, self.names, &mut self.line.matching, Some(&mut self.found));
        let (ufid, separators, written) = read.inspect_err(|_| self.line.matching = Match::default())?;
        (self.line.ufid, self.written) = (ufid, written);
        self.mask = self.recent_masks.share(&self.line.matching.mask, written);
        let text = start.until(cursor).trim_end_matches(Cursor::is_separator);
        let (matching, mask) = (&self.line.matching, &self.mask);
        self.shapes.learn(&Example { text, found: &self.found, matching, mask, written });
        Ok(separators)
    }

    /// The flow that was read last.
    pub fn line(&self) -> &FlowLine {
        &self.line
    }

    /// The same, for one who has parts of it from elsewhere. The match stays as it was read.
    pub fn line_mut(&mut self) -> (&mut Option<Ufid>, &mut Extra) {
        (&mut self.line.ufid, &mut self.line.extra)
    }

    /// Its match, as it is stored.
    pub fn masked_key(&self) -> MaskedKey<'static> {
        MaskedKey::under(self.mask.clone(), &self.line.matching.key)
    }

    /// The same as a flow, named as an agent with this seed names it unless the line has a UFID.
    pub fn flow(&mut self, seed: &Seed) -> Flow {
        let matching = self.masked_key();
        let FlowLine { ufid, actions, extra, .. } = &self.line;
        let (mask, recent, origin) = (&self.mask, &mut self.recent_terms, self.origin);
        let (priority, expiry) = (extra.priority, extra.expiry);
        Flow::with_terms(*ufid, &matching, priority, seed, |has_given_ufid| {
            let (goes_on, brings_meters) = Default::default();
            recent.share(mask, actions, Manner { priority, expiry, origin, goes_on, brings_meters, has_given_ufid })
        })
    }
}

/// Reads what follows the key into a line that says nothing of it yet.
fn read_rest(
    cursor: &mut Cursor<'_>,
    separators: Separators,
    names: &dyn PortNames,
    recent: Option<&mut RecentActions>,
    line: &mut FlowLine,
) -> Result<(), ParseError> {
    if !read_labels(cursor, line)? {
        check_split(cursor, separators)?;
    }
    let actions = cursor.rest();
    if let Some(known) = recent.as_ref().and_then(|recent| recent.get(actions)) {
        line.actions = known;
        return Ok(());
    }
    line.actions = read_actions(cursor, names, Some(EXTRA_LABEL))?;
    if cursor.eat(EXTRA_LABEL) {
        line.extra = read_extra(cursor)?;
    } else if let Some(recent) = recent {
        recent.keep(actions, &line.actions);
    }
    Ok(())
}

/// Reads the labels of a dumped line up to `actions:`; false if there are none.
fn read_labels(cursor: &mut Cursor<'_>, line: &mut FlowLine) -> Result<bool, ParseError> {
    // All begin with a letter, and most lines have none.
    if !cursor.peek().is_some_and(|byte| byte.is_ascii_lowercase()) {
        return Ok(false);
    }
    let mut seen = [false; LABELS.len()];
    loop {
        let start = cursor.offset();
        let Some(index) = LABELS.iter().position(|label| cursor.eat(label)) else {
            if seen == [false; LABELS.len()] {
                return Ok(false);
            }
            return Err(cursor.error(format!("one of {}", LABELS.join(", "))));
        };
        if std::mem::replace(&mut seen[index], true) {
            return Err(error_at(start, format!("{} once", LABELS[index])));
        }
        match LABELS[index] {
            "packets:" => line.statistics.packets = cursor.count()?,
            "bytes:" => line.statistics.bytes = cursor.count()?,
            "used:" => line.statistics.used = read_used(cursor)?,
            "flags:" => line.statistics.tcp_flags = read_flag_letters(cursor)?,
            "offloaded:" => line.offloaded = Some(read_offloaded(cursor)?),
            "dp:" => line.layer = Some(cursor.take_word().to_owned()),
            _ => return Ok(true),
        }
        let separators = cursor.skip_separators();
        if !separators.comma && !separators.blank && !cursor.at_end() {
            return Err(cursor.error("\",\""));
        }
    }
}

/// A line without labels is a key and actions with a blank between them. What looks like neither is taken for a
/// mistake in the key where it stands after a comma, and for one in the actions where it stands after a blank.
fn check_split(cursor: &Cursor<'_>, separators: Separators) -> Result<(), ParseError> {
    if cursor.at_end() {
        return Err(cursor.error("actions after the key"));
    }
    let looks_like_key = || {
        let mut ahead = cursor.clone();
        let word = ahead.take_word();
        ahead.peek() == Some(b'(') && ActionKind::ALL.iter().all(|kind| kind.name() != word)
    };
    if cursor.offset() == 0 || !separators.blank || separators.comma && looks_like_key() {
        return Err(no_attribute(cursor));
    }
    Ok(())
}

fn read_used(cursor: &mut Cursor<'_>) -> Result<Option<Duration>, ParseError> {
    if cursor.eat("never") {
        return Ok(None);
    }
    let used = read_seconds(cursor)?;
    cursor.expect("s")?;
    Ok(Some(used))
}

fn read_flag_letters(cursor: &mut Cursor<'_>) -> Result<u16, ParseError> {
    if cursor.eat("none") {
        return Ok(0);
    }
    let mut flags = 0;
    while let Some((_, bit)) = TCP_FLAG_LETTERS.iter().find(|(letter, _)| cursor.eat(letter)) {
        flags |= bit;
    }
    if flags == 0 { Err(cursor.error("letters of TCP flags, such as SFPR.")) } else { Ok(flags) }
}

fn read_offloaded(cursor: &mut Cursor<'_>) -> Result<Offloaded, ParseError> {
    let start = cursor.offset();
    match cursor.take_name() {
        "yes" => Ok(Offloaded::Yes),
        "partial" => Ok(Offloaded::Partial),
        _ => Err(error_at(start, "yes or partial")),
    }
}
