//! Words of the classic BPF programs that say what a socket for notifications lets in (`linux/filter.h`).

/// Where the kind of a message is in `struct nlmsghdr`.
pub const KIND: u32 = 4;
/// Where the port of who has asked for it is.
pub const PORT: u32 = 12;

/// Loads two bytes, in network order.
pub const LOAD_HALF: u16 = 0x28;
/// Loads four bytes, in network order.
pub const LOAD_WORD: u16 = 0x20;
/// Copies what was loaded to the index.
pub const COPY: u16 = 0x07;
/// Jumps if what was loaded is this.
pub const JUMP_IF_EQUAL: u16 = 0x15;
/// Ends with how many bytes of the message are let in.
pub const RETURN: u16 = 0x06;
/// The message is left out.
pub const NOTHING: u32 = 0;
/// The message is let in.
pub const ALL: u32 = u32::MAX;
