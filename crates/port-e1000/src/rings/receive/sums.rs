//! Checksums on the way to a driver.
//!
//! The guest is told that a checksum is right only if the checksum was made here, for a frame that a local sender left
//! without one. Other frames are marked as not checked. Frames are never passed on unfinished: a guest that forwards a frame
//! could not know. The checksum of the whole packet in legacy descriptors is zero.

use ringway_memory::{HEAD_BYTES, View, ones_sum};
use ringway_switch::{Frame, Offload};

use crate::rings::format::{Format, IP_SUM, NO_SUMS, TRANSPORT_SUM, UDP_SUM};
use crate::rings::settings::ReceiveSettings;

const ETHERNET: usize = 14;
const MAX_TAGS: usize = 2;
const IPV6_BYTES: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Computes the checksum that a frame in one buffer lacks. Returns the checksum status for the descriptor. Checksums
/// that were present are not reported: nothing has checked them.
#[inline(always)]
pub(super) fn finish(buffer: View<'_>, frame: &Frame<'_, '_>, settings: &ReceiveSettings, format: Format) -> u64 {
    match frame.offload() {
        None => NO_SUMS,
        Some(offload) => {
            make(buffer, frame, offload);
            told(frame, offload, settings, format)
        }
    }
}

#[inline(never)]
fn make(buffer: View<'_>, frame: &Frame<'_, '_>, offload: &Offload) {
    let start = usize::from(offload.csum_start);
    let summed = buffer.sub(start, frame.len().saturating_sub(start)).map_or(0, |bytes| bytes.ones_sum());
    let sum = match !summed {
        0 => 0xffff,
        sum => sum,
    };
    let field = start + usize::from(offload.csum_offset);
    let _ = buffer.sub(field, 2).is_some_and(|place| place.write(&sum.to_ne_bytes()));
}

/// Returns the checksum status of a frame that was sent with a missing checksum.
#[inline(never)]
pub(super) fn told(frame: &Frame<'_, '_>, offload: &Offload, settings: &ReceiveSettings, format: Format) -> u64 {
    let Some(found) = find(&frame.head().0[..frame.head_len()]) else { return NO_SUMS };
    let mut said = 0;
    if settings.ip_sums && found.header_is_right {
        said |= IP_SUM;
    }
    let is_its = usize::from(offload.csum_start) == found.transport
        && match found.protocol {
            TCP => offload.csum_offset == 16,
            UDP => offload.csum_offset == 6,
            _ => false,
        };
    if settings.transport_sums && is_its {
        let is_udp = found.protocol == UDP && !matches!(format, Format::Legacy { .. });
        said |= TRANSPORT_SUM | if is_udp { UDP_SUM } else { 0 };
    }
    if said == 0 { NO_SUMS } else { said }
}

/// The headers of a frame.
struct Found {
    transport: usize,
    protocol: u8,
    /// True for an IPv4 header with a correct checksum.
    header_is_right: bool,
}

/// Parses IPv4, or IPv6 without extension headers, after up to two VLAN tags. Returns `None` for fragments.
fn find(head: &[u8]) -> Option<Found> {
    debug_assert!(head.len() <= HEAD_BYTES);
    let word = |at: usize| Some(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let mut ip = ETHERNET;
    while matches!(word(ip - 2)?, 0x8100 | 0x88a8) && ip < ETHERNET + 4 * MAX_TAGS {
        ip += 4;
    }
    match (word(ip - 2)?, head.get(ip)? >> 4) {
        (0x0800, 4) => {
            let transport = ip + usize::from(head[ip] & 15) * 4;
            let header = head.get(ip..transport).filter(|header| header.len() >= 20)?;
            let is_fragment = word(ip + 6)? & 0x3fff != 0;
            let header_is_right = ones_sum(header) == 0xffff;
            (!is_fragment).then_some(Found { transport, protocol: header[9], header_is_right })
        }
        (0x86dd, 6) => {
            let (transport, protocol) = (ip + IPV6_BYTES, *head.get(ip + 6)?);
            Some(Found { transport, protocol, header_is_right: false })
        }
        _ => None,
    }
}
