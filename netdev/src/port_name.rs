//! The names that drivers give to the ports of a switch (`IFLA_PHYS_PORT_NAME`).

use std::fmt;

/// What stands behind a port of a switch, as its driver says it: `p0`, `p1s2`, `l1p3`, `pf0`, `pf0vf3`, `c1pf0sf88`
/// (`__devlink_port_phys_port_name_get` in the kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortName {
    /// A plug, or a part of one that was split.
    Physical {
        /// The line card, where there are some.
        line_card: Option<u32>,
        /// The number of the plug.
        port: u32,
        /// The number of the part.
        part: Option<u32>,
    },
    /// A function of a PCI device, of which the port is the representor.
    Function(Function),
}

/// A function of a PCI device, seen from the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// The controller, if it is not this host's own but another's: on a DPU the host that it is plugged into.
    pub controller: Option<u32>,
    /// The physical function that it is, or that it belongs to.
    pub physical: u32,
    /// Which part of it.
    pub part: FunctionPart,
}

/// Which part of a physical function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FunctionPart {
    /// The function itself.
    Whole,
    /// A virtual function.
    Virtual(u32),
    /// A subfunction.
    Sub(u32),
}

impl PortName {
    /// Reads a name. `None` if it is of another form: old drivers have some of their own, that do not tell the function.
    pub fn parse(name: &str) -> Option<Self> {
        let mut rest = name;
        let controller = take(&mut rest, "c");
        if let Some(physical) = take(&mut rest, "pf") {
            let part = if let Some(number) = take(&mut rest, "vf") {
                FunctionPart::Virtual(number)
            } else if let Some(number) = take(&mut rest, "sf") {
                FunctionPart::Sub(number)
            } else {
                FunctionPart::Whole
            };
            return rest.is_empty().then_some(Self::Function(Function { controller, physical, part }));
        }
        let line_card = take(&mut rest, "l");
        let port = take(&mut rest, "p")?;
        let part = take(&mut rest, "s");
        (controller.is_none() && rest.is_empty()).then_some(Self::Physical { line_card, port, part })
    }
}

/// The number behind a prefix. If there is none, nothing is taken.
fn take(rest: &mut &str, prefix: &str) -> Option<u32> {
    let behind = rest.strip_prefix(prefix)?;
    let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
    let (number, left) = behind.split_at(digits);
    let number = number.parse().ok()?;
    *rest = left;
    Some(number)
}

impl fmt::Display for PortName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Physical { line_card, port, part } => {
                line_card.map_or(Ok(()), |card| write!(out, "l{card}"))?;
                write!(out, "p{port}")?;
                part.map_or(Ok(()), |part| write!(out, "s{part}"))
            }
            Self::Function(function) => function.fmt(out),
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.controller.map_or(Ok(()), |controller| write!(out, "c{controller}"))?;
        write!(out, "pf{}", self.physical)?;
        match self.part {
            FunctionPart::Whole => Ok(()),
            FunctionPart::Virtual(number) => write!(out, "vf{number}"),
            FunctionPart::Sub(number) => write!(out, "sf{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn function(controller: Option<u32>, physical: u32, part: FunctionPart) -> PortName {
        PortName::Function(Function { controller, physical, part })
    }

    #[test]
    fn names_of_ports_are_read_and_written_back() {
        let plug = |line_card, port, part| PortName::Physical { line_card, port, part };
        for (text, name) in [
            ("p0", plug(None, 0, None)),
            ("p1s2", plug(None, 1, Some(2))),
            ("l3p14s0", plug(Some(3), 14, Some(0))),
            ("pf1", function(None, 1, FunctionPart::Whole)),
            ("c1pf0", function(Some(1), 0, FunctionPart::Whole)),
            ("pf0vf3", function(None, 0, FunctionPart::Virtual(3))),
            ("c1pf0sf88", function(Some(1), 0, FunctionPart::Sub(88))),
        ] {
            assert_eq!((PortName::parse(text), name.to_string().as_str()), (Some(name), text));
        }
    }

    #[test]
    fn what_is_no_name_of_a_port_names_nothing() {
        for text in
            ["", "0", "p", "pf", "pfvf1", "pf0vf", "pf0vf1x", "c1", "c1p0", "p0pf0", "p-1", "p4294967296", "P0", "p+1"]
        {
            assert_eq!(PortName::parse(text), None, "{text}");
        }
    }
}
