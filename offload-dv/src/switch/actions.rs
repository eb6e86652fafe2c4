//! The actions of rules, each made once for all rules that do the same.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::rc::Rc;

use sluice_flow::refusal::Refusal;

use super::refusal::refuse;
use crate::mlx5::{Action, CallError, Domain, Library, Reformat};
use crate::translate::{Plan, Sampling, Tag};

/// The actions of an eswitch.
pub(super) struct Actions {
    made: HashMap<Kind, Action>,
    leading: HashMap<Leading, Action>,
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
}

/// What an action does that may lead to rules behind, in tables of these levels.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Leading {
    Copies(Vec<u16>, Vec<u32>),
    Sample(Sampling, u32),
}

impl Actions {
    pub(super) fn new(library: &Rc<Library>, domain: &Domain) -> Self {
        Self { made: HashMap::new(), leading: HashMap::new(), library: library.clone(), domain: domain.clone() }
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
        if let Some(sampling) = &plan.sampling
            && let [(level, table)] = behind
        {
            list.push(self.sample(sampling, *level, table)?);
            return Ok(list.into());
        }
        list.push(match (jump, &plan.outputs[..], behind) {
            (Some(jump), ..) => jump,
            (None, [], []) => self.get(Kind::Drop)?,
            (None, [vport], []) => self.get(Kind::Output(*vport))?,
            (None, [], [(_, table)]) => table.clone(),
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
        let Self { leading, domain, .. } = self;
        get_or(leading, Leading::Copies(vports.clone(), levels), || {
            let all = to_vports(domain, &vports).chain(tables.into_iter().map(Ok));
            Action::to_all(domain, all.collect::<Result<_, _>>()?)
        })
    }

    fn sample(&mut self, sampling: &Sampling, level: u32, behind: &Action) -> Result<Action, Refusal> {
        let Self { leading, domain, .. } = self;
        get_or(leading, Leading::Sample(sampling.clone(), level), || {
            let samples = to_vports(domain, &sampling.outputs).collect::<Result<_, _>>()?;
            Action::sample(sampling.ratio, samples, behind)
        })
    }

    fn get(&mut self, kind: Kind) -> Result<Action, Refusal> {
        let Self { made, library, domain, .. } = self;
        get_or(made, kind.clone(), || make(&kind, library, domain))
    }

    /// Lets those go that no rule has any more.
    pub(super) fn prune(&mut self) {
        self.made.retain(|_, action| action.is_shared());
        self.leading.retain(|_, action| action.is_shared());
    }
}

/// Returns an action that was made before, or makes it.
fn get_or<K: Eq + Hash>(
    made: &mut HashMap<K, Action>,
    kind: K,
    make: impl FnOnce() -> Result<Action, CallError>,
) -> Result<Action, Refusal> {
    Ok(match made.entry(kind) {
        Entry::Occupied(found) => found.get().clone(),
        Entry::Vacant(place) => place.insert(make().map_err(refuse)?).clone(),
    })
}

fn make(kind: &Kind, library: &Rc<Library>, domain: &Domain) -> Result<Action, CallError> {
    match kind {
        Kind::Drop => Action::drop_packets(library),
        Kind::Unwrap => Action::reformat(domain, Reformat::L2TunnelToL2, &[]),
        Kind::Wrap(headers) => Action::reformat(domain, Reformat::L2ToL2Tunnel, headers),
        Kind::PopVlan => Action::pop_vlan(library),
        Kind::PushVlan(tag) => Action::push_vlan(domain, tag.tpid, tag.tci),
        Kind::Modify(words) => Action::modify_header(domain, words),
        Kind::Output(vport) => Action::to_vport(domain, *vport),
    }
}

fn to_vports(domain: &Domain, vports: &[u16]) -> impl Iterator<Item = Result<Action, CallError>> {
    vports.iter().map(|vport| Action::to_vport(domain, *vport))
}
