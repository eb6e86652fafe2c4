//! What the agent is told. Nobody waits for it to listen: what there is no room for is told together.

use std::collections::BTreeSet;

use sluice_flow::Cause;
use sluice_flow::backend::{DeviceEvent, EventSender, EventStream};
use sluice_flow::port::PortNumber;

/// Events that are kept for who listens.
const MOST: usize = 1_024;

/// The way to the agent.
#[derive(Clone)]
pub(crate) struct Events {
    sender: EventSender,
    stream: EventStream,
}

impl Events {
    pub(crate) fn new() -> Self {
        let (sender, stream) = EventStream::bounded(MOST);
        Self { sender, stream }
    }

    /// Where the agent listens.
    pub(crate) fn stream(&self) -> EventStream {
        self.stream.clone()
    }

    /// What was refused for a cause may be taken now.
    pub(crate) fn changed(&self, cause: Cause) {
        self.send(DeviceEvent::Changed { cause });
    }

    /// The rules of all flows that name a port are to be made anew.
    pub(crate) fn port_changed(&self, port: PortNumber) {
        self.send(DeviceEvent::PortChanged(port));
    }

    /// The device has failed.
    pub(crate) fn failed(&self, reason: String) {
        self.send(DeviceEvent::Failed(reason));
    }

    fn send(&self, event: DeviceEvent) {
        if self.sender.send(event.clone()).is_err() {
            let told = self.stream.drain().into_iter().chain([event]);
            for event in together(told) {
                // There is room, unless others have told as much meanwhile.
                let _ = self.sender.send(event);
            }
        }
    }
}

/// The same in few events: one of each kind of cause, and one for each port.
fn together(events: impl Iterator<Item = DeviceEvent>) -> Vec<DeviceEvent> {
    let (mut failed, mut ports, mut causes) = (None, BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event {
            DeviceEvent::Failed(reason) => failed = failed.or(Some(DeviceEvent::Failed(reason))),
            DeviceEvent::PortChanged(port) => {
                ports.insert(port);
            }
            DeviceEvent::Changed { cause } => {
                causes.extend(Cause::ALL.into_iter().map(|(any, _)| any).filter(|any| any.concerns(cause)));
            }
            // This backend tells of nothing else.
            _ => {}
        }
    }
    let ports = ports.into_iter().map(DeviceEvent::PortChanged);
    let causes = causes.into_iter().map(|cause| DeviceEvent::Changed { cause });
    failed.into_iter().chain(ports).chain(causes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_told_together_and_none_of_it_is_lost() {
        let events = Events::new();
        let port = |number| Cause::Port(Some(PortNumber(number)));
        events.port_changed(PortNumber(7));
        events.port_changed(PortNumber(9));
        (0..2_000).for_each(|number| events.changed(port(number)));
        events.failed("it is dead".to_owned());
        let told = events.stream().drain();
        for wanted in [
            DeviceEvent::PortChanged(PortNumber(7)),
            DeviceEvent::PortChanged(PortNumber(9)),
            DeviceEvent::Changed { cause: Cause::Port(None) },
            DeviceEvent::Failed("it is dead".to_owned()),
        ] {
            assert_eq!(told.iter().filter(|event| **event == wanted).count(), 1, "{wanted:?}");
        }
        assert!(told.contains(&DeviceEvent::Changed { cause: port(1_999) }), "there is room again");
    }
}
