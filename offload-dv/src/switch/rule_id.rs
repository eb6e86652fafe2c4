//! How a rule is named, and what is known of rules by their names.

/// Bits of a name that say which of the counters of a bulk is the rule's.
const INDEX_BITS: u32 = 14;
/// Counters of the largest bulk (`flow_counter_bulk_alloc` of the PRM).
pub(super) const MOST_OF_A_BULK: usize = 1 << INDEX_BITS;

/// The name of a rule that is installed: the place of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub(crate) u32);

impl RuleId {
    /// Returns the name of the rule with a counter of a bulk.
    #[expect(clippy::cast_possible_truncation, reason = "memory has no room for 262,144 bulks")]
    pub(crate) fn of(bulk: usize, index: usize) -> Self {
        Self((bulk << INDEX_BITS | index) as u32)
    }

    /// Returns the bulk of its counter.
    pub(crate) fn bulk(self) -> usize {
        (self.0 >> INDEX_BITS) as usize
    }

    /// Returns the place of its counter in the bulk.
    pub(crate) fn index(self) -> usize {
        self.0 as usize % MOST_OF_A_BULK
    }
}

/// Something for each rule that there may be. What is there stays where it is when bulks are added.
pub(crate) struct ByRule<T> {
    bulks: Vec<Box<[T]>>,
}

impl<T: Default> ByRule<T> {
    /// For no rules yet.
    pub(crate) fn new() -> Self {
        Self { bulks: Vec::new() }
    }

    /// Returns how many bulks there are.
    pub(crate) fn bulks(&self) -> usize {
        self.bulks.len()
    }

    /// Has room for the rules of one more bulk, of that size.
    pub(crate) fn add_bulk(&mut self, size: usize) {
        self.bulks.push(std::iter::repeat_with(T::default).take(size).collect());
    }

    /// Returns what there is for the rules of a bulk.
    pub(crate) fn bulk(&self, bulk: usize) -> &[T] {
        self.bulks.get(bulk).map_or(&[], |bulk| &**bulk)
    }

    /// Returns what there is for a rule; `None` if its bulk is not there.
    pub(crate) fn get(&self, id: RuleId) -> Option<&T> {
        self.bulks.get(id.bulk())?.get(id.index())
    }

    /// Returns what there is for a rule whose bulk is there, to be changed.
    pub(crate) fn get_mut(&mut self, id: RuleId) -> &mut T {
        &mut self.bulks[id.bulk()][id.index()]
    }

    /// Returns the name of the rule after another one; `None` if that may be the last.
    pub(crate) fn after(&self, id: RuleId) -> Option<RuleId> {
        let (beside, behind) = (id.index() + 1, id.bulk() + 1);
        if beside < self.bulk(id.bulk()).len() {
            return Some(RuleId::of(id.bulk(), beside));
        }
        (behind < self.bulks()).then(|| RuleId::of(behind, 0))
    }

    /// Returns all there is, with the names of the rules.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RuleId, &T)> {
        let bulks = self.bulks.iter().enumerate();
        bulks.flat_map(|(bulk, all)| all.iter().enumerate().map(move |(index, found)| (RuleId::of(bulk, index), found)))
    }
}
