//! The agent's plan, as a source follows it.
//!
//! A plan names network devices, and frames are told apart by the index of theirs. A device that is deleted and made anew has its old name
//! and another index, of which the agent, whose plan is the same, tells nobody. So a plan is followed again from time to time.

use std::future::pending;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::net::netdevice::{index_to_name, name_to_index};
use sluice_control::mirror::Plan;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How soon the same plan is followed again.
const AGAIN: Duration = Duration::from_secs(1);

/// The agent's plan while it changes.
#[derive(Debug)]
pub(super) struct Following {
    plan: watch::Receiver<Option<Plan>>,
    /// When to follow the same plan again. It is kept here, for frames that come meanwhile are not to put it off.
    again: Option<Instant>,
}

impl Following {
    pub(super) fn new(mut plan: watch::Receiver<Option<Plan>>) -> Self {
        plan.mark_changed();
        Self { plan, again: None }
    }

    /// Waits until a plan is to be followed, and returns it. Nothing is lost if this is dropped before it is done.
    pub(super) async fn next(&mut self) -> Plan {
        loop {
            let again = self.again;
            let is_time = async {
                match again {
                    Some(again) => sleep_until(again).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                changed = self.plan.changed() => {
                    if changed.is_err() {
                        // The agent's socket has ended with the sender.
                        pending::<()>().await;
                    }
                }
                () = is_time => {}
            }
            let plan = self.plan.borrow_and_update().clone();
            self.again = plan.is_some().then(|| Instant::now() + AGAIN);
            if let Some(plan) = plan {
                return plan;
            }
        }
    }
}

/// Where the kernel is asked for network devices, for which any socket does. One of packets would take the kernel long to close.
#[derive(Debug)]
pub(super) struct Names(UnixDatagram);

impl Names {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(UnixDatagram::unbound()?))
    }

    /// Returns the index of the network device that has this name now.
    pub(super) fn ifindex(&self, name: &str) -> Option<u32> {
        name_to_index(&self.0, name).ok()
    }

    /// Returns the name of the network device that has this index.
    pub(super) fn name(&self, ifindex: u32) -> Option<String> {
        index_to_name(&self.0, ifindex).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_plan_is_followed_when_it_is_told_and_again_while_it_stays() {
        let (tell, plan) = watch::channel(None);
        let mut following = Following::new(plan);
        let plan = |collector: &str| Plan { collector: collector.to_owned(), ..Plan::default() };
        for collector in ["first", "second"] {
            tell.send_replace(Some(plan(collector)));
            assert_eq!(following.next().await, plan(collector));
            assert_eq!(following.next().await, plan(collector));
        }
    }

    #[test]
    fn a_network_device_is_found_by_its_name_and_by_its_index() {
        let names = Names::open().unwrap();
        let index: u32 = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
        assert_eq!((names.ifindex("lo"), names.ifindex("no-such-device")), (Some(index), None));
        assert_eq!((names.name(index).as_deref(), names.name(u32::MAX >> 1)), (Some("lo"), None));
    }
}
