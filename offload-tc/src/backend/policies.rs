//! Follows the kernel's policies of IPsec, and has the rules of tunnels made anew for which they have changed.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_flow::cause::Cause;
use sluice_netdev::{IpsecPolicies, LinkError};

use super::core::Core;
use super::ipsec::Policies;
use crate::config::OffloadPolicy;

/// The time after which policies that could not be read are read again.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Who follows them.
pub(super) struct Follower {
    /// `None` if they could not be read.
    policies: Option<IpsecPolicies>,
    tried: Instant,
}

impl Follower {
    /// Reads the policies for the first time, and says what they are. Rules that are in software only need nobody who follows them.
    pub(super) fn open(core: &Core) -> Option<Self> {
        if core.policy == OffloadPolicy::SkipHardware {
            return None;
        }
        let (follower, policies) = Self::read();
        core.set_policies(policies);
        Some(follower)
    }

    /// Becomes readable when something has changed.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.policies.as_ref()?.socket()
    }

    /// Returns the policies that there are now, if they may have changed. Does not wait.
    pub(super) fn renew(&mut self) -> Option<Policies> {
        match self.policies.as_mut().map(|policies| policies.renew().map(|has_changed| (has_changed, policies.list())))
        {
            Some(Ok((has_changed, list))) => has_changed.then(|| Policies::Known(Arc::new(list.clone()))),
            Some(Err(error)) => {
                (self.policies, self.tried) = (None, Instant::now());
                Some(unknown(&error))
            }
            None if self.tried.elapsed() < BETWEEN_TRIES => None,
            None => {
                let (follower, policies) = Self::read();
                *self = follower;
                Some(policies)
            }
        }
    }

    fn read() -> (Self, Policies) {
        let read = IpsecPolicies::open();
        let policies = match &read {
            Ok(read) => Policies::Known(Arc::new(read.list().clone())),
            Err(error) => unknown(error),
        };
        (Self { policies: read.ok(), tried: Instant::now() }, policies)
    }
}

impl Core {
    /// Takes the policies of IPsec that there are from now on. Flows of tunnels for which they may have changed are to be looked at again.
    pub(super) fn set_policies(&self, policies: Policies) {
        let monitor = self.sockets.monitor.lock();
        let before = self.ports.load_full();
        if before.policies == policies {
            return;
        }
        if let Policies::Unknown(reason) = &policies {
            tracing::error!(
                "no rule of a tunnel is put into hardware, because the policies of IPsec cannot be read: {reason}"
            );
        }
        let is_concerned = |tunnel| policies.differ(&before.policies, tunnel);
        let tunnels = before.iter().filter(|attached| attached.tunnel().is_some_and(is_concerned));
        let concerned: Vec<_> = tunnels.map(|attached| attached.port.number).collect();
        let mut table = (*before).clone();
        table.policies = policies;
        self.ports.store(table);
        drop(monitor);
        concerned.into_iter().for_each(|port| self.events.port_changed(port));
        self.events.changed(Cause::Module);
    }
}

fn unknown(error: &LinkError) -> Policies {
    Policies::Unknown(error.to_string().into())
}
