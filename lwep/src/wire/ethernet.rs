//! The Ethernet header.

/// EtherType of the plain layout: IEEE 802, local experimental 1.
pub const ETHER_TYPE: u16 = 0x88b5;
/// EtherType of the segmentation layout.
pub const IPV4: u16 = 0x0800;
/// EtherType of a VLAN tag (IEEE 802.1Q).
const VLAN: u16 = 0x8100;
/// Bytes of an untagged Ethernet header.
pub const ETHERNET_BYTES: usize = 14;
/// An Ethernet address.
pub type Mac = [u8; 6];

/// The Ethernet header of a received frame, and what follows it.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<'a> {
    /// Destination address.
    pub to: Mac,
    /// Source address.
    pub from: Mac,
    /// EtherType, behind a VLAN tag if there is one.
    pub ether_type: u16,
    /// Bytes of the Ethernet header.
    pub bytes: usize,
    /// What follows.
    pub rest: &'a [u8],
}

impl<'a> Ethernet<'a> {
    /// Splits a frame. Returns `None` if it is too short.
    #[inline]
    pub fn split(frame: &'a [u8]) -> Option<Self> {
        let (head, rest) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
        let [t0, t1, t2, t3, t4, t5, f0, f1, f2, f3, f4, f5, e0, e1] = *head;
        let (to, from) = ([t0, t1, t2, t3, t4, t5], [f0, f1, f2, f3, f4, f5]);
        let ether_type = u16::from_be_bytes([e0, e1]);
        if ether_type != VLAN {
            return Some(Self { to, from, ether_type, bytes: ETHERNET_BYTES, rest });
        }
        let (&[_, _, e0, e1], rest) = rest.split_first_chunk::<4>()?;
        Some(Self { to, from, ether_type: u16::from_be_bytes([e0, e1]), bytes: ETHERNET_BYTES + 4, rest })
    }

    /// Returns an untagged Ethernet header.
    #[inline]
    pub fn encode(to: Mac, from: Mac, ether_type: u16) -> [u8; ETHERNET_BYTES] {
        let mut bytes = [0; ETHERNET_BYTES];
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&from);
        bytes[12..].copy_from_slice(&ether_type.to_be_bytes());
        bytes
    }
}
