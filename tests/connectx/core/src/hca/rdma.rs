//! What mlx5_ib makes and asks for when it probes, whatever programs do later: domains of shared receive queues (XRC), a receive queue
//! in one, receive memory that queues share, addresses of RoCE, and the partition key.
//!
//! Nothing is received by a shared receive queue of XRC: the driver only needs it to name it, in queue pairs without a receive queue.

use super::resources::create;
use super::ring::Ring;
use super::shared::SharedReceives;
use super::state::Hca;
use crate::command::{Answer, Input, Output, Status, layouts as l, require};
use crate::objects::{Kind, Name};

const LOG_PAGE: u32 = 12;
/// How many addresses of RoCE there are (`roce_address_table_size`).
const ADDRESSES: u16 = 16;
/// Unit of an entry of a shared receive queue: one segment.
const LOG_SEGMENT: u32 = 4;

pub(crate) fn alloc_xrcd(hca: &mut Hca, _: &Input<'_>) -> Answer {
    create(hca, Kind::Xrcd, vec![])
}

pub(crate) fn dealloc_xrcd(hca: &mut Hca, input: &Input<'_>) -> Answer {
    destroy(hca, Kind::Xrcd, input)
}

pub(crate) fn create_xrc_srq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_xrc_srq as f;
    let (log_page, log_stride) =
        (input.get_u32(f::LOG_PAGE_SIZE) + LOG_PAGE, input.get_u32(f::LOG_RQ_STRIDE) + LOG_SEGMENT);
    let (offset, log_size) = (input.get(f::PAGE_OFFSET), input.get_u32(f::LOG_XRC_SRQ_SIZE));
    Ring::new(input.quadwords(), log_page, offset, log_stride, log_size)?;
    let uses = vec![
        Name { kind: Kind::Xrcd, id: input.get_u32(f::XRCD) },
        Name { kind: Kind::Cq, id: input.get_u32(f::CQN) },
        Name { kind: Kind::Pd, id: input.get_u32(f::PD) },
    ];
    create(hca, Kind::XrcSrq, uses)
}

pub(crate) fn destroy_xrc_srq(hca: &mut Hca, input: &Input<'_>) -> Answer {
    destroy(hca, Kind::XrcSrq, input)
}

pub(crate) fn create_rmp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_rmp as f;
    const READY: u64 = 1;
    let state = input.get(f::STATE);
    require(state == READY, Status::BadParameter, 0x1001, format!("an RMP is made ready, not in state {state}"))?;
    let log_page = input.get_u32(f::LOG_WQ_PG_SZ) + LOG_PAGE;
    let (log_stride, log_size) = (input.get_u32(f::LOG_WQ_STRIDE), input.get_u32(f::LOG_WQ_SZ));
    require(log_stride > LOG_SEGMENT, Status::BadParameter, 0x1005, "an entry of an RMP has no room for a buffer")?;
    let ring = Ring::new(input.quadwords(), log_page, input.get(f::PAGE_OFFSET), log_stride, log_size)?;
    let id = hca.objects.create(Kind::Rmp, vec![Name { kind: Kind::Pd, id: input.get_u32(f::PD) }])?;
    hca.queues.shared.insert(id, SharedReceives::new(ring, input.get(f::DBR_ADDR)));
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

pub(crate) fn destroy_rmp(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let destroyed = destroy(hca, Kind::Rmp, input)?;
    hca.queues.shared.remove(&input.get_u32(l::object::ID));
    Ok(destroyed)
}

/// Ethernet ports have one partition, that of all.
pub(crate) fn query_hca_vport_pkey(_: &mut Hca, input: &Input<'_>) -> Answer {
    const DEFAULT: [u8; 4] = [0, 0, 0xff, 0xff];
    let index = input.get_u16(l::query_hca_vport_pkey::PKEY_INDEX);
    require(index == 0, Status::BadIndex, 0x1002, format!("there is no partition key {index}"))?;
    Ok(Output::empty().append(&DEFAULT))
}

/// Addresses of RoCE: connections to them are connections to this device.
pub(crate) fn set_roce_address(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let index = input.get_u16(l::set_roce_address::ROCE_ADDRESS_INDEX);
    require(hca.profile.software_steering, Status::BadOperation, 0x1003, "the device has no RoCE")?;
    require(index < ADDRESSES, Status::BadIndex, 0x1004, format!("there is no RoCE address {index}"))?;
    let halves = [input.get(l::set_roce_address::ADDRESS_0), input.get(l::set_roce_address::ADDRESS_1)];
    let address = u128::from(halves[0]) << 64 | u128::from(halves[1]);
    if address == 0 {
        hca.queues.addresses.remove(&index);
    } else {
        hca.queues.addresses.insert(index, address.to_be_bytes());
    }
    Ok(Output::empty())
}

fn destroy(hca: &mut Hca, kind: Kind, input: &Input<'_>) -> Answer {
    hca.objects.destroy(kind, input.get_u32(l::object::ID))?;
    Ok(Output::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::test::{initialized, made, run, status};
    use crate::memory::Memory;
    use crate::memory::test::Flat;
    use crate::profile::BLUEFIELD_2;

    const WORK: u64 = 0x1000;
    const COMPLETIONS: u64 = 0x2000;
    const RECORD: u64 = 0x3000;
    const REGISTRATION: u64 = 0xc;
    const DATAGRAM: u64 = 0x2;

    /// A queue pair as mlx5_ib makes it: without receive queue, in pages. Gives its number and its page of doorbells.
    fn pair(hca: &mut Hca, service: u64) -> (u64, u32) {
        use l::create_qp as f;
        let [pd, domain] = [0x800, 0x80e].map(|opcode| made(hca, opcode, &l::plain::LAYOUT, &[], &[]));
        let uar = made(hca, 0x802, &l::plain::LAYOUT, &[], &[]);
        let eq = [(l::create_eq::UAR_PAGE, uar), (l::create_eq::LOG_EQ_SIZE, 6)];
        let eq = made(hca, 0x301, &l::create_eq::LAYOUT, &eq, &0x5000_u64.to_be_bytes());
        let cq = [
            (l::create_cq::LOG_CQ_SIZE, 4),
            (l::create_cq::UAR_PAGE, uar),
            (l::create_cq::C_EQN, eq),
            (l::create_cq::DBR_ADDR, RECORD + 0x40),
        ];
        let cq = made(hca, 0x400, &l::create_cq::LAYOUT, &cq, &COMPLETIONS.to_be_bytes());
        let memory = [(l::create_rmp::STATE, 1), (l::create_rmp::PD, pd), (l::create_rmp::LOG_WQ_STRIDE, 5)];
        let memory = made(hca, 0x90c, &l::create_rmp::LAYOUT, &memory, &0x4000_u64.to_be_bytes());
        let fields = |receive_queue| {
            [
                (f::ST, service),
                (f::PD, if service == REGISTRATION { 0 } else { pd }),
                (f::UAR_PAGE, uar),
                (f::LOG_SQ_SIZE, 4),
                (f::CQN_SND, cq),
                (f::CQN_RCV, cq),
                (f::XRCD, domain),
                (f::RQ_TYPE, receive_queue),
                (f::SRQN_RMPN_XRQN, memory),
                (f::DBR_ADDR, RECORD),
            ]
        };
        let page = WORK.to_be_bytes();
        assert_ne!(status(&run(hca, 0x500, 0, &f::LAYOUT, &fields(0), &page)), 0, "with a receive queue");
        assert_ne!(status(&run(hca, 0x500, 0, &f::LAYOUT, &fields(3), &[])), 0, "without pages");
        let number = made(hca, 0x500, &f::LAYOUT, &fields(3), &page);
        let name = [(l::object::ID, number)];
        for (opcode, layout) in
            [(0x502, &l::rst2init_qp::LAYOUT), (0x503, &l::init2rtr_qp::LAYOUT), (0x504, &l::rtr2rts_qp::LAYOUT)]
        {
            assert_eq!(status(&run(hca, opcode, 0, layout, &name, &[])), 0, "{opcode:#x}");
        }
        (number, u32::try_from(uar).unwrap())
    }

    /// Posts a request, and writes it into the page of doorbells, too, as the driver does. Gives the opcode of its completion.
    fn posted(service: u64, opcode: u8) -> (u8, Hca) {
        const WANTS_COMPLETION: u8 = 0x08;
        let mut hca = initialized(BLUEFIELD_2);
        let (number, uar) = pair(&mut hca, service);
        let mut request = [0; 64];
        (request[3], request[7], request[11]) = (opcode, 3, WANTS_COMPLETION);
        request[4..7].copy_from_slice(&number.to_be_bytes()[5..]);
        let memory = Flat::new(0x6000);
        memory.write(WORK, &request).unwrap();
        memory.write(RECORD + 4, &1_u32.to_be_bytes()).unwrap();
        memory.write(COMPLETIONS + 63, &[0xff]).unwrap();
        for (at, part) in (0x800..).step_by(8).zip(request.chunks_exact(8)) {
            hca.doorbell(&memory, uar, at, part);
        }
        let mut last = [0];
        memory.read(COMPLETIONS + 63, &mut last).unwrap();
        (last[0] >> 4, hca)
    }

    #[test]
    fn the_driver_tries_a_page_of_doorbells_by_requests_that_do_nothing() {
        const NOP: u8 = 0;
        let (completion, hca) = posted(DATAGRAM, NOP);
        assert_eq!((completion, hca.complaints()), (0, &[][..]));
    }

    #[test]
    fn a_change_of_a_key_is_not_modelled_and_said_to_be_that() {
        const UMR: u8 = 0x25;
        const FAILED: u8 = 0xd;
        let (completion, hca) = posted(REGISTRATION, UMR);
        assert_eq!(completion, FAILED);
        assert!(hca.complaints()[0].contains("opcode 0x25 are not modelled"), "{:?}", hca.complaints());
    }

    #[test]
    fn remote_memory_accesses_have_tables_where_the_device_has_them() {
        const RDMA_RECEIVE: u8 = 7;
        const SWITCH_DOMAIN: u8 = 2;
        let create = |hca: &mut Hca, kind, miss| {
            let mut input = [0; 0x40];
            input[..2].copy_from_slice(&0x930_u16.to_be_bytes());
            (input[16], input[24]) = (kind, miss);
            status(&hca.execute(&Flat::new(0), &input))
        };
        let mut hca = initialized(BLUEFIELD_2);
        assert_eq!(create(&mut hca, RDMA_RECEIVE, SWITCH_DOMAIN), 0);
        assert_ne!(create(&mut hca, 0, SWITCH_DOMAIN), 0, "other packets have nowhere else to go");
    }

    #[test]
    fn there_is_one_partition_and_a_name_and_roce_where_there_is_software_steering() {
        use l::{access_register as r, query_hca_vport_pkey as p, set_roce_address as a};
        let mut hca = initialized(BLUEFIELD_2);
        let key = run(&mut hca, 0x765, 0, &p::LAYOUT, &[], &[]);
        assert_eq!(key[16..], [0, 0, 0xff, 0xff]);
        assert_eq!(status(&run(&mut hca, 0x765, 0, &p::LAYOUT, &[(p::PKEY_INDEX, 1)], &[])), Status::BadIndex as u8);
        let name = run(&mut hca, 0x805, 1, &r::LAYOUT, &[(r::REGISTER_ID, 0x6001)], &[0; 64]);
        assert!(name[16..].starts_with(b"bluefield-2\0"));
        assert_ne!(status(&run(&mut hca, 0x761, 0, &a::LAYOUT, &[], &[])), 0);
        let mut hca = initialized(BLUEFIELD_2.with_software_steering());
        assert_eq!(status(&run(&mut hca, 0x761, 0, &a::LAYOUT, &[], &[])), 0);
    }

    #[test]
    fn a_domain_stays_as_long_as_a_queue_is_in_it() {
        use l::create_xrc_srq as f;
        let mut hca = initialized(BLUEFIELD_2);
        let [pd, domain] = [0x800, 0x80e].map(|opcode| made(&mut hca, opcode, &l::plain::LAYOUT, &[], &[]));
        let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
        let page = 0x1000_u64.to_be_bytes();
        let eq = made(&mut hca, 0x301, &l::create_eq::LAYOUT, &[(l::create_eq::UAR_PAGE, uar)], &page);
        let cq = [(l::create_cq::UAR_PAGE, uar), (l::create_cq::C_EQN, eq)];
        let cq = made(&mut hca, 0x400, &l::create_cq::LAYOUT, &cq, &page);
        let queue =
            |pd| [(f::PD, pd), (f::XRCD, domain), (f::CQN, cq), (f::LOG_XRC_SRQ_SIZE, 1), (f::LOG_RQ_STRIDE, 1)];
        for (fields, pages) in [(queue(pd + 1), &page[..]), (queue(pd), &[][..])] {
            assert_ne!(status(&run(&mut hca, 0x705, 0, &f::LAYOUT, &fields, pages)), 0);
        }
        let queue = made(&mut hca, 0x705, &f::LAYOUT, &queue(pd), &page);
        let mut destroy =
            |opcode, id| status(&run(&mut hca, opcode, 0, &l::object::LAYOUT, &[(l::object::ID, id)], &[]));
        assert_eq!(destroy(0x80f, domain), Status::ResourceBusy as u8);
        assert_eq!((destroy(0x706, queue), destroy(0x80f, domain)), (0, 0));
    }

    #[test]
    fn receive_memory_is_made_ready_and_in_pages_that_are_there() {
        use l::create_rmp as f;
        let mut hca = initialized(BLUEFIELD_2);
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let memory =
            |state, log_size| [(f::STATE, state), (f::PD, pd), (f::LOG_WQ_STRIDE, 5), (f::LOG_WQ_SZ, log_size)];
        let page = 0x1000_u64.to_be_bytes();
        for wrong in [memory(0, 1), memory(1, 8)] {
            assert_ne!(status(&run(&mut hca, 0x90c, 0, &f::LAYOUT, &wrong, &page)), 0);
        }
        let id = made(&mut hca, 0x90c, &f::LAYOUT, &memory(1, 7), &page);
        assert_eq!(status(&run(&mut hca, 0x90e, 0, &l::object::LAYOUT, &[(l::object::ID, id)], &[])), 0);
    }
}
