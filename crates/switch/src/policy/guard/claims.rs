//! What a frame claims about its sender, read from the private copy of its first bytes.
//!
//! All input is untrusted. If a receiver may find more in a frame than these 128 bytes show, the result is
//! [`Unreadable`], never "no claim".

use crate::frame::{Mac, is_tag};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;
/// Types below this are lengths (IEEE 802.3, 3.2.6).
const FIRST_TYPE: u16 = 0x0600;
/// The bytes between such a length and an EtherType: LLC with SNAP, and the OUI of RFC 1042 or IEEE 802.1H.
const SNAP: [[u8; 6]; 2] = [[0xaa, 0xaa, 3, 0, 0, 0], [0xaa, 0xaa, 3, 0, 0, 0xf8]];

/// The lower of the two UDP ports of DHCP, and of DHCPv6.
const DHCP: u16 = 67;
const DHCPV6: u16 = 546;
const ICMPV6: u8 = 58;
const IGMP: u8 = 2;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Returns true if an EtherType is no VLAN tag, no length and no protocol with addresses.
#[inline]
pub(crate) fn claims_nothing(kind: u16) -> bool {
    kind >= FIRST_TYPE && !matches!(kind, IPV4 | ARP | RARP | IPV6) && !is_tag(kind)
}

/// Roles that only some ports may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// An ordinary station.
    #[default]
    Station,
    /// A server that answers DHCP or DHCPv6 clients.
    DhcpServer,
    /// A sender of router advertisements or redirects (RFC 4861, 4.2 and 4.5).
    Router,
}

/// The kind of protocol that a frame's claims belong to. It selects the drop reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// No addresses besides those of Ethernet.
    #[default]
    Other,
    /// ARP or RARP.
    Arp,
    /// IPv4 or IPv6.
    Ip,
    /// Neighbour discovery.
    Neighbour,
}

/// The claims of one frame about its sender. Unspecified addresses of senders without an address (ARP probes, DHCP
/// clients, reports of groups, duplicate address detection) are no claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The Ethernet source.
    pub source: Mac,
    /// The protocol of the other claims.
    pub protocol: Protocol,
    /// The hardware address of ARP's sender or of an option of neighbour discovery.
    pub hardware: Option<Mac>,
    /// The source of IPv4, or the protocol address of ARP's sender.
    pub v4: Option<u32>,
    /// The source of IPv6.
    pub v6: Option<u128>,
    /// The target address of neighbour discovery: an address that the sender has or is about to take.
    pub target: Option<u128>,
    /// The role in which the sender acts.
    pub role: Role,
}

/// Error: the frame's claims cannot be read from its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// A reader of a frame's first bytes. It records which bytes decided the result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'f> {
    frame: &'f [u8],
    basis: Basis,
}

/// The bytes that decided a frame's claims. Every frame with the same `bytes`, with `len` bytes or more, and without a
/// DHCP port at `ports` has the same claims, except for the values of the addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Basis {
    /// One bit for each byte whose value mattered, the lowest for the first.
    pub(crate) bytes: u128,
    /// Number of bytes that were needed.
    pub(crate) len: usize,
    /// Position of the address in [`Claims::hardware`].
    pub(crate) hardware: Option<usize>,
    /// Position of the address in [`Claims::v4`], even if it is zero and therefore no claim.
    pub(crate) v4: Option<usize>,
    /// Position of the address in [`Claims::v6`], even if it is zero and therefore no claim.
    pub(crate) v6: Option<usize>,
    /// Position of two ports that are not DHCP's.
    pub(crate) ports: Option<Ports>,
    /// True if other properties mattered, for example the frame's length. Then nothing follows for other frames.
    pub(crate) is_partial: bool,
}

/// Position of the two ports of a transport header. Neither is `first` or `first + 1`.
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

    /// The bytes at a position, if they are there. Their values do not become part of the basis.
    #[inline]
    fn field<const N: usize>(&mut self, at: usize) -> Result<[u8; N], Unreadable> {
        let end = at.checked_add(N).ok_or(Unreadable)?;
        let found = self.frame.get(at..end).and_then(|bytes| bytes.first_chunk()).ok_or(Unreadable)?;
        self.basis.len = self.basis.len.max(end);
        Ok(*found)
    }

    /// The bytes at a position, if they are there. Their values become part of the basis.
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

    /// The two ports at a position. If neither is a DHCP port (`first` or `first + 1`), that becomes part of the basis.
    /// Otherwise the basis is partial.
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
    /// Reads the private copy of a frame's first bytes.
    ///
    /// # Errors
    /// A receiver may find more in the frame than these bytes show.
    pub fn read(frame: &[u8]) -> Result<Claims, Unreadable> {
        Self::read_from(&mut Reading::new(frame))
    }

    /// Reads a frame's claims and records in `frame` which bytes decided them.
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

    /// Reads ARP (RFC 826) and RARP (RFC 903). Other types of hardware and protocol are unreadable.
    fn arp(self, frame: &mut Reading<'_>, at: usize) -> Result<Claims, Unreadable> {
        let _: [u8; 28] = frame.field(at)?;
        if frame.bytes(at)? != [0, 1, 8, 0, 6, 4] {
            return Err(Unreadable);
        }
        let (hardware, address) = (Mac::new(frame.field(at + 8)?), u32::from_be_bytes(frame.field(at + 14)?));
        (frame.basis.hardware, frame.basis.v4) = (Some(at + 8), Some(at + 14));
        Ok(Claims { protocol: Protocol::Arp, hardware: Some(hardware), v4: (address != 0).then_some(address), ..self })
    }

    /// Reads IPv4 (RFC 791). Every fragment has the source address. Only the first has the ports, and it has both:
    /// fragments begin at multiples of 8 bytes.
    fn ipv4(self, frame: &mut Reading<'_>, at: usize) -> Result<Claims, Unreadable> {
        let first = frame.byte(at)?;
        let header = usize::from(first & 15) * 4;
        if first >> 4 != 4 || header < 20 {
            return Err(Unreadable);
        }
        let source = u32::from_be_bytes(frame.field(at + 12)?);
        frame.basis.v4 = Some(at + 12);
        let claims = Claims { protocol: Protocol::Ip, v4: Some(source), ..self };
        if source == 0 && frame.byte(at + 9)? == IGMP {
            // A host without an address yet reports its groups (RFC 3376, 4.2.13).
            frame.basis.is_partial = true;
            return Ok(Claims { v4: None, ..claims });
        }
        // For every protocol: the bytes at the position of UDP's ports are no DHCP port. Most frames end here.
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

    /// Reads IPv6 (RFC 8200). The chain of headers is followed to its end. A header has 8 bytes or more, so the 128
    /// bytes bound the loop. A first fragment must hold the whole chain (RFC 7112): the bytes behind the packet are
    /// padding, and the real header would come with the next fragment.
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

    /// Reads ICMPv6 (RFC 4443, RFC 4861) in the IPv6 packet at `packet`. Neighbour discovery must not be fragmented
    /// (RFC 6980).
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
            // Multicast listener reports may have the unspecified source (RFC 3590, RFC 3810, 5.2.13).
            131 | 132 | 143 => return Ok(Claims { v6: self.v6.and_then(some), ..self }),
            133 => (Claims { v6: self.v6.and_then(some), ..discovery }, at + 8),
            134 => (Claims { role: Role::Router, ..discovery }, at + 16),
            // A solicitation from the unspecified source is duplicate address detection for the target (RFC 4862, 5.4).
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

/// The end of the IPv6 packet at `packet`. `None` for a jumbogram (RFC 2675), whose length is in an option.
fn end(frame: &mut Reading<'_>, packet: usize) -> Result<Option<usize>, Unreadable> {
    let len = frame.word(packet + 4)?;
    Ok((len != 0).then(|| packet + 40 + usize::from(len)))
}

/// The EtherType behind tags and LLC, and the position of the payload.
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
                // LLC without SNAP, or with another OUI.
                Ok(_) => return Ok((kind, at)),
                Err(Unreadable) => {
                    frame.basis.is_partial = true;
                    let rest = frame.frame.get(at..).unwrap_or(&[]);
                    // The SNAP header may continue behind the copy.
                    let may_go_on = SNAP.iter().any(|snap| snap.starts_with(rest));
                    return if may_go_on { Err(Unreadable) } else { Ok((kind, at)) };
                }
            }
        } else {
            return Ok((kind, at));
        }
    }
}

/// The link-layer address in the options of neighbour discovery, source or target (RFC 4861, 4.6.1). Two different
/// addresses are unreadable.
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
