//! What a socket for notifications lets in: a classic BPF program that the kernel runs over each.

use std::num::NonZeroU16;

use socket2::SockFilter;

use crate::bpf::{ALL, COPY, JUMP_IF_EQUAL, KIND, LOAD_HALF, LOAD_WORD, NOTHING, PORT, RETURN};
use crate::kind;

/// The priorities at which a [`Monitor`](crate::Monitor) hears of filters that are put in. It cannot hear of all: every filter that
/// is installed is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardPriorities {
    /// The first one.
    pub first: u16,
    /// From the first on, all of so many are heard.
    pub lead: u16,
    /// What is behind them is in bands of so many.
    pub band: NonZeroU16,
    /// In each band, the first so many are heard.
    pub of_each_band: u16,
}

/// The kernel's own limit is 4,096 instructions (`BPF_MAXINSNS`).
pub(crate) const MOST_PORTS: usize = 2000;

/// Where in the message about a filter the bytes of its priority are, the upper one first: in `tcm_info` of `struct tcmsg`.
const PRIORITY: [u32; 2] = if cfg!(target_endian = "big") { [32, 33] } else { [35, 34] };

const LOAD_BYTE: u16 = 0x30;
const ADD_COPY: u16 = 0x0c;
const SUBTRACT: u16 = 0x14;
const SHIFT_LEFT: u16 = 0x64;
const REMAINDER: u16 = 0x94;
const JUMP_IF_NOT_BELOW: u16 = 0x35;

/// Lets in what is about links and queueing disciplines; and of filters that went, of actions, and of filters that were put in
/// at priorities that are heard, what sockets of ours, `own`, have not done themselves. Every filter that is installed is told
/// of, and would drown the rest.
pub(crate) fn program(heard: Option<HeardPriorities>, own: &[u32]) -> Vec<SockFilter> {
    let mut program = vec![instruction(LOAD_HALF, KIND)];
    for wanted in [kind::NEW_LINK, kind::DELETE_LINK, kind::NEW_QDISC, kind::DELETE_QDISC] {
        program.extend(return_if(half(wanted), ALL));
    }
    // Of a filter that was put in, the priority is looked at before who did it.
    let priorities = heard.map_or_else(|| vec![give_back(NOTHING)], |heard| Vec::from(only_heard(heard)));
    let past_priorities = if heard.is_some() { LENGTH_OF_ONLY_HEARD } else { 1 };
    program.extend([
        SockFilter::new(JUMP_IF_EQUAL, past_priorities + 4, 0, half(kind::DELETE_FILTER)),
        SockFilter::new(JUMP_IF_EQUAL, past_priorities + 3, 0, half(kind::NEW_ACTION)),
        SockFilter::new(JUMP_IF_EQUAL, past_priorities + 2, 0, half(kind::DELETE_ACTION)),
        SockFilter::new(JUMP_IF_EQUAL, 1, 0, half(kind::NEW_FILTER)),
        give_back(NOTHING),
    ]);
    program.extend(priorities);
    program.push(instruction(LOAD_WORD, PORT));
    for port in own {
        program.extend(return_if(port.to_be(), NOTHING));
    }
    program.push(give_back(ALL));
    program
}

/// Instructions of [`only_heard`].
const LENGTH_OF_ONLY_HEARD: u8 = 12;

/// Goes on behind itself with a filter at a priority that is heard, and gives back nothing of another.
fn only_heard(priorities: HeardPriorities) -> [SockFilter; LENGTH_OF_ONLY_HEARD as usize] {
    let HeardPriorities { first, lead, band, of_each_band } = priorities;
    let [upper, lower] = PRIORITY;
    let [first, lead, band, of_each_band] = [first, lead, band.get(), of_each_band].map(u32::from);
    [
        instruction(LOAD_BYTE, upper),
        instruction(SHIFT_LEFT, 8),
        instruction(COPY, 0),
        instruction(LOAD_BYTE, lower),
        instruction(ADD_COPY, 0),
        // What is in front of the first wraps.
        instruction(SUBTRACT, first),
        SockFilter::new(JUMP_IF_NOT_BELOW, 4, 0, 1 << 16),
        SockFilter::new(JUMP_IF_NOT_BELOW, 0, 4, lead),
        instruction(SUBTRACT, lead),
        instruction(REMAINDER, band),
        SockFilter::new(JUMP_IF_NOT_BELOW, 0, 1, of_each_band),
        give_back(NOTHING),
    ]
}

const fn instruction(code: u16, operand: u32) -> SockFilter {
    SockFilter::new(code, 0, 0, operand)
}

const fn give_back(bytes: u32) -> SockFilter {
    instruction(RETURN, bytes)
}

const fn return_if(value: u32, bytes: u32) -> [SockFilter; 2] {
    [SockFilter::new(JUMP_IF_EQUAL, 0, 1, value), give_back(bytes)]
}

/// As the program loads it: in the order of networks.
fn half(kind: u16) -> u32 {
    kind.to_be().into()
}
