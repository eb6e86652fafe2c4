use super::device::*;
use super::refusals::refused;
use crate::steering::sampler::Sampling;
use crate::steering::{Port, status};

fn sampling(table: TableRef, sample: TableRef, default: TableRef) -> Sampling {
    Sampling {
        table_type: u8::try_from(table.kind).unwrap(),
        level: 0,
        ignores_level: false,
        ratio: 2,
        sample_table: sample.id,
        default_table: default.id,
    }
}

#[test]
fn an_entry_leads_to_a_sampler_which_stays_as_long() {
    let mut device = Device::new();
    let [root, sample, default] = [0, 1, 2].map(|level| device.table(FDB, level));
    device.set_root(root);
    device.rule(sample, 0, forward(To::Vport(MANAGER)));
    device.rule(default, 0, forward(To::Uplink));
    let id = device.0.create_sampler(0, &sampling(root, sample, default)).unwrap();
    device.rule(root, 0, forward(To::Sampler(id)));
    assert_eq!(device.ports(Port::Vport(1)), [Port::Wire]);
    assert_eq!(device.ports(Port::Vport(1)), [Port::Vport(MANAGER), Port::Wire]);
    refused(device.0.destroy_sampler(0, id), status::BAD_RESOURCE_STATE, "used");
    device.delete_entry(root, 0).unwrap();
    device.0.destroy_sampler(0, id).unwrap();
}

#[test]
fn an_entry_leads_to_no_sampler_of_other_tables_or_that_is_not_there() {
    let mut device = Device::new();
    let [sample, default] = [1, 2].map(|level| device.table(FDB, level));
    let receive = device.table(NIC_RX, 0);
    let group = device.group(receive, 0..=0, &[]);
    let id = device.0.create_sampler(0, &sampling(sample, sample, default)).unwrap();
    refused(
        device.try_set(receive, group, &forward(To::Sampler(id))),
        status::BAD_PARAMETER,
        "sampler of other tables",
    );
    refused(device.try_set(receive, group, &forward(To::Sampler(id + 1))), status::BAD_RESOURCE, "sampler");
}
