//! Messages of the vfio-user protocol (QEMU, docs/interop/vfio-user.rst), to and from bytes. All numbers are in the host's
//! order.

/// Bytes of the header in front of every message.
pub const HEADER: usize = 16;

/// Index of the interrupt pin.
pub const IRQ_INTX: u32 = 0;
/// Index of message-signalled interrupts.
pub const IRQ_MSI: u32 = 1;
/// Index of MSI-X interrupts.
pub const IRQ_MSI_X: u32 = 2;

/// Bits of a header's flags.
pub mod flag {
    /// A reply.
    pub const REPLY: u32 = 1;
    /// The bits of the message type.
    pub const TYPE: u32 = 0xf;
    /// No reply is requested.
    pub const NO_REPLY: u32 = 1 << 4;
    /// The command failed.
    pub const ERROR: u32 = 1 << 5;
}

/// Commands and their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the specification")]
pub enum Command {
    VERSION = 1,
    DMA_MAP = 2,
    DMA_UNMAP = 3,
    DEVICE_GET_INFO = 4,
    DEVICE_GET_REGION_INFO = 5,
    DEVICE_GET_IRQ_INFO = 7,
    DEVICE_SET_IRQS = 8,
    REGION_READ = 9,
    REGION_WRITE = 10,
    DEVICE_RESET = 13,
    REGION_WRITE_MULTI = 15,
}

/// A message's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The reply repeats it.
    pub id: u16,
    /// Number of the command.
    pub command: u16,
    /// Length in bytes, including the header.
    pub size: u32,
    /// See [`flag`].
    pub flags: u32,
    /// An errno, if the error flag is set.
    pub error: u32,
}

impl Header {
    /// Encodes the header.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&self.id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.error.to_ne_bytes());
        bytes
    }

    /// Decodes a header.
    pub fn from_bytes(bytes: &[u8; HEADER]) -> Header {
        let short = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Header { id: short(0), command: short(2), size: word(4), flags: word(8), error: word(12) }
    }
}

/// Encodes the 16 bytes before a region's data: offset, region and length.
#[inline]
pub fn access(region: u32, offset: u64, count: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&offset.to_ne_bytes());
    bytes[8..12].copy_from_slice(&region.to_ne_bytes());
    bytes[12..].copy_from_slice(&count.to_ne_bytes());
    bytes
}

/// Encodes words one after another.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Returns the 32-bit word at this offset of a payload.
pub fn word(payload: &[u8], at: usize) -> Option<u32> {
    payload.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Returns the 64-bit word at this offset of a payload.
pub fn long(payload: &[u8], at: usize) -> Option<u64> {
    payload.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// A part of a region that can be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Offset in the region.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// A server's information about a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionReply {
    /// Size in bytes.
    pub size: u64,
    /// Offset of the region in the file.
    pub file_offset: u64,
    /// True if the region may be mapped.
    pub mappable: bool,
    /// The areas that may be mapped, if not all of the region.
    pub areas: Option<Vec<Area>>,
}

/// Most capabilities of a region, and most areas in one capability.
const MOST: usize = 64;

impl RegionReply {
    /// Decodes a reply's payload. Returns `None` if it is invalid.
    pub fn parse(payload: &[u8]) -> Option<RegionReply> {
        const MMAP: u32 = 1 << 2;
        const CAPS: u32 = 1 << 3;
        const SPARSE: u16 = 1;
        let flags = word(payload, 4)?;
        let mut reply = RegionReply {
            size: long(payload, 16)?,
            file_offset: long(payload, 24)?,
            mappable: flags & MMAP != 0,
            areas: None,
        };
        let mut next = if flags & CAPS == 0 { 0 } else { word(payload, 12)? as usize };
        for _ in 0..MOST {
            if next == 0 {
                return Some(reply);
            }
            let id = u16::from_ne_bytes(*payload.get(next..)?.first_chunk()?);
            if id == SPARSE {
                let count = word(payload, next + 8)? as usize;
                let area = |number: usize| {
                    let at = next + 16 + number * 16;
                    Some(Area { offset: long(payload, at)?, size: long(payload, at + 8)? })
                };
                reply.areas = Some((0..count.min(MOST)).map(area).collect::<Option<_>>()?);
            }
            next = word(payload, next + 4)? as usize;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_the_same_after_a_round_trip() {
        let header = Header { id: 7, command: 10, size: 36, flags: flag::NO_REPLY, error: 22 };
        let bytes = header.to_bytes();
        assert_eq!(bytes[..4], [7, 0, 10, 0]);
        assert_eq!(Header::from_bytes(&bytes), header);
    }

    /// Returns the reply of a server with 128 KiB of registers. These areas of them can be mapped.
    fn reply(areas: &[(u64, u64)]) -> Vec<u8> {
        let mut payload = words(&[0, 0b1111, 0, 32]);
        payload.extend([0x2_0000u64, 0x1000].map(u64::to_ne_bytes).concat());
        payload.extend(words(&[1 | 1 << 16, 0, areas.len() as u32, 0]));
        payload.extend(areas.iter().flat_map(|area| [area.0, area.1]).flat_map(u64::to_ne_bytes));
        payload
    }

    #[test]
    fn a_region_tells_what_can_be_mapped() {
        let parsed = RegionReply::parse(&reply(&[(0x2000, 0x1000), (0x3000, 0x2000)])).unwrap();
        let areas = vec![Area { offset: 0x2000, size: 0x1000 }, Area { offset: 0x3000, size: 0x2000 }];
        let wanted = RegionReply { size: 0x2_0000, file_offset: 0x1000, mappable: true, areas: Some(areas) };
        assert_eq!(parsed, wanted);
    }

    #[test]
    fn a_region_that_is_cut_or_goes_in_circles_is_refused() {
        let whole = reply(&[(0x2000, 0x1000)]);
        for len in 0..whole.len() {
            assert_eq!(RegionReply::parse(&whole[..len]), None, "{len} bytes");
        }
        let mut circle = whole.clone();
        circle[36..40].copy_from_slice(&32u32.to_ne_bytes());
        assert_eq!(RegionReply::parse(&circle), None);
        let mut plain = whole[..32].to_vec();
        plain[4] = 0b0011;
        assert!(RegionReply::parse(&plain).is_some_and(|region| !region.mappable && region.areas.is_none()));
    }
}
