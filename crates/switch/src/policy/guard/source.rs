//! The source guard: drops frames whose source addresses are not the port's own.

use std::net::{IpAddr, Ipv6Addr};

#[cfg(any(test, fuzzing))]
use ringway_memory::Head;

use super::checks::{Checks, Prefix};
use super::claims::{Claims, Protocol, Role, Unreadable, claims_nothing};
use super::pattern::{Addresses, Pattern};
use super::ranges::Ranges;
use crate::batch::{Batch, Judge};
use crate::frame::{DropReason, Mac};
use crate::policy::rule::Rule;

/// The source guard of one port. It judges the private copies of first bytes, and these are delivered.
#[derive(Clone, Debug)]
pub struct Guard {
    checks: Checks,
    /// Sorted.
    macs: Box<[Mac]>,
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl Guard {
    /// A guard for a port with these addresses. With any IPv6 prefix the port also has the link-local addresses derived
    /// from its Ethernet addresses (RFC 4291, appendix A).
    #[must_use]
    pub fn new(checks: Checks, macs: &[Mac], prefixes: &[Prefix]) -> Guard {
        let mut macs = macs.to_vec();
        macs.sort_unstable();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for prefix in prefixes {
            match prefix.address {
                IpAddr::V4(address) => {
                    let others = u32::MAX.checked_shr(prefix.length.into()).unwrap_or(0);
                    v4.push((u32::from(address), u32::from(address) | others));
                }
                IpAddr::V6(address) => {
                    let others = u128::MAX.checked_shr(prefix.length.into()).unwrap_or(0);
                    v6.push((u128::from(address), u128::from(address) | others));
                }
            }
        }
        if !v6.is_empty() {
            v6.extend(macs.iter().map(|mac| u128::from(link_local(*mac))).map(|address| (address, address)));
        }
        Guard { checks, macs: macs.into(), v4: Ranges::new(v4, (1, 0)), v6: Ranges::new(v6, (1, 0)) }
    }

    /// Returns true if the guard checks nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.checks == Checks::NONE
    }

    /// Returns true if no other port may use this port's Ethernet addresses.
    pub(crate) fn has_macs(&self) -> bool {
        self.checks.mac
    }

    #[inline]
    fn has(&self, mac: Mac) -> bool {
        match &*self.macs {
            [one] => *one == mac,
            many => many.binary_search(&mac).is_ok(),
        }
    }

    /// Judges a frame by the first `len` bytes of `head`: the whole frame, or 128 bytes; 14 at least.
    ///
    /// # Errors
    /// The reason to drop the frame.
    pub fn judge(&self, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        self.judging().judge(head, len)
    }

    /// Returns true if the first frame passes and the second matches its pattern, so that a batch would not judge it.
    /// For tests.
    #[cfg(any(test, fuzzing))]
    #[must_use]
    pub fn is_like(&self, judged: (&[u8; 128], usize), other: (&[u8; 128], usize)) -> bool {
        use crate::batch::Pattern;
        let pattern = self.judging().pattern(judged.0, judged.1);
        pattern.is_some_and(|pattern| other.1 >= pattern.len() as usize && pattern.leading(&[[Head(*other.0)]]).0 == 1)
    }

    #[inline]
    pub(crate) fn judging(&self) -> Judging<'_> {
        Judging { guard: self, known: self.macs.first().copied().unwrap_or(Mac::BROADCAST) }
    }

    /// Returns true for common frames that pass all checks but the one of the Ethernet source: IPv4 without tags and
    /// options, TCP or UDP over IPv6 without tags (no DHCP port if DHCP is checked), or a protocol without addresses.
    #[inline(always)]
    fn is_plain(&self, head: &[u8; 128], len: usize) -> bool {
        let Checks { ip, dhcp, .. } = self.checks;
        match u16::from_be_bytes([head[12], head[13]]) {
            0x0800 if head[14] == 0x45 && len >= 38 => {
                let source = u32::from_be_bytes([head[26], head[27], head[28], head[29]]);
                (!ip || self.v4.contains(source)) && (!dhcp || head[23] != 17 || has_no_port(head, 34, 67))
            }
            0x86dd if head[14] >> 4 == 6 && len >= 58 => {
                (head[20] == 6 || head[20] == 17 && (!dhcp || has_no_port(head, 54, 546)))
                    && (!ip || self.v6.contains(v6_source(head)))
            }
            kind => claims_nothing(kind),
        }
    }

    fn judge_claims(&self, frame: &[u8]) -> Result<(), DropReason> {
        let claims = Claims::read(frame).map_err(|Unreadable| DropReason::GuardUnreadable)?;
        let spoofed = match claims.protocol {
            Protocol::Other | Protocol::Ip => DropReason::SpoofedIp,
            Protocol::Arp => DropReason::SpoofedArp,
            Protocol::Neighbour => DropReason::SpoofedNd,
        };
        if self.checks.mac && claims.hardware.is_some_and(|mac| !self.has(mac)) {
            return Err(spoofed);
        }
        match claims.role {
            Role::DhcpServer if self.checks.dhcp => return Err(DropReason::DhcpServer),
            Role::Router if self.checks.ra => return Err(DropReason::RouterAdvertised),
            _ => {}
        }
        let foreign = |address: Option<u128>| address.is_some_and(|address| !self.v6.contains(address));
        if self.checks.ip
            && (claims.v4.is_some_and(|address| !self.v4.contains(address))
                || foreign(claims.v6)
                || foreign(claims.target))
        {
            return Err(spoofed);
        }
        Ok(())
    }
}

impl Rule for Guard {
    /// The guard only refuses frames. Frames that are dropped unread are not delivered, so the guard need not see them.
    fn may_drop_unread(&self) -> bool {
        true
    }

    /// Rejects the frames of a batch with source addresses that are not the port's.
    #[inline]
    fn admit(&self, batch: &mut Batch<'_>) {
        batch.judge(&mut self.judging());
    }
}

/// The guard while it judges the frames of a batch.
pub(crate) struct Judging<'g> {
    guard: &'g Guard,
    /// The address of the port that was matched last.
    known: Mac,
}

impl Judge for Judging<'_> {
    type Pattern = Pattern;

    #[inline(always)]
    fn judge(&mut self, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        if self.guard.checks.mac && Mac::source(head) != self.known {
            if self.guard.macs.len() == 1 {
                return Err(DropReason::SpoofedMac);
            }
        } else if self.guard.is_plain(head, len) {
            return Ok(());
        }
        self.judge_closely(head, len)
    }

    #[inline]
    fn pattern(&mut self, head: &[u8; 128], len: usize) -> Option<Pattern> {
        self.judge(head, len).ok()?;
        let Guard { checks, v4, v6, .. } = self.guard;
        Pattern::of(*checks, &Addresses { v4, v6 }, head, len)
    }
}

impl Judging<'_> {
    #[inline(never)]
    fn judge_closely(&mut self, head: &[u8; 128], len: usize) -> Result<(), DropReason> {
        let source = Mac::source(head);
        if self.guard.checks.mac && source != self.known {
            if !self.guard.has(source) {
                return Err(DropReason::SpoofedMac);
            }
            self.known = source;
        }
        self.guard.judge_claims(head.get(..len).unwrap_or(head))
    }
}

/// Returns true if the ports of the UDP header at `at` are neither `port` nor `port + 1`. A later fragment may have any
/// bytes there; false then only costs the full check.
#[inline]
fn has_no_port(head: &[u8; 128], at: usize, port: u16) -> bool {
    let is_not = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]).wrapping_sub(port) > 1;
    is_not(at) && is_not(at + 2)
}

#[inline]
fn v6_source(head: &[u8; 128]) -> u128 {
    let mut address = [0; 16];
    address.copy_from_slice(&head[22..38]);
    u128::from_be_bytes(address)
}

fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.octets();
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}
