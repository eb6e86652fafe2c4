//! The facet for the room that hardware has.

/// Room for rules in hardware, in a device that carries in software those that find none, counts their packets there, and takes
/// [`Operation::Move`](super::Operation::Move). So rules can take turns in hardware.
pub trait Capacity {
    /// Returns how much room there is now. Called once a round of the revalidator.
    fn room(&self) -> Room;

    /// Returns how many rules hardware takes at most, or `None` if it sets no limit. Constant while the device is open.
    fn limit(&self) -> Option<usize>;
}

/// Rules and the room for them in hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// How many more rules fit.
    pub free: usize,
    /// How many are in software because they found no room.
    pub waiting: usize,
}
