//! A network namespace of a story's own.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sluice_netdev::{Control, Event, Ifindex, Known, Monitor, MonitorOptions, NamespaceId};

/// The namespace that this thread is in. It goes with this.
pub(crate) struct Space {
    name: String,
}

impl Space {
    /// Makes one and enters it.
    pub(crate) fn new(name: &str) -> Self {
        run(&format!("ip netns add {name}"));
        let space = Self { name: name.into() };
        space.enter();
        run("ip link set lo up");
        space
    }

    /// Makes another one, and comes back.
    pub(crate) fn another(&self) -> Self {
        let other = Self::new(&format!("{}_other", self.name));
        self.enter();
        other
    }

    pub(crate) fn enter(&self) {
        let file = File::open(format!("/run/netns/{}", self.name)).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name of a namespace that this one has a number for.
    pub(crate) fn name_of(&self, id: NamespaceId) -> String {
        let list = run("ip netns list-id");
        let line = list.lines().find_map(|line| line.strip_prefix(&format!("nsid {} ", id.0)));
        let name = line.and_then(|line| line.trim().strip_prefix("(iproute2 netns name: ")?.strip_suffix(')'));
        name.unwrap_or_else(|| panic!("no {id:?} in {list}")).to_owned()
    }

    /// Runs a command that shall succeed, and gives what it printed.
    pub(crate) fn run(&self, command: &str) -> String {
        run(command)
    }

    pub(crate) fn control(&self) -> Control {
        Control::open().unwrap()
    }

    pub(crate) fn monitor(&self) -> Monitor {
        Monitor::open(MonitorOptions::default()).unwrap()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What happens until an event that `is_last` is there, which must come soon.
#[track_caller]
pub(crate) fn events_until(monitor: &mut Monitor, is_last: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut events = vec![];
    let deadline = Instant::now() + Duration::from_secs(20);
    while !events.iter().any(&is_last) {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "it did not come; there was {events:#?}");
        events.extend(monitor.poll(left).unwrap());
    }
    events
}

/// What has happened by now.
pub(crate) fn events(monitor: &mut Monitor) -> Vec<Event> {
    // The kernel notifies before the command that made the change returns.
    let mut events = vec![];
    loop {
        match monitor.poll(Duration::from_millis(200)).unwrap() {
            more if more.is_empty() => return events,
            more => events.extend(more),
        }
    }
}

/// A device that is known.
#[track_caller]
pub(crate) fn known<'a>(monitor: &'a Monitor, name: &str) -> &'a Known {
    monitor.links().named(name).unwrap_or_else(|| panic!("no {name}"))
}

#[track_caller]
pub(crate) fn ifindex(monitor: &Monitor, name: &str) -> Ifindex {
    known(monitor, name).device.ifindex
}
