//! A match in one of its two forms.

use std::{fmt, iter};

use prost::bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::encoding::{
    DecodeContext, WireType, bytes, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint, int32,
    key_len, skip_field, string,
};
use prost::{DecodeError, Message};

use crate::v1::MatchFields;

/// The numbers of the forms in `match.proto`.
const FIELDS: u32 = 1;
const TEXT: u32 = 2;

/// That of a field in `MatchFields`, and those of what it says.
const ENTRY: u32 = 1;
const FIELD: u32 = 1;
const VALUE: u32 = 2;
const MASK: u32 = 3;

/// `sluice.v1.Match`.
///
/// Its fields stay the bytes that they travel as: a client that sends a match, or an agent that reads one, goes over them once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// How it is written.
    pub form: Option<Form>,
}

/// How a match is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// As a structure.
    Fields(Fields),
    /// In the text of OVS.
    Text(String),
}

/// The fields of a match as they travel. They are made of [`MatchFields`], and [read](Self::read) as these; [`iter`](Self::iter) reads them
/// where they lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fields(Bytes);

/// A field that must have a value, as [`MatchField`](crate::v1::MatchField) says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldView<'a> {
    /// Which field, by its number.
    pub field: i32,
    /// The value, the highest byte first.
    pub value: &'a [u8],
    /// Which bits of it count, in the same form; all of them if it is empty.
    pub mask: &'a [u8],
}

/// Fields on their way to becoming [`Fields`].
#[derive(Debug, Default)]
pub struct FieldsWriter(Vec<u8>);

/// Bytes that are no fields of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Fields {
    /// The fields, one after the other. Nothing follows an error.
    pub fn iter(&self) -> impl Iterator<Item = Result<FieldView<'_>, Malformed>> {
        let mut rest = &*self.0;
        iter::from_fn(move || {
            while !rest.is_empty() {
                let read = next_field(&mut rest);
                if read.is_err() {
                    rest = &[];
                }
                if let Some(read) = read.transpose() {
                    return Some(read);
                }
            }
            None
        })
    }

    /// The fields as a message.
    pub fn read(&self) -> Result<MatchFields, DecodeError> {
        MatchFields::decode(self.0.clone())
    }
}

/// Reads a field; `None` if what is there is something else.
fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Option<FieldView<'a>>, Malformed> {
    match decode_key(rest)? {
        (ENTRY, WireType::LengthDelimited) => FieldView::parse(take(rest)?).map(Some),
        (ENTRY, _) => Err(Malformed),
        (other, wire_type) => Ok(skip_field(wire_type, other, rest, DecodeContext::default()).map(|()| None)?),
    }
}

/// Takes as many bytes as the length in front of them says.
fn take<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(decode_varint(rest)?).map_err(|_| Malformed)?;
    let (taken, behind) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = behind;
    Ok(taken)
}

impl<'a> FieldView<'a> {
    fn parse(mut bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut view = Self::default();
        while !bytes.is_empty() {
            match decode_key(&mut bytes)? {
                (FIELD, wire_type) => int32::merge(wire_type, &mut view.field, &mut bytes, DecodeContext::default())?,
                (VALUE, WireType::LengthDelimited) => view.value = take(&mut bytes)?,
                (MASK, WireType::LengthDelimited) => view.mask = take(&mut bytes)?,
                (VALUE | MASK, _) => return Err(Malformed),
                (other, wire_type) => skip_field(wire_type, other, &mut bytes, DecodeContext::default())?,
            }
        }
        Ok(view)
    }
}

impl FieldsWriter {
    /// Adds a field.
    pub fn push(&mut self, FieldView { field, value, mask }: FieldView<'_>) {
        let Self(out) = self;
        let parts = [(VALUE, value), (MASK, mask)];
        let length: usize = parts.iter().map(|(tag, part)| part_len(*tag, part)).sum();
        encode_key(ENTRY, WireType::LengthDelimited, out);
        encode_varint((int32::encoded_len(FIELD, &field) + length) as u64, out);
        int32::encode(FIELD, &field, out);
        for (tag, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
            encode_part(tag, part, out);
        }
    }
}

/// Bytes of a part, which is left out if it is empty.
fn part_len(tag: u32, part: &[u8]) -> usize {
    if part.is_empty() { 0 } else { key_len(tag) + encoded_len_varint(part.len() as u64) + part.len() }
}

fn encode_part(tag: u32, part: &[u8], buffer: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(part.len() as u64, buffer);
    buffer.put_slice(part);
}

impl From<FieldsWriter> for Fields {
    fn from(FieldsWriter(encoded): FieldsWriter) -> Self {
        Self(encoded.into())
    }
}

impl From<&MatchFields> for Fields {
    fn from(fields: &MatchFields) -> Self {
        Self(fields.encode_to_vec().into())
    }
}

impl Message for Match {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        match &self.form {
            None => {}
            Some(Form::Fields(Fields(encoded))) => encode_part(FIELDS, encoded, buffer),
            Some(Form::Text(text)) => string::encode(TEXT, text, buffer),
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
            FIELDS => {
                let mut encoded = Bytes::new();
                bytes::merge(wire_type, &mut encoded, buffer, context)?;
                // A message that comes in parts is all of them. There may be very many, so that what there is by then is copied once.
                if let Some(Form::Fields(Fields(before))) = self.form.take() {
                    let mut all = before.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
                    all.extend_from_slice(&encoded);
                    encoded = all.freeze();
                }
                self.form = Some(Form::Fields(Fields(encoded)));
            }
            TEXT => {
                let mut text = String::new();
                string::merge(wire_type, &mut text, buffer, context)?;
                self.form = Some(Form::Text(text));
            }
            _ => skip_field(wire_type, tag, buffer, context)?,
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        match &self.form {
            None => 0,
            Some(Form::Fields(Fields(encoded))) => bytes::encoded_len(FIELDS, encoded),
            Some(Form::Text(text)) => string::encoded_len(TEXT, text),
        }
    }

    fn clear(&mut self) {
        self.form = None;
    }
}

impl From<DecodeError> for Malformed {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("what should be its fields is none")
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;
    use crate::v1::MatchField;

    fn field(field: v1::Field, value: &'static [u8], mask: &'static [u8]) -> MatchField {
        MatchField { field: field.into(), value: value.into(), mask: mask.into() }
    }

    fn fields() -> MatchFields {
        let fields = vec![
            field(v1::Field::InPort, &[0, 0, 0, 1], &[]),
            field(v1::Field::Ipv4Src, &[10, 0, 0, 0], &[255, 0, 0, 0]),
        ];
        MatchFields { fields }
    }

    fn view(field: &MatchField) -> FieldView<'_> {
        FieldView { field: field.field, value: &field.value, mask: &field.mask }
    }

    #[test]
    fn fields_are_read_and_written_as_the_message_that_the_proto_file_describes() {
        let message = fields();
        let mut writer = FieldsWriter::default();
        message.fields.iter().for_each(|field| writer.push(view(field)));
        let written = Fields::from(writer);
        assert_eq!(written, Fields::from(&message));
        assert_eq!(written.read(), Ok(message.clone()));
        let read: Result<Vec<_>, _> = written.iter().collect();
        assert_eq!(read.unwrap(), message.fields.iter().map(view).collect::<Vec<_>>());

        let files = prost_types::FileDescriptorSet::decode(crate::DESCRIPTORS).unwrap();
        let mut messages = files.file.into_iter().flat_map(|file| file.message_type);
        let described = messages.find(|message| message.name() == "Match").unwrap();
        let fields: Vec<_> = described.field.iter().map(|field| (field.number(), field.name())).collect();
        assert_eq!(fields, [(1, "fields"), (2, "text")]);
    }

    #[test]
    fn a_match_comes_as_it_was_sent_in_either_form_or_in_parts() {
        let text = Match { form: Some(Form::Text("in_port(1)".to_owned())) };
        let structure = Match { form: Some(Form::Fields(Fields::from(&fields()))) };
        for sent in [&Match::default(), &text, &structure] {
            let bytes = sent.encode_to_vec();
            assert_eq!((bytes.len(), &Match::decode(&*bytes).unwrap()), (sent.encoded_len(), sent));
        }
        let parts = fields().fields.into_iter().map(|field| {
            let part = MatchFields { fields: vec![field] };
            Match { form: Some(Form::Fields(Fields::from(&part))) }.encode_to_vec()
        });
        assert_eq!(Match::decode(&*parts.collect::<Vec<_>>().concat()), Ok(structure.clone()));
        let many = [10, 4, 10, 2, 8, 1].repeat(200_000);
        let Some(Form::Fields(fields)) = Match::decode(&*many).unwrap().form else { panic!("they are fields") };
        assert_eq!(fields.iter().count(), 200_000);
        let last = [structure.encode_to_vec(), text.encode_to_vec()].concat();
        assert_eq!(Match::decode(&*last), Ok(text), "the last form counts");
    }

    #[test]
    fn bytes_that_are_no_fields_are_told_once() {
        let cut = Fields(Fields::from(&fields()).0.slice(..12));
        let read: Vec<_> = cut.iter().collect();
        assert_eq!(read, [Ok(view(&fields().fields[0])), Err(Malformed)]);
        assert!(cut.read().is_err());
    }
}
