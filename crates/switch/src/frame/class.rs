//! The VLAN of a frame (IEEE 802.1Q).

/// Number of VLAN IDs.
pub(crate) const VLANS: u16 = 4096;
/// The TPID of a VLAN tag, in wire order.
const TAG: [u8; 2] = [0x81, 0x00];

/// Returns true if an EtherType is the TPID of a VLAN tag: of IEEE 802.1Q and 802.1ad, or an older one in use.
#[inline]
pub(crate) fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300)
}

/// The VLAN of a frame, whether the frame has a tag, and whether a second tag follows, in one word. 0 in switches
/// without VLANs.
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

    /// Returns true if the frame that begins with `head` has a VLAN tag.
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
