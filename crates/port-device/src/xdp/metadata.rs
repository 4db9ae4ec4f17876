//! Metadata before a sent frame (Linux, Documentation/networking/xsk-tx-metadata.rst): they leave the frame's checksum to the device.
//!
//! In copy mode the kernel gives the device the frame without its protocol, which drivers may need to find the checksum. A veth device
//! needs nothing: its other end is told that the checksum is left. So only veth devices are asked.
//!
//! The kernel does not tell an XDP program at the other end. The port leaves only checksums that such a program can recognize
//! (`crate::partial`). It writes all others: the checksum of GRE, for example.

use ringway_memory::View;
use ringway_switch::{Frame, Offload};

use crate::partial::partial_checksum;

/// The device writes the checksum (`XDP_TXMD_FLAGS_CHECKSUM`).
const CHECKSUM: u64 = 1 << 1;

/// Writes metadata that leave the checksum of a frame to the device. Returns false if the other end could not recognize it.
#[inline]
pub(super) fn leave_checksum(metadata: View<'_>, frame: &Frame<'_, '_>, offload: &Offload) -> bool {
    let places = |offload: &Offload| (offload.csum_start, offload.csum_offset);
    let found = partial_checksum(frame.first_bytes());
    if found.as_ref().map(places) != Some(places(offload)) {
        return false;
    }
    metadata.put(0, &CHECKSUM.to_ne_bytes());
    metadata.put(8, &offload.csum_start.to_ne_bytes());
    metadata.put(10, &offload.csum_offset.to_ne_bytes());
    true
}
