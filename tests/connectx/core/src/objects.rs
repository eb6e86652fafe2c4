//! What the driver has created: identifiers, who uses whom, and what is left at the end.

use std::collections::BTreeMap;
use std::fmt;

use crate::command::{Failure, Status};

/// A kind of object with identifiers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Page of doorbells.
    Uar,
    /// Event queue.
    Eq,
    /// Protection domain.
    Pd,
    /// Transport domain.
    TransportDomain,
    /// Memory key.
    Mkey,
    /// Completion queue.
    Cq,
    /// Transport interface, send side.
    Tis,
    /// Transport interface, receive side.
    Tir,
    /// Table of receive queues.
    Rqt,
    /// Send queue.
    Sq,
    /// Receive queue.
    Rq,
    /// Set of queue counters.
    QCounter,
    /// Queue pair.
    Qp,
    /// Memory of a program, known to the device.
    Umem,
    /// Program that uses the device past its driver.
    UserContext,
    /// Domain of receive queues that connections share (XRC).
    Xrcd,
    /// Receive queue in such a domain.
    XrcSrq,
    /// Receive memory that queues share.
    Rmp,
}

impl Kind {
    /// Identifiers that are given: from the first on, in turns, so that a stale one is not soon somebody else's.
    fn identifiers(self) -> std::ops::Range<u32> {
        match self {
            // Pages below are the initialization segment and the tables of MSI-X.
            Self::Uar => 16..4096,
            Self::Eq => 4..128,
            Self::QCounter => 1..256,
            Self::UserContext => 1..1 << 16,
            // Linux finds shared receive queues of both kinds by one number.
            Self::XrcSrq => 16..1 << 19,
            Self::Rmp => 1 << 19..1 << 20,
            // A doorbell has one number for queues of both kinds.
            Self::Sq => 16..1 << 19,
            Self::Qp => 1 << 19..1 << 20,
            _ => 16..1 << 20,
        }
    }

    /// What messages call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uar => "UAR",
            Self::Eq => "EQ",
            Self::Pd => "PD",
            Self::TransportDomain => "transport domain",
            Self::Mkey => "mkey",
            Self::Cq => "CQ",
            Self::Tis => "TIS",
            Self::Tir => "TIR",
            Self::Rqt => "RQT",
            Self::Sq => "SQ",
            Self::Rq => "RQ",
            Self::QCounter => "Q counter",
            Self::Qp => "QP",
            Self::Umem => "umem",
            Self::UserContext => "user context",
            Self::Xrcd => "XRC domain",
            Self::XrcSrq => "XRC SRQ",
            Self::Rmp => "RMP",
        }
    }
}

/// An object: its kind and its identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Of what kind.
    pub kind: Kind,
    /// Which of them.
    pub id: u32,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x}", self.kind.name(), self.id)
    }
}

/// All objects that exist.
#[derive(Debug, Default)]
pub struct Objects {
    live: BTreeMap<Name, Object>,
    /// What general objects use, which have numbers of their own: by type and number.
    general: BTreeMap<(u16, u32), Vec<Name>>,
    next: BTreeMap<Kind, u32>,
}

#[derive(Debug, Default)]
struct Object {
    uses: Vec<Name>,
    users: u32,
}

impl Objects {
    /// Makes an object that uses others: they cannot go before it does.
    ///
    /// # Errors
    /// If one of them does not exist, or no identifier is left.
    pub fn create(&mut self, kind: Kind, uses: Vec<Name>) -> Result<u32, Failure> {
        for name in &uses {
            self.check(name.kind, name.id)?;
        }
        let range = kind.identifiers();
        let next = self.next.entry(kind).or_insert(range.start);
        let id =
            (*next..range.end).chain(range.start..*next).find(|id| !self.live.contains_key(&Name { kind, id: *id }));
        let Some(id) = id else {
            return Err(Failure::new(Status::NoResources, 0x0b01, format!("no {} is left", kind.name())));
        };
        *next = if id + 1 == range.end { range.start } else { id + 1 };
        self.hold(&uses);
        self.live.insert(Name { kind, id }, Object { uses, users: 0 });
        Ok(id)
    }

    /// Takes an object away.
    ///
    /// # Errors
    /// If it does not exist, or another one uses it.
    pub fn destroy(&mut self, kind: Kind, id: u32) -> Result<(), Failure> {
        let name = self.check(kind, id)?;
        let users = self.live.get(&name).map_or(0, |object| object.users);
        if users > 0 {
            return Err(Failure::new(Status::ResourceBusy, 0x0b02, format!("{name} has {users} users")));
        }
        if let Some(object) = self.live.remove(&name) {
            self.release(&object.uses);
        }
        Ok(())
    }

    /// Has an object use others instead of those that it uses.
    ///
    /// # Errors
    /// If it or one of them does not exist; then nothing has changed.
    pub fn change(&mut self, kind: Kind, id: u32, uses: Vec<Name>) -> Result<(), Failure> {
        let name = self.check(kind, id)?;
        for other in &uses {
            self.check(other.kind, other.id)?;
        }
        self.hold(&uses);
        let former = self.live.get_mut(&name).map(|object| std::mem::replace(&mut object.uses, uses));
        self.release(&former.unwrap_or_default());
        Ok(())
    }

    /// Has an object use another one instead of that of its kind that it uses, if any.
    ///
    /// # Errors
    /// If it or the other one does not exist; then nothing has changed.
    pub fn exchange(&mut self, kind: Kind, id: u32, other: Name) -> Result<(), Failure> {
        let name = self.check(kind, id)?;
        let mut uses = self.live.get(&name).map(|object| object.uses.clone()).unwrap_or_default();
        uses.retain(|used| used.kind != other.kind);
        uses.push(other);
        self.change(kind, id, uses)
    }

    /// A general object has come that uses another one, which exists: that cannot go before it does.
    pub fn hold_by_general(&mut self, general: (u16, u32), other: Name) {
        self.hold(&[other]);
        self.general.entry(general).or_default().push(other);
    }

    /// A general object has gone.
    pub fn release_by_general(&mut self, general: (u16, u32)) {
        let uses = self.general.remove(&general).unwrap_or_default();
        self.release(&uses);
    }

    /// The object's name, if it exists.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&self, kind: Kind, id: u32) -> Result<Name, Failure> {
        let name = Name { kind, id };
        if self.live.contains_key(&name) {
            return Ok(name);
        }
        Err(Failure::new(Status::BadResource, 0x0b03, format!("there is no {name}")))
    }

    /// All that exist.
    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.live.keys().copied()
    }

    fn hold(&mut self, uses: &[Name]) {
        for name in uses {
            if let Some(object) = self.live.get_mut(name) {
                object.users += 1;
            }
        }
    }

    fn release(&mut self, uses: &[Name]) {
        for name in uses {
            if let Some(object) = self.live.get_mut(name) {
                object.users -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_cannot_go() {
        let mut objects = Objects::default();
        let pd = objects.create(Kind::Pd, vec![]).unwrap();
        let key = objects.create(Kind::Mkey, vec![Name { kind: Kind::Pd, id: pd }]).unwrap();
        assert_eq!(objects.destroy(Kind::Pd, pd).unwrap_err().status, Status::ResourceBusy);
        objects.destroy(Kind::Mkey, key).unwrap();
        objects.destroy(Kind::Pd, pd).unwrap();
        assert_eq!(objects.names().count(), 0);
    }

    #[test]
    fn what_never_was_cannot_be_used_or_destroyed() {
        let mut objects = Objects::default();
        let stranger = Name { kind: Kind::Cq, id: 77 };
        assert_eq!(objects.create(Kind::Sq, vec![stranger]).unwrap_err().status, Status::BadResource);
        assert_eq!(objects.destroy(Kind::Cq, 77).unwrap_err().status, Status::BadResource);
    }

    #[test]
    fn identifiers_come_back_only_after_all_others() {
        let mut objects = Objects::default();
        let first = objects.create(Kind::QCounter, vec![]).unwrap();
        objects.destroy(Kind::QCounter, first).unwrap();
        for _ in 0..254 {
            assert_ne!(objects.create(Kind::QCounter, vec![]).unwrap(), first);
        }
        assert_eq!(objects.create(Kind::QCounter, vec![]).unwrap(), first);
        assert_eq!(objects.create(Kind::QCounter, vec![]).unwrap_err().status, Status::NoResources);
    }
}
