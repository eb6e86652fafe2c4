//! How fast a capture is replayed.

use std::str::FromStr;

/// How fast a capture is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    /// So many times as fast as it was captured.
    Times(f64),
    /// Without a pause.
    Flat,
}

impl FromStr for Speed {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "own" => return Ok(Self::Times(1.0)),
            "flat" => return Ok(Self::Flat),
            _ => {}
        }
        let number = text.strip_suffix(['x', '×']).unwrap_or(text).parse().ok();
        let number = number.filter(|number: &f64| number.is_finite() && *number > 0.0);
        number.map(Self::Times).ok_or("expected own, flat, or a number of times such as 10x")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_own_flat_or_a_number_of_times() {
        assert_eq!("own".parse(), Ok(Speed::Times(1.0)));
        assert_eq!("flat".parse(), Ok(Speed::Flat));
        assert_eq!("10x".parse(), Ok(Speed::Times(10.0)));
        assert_eq!("0.5×".parse(), Ok(Speed::Times(0.5)));
        for wrong in ["", "x", "0x", "-1x", "NaN", "infx", "fast", "×2"] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }
}
