//! A set of classes.

use std::fmt;

use super::class::Class;

/// A set of classes, in 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSet(u16);

impl ClassSet {
    /// No class.
    pub const EMPTY: Self = Self(0);

    /// Returns whether a class is in it.
    pub const fn contains(self, class: Class) -> bool {
        self.0 & 1 << class.code() != 0
    }

    /// Adds a class.
    pub const fn insert(&mut self, class: Class) {
        self.0 |= 1 << class.code();
    }

    /// Returns whether no class is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the classes in the order of their codes.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.into_iter().filter(move |class| self.contains(*class))
    }

    /// Returns a bit per class: that of code 0 is the lowest.
    pub(super) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the set of these bits; `None` if one of them is of no class.
    pub(super) const fn of_bits(bits: u16) -> Option<Self> {
        if bits >> super::CLASSES == 0 { Some(Self(bits)) } else { None }
    }
}

impl FromIterator<Class> for ClassSet {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        let mut set = Self::EMPTY;
        classes.into_iter().for_each(|class| set.insert(class));
        set
    }
}

impl fmt::Display for ClassSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, class) in self.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(out, "{comma}{class}")?;
        }
        Ok(())
    }
}
