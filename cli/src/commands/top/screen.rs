//! Keys as they are pressed, without waiting for the end of a line.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcsetattr};

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Letter(char),
    Enter,
    Erase,
    Escape,
    /// Ctrl-C, Ctrl-D, or nobody is there any more.
    End,
}

/// The terminal's keyboard, which is as it was once this is dropped.
pub(super) struct Keyboard(Termios);

impl Keyboard {
    /// Takes standard input, if it is a terminal.
    pub(super) fn open() -> Option<Self> {
        let input = stdin();
        let before = isatty(input).then(|| tcgetattr(input).ok()).flatten()?;
        let mut raw = before.clone();
        // Without ISIG Ctrl-C is a key, so that the terminal is given back.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(input, OptionalActions::Now, &raw).ok().map(|()| Self(before))
    }

    /// Keys that are pressed within this time; none if there are none. Text that is pasted comes at once.
    pub(super) fn keys(&self, within: Duration) -> Vec<Key> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(timeout) = Timespec::try_from(left) else { return Vec::new() };
            let input = stdin();
            match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Vec::new(),
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return vec![Key::End],
                Ok(_) => {}
            }
            let mut bytes = [0; 256];
            return match rustix::io::read(input, &mut bytes) {
                Ok(0) | Err(_) => vec![Key::End],
                Ok(length) => read(&bytes[..length]),
            };
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}

/// The keys of what was read at once; arrows and the like are none.
fn read(bytes: &[u8]) -> Vec<Key> {
    if let [27, rest @ ..] = bytes {
        return if rest.is_empty() { vec![Key::Escape] } else { Vec::new() };
    }
    let key = |letter: char| match letter {
        '\u{3}' | '\u{4}' => Some(Key::End),
        '\r' | '\n' => Some(Key::Enter),
        '\u{8}' | '\u{7f}' => Some(Key::Erase),
        letter => (!letter.is_control()).then_some(Key::Letter(letter)),
    };
    String::from_utf8_lossy(bytes).chars().filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_terminal_are_keys() {
        assert_eq!(read("né\r".as_bytes()), [Key::Letter('n'), Key::Letter('é'), Key::Enter]);
        assert_eq!([&[127][..], &[27], &[3]].map(read), [[Key::Erase], [Key::Escape], [Key::End]]);
        assert_eq!(read(b"\x1b[A"), [], "an arrow");
    }
}
