//! Numbers to be used again.

/// Numbers for which a list keeps memory, however few it has.
const FEW: usize = 64;

/// A list of them. It gives memory back: all rules may go, and others come.
#[derive(Default)]
pub(crate) struct FreeList(Vec<u32>);

impl FreeList {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, number: u32) {
        self.0.push(number);
    }

    /// The number that was put in last.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let number = self.0.pop();
        if self.0.capacity() / 4 > self.0.len().max(FEW) {
            self.0.shrink_to(self.0.len() * 2);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_many_numbers_that_are_used_again_gives_its_memory_back() {
        let mut list = FreeList::default();
        (0..10_000).for_each(|number| list.push(number));
        for number in (0..10_000).rev() {
            assert_eq!(list.pop(), Some(number));
            let FreeList(numbers) = &list;
            assert!(numbers.capacity() <= 4 * numbers.len().max(FEW) + 3, "{} for {number}", numbers.capacity());
        }
        assert!(list.is_empty() && list.pop().is_none());
    }
}
