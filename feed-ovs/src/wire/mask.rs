//! What of a value counts.

use sluice_netdev::netlink::attribute::{Attributes, Malformed};

/// The mask of an attribute, or of the attributes in it.
#[derive(Clone, Copy)]
pub(super) enum Mask<'a> {
    /// All bits count: the flow has no mask.
    Exact,
    /// Nothing counts: the mask has no such attribute.
    Wild,
    /// The bits that are set, in bytes as long as those of the value.
    Bytes(&'a [u8]),
}

impl<'a> Mask<'a> {
    /// Returns that of an attribute in the nest that this one is for.
    pub(super) fn within(self, kind: u16, place: &'static str) -> Result<Self, Malformed> {
        let Self::Bytes(nest) = self else { return Ok(self) };
        for attribute in Attributes::new(nest, place) {
            let attribute = attribute?;
            if attribute.kind == kind {
                return Ok(Self::Bytes(attribute.payload));
            }
        }
        Ok(Self::Wild)
    }

    /// Returns the bytes that belong to those of a value; `None` if they are not as many.
    pub(super) fn over<const N: usize>(self) -> Option<[u8; N]> {
        match self {
            Self::Exact => Some([u8::MAX; N]),
            Self::Wild => Some([0; N]),
            Self::Bytes(bytes) => bytes.try_into().ok(),
        }
    }

    /// Returns the byte that belongs to one of a value; nothing counts behind the end.
    pub(super) fn byte(self, place: usize) -> u8 {
        match self {
            Self::Exact => u8::MAX,
            Self::Wild => 0,
            Self::Bytes(bytes) => bytes.get(place).copied().unwrap_or_default(),
        }
    }

    /// Returns whether nothing counts.
    pub(super) fn is_wild(self) -> bool {
        match self {
            Self::Exact => false,
            Self::Wild => true,
            Self::Bytes(bytes) => bytes.iter().all(|byte| *byte == 0),
        }
    }
}
