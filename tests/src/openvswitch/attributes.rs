//! Netlink attributes, written and read (`struct nlattr` in `include/uapi/linux/netlink.h`).

const HEADER: usize = 4;
/// `NLA_TYPE_MASK`: the number without the flags for nesting and byte order.
const NUMBER: u16 = 0x3fff;

/// Attributes one behind the other.
#[derive(Default)]
pub(super) struct Attributes {
    bytes: Vec<u8>,
}

impl Attributes {
    pub(super) fn put(&mut self, number: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(HEADER + value.len()).expect("an attribute has at most 64 KiB");
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(number.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(HEADER), 0);
        self
    }

    /// An attribute that says something by being there.
    pub(super) fn put_flag(&mut self, number: u16) -> &mut Self {
        self.put(number, &[])
    }

    pub(super) fn put_u32(&mut self, number: u16, value: u32) -> &mut Self {
        self.put(number, &value.to_ne_bytes())
    }

    /// A text with the zero byte behind it.
    pub(super) fn put_text(&mut self, number: u16, text: &str) -> &mut Self {
        self.put(number, &[text.as_bytes(), &[0]].concat())
    }

    pub(super) fn nest(&mut self, number: u16, inner: &Self) -> &mut Self {
        self.put(number, &inner.bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The attributes in `bytes`, as (number, value); ends where they are malformed.
pub(super) fn read(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [a, b, c, d, ..] = *bytes else { return None };
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(HEADER)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & NUMBER, value))
    })
}
