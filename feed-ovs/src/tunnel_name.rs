//! What a tunnel is, by the name of its network device.

use sluice_flow::port::TunnelProtocol;

/// Returns the protocol of a tunnel, and its UDP port if it has one. OVS names the kernel's devices of its tunnels so, with the UDP port
/// behind (`netdev_vport_get_dpif_port` in `lib/netdev-vport.c`).
pub(crate) fn tunnel_of_device(name: &str) -> Option<(TunnelProtocol, Option<u16>)> {
    let (word, rest) = name.split_once("_sys")?;
    let udp_port = rest.strip_prefix('_').and_then(|digits| digits.parse().ok());
    let protocol = tunnel_protocol(if word == "genev" { "geneve" } else { word })?;
    Some((protocol, protocol.default_udp_port().map(|default| udp_port.unwrap_or(default))))
}

/// Returns the protocol that a word of OVS means.
pub(crate) fn tunnel_protocol(word: &str) -> Option<TunnelProtocol> {
    let word = match word {
        "ip6gre" => "gre",
        "ip6erspan" => "erspan",
        other => other,
    };
    TunnelProtocol::ALL.into_iter().find(|protocol| protocol.name() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_kernels_tunnels_tell_what_they_are() {
        let of = |name: &str| tunnel_of_device(name).map(|(protocol, udp_port)| (protocol.name(), udp_port));
        assert_eq!(of("genev_sys_6081"), Some(("geneve", Some(6081))));
        assert_eq!(of("vxlan_sys_4790"), Some(("vxlan", Some(4790))));
        assert_eq!([of("gre_sys"), of("erspan_sys")], [Some(("gre", None)), Some(("erspan", None))]);
        assert_eq!([of("eth0"), of("my_sys"), of("patch_sys_1")], [None; 3]);
    }
}
