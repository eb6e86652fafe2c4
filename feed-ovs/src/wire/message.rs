//! What the families `ovs_datapath`, `ovs_vport` and `ovs_flow` tell of.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sluice_flow::action::ActionList;
use sluice_flow::key::Match;
use sluice_flow::text::Statistics;
use sluice_flow::ufid::Ufid;
use sluice_netdev::netlink::attribute::{Attribute, Attributes, Fields, Malformed};

use super::actions::read_actions;
use super::key::read_match;

/// `OVS_VPORT_TYPE_INTERNAL`: a device of the host itself.
pub const VPORT_INTERNAL: u32 = 2;

/// What a message begins with: `struct genlmsghdr`, of which nothing is needed here, and `struct ovs_header`.
pub(super) fn after_headers<'a>(payload: &'a [u8], place: &'static str) -> Result<(u32, &'a [u8]), Malformed> {
    let mut fields = Fields::new(payload, place);
    let _: [u8; 4] = fields.bytes()?;
    let datapath = fields.u32()?;
    Ok((datapath, payload.get(8..).unwrap_or_default()))
}

/// A datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datapath {
    /// The interface index of its local port, by which messages name it.
    pub index: u32,
    /// Its name, such as `ovs-system`.
    pub name: String,
    /// How many flows it has.
    pub flows: u64,
    /// What programs have asked of it (`OVS_DP_F_*`), if the kernel tells.
    pub features: Option<u32>,
}

impl Datapath {
    /// `OVS_DP_F_TC_RECIRC_SHARING`: a packet that missed in a chain of tc is taken on at the recirculation id of that number.
    pub const RECIRC_SHARING: u32 = 1 << 2;

    /// Reads a message of `ovs_datapath`, behind the header of netlink.
    pub fn read(payload: &[u8]) -> Result<Self, Malformed> {
        const PLACE: &str = "message of ovs_datapath";
        const NAME: u16 = 1;
        const STATISTICS: u16 = 3;
        const FEATURES: u16 = 5;
        let (index, attributes) = after_headers(payload, PLACE)?;
        let (mut name, mut flows, mut features) = (None, 0, None);
        for attribute in Attributes::new(attributes, PLACE) {
            let attribute = attribute?;
            match attribute.kind {
                NAME => name = Some(attribute.text()?.to_owned()),
                STATISTICS => {
                    // Behind packets that hit, missed and were lost.
                    let mut statistics = Fields::new(attribute.payload, PLACE);
                    let _: [u8; 24] = statistics.bytes()?;
                    flows = statistics.u64()?;
                }
                FEATURES => features = Some(attribute.u32()?),
                _ => {}
            }
        }
        Ok(Self { index, name: name.ok_or(Malformed::Missing { place: PLACE, kind: NAME })?, flows, features })
    }

    /// Whether a packet that missed in a chain of tc is taken on there.
    pub fn shares_recirculation(&self) -> bool {
        self.features.is_some_and(|features| features & Self::RECIRC_SHARING != 0)
    }
}

/// A port of a datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vport {
    /// The datapath that it is of.
    pub datapath: u32,
    /// Its number there.
    pub number: u32,
    /// Its name, that of its network device.
    pub name: String,
    /// `enum ovs_vport_type`. Current releases of OVS make their tunnels devices of the kernel, which are of the type of any device.
    pub kind: u32,
}

impl Vport {
    /// Reads a message of `ovs_vport`, behind the header of netlink.
    pub fn read(payload: &[u8]) -> Result<Self, Malformed> {
        const PLACE: &str = "message of ovs_vport";
        let (datapath, attributes) = after_headers(payload, PLACE)?;
        let (mut number, mut kind, mut name) = (None, None, None);
        for attribute in Attributes::new(attributes, PLACE) {
            let attribute = attribute?;
            match attribute.kind {
                1 => number = Some(attribute.u32()?),
                2 => kind = Some(attribute.u32()?),
                3 => name = Some(attribute.text()?.to_owned()),
                // Counters, options, who hears of misses: not needed.
                _ => {}
            }
        }
        let missing = |kind| Malformed::Missing { place: PLACE, kind };
        Ok(Self {
            datapath,
            number: number.ok_or_else(|| missing(1))?,
            kind: kind.ok_or_else(|| missing(2))?,
            name: name.ok_or_else(|| missing(3))?,
        })
    }
}

/// A flow, as an answer to a request or a notification tells of it. Deletions tell of the UFID and the counters only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMessage {
    /// The datapath that it is of.
    pub datapath: u32,
    /// Its name; probes of ovs-vswitchd have none.
    pub ufid: Option<Ufid>,
    /// What it matches.
    pub matching: Option<Match>,
    /// What it does.
    pub actions: Option<ActionList>,
    /// Packets and bytes that it has taken, and all TCP flags that it has seen.
    pub statistics: Statistics,
}

impl FlowMessage {
    /// Reads a message of `ovs_flow`, behind the header of netlink. `now` is the time of `CLOCK_MONOTONIC`, as [`now`] tells it.
    pub fn read(payload: &[u8], now: Duration) -> Result<Self, Malformed> {
        const PLACE: &str = "message of ovs_flow";
        let (datapath, attributes) = after_headers(payload, PLACE)?;
        let mut read = Self { datapath, ufid: None, matching: None, actions: None, statistics: Statistics::default() };
        let (mut key, mut mask) = (None, None);
        for attribute in Attributes::new(attributes, PLACE) {
            let attribute = attribute?;
            match attribute.kind {
                1 => key = Some(attribute.payload),
                2 => read.actions = Some(read_actions(attribute.payload)?),
                3 => {
                    let mut counters = Fields::new(attribute.payload, PLACE);
                    (read.statistics.packets, read.statistics.bytes) = (counters.u64()?, counters.u64()?);
                }
                4 => read.statistics.tcp_flags = attribute.u8()?.into(),
                5 => read.statistics.used = Some(now.saturating_sub(Duration::from_millis(attribute.u64()?))),
                7 => mask = Some(attribute.payload),
                9 if read.ufid.is_none() => read.ufid = Some(read_ufid(&attribute)?),
                // A second name, padding, and what requests have.
                6 | 8..=11 => {}
                _ => return Err(attribute.unknown()),
            }
        }
        read.matching = key.map(|key| read_match(key, mask)).transpose()?;
        Ok(read)
    }

    /// The name of a flow as it stands in messages.
    pub fn name(ufid: &Ufid) -> [u8; 16] {
        write_ufid(*ufid)
    }

    /// Reads of the same message whose flow it is only, which also one tells that is not understood as a whole.
    pub fn read_name(payload: &[u8]) -> Result<(u32, Option<Ufid>), Malformed> {
        const PLACE: &str = "message of ovs_flow";
        let (datapath, attributes) = after_headers(payload, PLACE)?;
        for attribute in Attributes::new(attributes, PLACE) {
            let attribute = attribute?;
            if attribute.kind == 9 {
                return Ok((datapath, Some(read_ufid(&attribute)?)));
            }
        }
        Ok((datapath, None))
    }
}

/// The time of `CLOCK_MONOTONIC`, by which the kernel dates packets.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.try_into().unwrap_or_default(), now.tv_nsec.try_into().unwrap_or_default())
}

/// The bytes of a UFID in messages: four words in the order of the machine, the highest first.
fn write_ufid(ufid: Ufid) -> [u8; 16] {
    let mut bytes = ufid.0.to_be_bytes();
    bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|word| *word = u32::from_be_bytes(*word).to_ne_bytes());
    bytes
}

fn read_ufid(attribute: &Attribute<'_>) -> Result<Ufid, Malformed> {
    let bytes: [u8; 16] = attribute.bytes()?;
    let (words, _) = bytes.as_chunks::<4>();
    Ok(Ufid(words.iter().fold(0, |ufid, word| ufid << 32 | u128::from(u32::from_ne_bytes(*word)))))
}
