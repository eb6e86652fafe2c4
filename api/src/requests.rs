//! Requests that bring many flows.
//!
//! An entry of a message may be two bytes long, and its structure is a hundred times as large. So only as many are made as are taken, and
//! one more: whoever reads the message sees that there are too many, and what it takes is bounded.

use prost::bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType, message, skip_field, string};
use prost::{DecodeError, Message};

use crate::v1::{Flow, Operation};

/// Operations of an [`ApplyRequest`] at the most.
pub const MOST_OPERATIONS: usize = 16_384;

/// Flows of a [`ReplaceRequest`] at the most.
pub const MOST_FLOWS: usize = 65_536;

/// The numbers of the fields in `flows.proto`.
const OWNER: u32 = 1;
const ENTRIES: u32 = 2;
const COMMIT: u32 = 3;

/// `sluice.v1.ApplyRequest`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApplyRequest {
    /// Who wants the flows. Set in the first message of a stream; it holds for all of it.
    pub owner: String,
    /// Operations. Of a message that was received at most one more than [`MOST_OPERATIONS`].
    pub operations: Vec<Operation>,
}

/// `sluice.v1.ReplaceRequest`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplaceRequest {
    /// Whose flows these are. Set in the first message.
    pub owner: String,
    /// Flows that are wanted. Of a message that was received at most one more than [`MOST_FLOWS`].
    pub flows: Vec<Flow>,
    /// All flows are named. Nothing is read after it.
    pub commit: bool,
}

/// Reads an entry, unless there are too many.
fn merge_entry<M: Message + Default>(
    wire_type: WireType,
    entries: &mut Vec<M>,
    most: usize,
    buffer: &mut impl Buf,
    context: DecodeContext,
) -> Result<(), DecodeError> {
    if entries.len() > most {
        return skip_field(wire_type, ENTRIES, buffer, context);
    }
    message::merge_repeated(wire_type, entries, buffer, context)
}

fn encode_owner(owner: &String, buffer: &mut impl BufMut) {
    if !owner.is_empty() {
        string::encode(OWNER, owner, buffer);
    }
}

fn owner_len(owner: &String) -> usize {
    if owner.is_empty() { 0 } else { string::encoded_len(OWNER, owner) }
}

impl Message for ApplyRequest {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        encode_owner(&self.owner, buffer);
        message::encode_repeated(ENTRIES, &self.operations, buffer);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            OWNER => string::merge(wire_type, &mut self.owner, buffer, context),
            ENTRIES => merge_entry(wire_type, &mut self.operations, MOST_OPERATIONS, buffer, context),
            _ => skip_field(wire_type, tag, buffer, context),
        }
    }

    fn encoded_len(&self) -> usize {
        owner_len(&self.owner) + message::encoded_len_repeated(ENTRIES, &self.operations)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Message for ReplaceRequest {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        encode_owner(&self.owner, buffer);
        message::encode_repeated(ENTRIES, &self.flows, buffer);
        if self.commit {
            encoding::bool::encode(COMMIT, &self.commit, buffer);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            OWNER => string::merge(wire_type, &mut self.owner, buffer, context),
            ENTRIES => merge_entry(wire_type, &mut self.flows, MOST_FLOWS, buffer, context),
            COMMIT => encoding::bool::merge(wire_type, &mut self.commit, buffer, context),
            _ => skip_field(wire_type, tag, buffer, context),
        }
    }

    fn encoded_len(&self) -> usize {
        let commit = if self.commit { encoding::bool::encoded_len(COMMIT, &self.commit) } else { 0 };
        owner_len(&self.owner) + message::encoded_len_repeated(ENTRIES, &self.flows) + commit
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_as_they_were_sent_and_are_those_of_the_proto_file() {
        let owner = "story".to_owned();
        let operations = vec![Operation { id: 7, change: None }, Operation::default()];
        let apply = ApplyRequest { owner: owner.clone(), operations };
        let bytes = apply.encode_to_vec();
        assert_eq!((bytes.len(), ApplyRequest::decode(&*bytes)), (apply.encoded_len(), Ok(apply)));
        let flows = vec![Flow { actions: "drop".to_owned(), ..Flow::default() }];
        for commit in [false, true] {
            let replace = ReplaceRequest { owner: owner.clone(), flows: flows.clone(), commit };
            let bytes = replace.encode_to_vec();
            assert_eq!((bytes.len(), ReplaceRequest::decode(&*bytes)), (replace.encoded_len(), Ok(replace)));
        }

        let files = prost_types::FileDescriptorSet::decode(crate::DESCRIPTORS).unwrap();
        let messages: Vec<_> = files.file.into_iter().flat_map(|file| file.message_type).collect();
        let fields = |name: &str| {
            let described = messages.iter().find(|message| message.name() == name).unwrap();
            described.field.iter().map(|field| format!("{} {}", field.number(), field.name())).collect::<Vec<_>>()
        };
        assert_eq!(fields("ApplyRequest"), ["1 owner", "2 operations"]);
        assert_eq!(fields("ReplaceRequest"), ["1 owner", "2 flows", "3 commit"]);
    }

    #[test]
    fn of_very_many_entries_only_as_many_are_made_as_show_that_they_are_too_many() {
        let (field, empty) = (2 << 3 | 2, 0);
        let bytes: Vec<u8> = std::iter::repeat_n([field, empty], 1 << 20).flatten().collect();
        assert_eq!(ApplyRequest::decode(&*bytes).unwrap().operations.len(), MOST_OPERATIONS + 1);
        assert_eq!(ReplaceRequest::decode(&*bytes).unwrap().flows.len(), MOST_FLOWS + 1);
    }
}
