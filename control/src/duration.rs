//! A span of time as text: `500ms`, `10s`, `5m`, `1h`.

use std::time::Duration;

/// The longest time that is taken: beyond it somebody counts in other units.
const LONGEST: f64 = 366.0 * 86_400.0;

/// Reads a span of time: more than zero, and a year at most.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse_seconds(text).and_then(from_seconds)
}

/// Reads a span of time as a number of seconds, which may be zero.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let wrong = || format!("expected a time such as \"500ms\", \"10s\" or \"5m\", not \"{text}\"");
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    match unit {
        "ms" => Ok(number / 1000.0),
        "s" => Ok(number),
        "m" => Ok(number * 60.0),
        "h" => Ok(number * 3600.0),
        _ => Err(wrong()),
    }
}

/// Returns the span of so many seconds. Fails if that is zero, below it, or more than a year.
pub fn from_seconds(seconds: f64) -> Result<Duration, String> {
    if seconds > LONGEST {
        return Err("a time is a year at most".to_owned());
    }
    match Duration::try_from_secs_f64(seconds) {
        Ok(span) if !span.is_zero() => Ok(span),
        _ => Err("a time is more than zero".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        for (text, milliseconds) in
            [("500ms", 500), ("1s", 1_000), ("1.5s", 1_500), ("90s", 90_000), ("5m", 300_000), ("36h", 129_600_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_zero_or_beyond_a_year_is_refused() {
        let no_time = |text| format!("expected a time such as \"500ms\", \"10s\" or \"5m\", not \"{text}\"");
        for text in ["", "5", "soon", "-1s", "1d"] {
            assert_eq!(parse_duration(text), Err(no_time(text)), "{text}");
        }
        assert_eq!(parse_duration("0ms"), Err("a time is more than zero".to_owned()));
        assert_eq!(parse_duration("9000h"), Err("a time is a year at most".to_owned()));
    }
}
