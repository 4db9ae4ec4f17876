//! The VLAN of a frame (IEEE 802.1Q).

/// VLANs that there may be.
pub(crate) const VLANS: u16 = 4096;
/// The type of a VLAN tag, as frames have it.
const TAG: [u8; 2] = [0x81, 0x00];

/// Whether a type is that of a VLAN tag, by the standards or by the habits from before them.
#[inline]
pub(crate) fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300)
}

/// The VLAN of a frame, whether it has the tag to show it, and whether another is behind that, in one word; 0 where there are no
/// VLANs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class(u16);

impl Class {
    const TAGGED: u16 = 0x8000;
    const STACKED: u16 = 0x4000;

    #[inline]
    pub(crate) fn untagged(vlan: u16) -> Class {
        Class(vlan)
    }

    #[inline]
    pub(crate) fn tagged(vlan: u16, stacked: bool) -> Class {
        Class(vlan | Self::TAGGED | if stacked { Self::STACKED } else { 0 })
    }

    /// Whether a frame that begins so has a tag.
    #[inline]
    pub(crate) fn has_tag(head: &[u8; 128]) -> bool {
        head[12..14] == TAG
    }

    #[inline]
    pub(crate) fn vlan(self) -> u16 {
        self.0 % VLANS
    }

    #[inline]
    pub(crate) fn is_tagged(self) -> bool {
        self.0 & Self::TAGGED != 0
    }

    #[inline]
    pub(crate) fn is_stacked(self) -> bool {
        self.0 & Self::STACKED != 0
    }
}
