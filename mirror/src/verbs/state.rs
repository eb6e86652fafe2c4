//! States of a queue pair, and what its transitions need (IBTA, 10.3.1; `ibv_modify_qp(3)`).

use rdma_sys as sys;

use super::gid::Gid;
use super::mtu::Mtu;

/// State of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As it was created: nothing can be posted.
    Reset,
    /// Receive requests can be posted (INIT).
    Initialized,
    /// Messages come in (RTR).
    ReadyToReceive,
    /// Messages go out, too (RTS).
    ReadyToSend,
    /// What was posted to send is being finished, and nothing more begins (SQD).
    SendsDrained,
    /// Sending has failed, and receiving has not (SQE). Reliable connections do not have it.
    SendError,
    /// All that is posted comes back.
    Error,
}

impl State {
    pub(super) fn new(raw: sys::ibv_qp_state::Type) -> Self {
        match raw {
            sys::ibv_qp_state::IBV_QPS_RESET => Self::Reset,
            sys::ibv_qp_state::IBV_QPS_INIT => Self::Initialized,
            sys::ibv_qp_state::IBV_QPS_RTR => Self::ReadyToReceive,
            sys::ibv_qp_state::IBV_QPS_RTS => Self::ReadyToSend,
            sys::ibv_qp_state::IBV_QPS_SQD => Self::SendsDrained,
            sys::ibv_qp_state::IBV_QPS_SQE => Self::SendError,
            _ => Self::Error,
        }
    }
}

/// What the other side may do with memory of which it has the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// RDMA WRITE.
    pub remote_write: bool,
}

/// Number of a packet: 24 bits, modulo 2^24.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Psn(u32);

impl Psn {
    /// The lowest 24 bits of a number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number & 0xff_ffff)
    }

    /// As a number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The way to the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Own port.
    pub port: u8,
    /// LID of the other side; 0 on Ethernet.
    pub lid: u16,
    /// GID of the other side, which Ethernet needs, and InfiniBand across subnets, and the place of the own GID in its table.
    pub gid: Option<(Gid, u8)>,
    /// Routers that a packet may pass; 1 within a segment.
    pub hop_limit: u8,
    /// Traffic class of IPv6, or type of service of IPv4.
    pub traffic_class: u8,
    /// What few networks need.
    pub options: PathOptions,
}

/// Of a path, what is 0 in most networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathOptions {
    /// Flow label of IPv6.
    pub flow_label: u32,
    /// Service level, which is the priority of VLAN tags on Ethernet.
    pub service_level: u8,
    /// How the own LID differs from that of the port, where a port has several.
    pub source_path_bits: u8,
    /// The highest rate as `enum ibv_rate` numbers it; 0 is that of the port.
    pub static_rate: u8,
}

/// What a queue pair needs to know of the other side to become ready to receive. Nothing of it is left to be zero, since 0 has a meaning:
/// a timer of 0 is the longest, with stalls of 655 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// Number of the other queue pair.
    pub remote: u32,
    /// Number of the first packet that comes.
    pub psn: Psn,
    /// The way there.
    pub path: Path,
    /// Bytes of a packet, at most those of the path.
    pub mtu: Mtu,
    /// For how long the other side waits until it sends again to where no receive request was posted, as IBTA's table 45 numbers it: 1 is
    /// 10 us, 12 is 640 us, 31 is 491 ms, and 0 is 655 ms.
    pub min_rnr_timer: u8,
}

/// What a queue pair needs to become ready to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Number of the first packet that goes out.
    pub psn: Psn,
    /// For how long an acknowledgement is waited for: 4.096 us, doubled so many times (14 is 67 ms); 0 is for ever.
    pub timeout: u8,
    /// How often what was not acknowledged is sent again, 7 at most. Soft-RoCE takes 7 for ever (`rxe_completer` of Linux 6.1), so that a
    /// peer that is gone is never seen there.
    pub retries: u8,
    /// How often what found no receive request is sent again; 7 is for ever.
    pub rnr_retries: u8,
}

impl Access {
    pub(super) fn raw(self) -> u32 {
        let local = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let remote = sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        if self.remote_write { (local | remote).0 } else { local.0 }
    }
}

impl Path {
    /// The way that a connection manager has found.
    pub(crate) fn of_raw(raw: &sys::ibv_ah_attr) -> Self {
        // SAFETY: any bytes are an address.
        let gid = Gid(unsafe { raw.grh.dgid.raw });
        Self {
            port: raw.port_num,
            lid: raw.dlid,
            gid: (raw.is_global != 0).then_some((gid, raw.grh.sgid_index)),
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            options: PathOptions {
                flow_label: raw.grh.flow_label,
                service_level: raw.sl,
                source_path_bits: raw.src_path_bits,
                static_rate: raw.static_rate,
            },
        }
    }

    pub(super) fn raw(&self) -> sys::ibv_ah_attr {
        let (gid, index) = self.gid.unwrap_or_default();
        sys::ibv_ah_attr {
            grh: sys::ibv_global_route {
                dgid: sys::ibv_gid { raw: gid.0 },
                flow_label: self.options.flow_label,
                sgid_index: index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
            },
            dlid: self.lid,
            sl: self.options.service_level,
            src_path_bits: self.options.source_path_bits,
            static_rate: self.options.static_rate,
            is_global: self.gid.is_some().into(),
            port_num: self.port,
        }
    }
}
