//! The actions of rules, each made once for all rules that do the same.

use std::collections::HashMap;
use std::rc::Rc;

use sluice_flow::refusal::Refusal;

use super::refusal::refuse;
use crate::mlx5::{Action, CallError, Destination, Domain, Library, Reformat};
use crate::translate::{Plan, Tag};

/// The actions of an eswitch.
pub(super) struct Actions {
    made: HashMap<Kind, Action>,
    library: Rc<Library>,
    domain: Domain,
}

/// What an action does.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Kind {
    Drop,
    Unwrap,
    PopVlan,
    PushVlan(Tag),
    Modify(Box<[u64]>),
    Wrap(Box<[u8]>),
    Output(u16),
    /// To vports, and to rules behind in tables of these levels.
    Copies(Vec<u16>, Vec<u32>),
}

impl Actions {
    pub(super) fn new(library: &Rc<Library>, domain: &Domain) -> Self {
        Self { made: HashMap::new(), library: library.clone(), domain: domain.clone() }
    }

    /// Returns the actions of a rule besides counting, in the order that libmlx5 takes. It rewrites with `note`, too, and leads where
    /// `jump` does, and to rules behind, by the levels of their tables.
    pub(super) fn list(
        &mut self,
        plan: &Plan,
        jump: Option<Action>,
        behind: &[(u32, Action)],
        note: &[u64],
    ) -> Result<Box<[Action]>, Refusal> {
        let mut list = Vec::new();
        if plan.unwraps {
            list.push(self.get(Kind::Unwrap)?);
        }
        for _ in 0..plan.pops {
            list.push(self.get(Kind::PopVlan)?);
        }
        if !note.is_empty() {
            // Nobody else does the same.
            list.push(Action::modify_header(&self.domain, &[&plan.modifications, note].concat()).map_err(refuse)?);
        } else if !plan.modifications.is_empty() {
            list.push(self.modify(plan.modifications.clone())?);
        }
        for tag in &plan.pushes {
            list.push(self.get(Kind::PushVlan(*tag))?);
        }
        if let Some(wrapping) = &plan.wraps {
            list.push(self.get(Kind::Wrap(wrapping.headers.clone()))?);
        }
        list.push(match (jump, &plan.outputs[..], behind) {
            (Some(jump), ..) => jump,
            (None, [], []) => self.get(Kind::Drop)?,
            (None, [vport], []) => self.get(Kind::Output(*vport))?,
            (None, vports, behind) => self.copies(vports, behind)?,
        });
        Ok(list.into())
    }

    /// Returns the action that rewrites.
    pub(super) fn modify(&mut self, words: Box<[u64]>) -> Result<Action, Refusal> {
        self.get(Kind::Modify(words))
    }

    /// Returns the actions of a rule that changes packets and sends them to a vport.
    pub(super) fn rewrite_and_send(&mut self, words: Box<[u64]>, vport: u16) -> Result<Box<[Action]>, Refusal> {
        Ok([self.modify(words)?, self.get(Kind::Output(vport))?].into())
    }

    /// Returns those of a rule that drops packets.
    pub(super) fn drop_all(&mut self) -> Result<Box<[Action]>, Refusal> {
        Ok([self.get(Kind::Drop)?].into())
    }

    fn copies(&mut self, vports: &[u16], behind: &[(u32, Action)]) -> Result<Action, Refusal> {
        let mut vports = vports.to_vec();
        vports.sort_unstable();
        let (levels, tables): (Vec<_>, Vec<_>) = behind.iter().cloned().unzip();
        self.get_leading_to(Kind::Copies(vports, levels), &tables)
    }

    fn get(&mut self, kind: Kind) -> Result<Action, Refusal> {
        self.get_leading_to(kind, &[])
    }

    fn get_leading_to(&mut self, kind: Kind, tables: &[Action]) -> Result<Action, Refusal> {
        if let Some(action) = self.made.get(&kind) {
            return Ok(action.clone());
        }
        let action = self.make(&kind, tables).map_err(refuse)?;
        self.made.insert(kind, action.clone());
        Ok(action)
    }

    fn make(&self, kind: &Kind, tables: &[Action]) -> Result<Action, CallError> {
        match kind {
            Kind::Drop => Action::drop_packets(&self.library),
            Kind::Unwrap => Action::reformat(&self.domain, Reformat::L2TunnelToL2, &[]),
            Kind::Wrap(headers) => Action::reformat(&self.domain, Reformat::L2ToL2Tunnel, headers),
            Kind::PopVlan => Action::pop_vlan(&self.library),
            Kind::PushVlan(tag) => Action::push_vlan(&self.domain, tag.tpid, tag.tci),
            Kind::Modify(words) => Action::modify_header(&self.domain, words),
            Kind::Output(vport) => Action::to_vport(&self.domain, *vport),
            Kind::Copies(vports, _) => {
                let vports = vports.iter().map(|vport| Action::to_vport(&self.domain, *vport));
                let all = vports.chain(tables.iter().cloned().map(Ok));
                let all = all.map(|to| Ok(Destination { to: to?, reformat: None }));
                Action::to_all(&self.domain, all.collect::<Result<_, _>>()?)
            }
        }
    }

    /// Lets those go that no rule has any more.
    pub(super) fn prune(&mut self) {
        self.made.retain(|_, action| action.is_shared());
    }
}
