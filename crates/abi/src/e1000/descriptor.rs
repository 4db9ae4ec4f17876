//! The second words of descriptors, little-endian; the first one is an address (8254x manual, 3.2.3 and 3.3; 82574 datasheet, 7.1 and 7.2).

use super::register as reg;

/// Transmit descriptors.
pub mod transmit {
    /// The frame ends with this descriptor.
    pub const EOP: u64 = 1 << 24;
    /// The device computes the frame check sequence.
    pub const IFCS: u64 = 1 << 25;
    /// Context and data descriptors: the device segments the frame.
    pub const TSE: u64 = 1 << 26;
    /// The device reports when it is done.
    pub const RS: u64 = 1 << 27;
    /// A context or data descriptor, not a legacy one.
    pub const DEXT: u64 = 1 << 29;
    /// With [`DEXT`]: a data descriptor, not a context descriptor.
    pub const DATA: u64 = 1 << 20;
    /// Data descriptor: the device inserts the IPv4 header checksum.
    pub const IXSM: u64 = 1 << 40;
    /// Data descriptor: the device inserts the TCP or UDP checksum.
    pub const TXSM: u64 = 1 << 41;
    /// Context descriptor: TCP, not UDP.
    pub const TCP: u64 = 1 << 24;
    /// Context descriptor: IPv4, not IPv6.
    pub const IPV4: u64 = 1 << 25;
    /// The device is done with the descriptor.
    pub const DONE: u64 = 1 << 32;
}

/// How the device writes receive descriptors back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveFormat {
    /// Length and status in the second word. The address stays.
    Legacy,
    /// Status and length in the second word. The address is overwritten. Only of the 82574L.
    Extended,
}

/// What a device has written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveStatus {
    /// Bytes in the buffer.
    pub len: usize,
    /// True for the last descriptor of a frame.
    pub end: bool,
    /// True if the frame has an error (RXE): the driver drops it.
    pub bad: bool,
}

impl ReceiveFormat {
    /// Decodes the second word. Returns `None` while the device owns the descriptor.
    #[inline]
    #[must_use]
    pub fn read(self, word: u64) -> Option<ReceiveStatus> {
        const DONE: u64 = 1 << 0;
        const END: u64 = 1 << 1;
        let (status, len, error) = match self {
            ReceiveFormat::Legacy => (word >> 32, word & 0xffff, 1 << 15),
            ReceiveFormat::Extended => (word, word >> 32 & 0xffff, 1 << 31),
        };
        let (end, bad) = (status & END != 0, status & error != 0);
        (status & DONE != 0).then_some(ReceiveStatus { len: len as usize, end, bad })
    }
}

/// Returns the bits of RCTL for receive buffers of `bytes` bytes, 256 to 16,384, a power of two; those above 2,048 are for long frames.
#[must_use]
pub fn receive_size(bytes: u32) -> Option<u32> {
    let (size, long) = match bytes {
        256 => (3, 0),
        512 => (2, 0),
        1024 => (1, 0),
        2048 => (0, 0),
        4096 => (3, reg::RCTL_BSEX | reg::RCTL_LPE),
        8192 => (2, reg::RCTL_BSEX | reg::RCTL_LPE),
        16_384 => (1, reg::RCTL_BSEX | reg::RCTL_LPE),
        _ => return None,
    };
    Some(size << reg::RCTL_BSIZE | long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_sizes_are_those_of_the_manual() {
        let field = |bytes| receive_size(bytes).map(|bits| bits >> reg::RCTL_BSIZE & 3);
        assert_eq!([256, 512, 1024, 2048, 4096, 8192, 16_384].map(field), [3, 2, 1, 0, 3, 2, 1].map(Some));
        assert_eq!([0, 2047, 32_768].map(receive_size), [None; 3]);
        for (size, long) in [(2048, false), (4096, true)] {
            assert_eq!(receive_size(size).unwrap() & (reg::RCTL_BSEX | reg::RCTL_LPE) != 0, long);
        }
    }

    #[test]
    fn lengths_and_ends_are_where_the_manuals_have_them() {
        let status = |len, end| Some(ReceiveStatus { len, end, bad: false });
        assert_eq!(ReceiveFormat::Legacy.read(0x3_0000_0000 | 1514), status(1514, true));
        assert_eq!(ReceiveFormat::Legacy.read(0x1_0000_0000 | 256), status(256, false));
        assert_eq!(ReceiveFormat::Legacy.read(0x2_0000_0000 | 1514), None);
        assert_eq!(ReceiveFormat::Extended.read(1514 << 32 | 3), status(1514, true));
        assert_eq!(ReceiveFormat::Extended.read(256 << 32 | 1), status(256, false));
        assert_eq!(ReceiveFormat::Extended.read(1514 << 32 | 2), None);
        let bad = Some(ReceiveStatus { len: 0, end: true, bad: true });
        assert_eq!(ReceiveFormat::Legacy.read(0x8003_0000_0000), bad);
        assert_eq!(ReceiveFormat::Extended.read(0x8000_0003), bad);
    }
}
