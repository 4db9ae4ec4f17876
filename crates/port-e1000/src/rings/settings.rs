//! Settings of the rings, from the registers.

use super::filter::Filters;

/// Settings of transmission, from the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitSettings {
    /// EtherType of the VLAN tags that descriptors may ask for (VET). `None` if CTRL.VME is clear.
    pub vlan: Option<u16>,
    /// Whether frames are padded to 60 bytes (TCTL.PSP).
    pub pad: bool,
    /// Longest frame in bytes without frame check sequence. Frames to be segmented may be longer.
    pub longest: usize,
}

/// Settings of reception, from the registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveSettings {
    /// The receive filters.
    pub filters: Filters,
    /// Whether VLAN tags are removed and reported in the descriptor (CTRL.VME).
    pub strip_tag: bool,
    /// Whether the frame check sequence is left out (RCTL.SECRC). If not, it is computed, as frames in the switch have
    /// none.
    pub strip_fcs: bool,
    /// Whether correct IPv4 header checksums are reported (RXCSUM.IPOFLD).
    pub ip_sums: bool,
    /// Whether correct TCP and UDP checksums are reported (RXCSUM.TUOFLD).
    pub transport_sums: bool,
    /// Longest frame in bytes without frame check sequence (RCTL.LPE).
    pub longest: usize,
    /// The number of free 16-byte descriptors at which an interrupt is due (RCTL.RDMTS).
    pub low: u32,
}
