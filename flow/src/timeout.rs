//! Timeout policies: how long connections are remembered, by name, as in `ct(timeout=NAME)`.

use std::collections::BTreeMap;

use crate::name::{self, NameError};

/// A timeout policy (table `CT_Timeout_Policy` of OVS's database).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeoutPolicy {
    /// Its name.
    pub name: Box<str>,
    seconds: BTreeMap<TimeoutKey, u32>,
}

impl TimeoutPolicy {
    /// As many bytes as a name has at most (`CTNL_TIMEOUT_NAME_MAX` without the end).
    pub const MAX_NAME: usize = 31;

    /// A policy that leaves every timeout as it usually is.
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self { name: name.into(), seconds: BTreeMap::new() }
    }

    /// Whether a flow can refer to a policy of this name; if not, why.
    pub fn check_name(name: &str) -> Result<(), NameError> {
        name::check("the name of a timeout policy", name, Self::MAX_NAME)
    }

    /// Sets a timeout, in seconds.
    pub fn set(&mut self, key: TimeoutKey, seconds: u32) {
        self.seconds.insert(key, seconds);
    }

    /// The timeouts that are set, in seconds.
    pub fn timeouts(&self) -> impl Iterator<Item = (TimeoutKey, u32)> + '_ {
        self.seconds.iter().map(|(key, seconds)| (*key, *seconds))
    }
}

macro_rules! timeout_keys {
    ($($(#[$doc:meta])* $key:ident, $name:literal;)*) => {
        /// What a timeout is for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum TimeoutKey {
            $($(#[$doc])* $key,)*
        }

        impl TimeoutKey {
            /// All of them, in the order of OVS's documentation.
            pub const ALL: &[Self] = &[$(Self::$key,)*];

            /// Its name in OVS's database.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name,)*
                }
            }
        }
    };
}

timeout_keys! {
    /// A SYN was sent.
    TcpSynSent, "tcp_syn_sent";
    /// It was answered.
    TcpSynRecv, "tcp_syn_recv";
    /// Both ends agree that they are connected.
    TcpEstablished, "tcp_established";
    /// One end closed.
    TcpFinWait, "tcp_fin_wait";
    /// The other end acknowledged that.
    TcpCloseWait, "tcp_close_wait";
    /// Both closed.
    TcpLastAck, "tcp_last_ack";
    /// Both acknowledged.
    TcpTimeWait, "tcp_time_wait";
    /// The connection was reset.
    TcpClose, "tcp_close";
    /// Both ends sent a SYN.
    TcpSynSent2, "tcp_syn_sent2";
    /// The same is sent again and again.
    TcpRetransmit, "tcp_retransmit";
    /// Data is not acknowledged.
    TcpUnack, "tcp_unack";
    /// The first packet was seen; Linux does not tell it from the next ones.
    UdpFirst, "udp_first";
    /// Only one end sent something.
    UdpSingle, "udp_single";
    /// Both ends did.
    UdpMultiple, "udp_multiple";
    /// The first packet was seen.
    IcmpFirst, "icmp_first";
    /// It was answered; Linux does not tell that from the first.
    IcmpReply, "icmp_reply";
}

impl TimeoutKey {
    /// The key of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_name() {
        for key in TimeoutKey::ALL {
            assert_eq!(TimeoutKey::named(key.name()), Some(*key));
        }
        assert_eq!(TimeoutKey::named("tcp"), None);
    }

    #[test]
    fn a_name_stands_in_a_flow() {
        assert_eq!(TimeoutPolicy::check_name("ovs_tp_0_tcp4"), Ok(()));
        for name in ["", "two words", "a,b", "a)", "this_name_is_longer_than_31_bytes_"] {
            assert!(TimeoutPolicy::check_name(name).is_err(), "{name}");
        }
    }
}
