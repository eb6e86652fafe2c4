//! How messages are read.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

/// Writes `T` as [`tonic_prost::ProstCodec`] does, and reads `U` out of one piece of memory: faster than out of the buffer of a
/// stream, of which each byte might be in another piece. Nothing is copied for that.
pub(crate) struct WholeCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for WholeCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + 'static, U: Message + Default + 'static> Codec for WholeCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = WholeDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        WholeDecoder(PhantomData)
    }
}

pub(crate) struct WholeDecoder<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for WholeDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let message = buffer.copy_to_bytes(buffer.remaining());
        // What gRPC's list of codes has for it.
        U::decode(message).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
