//! Offsets of registers in bytes, and the meaning of their bits (Intel: "PCI/PCI-X Family of Gigabit Ethernet Controllers
//! Software Developer's Manual", chapter 13, below SDM; "82574 GbE Controller Family Datasheet", chapter 10, below DS).

pub(super) const CTRL: u32 = 0x0000;
/// An alias of [`CTRL`].
pub(super) const CTRL_DUP: u32 = 0x0004;
pub(super) const STATUS: u32 = 0x0008;
pub(super) const EECD: u32 = 0x0010;
pub(super) const EERD: u32 = 0x0014;
pub(super) const CTRL_EXT: u32 = 0x0018;
pub(super) const FLA: u32 = 0x001c;
pub(super) const MDIC: u32 = 0x0020;
pub(super) const FCAL: u32 = 0x0028;
pub(super) const FCAH: u32 = 0x002c;
pub(super) const FCT: u32 = 0x0030;
pub(super) const VET: u32 = 0x0038;
pub(super) const ICR: u32 = 0x00c0;
pub(super) const ITR: u32 = 0x00c4;
pub(super) const ICS: u32 = 0x00c8;
pub(super) const IMS: u32 = 0x00d0;
pub(super) const IMC: u32 = 0x00d8;
pub(super) const EIAC: u32 = 0x00dc;
pub(super) const IAM: u32 = 0x00e0;
pub(super) const IVAR: u32 = 0x00e4;
/// The first of five registers, one for each MSI-X message.
pub(super) const EITR: u32 = 0x00e8;
pub(super) const RCTL: u32 = 0x0100;
pub(super) const FCTTV: u32 = 0x0170;
pub(super) const TXCW: u32 = 0x0178;
pub(super) const TCTL: u32 = 0x0400;
pub(super) const TCTL_EXT: u32 = 0x0404;
pub(super) const TIPG: u32 = 0x0410;
pub(super) const AIT: u32 = 0x0458;
pub(super) const LEDCTL: u32 = 0x0e00;
pub(super) const EXTCNF_CTRL: u32 = 0x0f00;
pub(super) const EXTCNF_SIZE: u32 = 0x0f08;
pub(super) const PHY_CTRL: u32 = 0x0f10;
pub(super) const PBA: u32 = 0x1000;
pub(super) const PBS: u32 = 0x1008;
pub(super) const EEMNGCTL: u32 = 0x1010;
pub(super) const EEWR: u32 = 0x102c;
pub(super) const PBA_ECC: u32 = 0x1100;
pub(super) const FCRTL: u32 = 0x2160;
pub(super) const FCRTH: u32 = 0x2168;
pub(super) const PSRCTL: u32 = 0x2170;
pub(super) const RDBAL: u32 = 0x2800;
pub(super) const RDBAH: u32 = 0x2804;
pub(super) const RDLEN: u32 = 0x2808;
pub(super) const RDH: u32 = 0x2810;
pub(super) const RDT: u32 = 0x2818;
pub(super) const RDTR: u32 = 0x2820;
pub(super) const RXDCTL: u32 = 0x2828;
pub(super) const RADV: u32 = 0x282c;
/// Address of the communication status block (FreeBSD, if_lem). The driver writes the low word last.
pub(super) const CSBAL: u32 = 0x2830;
pub(super) const CSBAH: u32 = 0x2834;
pub(super) const RSRPD: u32 = 0x2c00;
pub(super) const TXDMAC: u32 = 0x3000;
/// Distance from a register of the first ring to that of the second ring (82574L).
pub(super) const SECOND: u32 = 0x100;
pub(super) const TDBAL: u32 = 0x3800;
pub(super) const TDBAH: u32 = 0x3804;
pub(super) const TDLEN: u32 = 0x3808;
pub(super) const TDH: u32 = 0x3810;
pub(super) const TDT: u32 = 0x3818;
pub(super) const TDBAL1: u32 = TDBAL + SECOND;
pub(super) const TDBAH1: u32 = TDBAH + SECOND;
pub(super) const TDLEN1: u32 = TDLEN + SECOND;
pub(super) const TDH1: u32 = TDH + SECOND;
pub(super) const TDT1: u32 = TDT + SECOND;
pub(super) const TIDV: u32 = 0x3820;
pub(super) const TXDCTL: u32 = 0x3828;
pub(super) const TADV: u32 = 0x382c;
pub(super) const TSPMT: u32 = 0x3830;
pub(super) const TARC: u32 = 0x3840;
/// Statistics registers, up to [`STATISTICS_END`].
pub(super) const STATISTICS: u32 = 0x4000;
pub(super) const STATISTICS_END: u32 = 0x4128;
pub(super) const RXCSUM: u32 = 0x5000;
pub(super) const RFCTL: u32 = 0x5008;
pub(super) const MTA: u32 = 0x5200;
pub(super) const MTA_END: u32 = 0x5400;
/// Receive addresses: alternating low and high words.
pub(super) const RA: u32 = 0x5400;
pub(super) const RA_END: u32 = 0x5480;
pub(super) const VFTA: u32 = 0x5600;
pub(super) const VFTA_END: u32 = 0x5800;
pub(super) const WUC: u32 = 0x5800;
pub(super) const WUFC: u32 = 0x5808;
pub(super) const MRQC: u32 = 0x5818;
pub(super) const MANC: u32 = 0x5820;
pub(super) const MANC2H: u32 = 0x5860;
pub(super) const MDEF: u32 = 0x5890;
pub(super) const GCR: u32 = 0x5b00;
pub(super) const FACTPS: u32 = 0x5b30;
pub(super) const SWSM: u32 = 0x5b50;
pub(super) const FWSM: u32 = 0x5b54;
pub(super) const SWSM2: u32 = 0x5b58;
pub(super) const SW_FW_SYNC: u32 = 0x5b5c;
pub(super) const GCR2: u32 = 0x5b64;
pub(super) const RETA: u32 = 0x5c00;
pub(super) const RSSRK: u32 = 0x5c80;
pub(super) const FFLT: u32 = 0x5f00;

/// The pages of the ring registers, which a front end may map.
pub(super) const RING_PAGES: u32 = 0x2000;
pub(super) const RING_PAGES_END: u32 = 0x4000;

/// CTRL.SLU: set link up.
pub(super) const CTRL_SLU: u32 = 1 << 6;
pub(super) const CTRL_FD: u32 = 1;
pub(super) const CTRL_GIO_DISABLE: u32 = 1 << 2;
pub(super) const CTRL_SPEED_1000: u32 = 2 << 8;
pub(super) const CTRL_RST: u32 = 1 << 26;
pub(super) const CTRL_VME: u32 = 1 << 30;
pub(super) const CTRL_PHY_RST: u32 = 1 << 31;

pub(super) const STATUS_FD: u32 = 1;
pub(super) const STATUS_LU: u32 = 1 << 1;
pub(super) const STATUS_SPEED_1000: u32 = 2 << 6;
pub(super) const STATUS_ASDV_1000: u32 = 2 << 8;
/// STATUS, 82574L: the device may access memory.
pub(super) const STATUS_GIO: u32 = 1 << 19;

/// CTRL_EXT.EIAME, 82574L: sending an MSI-X message masks the causes in IAM.
pub(super) const EXT_EIAME: u32 = 1 << 24;
/// CTRL_EXT.IAME, 82574L: reading ICR masks the causes in IAM.
pub(super) const EXT_IAME: u32 = 1 << 27;
/// CTRL_EXT.EE_RST: reload the EEPROM. The bit clears itself.
pub(super) const EXT_EE_RST: u32 = 1 << 13;

pub(super) const RCTL_EN: u32 = 1 << 1;
pub(super) const RCTL_LPE: u32 = 1 << 5;
/// RCTL.LBM, loopback: both bits for loopback in the transceiver, the lower bit for loopback in the MAC.
pub(super) const RCTL_LBM: u32 = 3 << 6;
/// RCTL.DTYP, type of the receive descriptors, and its value for packet split (82574L).
pub(super) const RCTL_DTYP: u32 = 3 << 10;
pub(super) const RCTL_SPLIT: u32 = 1 << 10;
pub(super) const RCTL_BSEX: u32 = 1 << 25;
pub(super) const RCTL_SECRC: u32 = 1 << 26;

/// RFCTL.EXSTEN: extended receive descriptors (82574L).
pub(super) const RFCTL_EXSTEN: u32 = 1 << 15;
/// RXCSUM: check IPv4 header checksums; check TCP and UDP checksums.
pub(super) const RXCSUM_IPOFLD: u32 = 1 << 8;
pub(super) const RXCSUM_TUOFLD: u32 = 1 << 9;

pub(super) const TCTL_EN: u32 = 1 << 1;
pub(super) const TCTL_PSP: u32 = 1 << 3;

/// RDTR.FPD and TIDV.FPD: end the delay at once.
pub(super) const FLUSH: u32 = 1 << 31;
/// RAH.AV: the entry is valid.
pub(super) const RAH_AV: u32 = 1 << 31;

/// Interrupt causes (ICR, ICS, IMS, IMC). Transmit descriptor written back: the descriptor had "report status" set.
pub(super) const TXDW: u32 = 1;
/// Transmit queue empty.
pub(super) const TXQE: u32 = 1 << 1;
/// Link status change.
pub(super) const LSC: u32 = 1 << 2;
/// Receive descriptors at their minimum threshold.
pub(super) const RXDMT0: u32 = 1 << 4;
/// Receive overrun: there was no descriptor for a frame.
pub(super) const RXO: u32 = 1 << 6;
/// Receive timer: frames were received.
pub(super) const RXT0: u32 = 1 << 7;
/// MDI/O access complete: an access to the PHY is done.
pub(super) const MDAC: u32 = 1 << 9;
/// Causes of the queues, 82574L with MSI-X.
pub(super) const RXQ0: u32 = 1 << 20;
pub(super) const RXQ1: u32 = 1 << 21;
pub(super) const TXQ0: u32 = 1 << 22;
pub(super) const TXQ1: u32 = 1 << 23;
/// Other causes, 82574L: one of the causes that belong to no queue.
pub(super) const OTHER: u32 = 1 << 24;
/// Interrupt asserted, 82574L: an unmasked cause is pending.
pub(super) const ASSERTED: u32 = 1 << 31;
