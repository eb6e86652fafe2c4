//! What the device says that it can do, beyond what every device with tables for software can.

use sluice_flow::action::ActionKind;
use sluice_flow::refusal::Refusal;

use crate::mlx5::{CallError, Context};
use crate::translate::Plan;
use crate::translate::registers::COLOR;

/// `QUERY_HCA_CAP`, of which the current value is asked.
const QUERY_HCA_CAP: u16 = 0x100;
const CURRENT: u16 = 1;
/// Bytes in front of a page, and of a page.
const HEADER: usize = 16;
const PAGE: usize = 0x1000;
/// Pages: general capabilities, those of the switch's tables, and of the switch itself.
const GENERAL: u16 = 0x0;
const ESWITCH_FLOW_TABLE: u16 = 0x8;
const ESWITCH: u16 = 0x9;

const QUALITY_OF_SERVICE: u16 = 0xc;
/// The first bit of what is said of the switch's own tables (`flow_table_prop_layout_bits`).
const SWITCH: usize = 0x200;

/// Of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// Copies of a packet have its registers (`reg_c_preserve`).
    keeps_registers: bool,
    /// Meters in objects that rules have packets pass come in blocks of so many objects, as a power of two.
    log_meters: Option<u32>,
    /// There are samplers, also for the switch (`log_max_ft_sampler_num`).
    samples: bool,
    /// The switch has the function of an embedded processor (`ecpf_vport_exists`), which manages it then.
    is_embedded: bool,
}

/// The vports of who may manage the switch: an embedded processor's own function, and a host's.
const EMBEDDED: u16 = 0xfffe;
const HOST: u16 = 0;

impl Capabilities {
    pub(super) fn of(context: &Context) -> Result<Self, CallError> {
        const SAMPLER: u32 = 0x20;
        const FLOW_METER_ASO: u32 = 0x24;
        let (general, tables) = (Page::of(context, GENERAL)?, Page::of(context, ESWITCH_FLOW_TABLE)?);
        let objects = u64::from(general.bits(0x400, 32)) << 32 | u64::from(general.bits(0x420, 32));
        let has_meters = objects >> FLOW_METER_ASO & 1 == 1 && tables.bits(SWITCH + 0x46, 1) == 1;
        let log_meters = if has_meters { log_meters(&Page::of(context, QUALITY_OF_SERVICE)?) } else { None };
        Ok(Self {
            log_meters,
            keeps_registers: general.bits(0xa9, 1) == 1,
            samples: objects >> SAMPLER & 1 == 1 && tables.bits(SWITCH + 0x48, 8) > 0,
            is_embedded: Page::of(context, ESWITCH)?.bits(0x1b, 1) == 1,
        })
    }

    /// Returns the vport of the function that manages the switch (`mlx5_eswitch_manager_vport` in the kernel).
    pub(super) fn manager(self) -> u16 {
        if self.is_embedded { EMBEDDED } else { HOST }
    }

    /// Returns in blocks of how many objects meters come, as a power of two; `None` if the device has none.
    pub(super) fn log_meters(self) -> Option<u32> {
        self.log_meters
    }

    /// Says why a device cannot do what a plan wants.
    pub(super) fn check(self, plan: &Plan) -> Result<(), Refusal> {
        let cannot = |action, reason: &'static str| Err(Refusal::Action { action, reason: reason.into() });
        if plan.sampling.is_some() && !self.samples {
            return cannot(ActionKind::Sample, "this device has no samplers");
        }
        let places = plan.behind.len() + plan.outputs.len() + usize::from(plan.sampling.is_some());
        if !plan.behind.is_empty() && places > 1 && !self.keeps_registers {
            // By which the rules behind know it.
            return cannot(ActionKind::Output, "on this device, a packet loses its registers where it is copied");
        }
        plan.behind.iter().try_for_each(|plan| self.check(plan))
    }
}

/// In blocks of how many objects meters come, if they give packets their color where rules look for it.
fn log_meters(page: &Page) -> Option<u32> {
    let (registers, log) = (page.bits(0x18, 8), page.bits(0x123, 5));
    (registers >> COLOR.register() & 1 == 1).then_some(log)
}

/// What a device tells of some capabilities.
struct Page([u8; HEADER + PAGE]);

impl Page {
    fn of(context: &Context, number: u16) -> Result<Self, CallError> {
        let mut input = [0; HEADER];
        input[..2].copy_from_slice(&QUERY_HCA_CAP.to_be_bytes());
        input[6..8].copy_from_slice(&(number << 1 | CURRENT).to_be_bytes());
        let mut output = [0; HEADER + PAGE];
        context.command(&input, &mut output)?;
        Ok(Self(output))
    }

    /// Returns so many bits, of at most 32 and within a word of as many, from bit `at` on.
    fn bits(&self, at: usize, width: usize) -> u32 {
        let word = self.0[HEADER..].as_chunks::<4>().0.get(at / 32).copied().unwrap_or_default();
        u32::from_be_bytes(word) >> (32 - at % 32 - width) & u32::MAX >> (32 - width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::Sampling;

    #[test]
    fn what_a_device_lacks_is_the_reason_that_it_refuses_with() {
        let samples = Plan { sampling: Some(Sampling { ratio: 2, outputs: vec![1] }), ..Plan::default() };
        let behind = Plan { outputs: vec![0], behind: vec![samples], ..Plan::default() };
        let all = Capabilities { keeps_registers: true, log_meters: None, samples: true, is_embedded: true };
        assert_eq!(all.check(&behind), Ok(()));
        let reason = |of: Capabilities| of.check(&behind).unwrap_err().to_string();
        assert_eq!(reason(Capabilities { samples: false, ..all }), "action sample: this device has no samplers");
        assert_eq!(
            reason(Capabilities { keeps_registers: false, ..all }),
            "action output: on this device, a packet loses its registers where it is copied"
        );
    }
}
