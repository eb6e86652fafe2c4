//! Addresses of RoCE (GIDs). There are those that the kernel makes of a network device's MAC address, since nobody has configured another
//! one: its link-local address of IPv6, in both versions of RoCE.

use nix::errno::Errno;
use sluice_connectx::command::layouts as l;
use sluice_connectx::hca::Hca;
use sluice_connectx::profile::Profile;

use super::command::{Command, send};
use super::device::node_guid;
use super::request::{EMPTY, NativeOut, Refused, Request};
use super::state::{ContextId, State};

/// Numbers of the versions, as programs have them (`enum ibv_gid_type`) and as the device has.
const VERSIONS: [(u32, u64); 2] = [(1, 0), (2, 2)];

/// Entries of the table, of which the first two are used.
pub(crate) const LENGTH: u32 = 16;

const ENTRY: usize = 32;

/// Whether there are any.
pub(crate) fn has_roce(profile: &Profile) -> bool {
    profile.software_steering
}

/// The address of an index, as `struct ib_uverbs_gid_entry`.
pub(crate) fn entry(profile: &Profile, index: u32) -> Option<Vec<u8>> {
    let (version, _) = VERSIONS.get(usize::try_from(index).ok()?).filter(|_| has_roce(profile))?;
    Some(NativeOut::new(ENTRY).put(0, address()).u32(16, index).u32(20, 1).u32(24, *version).bytes().to_vec())
}

/// Made of the node's GUID, which is made of its MAC address in the same way.
fn address() -> [u8; 16] {
    const LINK_LOCAL: u128 = 0xfe80 << 112;
    (LINK_LOCAL | u128::from(node_guid())).to_be_bytes()
}

/// Tells the device its addresses.
pub(crate) fn announce(hca: &mut Hca) -> Result<(), Refused> {
    use l::set_roce_address as f;
    if !has_roce(hca.profile()) {
        return Ok(());
    }
    let number = u128::from_be_bytes(address());
    let [high, low] = [number >> 64, number & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or_default());
    for (index, (_, version)) in (0..).zip(VERSIONS) {
        let fields =
            [(f::ROCE_ADDRESS_INDEX, index), (f::ADDRESS_0, high), (f::ADDRESS_1, low), (f::ROCE_VERSION, version)];
        send(hca, &Command::new(0x761, &f::LAYOUT, &fields))?;
    }
    Ok(())
}

pub(crate) fn query_table(state: &mut State, _: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const ENTRY_SIZE: u16 = 0;
    const ENTRIES: u16 = 2;
    const NUMBER: u16 = 3;
    let size = usize::try_from(request.value(ENTRY_SIZE)?).unwrap_or_default();
    if size < ENTRY {
        return Err(Refused::new(Errno::EINVAL, format!("entries of {size} bytes")));
    }
    let entries: Vec<_> = (0..LENGTH).filter_map(|index| entry(state.hca.profile(), index)).collect();
    if request.length(ENTRIES)? / size < entries.len() {
        return Err(Refused::new(Errno::EINVAL, format!("no room for {} addresses", entries.len())));
    }
    let padded = entries.iter().flat_map(|entry| entry.iter().copied().chain(vec![0; size - ENTRY]));
    request.output(ENTRIES, &padded.collect::<Vec<_>>())?;
    request.output(NUMBER, &(entries.len() as u64).to_le_bytes())
}

pub(crate) fn query_entry(state: &mut State, _: ContextId, request: &Request<'_>) -> Result<(), Refused> {
    const PORT: u16 = 0;
    const INDEX: u16 = 1;
    const ANSWER: u16 = 3;
    let (port, index) = (request.value_u32(PORT)?, request.value_u32(INDEX)?);
    if port != 1 || index >= LENGTH {
        return Err(Refused::new(Errno::EINVAL, format!("there is no place {index} for an address of port {port}")));
    }
    let found = entry(state.hca.profile(), index);
    request.output(ANSWER, &found.ok_or_else(|| Refused::new(Errno::ENODATA, EMPTY))?)
}
