//! Decides whether a frame may reach a receiver, by the documentation of `mac`, `ip`, `guard`, `vlan`, `trunk`,
//! `native`, `allow` and `isolated`. Parses frames with etherparse, not with the switch's own parser.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, TransportSlice};

/// The policy settings of a port.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The port's index in the switch.
    pub index: u16,
    pub mac: [u8; 6],
    pub v4: u32,
    pub v6: u128,
    /// `guard`: some of "mac", "ip", "dhcp", "ra".
    pub checks: [bool; 4],
    /// The untagged VLAN, and the tagged VLANs.
    pub untagged: Option<u16>,
    pub tagged: Vec<u16>,
    pub isolated: bool,
    /// Indices of the ports that this port may reach. Empty: all.
    pub allow: Option<Vec<u16>>,
}

impl Settings {
    fn is_in(&self, vlan: u16) -> bool {
        self.untagged == Some(vlan) || self.tagged.contains(&vlan)
    }

    /// Returns the modified EUI-64, with the seventh bit inverted (RFC 4291, appendix A).
    fn link_local(&self) -> u128 {
        let [a, b, c, d, e, f] = self.mac;
        u128::from_be_bytes([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }

    fn has_v4(&self, address: &[u8]) -> bool {
        address == self.v4.to_be_bytes()
    }

    fn has_v6(&self, address: &[u8]) -> bool {
        address == self.v6.to_be_bytes() || address == self.link_local().to_be_bytes()
    }
}

/// Returns the reason why `to` may not receive this frame from `from`, or `None` if `to` may.
pub fn wrong(frame: &[u8], from: &Settings, to: &Settings, vlans: bool, all: &[Settings]) -> Option<String> {
    if from.index == to.index {
        return Some("the frame came back to its sender".into());
    }
    if from.isolated && to.isolated {
        return Some("both ports are isolated".into());
    }
    let allows = |one: &Settings, other: &Settings| one.allow.as_ref().is_none_or(|allow| allow.contains(&other.index));
    if !allows(from, to) || !allows(to, from) {
        return Some("one port does not allow the other".into());
    }
    if frame.len() < 14 {
        return Some("the bytes are no Ethernet frame".into());
    }
    if vlans {
        let tag = (frame[12..14] == [0x81, 0] && frame.len() >= 16)
            .then(|| u16::from_be_bytes([frame[14], frame[15]]) & 0xfff);
        let vlan = match tag {
            Some(tag) if to.tagged.contains(&tag) && to.untagged != Some(tag) => tag,
            Some(tag) => return Some(format!("the frame has tag {tag}, and the receiver does not have this VLAN")),
            None => match to.untagged {
                Some(vlan) => vlan,
                None => return Some("the frame has no tag".into()),
            },
        };
        if !from.is_in(vlan) {
            return Some(format!("the sender is not in VLAN {vlan}"));
        }
    }
    if let Some(owner) = all.iter().find(|port| port.checks[0] && frame[6..12] == port.mac && port.index != from.index)
    {
        return Some(format!("the source address is bound to port {}", owner.index));
    }
    claims(frame, from).map(str::to_owned)
}

/// Returns the forbidden claim of a guarded port's frame, if it has one.
fn claims(frame: &[u8], from: &Settings) -> Option<&'static str> {
    let [mac, ip, dhcp, ra] = from.checks;
    if mac && frame[6..12] != from.mac {
        return Some("the Ethernet source is not the sender's address");
    }
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    if packet.link_exts.iter().any(|extension| matches!(extension, LaxLinkExtSlice::Macsec(_))) {
        return None;
    }
    match &packet.net? {
        LaxNetSlice::Arp(arp) => {
            if mac && arp.sender_hw_addr() != from.mac {
                return Some("the ARP sender has another port's Ethernet address");
            }
            let sender = arp.sender_protocol_addr();
            (ip && sender != [0; 4] && !from.has_v4(sender)).then_some("the ARP sender has another port's IPv4 address")
        }
        LaxNetSlice::Ipv4(v4) => {
            let source = v4.header().source();
            let ports = match &packet.transport {
                Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
                _ => None,
            };
            let asks = source == Ipv4Addr::UNSPECIFIED.octets() && ports == Some((68, 67));
            if ip && !from.has_v4(&source) && !asks {
                return Some("the IPv4 source is another port's");
            }
            let answers = matches!(ports, Some((67, _) | (_, 68)));
            (dhcp && answers && !asks).then_some("the frame answers DHCP clients")
        }
        LaxNetSlice::Ipv6(v6) => {
            let source = v6.header().source();
            let is_none = source == Ipv6Addr::UNSPECIFIED.octets();
            let icmp = match &packet.transport {
                Some(TransportSlice::Icmpv6(icmp)) => Some(icmp.slice()),
                _ => None,
            };
            let kind = icmp.map(|icmp| icmp[0]);
            let may_have_none = matches!(kind, Some(131 | 132 | 133 | 135 | 143));
            if ip && !from.has_v6(&source) && !(is_none && may_have_none) {
                return Some("the IPv6 source is another port's");
            }
            if let Some(TransportSlice::Udp(udp)) = &packet.transport
                && dhcp
                && (udp.source_port() == 547 || udp.destination_port() == 546)
            {
                return Some("the frame answers DHCPv6 clients");
            }
            if ra && matches!(kind, Some(134 | 137)) {
                return Some("the frame is a router advertisement or a redirect");
            }
            let target = icmp.and_then(|icmp| icmp.get(8..24));
            let takes = kind == Some(136) || kind == Some(135) && is_none;
            if ip && takes && !target.is_some_and(|target| from.has_v6(target)) {
                return Some("neighbour discovery claims another port's address");
            }
            let options = match kind? {
                133 => 8,
                134 => 16,
                135 | 136 => 24,
                137 => 40,
                _ => return None,
            };
            let mut options = icmp?.get(options..)?;
            while let [kind, len, ..] = *options
                && len > 0
            {
                let Some(option) = options.get(..8 * usize::from(len)) else { break };
                if mac && matches!(kind, 1 | 2) && option[2..8] != from.mac {
                    return Some("neighbour discovery has another port's Ethernet address");
                }
                options = &options[option.len()..];
            }
            None
        }
    }
}
