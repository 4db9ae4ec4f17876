//! VLANs: the broadcast domain of a frame, and those of a port (IEEE 802.1Q, like the Linux bridge).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::batch::Batch;
use crate::frame::{Class, DropReason, VLANS, is_tag};

/// Bytes of the shortest frame with a tag.
const TAGGED_BYTES: usize = 18;
/// The VLAN of ports without a configured VLAN.
const DEFAULT: u16 = 1;

/// The VLANs of one port, if the switch has VLANs.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The VLAN of frames without a tag; 0: such frames are dropped, and no frame is sent without a tag.
    untagged: u16,
    /// The VLANs of frames with a tag, one bit each.
    tagged: Option<Arc<[u64; VLANS as usize / 64]>>,
}

impl Default for Membership {
    fn default() -> Self {
        Self::access(DEFAULT)
    }
}

impl Membership {
    /// An access port: in one VLAN (1 to 4094), without tags.
    #[must_use]
    pub fn access(vlan: u16) -> Membership {
        Membership { untagged: vlan % VLANS, tagged: None }
    }

    /// A trunk port: in several VLANs, with tags except in the native one.
    #[must_use]
    pub fn trunk(tagged: impl IntoIterator<Item = u16>, native: Option<u16>) -> Membership {
        let mut bits = [0; VLANS as usize / 64];
        for vlan in tagged {
            bits[usize::from(vlan % VLANS / 64)] |= 1 << (vlan % 64);
        }
        Membership { untagged: native.unwrap_or(0) % VLANS, tagged: Some(Arc::new(bits)) }
    }

    /// Returns true if the port is in a VLAN.
    #[inline]
    #[must_use]
    pub fn contains(&self, vlan: u16) -> bool {
        let bit = |bits: &Arc<[u64; VLANS as usize / 64]>| bits[usize::from(vlan % VLANS / 64)] >> (vlan % 64) & 1;
        vlan == self.untagged || self.tagged.as_ref().is_some_and(|bits| bit(bits) == 1)
    }

    /// Returns true if frames of a VLAN leave the port with a tag. The port is in that VLAN.
    #[inline]
    pub(crate) fn tags(&self, vlan: u16) -> bool {
        vlan != self.untagged
    }

    /// Returns `Ok` if frames of a class may leave the port. A stacked tag is refused where the outer tag would be
    /// removed: the inner tag could then name a VLAN that the sender is not in.
    #[inline]
    pub(crate) fn take(&self, class: Class) -> Result<(), DropReason> {
        match (self.contains(class.vlan()), class.is_stacked() && !self.tags(class.vlan())) {
            (false, _) => Err(DropReason::VlanDenied),
            (true, true) => Err(DropReason::VlanStacked),
            (true, false) => Ok(()),
        }
    }

    /// The class of a frame by its first bytes. `len` of `head` belong to the frame: 128 or all.
    #[inline]
    fn classify(&self, head: &mut [u8; 128], len: usize) -> Result<Class, DropReason> {
        if !Class::has_tag(head) {
            return if self.untagged != 0 { Ok(Class::untagged(self.untagged)) } else { Err(DropReason::VlanDenied) };
        }
        self.classify_tagged(head, len)
    }

    #[inline(always)]
    fn classify_tagged(&self, head: &mut [u8; 128], len: usize) -> Result<Class, DropReason> {
        if len < TAGGED_BYTES {
            return Err(DropReason::Runt);
        }
        // The first bit is enough for most frames: IPv4, ARP.
        let stacked = head[16] & 0x80 != 0 && is_tag(u16::from_be_bytes([head[16], head[17]]));
        if stacked && self.tagged.is_none() {
            return Err(DropReason::VlanStacked);
        }
        let number = u16::from_be_bytes([head[14], head[15]]) & 0x0fff;
        if number != 0 {
            return if self.contains(number) {
                Ok(Class::tagged(number, stacked))
            } else {
                Err(DropReason::VlanDenied)
            };
        }
        // A priority tag (VLAN 0) gets the VLAN ID of untagged frames.
        if self.untagged == 0 {
            return Err(DropReason::VlanDenied);
        }
        let [high, low] = self.untagged.to_be_bytes();
        (head[14], head[15]) = (head[14] & 0xf0 | high, low);
        Ok(Class::tagged(self.untagged, stacked))
    }

    /// Sets every frame's class, and rejects frames that are in none of the port's VLANs.
    pub(crate) fn classify_all(&self, batch: &mut Batch<'_>) {
        let untagged = (self.untagged != 0).then(|| Class::untagged(self.untagged));
        batch.classify(untagged, |head, len| self.classify(head, len));
    }
}
