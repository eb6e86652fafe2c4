//! Devices, ports and addresses.

use std::io::ErrorKind;

use sluice_mirror::verbs::{Context, GidKind, LinkLayer, Mtu, devices};
use sluice_tests::mlx5::with_options;

#[test]
fn a_device_has_its_ports_and_their_addresses_in_both_versions_of_roce() {
    let name = "devices::a_device_has_its_ports_and_their_addresses_in_both_versions_of_roce";
    with_options("bluefield-3", &[], &["has no address 5", "there is no port 99"], name, |_| {
        assert_eq!(devices().unwrap(), ["mlx5_0"]);
        let missing = Context::open("mlx5_9").unwrap_err();
        assert_eq!(missing.source.kind(), ErrorKind::NotFound);
        assert_eq!(missing.to_string(), "ibv_open_device: there is no RDMA device mlx5_9");
        let context = Context::open("mlx5_0").unwrap();
        let port = context.port(1).unwrap();
        assert!(port.is_active && port.gids >= 2);
        assert_eq!((port.mtu, port.link_layer, port.lid), (Mtu::Bytes1024, LinkLayer::Ethernet, 0));
        assert!(context.port(99).is_err());
        let gids = context.gids().unwrap();
        assert_eq!(gids.iter().map(|entry| entry.kind).collect::<Vec<_>>(), [GidKind::RoceV1, GidKind::RoceV2]);
        for (index, entry) in (0..).zip(&gids) {
            assert_eq!(context.gid(1, index).unwrap(), *entry);
            assert!(entry.gid.to_string().starts_with("fe80::"), "{}", entry.gid);
        }
        let empty = context.gid(1, 5).unwrap_err();
        assert_eq!(empty.source.raw_os_error(), Some(61), "ENODATA");
    });
}
