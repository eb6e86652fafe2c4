//! What a refusal waits for: what would have to change before the same request can succeed.

use std::net::IpAddr;

use crate::port::PortNumber;
use crate::refusal::Refusal;

/// What could change a [refusal](Refusal::cause), or [has changed](crate::backend::DeviceEvent::Changed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A port came, came back or is of another kind; any port where the number is not known.
    Port(Option<PortNumber>),
    /// A meter was made.
    Meter,
    /// A timeout policy was made.
    TimeoutPolicy,
    /// There is room: for rules, for what they share, or for memory.
    Room,
    /// The way to an address is known: route and neighbour; to any address where it is not known which.
    Neighbour(Option<IpAddr>),
    /// The kernel or a driver can do more: a module was loaded, a setting was changed.
    Module,
    /// A chain can be jumped to.
    Chain,
    /// Nothing that an event would name: the device was busy or failed, and may do it another time.
    Time,
}

impl Cause {
    /// Every kind of cause, with the word for it.
    pub const ALL: [(Self, &str); 8] = [
        (Self::Port(None), "port"),
        (Self::Meter, "meter"),
        (Self::TimeoutPolicy, "timeout policy"),
        (Self::Room, "room"),
        (Self::Neighbour(None), "neighbour"),
        (Self::Module, "module"),
        (Self::Chain, "chain"),
        (Self::Time, "time"),
    ];

    /// The word for its kind.
    pub fn name(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find_map(|(cause, name)| (cause.kind() == self.kind()).then_some(name))
            .unwrap_or_default()
    }

    /// Whether this change is one that a refusal with the cause `awaited` waits for.
    pub fn concerns(self, awaited: Self) -> bool {
        match (self, awaited) {
            (Self::Port(Some(changed)), Self::Port(Some(awaited))) => changed == awaited,
            (Self::Neighbour(Some(changed)), Self::Neighbour(Some(awaited))) => changed == awaited,
            _ => self.kind() == awaited.kind(),
        }
    }

    /// A bit for its kind: what some flows wait for fits into a few of them.
    pub(crate) const fn kind(self) -> u8 {
        match self {
            Self::Port(_) => 1,
            Self::Meter => 1 << 1,
            Self::TimeoutPolicy => 1 << 2,
            Self::Room => 1 << 3,
            Self::Neighbour(_) => 1 << 4,
            Self::Module => 1 << 5,
            Self::Chain => 1 << 6,
            Self::Time => 1 << 7,
        }
    }
}

impl Refusal {
    /// What could change the refusal; `None` if nothing can but another request.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::Action { .. }
            | Self::Combination { .. }
            | Self::Continuation { .. }
            | Self::Field { .. }
            | Self::Limit { .. }
            | Self::Unsupported { .. } => None,
            Self::Busy { .. } | Self::Device { .. } => Some(Cause::Time),
            Self::Kernel { errno, .. } => Some(of_errno(*errno)),
            Self::Port { number, .. } => Some(Cause::Port(*number)),
            Self::PortGone { number, .. } => Some(Cause::Port(Some(*number))),
            Self::Until { cause, .. } => Some(*cause),
        }
    }

    /// The same refusal, of which it is known what could change it.
    #[must_use]
    pub fn until(self, cause: Cause) -> Self {
        let refusal = match self {
            Self::Until { refusal, .. } => refusal,
            other => Box::new(other),
        };
        Self::Until { cause, refusal }
    }
}

/// What an error number of the kernel (`include/uapi/asm-generic/errno*.h`) leaves to hope for.
const fn of_errno(errno: i32) -> Cause {
    const ENOENT: i32 = 2;
    const ENOMEM: i32 = 12;
    const ENODEV: i32 = 19;
    const EINVAL: i32 = 22;
    const ENOSPC: i32 = 28;
    const EOPNOTSUPP: i32 = 95;
    const ENETUNREACH: i32 = 101;
    const ENOBUFS: i32 = 105;
    const EHOSTUNREACH: i32 = 113;
    match errno {
        // What makes an action or a classifier is in a module that cannot be loaded (`tc_action_load_ops`), and a driver
        // refuses so what it is not set to do.
        ENOENT | EOPNOTSUPP => Cause::Module,
        ENOMEM | ENOSPC | ENOBUFS => Cause::Room,
        // Without its queueing discipline the kernel says of a device that the request is invalid (`__tcf_qdisc_find`).
        ENODEV | EINVAL => Cause::Port(None),
        ENETUNREACH | EHOSTUNREACH => Cause::Neighbour(None),
        _ => Cause::Time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::ActionKind;
    use crate::backend::Facet;
    use crate::field::Field;

    #[test]
    fn a_refusal_waits_for_what_could_change_it() {
        let kernel = |errno| Refusal::Kernel { errno, message: "words".into() };
        let meter = || Refusal::Action { action: ActionKind::Meter, reason: "there is no meter 1".into() };
        let cases = [
            (Refusal::Field { field: Field::CtState, reason: "no".into() }, None),
            (Refusal::Combination { reason: "no".into() }, None),
            (Refusal::Limit { what: "actions".into(), limit: 32 }, None),
            (Refusal::Unsupported { facet: Facet::Capacity }, None),
            (Refusal::Limit { what: "rules".into(), limit: 32 }.until(Cause::Room), Some(Cause::Room)),
            (meter(), None),
            (meter().until(Cause::Meter), Some(Cause::Meter)),
            (meter().until(Cause::Meter).until(Cause::Time), Some(Cause::Time)),
            (Refusal::no_port(PortNumber(3)), Some(Cause::Port(Some(PortNumber(3))))),
            (Refusal::Busy { reason: "no".into() }, Some(Cause::Time)),
            (kernel(12), Some(Cause::Room)),
            (kernel(28), Some(Cause::Room)),
            (kernel(19), Some(Cause::Port(None))),
            (kernel(95), Some(Cause::Module)),
            (kernel(113), Some(Cause::Neighbour(None))),
            (kernel(17), Some(Cause::Time)),
        ];
        for (refusal, cause) in cases {
            assert_eq!(refusal.cause(), cause, "{refusal}");
        }
        let told = meter().until(Cause::Meter);
        assert_eq!((told.to_string(), told.label()), (meter().to_string(), meter().label()), "nothing else is said");
    }

    #[test]
    fn a_port_or_a_neighbour_concerns_those_that_wait_for_it_or_for_one_that_is_not_known() {
        let port = |number| Cause::Port(Some(PortNumber(number)));
        assert!(port(1).concerns(port(1)));
        assert!(!port(1).concerns(port(2)));
        assert!(port(1).concerns(Cause::Port(None)));
        assert!(Cause::Port(None).concerns(port(2)));
        assert!(!port(1).concerns(Cause::Room) && !Cause::Room.concerns(port(1)));
        let neighbour = |last: u8| Cause::Neighbour(Some([10, 0, 0, last].into()));
        assert!(neighbour(1).concerns(neighbour(1)) && !neighbour(1).concerns(neighbour(2)));
        assert!(neighbour(1).concerns(Cause::Neighbour(None)) && Cause::Neighbour(None).concerns(neighbour(1)));
    }

    #[test]
    fn every_kind_has_a_word_and_a_bit_of_its_own() {
        let kinds = Cause::ALL.iter().fold(0, |kinds, (cause, name)| {
            assert_eq!(cause.name(), *name);
            assert_eq!(kinds & cause.kind(), 0);
            kinds | cause.kind()
        });
        assert_eq!(kinds, u8::MAX);
        assert_eq!(Cause::Port(Some(PortNumber(7))).name(), "port");
    }
}
