//! Registers of the port and of the device, through `ACCESS_REG`.

use super::port::PROTOCOLS;
use super::state::Hca;
use super::vport::ByKind;
use super::vports::port_counters;
use crate::command::{Answer, Failure, Input, Output, Status, layouts as l, modifier, require};
use crate::layout::{Field, Layout, layouts};

layouts! {
    host_endianness 0x10 { HE 0x0 [31] }
    paos 0x10 {
        SWID 0x0 [31:24], LOCAL_PORT 0x0 [23:16], ADMIN_STATUS 0x0 [11:8], OPER_STATUS 0x0 [3:0], ASE 0x4 [31], EE 0x4 [30],
        E 0x4 [1:0],
    }
    pmtu 0x10 { LOCAL_PORT 0x0 [23:16], MAX_MTU 0x4 [31:16], ADMIN_MTU 0x8 [31:16], OPER_MTU 0xc [31:16] }
    ptys 0x40 {
        LOCAL_PORT 0x0 [23:16], PROTO_MASK 0x0 [2:0], ETH_PROTO_CAPABILITY 0xc [31:0], ETH_PROTO_ADMIN 0x18 [31:0],
        ETH_PROTO_OPER 0x24 [31:0], CONNECTOR_TYPE 0x2c [3:0],
    }
    pfcc 0x10 {
        LOCAL_PORT 0x0 [23:16], PPRX 0x8 [31], PPTX 0x4 [31], PFCTX 0x4 [23:16], PFCRX 0x8 [23:16],
    }
    /// The device's name among people, of 64 bytes.
    node_desc 0x40 {
        TEXT_0 0x0 [63:0], TEXT_1 0x8 [63:0], TEXT_2 0x10 [63:0], TEXT_3 0x18 [63:0], TEXT_4 0x20 [63:0], TEXT_5 0x28 [63:0],
        TEXT_6 0x30 [63:0], TEXT_7 0x38 [63:0],
    }
    /// How long the driver waits: each a unit ([31:29]: milliseconds, seconds, minutes, hours) and a number.
    dtor 0x40 {
        PCIE_TOGGLE_TO 0x4 [19:0], HEALTH_POLL_TO 0x14 [19:0], FULL_CRDUMP_TO 0x18 [19:0], FW_RESET_TO 0x1c [19:0],
        FLUSH_ON_ERR_TO 0x20 [19:0], PCI_SYNC_UPDATE_TO 0x24 [19:0], TEAR_DOWN_TO 0x28 [19:0], FSM_REACTIVATE_TO 0x2c [19:0],
        RECLAIM_PAGES_TO 0x30 [19:0], RECLAIM_VFS_PAGES_TO 0x34 [19:0],
    }
    ppcnt 0x100 { SWID 0x0 [31:24], LOCAL_PORT 0x0 [23:16], PNAT 0x0 [15:14], GRP 0x0 [5:0], CLR 0x4 [31], PRIO_TC 0x4 [2:0] }
    /// Counter group 0 of [`ppcnt`].
    ieee_802_3 0x100 {
        FRAMES_TRANSMITTED 0x8 [63:0], FRAMES_RECEIVED 0x10 [63:0], OCTETS_TRANSMITTED 0x28 [63:0], OCTETS_RECEIVED 0x30 [63:0],
        MULTICAST_TRANSMITTED 0x38 [63:0], BROADCAST_TRANSMITTED 0x40 [63:0], MULTICAST_RECEIVED 0x48 [63:0],
        BROADCAST_RECEIVED 0x50 [63:0],
    }
    /// Counter group 1 of [`ppcnt`].
    rfc_2863 0x100 {
        IN_OCTETS 0x8 [63:0], IN_UNICAST 0x10 [63:0], OUT_OCTETS 0x30 [63:0], OUT_UNICAST 0x38 [63:0], IN_MULTICAST 0x50 [63:0],
        IN_BROADCAST 0x58 [63:0], OUT_MULTICAST 0x60 [63:0], OUT_BROADCAST 0x68 [63:0],
    }
}

/// Largest frame payload, with what the driver adds to a device's MTU.
const MAX_MTU: u16 = 9978;

struct Register {
    id: u16,
    name: &'static str,
    layout: &'static Layout,
    access: fn(&mut Hca, &Data<'_>) -> Result<Vec<u8>, Failure>,
}

/// What comes with a command: to be written, or telling what is asked for.
struct Data<'a> {
    bytes: &'a [u8],
    write: bool,
    layout: &'static Layout,
}

impl Data<'_> {
    fn get(&self, field: Field) -> u64 {
        field.read(self.bytes).unwrap_or_default()
    }

    /// The register as it came, with what the device says put over it.
    fn answer(&self, values: &[(Field, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; self.layout.length];
        let given = self.bytes.len().min(bytes.len());
        bytes[..given].copy_from_slice(&self.bytes[..given]);
        for (field, value) in values {
            field.write(&mut bytes, *value);
        }
        bytes
    }

    fn read_only(&self) -> Result<(), Failure> {
        require(!self.write, Status::BadParameter, 0x0301, "the register is read-only")
    }

    fn port_1(&self, local_port: Field) -> Result<(), Failure> {
        let port = self.get(local_port);
        require(port == 1, Status::BadParameter, 0x0302, format!("there is no port {port}"))
    }
}

const REGISTERS: &[Register] = &[
    Register { id: 0x5003, name: "PMTU", layout: &pmtu::LAYOUT, access: access_pmtu },
    Register { id: 0x5004, name: "PTYS", layout: &ptys::LAYOUT, access: access_ptys },
    Register { id: 0x5006, name: "PAOS", layout: &paos::LAYOUT, access: access_paos },
    Register { id: 0x5007, name: "PFCC", layout: &pfcc::LAYOUT, access: access_pfcc },
    Register { id: 0x5008, name: "PPCNT", layout: &ppcnt::LAYOUT, access: access_ppcnt },
    Register { id: 0x6001, name: "NODE_DESC", layout: &node_desc::LAYOUT, access: access_node_desc },
    Register { id: 0xc00e, name: "DTOR", layout: &dtor::LAYOUT, access: access_dtor },
    Register { id: 0x7004, name: "HOST_ENDIANNESS", layout: &host_endianness::LAYOUT, access: access_host_endianness },
];

pub(crate) fn access(hca: &mut Hca, input: &Input<'_>) -> Answer {
    const WRITE: u16 = 0;
    const QUERY: u16 = 1;
    let id = input.get_u16(l::access_register::REGISTER_ID);
    let Some(register) = REGISTERS.iter().find(|register| register.id == id) else {
        return Err(Failure::new(Status::BadParameter, 0x0303, format!("register {id:#x} is not modelled")));
    };
    let write = match input.op_mod() {
        WRITE => true,
        QUERY => false,
        other => return Err(modifier(other)),
    };
    let data = Data { bytes: input.tail(), write, layout: register.layout };
    // A counter group follows its header, and is not input.
    if let Some(offset) = register.layout.unmodelled(data.bytes).filter(|_| write) {
        let reason = format!("{} has a bit that is not modelled at {offset:#x}", register.name);
        return Err(Failure::new(Status::BadParameter, 0x0304, reason));
    }
    (register.access)(hca, &data).map(|bytes| Output::with_data(&bytes))
}

fn access_host_endianness(_: &mut Hca, data: &Data<'_>) -> Result<Vec<u8>, Failure> {
    let little = data.get(host_endianness::HE) == 0;
    require(little, Status::BadParameter, 0x0305, "only little-endian hosts are modelled")?;
    Ok(data.answer(&[]))
}

fn access_node_desc(hca: &mut Hca, data: &Data<'_>) -> Result<Vec<u8>, Failure> {
    data.read_only()?;
    let mut bytes = hca.profile.name.as_bytes().to_vec();
    bytes.resize(node_desc::LAYOUT.length, 0);
    Ok(bytes)
}

/// The health is the profile's; the others are what Linux takes where a device says nothing.
fn access_dtor(hca: &mut Hca, data: &Data<'_>) -> Result<Vec<u8>, Failure> {
    data.read_only()?;
    let poll = u64::try_from(hca.profile.health_poll.as_millis()).unwrap_or(u64::MAX);
    Ok(data.answer(&[
        (dtor::PCIE_TOGGLE_TO, 2_000),
        (dtor::HEALTH_POLL_TO, poll),
        (dtor::FULL_CRDUMP_TO, 60_000),
        (dtor::FW_RESET_TO, 60_000),
        (dtor::FLUSH_ON_ERR_TO, 2_000),
        (dtor::PCI_SYNC_UPDATE_TO, 5_000),
        (dtor::TEAR_DOWN_TO, 3_000),
        (dtor::FSM_REACTIVATE_TO, 5_000),
        (dtor::RECLAIM_PAGES_TO, 5_000),
        (dtor::RECLAIM_VFS_PAGES_TO, 120_000),
    ]))
}

fn access_pmtu(hca: &mut Hca, data: &Data<'_>) -> Result<Vec<u8>, Failure> {
    data.port_1(pmtu::LOCAL_PORT)?;
    if data.write {
        let mtu = u16::try_from(data.get(pmtu::ADMIN_MTU)).unwrap_or(u16::MAX);
        require(mtu <= MAX_MTU, Status::BadParameter, 0x0306, format!("an MTU of {mtu} is over {MAX_MTU}"))?;
        hca.port.mtu = mtu;
    }
    let mtu = u64::from(hca.port.mtu);
    Ok(data.answer(&[(pmtu::MAX_MTU, MAX_MTU.into()), (pmtu::ADMIN_MTU, mtu), (pmtu::OPER_MTU, mtu)]))
}

fn access_ptys(hca: &mut Hca, data: &Data<'_>) -> Result<Vec<u8>, Failure> {
    data.port_1(ptys::LOCAL_PORT)?;
    if data.write {
        let wanted = u32::try_from(data.get(ptys::ETH_PROTO_ADMIN)).unwrap_or_default();
        require(wanted & !PROTOCOLS == 0, Status::BadParameter, 0x0307, format!("no protocols {wanted:#x}"))?;
        hca.port.protocols = wanted;
    }
    let up = hca.port.is_up();
    Ok(data.answer(&[
        (ptys::ETH_PROTO_CAPABILITY, PROTOCOLS.into()),
        (ptys::ETH_PROTO_ADMIN, hca.port.protocols.into()),
        (ptys::ETH_PROTO_OPER, if up { hca.port.protocols.into() } else { 0 }),
    ]))
}

fn access_paos(hca: &mut Hca, data: &Data<'_>) -> Result<Vec<u8>, Failure> {
    const UP: u64 = 1;
    const DOWN: u64 = 2;
    data.port_1(paos::LOCAL_PORT)?;
    if data.write {
        hca.port.admin_up = match data.get(paos::ADMIN_STATUS) {
            UP => true,
            DOWN => false,
            other => return Err(Failure::new(Status::BadParameter, 0x0308, format!("no admin status {other}"))),
        };
    }
    let status = if hca.port.is_up() { UP } else { DOWN };
    Ok(data.answer(&[(paos::ADMIN_STATUS, status), (paos::OPER_STATUS, status)]))
}

fn access_pfcc(hca: &mut Hca, data: &Data<'_>) -> Result<Vec<u8>, Failure> {
    data.port_1(pfcc::LOCAL_PORT)?;
    if data.write {
        let priorities = data.get(pfcc::PFCTX) | data.get(pfcc::PFCRX);
        require(priorities == 0, Status::BadParameter, 0x0309, "flow control by priority is not modelled")?;
        hca.port.pause = (data.get(pfcc::PPTX) != 0, data.get(pfcc::PPRX) != 0);
    }
    Ok(data.answer(&[(pfcc::PPTX, hca.port.pause.0.into()), (pfcc::PPRX, hca.port.pause.1.into())]))
}

/// Of the counter groups, those that packets on this wire can move; in others nothing ever happens here, and they stay zero.
fn access_ppcnt(hca: &mut Hca, data: &Data<'_>) -> Result<Vec<u8>, Failure> {
    const IEEE_802_3: u64 = 0;
    const RFC_2863: u64 = 1;
    const ALWAYS_ZERO: [u64; 6] = [0x2, 0x3, 0x5, 0x10, 0x11, 0x12];
    data.read_only()?;
    data.port_1(ppcnt::LOCAL_PORT)?;
    let (received, transmitted) = port_counters(hca);
    let packets = |counters: ByKind| counters.iter().map(|counter| counter.0).sum::<u64>();
    let bytes = |counters: ByKind| counters.iter().map(|counter| counter.1).sum::<u64>();
    let ([in_unicast, in_multicast, in_broadcast], [out_unicast, out_multicast, out_broadcast]) =
        (received, transmitted);
    match data.get(ppcnt::GRP) {
        IEEE_802_3 => Ok(data.answer(&[
            (ieee_802_3::FRAMES_TRANSMITTED, packets(transmitted)),
            (ieee_802_3::FRAMES_RECEIVED, packets(received)),
            (ieee_802_3::OCTETS_TRANSMITTED, bytes(transmitted)),
            (ieee_802_3::OCTETS_RECEIVED, bytes(received)),
            (ieee_802_3::MULTICAST_TRANSMITTED, out_multicast.0),
            (ieee_802_3::BROADCAST_TRANSMITTED, out_broadcast.0),
            (ieee_802_3::MULTICAST_RECEIVED, in_multicast.0),
            (ieee_802_3::BROADCAST_RECEIVED, in_broadcast.0),
        ])),
        RFC_2863 => Ok(data.answer(&[
            (rfc_2863::IN_OCTETS, bytes(received)),
            (rfc_2863::IN_UNICAST, in_unicast.0),
            (rfc_2863::OUT_OCTETS, bytes(transmitted)),
            (rfc_2863::OUT_UNICAST, out_unicast.0),
            (rfc_2863::IN_MULTICAST, in_multicast.0),
            (rfc_2863::IN_BROADCAST, in_broadcast.0),
            (rfc_2863::OUT_MULTICAST, out_multicast.0),
            (rfc_2863::OUT_BROADCAST, out_broadcast.0),
        ])),
        group if ALWAYS_ZERO.contains(&group) => Ok(data.answer(&[])),
        group => Err(Failure::new(Status::BadParameter, 0x030a, format!("counter group {group:#x} is not modelled"))),
    }
}
