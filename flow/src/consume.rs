//! Consume, then require nothing left.
//!
//! A backend takes each field that it translates out of a [`Remainder`]; what is left at the end is refused by name.
//! So a field that a backend has never heard of cannot be dropped in silence.

use crate::field::{FIELDS, Field, FieldSpec};
use crate::key::{Key, Match};
use crate::refusal::Refusal;

/// The part of a match that has not been translated yet.
pub struct Remainder {
    full: Match,
    left: Key,
}

impl Remainder {
    /// All of a match.
    pub fn new(full: &Match) -> Self {
        Self { full: *full, left: full.mask }
    }

    /// Takes a field: its value and mask, or `None` if the match does not look at it.
    pub fn take(&mut self, field: Field) -> Option<(u128, u128)> {
        let mask = self.left.get(field);
        self.left.set(field, 0);
        (mask != 0).then(|| (self.full.key.get(field), mask))
    }

    /// Takes a field that must be matched on all of its bits or not at all.
    pub fn take_exact(&mut self, field: Field) -> Result<Option<u128>, Refusal> {
        match self.take(field) {
            None => Ok(None),
            Some((value, mask)) if mask == field.full_mask() => Ok(Some(value)),
            Some(_) => Err(Refusal::Field { field, reason: "only an exact match is possible".into() }),
        }
    }

    /// Refuses what nobody took of the headers that the match asks for, by the name of the first such field.
    ///
    /// Headers that exclude each other share places in the key: only of these headers is it certain which field is left.
    pub fn refuse_left(&self, reason: &'static str) -> Result<(), Refusal> {
        if self.is_empty() {
            return Ok(());
        }
        let is_left =
            |spec: &&FieldSpec| self.left.get(spec.field) != 0 && self.full.meets(spec.attribute.spec().requires);
        match FIELDS.iter().find(is_left) {
            None => Ok(()),
            Some(spec) => Err(Refusal::Field { field: spec.field, reason: reason.into() }),
        }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.left.words.iter().all(|word| *word == 0)
    }

    /// Refuses what nobody took, naming the first such field.
    pub fn finish(self) -> Result<(), Refusal> {
        if self.is_empty() {
            return Ok(());
        }
        match FIELDS.iter().find(|spec| self.left.get(spec.field) != 0) {
            None => Ok(()),
            Some(spec) => Err(Refusal::Field { field: spec.field, reason: "this backend cannot match it".into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_is_refused_by_name() {
        let mut full = Match::default();
        full.set_exact(Field::InPort, 3);
        full.set(Field::CtMark, 1, 1);
        let mut rest = Remainder::new(&full);
        assert_eq!(rest.take(Field::InPort), Some((3, 0xffff_ffff)));
        assert_eq!(rest.take(Field::EthSrc), None);
        let refusal = rest.finish().unwrap_err();
        assert_eq!(refusal.to_string(), "field ct_mark: this backend cannot match it");
    }

    #[test]
    fn a_partial_mask_is_told_from_an_exact_one() {
        let mut full = Match::default();
        full.set(Field::TcpDst, 80, 0xfff0);
        full.set_exact(Field::Ipv4Proto, 6);
        let mut rest = Remainder::new(&full);
        assert_eq!(rest.take_exact(Field::Ipv4Proto), Ok(Some(6)));
        assert_eq!(rest.take_exact(Field::TcpDst).unwrap_err().label(), "field");
    }
}
