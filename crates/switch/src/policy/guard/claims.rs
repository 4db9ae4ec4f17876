//! What a frame claims about its sender, read from the private copy of its first bytes.
//!
//! Everything here was written by somebody who may lie. What a receiver might understand and these 128 bytes do not show
//! is [`Unreadable`]; it is never taken for harmless.

use crate::frame::{Mac, is_tag};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;
/// Types below this are lengths (IEEE 802.3, 3.2.6).
const FIRST_TYPE: u16 = 0x0600;
/// What precedes a type behind such a length: LLC's SNAP and the OUI of RFC 1042 or IEEE 802.1H.
const SNAP: [[u8; 6]; 2] = [[0xaa, 0xaa, 3, 0, 0, 0], [0xaa, 0xaa, 3, 0, 0, 0xf8]];

/// The first of the two ports of DHCP, and of DHCPv6.
const DHCP: u16 = 67;
const DHCPV6: u16 = 546;
const ICMPV6: u8 = 58;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Whether a type is that of no tag, no length and no protocol that has addresses to claim.
#[inline]
pub(crate) fn claims_nothing(kind: u16) -> bool {
    kind >= FIRST_TYPE && !matches!(kind, IPV4 | ARP | RARP | IPV6) && !is_tag(kind)
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

/// A frame's first bytes, and which of them decided what was read so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'f> {
    frame: &'f [u8],
    basis: Basis,
}

/// What decided a frame's claims. Every frame that has the same `bytes`, is long enough and has no DHCP port at `ports` has the
/// same claims, but for the values of the addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Basis {
    /// One bit for each byte whose value mattered, the lowest for the first.
    pub(crate) bytes: u128,
    /// As many bytes were needed.
    pub(crate) len: usize,
    /// Where the address in [`Claims::hardware`] is.
    pub(crate) hardware: Option<usize>,
    /// Where the address in [`Claims::v4`] is, also if it is no claim as it is zero.
    pub(crate) v4: Option<usize>,
    /// The same for [`Claims::v6`].
    pub(crate) v6: Option<usize>,
    /// Where two ports are that are none of DHCP's.
    pub(crate) ports: Option<Ports>,
    /// More than this mattered, as the frame's end: nothing is known of any other frame.
    pub(crate) is_partial: bool,
}

/// Two ports of a transport header, neither of which is `first` or the one behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) at: usize,
    pub(crate) first: u16,
}

impl<'f> Reading<'f> {
    pub(crate) fn new(frame: &'f [u8]) -> Reading<'f> {
        Reading { frame, basis: Basis::default() }
    }

    pub(crate) fn basis(&self) -> &Basis {
        &self.basis
    }

    /// Bytes at a place, if they are there. What is found is no part of the basis.
    #[inline]
    fn field<const N: usize>(&mut self, at: usize) -> Result<[u8; N], Unreadable> {
        let end = at.checked_add(N).ok_or(Unreadable)?;
        let found = self.frame.get(at..end).and_then(|bytes| bytes.first_chunk()).ok_or(Unreadable)?;
        self.basis.len = self.basis.len.max(end);
        Ok(*found)
    }

    /// Bytes at a place, if they are there.
    #[inline]
    fn bytes<const N: usize>(&mut self, at: usize) -> Result<[u8; N], Unreadable> {
        let found = self.field(at)?;
        match at + N <= u128::BITS as usize {
            true => self.basis.bytes |= ((1 << N) - 1) << at,
            false => self.basis.is_partial = true,
        }
        Ok(found)
    }

    fn byte(&mut self, at: usize) -> Result<u8, Unreadable> {
        let [byte] = self.bytes(at)?;
        Ok(byte)
    }

    fn word(&mut self, at: usize) -> Result<u16, Unreadable> {
        Ok(u16::from_be_bytes(self.bytes(at)?))
    }

    /// The ports at a place. That they are not DHCP's, which is `first` and the next, is part of the basis; if one is, the
    /// basis is partial.
    fn ports(&mut self, at: usize, first: u16) -> Result<(u16, u16), Unreadable> {
        let [a, b, c, d] = self.field(at)?;
        let ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match ports.0.wrapping_sub(first) > 1 && ports.1.wrapping_sub(first) > 1 {
            true => self.basis.ports = Some(Ports { at, first }),
            false => self.basis.is_partial = true,
        }
        Ok(ports)
    }
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
        Self::read_from(&mut Reading::new(frame))
    }

    /// The same, of a reading that notes what it was that decided.
    pub(crate) fn read_from(frame: &mut Reading<'_>) -> Result<Claims, Unreadable> {
        let source = Mac::new(frame.field(6)?);
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
    fn arp(self, frame: &mut Reading<'_>, at: usize) -> Result<Claims, Unreadable> {
        let _: [u8; 28] = frame.field(at)?;
        if frame.bytes(at)? != [0, 1, 8, 0, 6, 4] {
            return Err(Unreadable);
        }
        let (hardware, address) = (Mac::new(frame.field(at + 8)?), u32::from_be_bytes(frame.field(at + 14)?));
        (frame.basis.hardware, frame.basis.v4) = (Some(at + 8), Some(at + 14));
        Ok(Claims { protocol: Protocol::Arp, hardware: Some(hardware), v4: (address != 0).then_some(address), ..self })
    }

    /// RFC 791. Every fragment has the source; only the first has the ports, and it has them whole, as fragments begin at
    /// multiples of 8 bytes.
    fn ipv4(self, frame: &mut Reading<'_>, at: usize) -> Result<Claims, Unreadable> {
        let first = frame.byte(at)?;
        let header = usize::from(first & 15) * 4;
        if first >> 4 != 4 || header < 20 {
            return Err(Unreadable);
        }
        let source = u32::from_be_bytes(frame.field(at + 12)?);
        frame.basis.v4 = Some(at + 12);
        let claims = Claims { protocol: Protocol::Ip, v4: Some(source), ..self };
        // Whatever the protocol: what is where UDP has its ports is none of DHCP's. Most frames end here.
        if frame.ports(at + header, DHCP).is_ok() && !frame.basis.is_partial {
            return Ok(claims);
        }
        frame.basis.is_partial = true;
        if frame.byte(at + 9)? != UDP || frame.word(at + 6)? & 0x1fff != 0 {
            return Ok(claims);
        }
        Ok(match frame.ports(at + header, DHCP)? {
            (68, 67) if source == 0 => Claims { v4: None, ..claims },
            (67, _) | (_, 68) => Claims { role: Role::DhcpServer, ..claims },
            _ => claims,
        })
    }

    /// RFC 8200. The chain of headers is followed to its end: 8 bytes or more a header, so 128 bytes bound it. In a first fragment
    /// it has to be whole (RFC 7112): what is behind the packet is padding, and the header comes with the next fragment.
    fn ipv6(self, frame: &mut Reading<'_>, at: usize) -> Result<Claims, Unreadable> {
        if frame.byte(at)? >> 4 != 6 {
            return Err(Unreadable);
        }
        let source = u128::from_be_bytes(frame.field(at + 8)?);
        frame.basis.v6 = Some(at + 8);
        let claims = Claims { protocol: Protocol::Ip, v6: Some(source), ..self };
        let packet = at;
        let (mut next, mut at, mut is_fragment) = (frame.byte(at + 6)?, at + 40, false);
        loop {
            if is_fragment && end(frame, packet)?.is_none_or(|end| at + 8 > end) {
                return Err(Unreadable);
            }
            let len = match next {
                // Hop-by-hop options, routing, destination options, mobility, HIP, Shim6.
                0 | 43 | 60 | 135 | 139 | 140 => (usize::from(frame.byte(at + 1)?) + 1) * 8,
                AUTHENTICATION => (usize::from(frame.byte(at + 1)?) + 2) * 4,
                FRAGMENT => {
                    is_fragment = true;
                    if frame.word(at + 2)? >> 3 != 0 {
                        return Ok(claims);
                    }
                    8
                }
                ICMPV6 => return claims.icmpv6(frame, at, packet, is_fragment),
                UDP => {
                    let ports = frame.ports(at, DHCPV6)?;
                    let role = if ports.0 == 547 || ports.1 == 546 { Role::DhcpServer } else { Role::Station };
                    return Ok(Claims { role, ..claims });
                }
                _ => return Ok(claims),
            };
            next = frame.byte(at)?;
            at += len;
        }
    }

    /// RFC 4443, RFC 4861, in the IPv6 packet at `packet`. Neighbour discovery never comes in fragments (RFC 6980).
    fn icmpv6(
        self,
        frame: &mut Reading<'_>,
        at: usize,
        packet: usize,
        is_fragment: bool,
    ) -> Result<Claims, Unreadable> {
        let kind = frame.byte(at)?;
        let discovery = Claims { protocol: Protocol::Neighbour, ..self };
        let mut target = || Ok(u128::from_be_bytes(frame.field(at + 8)?));
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
        // The options end where the packet ends.
        frame.basis.is_partial = true;
        let end = end(frame, packet)?.filter(|&end| !is_fragment && end <= frame.frame.len()).ok_or(Unreadable)?;
        claims.hardware = link_layer_option(frame.frame.get(options..end).ok_or(Unreadable)?)?;
        Ok(claims)
    }
}

/// Where the IPv6 packet at `packet` ends. A jumbogram (RFC 2675) says its length elsewhere.
fn end(frame: &mut Reading<'_>, packet: usize) -> Result<Option<usize>, Unreadable> {
    let len = frame.word(packet + 4)?;
    Ok((len != 0).then(|| packet + 40 + usize::from(len)))
}

/// The type of what is behind tags and LLC, and where it begins.
fn network(frame: &mut Reading<'_>) -> Result<(u16, usize), Unreadable> {
    let mut at = 12;
    loop {
        let kind = frame.word(at)?;
        at += 2;
        if is_tag(kind) {
            at += 2;
        } else if kind < FIRST_TYPE {
            match frame.bytes(at) {
                Ok(llc) if SNAP.contains(&llc) => at += 6,
                // Something else is behind LLC.
                Ok(_) => return Ok((kind, at)),
                Err(Unreadable) => {
                    frame.basis.is_partial = true;
                    let rest = frame.frame.get(at..).unwrap_or(&[]);
                    // It may go on where the copy ends.
                    let may_go_on = SNAP.iter().any(|snap| snap.starts_with(rest));
                    return if may_go_on { Err(Unreadable) } else { Ok((kind, at)) };
                }
            }
        } else {
            return Ok((kind, at));
        }
    }
}

/// The address in the options of neighbour discovery that name one, source's or target's (RFC 4861, 4.6.1).
fn link_layer_option(mut options: &[u8]) -> Result<Option<Mac>, Unreadable> {
    let mut found = None;
    while let [kind, len, rest @ ..] = options {
        let len = usize::from(*len) * 8;
        if len == 0 || len > options.len() {
            return Err(Unreadable);
        }
        if matches!(kind, 1 | 2) {
            let mac = Mac::new(*rest.first_chunk().ok_or(Unreadable)?);
            if len != 8 || found.is_some_and(|before| before != mac) {
                return Err(Unreadable);
            }
            found = Some(mac);
        }
        options = &options[len..];
    }
    if options.is_empty() { Ok(found) } else { Err(Unreadable) }
}
