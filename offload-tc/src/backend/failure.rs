//! What the kernel's errors mean for a rule.

use rustix::io::Errno;
use sluice_flow::refusal::Refusal;
use sluice_netdev::LinkError;

use super::ports::table::PortTable;
use crate::socket::{self, SocketError};
use crate::wire::filter::Hook;

pub(super) type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Whether the rule, or the place where it could be, does not exist.
pub(super) fn is_absence(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Kernel { errno, .. } if socket::is_absence(*errno))
}

/// Whether the rule exists already.
pub(super) fn is_duplicate(refusal: &Refusal) -> bool {
    is(refusal, Errno::EXIST)
}

/// The refusal as the agent should see it: what may succeed later is "busy", so that it is tried again.
pub(super) fn refine(refusal: Refusal, hook: Hook, ports: &PortTable) -> Refusal {
    const BUSY: [Errno; 4] = [Errno::AGAIN, Errno::BUSY, Errno::NOMEM, Errno::NOBUFS];
    match &refusal {
        Refusal::Kernel { message, .. } if BUSY.iter().any(|errno| is(&refusal, *errno)) => {
            Refusal::Busy { reason: message.clone().into() }
        }
        Refusal::Kernel { message, .. } if is(&refusal, Errno::NODEV) => {
            let found = ports.port_at(hook);
            let port = found.map_or("of the rule", |port| &port.name).to_owned();
            Refusal::Port { port, number: found.map(|port| port.number), reason: message.clone().into() }
        }
        Refusal::Kernel { errno, message } if is(&refusal, Errno::NOSPC) => {
            Refusal::Kernel { errno: *errno, message: format!("the device is full: {message}") }
        }
        Refusal::Kernel { errno, message } if is(&refusal, Errno::PERM) => {
            Refusal::Kernel { errno: *errno, message: format!("{message}: CAP_NET_ADMIN is needed") }
        }
        _ => refusal,
    }
}

/// Another rule has the match.
pub(super) fn duplicate() -> Refusal {
    Refusal::Kernel {
        errno: Errno::EXIST.raw_os_error(),
        message: "another rule has the same match at this priority".into(),
    }
}

/// The refusal for an error of a request about network devices.
pub(super) fn link_refusal(error: LinkError) -> Refusal {
    match error.reason() {
        Some(reason) => Refusal::Kernel { errno: reason.errno.raw_os_error(), message: error.to_string() },
        None => device_refusal(error),
    }
}

/// The refusal for an error of a socket for filters.
pub(super) fn socket_refusal(error: SocketError) -> Refusal {
    device_refusal(error)
}

pub(super) fn device_refusal(error: impl std::fmt::Display) -> Refusal {
    Refusal::Device { reason: error.to_string().into() }
}

fn is(refusal: &Refusal, wanted: Errno) -> bool {
    matches!(refusal, Refusal::Kernel { errno, .. } if *errno == wanted.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOOK: Hook = Hook::Ingress { interface: 3 };

    fn kernel(errno: Errno) -> Refusal {
        Refusal::Kernel { errno: errno.raw_os_error(), message: "words".into() }
    }

    #[test]
    fn each_failure_ends_as_what_can_be_done_about_it() {
        let label = |errno| refine(kernel(errno), HOOK, &PortTable::default()).label();
        assert_eq!(label(Errno::AGAIN), "busy");
        assert_eq!(label(Errno::BUSY), "busy");
        assert_eq!(label(Errno::NODEV), "port");
        for lasting in [Errno::OPNOTSUPP, Errno::NOSPC, Errno::PERM, Errno::EXIST] {
            assert_eq!(label(lasting), "kernel");
        }
        let other = Refusal::Limit { what: "rules".into(), limit: 1 };
        assert_eq!(refine(other.clone(), HOOK, &PortTable::default()), other);
    }

    #[test]
    fn a_full_device_and_a_missing_right_are_named_with_the_kernels_words() {
        let text = |errno| refine(kernel(errno), HOOK, &PortTable::default()).to_string();
        assert_eq!(text(Errno::NOSPC), "kernel: the device is full: words (errno 28)");
        assert_eq!(text(Errno::PERM), "kernel: words: CAP_NET_ADMIN is needed (errno 1)");
    }
}
