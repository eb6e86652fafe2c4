//! What a socket for notifications lets in: a classic BPF program that the kernel runs over each.

use socket2::SockFilter;

use super::message::kind;

/// The kernel's own limit is 4,096 instructions (`BPF_MAXINSNS`).
pub(super) const MOST_PORTS: usize = 2000;

/// Where in `struct nlmsghdr` kind and port are.
const KIND: u32 = 4;
const PORT: u32 = 12;

const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const NOTHING: u32 = 0;
const ALL: u32 = u32::MAX;

/// Lets in what is about links and queueing disciplines, and filters that went. Every filter that is installed is told of
/// as well, and would drown the rest; so would those that sockets of ours, `own`, remove.
pub(super) fn program(own: &[u32]) -> Vec<SockFilter> {
    let mut program = vec![load(LOAD_HALF, KIND)];
    for wanted in [kind::NEW_LINK, kind::DELETE_LINK, kind::NEW_QDISC, kind::DELETE_QDISC] {
        program.extend(return_if(half(wanted), ALL));
    }
    program.extend([SockFilter::new(JUMP_IF_EQUAL, 1, 0, half(kind::DELETE_FILTER)), give_back(NOTHING)]);
    program.push(load(LOAD_WORD, PORT));
    for port in own {
        program.extend(return_if(port.to_be(), NOTHING));
    }
    program.push(give_back(ALL));
    program
}

const fn load(instruction: u16, offset: u32) -> SockFilter {
    SockFilter::new(instruction, 0, 0, offset)
}

const fn give_back(octets: u32) -> SockFilter {
    SockFilter::new(RETURN, 0, 0, octets)
}

const fn return_if(value: u32, octets: u32) -> [SockFilter; 2] {
    [SockFilter::new(JUMP_IF_EQUAL, 0, 1, value), give_back(octets)]
}

/// As the program loads it: in the order of networks.
fn half(kind: u16) -> u32 {
    kind.to_be().into()
}
