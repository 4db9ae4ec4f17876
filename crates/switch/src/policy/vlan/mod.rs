//! VLANs: which broadcast domain a frame is in, and which ones a port is (IEEE 802.1Q, as Linux bridges do it).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::batch::Batch;
use crate::frame::{Class, DropReason, VLANS, is_tag};

/// Bytes of the shortest frame with a tag.
const TAGGED_BYTES: usize = 18;
/// The VLAN of ports for which none is configured.
const DEFAULT: u16 = 1;

/// The VLANs of one port, where the switch has any.
#[derive(Clone, Debug)]
pub struct Membership {
    /// That of frames without a tag; 0: such frames are dropped, and none are sent.
    untagged: u16,
    /// Those of frames with a tag, a bit each.
    tagged: Option<Arc<[u64; VLANS as usize / 64]>>,
}

impl Default for Membership {
    fn default() -> Self {
        Self::access(DEFAULT)
    }
}

impl Membership {
    /// In one VLAN (1 to 4094), without tags.
    #[must_use]
    pub fn access(vlan: u16) -> Membership {
        Membership { untagged: vlan % VLANS, tagged: None }
    }

    /// In several, with tags but for the native one.
    #[must_use]
    pub fn trunk(tagged: impl IntoIterator<Item = u16>, native: Option<u16>) -> Membership {
        let mut bits = [0; VLANS as usize / 64];
        for vlan in tagged {
            bits[usize::from(vlan % VLANS / 64)] |= 1 << (vlan % 64);
        }
        Membership { untagged: native.unwrap_or(0) % VLANS, tagged: Some(Arc::new(bits)) }
    }

    /// Whether the port is in a VLAN.
    #[inline]
    #[must_use]
    pub fn contains(&self, vlan: u16) -> bool {
        let bit = |bits: &Arc<[u64; VLANS as usize / 64]>| bits[usize::from(vlan % VLANS / 64)] >> (vlan % 64) & 1;
        vlan == self.untagged || self.tagged.as_ref().is_some_and(|bits| bit(bits) == 1)
    }

    /// Whether frames of a VLAN that it is in go out with a tag.
    #[inline]
    pub(crate) fn tags(&self, vlan: u16) -> bool {
        vlan != self.untagged
    }

    /// Whether frames of a class may go out here. A tag behind a tag would come to light where the first is taken off, in a VLAN
    /// that its sender need not be in.
    #[inline]
    pub(crate) fn take(&self, class: Class) -> Result<(), DropReason> {
        match (self.contains(class.vlan()), class.is_stacked() && !self.tags(class.vlan())) {
            (false, _) => Err(DropReason::VlanDenied),
            (true, true) => Err(DropReason::VlanStacked),
            (true, false) => Ok(()),
        }
    }

    /// The VLAN of a frame that begins so and has `len` bytes of which these are the first, 128 or all.
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
        // Most frames are told by their first bit: IPv4, ARP.
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
        // A tag that only gives a priority gets a number.
        if self.untagged == 0 {
            return Err(DropReason::VlanDenied);
        }
        let [high, low] = self.untagged.to_be_bytes();
        (head[14], head[15]) = (head[14] & 0xf0 | high, low);
        Ok(Class::tagged(self.untagged, stacked))
    }

    /// Finds every frame's VLAN; rejects those that are in none of the port's.
    pub(crate) fn classify_all(&self, batch: &mut Batch<'_>) {
        let untagged = (self.untagged != 0).then(|| Class::untagged(self.untagged));
        batch.classify(untagged, |head, len| self.classify(head, len));
    }
}
