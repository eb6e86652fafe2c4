//! Where copies of packets can be picked up.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | the classes, a bit each |
//! | 2 | 1 if the port is known |
//! | 3 | length of the network device's name, 0 for none |
//! | 4..8 | number of the port, or 0 |
//! | 8 | length of the port's name |
//! | 9.. | the port's name, then the network device's, in UTF-8 |

use super::class_set::ClassSet;
use super::error::MessageError;

/// Where copies of packets can be picked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// The number of the datapath port that the copied packets came in at; `None` if copies of several ports come there.
    pub in_port: Option<u32>,
    /// The name of that port, or of the mirror port. At most 255 bytes.
    pub name: String,
    /// The network device of the agent's network namespace that sends the copies; `None` if they come over the mirror socket, or out of a
    /// device that the agent does not know. At most 255 bytes.
    pub netdev: Option<String>,
    /// The classes that are copied there.
    pub classes: ClassSet,
}

/// Bytes before the names.
const HEAD: usize = 9;

impl Tap {
    /// Writes it. What exceeds the length of a name is left out.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (name, netdev) = (short(&self.name), short(self.netdev.as_deref().unwrap_or_default()));
        out.extend(self.classes.bits().to_be_bytes());
        out.extend([self.in_port.is_some().into(), netdev.0]);
        out.extend(self.in_port.unwrap_or_default().to_be_bytes());
        out.push(name.0);
        out.extend(name.1);
        out.extend(netdev.1);
    }

    /// Reads one, and returns what is behind it.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), MessageError> {
        let field = |field| MessageError::Field { what: "tap", field };
        let short = MessageError::Length { what: "tap", length: bytes.len() };
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(short)?;
        let [classes_high, classes_low, has_port, netdev_length, port @ .., name_length] = *head;
        let (name, rest) = rest.split_at_checked(name_length.into()).ok_or(short)?;
        let (netdev, rest) = rest.split_at_checked(netdev_length.into()).ok_or(short)?;
        let text = |bytes: &[u8], what| String::from_utf8(bytes.to_vec()).map_err(|_| field(what));
        let in_port = match (has_port, u32::from_be_bytes(port)) {
            (1, port) => Some(port),
            (0, 0) => None,
            _ => return Err(field("port")),
        };
        let classes = ClassSet::of_bits(u16::from_be_bytes([classes_high, classes_low]));
        let tap = Self {
            in_port,
            name: text(name, "name of the port")?,
            netdev: Some(text(netdev, "name of the network device")?).filter(|netdev| !netdev.is_empty()),
            classes: classes.ok_or(field("classes"))?,
        };
        Ok((tap, rest))
    }
}

/// As much of a text as has a length of one byte, and that.
fn short(text: &str) -> (u8, &[u8]) {
    let length = u8::try_from(text.floor_char_boundary(u8::MAX.into())).unwrap_or_default();
    (length, &text.as_bytes()[..length.into()])
}
