//! Where a text went wrong.

use std::borrow::Cow;

/// A text that is not of the grammar: the place, and what should be there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: expected {expected}")]
pub struct ParseError {
    /// Bytes in front of the place.
    pub offset: usize,
    /// What is possible there.
    pub expected: Cow<'static, str>,
}

/// Columns of an excerpt, dots included.
const COLUMNS: usize = 72;
/// Columns in front of the place; the rest is for what follows.
const BEFORE: usize = 44;
const DOTS: &str = "...";

impl ParseError {
    /// The place in `input`, shown: an excerpt of the line, a caret under the place, and the message.
    pub fn caret(&self, input: &str) -> String {
        let place = input.floor_char_boundary(self.offset);
        let is_line_end = |(_, character): &(usize, char)| *character == '\n';
        let mut start = place;
        let mut cut_before = false;
        for (count, (index, _)) in input[..place].char_indices().rev().take_while(|c| !is_line_end(c)).enumerate() {
            if count == BEFORE {
                cut_before = true;
                break;
            }
            start = index;
        }
        let mut after = input[place..].char_indices().take_while(|c| !is_line_end(c));
        let room = COLUMNS - BEFORE - 2 * DOTS.len();
        let end = place + after.by_ref().take(room).last().map_or(0, |(index, last)| index + last.len_utf8());
        let cut_after = after.next().is_some();

        let dots = |cut| if cut { DOTS } else { "" };
        let excerpt: String = input[start..end].chars().map(printable).collect();
        let indent = dots(cut_before).len() + input[start..place].chars().count();
        format!("{}{excerpt}{}\n{:indent$}^\n{self}", dots(cut_before), dots(cut_after), "")
    }
}

/// One column for one character, whatever it is, so that the caret is under its place: what is not plain ASCII may be
/// wide, invisible or an order to the terminal.
fn printable(character: char) -> char {
    match character {
        '\t' => ' ',
        ' '..='~' => character,
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_place() {
        let error = ParseError { offset: 9, expected: "an IPv4 address".into() };
        assert_eq!(
            error.caret("ipv4(src=1.2.3,dst=1.1.1.1)"),
            "ipv4(src=1.2.3,dst=1.1.1.1)\n         ^\nat byte 9: expected an IPv4 address"
        );
    }

    #[test]
    fn a_long_line_is_cut_on_both_sides() {
        let input = format!("{}HERE{}", "a".repeat(500), "b".repeat(500));
        let error = ParseError { offset: 500, expected: "nothing".into() };
        let shown = error.caret(&input);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0].len(), COLUMNS);
        assert!(lines[0].starts_with("...aaa") && lines[0].ends_with("bbb..."));
        assert_eq!(&lines[0][lines[1].find('^').unwrap()..][..4], "HERE");
    }

    #[test]
    fn only_the_line_with_the_place_is_shown() {
        let error = ParseError { offset: 6, expected: "x".into() };
        assert_eq!(error.caret("one\ntwo\nthree"), "two\n  ^\nat byte 6: expected x");
    }

    #[test]
    fn odd_characters_take_one_column_and_do_no_harm() {
        let input = "ü\u{1b}[2J漢\u{202e}x";
        for offset in 0..input.len() + 5 {
            let shown = ParseError { offset, expected: "x".into() }.caret(input);
            assert!(shown.is_ascii(), "{shown}");
            assert!(shown.lines().nth(1).unwrap().len() <= input.chars().count() + 1);
        }
        let error = ParseError { offset: input.find('x').unwrap(), expected: "y".into() };
        assert!(error.caret(input).starts_with("??[2J??x\n       ^\n"));
    }
}
