//! How a program looks at a frame.
//!
//! X is how far the header that is looked at is behind where it is in a frame without tags: places are those of `struct ethhdr` and of
//! what follows it at once. Loads beyond the end of the frame end the program without taking it.

use super::super::class::Class;
use super::super::selector::{IpSelector, Selector, Transport};
use super::assembler::{Assembler, Label};
use super::instruction::code;

/// As many extension headers of IPv6 are passed.
pub const MAX_EXTENSIONS: usize = 8;

/// `SKF_AD_OFF + SKF_AD_IFINDEX` in linux/filter.h.
const INTERFACE: u32 = 0xffff_f000 + 8;

const ETHERNET_TYPE: u32 = 12;
/// Where the payload begins.
const PAYLOAD: u32 = 14;
const TAGS: [u32; 2] = [0x8100, 0x88a8];
const TAG: u32 = 4;

const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;

/// Extension headers whose length is in units of 8 bytes: hop by hop, routing, destination options (RFC 8200).
const OPTIONS: [u32; 3] = [0, 43, 60];
const FRAGMENT: u32 = 44;
/// Its length is in units of 4 bytes (RFC 4302).
const AUTHENTICATION: u32 = 51;

/// The cell of memory with the protocol.
const PROTOCOL: u32 = 0;

/// Goes on with frames at one of these network devices, and takes no other.
pub(super) fn require_interface(program: &mut Assembler, interfaces: &[u32]) {
    let is_there = program.label();
    program.add(code::LOAD_WORD, INTERFACE);
    for interface in interfaces {
        program.jump_if_equal(*interface, is_there);
    }
    program.add(code::RETURN, 0);
    program.place(is_there);
}

/// Takes the frames of a class.
pub(super) fn take(program: &mut Assembler, class: Class) {
    if class == Class::Flow {
        return program.add(code::RETURN, u32::MAX);
    }
    let (accept, refuse) = (program.label(), program.label());
    pass_tags(program);
    let of_type =
        |wanted: u32| move |selector: &&Selector| u32::from(selector.ethernet_type) == wanted && selector.ip.is_some();
    let ipv4: Vec<_> = class.selectors().iter().filter(of_type(IPV4)).filter_map(|selector| selector.ip).collect();
    let ipv6: Vec<_> = class.selectors().iter().filter(of_type(IPV6)).filter_map(|selector| selector.ip).collect();
    let (in_ipv4, in_ipv6) = (program.label(), program.label());
    for selector in class.selectors().iter().filter(|selector| selector.ip.is_none()) {
        program.jump_if_equal(selector.ethernet_type.into(), accept);
    }
    program.jump_if_equal(IPV4, in_ipv4);
    program.jump_if_equal(IPV6, in_ipv6);
    program.jump(refuse);
    program.place(in_ipv4);
    take_ipv4(program, &ipv4, accept, refuse);
    program.place(in_ipv6);
    take_ipv6(program, &ipv6, accept, refuse);
    program.place(refuse);
    program.add(code::RETURN, 0);
    program.place(accept);
    program.add(code::RETURN, u32::MAX);
}

/// Leaves the Ethernet type behind the tags in A.
fn pass_tags(program: &mut Assembler) {
    let payload = program.label();
    program.add(code::SET_X, 0);
    program.add(code::LOAD_HALF_AT, ETHERNET_TYPE);
    for tags in [1, 2] {
        let tag = program.label();
        TAGS.iter().for_each(|tpid| program.jump_if_equal(*tpid, tag));
        program.jump(payload);
        program.place(tag);
        program.add(code::SET_X, tags * TAG);
        program.add(code::LOAD_HALF_AT, ETHERNET_TYPE);
    }
    program.place(payload);
}

fn take_ipv4(program: &mut Assembler, selectors: &[IpSelector], accept: Label, refuse: Label) {
    const LENGTH: u32 = PAYLOAD;
    const FRAGMENT_OFFSET: u32 = PAYLOAD + 6;
    const IPV4_PROTOCOL: u32 = PAYLOAD + 9;
    if selectors.is_empty() {
        return program.jump(refuse);
    }
    let is_fragment = program.label();
    program.add(code::LOAD_BYTE_AT, IPV4_PROTOCOL);
    program.add(code::STORE, PROTOCOL);
    program.add(code::LOAD_HALF_AT, FRAGMENT_OFFSET);
    // The offset, and that more follow.
    program.jump_if_set(0x3fff, is_fragment);
    program.add(code::LOAD_BYTE_AT, LENGTH);
    program.add(code::AND, 0xf);
    program.add(code::SHIFT_LEFT, 2);
    program.add(code::ADD_X, 0);
    program.add(code::COPY_TO_X, 0);
    take_transport(program, selectors, accept, refuse);
    program.place(is_fragment);
    take_fragment(program, selectors, accept, refuse);
}

fn take_ipv6(program: &mut Assembler, selectors: &[IpSelector], accept: Label, refuse: Label) {
    const NEXT: u32 = PAYLOAD + 6;
    const IPV6_LENGTH: u32 = 40;
    if selectors.is_empty() {
        return program.jump(refuse);
    }
    let is_transport = program.label();
    program.add(code::LOAD_BYTE_AT, NEXT);
    program.add(code::STORE, PROTOCOL);
    program.add(code::COPY_FROM_X, 0);
    program.add(code::ADD, IPV6_LENGTH);
    program.add(code::COPY_TO_X, 0);
    for _ in 0..MAX_EXTENSIONS {
        pass_extension(program, is_transport, refuse);
    }
    program.place(is_transport);
    take_transport(program, selectors, accept, refuse);
}

/// Goes on behind an extension header, with the next protocol in memory; jumps if there is none, or if the packet is
/// a fragment. One that has the header of a fragment and is whole is none (RFC 6946).
fn pass_extension(program: &mut Assembler, is_transport: Label, refuse: Label) {
    const NEXT: u32 = PAYLOAD;
    const LENGTH: u32 = PAYLOAD + 1;
    const FRAGMENT_OFFSET: u32 = PAYLOAD + 2;
    const FRAGMENT_LENGTH: u32 = 8;
    let [options, authentication, fragment, behind] = std::array::from_fn(|_| program.label());
    program.add(code::LOAD_MEMORY, PROTOCOL);
    OPTIONS.iter().for_each(|protocol| program.jump_if_equal(*protocol, options));
    program.jump_if_equal(AUTHENTICATION, authentication);
    program.jump_if_equal(FRAGMENT, fragment);
    program.jump(is_transport);
    // The length leaves out the first unit of options, and the first two of authentication.
    for (label, first, shift) in [(options, 1, 3), (authentication, 2, 2)] {
        program.place(label);
        program.add(code::LOAD_BYTE_AT, NEXT);
        program.add(code::STORE, PROTOCOL);
        program.add(code::LOAD_BYTE_AT, LENGTH);
        program.add(code::ADD, first);
        program.add(code::SHIFT_LEFT, shift);
        program.jump(behind);
    }
    program.place(fragment);
    program.add(code::LOAD_BYTE_AT, NEXT);
    program.add(code::STORE, PROTOCOL);
    program.add(code::LOAD_HALF_AT, FRAGMENT_OFFSET);
    // The offset, and that more follow.
    program.jump_if_set(0xfff9, refuse);
    program.add(code::AND, 0);
    program.add(code::ADD, FRAGMENT_LENGTH);
    program.place(behind);
    program.add(code::ADD_X, 0);
    program.add(code::COPY_TO_X, 0);
}

/// Looks at the header that X is at; its protocol is in memory.
fn take_transport(program: &mut Assembler, selectors: &[IpSelector], accept: Label, refuse: Label) {
    for IpSelector { protocol, transport } in selectors {
        let (is_of_protocol, next) = (program.label(), program.label());
        program.add(code::LOAD_MEMORY, PROTOCOL);
        program.jump_if_equal((*protocol).into(), is_of_protocol);
        program.jump(next);
        program.place(is_of_protocol);
        let (load, place, value, mask) = match *transport {
            Transport::Any => {
                program.jump(accept);
                program.place(next);
                continue;
            }
            Transport::Type { value, mask } => (code::LOAD_BYTE_AT, PAYLOAD, value.into(), mask.into()),
            Transport::SourcePort { value, mask } => (code::LOAD_HALF_AT, PAYLOAD, value.into(), mask.into()),
            Transport::DestinationPort { value, mask } => {
                (code::LOAD_HALF_AT, PAYLOAD + 2, u32::from(value), u32::from(mask))
            }
        };
        program.add(load, place);
        program.add(code::AND, mask);
        program.jump_if_equal(value, accept);
        program.place(next);
    }
    program.jump(refuse);
}

/// A fragment has a protocol and nothing else that is looked at.
fn take_fragment(program: &mut Assembler, selectors: &[IpSelector], accept: Label, refuse: Label) {
    program.add(code::LOAD_MEMORY, PROTOCOL);
    for selector in selectors.iter().filter(|selector| selector.transport == Transport::Any) {
        program.jump_if_equal(selector.protocol.into(), accept);
    }
    program.jump(refuse);
}
