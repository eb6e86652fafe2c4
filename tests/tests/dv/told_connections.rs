//! Connections that somebody adds, and how long they live.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::connection::Connection;
use sluice_flow::time::ManualClock;
use sluice_offload_dv::connections::{ConnectionSource, ToldConnections};
use sluice_tests::mlx5::on_device;
use sluice_tests::world::eventually;

use crate::kernel::World;
use crate::rig::connection;

#[test]
fn a_connection_lives_for_its_timeout_after_the_last_packet_that_the_device_saw() {
    let name = "told_connections::a_connection_lives_for_its_timeout_after_the_last_packet_that_the_device_saw";
    on_device("bluefield-3", name, |ports| {
        let clock = Arc::new(ManualClock::default());
        let source = ToldConnections::new(clock.clone());
        let table = source.table().unwrap();
        let world = World::open_at(ports, Box::new(source), clock);
        table.add(Connection { timeout: Duration::from_secs(60), ..connection(0) }).unwrap();
        eventually("packets are in hardware", || world.is_in_hardware());
        let left = || {
            let mut left = Duration::ZERO;
            table.visit(&mut |connection| left = connection.timeout).unwrap();
            left
        };
        assert_eq!(left(), Duration::from_secs(60));
        world.clock.advance(Duration::from_secs(20));
        // Packets went by it before.
        eventually("it is kept", || left() == Duration::from_secs(60));
        world.clock.advance(Duration::from_secs(50));
        eventually("none went by it since", || left() == Duration::from_secs(10));
        world.clock.advance(Duration::from_secs(10));
        assert_eq!(left(), Duration::ZERO);
        eventually("it is not in the device any more", || !world.is_in_hardware());
        assert_eq!(table.count().unwrap(), 0);
    });
}
