//! Messages that are lists of others.

use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, message, skip_field};
use prost::{DecodeError, Message};

use crate::v1::{Acceptance, FlowStatus};

/// The number of the only field in `flows.proto`.
const ENTRIES: u32 = 1;

/// `sluice.v1.DumpResponse`: flows.
pub type DumpResponse = Page<FlowStatus>;

/// `sluice.v1.Acceptances`, one for each operation of a batch.
pub type Acceptances = Page<Acceptance>;

/// A message that is a list of others.
///
/// An agent encodes each entry where it makes it, so that what goes from one thread to another is a page of bytes and not of messages. A
/// client finds the entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Page<M> {
    /// The entries of a page that was received.
    pub entries: Vec<M>,
    /// Those of a page that is to be sent.
    encoded: Vec<u8>,
}

impl<M: Message> Page<M> {
    /// A page that is to be sent, with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { encoded: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Adds an entry to a page that is to be sent.
    pub fn push(&mut self, entry: &M) {
        message::encode(ENTRIES, entry, &mut self.encoded);
    }

    /// Bytes of the entries that were added.
    pub fn size(&self) -> usize {
        self.encoded.len()
    }
}

impl<M> Default for Page<M> {
    fn default() -> Self {
        Self { entries: Vec::new(), encoded: Vec::new() }
    }
}

impl<M: Message + Default> Message for Page<M> {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.encoded);
        message::encode_repeated(ENTRIES, &self.entries, buffer);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            ENTRIES => message::merge_repeated(wire_type, &mut self.entries, buffer, context),
            _ => skip_field(wire_type, tag, buffer, context),
        }
    }

    fn encoded_len(&self) -> usize {
        self.encoded.len() + message::encoded_len_repeated(ENTRIES, &self.entries)
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.encoded.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_as_it_was_sent_and_is_that_of_the_proto_file() {
        let flows = ["command", "ovs"].map(|owner| FlowStatus { owner: owner.to_owned(), ..FlowStatus::default() });
        let mut page = DumpResponse::default();
        flows.iter().for_each(|flow| page.push(flow));
        let bytes = page.encode_to_vec();
        assert_eq!((bytes.len(), page.size()), (page.encoded_len(), page.encoded_len()));
        let received = DumpResponse::decode(bytes.as_slice()).unwrap();
        assert_eq!(received.entries, flows);
        assert_eq!(received.encode_to_vec(), bytes);

        let files = prost_types::FileDescriptorSet::decode(crate::DESCRIPTORS).unwrap();
        let messages: Vec<_> = files.file.into_iter().flat_map(|file| file.message_type).collect();
        for (page, entry) in [("DumpResponse", ".sluice.v1.FlowStatus"), ("Acceptances", ".sluice.v1.Acceptance")] {
            let described = messages.iter().find(|message| message.name() == page).unwrap();
            let fields: Vec<_> = described.field.iter().map(|field| (field.number(), field.type_name())).collect();
            assert_eq!(fields, [(1, entry)]);
        }
    }
}
