//! Numbers, which may be absent.

use serde_json::Value;

/// A number. One that is not known is absent, not zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// How many.
    Count(u64),
    /// Seconds, or a share.
    Real(f64),
    /// Whether.
    Flag(bool),
    /// It is not known, or there is no such thing.
    Absent,
}

impl Number {
    /// As Prometheus has it.
    pub(crate) fn value(self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
            Self::Count(count) => Some(count as f64),
            Self::Real(value) => Some(value),
            Self::Flag(flag) => Some(f64::from(u8::from(flag))),
            Self::Absent => None,
        }
    }

    pub(super) fn count(self) -> u64 {
        if let Self::Count(count) = self { count } else { 0 }
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        match number {
            Number::Count(count) => count.into(),
            Number::Real(value) => value.into(),
            Number::Flag(flag) => flag.into(),
            Number::Absent => Self::Null,
        }
    }
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Number {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<std::time::Duration> for Number {
    fn from(span: std::time::Duration) -> Self {
        Self::Real(span.as_secs_f64())
    }
}

impl From<bool> for Number {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Self>> From<Option<T>> for Number {
    fn from(number: Option<T>) -> Self {
        number.map_or(Self::Absent, Into::into)
    }
}
