//! Commands on the function itself: enable, pages, capabilities, initialize, and back.

use super::state::{Hca, Stage};
use crate::command::{Answer, Failure, Input, Output, Status, layouts as l, modifier, require};
use crate::layout::Field;
use crate::profile::Page;
use crate::profile::caps::general;
use crate::steering::vhca_id;

/// Pages that the device wants before it tells anything, and before it is initialized.
const BOOT_PAGES: u32 = 4;
const INIT_PAGES: u32 = 64;

const MELLANOX_OUI: u32 = 0x02_c9;
const MELLANOX_VENDOR: u32 = 0x15b3;

pub(crate) fn enable_hca(hca: &mut Hca, input: &Input<'_>) -> Answer {
    if let Some(function) = virtual_function(hca, input)? {
        let next = hca.host_vfs + 1;
        let what = || format!("function {function} is enabled before function {next}");
        require(function == next, Status::BadSystemState, 0x0118, what())?;
        hca.host_vfs = function;
        return Ok(Output::empty());
    }
    if is_host(hca, input)? {
        require(
            hca.stage >= Stage::Initialized,
            Status::BadSystemState,
            0x0101,
            "the embedded CPU is not initialized",
        )?;
        hca.host_enabled = true;
        return Ok(Output::empty());
    }
    require(hca.stage == Stage::Down, Status::BadSystemState, 0x0102, "already enabled")?;
    hca.stage = Stage::Enabled;
    Ok(Output::empty())
}

pub(crate) fn disable_hca(hca: &mut Hca, input: &Input<'_>) -> Answer {
    if let Some(function) = virtual_function(hca, input)? {
        let what = || format!("function {function} is disabled, and the last one is {}", hca.host_vfs);
        require(function == hca.host_vfs, Status::BadSystemState, 0x0119, what())?;
        hca.host_vfs -= 1;
        return Ok(Output::empty());
    }
    if is_host(hca, input)? {
        require(hca.host_enabled, Status::BadSystemState, 0x0103, "the host's function is not enabled")?;
        hca.host_enabled = false;
        return Ok(Output::empty());
    }
    require(hca.stage == Stage::Enabled, Status::BadSystemState, 0x0104, "still initialized")?;
    hca.stage = Stage::Down;
    Ok(Output::empty())
}

/// The virtual function that the command is on, by the physical one. Linux enables them in their order, and disables the last one first.
fn virtual_function(hca: &Hca, input: &Input<'_>) -> Result<Option<u16>, Failure> {
    let function = input.get_u16(l::function::FUNCTION_ID);
    let profile = hca.profile;
    if function == 0 || profile.embedded_cpu || function > profile.host_total_vfs {
        return Ok(None);
    }
    require(
        hca.stage == Stage::Initialized,
        Status::BadSystemState,
        0x011a,
        "the physical function is not initialized",
    )?;
    Ok(Some(function))
}

/// Whether the command is on the host's physical function, by its embedded CPU.
fn is_host(hca: &Hca, input: &Input<'_>) -> Result<bool, Failure> {
    let embedded = input.is_set(l::function::EMBEDDED_CPU_FUNCTION);
    let function = input.get(l::function::FUNCTION_ID);
    require(function == 0, Status::BadParameter, 0x0105, format!("there is no function {function}"))?;
    let profile = hca.profile;
    require(!embedded || profile.embedded_cpu, Status::BadParameter, 0x0106, "the function is not an embedded CPU's")?;
    Ok(profile.embedded_cpu && !embedded)
}

pub(crate) fn query_issi(hca: &mut Hca, _: &Input<'_>) -> Answer {
    const ISSI_1: u32 = 1 << 1;
    Ok(Output::new(&l::query_issi_out::LAYOUT)
        .set(l::query_issi_out::CURRENT_ISSI, hca.issi)
        .set(l::query_issi_out::SUPPORTED_ISSI_DW0, ISSI_1))
}

pub(crate) fn set_issi(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let issi = input.get_u16(l::set_issi::CURRENT_ISSI);
    require(issi == 1, Status::BadParameter, 0x0107, format!("issi {issi} is not supported"))?;
    hca.issi = issi;
    Ok(Output::empty())
}

pub(crate) fn query_pages(hca: &mut Hca, input: &Input<'_>) -> Answer {
    const BOOT: u16 = 1;
    const INIT: u16 = 2;
    const REGULAR: u16 = 3;
    let host = is_host(hca, input)?;
    let wanted = match input.op_mod() {
        _ if host => 0,
        BOOT => BOOT_PAGES,
        INIT => INIT_PAGES,
        // What is over comes back when the driver asks for it.
        REGULAR => 0,
        other => return Err(modifier(other)),
    };
    let have = u32::try_from(hca.pages.len()).unwrap_or(u32::MAX);
    let missing = match input.op_mod() {
        INIT => (BOOT_PAGES + wanted).saturating_sub(have),
        _ => wanted.saturating_sub(have),
    };
    Ok(Output::new(&l::query_pages_out::LAYOUT)
        .set(l::query_pages_out::EMBEDDED_CPU_FUNCTION, input.get(l::function::EMBEDDED_CPU_FUNCTION))
        .set(l::query_pages_out::FUNCTION_ID, input.get(l::function::FUNCTION_ID))
        .set(l::query_pages_out::NUM_PAGES, if host { 0 } else { missing }))
}

pub(crate) fn manage_pages(hca: &mut Hca, input: &Input<'_>) -> Answer {
    const CANNOT_GIVE: u16 = 0;
    const GIVE: u16 = 1;
    const TAKE: u16 = 2;
    let entries = input.get_u32(l::manage_pages::INPUT_NUM_ENTRIES) as usize;
    match input.op_mod() {
        CANNOT_GIVE => Ok(Output::empty()),
        GIVE => {
            let pages = input.quadwords();
            require(pages.len() >= entries, Status::BadInputLength, 0x0108, "the list is shorter than it says")?;
            for page in &pages[..entries] {
                require(page % 4096 == 0, Status::BadParameter, 0x0109, format!("{page:#x} is not a page"))?;
                require(
                    !hca.pages.contains(page),
                    Status::BadParameter,
                    0x010a,
                    format!("page {page:#x} was given before"),
                )?;
            }
            hca.pages.extend_from_slice(&pages[..entries]);
            Ok(Output::empty())
        }
        TAKE => {
            let start = hca.pages.len().saturating_sub(entries);
            let taken = hca.pages.split_off(start);
            let count = u32::try_from(taken.len()).unwrap_or(u32::MAX);
            let mut output =
                Output::new(&l::manage_pages_out::LAYOUT).set(l::manage_pages_out::OUTPUT_NUM_ENTRIES, count);
            for page in taken {
                output = output.append(&page.to_be_bytes());
            }
            Ok(output)
        }
        other => Err(modifier(other)),
    }
}

pub(crate) fn query_hca_cap(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let (number, current) = (input.op_mod() >> 1, input.op_mod() & 1 == 1);
    let known = Page::new(number).filter(|page| *page != Page::General2 || hca.profile.tracks_connections());
    let Some(page) = known else {
        return Err(Failure::new(Status::BadParameter, 0x010b, format!("no capabilities of type {number:#x}")));
    };
    let mut bytes = if page == Page::General && current { hca.current.clone() } else { hca.profile.page(page) };
    if page == Page::General {
        let function = if input.is_set(l::query_hca_cap::OTHER_FUNCTION) {
            input.get_u16(l::query_hca_cap::FUNCTION_ID)
        } else {
            hca.profile.own_vport()
        };
        require(
            hca.vports.contains_key(&function),
            Status::BadParameter,
            0x010c,
            format!("there is no function {function:#x}"),
        )?;
        general::VHCA_ID.write(&mut bytes, u64::from(vhca_id(function)));
    }
    Ok(Output::with_data(&bytes))
}

pub(crate) fn set_hca_cap(hca: &mut Hca, input: &Input<'_>) -> Answer {
    require(!input.is_set(l::set_hca_cap::OTHER_FUNCTION), Status::BadParameter, 0x010d, "only of the own function")?;
    require(hca.stage == Stage::Enabled, Status::BadSystemState, 0x010e, "already initialized")?;
    let page = Page::new(input.op_mod() >> 1);
    require(page == Some(Page::General), Status::BadParameter, 0x010f, "only page 0 can be set")?;
    let wanted = input.tail();
    let most = hca.profile.page(Page::General);
    require(wanted.len() >= most.len(), Status::BadInputLength, 0x0110, "shorter than the page")?;
    if let Some(offset) = general::LAYOUT.unmodelled(wanted) {
        let reason = format!("a capability that is not modelled at {offset:#x}");
        return Err(Failure::new(Status::BadParameter, 0x0111, reason));
    }
    let value = |field: &Field, bytes: &[u8]| field.read(bytes).unwrap_or_default();
    for field in general::LAYOUT.fields.iter().filter(|field| **field != general::VHCA_ID) {
        let (wanted, most) = (value(field, wanted), value(field, &most));
        let what = format!("{} {wanted:#x} is over {most:#x}", field.name());
        require(wanted <= most, Status::LimitExceeded, 0x0112, what)?;
    }
    hca.current = wanted[..most.len()].to_vec();
    Ok(Output::empty())
}

pub(crate) fn init_hca(hca: &mut Hca, _: &Input<'_>) -> Answer {
    require(hca.stage == Stage::Enabled, Status::BadSystemState, 0x0113, "already initialized")?;
    require(hca.issi == 1, Status::BadSystemState, 0x0114, "no interface version was set")?;
    let missing = (BOOT_PAGES + INIT_PAGES) as usize > hca.pages.len();
    require(!missing, Status::NoResources, 0x0115, "pages are missing")?;
    hca.stage = Stage::Initialized;
    Ok(Output::empty())
}

/// After it the function can do nothing more, until it is initialized again; what is left is a leak, and stays on record.
pub(crate) fn teardown_hca(hca: &mut Hca, input: &Input<'_>) -> Answer {
    const GRACEFUL: u16 = 0;
    let profile = input.get_u16(l::teardown_hca::PROFILE);
    require(profile == GRACEFUL, Status::BadParameter, 0x0116, "only a graceful teardown is modelled")?;
    require(hca.stage == Stage::Initialized, Status::BadSystemState, 0x0117, "not initialized")?;
    hca.stage = Stage::Enabled;
    Ok(Output::empty())
}

pub(crate) fn query_adapter(hca: &mut Hca, _: &Input<'_>) -> Answer {
    let mut psid = [0; 16];
    for (to, from) in psid.iter_mut().zip(hca.profile.psid.bytes()) {
        *to = from;
    }
    let half = |bytes: &[u8]| bytes.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    Ok(Output::new(&l::query_adapter_out::LAYOUT)
        .set(l::query_adapter_out::IEEE_VENDOR_ID, MELLANOX_OUI)
        .set(l::query_adapter_out::VSD_VENDOR_ID, MELLANOX_VENDOR)
        .set(l::query_adapter_out::PSID_0, half(&psid[..8]))
        .set(l::query_adapter_out::PSID_1, half(&psid[8..])))
}
