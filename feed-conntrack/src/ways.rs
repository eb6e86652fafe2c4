//! The ways that the kernel would take with the packets of connections.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use sluice_flow::connection::Direction;
use sluice_netdev::{LinkError, NextHop, NextHops, NoNextHop, Target};

use crate::kernel;

/// How long a target may be followed that no connection needs, so that it is known when the next connection of the same host begins.
const KEPT: Duration = Duration::from_secs(30);

/// The next hops that connections need, and which connections need them. A connection is named by its original direction.
pub(crate) struct Ways {
    next_hops: NextHops,
    known: HashMap<Target, Way>,
    spread_by_ports: bool,
    /// Targets that may have lost their last user.
    is_stale: bool,
    pruned: Instant,
}

#[derive(Default)]
struct Way {
    told: Option<Result<NextHop, NoNextHop>>,
    users: HashSet<Direction>,
}

impl Ways {
    /// Starts to follow the kernel, in the network namespace of this thread.
    pub(crate) fn open() -> Result<Self, LinkError> {
        Ok(Self {
            next_hops: NextHops::open()?,
            known: HashMap::new(),
            spread_by_ports: kernel::spreads_by_ports(),
            is_stale: false,
            pruned: Instant::now(),
        })
    }

    /// The next hop of a target, which a connection wants to hear of from now on; `None` until it is known whether there is one.
    pub(crate) fn next_hop(&mut self, target: Target, user: Direction) -> Option<&Result<NextHop, NoNextHop>> {
        let next_hops = &mut self.next_hops;
        let way = self.known.entry(target).or_insert_with(|| {
            next_hops.follow(target);
            Way::default()
        });
        way.users.insert(user);
        way.told.as_ref()
    }

    /// A connection needs a target no longer.
    pub(crate) fn release(&mut self, target: &Target, user: &Direction) {
        if let Some(way) = self.known.get_mut(target) {
            way.users.remove(user);
            self.is_stale |= way.users.is_empty();
        }
    }

    /// Whether the way of a connection may depend on its ports: rules look at them, or the choice among several next hops does.
    pub(crate) fn look_at_ports(&self) -> bool {
        self.next_hops.look_at_ports() || self.spread_by_ports
    }

    /// Sees whether the choice among several next hops looks at ports, which the kernel does not tell of.
    pub(crate) fn renew(&mut self) {
        self.spread_by_ports = kernel::spreads_by_ports();
    }

    /// Returns the connections of which a next hop is another one than before. Does not wait.
    pub(crate) fn poll(&mut self) -> Result<HashSet<Direction>, LinkError> {
        let mut users = HashSet::new();
        for (target, next) in self.next_hops.poll(Duration::ZERO)? {
            if let Some(way) = self.known.get_mut(&target) {
                way.told = Some(next);
                users.extend(way.users.iter().copied());
            }
        }
        Ok(users)
    }

    /// The devices by which packets leave for a next hop, and those below them.
    pub(crate) fn devices(&self) -> HashSet<&str> {
        let told = self.known.values().filter_map(|way| way.told.as_ref()?.as_ref().ok());
        told.flat_map(NextHop::devices).collect()
    }

    /// Follows no more what no connection needs, now and then.
    pub(crate) fn prune(&mut self) {
        if self.is_stale && self.pruned.elapsed() >= KEPT {
            (self.is_stale, self.pruned) = (false, Instant::now());
            self.known.retain(|_, way| !way.users.is_empty());
            let known = &self.known;
            self.next_hops.retain(|target| known.contains_key(target));
        }
    }
}

impl AsFd for Ways {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.next_hops.as_fd()
    }
}
