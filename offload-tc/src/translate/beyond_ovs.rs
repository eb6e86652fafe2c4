//! Fields that flower matches and OVS does not.

use sluice_flow::field::{Attribute, Field};
use sluice_flow::refusal::Refusal;

use super::fields::protocol;
use super::matching::Consumer;
use super::refuse::refuse;
use crate::label::Spelling;
use crate::rule::Caveat;
use crate::wire::flower::CfmMatch;
use crate::wire::key::Key;

impl Consumer<'_> {
    /// Takes the number of tags. Packets have at least as many as are matched one by one, and no more if the type behind the
    /// last one is known.
    pub(super) fn said_number_of_tags(&mut self, count: u8, is_last: bool) -> Result<(), Refusal> {
        let (tags, field) = (usize::from(count), Field::NumOfVlans);
        if tags < self.shape.tags || is_last && tags > self.shape.tags {
            return Err(refuse(field, "it contradicts the tags that are matched"));
        }
        if self.flower.get(Key::NumOfVlans).is_some() {
            return Err(refuse(field, "the match on an absent tag says it already"));
        }
        if self.shape.eth_type.is_none() {
            self.spelling.add(Spelling::NUMBER_OF_TAGS);
        }
        if self.shape.tags == 0 && tags > 0 {
            self.caveats.push(Caveat::TagIsNotCounted);
        }
        self.shape.tags = tags;
        self.number_of_tags(field, count)
    }

    /// Every rule for the PPPoE type requires a PPPoE header, so a match on its presence shows only with a match on its
    /// fields.
    pub(super) fn pppoe(&mut self) -> Result<(), Refusal> {
        let present = self.exact::<u8>(Field::PppoePresent)?;
        let before = self.flower.keys.len();
        self.all_of(Attribute::Pppoe)?;
        let is_matched = self.flower.keys.len() > before;
        match present {
            None if !is_matched => Ok(()),
            Some(1) if is_matched && self.features.pppoe => Ok(()),
            Some(1) if is_matched => {
                Err(refuse(Field::PppoeSession, "this kernel does not match pppoe_sid and ppp_proto (Linux 6.0 does)"))
            }
            Some(1) => Err(refuse(Field::PppoePresent, "flower matches it only by the session or the protocol")),
            Some(_) => Err(refuse(Field::PppoePresent, "its absence cannot be matched")),
            None => Err(refuse(Field::PppoePresent, "a match on the header must match its presence, too")),
        }
    }

    pub(super) fn cfm(&mut self) -> Result<(), Refusal> {
        let found = CfmMatch { level: self.exact(Field::CfmLevel)?, opcode: self.exact(Field::CfmOpcode)? };
        if found == CfmMatch::default() {
            return Ok(());
        }
        if !self.features.cfm {
            let field = if found.level.is_some() { Field::CfmLevel } else { Field::CfmOpcode };
            return Err(refuse(field, "this kernel does not match cfm (Linux 6.5 does)"));
        }
        self.flower.cfm = Some(found);
        Ok(())
    }

    /// Refuses what an old kernel would ignore, or a new one not show again.
    pub(super) fn sessions(&self) -> Result<(), Refusal> {
        let is_matched = |field: Field| self.full.mask.get(field) != 0;
        match self.shape.protocol {
            Some(protocol::L2TP) if is_matched(Field::L2tpv3Session) && !self.features.l2tpv3 => {
                Err(refuse(Field::L2tpv3Session, "this kernel does not match l2tpv3_sid (Linux 6.1 does)"))
            }
            Some(protocol::ESP | protocol::AH) if is_matched(Field::IpsecSpi) && !self.features.spi => {
                Err(refuse(Field::IpsecSpi, "this kernel does not match spi (Linux 6.6 does)"))
            }
            Some(protocol::ESP | protocol::AH)
                if is_matched(Field::IpsecSpi) && self.full.key.get(Field::IpsecSpi) == 0 =>
            {
                Err(refuse(Field::IpsecSpi, "the kernel does not show a match on zeros again (`fl_dump_key`)"))
            }
            _ => Ok(()),
        }
    }
}
