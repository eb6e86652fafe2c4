//! The option of Geneve that the device's parser looks for, as an object of the device.

use std::rc::{Rc, Weak};

use sluice_flow::Cause;
use sluice_flow::field::Field;
use sluice_flow::refusal::Refusal;

use super::refusal::refuse;
use crate::mlx5::{Context, Object};
use crate::translate::GeneveOption;

/// `CREATE_GENERAL_OBJECT` of `GENEVE_TLV_OPT`.
const CREATE_GENERAL_OBJECT: u16 = 0xa00;
const GENEVE_TLV_OPT: u8 = 0x0b;
/// Bytes in front of the object, and of it.
const HEADER: usize = 16;
const OBJECT: usize = 0x40;

/// The device looks for one option at a time (`max_geneve_tlv_options`), from the first matcher that asks for it to the last.
pub(super) struct Options {
    found: Option<(GeneveOption, Weak<Object>)>,
    context: Context,
}

impl Options {
    pub(super) fn new(context: &Context) -> Self {
        Self { found: None, context: context.clone() }
    }

    /// Has the device look for an option until what is returned is dropped. Fails if it looks for another one.
    pub(super) fn look_for(&mut self, option: GeneveOption) -> Result<Rc<Object>, Refusal> {
        if let Some((found, object)) = &self.found
            && let Some(object) = object.upgrade()
        {
            return if *found == option { Ok(object) } else { Err(in_use(*found)) };
        }
        let object = Rc::new(create(&self.context, option)?);
        self.found = Some((option, Rc::downgrade(&object)));
        Ok(object)
    }
}

fn create(context: &Context, GeneveOption { class, kind }: GeneveOption) -> Result<Object, Refusal> {
    let mut input = [0; HEADER + OBJECT];
    input[..2].copy_from_slice(&CREATE_GENERAL_OBJECT.to_be_bytes());
    input[7] = GENEVE_TLV_OPT;
    let [high, low] = class.to_be_bytes();
    let words_of_data = 1;
    input[HEADER + 0xc..][..4].copy_from_slice(&[high, low, kind, words_of_data]);
    Object::create(context, &input, &mut [0; HEADER]).map_err(refuse)
}

fn in_use(GeneveOption { class, kind }: GeneveOption) -> Refusal {
    let reason = format!(
        "the device looks for one option of Geneve at a time, and that of class {class:#x} and type {kind:#x} is in use"
    );
    Refusal::Field { field: Field::GeneveOptions0, reason: reason.into() }.until(Cause::Room)
}
