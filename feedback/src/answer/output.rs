//! The receiver's buffers, written from the first to the last.

use std::io::IoSliceMut;

/// Copies as much as there is room for. Apart, so that the compiler makes one `memcpy` of it; that of the standard library may panic.
#[inline(never)]
fn copy(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

pub(super) struct Output<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    at: usize,
}

impl<'a, 'b> Output<'a, 'b> {
    pub(super) const fn new(buffers: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { buffers, at: 0 }
    }

    /// Leaves bytes as they are.
    pub(super) fn skip(&mut self, count: usize) {
        self.forward(count, |_, _| {});
    }

    /// Writes, as far as there is room.
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        self.forward(bytes.len(), |place, count| {
            let (now, later) = bytes.split_at_checked(count).unwrap_or_default();
            copy(place, now);
            bytes = later;
        });
    }

    fn forward(&mut self, mut count: usize, mut pass: impl FnMut(&mut [u8], usize)) {
        while let Some(buffer) = self.buffers.first_mut() {
            let left = buffer.len().saturating_sub(self.at);
            let here = left.min(count);
            if let Some(place) = buffer.get_mut(self.at..).and_then(|rest| rest.get_mut(..here)) {
                pass(place, here);
            }
            self.at = self.at.wrapping_add(here);
            count = count.wrapping_sub(here);
            if count == 0 {
                return;
            }
            self.buffers = std::mem::take(&mut self.buffers).get_mut(1..).unwrap_or_default();
            self.at = 0;
        }
    }
}
