//! Objects by id, with who owns them and how often they are used.

use std::collections::BTreeMap;

use super::failure::Refusal;

/// The user context whose tables all user contexts may lead packets to.
pub const SHARED_UID: u16 = 0xffff;

/// Objects of one kind.
#[derive(Debug)]
pub(super) struct Objects<T> {
    what: &'static str,
    limit: usize,
    next: u32,
    by_id: BTreeMap<u32, Object<T>>,
}

#[derive(Debug)]
struct Object<T> {
    /// The DevX user context that made it; 0 is the kernel.
    uid: u16,
    uses: u32,
    value: T,
}

/// Ids have 24 bits.
const LAST_ID: u32 = 0xff_ffff;

impl<T> Objects<T> {
    pub(super) fn new(what: &'static str, limit: usize) -> Self {
        Self { what, limit: limit.min(0xff_0000), next: 1, by_id: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, uid: u16, value: T) -> Result<u32, Refusal> {
        if self.by_id.len() >= self.limit {
            return Err(Refusal::Full { what: self.what, limit: self.limit });
        }
        // Old ids come back as late as possible, so that a stale one is found out.
        let mut id = self.next;
        while self.by_id.contains_key(&id) {
            id = if id == LAST_ID { 1 } else { id + 1 };
        }
        self.next = if id == LAST_ID { 1 } else { id + 1 };
        self.by_id.insert(id, Object { uid, uses: 0, value });
        Ok(id)
    }

    /// A user context sees its own objects, and the kernel all.
    pub(super) fn seen_by(&self, uid: u16, id: u32) -> Result<&T, Refusal> {
        match self.by_id.get(&id) {
            Some(object) if uid == 0 || object.uid == uid => Ok(&object.value),
            _ => Err(self.unknown(id)),
        }
    }

    /// What a user context may name without changing it: besides what it sees, what is shared.
    pub(super) fn named_by(&self, uid: u16, id: u32) -> Result<&T, Refusal> {
        match self.by_id.get(&id) {
            Some(object) if object.uid == SHARED_UID => Ok(&object.value),
            _ => self.seen_by(uid, id),
        }
    }

    pub(super) fn seen_by_mut(&mut self, uid: u16, id: u32) -> Result<&mut T, Refusal> {
        let unknown = self.unknown(id);
        match self.by_id.get_mut(&id) {
            Some(object) if uid == 0 || object.uid == uid => Ok(&mut object.value),
            _ => Err(unknown),
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.by_id.get(&id).map(|object| &object.value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.by_id.iter().map(|(id, object)| (*id, &object.value))
    }

    /// Refuses while the object is in use.
    pub(super) fn remove(&mut self, uid: u16, id: u32) -> Result<T, Refusal> {
        self.seen_by(uid, id)?;
        let uses = self.uses(id);
        if uses > 0 {
            return Err(Refusal::InUse { what: self.what, id, uses });
        }
        self.by_id.remove(&id).map(|object| object.value).ok_or_else(|| self.unknown(id))
    }

    pub(super) fn uses(&self, id: u32) -> u32 {
        self.by_id.get(&id).map_or(0, |object| object.uses)
    }

    pub(super) fn hold(&mut self, id: u32) {
        if let Some(object) = self.by_id.get_mut(&id) {
            object.uses += 1;
        }
    }

    pub(super) fn release(&mut self, id: u32) {
        if let Some(object) = self.by_id.get_mut(&id) {
            object.uses = object.uses.saturating_sub(1);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    fn unknown(&self, id: u32) -> Refusal {
        Refusal::Unknown { what: self.what, id }
    }
}
