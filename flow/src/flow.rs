//! A flow as it is wanted: match, actions, priority and expiry under one UFID.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use triomphe::ThinArc;

use crate::action::{Action, ActionList, jumps, names_port};
use crate::chain::ChainId;
use crate::field::{ETH_P_IP, ETH_P_IPV6, FRAGMENT_NO, Field};
use crate::key::{Mask, MaskedKey};
use crate::origin::Origin;
use crate::port::PortNumber;
use crate::priority::Priority;
use crate::ufid::{Identity, Seed, Ufid};

/// What is wanted of the device. Immutable: a modification makes a new one under the same UFID and identity.
///
/// A flow is one allocation, which its clones share; it [derefs](Deref) to what it is besides its match.
#[derive(Clone)]
pub struct Flow(ThinArc<Head, u8>);

/// A flow, but for the bytes of its key; [derefs](Deref) to its terms.
pub struct Head {
    /// The name of the flow.
    pub ufid: Ufid,
    terms: Arc<Terms>,
}

/// What many flows have in common, kept once for all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// What of a packet it looks at.
    mask: Arc<Mask>,
    /// What it does.
    pub actions: ActionList,
    /// Which of two flows of one chain wins.
    pub priority: Priority,
    /// When it goes by itself.
    pub expiry: Expiry,
    /// Who wants it.
    pub origin: Origin,
    /// Whether the datapath that it comes from takes a packet on in the later chain where it missed. If not, the packet begins again there.
    pub goes_on: bool,
    /// Whether the source has told the agent of all the meters that it names. If not, they are meters of the source's own datapath, of which
    /// nothing is known.
    pub brings_meters: bool,
    /// Whether the UFID was given, and is not the one that the identity yields.
    has_given_ufid: bool,
    keeper: Keeper,
}

/// The [parts](crate::parts::SharedParts) that keep these terms once for all flows of a table, by their number; 0 for none. Terms are equal
/// whoever keeps them, and a copy is kept by nobody.
#[derive(Debug, Default)]
struct Keeper(AtomicU32);

impl Flow {
    /// A flow with the given UFID, or the one that its identity yields.
    pub fn new(
        ufid: Option<Ufid>,
        matching: MaskedKey<'_>,
        actions: ActionList,
        priority: Priority,
        expiry: Expiry,
        seed: &Seed,
    ) -> Self {
        Self::with_terms(ufid, &matching, priority, seed, |has_given_ufid| {
            let (origin, goes_on, brings_meters) = Default::default();
            let manner = Manner { priority, expiry, origin, goes_on, brings_meters, has_given_ufid };
            Arc::new(Terms::new(matching.mask().clone(), actions, manner))
        })
    }

    /// The same with terms that others may have, too; they are asked for with the word whether its UFID is a given one.
    pub(crate) fn with_terms(
        ufid: Option<Ufid>,
        matching: &MaskedKey<'_>,
        priority: Priority,
        seed: &Seed,
        terms: impl FnOnce(bool) -> Arc<Terms>,
    ) -> Self {
        let (_, own_ufid) = seed.names(matching, priority);
        let ufid = ufid.unwrap_or(own_ufid);
        let terms = terms(ufid != own_ufid);
        Self(ThinArc::from_header_and_slice(Head { ufid, terms }, matching.bytes()))
    }

    /// What it matches.
    pub fn matching(&self) -> MaskedKey<'_> {
        MaskedKey::of_flow(&self.terms.mask, &self.0.slice)
    }

    /// Match and priority, hashed. `seed` is that of its making.
    pub fn identity(&self, seed: &Seed) -> Identity {
        if self.has_given_ufid { seed.names(&self.matching(), self.priority).0 } else { Identity::of_own(self.ufid) }
    }

    /// Whether its UFID was given, and is not the one that its identity yields.
    pub(crate) fn has_given_ufid(&self) -> bool {
        self.terms.has_given_ufid
    }

    /// The same flow, doing something else.
    #[must_use]
    pub fn with_actions(&self, actions: ActionList) -> Self {
        self.with(|head| head.terms = Arc::new(Terms { actions, ..Terms::clone(self) }))
    }

    /// The same flow, going by itself at another time.
    #[must_use]
    pub fn with_expiry(&self, expiry: Expiry) -> Self {
        self.with(|head| head.terms = Arc::new(Terms { expiry, ..Terms::clone(self) }))
    }

    /// The same flow, wanted by somebody else.
    #[must_use]
    pub fn with_origin(&self, origin: Origin) -> Self {
        if self.origin == origin {
            return self.clone();
        }
        self.with(|head| head.terms = Arc::new(Terms { origin, ..Terms::clone(self) }))
    }

    /// The same flow, of a datapath that takes a packet on in the later chain where it missed.
    #[must_use]
    pub fn going_on(&self) -> Self {
        self.with(|head| head.terms = Arc::new(Terms { goes_on: true, ..Terms::clone(self) }))
    }

    /// The same flow under the name of another one, which has the same match.
    pub(crate) fn named_as(self, other: &Self) -> Self {
        let has_given_ufid = other.has_given_ufid;
        if self.ufid == other.ufid && self.has_given_ufid == has_given_ufid {
            return self;
        }
        self.with(|head| {
            head.ufid = other.ufid;
            head.terms = Arc::new(Terms { has_given_ufid, ..Terms::clone(&self) });
        })
    }

    /// Whether its terms are those that the [parts](crate::parts::SharedParts) with this number keep.
    pub(crate) fn is_kept_by(&self, keeper: u32) -> bool {
        self.keeper.0.load(Ordering::Relaxed) == keeper
    }

    /// The same flow with equal terms in the place of its own.
    pub(crate) fn with_terms_of(mut self, share: impl Fn(&Arc<Terms>) -> Arc<Terms>) -> Self {
        let terms = share(&self.terms);
        let is_changed = self.0.with_arc_mut(|unshared| {
            let Some(whole) = triomphe::Arc::get_mut(unshared) else { return false };
            whole.header_mut().terms = terms.clone();
            true
        });
        if is_changed { self } else { self.with(|head| head.terms = terms) }
    }

    fn with(&self, change: impl FnOnce(&mut Head)) -> Self {
        let mut head = Head { ufid: self.ufid, terms: self.terms.clone() };
        change(&mut head);
        Self(ThinArc::from_header_and_slice(head, &self.0.slice))
    }

    /// Whether it has the match and priority of another, so that there can be only one of them.
    pub fn is_same(&self, other: &Self) -> bool {
        self.priority == other.priority && self.matching() == other.matching()
    }

    /// Whether it is a clone of another, and not another one that may be equal.
    pub fn is_clone_of(&self, other: &Self) -> bool {
        std::ptr::eq::<Head>(&**self, &**other)
    }

    /// The chain that the flow is in: its recirculation id.
    pub fn chain(&self) -> ChainId {
        #[expect(clippy::cast_possible_truncation, reason = "the field has 32 bits")]
        ChainId(self.matching().get(Field::RecircId).0 as u32)
    }

    /// Whether the flow names a port: as the one that packets come in at, or in its actions.
    pub fn names_port(&self, port: PortNumber) -> bool {
        let (in_port, mask) = self.matching().get(Field::InPort);
        mask != 0 && in_port == u128::from(port.0) || names_port(&self.actions, port)
    }

    /// The chains that the flow sends packets to.
    pub fn jumps(&self) -> Vec<ChainId> {
        jumps(&self.actions)
    }

    /// Whether a packet that misses where the flow sends it to may begin again in the first chain: it is as it came, and all that was done
    /// with it may be done twice.
    pub fn lets_begin_again(&self) -> bool {
        let Some((Action::Recirc(_), before)) = self.actions.split_last() else { return self.jumps().is_empty() };
        before.iter().all(|action| match action {
            // The connection has seen the packet, which changes nothing if it sees it again. Fragments would be put together.
            Action::Conntrack(track) => track.nat.is_none() && !self.takes_fragments(),
            Action::ConntrackClear | Action::Hash { .. } => true,
            _ => false,
        })
    }

    /// Whether fragments may be among its packets.
    fn takes_fragments(&self) -> bool {
        let full = self.matching().expand();
        let is_of = |eth_type: u16| full.is_exactly(Field::EthType, eth_type.into());
        let is_whole = |field| full.is_exactly(field, FRAGMENT_NO.into());
        !(is_of(ETH_P_IP) && is_whole(Field::Ipv4Frag) || is_of(ETH_P_IPV6) && is_whole(Field::Ipv6Frag))
    }
}

impl Deref for Flow {
    type Target = Head;

    fn deref(&self) -> &Head {
        &self.0.header.header
    }
}

impl Deref for Head {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
}

impl PartialEq for Flow {
    fn eq(&self, other: &Self) -> bool {
        self.ufid == other.ufid && self.terms == other.terms && self.0.slice == other.0.slice
    }
}

impl Eq for Flow {}

impl fmt::Debug for Flow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut flow = out.debug_struct("Flow");
        flow.field("ufid", &{ self.ufid }).field("matching", &self.matching()).field("terms", &self.terms).finish()
    }
}

impl Terms {
    pub(crate) fn new(mask: Arc<Mask>, actions: ActionList, manner: Manner) -> Self {
        let Manner { priority, expiry, origin, goes_on, brings_meters, has_given_ufid } = manner;
        let keeper = Keeper::default();
        Self { mask, actions, priority, expiry, origin, goes_on, brings_meters, has_given_ufid, keeper }
    }

    /// What they say besides the mask and the actions.
    pub(crate) fn manner(&self) -> Manner {
        let Self { priority, expiry, origin, goes_on, brings_meters, has_given_ufid, .. } = *self;
        Manner { priority, expiry, origin, goes_on, brings_meters, has_given_ufid }
    }

    /// They are kept by the [parts](crate::parts::SharedParts) with this number.
    pub(crate) fn note_keeper(&self, keeper: u32) {
        // Most are noted already, and read by others.
        if self.keeper.0.load(Ordering::Relaxed) != keeper {
            self.keeper.0.store(keeper, Ordering::Relaxed);
        }
    }

    /// The same with an equal mask and an equal list of actions; the very same if it has these.
    pub(crate) fn with_parts(
        self: &Arc<Self>,
        share_mask: impl Fn(&Arc<Mask>) -> Arc<Mask>,
        share_actions: impl Fn(&ActionList) -> ActionList,
    ) -> Arc<Self> {
        let (mask, actions) = (share_mask(&self.mask), share_actions(&self.actions));
        let has_these = Arc::ptr_eq(&mask, &self.mask) && Arc::ptr_eq(&actions, &self.actions);
        if has_these { self.clone() } else { Arc::new(Self { mask, actions, ..Self::clone(self) }) }
    }
}

/// What terms say besides the mask and the actions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) priority: Priority,
    pub(crate) expiry: Expiry,
    pub(crate) origin: Origin,
    pub(crate) goes_on: bool,
    pub(crate) brings_meters: bool,
    pub(crate) has_given_ufid: bool,
}

impl Clone for Keeper {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Keeper {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Keeper {}

impl Hash for Keeper {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// When a flow goes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expiry {
    /// Goes after so long without a packet; `None` takes the default of the configuration.
    pub idle: Option<Duration>,
    /// Goes so long after it was accepted, used or not; `None` takes the default of the configuration.
    pub hard: Option<Duration>,
    /// Never ages and is never evicted; the timeouts do not count.
    pub permanent: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_takes_little_memory_besides_the_bytes_of_its_key() {
        assert_eq!(size_of::<Option<Flow>>(), 8);
        assert!(size_of::<Head>() <= 24, "{} bytes", size_of::<Head>());
    }

    #[test]
    fn a_packet_may_begin_again_as_long_as_it_is_as_it_came() {
        let lets = |key: &str, actions: &str| {
            let matching = crate::text::parse_key(&format!("in_port(1),{key}"), &()).unwrap().matching;
            let actions = crate::text::parse_actions(actions, &()).unwrap();
            let key = MaskedKey::new(&matching);
            Flow::new(None, key, actions, Priority::default(), Expiry::default(), &Seed([0; 16])).lets_begin_again()
        };
        const UDP: &str = "eth_type(0x0800),ipv4(proto=17,frag=no)";
        for actions in ["2", "set(tunnel(tun_id=1)),2", "recirc(5)", "ct(zone=1),recirc(5)", "hash(l4(0)),recirc(5)"] {
            assert!(lets(UDP, actions), "{actions}");
        }
        assert!(lets(UDP, "ct(commit,zone=1,mark=0x1/0x1),ct_clear,recirc(5)"));
        assert!(lets("eth_type(0x86dd),ipv6(frag=no)", "ct,recirc(5)"));
        for actions in [
            "ct(nat),recirc(5)",
            "2,recirc(5)",
            "meter(1),recirc(5)",
            "pop_vlan,recirc(5)",
            "recirc(5),2",
            "clone(recirc(5)),2",
        ] {
            assert!(!lets(UDP, actions), "{actions}");
        }
        for fragments in ["eth_type(0x0800),ipv4(frag=first)", "eth_type(0x0800),ipv4(proto=17)", "eth_type(0x86dd)"] {
            assert!(!lets(fragments, "ct,recirc(5)"), "{fragments}");
            assert!(lets(fragments, "recirc(5)"), "{fragments}");
        }
    }
}
