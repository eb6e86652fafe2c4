//! What the agent is told about the device.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sluice_flow::backend::{DeviceEvent, EventSender, EventStream, LostRule};
use sluice_flow::cause::Cause;
use sluice_flow::port::PortNumber;
use sluice_flow::time::Timestamp;

/// At most this many events are queued for an agent that does not listen; further ones become a single reset.
const KEPT: usize = 1024;

/// The channel to the agent, which never blocks.
pub(super) struct Events {
    sender: EventSender,
    stream: EventStream,
    /// Something could not be sent.
    is_reset_owed: AtomicBool,
    /// A reset was sent, and the agent has not resynchronised since.
    is_reset_told: AtomicBool,
    /// Ports whose change could not be sent.
    ports_owed: Mutex<BTreeSet<PortNumber>>,
    /// Lost rules that could not be sent.
    rules_owed: Mutex<Vec<LostRule>>,
}

impl Default for Events {
    fn default() -> Self {
        let (sender, stream) = EventStream::bounded(KEPT);
        let (is_reset_owed, is_reset_told, ports_owed, rules_owed) = Default::default();
        Self { sender, stream, is_reset_owed, is_reset_told, ports_owed, rules_owed }
    }
}

impl Events {
    pub(super) fn stream(&self) -> EventStream {
        self.stream.clone()
    }

    /// What was refused for a cause may succeed now.
    pub(super) fn changed(&self, cause: Cause) {
        if self.sender.send(DeviceEvent::Changed { cause }).is_err() {
            self.is_reset_owed.store(true, Ordering::SeqCst);
        }
    }

    /// The device behind a port has gone or has come. To be called once workers see the change.
    pub(super) fn port_changed(&self, port: PortNumber) {
        if self.sender.send(DeviceEvent::PortChanged(port)).is_err() {
            self.ports_owed.lock().insert(port);
        }
    }

    /// A rule is gone. If the channel is full, the rule is reported at the next resynchronisation.
    pub(super) fn lost(&self, rule: LostRule, at: Timestamp) {
        if self.sender.send(DeviceEvent::RuleLost(rule)).is_err() {
            self.rules_owed.lock().push(rule);
            self.reset(at);
        }
    }

    /// Lost rules that could not be sent.
    pub(super) fn take_owed(&self) -> Vec<LostRule> {
        std::mem::take(&mut self.rules_owed.lock())
    }

    /// Everything must be compared. Sent once until that is done.
    pub(super) fn reset(&self, at: Timestamp) {
        if self.is_reset_told.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.sender.send(DeviceEvent::Reset { at }).is_err() {
            self.is_reset_told.store(false, Ordering::SeqCst);
            self.is_reset_owed.store(true, Ordering::SeqCst);
        }
    }

    /// The device is dead.
    pub(super) fn failed(&self, reason: String) {
        let _ = self.sender.send(DeviceEvent::Failed(reason));
    }

    /// Sends what could not be sent before.
    pub(super) fn catch_up(&self, at: Timestamp) {
        if self.is_reset_owed.swap(false, Ordering::SeqCst) {
            self.reset(at);
        }
        let ports_owed = std::mem::take(&mut *self.ports_owed.lock());
        ports_owed.into_iter().for_each(|port| self.port_changed(port));
    }

    /// Everything is being compared: a later reset is sent again.
    pub(super) fn resynchronising(&self) {
        self.is_reset_told.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::backend::Handle;
    use sluice_flow::id::FlowId;

    use super::*;

    #[test]
    fn an_agent_that_does_not_listen_is_told_to_compare_everything_once_it_does() {
        let events = Events::default();
        let at = Timestamp(5);
        let rule = LostRule { flow: FlowId { slot: 1, incarnation: 1 }, handle: Handle(1) };
        (0..2 * KEPT).for_each(|_| events.lost(rule, at));
        assert_eq!(events.take_owed().len(), KEPT);
        let stream = events.stream();
        assert_eq!(stream.drain().len(), KEPT);
        events.catch_up(at);
        events.reset(at);
        assert_eq!(stream.drain(), [DeviceEvent::Reset { at }], "once");
        events.resynchronising();
        events.reset(at);
        assert_eq!(stream.drain().len(), 1);
    }

    #[test]
    fn a_port_that_changed_while_the_agent_did_not_listen_is_told_later_once() {
        let events = Events::default();
        (0..KEPT).for_each(|_| events.changed(Cause::Room));
        (0..3).for_each(|_| events.port_changed(PortNumber(7)));
        events.catch_up(Timestamp(5));
        let stream = events.stream();
        assert_eq!(stream.drain().len(), KEPT, "there was no room yet");
        events.catch_up(Timestamp(6));
        assert_eq!(stream.drain(), [DeviceEvent::PortChanged(PortNumber(7))]);
    }
}
