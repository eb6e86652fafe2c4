//! Timeout policies: how long connections are remembered that a rule with `timeout=NAME` began
//! (`net/netfilter/nfnetlink_cttimeout.c`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::RwLock;
use sluice_flow::action::ActionKind;
use sluice_flow::cause::Cause;
use sluice_flow::refusal::Refusal;
use sluice_flow::timeout::{TimeoutKey, TimeoutPolicy};

use super::timeouts::Timeouts;

/// All policies. The lock is taken by flows that have one, and then only to install them.
#[derive(Default)]
pub(crate) struct Policies(RwLock<HashMap<Box<str>, Arc<Policy>, RandomState>>);

/// One policy. Its connections follow it when it changes.
#[derive(Debug)]
pub(crate) struct Policy {
    timeouts: RwLock<Timeouts>,
    /// Actions of installed rules that name it.
    users: AtomicUsize,
}

impl Policies {
    /// Makes a policy, or changes it. True if it is new.
    pub(crate) fn set(&self, policy: &TimeoutPolicy) -> Result<bool, Refusal> {
        TimeoutPolicy::check_name(&policy.name).map_err(|error| refusal(error.to_string()))?;
        let timeouts = timeouts(policy);
        let mut policies = self.0.write();
        if let Some(old) = policies.get(policy.name.as_ref()) {
            *old.timeouts.write() = timeouts;
            return Ok(false);
        }
        let new = Policy { timeouts: RwLock::new(timeouts), users: AtomicUsize::new(0) };
        policies.insert(policy.name.clone(), Arc::new(new));
        Ok(true)
    }

    /// Removes a policy that no rule uses. Its connections have the usual timeouts from now on.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Refusal> {
        let mut policies = self.0.write();
        let Some(policy) = policies.get(name) else {
            return Err(unknown(name));
        };
        let users = policy.users.load(Ordering::SeqCst);
        if users > 0 {
            return Err(refusal(format!("timeout={name} is used by {users} actions of installed rules")));
        }
        *policy.timeouts.write() = Timeouts::DEFAULT;
        policies.remove(name);
        Ok(())
    }

    /// A policy for a dry run.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Policy>, Refusal> {
        self.0.read().get(name).cloned().ok_or_else(|| unknown(name))
    }

    /// A policy for a rule: it cannot be removed until [`Policy::release`].
    pub(crate) fn acquire(&self, name: &str) -> Result<Arc<Policy>, Refusal> {
        let policies = self.0.read();
        let policy = policies.get(name).ok_or_else(|| unknown(name))?;
        policy.users.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::clone(policy))
    }
}

impl Policy {
    pub(crate) fn timeouts(&self) -> Timeouts {
        *self.timeouts.read()
    }

    /// One user less.
    pub(crate) fn release(&self) {
        self.users.fetch_sub(1, Ordering::SeqCst);
    }
}

fn unknown(name: &str) -> Refusal {
    refusal(format!("timeout={name}: there is no such timeout policy")).until(Cause::TimeoutPolicy)
}

fn refusal(reason: String) -> Refusal {
    Refusal::Action { action: ActionKind::Ct, reason: reason.into() }
}

/// What a policy says, and the usual timeouts where it says nothing.
fn timeouts(policy: &TimeoutPolicy) -> Timeouts {
    let mut timeouts = Timeouts::DEFAULT;
    for (key, seconds) in policy.timeouts() {
        let place = match key {
            TimeoutKey::TcpSynSent => &mut timeouts.tcp.syn_sent,
            TimeoutKey::TcpSynRecv => &mut timeouts.tcp.syn_received,
            TimeoutKey::TcpEstablished => &mut timeouts.tcp.established,
            TimeoutKey::TcpFinWait => &mut timeouts.tcp.fin_wait,
            TimeoutKey::TcpCloseWait => &mut timeouts.tcp.close_wait,
            TimeoutKey::TcpLastAck => &mut timeouts.tcp.last_ack,
            TimeoutKey::TcpTimeWait => &mut timeouts.tcp.time_wait,
            TimeoutKey::TcpClose => &mut timeouts.tcp.close,
            TimeoutKey::TcpSynSent2 => &mut timeouts.tcp.syn_sent2,
            TimeoutKey::TcpRetransmit => &mut timeouts.tcp.retransmission,
            TimeoutKey::TcpUnack => &mut timeouts.tcp.unacknowledged,
            TimeoutKey::UdpSingle => &mut timeouts.udp_unreplied,
            TimeoutKey::UdpMultiple => &mut timeouts.udp_stream,
            TimeoutKey::IcmpFirst => &mut timeouts.icmp,
            // Linux does not tell these from the others (`CT_DPIF_NL_TP_…_MAPPINGS` in lib/dpif-netlink.c).
            TimeoutKey::UdpFirst | TimeoutKey::IcmpReply => continue,
        };
        *place = Duration::from_secs(seconds.into());
    }
    timeouts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow() -> TimeoutPolicy {
        let mut policy = TimeoutPolicy::new("slow");
        policy.set(TimeoutKey::TcpSynSent, 7);
        policy.set(TimeoutKey::UdpMultiple, 900);
        policy
    }

    #[test]
    fn a_policy_changes_what_it_names_and_nothing_else() {
        let policies = Policies::default();
        assert!(policies.set(&slow()).unwrap());
        let mut expected = Timeouts::DEFAULT;
        expected.tcp.syn_sent = Duration::from_secs(7);
        expected.udp_stream = Duration::from_secs(900);
        assert_eq!(policies.get("slow").unwrap().timeouts(), expected);
    }

    #[test]
    fn who_follows_a_policy_follows_its_changes() {
        let policies = Policies::default();
        policies.set(&slow()).unwrap();
        let followed = policies.get("slow").unwrap();
        assert!(!policies.set(&TimeoutPolicy::new("slow")).unwrap());
        assert_eq!(followed.timeouts(), Timeouts::DEFAULT);
        policies.set(&slow()).unwrap();
        policies.remove("slow").unwrap();
        assert_eq!(followed.timeouts(), Timeouts::DEFAULT);
    }

    #[test]
    fn every_key_but_two_has_an_effect() {
        let is_effective = |key: &TimeoutKey| {
            let mut policy = TimeoutPolicy::new("one");
            policy.set(*key, 1);
            timeouts(&policy) != Timeouts::DEFAULT
        };
        let without: Vec<_> = TimeoutKey::ALL.iter().filter(|key| !is_effective(key)).map(|key| key.name()).collect();
        assert_eq!(without, ["udp_first", "icmp_reply"]);
    }

    #[test]
    fn a_policy_in_use_stays() {
        let policies = Policies::default();
        assert!(policies.acquire("slow").unwrap_err().to_string().contains("timeout=slow"));
        policies.set(&slow()).unwrap();
        let used = policies.acquire("slow").unwrap();
        assert!(policies.remove("slow").unwrap_err().to_string().contains("used by 1"));
        used.release();
        policies.remove("slow").unwrap();
        assert!(policies.remove("slow").is_err());
    }
}
