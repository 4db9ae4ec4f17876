//! What a frame claims about its sender, read from the private copy of its first bytes.
//!
//! Everything here was written by somebody who may lie. What a receiver might understand and these 128 bytes do not show
//! is [`Unreadable`]; it is never taken for harmless.

use crate::mac::Mac;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;
/// Types below this are lengths (IEEE 802.3, 3.2.6).
const FIRST_TYPE: u16 = 0x0600;
/// What precedes a type behind such a length: LLC's SNAP and the OUI of RFC 1042 or IEEE 802.1H.
const SNAP: [[u8; 6]; 2] = [[0xaa, 0xaa, 3, 0, 0, 0], [0xaa, 0xaa, 3, 0, 0, 0xf8]];

const ICMPV6: u8 = 58;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Whether a type is that of a VLAN tag, by the standards or by the habits from before them.
#[inline]
pub(crate) fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300)
}

/// What only some ports may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Nothing in particular.
    #[default]
    Station,
    /// It answers DHCP or DHCPv6 clients.
    DhcpServer,
    /// It advertises itself or others as a router (RFC 4861, 4.2 and 4.5).
    Router,
}

/// Which rule of the guard a claim falls under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// No addresses but Ethernet's.
    #[default]
    Other,
    /// ARP or RARP.
    Arp,
    /// IPv4 or IPv6.
    Ip,
    /// Neighbour discovery.
    Neighbour,
}

/// What one frame claims. Addresses that say "I have none yet" (ARP probes, DHCP clients, duplicate address detection) are
/// no claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The Ethernet source.
    pub source: Mac,
    /// Where the others stand.
    pub protocol: Protocol,
    /// The hardware address of ARP's sender or of an option of neighbour discovery.
    pub hardware: Option<Mac>,
    /// The source of IPv4, or the protocol address of ARP's sender.
    pub v4: Option<u32>,
    /// The source of IPv6.
    pub v6: Option<u128>,
    /// The address that neighbour discovery is told is the sender's, or is about to be.
    pub target: Option<u128>,
    /// What it acts as.
    pub role: Role,
}

/// A frame whose claims cannot be told from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// Bytes at a place, if they are there.
fn bytes<const N: usize>(frame: &[u8], at: usize) -> Result<[u8; N], Unreadable> {
    let there = at.checked_add(N).and_then(|end| frame.get(at..end)).ok_or(Unreadable)?;
    there.try_into().map_err(|_| Unreadable)
}

fn byte(frame: &[u8], at: usize) -> Result<u8, Unreadable> {
    frame.get(at).copied().ok_or(Unreadable)
}

fn word(frame: &[u8], at: usize) -> Result<u16, Unreadable> {
    Ok(u16::from_be_bytes(bytes(frame, at)?))
}

fn some(address: u128) -> Option<u128> {
    (address != 0).then_some(address)
}

impl Claims {
    /// Reads the first bytes of a frame, as many as there are copies of.
    ///
    /// # Errors
    /// A receiver may understand more than is there.
    pub fn read(frame: &[u8]) -> Result<Claims, Unreadable> {
        let source = Mac::new(bytes(frame, 6)?);
        let (protocol, role) = Default::default();
        let claims = Claims { source, protocol, hardware: None, v4: None, v6: None, target: None, role };
        let (kind, at) = network(frame)?;
        match kind {
            IPV4 => claims.ipv4(frame, at),
            IPV6 => claims.ipv6(frame, at),
            ARP | RARP => claims.arp(frame, at),
            _ => Ok(claims),
        }
    }

    /// RFC 826, RFC 903. Other kinds of hardware and protocol have no business here.
    fn arp(self, frame: &[u8], at: usize) -> Result<Claims, Unreadable> {
        if bytes(frame, at)? != [0, 1, 8, 0, 6, 4] || frame.len() < at + 28 {
            return Err(Unreadable);
        }
        let address = u32::from_be_bytes(bytes(frame, at + 14)?);
        Ok(Claims {
            protocol: Protocol::Arp,
            hardware: Some(Mac::new(bytes(frame, at + 8)?)),
            v4: (address != 0).then_some(address),
            ..self
        })
    }

    /// RFC 791. Every fragment has the source; only the first has the ports, and it has them whole, as fragments begin at
    /// multiples of 8 bytes.
    fn ipv4(self, frame: &[u8], at: usize) -> Result<Claims, Unreadable> {
        let first = byte(frame, at)?;
        let header = usize::from(first & 15) * 4;
        if first >> 4 != 4 || header < 20 {
            return Err(Unreadable);
        }
        let source = u32::from_be_bytes(bytes(frame, at + 12)?);
        let claims = Claims { protocol: Protocol::Ip, v4: Some(source), ..self };
        if byte(frame, at + 9)? != UDP || word(frame, at + 6)? & 0x1fff != 0 {
            return Ok(claims);
        }
        let ports = (word(frame, at + header)?, word(frame, at + header + 2)?);
        Ok(match ports {
            (68, 67) if source == 0 => Claims { v4: None, ..claims },
            (67, _) | (_, 68) => Claims { role: Role::DhcpServer, ..claims },
            _ => claims,
        })
    }

    /// RFC 8200. The chain of headers is followed to its end: 8 bytes or more a header, so 128 bytes bound it. In a first fragment
    /// it has to be whole (RFC 7112): what is behind the packet is padding, and the header comes with the next fragment.
    fn ipv6(self, frame: &[u8], at: usize) -> Result<Claims, Unreadable> {
        if byte(frame, at)? >> 4 != 6 {
            return Err(Unreadable);
        }
        let source = u128::from_be_bytes(bytes(frame, at + 8)?);
        let claims = Claims { protocol: Protocol::Ip, v6: Some(source), ..self };
        let end = match word(frame, at + 4)? {
            // A jumbogram (RFC 2675) says its length elsewhere.
            0 => None,
            len => Some(at + 40 + usize::from(len)),
        };
        let (mut next, mut at, mut is_fragment) = (byte(frame, at + 6)?, at + 40, false);
        loop {
            if is_fragment && end.is_none_or(|end| at + 8 > end) {
                return Err(Unreadable);
            }
            let len = match next {
                // Hop-by-hop options, routing, destination options, mobility, HIP, Shim6.
                0 | 43 | 60 | 135 | 139 | 140 => (usize::from(byte(frame, at + 1)?) + 1) * 8,
                AUTHENTICATION => (usize::from(byte(frame, at + 1)?) + 2) * 4,
                FRAGMENT => {
                    is_fragment = true;
                    if word(frame, at + 2)? >> 3 != 0 {
                        return Ok(claims);
                    }
                    8
                }
                ICMPV6 => return claims.icmpv6(frame, at, end, is_fragment),
                UDP => {
                    let ports = (word(frame, at)?, word(frame, at + 2)?);
                    let role = if ports.0 == 547 || ports.1 == 546 { Role::DhcpServer } else { Role::Station };
                    return Ok(Claims { role, ..claims });
                }
                _ => return Ok(claims),
            };
            next = byte(frame, at)?;
            at += len;
        }
    }

    /// RFC 4443, RFC 4861. Neighbour discovery never comes in fragments (RFC 6980).
    fn icmpv6(self, frame: &[u8], at: usize, end: Option<usize>, is_fragment: bool) -> Result<Claims, Unreadable> {
        let kind = byte(frame, at)?;
        let discovery = Claims { protocol: Protocol::Neighbour, ..self };
        let target = || Ok(u128::from_be_bytes(bytes(frame, at + 8)?));
        let (mut claims, options) = match kind {
            // Reports about multicast groups come before there is an address, too (RFC 3590, RFC 3810, 5.2.13).
            131 | 132 | 143 => return Ok(Claims { v6: self.v6.and_then(some), ..self }),
            133 => (Claims { v6: self.v6.and_then(some), ..discovery }, at + 8),
            134 => (Claims { role: Role::Router, ..discovery }, at + 16),
            // Who asks without an address is about to take the one that it asks for (RFC 4862, 5.4).
            135 if self.v6 == Some(0) => (Claims { v6: None, target: Some(target()?), ..discovery }, at + 24),
            135 => (discovery, at + 24),
            136 => (Claims { target: Some(target()?), ..discovery }, at + 24),
            137 => (Claims { role: Role::Router, ..discovery }, at + 40),
            _ => return Ok(self),
        };
        let end = end.filter(|&end| !is_fragment && end <= frame.len()).ok_or(Unreadable)?;
        claims.hardware = link_layer_option(frame.get(options..end).ok_or(Unreadable)?)?;
        Ok(claims)
    }
}

/// The type of what is behind tags and LLC, and where it begins.
fn network(frame: &[u8]) -> Result<(u16, usize), Unreadable> {
    let mut at = 12;
    loop {
        let kind = word(frame, at)?;
        at += 2;
        if is_tag(kind) {
            at += 2;
        } else if kind < FIRST_TYPE {
            let rest = frame.get(at..).unwrap_or(&[]);
            match rest.first_chunk() {
                Some(llc) if SNAP.contains(llc) => at += 6,
                // It may go on where the copy ends.
                None if SNAP.iter().any(|snap| snap.starts_with(rest)) => return Err(Unreadable),
                // Something else is behind LLC.
                _ => return Ok((kind, at)),
            }
        } else {
            return Ok((kind, at));
        }
    }
}

/// The address in the options of neighbour discovery that name one, source's or target's (RFC 4861, 4.6.1).
fn link_layer_option(mut options: &[u8]) -> Result<Option<Mac>, Unreadable> {
    let mut found = None;
    while !options.is_empty() {
        let (kind, len) = (byte(options, 0)?, usize::from(byte(options, 1)?) * 8);
        if len == 0 || len > options.len() {
            return Err(Unreadable);
        }
        if matches!(kind, 1 | 2) {
            let mac = Mac::new(bytes(options, 2)?);
            if len != 8 || found.is_some_and(|before| before != mac) {
                return Err(Unreadable);
            }
            found = Some(mac);
        }
        options = &options[len..];
    }
    Ok(found)
}
