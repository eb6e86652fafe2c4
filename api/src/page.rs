//! A page of a dump.

use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, message, skip_field};
use prost::{DecodeError, Message};

use crate::v1::FlowStatus;

/// The number of the field in `flows.proto`.
const FLOWS: u32 = 1;

/// `sluice.v1.DumpResponse`.
///
/// An agent encodes each flow where it reads it, so that what goes from one thread to another is a page of bytes and not of messages. A
/// client finds the flows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DumpResponse {
    /// The flows of a page that was received.
    pub flows: Vec<FlowStatus>,
    /// Those of a page that is to be sent.
    encoded: Vec<u8>,
}

impl DumpResponse {
    /// A page that is to be sent, with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { encoded: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Adds a flow to a page that is to be sent.
    pub fn push(&mut self, flow: &FlowStatus) {
        message::encode(FLOWS, flow, &mut self.encoded);
    }

    /// Bytes of the flows that were added.
    pub fn size(&self) -> usize {
        self.encoded.len()
    }
}

impl Message for DumpResponse {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.encoded);
        message::encode_repeated(FLOWS, &self.flows, buffer);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            FLOWS => message::merge_repeated(wire_type, &mut self.flows, buffer, context),
            _ => skip_field(wire_type, tag, buffer, context),
        }
    }

    fn encoded_len(&self) -> usize {
        self.encoded.len() + message::encoded_len_repeated(FLOWS, &self.flows)
    }

    fn clear(&mut self) {
        self.flows.clear();
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
        assert_eq!(received.flows, flows);
        assert_eq!(received.encode_to_vec(), bytes);

        let files = prost_types::FileDescriptorSet::decode(crate::DESCRIPTORS).unwrap();
        let mut messages = files.file.into_iter().flat_map(|file| file.message_type);
        let described = messages.find(|message| message.name() == "DumpResponse").unwrap();
        let fields: Vec<_> = described.field.iter().map(|field| (field.number(), field.type_name())).collect();
        assert_eq!(fields, [(1, ".sluice.v1.FlowStatus")]);
    }
}
