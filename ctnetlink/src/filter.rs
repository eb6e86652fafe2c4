//! What the socket for events lets in: a classic BPF program that the kernel runs over each of them.
//!
//! What is left out here costs neither room in the socket nor time of this process: of a router that resolves names for many, most connections
//! are never assured, and the timeouts that are set anew are told of as well.

use sluice_netdev::bpf::{ALL, COPY, JUMP_IF_EQUAL, KIND, LOAD_HALF, LOAD_WORD, NOTHING, PORT, RETURN};
use socket2::SockFilter;

use crate::mark::Mark;
use crate::wire::{DELETE, MARK, STATUS, status};

/// Bytes in front of the attributes: `struct nlmsghdr` and `struct nfgenmsg`.
const HEADERS: u32 = 20;
/// Bytes in front of the value of an attribute.
const ATTRIBUTE_HEADER: u32 = 4;
/// `SKF_AD_OFF + SKF_AD_NLATTR`: gives the place of the first attribute of a kind from a place on, or 0.
const FIND: u32 = (-0x1000i32 + 12).cast_unsigned();

const LOAD: u16 = 0x00;
const LOAD_INDEX: u16 = 0x01;
const LOAD_WORD_AT_INDEX: u16 = 0x40;
const JUMP_IF_ANY: u16 = 0x45;

/// Returns a program that lets in all but changes that the socket with the number `own` has asked for. Its deletions are told whoever asked for
/// them.
pub fn others(own: u32) -> Vec<SockFilter> {
    let one = |code, operand| SockFilter::new(code, 0, 0, operand);
    vec![
        one(LOAD_HALF, KIND),
        // Jumps say how many words they pass over.
        SockFilter::new(JUMP_IF_EQUAL, 2, 0, DELETE.to_be().into()),
        one(LOAD_WORD, PORT),
        SockFilter::new(JUMP_IF_EQUAL, 1, 0, own.to_be()),
        one(RETURN, ALL),
        one(RETURN, NOTHING),
    ]
}

/// Returns a program that lets in what is about a connection that is assured, apart from changes that the socket with the number `own` has
/// asked for. Its deletions are told whoever asked for them. What has no status is let in: whoever reads it says that. If a mark other than 0
/// is meant, what tells of none is left out; one that was changed to 0 is told.
pub fn assured(own: u32, mark: Mark) -> Vec<SockFilter> {
    let one = |code, operand| SockFilter::new(code, 0, 0, operand);
    let find = |attribute: u16| [one(LOAD, HEADERS), one(LOAD_INDEX, attribute.into()), one(LOAD_WORD, FIND)];
    let must_be_marked = mark.value != 0;
    // Jumps say how many words they pass over.
    let of_mark = if must_be_marked { 4 } else { 0 };
    let mut program = vec![
        one(LOAD_HALF, KIND),
        SockFilter::new(JUMP_IF_EQUAL, 2, 0, DELETE.to_be().into()),
        one(LOAD_WORD, PORT),
        SockFilter::new(JUMP_IF_EQUAL, 8 + of_mark, 0, own.to_be()),
    ];
    program.extend(find(STATUS));
    program.extend([
        SockFilter::new(JUMP_IF_EQUAL, 3 + of_mark, 0, 0),
        one(COPY, 0),
        one(LOAD_WORD_AT_INDEX, ATTRIBUTE_HEADER),
        SockFilter::new(JUMP_IF_ANY, 0, 1 + of_mark, status::ASSURED),
    ]);
    if must_be_marked {
        program.extend(find(MARK));
        program.push(SockFilter::new(JUMP_IF_EQUAL, 1, 0, 0));
    }
    program.extend([one(RETURN, ALL), one(RETURN, NOTHING)]);
    program
}
