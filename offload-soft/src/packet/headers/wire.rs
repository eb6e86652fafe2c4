//! Values on the wire, and what makes a view over a header of them.

use crate::packet::Mac;

/// A value as it stands on the wire, most significant byte first.
pub trait Wire: Sized {
    /// Bytes on the wire.
    const SIZE: usize;
    /// Reads the value at `at`, which the caller knows to be inside.
    fn read(bytes: &[u8], at: usize) -> Self;
    /// Writes the value at `at`, which the caller knows to be inside.
    fn write(self, bytes: &mut [u8], at: usize);
}

macro_rules! wire_integers {
    ($($integer:ty)*) => {
        $(impl Wire for $integer {
            const SIZE: usize = size_of::<Self>();

            #[inline]
            fn read(bytes: &[u8], at: usize) -> Self {
                let mut value = [0; Self::SIZE];
                value.copy_from_slice(&bytes[at..at + Self::SIZE]);
                Self::from_be_bytes(value)
            }

            #[inline]
            fn write(self, bytes: &mut [u8], at: usize) {
                bytes[at..at + Self::SIZE].copy_from_slice(&self.to_be_bytes());
            }
        })*
    };
}

wire_integers!(u8 u16 u32 u128);

impl Wire for Mac {
    const SIZE: usize = 6;

    #[inline]
    fn read(bytes: &[u8], at: usize) -> Self {
        let mut mac = [0; 6];
        mac.copy_from_slice(&bytes[at..at + 6]);
        mac
    }

    #[inline]
    fn write(self, bytes: &mut [u8], at: usize) {
        bytes[at..at + 6].copy_from_slice(&self);
    }
}

/// Whether a field lies within its header; checked for every field when it is compiled.
pub(super) const fn is_inside(at: usize, size: usize, length: usize) -> bool {
    at + size <= length
}

macro_rules! view {
    (
        $(#[$doc:meta])*
        $view:ident, $length:literal bytes;
        $($(#[$field_doc:meta])* $field:ident, $set_field:ident: $type:ty, at $at:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $view<T>(T);

        impl<T: AsRef<[u8]>> $view<T> {
            /// Bytes of the fixed part.
            pub const LENGTH: usize = $length;

            /// A view over bytes that begin with the header; `None` if they end before its fixed part does.
            #[inline]
            pub fn new(bytes: T) -> Option<Self> {
                (bytes.as_ref().len() >= $length).then_some(Self(bytes))
            }

            $($(#[$field_doc])*
            #[inline]
            pub fn $field(&self) -> $type {
                const { assert!(is_inside($at, <$type as Wire>::SIZE, $length)) };
                <$type as Wire>::read(self.0.as_ref(), $at)
            })*
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $view<T> {
            $(#[doc = concat!("Writes [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            #[inline]
            pub fn $set_field(&mut self, value: $type) {
                <$type as Wire>::write(value, self.0.as_mut(), $at);
            })*
        }
    };
}
