//! What goes wrong with a device as a whole, and what programs have in it meanwhile.

use std::collections::BTreeMap;

use nix::errno::Errno;

use super::Device;
use super::state::State;

impl Device {
    /// Tells every program that the device is ill for good, as its driver does that has noticed: an event that comes on its own. What
    /// programs ask for is still carried out, since a driver goes on to take back what they have.
    ///
    /// # Errors
    /// If there is no room for one more event, since a program has not read those before.
    pub fn tell_fatal(&self) -> Result<(), Errno> {
        tell_fatal(&self.state.lock())
    }

    /// The device is dead, and its driver has noticed: programs hear of it, queues stand still, and commands fail with EIO, but for those
    /// that take something back.
    ///
    /// # Errors
    /// As of [`Device::tell_fatal`].
    pub fn die(&self) -> Result<(), Errno> {
        self.hold();
        let mut state = self.state.lock();
        state.hca.die();
        tell_fatal(&state)
    }

    /// The device is taken out, as the kernel tells programs (`ib_uverbs_free_hw_resources`): each hears that it is dead, what they have
    /// made is gone, and every request from now on fails with EIO.
    ///
    /// # Errors
    /// As of [`Device::tell_fatal`].
    pub fn vanish(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let told = tell_fatal(&state);
        state.is_gone = true;
        let contexts: Vec<_> = state.contexts.keys().copied().collect();
        for context in contexts {
            // That they have something is no fault of theirs.
            state.take_back(context);
        }
        told
    }

    /// How many objects there are of each kind: what programs have made by requests, and what of that is in flow tables and beside them.
    #[must_use]
    pub fn census(&self) -> BTreeMap<String, usize> {
        let state = self.state.lock();
        let mut census = BTreeMap::new();
        for object in state.contexts.values().flat_map(|context| context.objects.values()) {
            *census.entry(object.kind()).or_default() += 1;
        }
        let steering = state.hca.steering().census().into_iter().filter(|(_, count)| *count > 0);
        census.extend(steering.map(|(kind, count)| (kind.to_owned(), count)));
        census
    }
}

fn tell_fatal(state: &State) -> Result<(), Errno> {
    const DEVICE_FATAL: u32 = 8;
    // What it is about, of what kind it is, and nothing.
    let mut event = [0; 16];
    event[8..12].copy_from_slice(&DEVICE_FATAL.to_le_bytes());
    let mut events = state.contexts.values().flat_map(|context| &context.events);
    events.try_for_each(|outlet| outlet.put(&event))
}
