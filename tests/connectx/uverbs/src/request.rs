//! An ioctl of libibverbs: a header and attributes (`rdma/rdma_user_ioctl_cmds.h`), in memory of the program.

use nix::errno::Errno;
use sluice_connectx::memory::{Fault, Memory};

const HEADER: usize = 24;
const ATTRIBUTE: usize = 16;

/// Attribute flags.
const MANDATORY: u16 = 1 << 0;
const VALID_OUTPUT: u16 = 1 << 1;

/// More attributes than any method has.
const MOST_ATTRIBUTES: u16 = 64;

/// Data up to this length stand in the attribute itself.
const IN_PLACE: usize = 8;

/// A request refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) errno: Errno,
    pub(crate) reason: String,
}

impl Refused {
    pub(crate) fn new(errno: Errno, reason: impl Into<String>) -> Self {
        Self { errno, reason: reason.into() }
    }

    /// Whether the program only asked whether there is something: it is no mistake, and not kept.
    pub(crate) fn is_an_answer(&self) -> bool {
        [PROBE, EMPTY].contains(&&*self.reason)
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self::new(Errno::EFAULT, fault.to_string())
    }
}

pub(crate) struct Request<'a> {
    memory: &'a dyn Memory,
    pub(crate) object: u16,
    pub(crate) method: u16,
    attributes: Vec<Attribute>,
}

struct Attribute {
    id: u16,
    length: u16,
    flags: u16,
    /// Which of several kinds the data are of.
    element: u8,
    data: u64,
    /// Where it stands.
    at: u64,
}

impl<'a> Request<'a> {
    pub(crate) fn read(memory: &'a dyn Memory, at: u64) -> Result<Self, Refused> {
        let mut header = [0; HEADER];
        memory.read(at, &mut header)?;
        let field = |at| Native(&header).u16(at).unwrap_or_default();
        let (length, object, method, count) = (field(0), field(2), field(4), field(6));
        let expected = HEADER + ATTRIBUTE * usize::from(count);
        if count > MOST_ATTRIBUTES || usize::from(length) != expected {
            let reason = format!("a request of {length} bytes with {count} attributes");
            return Err(Refused::new(Errno::EINVAL, reason));
        }
        let mut bytes = vec![0; expected - HEADER];
        memory.read(at + HEADER as u64, &mut bytes)?;
        let attributes = bytes.chunks_exact(ATTRIBUTE).zip(0_u64..).map(|(bytes, number)| {
            let native = Native(bytes);
            let field = |at| native.u16(at).unwrap_or_default();
            Attribute {
                id: field(0),
                length: field(2),
                flags: field(4),
                element: bytes[6],
                data: native.u64(8).unwrap_or_default(),
                at: at + HEADER as u64 + number * ATTRIBUTE as u64,
            }
        });
        Ok(Self { memory, object, method, attributes: attributes.collect() })
    }

    /// Refuses attributes that must not be overlooked and that `known` does not list.
    pub(crate) fn require_known(&self, known: &[u16]) -> Result<(), Refused> {
        let unknown = |attribute: &&Attribute| attribute.flags & MANDATORY != 0 && !known.contains(&attribute.id);
        match self.attributes.iter().find(unknown) {
            Some(attribute) => {
                let reason = format!("attribute {:#x} is not modelled", attribute.id);
                Err(Refused::new(Errno::EPROTONOSUPPORT, reason))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn memory(&self) -> &'a dyn Memory {
        self.memory
    }

    pub(crate) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// A number, an object's handle or a file descriptor.
    pub(crate) fn value(&self, id: u16) -> Result<u64, Refused> {
        self.attribute(id).map(|attribute| attribute.data)
    }

    pub(crate) fn value_u32(&self, id: u16) -> Result<u32, Refused> {
        let [.., a, b, c, d] = self.value(id)?.to_be_bytes();
        Ok(u32::from_be_bytes([a, b, c, d]))
    }

    /// The same of an attribute that may be absent.
    pub(crate) fn value_or(&self, id: u16, absent: u64) -> u64 {
        self.find(id).map_or(absent, |attribute| attribute.data)
    }

    /// Which kind the data are of.
    pub(crate) fn element(&self, id: u16) -> Result<u8, Refused> {
        self.attribute(id).map(|attribute| attribute.element)
    }

    /// Data, wherever they stand.
    pub(crate) fn input(&self, id: u16) -> Result<Vec<u8>, Refused> {
        let attribute = self.attribute(id)?;
        let length = usize::from(attribute.length);
        if length <= IN_PLACE {
            return Ok(attribute.data.to_le_bytes()[..length].to_vec());
        }
        self.fetch(attribute)
    }

    /// How long data are, or how much room there is for an answer.
    pub(crate) fn length(&self, id: u16) -> Result<usize, Refused> {
        self.attribute(id).map(|attribute| attribute.length.into())
    }

    /// Handles of several objects, or numbers.
    pub(crate) fn list(&self, id: u16) -> Result<Vec<u32>, Refused> {
        if !self.has(id) {
            return Ok(Vec::new());
        }
        let bytes = self.input(id)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Writes as much of an answer as there is room for, and zeroes after it; nothing if nobody asked.
    pub(crate) fn output(&self, id: u16, answer: &[u8]) -> Result<(), Refused> {
        let Some(attribute) = self.find(id) else { return Ok(()) };
        let mut answer = answer.to_vec();
        answer.resize(usize::from(attribute.length), 0);
        self.memory.write(attribute.data, &answer)?;
        self.memory.write(attribute.at + 4, &(attribute.flags | VALID_OUTPUT).to_le_bytes())?;
        Ok(())
    }

    /// Answers with a number in the attribute itself: a new object's handle, or a file descriptor.
    pub(crate) fn answer(&self, id: u16, value: u64) -> Result<(), Refused> {
        let attribute = self.attribute(id)?;
        self.memory.write(attribute.at + 8, &value.to_le_bytes())?;
        Ok(())
    }

    /// Attributes in words, for a refusal.
    pub(crate) fn describe(&self) -> String {
        let words = self.attributes.iter().map(|attribute| {
            let Attribute { id, length, data, .. } = attribute;
            format!("{id:#x}={data:#x}/{length}")
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn fetch(&self, attribute: &Attribute) -> Result<Vec<u8>, Refused> {
        let mut bytes = vec![0; usize::from(attribute.length)];
        self.memory.read(attribute.data, &mut bytes)?;
        Ok(bytes)
    }

    fn attribute(&self, id: u16) -> Result<&Attribute, Refused> {
        self.find(id).ok_or_else(|| Refused::new(Errno::EINVAL, format!("attribute {id:#x} is missing")))
    }

    fn find(&self, id: u16) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.id == id)
    }
}

/// A structure of the machine's own byte order.
pub(crate) struct Native<'a>(pub(crate) &'a [u8]);

impl Native<'_> {
    pub(crate) fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(at..at + 2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

/// A structure of the machine's own byte order that is being made.
pub(crate) struct NativeOut(Vec<u8>);

impl NativeOut {
    pub(crate) fn new(length: usize) -> Self {
        Self(vec![0; length])
    }

    /// Puts a value of any width at a byte offset.
    pub(crate) fn put<const WIDTH: usize>(mut self, at: usize, value: [u8; WIDTH]) -> Self {
        if let Some(place) = self.0.get_mut(at..at + WIDTH) {
            place.copy_from_slice(&value);
        }
        self
    }

    pub(crate) fn u8(self, at: usize, value: u8) -> Self {
        self.put(at, [value])
    }

    pub(crate) fn u16(self, at: usize, value: u16) -> Self {
        self.put(at, value.to_le_bytes())
    }

    pub(crate) fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, value.to_le_bytes())
    }

    pub(crate) fn u64(self, at: usize, value: u64) -> Self {
        self.put(at, value.to_le_bytes())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Why a request is refused by which libibverbs only finds out what the kernel understands.
pub(crate) const PROBE: &str = "no room for an answer";
/// Why a place of a table is not told that has nothing: `ibv_devinfo` asks for all.
pub(crate) const EMPTY: &str = "the place is empty";

/// Whether the program has memory there, as the kernel finds out when it pins it.
pub(crate) fn pin(request: &Request<'_>, start: u64, length: u64) -> Result<(), Refused> {
    let mut byte = [0];
    let end = start.checked_add(length).ok_or_else(|| Refused::new(Errno::EINVAL, "memory without end"))?;
    if length == 0 {
        return Err(Refused::new(Errno::EINVAL, "memory without length"));
    }
    request.memory().read(start, &mut byte)?;
    let mut at = (start | 0xfff) + 1;
    while at < end {
        request.memory().read(at, &mut byte)?;
        at += 4096;
    }
    Ok(())
}
