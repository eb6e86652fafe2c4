//! A block of a packet ring as the kernel wrote it ([`Layout::Ring`](super::Layout::Ring)): `TPACKET_V3` of `linux/if_packet.h`, of a raw
//! socket with `PACKET_VNET_HDR`, so that a `virtio_net_hdr` is in front of each frame. Numbers are little endian.
//!
//! The kernel takes the outer VLAN tag out of a frame, may leave a checksum to hardware that the copy never meets, and hands over segments
//! that hardware would have cut. [`RingFrame::restore`] puts tag and checksum back, that of SCTP as well, which is a CRC.

use super::WireError;

/// Offsets of `struct tpacket_block_desc`, whose header is `struct tpacket_hdr_v1`.
mod block {
    pub(super) const VERSION: usize = 0;
    pub(super) const COUNT: usize = 12;
    pub(super) const FIRST: usize = 16;
    pub(super) const SIZE: usize = 48;
}

/// Offsets of `struct tpacket3_hdr`, and of the `struct sockaddr_ll` behind it.
mod packet {
    pub(super) const NEXT: usize = 0;
    pub(super) const SECONDS: usize = 4;
    pub(super) const NANOSECONDS: usize = 8;
    pub(super) const CAPTURED: usize = 12;
    pub(super) const LENGTH: usize = 16;
    pub(super) const STATUS: usize = 20;
    pub(super) const MAC: usize = 24;
    pub(super) const VLAN_TCI: usize = 32;
    pub(super) const VLAN_TPID: usize = 36;
    pub(super) const IFINDEX: usize = 48 + 4;
    pub(super) const SIZE: usize = 48 + 20;
}

/// `struct virtio_net_hdr`, right in front of the frame.
mod virtio {
    pub(super) const SIZE: usize = 10;
    pub(super) const FLAGS: usize = 0;
    pub(super) const GSO_TYPE: usize = 1;
    pub(super) const GSO_SIZE: usize = 4;
    pub(super) const CHECKSUM_START: usize = 6;
    pub(super) const CHECKSUM_OFFSET: usize = 8;
    /// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
    pub(super) const NEEDS_CHECKSUM: u8 = 1;
    /// `VIRTIO_NET_HDR_GSO_NONE`.
    pub(super) const NO_GSO: u8 = 0;
}

/// `TP_STATUS_VLAN_VALID`.
const VLAN_VALID: u32 = 1 << 4;
/// `TP_STATUS_VLAN_TPID_VALID`.
const VLAN_TPID_VALID: u32 = 1 << 6;
/// `ETH_P_8021Q`.
const DOT1Q: u16 = 0x8100;
/// `TPACKET_V3`, as blocks have it. (`tpacket_versions` counts from 0, and `prb_open_block` writes that number.)
const V3: u32 = 2;
/// Bytes of both Ethernet addresses.
const ADDRESSES: usize = 12;

/// A frame of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingFrame<'a> {
    /// Index of the network device.
    pub ifindex: u32,
    /// When it was captured: nanoseconds since 1970.
    pub captured: u64,
    /// How long it was, in bytes, without the VLAN tag that was taken out.
    pub length: u32,
    /// The VLAN tag that was taken out: its protocol, and the tag.
    pub vlan: Option<(u16, u16)>,
    /// Where a checksum is to be filled in: where the bytes begin that it is over, and its own place behind that.
    pub checksum: Option<(u16, u16)>,
    /// Bytes of payload of each segment on the wire, if this was to be cut.
    pub segment: Option<u16>,
    /// Its bytes, or as many of them as were captured.
    pub bytes: &'a [u8],
}

impl RingFrame<'_> {
    /// Writes the frame as it was on the wire, in place of what is in `into`, and returns how long it was there.
    pub fn restore(&self, into: &mut Vec<u8>) -> u32 {
        into.clear();
        into.extend_from_slice(self.bytes);
        if let Some((start, offset)) = self.checksum {
            fill(into, start.into(), offset.into());
        }
        let Some((protocol, tag)) = self.vlan.filter(|_| into.len() >= ADDRESSES) else { return self.length };
        let [a, b] = protocol.to_be_bytes();
        let [c, d] = tag.to_be_bytes();
        into.splice(ADDRESSES..ADDRESSES, [a, b, c, d]);
        self.length.saturating_add(4)
    }
}

/// Where SCTP has its checksum (RFC 9260, section 3.1), and no other header that is left to hardware: those of UDP and TCP have theirs at 6
/// and 16.
const SCTP_CHECKSUM: usize = 8;

/// Fills in the checksum at `offset` behind `start`, over everything from `start` on.
fn fill(frame: &mut [u8], start: usize, offset: usize) {
    let Some(summed) = frame.get_mut(start..) else { return };
    if offset == SCTP_CHECKSUM {
        fill_crc(summed);
    } else {
        fill_sum(summed, offset);
    }
}

/// The checksum of RFC 1071. What stands there is the sum of the pseudo header.
fn fill_sum(summed: &mut [u8], offset: usize) {
    if summed.len() < offset + 2 {
        return;
    }
    let words =
        summed.chunks(2).map(|word| u64::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)])));
    let mut sum: u64 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it was folded")]
    let checksum = !(sum as u16);
    // UDP's 0 is for no checksum (RFC 768), and TCP's 0 is as good as all ones.
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    summed[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The checksum of SCTP (RFC 9260, appendix A), over a header in which it is zero.
fn fill_crc(summed: &mut [u8]) {
    const END: usize = SCTP_CHECKSUM + 4;
    let Some(checksum) = summed.get_mut(SCTP_CHECKSUM..END) else { return };
    checksum.fill(0);
    let crc = crc32c(summed);
    summed[SCTP_CHECKSUM..END].copy_from_slice(&crc.to_le_bytes());
}

/// CRC32c (RFC 3720, section 12.1), bit by bit: few frames need it.
fn crc32c(bytes: &[u8]) -> u32 {
    /// The polynomial 0x11edc6f41 in reflected order.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bit = |rest: u32| (rest >> 1) ^ if rest & 1 == 0 { 0 } else { POLYNOMIAL };
    let byte = |rest: u32, byte: &u8| (0..8).fold(rest ^ u32::from(*byte), |rest, _| bit(rest));
    !bytes.iter().fold(u32::MAX, byte)
}

/// Returns how many frames a block says that it has.
///
/// # Errors
/// Fails if the bytes are no such block.
pub fn count(block: &[u8]) -> Result<u32, WireError> {
    if block.len() < block::SIZE {
        return Err(WireError::Length { what: "a block of a ring", length: block.len(), expected: block::SIZE });
    }
    let version = word(block, block::VERSION)?;
    if version != V3 {
        return Err(WireError::Field { field: "the version of a ring", value: version.into() });
    }
    word(block, block::COUNT)
}

/// Returns the frames of a block, one by one. What is not a frame is an error, and the last item.
///
/// # Errors
/// Fails if the bytes are no such block.
pub fn frames(block: &[u8]) -> Result<impl Iterator<Item = Result<RingFrame<'_>, WireError>>, WireError> {
    let count = count(block)?;
    let mut at = offset(block, block::FIRST)?;
    let mut left = count;
    Ok(std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let frame = read(block, at).and_then(|RingPlace { frame, end, next }| {
            // The last has none. Frames that lay one above the other could be far more than the block.
            if left > 0 && next < end {
                let value = u64::try_from(next).unwrap_or(u64::MAX);
                return Err(WireError::Field { field: "the distance between two frames of a ring", value });
            }
            at = at.saturating_add(next);
            Ok(frame)
        });
        if frame.is_err() {
            left = 0;
        }
        Some(frame)
    }))
}

/// A frame, and how far it is from its header to its end and to the next header.
struct RingPlace<'a> {
    frame: RingFrame<'a>,
    end: usize,
    next: usize,
}

/// Reads the frame whose header is there.
fn read(block: &[u8], at: usize) -> Result<RingPlace<'_>, WireError> {
    let header = at.checked_add(packet::SIZE).and_then(|end| block.get(at..end)).ok_or(short(block, at))?;
    let (seconds, nanoseconds) = (word(header, packet::SECONDS)?, word(header, packet::NANOSECONDS)?);
    let captured_length = offset(header, packet::CAPTURED)?;
    let length = word(header, packet::LENGTH)?;
    let status = word(header, packet::STATUS)?;
    let start = half(header, packet::MAC)?;
    if usize::from(start) < packet::SIZE + virtio::SIZE {
        return Err(WireError::Field { field: "the start of a frame of a ring", value: start.into() });
    }
    let mac = at + usize::from(start);
    let virtio = mac.checked_sub(virtio::SIZE).and_then(|start| block.get(start..mac)).ok_or(short(block, mac))?;
    let bytes = mac.checked_add(captured_length).and_then(|end| block.get(mac..end)).ok_or(short(block, mac))?;
    let protocol = if status & VLAN_TPID_VALID == 0 { DOT1Q } else { half(header, packet::VLAN_TPID)? };
    #[expect(clippy::cast_possible_truncation, reason = "a tag has 16 bits")]
    let tag = word(header, packet::VLAN_TCI)? as u16;
    let needs_checksum = virtio[virtio::FLAGS] & virtio::NEEDS_CHECKSUM != 0;
    let checksum = (half(virtio, virtio::CHECKSUM_START)?, half(virtio, virtio::CHECKSUM_OFFSET)?);
    let is_cut = virtio[virtio::GSO_TYPE] != virtio::NO_GSO;
    let frame = RingFrame {
        ifindex: word(header, packet::IFINDEX)?,
        captured: u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds),
        length: length.max(u32::try_from(captured_length).unwrap_or(u32::MAX)),
        vlan: (status & VLAN_VALID != 0).then_some((protocol, tag)),
        checksum: needs_checksum.then_some(checksum),
        segment: if is_cut { Some(half(virtio, virtio::GSO_SIZE)?) } else { None },
        bytes,
    };
    Ok(RingPlace { frame, end: usize::from(start) + captured_length, next: offset(header, packet::NEXT)? })
}

fn short(block: &[u8], at: usize) -> WireError {
    WireError::Length { what: "a block of a ring", length: block.len(), expected: at.saturating_add(packet::SIZE) }
}

fn half(bytes: &[u8], at: usize) -> Result<u16, WireError> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(short(bytes, at))?;
    Ok(u16::from_le_bytes(*field))
}

fn word(bytes: &[u8], at: usize) -> Result<u32, WireError> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(short(bytes, at))?;
    Ok(u32::from_le_bytes(*field))
}

/// A number that is a distance in the block.
fn offset(bytes: &[u8], at: usize) -> Result<usize, WireError> {
    word(bytes, at).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}
