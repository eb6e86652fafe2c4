//! More notifications than the kernel keeps.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_netdev::{Event, IngressQdisc, Monitor, MonitorOptions, State};

use crate::space::{Space, events, known};
use crate::stories;

stories![
    after_an_overrun_the_difference_is_told_and_nothing_is_missing,
    after_an_overrun_all_is_followed_again,
    while_more_happens_than_can_be_heard_the_events_add_up_to_what_is_there,
];

/// A device that is the same before and after goes up and down until notifications are lost.
fn overrun(space: &Space) {
    let file = format!("/tmp/{}.links", space.name());
    let lines: String = (0..200).flat_map(|_| ["link set noise up\n", "link set noise down\n"]).collect();
    std::fs::write(&file, lines).unwrap();
    space.run(&format!("ip -batch {file}"));
}

fn listen(space: &Space) -> Monitor {
    space.run("ip link add noise type dummy");
    Monitor::open(MonitorOptions { receive_buffer: 4096, ..MonitorOptions::default() }).unwrap()
}

fn after_an_overrun_the_difference_is_told_and_nothing_is_missing(space: &Space) {
    for name in ["goes", "renamed", "raised", "hooked", "unhooked", "joins"] {
        space.run(&format!("ip link add {name} type dummy"));
    }
    space.run("ip link add bond0 type bond");
    space.run("ip link add again index 500 type dummy");
    space.run("tc qdisc add dev unhooked clsact");
    let mut monitor = listen(space);
    let before = |name| known(&monitor, name).port();
    let [goes, again, renamed, raised, hooked, unhooked, joins, master] =
        ["goes", "again", "renamed", "raised", "hooked", "unhooked", "joins", "bond0"].map(before);

    overrun(space);
    space.run("ip link del goes");
    space.run("ip link del again");
    space.run("ip link add again index 500 type bridge");
    space.run("ip link set renamed name other");
    space.run("ip link set raised up");
    space.run("tc qdisc add dev hooked clsact");
    space.run("tc qdisc del dev unhooked clsact");
    space.run("ip link set joins master bond0");
    space.run("ip link add comes type dummy");
    space.run("ip link add member type dummy");
    space.run("ip link set member master bond0");

    let events = events(&mut monitor);
    let lost = events.iter().position(|event| *event == Event::Resynchronised).expect("an overrun");
    assert_eq!(events.iter().filter(|event| **event == Event::Resynchronised).count(), 1, "{events:#?}");
    let told = &events[..lost];
    let now = |name| known(&monitor, name).port();
    for event in [
        Event::Gone(goes),
        Event::Gone(again),
        Event::Appeared(now("again")),
        Event::Renamed { port: now("other"), from: renamed.name },
        Event::StateChanged { port: raised, from: State::Off, to: State::Up },
        Event::QdiscAdded { port: hooked, qdisc: IngressQdisc::CLSACT, by: None },
        Event::QdiscRemoved { port: unhooked, qdisc: IngressQdisc::CLSACT, by: None },
        Event::MasterChanged { port: joins, from: None, to: Some(master.ifindex) },
        Event::Appeared(now("comes")),
        Event::Appeared(now("member")),
        Event::MasterChanged { port: now("member"), from: None, to: Some(master.ifindex) },
    ] {
        assert!(told.contains(&event), "{event:#?} is not among {told:#?}");
    }
    // And now it knows what one knows that looks for the first time, apart from generations.
    let devices = |monitor: &Monitor| -> Vec<_> {
        monitor.links().iter().map(|known| (known.device.clone(), known.qdisc)).collect()
    };
    assert_eq!(devices(&monitor), devices(&space.monitor()));
}

fn after_an_overrun_all_is_followed_again(space: &Space) {
    let mut monitor = listen(space);
    for round in 0..3 {
        overrun(space);
        let events = events(&mut monitor);
        assert!(events.contains(&Event::Resynchronised), "round {round}: {events:#?}");
        space.run("ip link add new type dummy");
        let appeared = monitor.poll(Duration::from_secs(5)).unwrap();
        assert_eq!(appeared, [Event::Appeared(known(&monitor, "new").port())]);
        space.run("ip link del new");
        assert_eq!(monitor.poll(Duration::from_secs(5)).unwrap().len(), 1);
    }
}

fn while_more_happens_than_can_be_heard_the_events_add_up_to_what_is_there(space: &Space) {
    let mut monitor = listen(space);
    let mut names: BTreeMap<_, _> = monitor.links().iter().map(|known| (known.generation, known.port().name)).collect();
    let lines = |number: u32| {
        let next = number + 1;
        // One in four stays, under another name.
        let end = if number.is_multiple_of(4) {
            format!("link set d{number} name kept{next}")
        } else {
            format!("link del d{number}")
        };
        format!("link add d{number} type dummy\nlink set d{number} up\nlink set d{number} down\n{end}\n")
    };
    let file = format!("/tmp/{}.links", space.name());
    std::fs::write(&file, (0..200).map(lines).collect::<String>()).unwrap();
    let mut all = vec![];
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| space.run(&format!("ip -batch {file}")));
        while !maker.is_finished() {
            all.extend(monitor.poll(Duration::from_millis(1)).unwrap());
            // Slower than the other.
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    all.extend(events(&mut monitor));
    assert!(all.contains(&Event::Resynchronised), "nothing was lost");
    for event in all {
        match event {
            Event::Appeared(port) => assert_eq!(names.insert(port.generation, port.name), None),
            Event::Gone(port) => assert_eq!(names.remove(&port.generation), Some(port.name)),
            Event::Renamed { port, from } => assert_eq!(names.insert(port.generation, port.name), Some(from)),
            _ => {}
        }
    }
    let known: BTreeMap<_, _> = monitor.links().iter().map(|known| (known.generation, known.port().name)).collect();
    assert_eq!(names, known);
    let devices = |monitor: &Monitor| -> Vec<_> { monitor.links().iter().map(|known| known.device.clone()).collect() };
    assert_eq!(devices(&monitor), devices(&space.monitor()));
    assert_eq!(names.values().filter(|name| name.starts_with("kept")).count(), 50);
}
