//! A list of which every version shares with the one before what is equal in both.
//!
//! Readers walk a version while the next one is made. Of ten thousand entries, to copy all for a change to one would take longer than all
//! else that the change takes.

use std::ops::Index;
use std::sync::Arc;

/// Entries that are copied for a change to one of them.
const CHUNK: usize = 64;

/// Entries in their order, in chunks of which each is full but the last.
pub(super) struct Entries<T> {
    chunks: Vec<Arc<[T]>>,
    len: usize,
}

impl<T: Clone> Entries<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&T> {
        self.chunks.first()?.first()
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// How many entries there are in front of the first that is not so, and behind which none is.
    pub(super) fn partition_point(&self, mut is_so: impl FnMut(&T) -> bool) -> usize {
        let chunk = self.chunks.partition_point(|chunk| chunk.last().is_some_and(&mut is_so));
        self.chunks.get(chunk).map_or(self.len, |rest| chunk * CHUNK + rest.partition_point(is_so))
    }

    /// Puts an entry at a place; those that are there move on.
    pub(super) fn insert(&mut self, place: usize, entry: T) {
        self.change_from(place, |rest| rest.insert(0, entry));
    }

    /// Takes an entry out; those behind it move up.
    pub(super) fn remove(&mut self, place: usize) {
        self.change_from(place, |rest| drop(rest.remove(0)));
    }

    /// Takes an entry out; the last one takes its place.
    pub(super) fn swap_remove(&mut self, place: usize) {
        let last = self.len - 1;
        self.replace(place, self[last].clone());
        self.remove(last);
    }

    /// Puts another entry in the place of one.
    pub(super) fn replace(&mut self, place: usize, entry: T) {
        let chunk = &mut self.chunks[place / CHUNK];
        let mut changed = chunk.to_vec();
        changed[place % CHUNK] = entry;
        *chunk = changed.into();
    }

    /// Changes what there is from a place on.
    fn change_from(&mut self, place: usize, change: impl FnOnce(&mut Vec<T>)) {
        let first = place / CHUNK;
        let behind: Vec<T> =
            self.chunks.drain(first.min(self.chunks.len())..).flat_map(|chunk| chunk.to_vec()).collect();
        let (before, rest) = behind.split_at(place % CHUNK);
        let (mut all, mut rest) = (before.to_vec(), rest.to_vec());
        change(&mut rest);
        all.extend(rest);
        self.len = first * CHUNK + all.len();
        self.chunks.extend(all.chunks(CHUNK).map(Arc::from));
    }
}

impl<T: Clone> FromIterator<T> for Entries<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let all: Vec<T> = entries.into_iter().collect();
        Self { chunks: all.chunks(CHUNK).map(Arc::from).collect(), len: all.len() }
    }
}

impl<T> Index<usize> for Entries<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: usize) -> &T {
        &self.chunks[place / CHUNK][place % CHUNK]
    }
}

impl<T> Clone for Entries<T> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_list_that_a_vector_would_be_whatever_is_done_with_it() {
        let (mut entries, mut model) = (Entries::default(), Vec::new());
        let mut state = 7usize;
        for round in 0..3_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = (state >> 33) % (model.len() + 1);
            match (state >> 20) % 8 {
                0 if place < model.len() => {
                    entries.remove(place);
                    model.remove(place);
                }
                1 | 2 if place < model.len() => {
                    entries.replace(place, round);
                    model[place] = round;
                }
                4 if place < model.len() => {
                    entries.swap_remove(place);
                    model.swap_remove(place);
                }
                5 => {
                    entries.insert(model.len(), round);
                    model.push(round);
                }
                _ => {
                    entries.insert(place, round);
                    model.insert(place, round);
                }
            }
            assert_eq!((entries.len(), entries.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(entries.first(), model.first());
            assert!(model.get(place).is_none_or(|entry| entries[place] == *entry));
        }
        assert!(model.len() > 4 * CHUNK);
        assert!(entries.iter().eq(&model));
        model.sort_unstable();
        let sorted: Entries<_> = model.iter().copied().collect();
        for limit in [0, 1, 500, 1_500, 2_999, 3_000] {
            let expected = model.partition_point(|entry| *entry < limit);
            assert_eq!(sorted.partition_point(|entry| *entry < limit), expected, "{limit}");
        }
    }

    #[test]
    fn a_change_to_one_entry_copies_one_chunk() {
        let before: Entries<usize> = (0..1_000).collect();
        let mut after = before.clone();
        after.replace(500, 0);
        let shared = before.chunks.iter().zip(&after.chunks).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
        assert_eq!(shared, before.chunks.len() - 1);
        assert_eq!((before[500], after[500]), (500, 0));
    }
}
