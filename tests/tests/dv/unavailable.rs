//! What stands in the way of a device: one clear line each.

use sluice_offload_dv::mlx5::{Context, Domain, DomainKind, Library};

use sluice_tests::mlx5::{on_device, with_options};

#[test]
fn a_device_of_another_name_is_told_with_those_that_there_are() {
    on_device("bluefield-2", "unavailable::a_device_of_another_name_is_told_with_those_that_there_are", |_| {
        let error = Context::open(&Library::load().unwrap(), "mlx5_7").err().unwrap();
        assert_eq!(error.to_string(), "there is no RDMA device mlx5_7, only mlx5_0");
        drop(Context::open(&Library::load().unwrap(), "mlx5_0").unwrap());
    });
}

#[test]
fn a_machine_without_devices_is_told_so() {
    // In this process, with what the machine has; one with RDMA devices names them.
    let error = Context::open(&Library::load().unwrap(), "no such device").err().unwrap().to_string();
    let known = [
        "RDMA devices cannot be listed: ",
        "there is no RDMA device: is mlx5_ib loaded?",
        "there is no RDMA device no such device, only ",
    ];
    assert!(known.iter().any(|words| error.starts_with(words)), "{error}");
}

#[test]
fn a_function_that_does_not_manage_the_switch_has_no_tables_for_us() {
    let name = "unavailable::a_function_that_does_not_manage_the_switch_has_no_tables_for_us";
    on_device("connectx-6-dx-no-eswitch", name, |_| {
        let context = Context::open(&Library::load().unwrap(), "mlx5_0").unwrap();
        let error = Domain::create(&context, "mlx5_0", DomainKind::Fdb).err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with("mlx5_0 has no switch whose tables software may write ("), "{text}");
    });
}

#[test]
fn without_privileges_there_are_no_tables_for_us() {
    let name = "unavailable::without_privileges_there_are_no_tables_for_us";
    let refusal = "DM_ALLOC refused with EPERM";
    with_options("bluefield-2", &["--unprivileged"], &[refusal], name, |_| {
        let context = Context::open(&Library::load().unwrap(), "mlx5_0").unwrap();
        let error = Domain::create(&context, "mlx5_0", DomainKind::Fdb).err().unwrap();
        assert!(error.to_string().contains("Operation not permitted"), "{error}");
    });
}
