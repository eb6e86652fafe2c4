//! Options of tunnel headers, which flower matches (`TCA_FLOWER_KEY_ENC_OPTS`) and `tunnel_key` sets
//! (`TCA_TUNNEL_KEY_ENC_OPTS`): their attributes have the same numbers.

use sluice_netdev::netlink::attribute::{Attribute, Attributes, Malformed, Writer};

const GENEVE: u16 = 1;
const VXLAN: u16 = 2;
const ERSPAN: u16 = 3;
const GTP: u16 = 4;
const GENEVE_CLASS: u16 = 1;
const GENEVE_TYPE: u16 = 2;
const GENEVE_DATA: u16 = 3;
const VXLAN_POLICY: u16 = 1;
const ERSPAN_VERSION: u16 = 1;
const ERSPAN_INDEX: u16 = 2;
const ERSPAN_DIRECTION: u16 = 3;
const ERSPAN_HARDWARE: u16 = 4;
const GTP_TYPE: u16 = 1;
const GTP_FLOW: u16 = 2;

/// The options of a header, or a mask for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Options {
    /// Geneve options, in order.
    Geneve(Vec<GeneveOption>),
    /// The VXLAN group policy: id in the lower half, flags in the upper one (`VXLAN_GBP_*`).
    Vxlan(u32),
    /// ERSPAN.
    Erspan(Erspan),
    /// The PDU session container of GTP-U; flower only.
    Gtp {
        /// PDU type.
        pdu_type: u8,
        /// QoS flow identifier.
        flow: u8,
    },
}

/// A Geneve option, or a mask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneveOption {
    /// Class.
    pub class: u16,
    /// Type.
    pub kind: u8,
    /// Data, 4 to 124 bytes in whole words.
    pub data: Vec<u8>,
}

/// The ERSPAN header, or a mask for it. Each version has its own fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erspan {
    /// Version 1 or 2; all bits in a mask.
    pub version: u8,
    /// Index, in version 1.
    pub index: Option<u32>,
    /// Direction, in version 2.
    pub direction: Option<u8>,
    /// Hardware id, in version 2.
    pub hardware: Option<u8>,
}

impl Options {
    /// Writes the options into a nest.
    pub fn emit(&self, kind: u16, writer: &mut Writer<'_>) {
        writer.nest(kind, |writer| match self {
            Self::Geneve(options) => options.iter().for_each(|option| option.emit(writer)),
            Self::Vxlan(policy) => writer.nest(VXLAN, |writer| writer.put(VXLAN_POLICY, &policy.to_ne_bytes())),
            Self::Erspan(header) => header.emit(writer),
            Self::Gtp { pdu_type, flow } => writer.nest(GTP, |writer| {
                writer.put(GTP_TYPE, &[*pdu_type]);
                writer.put(GTP_FLOW, &[*flow]);
            }),
        });
    }

    /// Reads the options of a nest.
    pub fn parse(nest: &Attribute<'_>) -> Result<Self, Malformed> {
        let mut geneve = Vec::new();
        let mut other = None;
        for option in nest.nested("tunnel options") {
            let option = option?;
            match option.kind {
                GENEVE => GeneveOption::parse(option.nested("Geneve option"), &mut geneve)?,
                VXLAN => other = Some(Self::Vxlan(policy(option.nested("VXLAN options"))?)),
                ERSPAN => other = Some(Self::Erspan(Erspan::parse(option.nested("ERSPAN options"))?)),
                GTP => other = Some(gtp(option.nested("GTP options"))?),
                _ => return Err(option.unknown()),
            }
        }
        match other {
            None => Ok(Self::Geneve(geneve)),
            Some(other) if geneve.is_empty() => Ok(other),
            Some(_) => Err(nest.value("options of two kinds of tunnel")),
        }
    }
}

impl GeneveOption {
    fn emit(&self, writer: &mut Writer<'_>) {
        writer.nest(GENEVE, |writer| {
            writer.put(GENEVE_CLASS, &self.class.to_be_bytes());
            writer.put(GENEVE_TYPE, &[self.kind]);
            writer.put(GENEVE_DATA, &self.data);
        });
    }

    /// Reads the contents of a nest. Requests have a nest for each option; the kernel's listings have one for all
    /// (`fl_dump_key_geneve_opt`), in which each option begins with its class.
    fn parse(nest: Attributes<'_>, found: &mut Vec<Self>) -> Result<(), Malformed> {
        let mut option: Option<Self> = None;
        for attribute in nest {
            let attribute = attribute?;
            if attribute.kind == GENEVE_CLASS {
                found.extend(option.take());
            }
            let option = option.get_or_insert(Self { class: 0, kind: 0, data: vec![] });
            match attribute.kind {
                GENEVE_CLASS => option.class = attribute.be16()?,
                GENEVE_TYPE => option.kind = attribute.u8()?,
                GENEVE_DATA => option.data = attribute.payload.to_vec(),
                _ => return Err(attribute.unknown()),
            }
        }
        found.extend(option);
        Ok(())
    }
}

impl Erspan {
    fn emit(self, writer: &mut Writer<'_>) {
        writer.nest(ERSPAN, |writer| {
            writer.put(ERSPAN_VERSION, &[self.version]);
            if let Some(index) = self.index {
                writer.put(ERSPAN_INDEX, &index.to_be_bytes());
            }
            if let Some(direction) = self.direction {
                writer.put(ERSPAN_DIRECTION, &[direction]);
            }
            if let Some(hardware) = self.hardware {
                writer.put(ERSPAN_HARDWARE, &[hardware]);
            }
        });
    }

    fn parse(nest: Attributes<'_>) -> Result<Self, Malformed> {
        let mut found = Self::default();
        for attribute in nest {
            let attribute = attribute?;
            match attribute.kind {
                ERSPAN_VERSION => found.version = attribute.u8()?,
                ERSPAN_INDEX => found.index = Some(attribute.be32()?),
                ERSPAN_DIRECTION => found.direction = Some(attribute.u8()?),
                ERSPAN_HARDWARE => found.hardware = Some(attribute.u8()?),
                _ => return Err(attribute.unknown()),
            }
        }
        Ok(found)
    }
}

fn policy(nest: Attributes<'_>) -> Result<u32, Malformed> {
    let mut found = 0;
    for attribute in nest {
        let attribute = attribute?;
        match attribute.kind {
            VXLAN_POLICY => found = attribute.u32()?,
            _ => return Err(attribute.unknown()),
        }
    }
    Ok(found)
}

fn gtp(nest: Attributes<'_>) -> Result<Options, Malformed> {
    let (mut pdu_type, mut flow) = (0, 0);
    for attribute in nest {
        let attribute = attribute?;
        match attribute.kind {
            GTP_TYPE => pdu_type = attribute.u8()?,
            GTP_FLOW => flow = attribute.u8()?,
            _ => return Err(attribute.unknown()),
        }
    }
    Ok(Options::Gtp { pdu_type, flow })
}
