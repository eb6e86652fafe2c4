//! What libmlx5's errors mean.

use sluice_flow::Cause;
use sluice_flow::action::ActionKind;
use sluice_flow::field::Field;
use sluice_flow::refusal::Refusal;

use crate::mlx5::CallError;
use crate::translate::{Template, UPLINK};

/// What a call that libmlx5 or the device refused means for a flow.
pub(super) fn refuse(error: CallError) -> Refusal {
    const ENOMEM: i32 = 12;
    const EINVAL: i32 = 22;
    const ENOSPC: i32 = 28;
    const EOPNOTSUPP: i32 = 95;
    if let Some(answer) = error.answer {
        let refusal = Refusal::Device { reason: error.to_string().into() };
        return if answer.is_for_want_of_room() { refusal.until(Cause::Room) } else { refusal };
    }
    match error.source.raw_os_error() {
        // What it says of masks and lists of actions that it has no entries for.
        Some(EINVAL | EOPNOTSUPP) => {
            Refusal::Combination { reason: format!("libmlx5 does not take it: {error}").into() }
        }
        Some(ENOMEM | ENOSPC) => Refusal::Device { reason: error.to_string().into() }.until(Cause::Room),
        _ => Refusal::Device { reason: error.to_string().into() },
    }
}

/// The same in the words of the flow, where it is known what libmlx5 does not take: entries of format 0 (ConnectX-5) take tags off
/// only on the way in, and put them on only on the way out (`DR_STE_CTX_ACTION_CAP_*`).
pub(super) fn explain(refusal: Refusal, template: &Template) -> Refusal {
    let from = template.from();
    let refuse = |action, reason: &'static str| Refusal::Action { action, reason: reason.into() };
    let is_from_uplink = from.is_none_or(|vport| vport == UPLINK);
    let (takes_off, puts_on) = (template.plan.takes_tags_off(), template.plan.puts_tags_on());
    match refusal {
        Refusal::Combination { .. } if template.asks_for_option() => Refusal::Field {
            field: Field::GeneveOptions0,
            reason: "this device does not tell an option of zeros from none".into(),
        },
        Refusal::Combination { .. } if takes_off && puts_on && is_from_uplink => refuse(
            ActionKind::PushVlan,
            "a tag is taken off before, and libmlx5 does not do both to packets from the uplink",
        ),
        Refusal::Combination { .. } if takes_off && from != Some(UPLINK) => {
            refuse(ActionKind::PopVlan, "this device takes tags off packets from the uplink only")
        }
        Refusal::Combination { .. } if puts_on && is_from_uplink => {
            refuse(ActionKind::PushVlan, "this device puts tags on packets from functions only")
        }
        other => other,
    }
}
