//! How an e1000 is driven.

use crate::pci::PciError;

/// How an e1000 is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct E1000Options {
    /// Descriptors of each ring: a power of two from 16 to 4,096.
    pub slots: u32,
    /// Bytes of a buffer: 256 to 65,536, a multiple of 64. The device writes up to 16,384 of them, a power of two.
    pub buffer: u32,
    /// Buffers that the program gets.
    pub buffers: u32,
    /// Most bytes of a frame without its Ethernet header, if it is not segmented. Default: what a buffer holds.
    pub mtu: Option<u16>,
    /// The device computes checksums and segments frames (not the 82540EM of QEMU: it adds segments without data). Then [`super::Driver::room`] counts only as many frames as there is room for if
    /// each takes as many descriptors as it can.
    pub offload: bool,
    /// Use the communication status block of a NIC that offers one.
    pub csb: bool,
}

impl Default for E1000Options {
    fn default() -> Self {
        Self { slots: 1024, buffer: 2112, buffers: 1024, mtu: None, offload: false, csb: true }
    }
}

impl E1000Options {
    /// Checks that a NIC can be driven so.
    ///
    /// # Errors
    /// It cannot: what would be right.
    pub fn check(&self, name: &str) -> Result<(), PciError> {
        let lacks = |what: String| Err(PciError::Lacks { address: name.to_owned(), what });
        if !self.slots.is_power_of_two() || !(16..=4096).contains(&self.slots) {
            return lacks(format!(
                "has no rings of {} descriptors: a power of two from 16 to 4096 is needed",
                self.slots
            ));
        }
        if !self.buffer.is_multiple_of(64) || !(256..=65_536).contains(&self.buffer) {
            return lacks(format!(
                "has no buffers of {} bytes: a multiple of 64 from 256 to 65536 is needed",
                self.buffer
            ));
        }
        Ok(())
    }
}
