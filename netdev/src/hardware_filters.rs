//! Filters that a driver has taken over: packets that they match do not reach the kernel.

use crate::control::Control;
use crate::device::Ifindex;
use crate::error::LinkError;
use crate::ingress::{GET_FILTER, all};
use crate::netlink::attribute::{Attributes, Malformed};
use crate::touched_filters::Attachment;
use crate::traffic_control::{TcHeader, TcView};

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// The classifiers that NICs take over, and where each has its flags (`TCA_FLOWER_FLAGS`, `TCA_MATCHALL_FLAGS`).
const FLAGS: [(&str, u16); 2] = [("flower", 22), ("matchall", 3)];
/// `TCA_CLS_FLAGS_IN_HW`
const IN_HARDWARE: u32 = 1 << 2;

/// Returns at which of some devices there are filters that hardware has, and how many.
pub fn filters_in_hardware(control: &mut Control, devices: &[Ifindex]) -> Result<Vec<(Ifindex, usize)>, LinkError> {
    let mut found = Vec::new();
    for (ifindex, qdisc) in all(control)?.into_iter().filter(|(ifindex, _)| devices.contains(ifindex)) {
        let mut filters = 0;
        for attachment in qdisc.attachments(ifindex) {
            filters += count(control, attachment)?;
        }
        if filters > 0 {
            found.push((ifindex, filters));
        }
    }
    Ok(found)
}

fn count(control: &mut Control, attachment: Attachment) -> Result<usize, LinkError> {
    let (ifindex, parent) = attachment.index_and_parent();
    control.dump(
        "list filters",
        GET_FILTER,
        |writer| TcHeader { ifindex, parent, ..TcHeader::default() }.emit(writer),
        |filters: &mut usize, message| {
            *filters += usize::from(is_in_hardware(&TcView::new(message.payload)?)?);
            Ok(())
        },
    )
}

fn is_in_hardware(filter: &TcView<'_>) -> Result<bool, Malformed> {
    let (mut kind, mut options) = (None, None);
    for attribute in filter.attributes() {
        let attribute = attribute?;
        match attribute.kind {
            KIND => kind = Some(attribute.text()?),
            OPTIONS => options = Some(attribute.nested("filter options")),
            _ => {}
        }
    }
    let place = FLAGS.into_iter().find(|(name, _)| kind == Some(*name));
    let (Some((_, place)), Some(options)) = (place, options) else { return Ok(false) };
    flags(options, place).map(|flags| flags & IN_HARDWARE != 0)
}

fn flags(options: Attributes<'_>, place: u16) -> Result<u32, Malformed> {
    for option in options {
        let option = option?;
        if option.kind == place {
            return option.u32();
        }
    }
    Ok(0)
}
