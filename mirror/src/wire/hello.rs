//! What a sender says of itself: its name, how many grants it can take, and the ports that its frames name.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | for how many grants there are receive requests |
//! | 4..8 | number of ports |
//! | then | length of the name in one byte, and the name |
//! | of each port | number or all ones, index of its network device or 0, 4 bytes each; length of its name in one byte, and the name |

use super::reader::Reader;
use super::{NO_PORT, WireError};

/// Bytes of a name at most.
const NAME: usize = 255;

/// What a sender says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// For how many grants it has receive requests. A collector grants no more messages at a time than this.
    pub grants: u32,
    /// Its name, which files show.
    pub name: String,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// A port of the sender's datapath.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Port {
    /// Its number in the datapath (`in_port`); `None` if copies of several ports come from there.
    pub number: Option<u32>,
    /// Index of the network device that its copies go to, by which frames of a packet ring name it; 0 if there is none.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
}

impl Hello {
    /// As bytes. Of names, at most 255 bytes are written, and of ports as many as there is room for.
    #[must_use]
    pub fn bytes(&self, room: usize) -> Vec<u8> {
        let mut bytes = self.grants.to_be_bytes().to_vec();
        bytes.extend(0_u32.to_be_bytes());
        write_text(&self.name, &mut bytes);
        let mut ports = 0_u32;
        for port in &self.ports {
            let before = bytes.len();
            bytes.extend(port.number.unwrap_or(NO_PORT).to_be_bytes());
            bytes.extend(port.ifindex.to_be_bytes());
            write_text(&port.name, &mut bytes);
            if bytes.len() > room {
                bytes.truncate(before);
                break;
            }
            ports += 1;
        }
        bytes[4..8].copy_from_slice(&ports.to_be_bytes());
        bytes
    }

    /// Reads the payload of a hello.
    ///
    /// # Errors
    /// Fails if the bytes are none.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("a hello", bytes);
        let (grants, count) = (reader.u32()?, reader.u32()?);
        let name = reader.text("the sender's name")?;
        // No room is made for what a number says before it is there.
        let mut ports = Vec::new();
        for _ in 0..count {
            let (number, ifindex) = (reader.u32()?, reader.u32()?);
            let number = Some(number).filter(|number| *number != NO_PORT);
            ports.push(Port { number, ifindex, name: reader.text("a port's name")? });
        }
        reader.end()?;
        Ok(Self { grants, name, ports })
    }
}

fn write_text(text: &str, into: &mut Vec<u8>) {
    let mut end = text.len().min(NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is at most 255")]
    into.push(end as u8);
    into.extend(text[..end].bytes());
}
