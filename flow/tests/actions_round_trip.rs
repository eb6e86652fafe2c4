//! Any list of actions is read back as it was written, and wrong ones do no harm.
#![expect(clippy::unwrap_used, reason = "helpers of tests may say what they expect, too")]

mod odp_actions {
    pub(crate) mod generate;
}

mod linear;

use linear::assert_linear;
use odp_actions::generate::any_actions;
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_flow::action::{Action, OuterHeaders};
use sluice_flow::text::{Style, parse_actions, write_actions};

fn written(actions: &[Action]) -> String {
    let mut text = String::new();
    write_actions(&mut text, actions, &Style::default()).unwrap();
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn actions_are_read_back_as_they_were_written(actions in any_actions()) {
        let text = written(&actions);
        match parse_actions(&text, &()) {
            Ok(read) => prop_assert_eq!(&read[..], &actions[..], "{}", text),
            Err(error) => prop_assert!(false, "{}", error.caret(&text)),
        }
    }

    #[test]
    fn a_few_wrong_bytes_do_no_harm(
        actions in any_actions(),
        edits in vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>()), 1..6),
    ) {
        let mut bytes = written(&actions).into_bytes();
        for (place, edit, byte) in edits {
            if bytes.is_empty() {
                break;
            }
            let place = place.index(bytes.len());
            match edit {
                0 => bytes[place] = byte,
                1 => drop(bytes.remove(place)),
                2 => bytes.insert(place, b"(),=/+-|:. 0x{}[]%"[usize::from(byte) % 18]),
                _ => bytes.truncate(place.max(1)),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match parse_actions(&text, &()) {
            Ok(actions) => prop_assert_eq!(parse_actions(&written(&actions), &()).unwrap(), actions, "{}", text),
            Err(error) => prop_assert!(text.is_char_boundary(error.offset), "{} in {}", error, text),
        }
    }

    #[test]
    fn any_bytes_are_outer_headers_or_not(kind in 0..115u32, bytes in vec(any::<u8>(), 0..200)) {
        if let Some(headers) = OuterHeaders::read(kind, &bytes) {
            prop_assert_eq!(headers.bytes(), bytes);
        }
    }
}

#[test]
fn a_long_text_takes_no_longer_than_its_length() {
    for (start, unit) in [
        ("userspace(pid=1,userdata(", "00"),
        ("userspace(pid=1,slow_path(", "cfm|"),
        ("userspace(pid=1,slow_path(cfm)", ","),
        ("userspace(", "x"),
        ("ct(helper=", "x"),
        ("ct(nat(src=", "1.1.1.1-"),
        ("ct(nat(src=", "["),
        ("ct(commit", ",commit"),
        ("sample(sample=1.", "0"),
        ("sample(sample=", "1"),
        ("clone(", "1,"),
        ("clone(", "drop,"),
        ("push_nsh(mdtype=2,md2=0x", "0"),
        ("psample(cookie=0x", "0"),
        ("tnl_push(tnl_port(1),header(size=1,type=4,bytes(", "00"),
        ("tnl_push(", "header("),
    ] {
        assert_linear(start, unit, &|text| {
            let error = parse_actions(text, &()).unwrap_err();
            assert!(error.caret(text).len() < 1000);
        });
    }
}

#[test]
fn every_probability_is_told_from_its_neighbours() {
    let all = u64::from(u32::MAX);
    let spread = (0..=100_000).map(|part| u32::try_from(all * part / 100_000).unwrap());
    for probability in spread.chain(0..1000).chain(u32::MAX - 1000..=u32::MAX) {
        let sample = [Action::Sample { probability, actions: [].into() }];
        assert_eq!(parse_actions(&written(&sample), &()).unwrap()[..], sample, "{}", written(&sample));
    }
}
