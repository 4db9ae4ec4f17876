//! The receive filter: the frames that a guest is given (SDM 3.2.1, 13.4.22 and 13.5).

use ringway_memory::HEAD_BYTES;

/// Number of receive address registers.
const ADDRESSES: usize = 16;
/// Stands for an unused entry: no 48-bit address has this value.
const NONE: u64 = u64::MAX;
const MAC_BITS: u64 = 0xffff_ffff_ffff;
const BROADCAST: u64 = MAC_BITS;

/// Bytes of the shortest header with a VLAN tag.
const TAGGED: usize = 18;

/// Bits of RCTL.
const UNICAST: u32 = 1 << 3;
const MULTICAST: u32 = 1 << 4;
const ACCEPT_BROADCAST: u32 = 1 << 15;
const VLANS: u32 = 1 << 18;
const FORMAT: u32 = 1 << 19;
const FORMAT_BIT: u32 = 1 << 20;
/// RAH: the entry is valid; which address of a frame it is compared with (0: the destination).
const VALID: u32 = 1 << 31;
const SELECT: u32 = 3 << 16;

/// The receive filters, from the registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filters {
    addresses: [u64; ADDRESSES],
    /// Number of entries to compare.
    used: usize,
    control: u32,
    /// EtherType of tagged frames (VET), big-endian.
    tag: [u8; 2],
    /// Multicast table array (MTA): one bit for each hash value.
    pub multicast: [u32; 128],
    /// VLAN filter table array (VFTA): one bit for each VLAN ID.
    pub vlans: [u32; 128],
}

impl Default for Filters {
    /// Filters that no frame passes.
    fn default() -> Filters {
        let (addresses, tables) = ([NONE; ADDRESSES], [0; 128]);
        Filters { addresses, used: 0, control: 0, tag: [0x81, 0], multicast: tables, vlans: tables }
    }
}

impl Filters {
    /// Sets receive address `index` (0 to 15) from its registers (RAL, RAH).
    pub fn set_address(&mut self, index: usize, low: u32, high: u32) {
        let Some(address) = self.addresses.get_mut(index) else { return };
        let word = u64::from(low) | u64::from(high & 0xffff) << 32;
        *address = if high & VALID != 0 && high & SELECT == 0 { word } else { NONE };
        let last = self.addresses.iter().rposition(|&address| address != NONE);
        self.used = last.map_or(0, |last| last.saturating_add(1));
    }

    /// Sets the promiscuous modes, broadcast, the bits of addresses that are hashed, and VLAN filtering from RCTL.
    pub fn set_control(&mut self, control: u32) {
        self.control = control;
    }

    /// Sets the EtherType of tagged frames (VET).
    pub fn set_tag(&mut self, kind: u16) {
        self.tag = kind.to_be_bytes();
    }

    /// Returns the VLAN tag of a frame of `len` bytes that begins with `head`. A frame that ends before the EtherType
    /// after the tag has none: the bytes of `head` after the frame belong to another frame.
    #[inline(always)]
    pub(super) fn tag_of(&self, head: &[u8; HEAD_BYTES], len: usize) -> Option<u16> {
        (head[12..14] == self.tag && len >= TAGGED).then(|| u16::from_be_bytes([head[14], head[15]]))
    }

    /// Returns true if a frame of `len` bytes that begins with `head` passes the filters.
    #[inline(always)]
    pub(super) fn passes(&self, head: &[u8; HEAD_BYTES], len: usize) -> bool {
        let destination = head.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)) & MAC_BITS;
        let wanted = self.addresses[0] == destination || self.wants(destination);
        wanted && (self.control & VLANS == 0 || self.has_vlan(head, len))
    }

    #[inline(never)]
    fn wants(&self, destination: u64) -> bool {
        let control = self.control;
        let promiscuous = match destination & 1 {
            0 => control & UNICAST != 0,
            _ => control & MULTICAST != 0 || destination == BROADCAST && control & ACCEPT_BROADCAST != 0,
        };
        promiscuous
            || self.addresses[..self.used].contains(&destination)
            || destination & 1 != 0 && self.is_in_table(destination)
    }

    /// Hashes bits 47 to 36 of the address, 46 to 35, 45 to 34, or 43 to 32, depending on RCTL.MO. Bit 47 is the
    /// highest bit of the last byte.
    fn is_in_table(&self, destination: u64) -> bool {
        let shift = [36, 35, 34, 32][(self.control >> 12 & 3) as usize];
        let hash = (destination >> shift & 0xfff) as usize;
        self.multicast[hash / 32] >> (hash % 32) & 1 != 0
    }

    /// Checks the VLAN ID. Frames without a tag pass (SDM 9.3: VLAN filters concern tagged frames).
    fn has_vlan(&self, head: &[u8; HEAD_BYTES], len: usize) -> bool {
        let Some(tag) = self.tag_of(head, len) else { return true };
        let vlan = usize::from(tag & 0xfff);
        let format = (tag >> 12 & 1 != 0) == (self.control & FORMAT_BIT != 0);
        self.vlans[vlan / 32] >> (vlan % 32) & 1 != 0 && (self.control & FORMAT == 0 || format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

    fn head(destination: [u8; 6], kind: [u8; 4]) -> [u8; HEAD_BYTES] {
        let mut head = [0xaa; HEAD_BYTES];
        head[..6].copy_from_slice(&destination);
        head[12..16].copy_from_slice(&kind);
        head
    }

    fn own() -> Filters {
        let mut filters = Filters::default();
        filters.set_address(0, u32::from_le_bytes([0x52, 0x54, 0, 1]), 0x302 | VALID);
        filters
    }

    const IP: [u8; 4] = [8, 0, 0x45, 0];

    #[test]
    fn frames_pass_by_address_and_by_mode() {
        let mut filters = own();
        let other = [0x52, 0x54, 0, 1, 2, 4];
        let group = [1, 0, 0x5e, 1, 2, 3];
        let passes = |filters: &Filters| [OWN, other, group, [0xff; 6]].map(|to| filters.passes(&head(to, IP), 60));
        assert_eq!(passes(&Filters::default()), [false; 4]);
        assert_eq!(passes(&filters), [true, false, false, false]);
        for (control, expected) in [
            (UNICAST, [true, true, false, false]),
            (MULTICAST, [true, false, true, true]),
            (ACCEPT_BROADCAST, [true, false, false, true]),
            (UNICAST | MULTICAST, [true; 4]),
        ] {
            filters.set_control(control);
            assert_eq!(passes(&filters), expected, "{control:#x}");
        }
        filters.set_control(0);
        filters.set_address(15, u32::from_le_bytes([1, 0, 0x5e, 1]), 0x302 | VALID);
        assert_eq!(passes(&filters), [true, false, true, false], "groups may have an address register");
        filters.set_address(15, u32::from_le_bytes([1, 0, 0x5e, 1]), 0x302 | VALID | 1 << 16);
        filters.set_address(0, u32::from_le_bytes([0x52, 0x54, 0, 1]), 0x302);
        assert_eq!(passes(&filters), [false; 4], "sources are not compared, and what is not valid is nothing");
        filters.set_address(16, 0, VALID);
    }

    #[test]
    fn the_multicast_table_is_asked_with_the_bits_that_rctl_names() {
        // The example of SDM 13.5.1: 12 bits from the last two bytes. Offset 0 selects the upper ones.
        let group = [1, 0xaa, 0, 0x12, 0x34, 0x56];
        for (offset, hash) in [(0, 0x563), (1, 0xac6), (2, 0x58d), (3, 0x634)] {
            let mut filters = own();
            filters.set_control(offset << 12);
            assert!(!filters.passes(&head(group, IP), 60));
            filters.multicast[hash / 32] = 1 << (hash % 32);
            assert!(filters.passes(&head(group, IP), 60), "offset {offset}");
            filters.multicast[hash / 32] = !(1 << (hash % 32));
            assert!(!filters.passes(&head(group, IP), 60), "offset {offset}");
            let unicast = [0, 0xaa, 0, 0x12, 0x34, 0x56];
            filters.multicast = [u32::MAX; 128];
            assert!(!filters.passes(&head(unicast, IP), 60), "the table is for groups");
        }
    }

    #[test]
    fn the_vlan_table_concerns_tagged_frames_only() {
        let mut filters = own();
        let tagged = |tag: u16| head(OWN, [0x81, 0, (tag >> 8) as u8, tag as u8]);
        filters.vlans[3] = 1 << 4;
        assert!(filters.passes(&tagged(5), 60), "no filter is on");
        filters.set_control(VLANS);
        assert!(filters.passes(&head(OWN, IP), 60));
        assert!(
            filters.passes(&tagged(100), 60)
                && filters.passes(&tagged(0xf064), 60)
                && !filters.passes(&tagged(101), 60)
        );
        filters.set_control(VLANS | FORMAT);
        assert!(filters.passes(&tagged(0xe064), 60) && !filters.passes(&tagged(0x1064), 60));
        filters.set_control(VLANS | FORMAT | FORMAT_BIT);
        assert!(!filters.passes(&tagged(0xe064), 60) && filters.passes(&tagged(0x1064), 60));
        assert!(filters.passes(&tagged(0x2065), 17), "too short for a tag");
        filters.set_tag(0x88a8);
        assert!(filters.passes(&tagged(101), 60), "it is no tag any more");
        filters.set_control(VLANS | UNICAST | MULTICAST);
        filters.set_tag(0x8100);
        assert!(!filters.passes(&tagged(101), 60), "promiscuous modes do not open VLANs");
    }
}
