//! What a flow can contain, as things that can be counted and left out; and profiles that leave some out.

use std::fmt;

use sluice_flow::action::ActionKind;
use sluice_flow::field::{Attribute, FIELDS, Field};

/// Something that a flow can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// A match on a field.
    Field(Field),
    /// An action, at any depth.
    Action(ActionKind),
    /// `set(…)` of a header.
    Set(Attribute),
    /// A field of the outer header in `set(tunnel(…))`.
    SetTunnel(Field),
    /// A way in which a match or an action is written.
    Form(Form),
}

impl Feature {
    /// Everything that can be counted.
    pub fn all() -> impl Iterator<Item = Self> {
        let fields = FIELDS.iter().map(|spec| Self::Field(spec.field));
        let actions = ActionKind::ALL.iter().map(|kind| Self::Action(*kind));
        let sets = SETTABLE.iter().map(|attribute| Self::Set(*attribute));
        let tunnel = Attribute::Tunnel.fields().filter(|spec| spec.field != Field::TunnelPresent);
        let tunnel = tunnel.map(|spec| Self::SetTunnel(spec.field));
        fields.chain(actions).chain(sets).chain(tunnel).chain(Form::ALL.iter().map(|form| Self::Form(*form)))
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(field) => write!(out, "{field}"),
            Self::Action(kind) => write!(out, "action {}", kind.name()),
            Self::Set(attribute) => write!(out, "set({})", attribute.name()),
            Self::SetTunnel(field) => write!(out, "set({field})"),
            Self::Form(form) => write!(out, "{}", form.name()),
        }
    }
}

/// The headers that `set(…)` rewrites; the outer one is [`ActionKind::SetTunnel`].
pub const SETTABLE: &[Attribute] = &[
    Attribute::SkbPriority,
    Attribute::SkbMark,
    Attribute::Ethernet,
    Attribute::Mpls,
    Attribute::Nsh,
    Attribute::Ipv4,
    Attribute::Ipv6,
    Attribute::Arp,
    Attribute::Tcp,
    Attribute::Udp,
    Attribute::Sctp,
    Attribute::Icmp,
    Attribute::Icmpv6,
    Attribute::Nd,
    Attribute::NdExt,
];

macro_rules! forms {
    ($($form:ident $name:literal;)*) => {
        /// A way in which a match or an action is written.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Form {
            $(#[doc = $name] $form,)*
        }

        impl Form {
            /// Every form.
            pub const ALL: &[Self] = &[$(Self::$form,)*];

            /// What it is.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$form => $name,)* }
            }
        }
    };
}

forms! {
    AnyEthType           "a match without an Ethernet type";
    OtherEthType         "an Ethernet type without fields of its own";
    MaskedField          "a field under a mask that is not full";
    SingleBit            "a field under a mask of one bit";
    OneTag               "one VLAN tag";
    TwoTags              "two VLAN tags";
    ServiceTag           "a tag of IEEE 802.1ad";
    UnconstrainedTag     "a VLAN tag of which nothing is matched";
    EthernetPacket       "packet_type() of an Ethernet packet";
    IpPacket             "packet_type() of a packet without Ethernet header";
    AnyFragment          "an IP match that takes fragments and others";
    FirstFragment        "frag=first";
    LaterFragment        "frag=later";
    MaskedProtocol       "an IP protocol under a mask";
    OneLabel             "one MPLS label";
    TwoLabels            "two MPLS labels";
    ThreeLabels          "three MPLS labels";
    OpenLabelStack       "an MPLS stack whose last matched entry need not be the bottom";
    MplsMulticast        "Ethernet type 0x8848";
    Rarp                 "reverse ARP";
    Solicitation         "a neighbour solicitation";
    Advertisement        "a neighbour advertisement";
    TunnelIpv4           "a tunnel over IPv4";
    TunnelIpv6           "a tunnel over IPv6";
    Erspan1              "ERSPAN version 1";
    Erspan2              "ERSPAN version 2";
    GeneveEmptyOption    "a Geneve option without data";
    GeneveSeveral        "several Geneve options";
    GeneveFull           "252 bytes of Geneve options";
    CtCommit             "ct(commit)";
    CtForceCommit        "ct(force_commit)";
    CtZone               "ct(zone=)";
    CtMark               "ct(mark=)";
    CtLabel              "ct(label=)";
    CtHelper             "ct(helper=)";
    CtTimeout            "ct(timeout=)";
    Nat                  "ct(nat)";
    NatOwnAddress        "ct(nat(src)) without an address";
    NatSource            "ct(nat(src=))";
    NatDestination       "ct(nat(dst=))";
    NatRange             "ct(nat()) with a range of addresses";
    NatPort              "ct(nat()) with one port";
    NatPortRange         "ct(nat()) with a range of ports";
    NatIpv6              "ct(nat()) with an IPv6 address";
    NatIpv6Port          "ct(nat()) with an IPv6 address and a port";
    NatPersistent        "ct(nat(persistent))";
    NatHash              "ct(nat(hash))";
    NatRandom            "ct(nat(random))";
    HashL4               "hash(l4())";
    HashSymmetric        "hash(sym_l4())";
    Cookie               "psample(cookie=)";
    NshContexts          "push_nsh of type 1";
    NshTlvs              "push_nsh of type 2";
    NshLongTlvs          "push_nsh of type 2 with more than 200 bytes";
    NshZeroTlvs          "push_nsh of type 2 with zeros in front";
    PushServiceTag       "push_vlan(tpid=0x88a8)";
    PushTagWithoutCfi    "push_vlan(cfi=0)";
    SampleInTenths       "a probability of whole tenths of a percent";
    SampleFine           "any other probability";
    MaskedSet            "set() of some bits";
    Nested               "a list in a list in a list";
    MoreAfterRecirc      "an action behind recirc()";
    PushVxlan            "tnl_push of VXLAN";
    PushGeneve           "tnl_push of Geneve";
    PushGre              "tnl_push of GRE";
    PushErspan           "tnl_push of ERSPAN";
    PushGtpu             "tnl_push of GTP-U";
    PushSrv6             "tnl_push of SRv6";
    PushBytes            "tnl_push of headers that the words of OVS do not tell in full";
    PushOverIpv6         "tnl_push over IPv6";
    ToProcess            "userspace() without a note";
    ToProcessSFlow       "userspace(sFlow())";
    ToProcessSlowPath    "userspace(slow_path())";
    ToProcessFlowSample  "userspace(flow_sample())";
    ToProcessIpfix       "userspace(ipfix())";
    ToProcessController  "userspace(controller())";
    ToProcessBytes       "userspace(userdata())";
    ToProcessFewBytes    "userspace(userdata()) of fewer than 8 bytes";
    ToProcessActions     "userspace(actions)";
    ToProcessTunnel      "userspace(tunnel_out_port=)";
}

/// Something that is left out of what is generated, and why.
#[derive(Clone, Debug)]
pub struct Rule {
    /// A name for the count of what it leaves out.
    pub name: &'static str,
    /// Why.
    pub reason: &'static str,
    /// What.
    pub features: Vec<Feature>,
}

/// Which features may appear: all but those of the rules.
#[derive(Clone, Debug)]
pub struct Profile {
    /// For whom it is made.
    pub name: &'static str,
    /// What is left out. A feature is named by one rule at most.
    pub rules: Vec<Rule>,
}

impl Profile {
    /// All that the flow language can say.
    pub const fn everything() -> Self {
        Self { name: "everything", rules: Vec::new() }
    }

    /// The same without some features.
    #[must_use]
    pub fn without(
        mut self,
        name: &'static str,
        reason: &'static str,
        features: impl IntoIterator<Item = Feature>,
    ) -> Self {
        let features = features.into_iter().filter(|feature| self.allows(*feature)).collect();
        self.rules.push(Rule { name, reason, features });
        self
    }

    /// Whether a feature may appear.
    pub fn allows(&self, feature: Feature) -> bool {
        !self.rules.iter().any(|rule| rule.features.contains(&feature))
    }
}

/// All fields of an attribute.
pub fn fields_of(attribute: Attribute) -> impl Iterator<Item = Feature> {
    attribute.fields().map(|spec| Feature::Field(spec.field))
}

/// The fields that OVS does not have.
pub fn fields_beyond_ovs() -> impl Iterator<Item = Feature> {
    BEYOND_OVS.into_iter().flat_map(fields_of)
}

/// The attributes that OVS does not have.
pub const BEYOND_OVS: [Attribute; 5] =
    [Attribute::NumOfVlans, Attribute::Pppoe, Attribute::Cfm, Attribute::L2tpv3, Attribute::Ipsec];

/// What must be allowed for a feature to be there at all, besides the feature itself.
pub(super) fn needs(feature: Feature) -> Vec<Feature> {
    use ActionKind as Kind;
    let field = |field| vec![Feature::Field(field)];
    let action = |kind| vec![Feature::Action(kind)];
    let form = |form| vec![Feature::Form(form)];
    match feature {
        Feature::Action(_) => Vec::new(),
        Feature::SetTunnel(named) if is_far_option(named) => {
            vec![Feature::Action(Kind::SetTunnel), Feature::Form(Form::GeneveFull)]
        }
        Feature::SetTunnel(_) => action(Kind::SetTunnel),
        Feature::Set(attribute) => match attribute.fields().next() {
            Some(first) => vec![Feature::Action(Kind::Set), Feature::Field(first.field)],
            None => Vec::new(),
        },
        Feature::Field(named) => match (named.spec().attribute, named.spec().name) {
            (Attribute::Cvlan, _) => vec![Feature::Form(Form::TwoTags), Feature::Field(Field::VlanPresent)],
            (Attribute::Pppoe, "") => field(Field::PppoeSession),
            (Attribute::Pppoe | Attribute::Cfm, _) => form(Form::OtherEthType),
            (Attribute::Mpls, name) if name.starts_with("present") => field(Field::MplsLabel),
            (Attribute::Mpls, name) if name.ends_with("[3]") => form(Form::ThreeLabels),
            (Attribute::Mpls, name) if name.ends_with("[2]") => form(Form::TwoLabels),
            (Attribute::Tunnel, name) if name.starts_with("ipv6") => form(Form::TunnelIpv6),
            (Attribute::Tunnel, _) if is_far_option(named) => form(Form::GeneveFull),
            (Attribute::Tunnel, _) if named != Field::TunnelPresent => field(Field::TunnelPresent),
            _ => Vec::new(),
        },
        Feature::Form(named) => match named {
            Form::OneTag | Form::ServiceTag | Form::UnconstrainedTag => field(Field::VlanPresent),
            Form::TwoTags => field(Field::CvlanPresent),
            Form::EthernetPacket | Form::IpPacket => field(Field::PacketTypeNs),
            Form::TwoLabels => field(Field::Mpls2Present),
            Form::ThreeLabels => vec![Feature::Field(Field::Mpls2Present), Feature::Field(Field::Mpls3Present)],
            Form::OneLabel | Form::OpenLabelStack | Form::MplsMulticast => field(Field::MplsLabel),
            Form::Rarp => field(Field::ArpSip),
            Form::Solicitation | Form::Advertisement => field(Field::NdTarget),
            Form::TunnelIpv4 | Form::TunnelIpv6 => field(Field::TunnelPresent),
            Form::Erspan1 | Form::Erspan2 => field(Field::ErspanPresent),
            Form::GeneveEmptyOption | Form::GeneveSeveral | Form::GeneveFull => field(Field::GenevePresent),
            Form::SingleBit => form(Form::MaskedField),
            Form::NatIpv6Port => form(Form::NatIpv6),
            _ if named >= Form::CtCommit && named <= Form::NatRandom => action(Kind::Ct),
            Form::HashL4 | Form::HashSymmetric => action(Kind::Hash),
            Form::Cookie => action(Kind::Psample),
            Form::NshContexts | Form::NshTlvs => action(Kind::PushNsh),
            Form::NshLongTlvs | Form::NshZeroTlvs => form(Form::NshTlvs),
            Form::PushServiceTag | Form::PushTagWithoutCfi => action(Kind::PushVlan),
            Form::SampleInTenths | Form::SampleFine => action(Kind::Sample),
            Form::MaskedSet => action(Kind::Set),
            Form::Nested => action(Kind::Clone),
            Form::MoreAfterRecirc => action(Kind::Recirc),
            Form::PushSrv6 => form(Form::PushOverIpv6),
            Form::ToProcessFewBytes => form(Form::ToProcessBytes),
            _ if named >= Form::PushVxlan && named <= Form::PushOverIpv6 => action(Kind::TnlPush),
            _ if named >= Form::ToProcess => action(Kind::Userspace),
            _ => Vec::new(),
        },
    }
}

/// Whether the field is behind the options of Geneve that there are unless there are as many as can be.
fn is_far_option(field: Field) -> bool {
    field > Field::GeneveOptions2 && field <= Field::GeneveOptions15
}
