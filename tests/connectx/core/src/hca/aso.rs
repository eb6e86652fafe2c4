//! Requests that access ASO objects: a control segment names the object and its type, an ASO segment says which of its 64 bytes are
//! written, under which conditions, and where they go as they were before, and the bytes follow.
//!
//! Of objects there are meters here, first hits, and connection tracking; of conditions those that always or never hold, which is how
//! drivers only read; of masks a bit for each byte. What is read of a meter is what was written, as commands tell it, too: of tokens
//! and times no driver says what hardware puts there.

use super::failed::Failed;
use super::key::Use;
use super::request::Request;
use super::state::Hca;
use crate::memory::Memory;
use crate::steering::meter::aso::OBJECT;

/// The types of object, in the control segment.
const CONNECTION_TRACKING: u32 = 1;
const FLOW_METER: u32 = 2;
const FIRST_HITS: u32 = 4;
/// The object's number, there.
const NUMBER: usize = 12;

/// The ASO segment.
mod segment {
    /// With a bit at its end that says whether the object is read to there.
    pub(super) const ADDRESS: usize = 16;
    pub(super) const KEY: usize = 24;
    /// The mask's mode, operands of both conditions, their offsets, how they are combined and the data's offset: a byte each.
    pub(super) const MODES: usize = 28;
    pub(super) const MASK: usize = 56;
}

/// The bytes to write.
const DATA: usize = 64;

impl Hca {
    /// Reads an object and writes into it, for a queue of the object's protection domain.
    pub(super) fn access_aso(&mut self, memory: &dyn Memory, sq: u32, request: &Request) -> Result<(), Failed> {
        const READS: u64 = 1;
        const BYTE_BY_BYTE: u8 = 1;
        const ALWAYS_FALSE: u8 = 0;
        const ALWAYS_TRUE: u8 = 1;
        const LAST_COMBINATION: u8 = 1;
        let short = || "a request ends within its segments".to_owned();
        let word = |at| request.word(at).ok_or_else(short);
        let double = |at| Ok::<_, String>(u64::from(word(at)?) << 32 | u64::from(word(at + 4)?));
        let kind = word(0)? >> 24;
        if ![CONNECTION_TRACKING, FLOW_METER, FIRST_HITS].contains(&kind) {
            return Err(format!("accesses to ASO objects of type {kind} are not modelled").into());
        }
        let address = double(segment::ADDRESS)?;
        let is_read = address & READS != 0;
        let [mode, operands, _, combination] = word(segment::MODES)?.to_be_bytes();
        if mode != BYTE_BY_BYTE << 6 {
            return Err(format!("data_mask_mode {mode:#04x} is not modelled").into());
        }
        // Both hold, or neither does, so that it makes no difference whether one or both have to.
        let writes = match (operands >> 4, operands & 0xf) {
            (ALWAYS_TRUE, ALWAYS_TRUE) => true,
            (ALWAYS_FALSE, ALWAYS_FALSE) => false,
            _ => return Err(format!("condition operands {operands:#04x} are not modelled").into()),
        };
        if combination & 0x3f != 0 || combination >> 6 > LAST_COMBINATION {
            return Err(format!("data offset and combination {combination:#04x} are not modelled").into());
        }
        let mask = if writes { double(segment::MASK)? } else { 0 };
        let data: &[u8; OBJECT] =
            request.bytes(DATA, OBJECT).and_then(|bytes| bytes.try_into().ok()).ok_or_else(short)?;
        let number = word(NUMBER)?;
        let queue = self.queues.sends.get(&sq).ok_or_else(|| format!("there is no SQ {sq:#x}"))?;
        let domain = queue.domain;
        self.count_down()?;
        let before = match kind {
            FLOW_METER => {
                let kernel = 0;
                let (_, before) = self.steering.query_meter_object(kernel, number).map_err(|failure| failure.reason)?;
                before
            }
            CONNECTION_TRACKING => self.steering.connections.read(domain, number)?,
            _ => self.steering.hits.bytes(number)?,
        };
        // With no byte named nothing is written, but whether the queue may is looked at all the same.
        match kind {
            FLOW_METER => self.steering.write_meter_object(domain, number, mask, data)?,
            CONNECTION_TRACKING if writes => self.steering.connections.write(domain, number, mask, data)?,
            CONNECTION_TRACKING => {}
            _ => self.steering.hits.write(domain, number, mask, data)?,
        }
        if is_read {
            let to = (word(segment::KEY)?, address & !READS);
            self.write_by_key(memory, to, Use::LocalWrite, &before)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::layouts as l;
    use crate::hca::test::{initialized, made, run, status};
    use crate::memory::Memory;
    use crate::memory::test::Flat;
    use crate::profile::BLUEFIELD_2;

    const WORK: u64 = 0x1000;
    const COMPLETIONS: u64 = 0x2000;
    const RECORD: u64 = 0x3000;
    const METER_OBJECTS: u16 = 0x24;

    /// A device with a block of objects and a queue in flat memory.
    struct Rig {
        hca: Hca,
        memory: Flat,
        object: u32,
    }

    fn rig() -> Rig {
        let mut hca = initialized(BLUEFIELD_2);
        let domain = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let uar = made(&mut hca, 0x802, &l::plain::LAYOUT, &[], &[]);
        let eq = [(l::create_eq::LOG_EQ_SIZE, 6), (l::create_eq::UAR_PAGE, uar)];
        let eq = made(&mut hca, 0x301, &l::create_eq::LAYOUT, &eq, &0x4000_u64.to_be_bytes());
        let cq = [
            (l::create_cq::LOG_CQ_SIZE, 1),
            (l::create_cq::UAR_PAGE, uar),
            (l::create_cq::C_EQN, eq),
            (l::create_cq::DBR_ADDR, RECORD + 0x100),
        ];
        let cq = made(&mut hca, 0x400, &l::create_cq::LAYOUT, &cq, &COMPLETIONS.to_be_bytes());
        let sq = [
            (l::create_sq::CQN, cq),
            (l::create_sq::WQ_TYPE, 1),
            (l::create_sq::PD, domain),
            (l::create_sq::UAR_PAGE, uar),
            (l::create_sq::LOG_WQ_STRIDE, 6),
            (l::create_sq::LOG_WQ_SZ, 1),
            (l::create_sq::DBR_ADDR, RECORD),
        ];
        let sq = made(&mut hca, 0x904, &l::create_sq::LAYOUT, &sq, &WORK.to_be_bytes());
        let ready = [(l::modify_sq::SQN, sq), (l::modify_sq::STATE, 1)];
        assert_eq!(status(&run(&mut hca, 0x905, 0, &l::modify_sq::LAYOUT, &ready, &[])), 0);
        let mut body = vec![0; l::meter_object::LAYOUT.length];
        l::meter_object::ACCESS_PD.write(&mut body, domain);
        let fields = [(l::general_object::LOG_OBJ_RANGE, 6)];
        let answer = run(&mut hca, 0xa00, METER_OBJECTS, &l::general_object::LAYOUT, &fields, &body);
        assert_eq!(status(&answer), 0, "{:?}", hca.refusals());
        let object = u32::from_be_bytes(answer[8..12].try_into().unwrap());
        Rig { hca, memory: Flat::new(0x5000), object }
    }

    impl Rig {
        /// A request that writes the second meter of an object, as drivers write it.
        fn request(&self) -> [u8; 128] {
            let mut bytes = [0; 128];
            bytes[0] = 2;
            bytes[3] = 0x2d;
            bytes[7] = 8;
            bytes[11] = 0x08;
            bytes[12..16].copy_from_slice(&self.object.to_be_bytes());
            bytes[28..32].copy_from_slice(&[1 << 6, 1 << 4 | 1, 0, 1 << 6]);
            bytes[56..64].copy_from_slice(&0x80ff_ffff_u64.to_be_bytes());
            bytes[96..100].copy_from_slice(&[0xa0, 0, 0, 0]);
            bytes[104..108].copy_from_slice(&[6, 160, 9, 1]);
            bytes
        }

        /// Carries it out, and gives the opcode of its completion and what was complained of.
        fn post(&mut self, request: &[u8; 128]) -> (u8, String) {
            self.memory.write(WORK, request).unwrap();
            self.memory.write(RECORD + 4, &2_u32.to_be_bytes()).unwrap();
            assert_eq!(self.hca.run_send_queues(&self.memory), 1);
            let mut byte = [0];
            self.memory.read(COMPLETIONS + 63, &mut byte).unwrap();
            (byte[0] >> 4, self.hca.complaints().join(" "))
        }
    }

    #[test]
    fn a_request_writes_a_meter_and_completes() {
        let mut rig = rig();
        let request = rig.request();
        assert_eq!(rig.post(&request), (0, String::new()));
        let id = [(l::general_object::ID, u64::from(rig.object))];
        let told = run(&mut rig.hca, 0xa02, METER_OBJECTS, &l::general_object::LAYOUT, &id, &[]);
        assert_eq!((status(&told), &told[16 + 0x40..16 + 0x60]), (0, &[0; 32][..]), "the first one is not written");
        assert_eq!(told[16 + 0x60..], request[96..], "the second one is");
        let changed = run(&mut rig.hca, 0xa01, METER_OBJECTS, &l::general_object::LAYOUT, &id, &[0; 0x80]);
        assert_ne!(status(&changed), 0, "commands do not write");
        assert_eq!(status(&run(&mut rig.hca, 0xa03, METER_OBJECTS, &l::general_object::LAYOUT, &id, &[])), 0);
    }

    #[test]
    fn a_request_for_what_is_not_modelled_fails() {
        let wrong: [(usize, u8, &str); 9] = [
            (0, 5, "ASO objects of type 5"),
            (0, 4, "no ASO object 0x0 of first hits"),
            (7, 4, "ends within its segments"),
            (13, 1, "does not exist"),
            (28, 0, "data_mask_mode 0x00"),
            (29, 0x12, "condition operands 0x12"),
            (31, 0x41, "data offset and combination 0x41"),
            (96, 0x20, "valid 0x0 is not modelled"),
            (104 + 7, 1, "tokens of a meter"),
        ];
        for (at, value, why) in wrong {
            let mut rig = rig();
            let mut request = rig.request();
            request[at] = value;
            let (opcode, said) = rig.post(&request);
            assert!(opcode == 0xd && said.contains(why), "{why}: {opcode:#x} {said}");
            assert_eq!(rig.hca.steering().written_meters(), 0);
        }
    }

    #[test]
    fn a_request_reads_a_meter_as_it_was_before_it_is_written() {
        const SEEN: u64 = 0x4800;
        let mut rig = rig();
        let domain = rig.hca.queues.sends.values().next().unwrap().domain;
        let key = [(l::create_mkey::PD, domain.into()), (l::create_mkey::LENGTH64, 1), (l::create_mkey::LW, 1)];
        let key = made(&mut rig.hca, 0x200, &l::create_mkey::LAYOUT, &key, &[]);
        let mut request = rig.request();
        rig.memory.write(SEEN, &[0xaa; OBJECT]).unwrap();
        request[16..24].copy_from_slice(&(SEEN | 1).to_be_bytes());
        request[24..28].copy_from_slice(&u32::try_from(key << 8).unwrap().to_be_bytes());
        let seen = |rig: &Rig| {
            let mut seen = [0; OBJECT];
            rig.memory.read(SEEN, &mut seen).unwrap();
            seen
        };
        assert_eq!(rig.post(&request), (0, String::new()));
        assert_eq!(seen(&rig), [0; OBJECT], "nobody had written it");
        // Nothing of it is named, so that it is read alone.
        let written: [u8; OBJECT] = request[DATA..].try_into().unwrap();
        request[56..].fill(0);
        rig.memory.write(RECORD + 4, &0_u32.to_be_bytes()).unwrap();
        rig.hca.queues.sends.values_mut().for_each(|queue| queue.consumer = 0);
        assert_eq!(rig.post(&request), (0, String::new()));
        assert_eq!(seen(&rig), written);
        assert_eq!(rig.hca.steering().written_meters(), 1);
    }

    #[test]
    fn a_request_reads_first_hits_and_forgets_those_that_it_names() {
        const SEEN: u64 = 0x4800;
        let mut rig = rig();
        let domain = rig.hca.queues.sends.values().next().unwrap().domain;
        let key = [(l::create_mkey::PD, domain.into()), (l::create_mkey::LENGTH64, 1), (l::create_mkey::LW, 1)];
        let key = made(&mut rig.hca, 0x200, &l::create_mkey::LAYOUT, &key, &[]);
        let object = rig.hca.steering.hits.allocate(domain, 0).unwrap();
        let mut data = [0; OBJECT];
        (data[OBJECT - 1], data[OBJECT - 2]) = (1, 2);
        rig.hca.steering.hits.write(domain, object, u64::MAX, &data).unwrap();
        let mut request = rig.request();
        request[0] = 4;
        request[12..16].copy_from_slice(&object.to_be_bytes());
        request[16..24].copy_from_slice(&(SEEN | 1).to_be_bytes());
        request[24..28].copy_from_slice(&u32::try_from(key << 8).unwrap().to_be_bytes());
        // The last byte alone.
        request[56..64].copy_from_slice(&1_u64.to_be_bytes());
        assert_eq!(rig.post(&request), (0, String::new()));
        let mut seen = [0; OBJECT];
        rig.memory.read(SEEN, &mut seen).unwrap();
        assert_eq!(seen, data);
        data[OBJECT - 1] = 0;
        assert_eq!(rig.hca.steering.hits.bytes(object), Ok(data));
    }

    #[test]
    fn a_request_whose_conditions_never_hold_only_reads_a_connection() {
        const SEEN: u64 = 0x4800;
        let mut rig = rig();
        let domain = rig.hca.queues.sends.values().next().unwrap().domain;
        let key = [(l::create_mkey::PD, domain.into()), (l::create_mkey::LENGTH64, 1), (l::create_mkey::LW, 1)];
        let key = made(&mut rig.hca, 0x200, &l::create_mkey::LAYOUT, &key, &[]);
        let object = rig.hca.steering.connections.create(0, domain, 6).unwrap() + 5;
        let mut connection = [0; OBJECT];
        (connection[0], connection[0x3c]) = (7, 0x90);
        rig.hca.steering.connections.write(domain, object, u64::MAX, &connection).unwrap();
        let mut request = rig.request();
        (request[0], request[29]) = (1, 0);
        request[12..16].copy_from_slice(&object.to_be_bytes());
        request[16..24].copy_from_slice(&(SEEN | 1).to_be_bytes());
        request[24..28].copy_from_slice(&u32::try_from(key << 8).unwrap().to_be_bytes());
        request[56..].fill(0xff);
        assert_eq!(rig.post(&request), (0, String::new()));
        let mut seen = [0; OBJECT];
        rig.memory.read(SEEN, &mut seen).unwrap();
        assert_eq!(seen, connection);
        assert_eq!(rig.hca.steering.connections.read(domain, object), Ok(connection));
    }

    #[test]
    fn a_request_that_writes_a_connection_gives_back_what_it_was() {
        const SEEN: u64 = 0x4800;
        let mut rig = rig();
        let domain = rig.hca.queues.sends.values().next().unwrap().domain;
        let key = [(l::create_mkey::PD, domain.into()), (l::create_mkey::LENGTH64, 1), (l::create_mkey::LW, 1)];
        let key = made(&mut rig.hca, 0x200, &l::create_mkey::LAYOUT, &key, &[]);
        let object = rig.hca.steering.connections.create(0, domain, 6).unwrap();
        let mut request = rig.request();
        request[0] = 1;
        request[12..16].copy_from_slice(&object.to_be_bytes());
        request[16..24].copy_from_slice(&(SEEN | 1).to_be_bytes());
        request[24..28].copy_from_slice(&u32::try_from(key << 8).unwrap().to_be_bytes());
        request[56..64].fill(0xff);
        request[64..].fill(0);
        (request[64], request[64 + 0x3c]) = (9, 0x90);
        rig.memory.write(SEEN, &[0xaa; OBJECT]).unwrap();
        assert_eq!(rig.post(&request), (0, String::new()));
        let mut seen = [0; OBJECT];
        rig.memory.read(SEEN, &mut seen).unwrap();
        assert_eq!(seen, [0; OBJECT]);
        assert_eq!(rig.hca.steering.connections.read(domain, object).unwrap()[..], request[64..]);
    }

    #[test]
    fn a_queue_of_another_domain_does_not_write() {
        let mut rig = rig();
        let other = made(&mut rig.hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        rig.hca.queues.sends.values_mut().for_each(|queue| queue.domain = u32::try_from(other).unwrap());
        let request = rig.request();
        let (opcode, said) = rig.post(&request);
        assert!(opcode == 0xd && said.contains("is of PD"), "{opcode:#x} {said}");
    }
}
