//! What the device says that it can do, beyond what every device with tables for software can.

use sluice_flow::action::ActionKind;
use sluice_flow::refusal::Refusal;

use crate::mlx5::{CallError, Context};
use crate::translate::Plan;

/// `QUERY_HCA_CAP`, of which the current value is asked.
const QUERY_HCA_CAP: u16 = 0x100;
const CURRENT: u16 = 1;
/// Bytes in front of a page, and of a page.
const HEADER: usize = 16;
const PAGE: usize = 0x1000;
/// Pages: general capabilities, and those of the switch's tables.
const GENERAL: u16 = 0x0;
const ESWITCH_FLOW_TABLE: u16 = 0x8;

/// Of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// Copies of a packet have its registers (`reg_c_preserve`).
    keeps_registers: bool,
    /// There are samplers, also for the switch (`log_max_ft_sampler_num`).
    samples: bool,
}

impl Capabilities {
    pub(super) fn of(context: &Context) -> Result<Self, CallError> {
        const SAMPLER: u32 = 0x20;
        let (general, tables) = (Page::of(context, GENERAL)?, Page::of(context, ESWITCH_FLOW_TABLE)?);
        let objects = u64::from(general.bits(0x400, 32)) << 32 | u64::from(general.bits(0x420, 32));
        Ok(Self {
            keeps_registers: general.bits(0xa9, 1) == 1,
            // Of `flow_table_prop_layout_bits` of the switch.
            samples: objects >> SAMPLER & 1 == 1 && tables.bits(0x200 + 0x48, 8) > 0,
        })
    }

    /// Says why a device cannot do what a plan wants.
    pub(super) fn check(self, plan: &Plan) -> Result<(), Refusal> {
        let cannot = |action, reason: &'static str| Err(Refusal::Action { action, reason: reason.into() });
        if plan.sampling.is_some() && !self.samples {
            return cannot(ActionKind::Sample, "this device has no samplers");
        }
        if !plan.behind.is_empty() && !self.keeps_registers {
            // By which the rules behind know it.
            return cannot(ActionKind::Output, "on this device, a packet loses its registers where it is copied");
        }
        plan.behind.iter().try_for_each(|plan| self.check(plan))
    }
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
        let all = Capabilities { keeps_registers: true, samples: true };
        assert_eq!(all.check(&behind), Ok(()));
        let reason = |of: Capabilities| of.check(&behind).unwrap_err().to_string();
        assert_eq!(reason(Capabilities { samples: false, ..all }), "action sample: this device has no samplers");
        assert_eq!(
            reason(Capabilities { keeps_registers: false, ..all }),
            "action output: on this device, a packet loses its registers where it is copied"
        );
    }
}
