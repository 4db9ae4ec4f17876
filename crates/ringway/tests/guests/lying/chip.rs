//! Registers of an 82540EM, as far as drivers need them (Intel: "PCI/PCI-X Family of Gigabit Ethernet Controllers Software
//! Developer's Manual", chapter 13).

pub const CTRL: u32 = 0x0000;
pub const STATUS: u32 = 0x0008;
pub const EECD: u32 = 0x0010;
pub const EERD: u32 = 0x0014;
pub const MDIC: u32 = 0x0020;
pub const ICR: u32 = 0x00c0;
const ICS: u32 = 0x00c8;
const IMS: u32 = 0x00d0;
const IMC: u32 = 0x00d8;
/// Causes that a message clears, of a NIC with a status block.
const EIAC: u32 = 0x00dc;
pub const RCTL: u32 = 0x0100;
pub const TCTL: u32 = 0x0400;
pub const RDBAL: u32 = 0x2800;
pub const RDH: u32 = 0x2810;
pub const RDT: u32 = 0x2818;
/// Address of the status block. The driver writes the low word last.
pub const CSBAL: u32 = 0x2830;
pub const CSBAH: u32 = 0x2834;
pub const TDBAL: u32 = 0x3800;
pub const TDH: u32 = 0x3810;
pub const TDT: u32 = 0x3818;
/// Statistics registers, up to [`STATISTICS_END`].
pub const STATISTICS: u32 = 0x4000;
pub const STATISTICS_END: u32 = 0x4128;
/// Receive address 0: the station's own address.
pub const RAL: u32 = 0x5400;
pub const RAH: u32 = 0x5404;
/// Registers that a software reset keeps: multicast table and receive addresses, VLAN filter; and the status block, as drivers may
/// tell its address before they reset the NIC.
const KEPT: [std::ops::Range<u32>; 3] = [0x5200..0x5480, 0x5600..0x5800, CSBAL..CSBAH + 4];
const END: u32 = 0x6000;

pub const CTRL_RST: u32 = 1 << 26;
pub const STATUS_LU: u32 = 1 << 1;
/// Full duplex, 1000 Mbit/s.
const STATUS_UP: u32 = 0x281 | STATUS_LU;
/// EERD and MDIC: an access is done.
pub const EERD_DONE: u32 = 1 << 4;
pub const MDIC_READY: u32 = 1 << 28;
const RAH_VALID: u32 = 1 << 31;

/// Interrupt causes: descriptor written back, link changed, frame received.
pub const TXDW: u32 = 1;
pub const LSC: u32 = 1 << 2;
pub const RXT0: u32 = 1 << 7;

/// EECD: clock, select, data in, data out, request and grant, present.
const SK: u32 = 1;
const CS: u32 = 1 << 1;
const DI: u32 = 1 << 2;
const DO: u32 = 1 << 3;
const REQUEST: u32 = 1 << 6;
const GRANT: u32 = 1 << 7;
const PRESENT: u32 = 1 << 8;
/// The sum of all words of the EEPROM.
const SUM: u16 = 0xbaba;

/// The registers, with what is behind them: interrupt causes, EEPROM, PHY.
pub struct Chip {
    words: Vec<u32>,
    eeprom: [u16; 64],
    wire: Wire,
    causes: u32,
    mask: u32,
    /// Causes that a message has told of, and not cleared.
    told: u32,
    io_address: u32,
}

/// A serial read of the EEPROM: the bits of start, operation and address, and how many bits came and went.
#[derive(Default)]
struct Wire {
    bits: u16,
    count: u16,
    out: bool,
}

impl Chip {
    pub fn new(mac: [u8; 6]) -> Chip {
        let mut eeprom = [0; 64];
        for (word, bytes) in eeprom.iter_mut().zip(mac.chunks_exact(2)) {
            *word = u16::from_le_bytes([bytes[0], bytes[1]]);
        }
        eeprom[0x0a] = 0x4403;
        eeprom[63] = eeprom.iter().fold(SUM, |left, word| left.wrapping_sub(*word));
        let words = vec![0; END as usize / 4];
        let mut chip = Chip { words, eeprom, wire: Wire::default(), causes: 0, mask: 0, told: 0, io_address: 0 };
        chip.reset();
        chip
    }

    /// Returns a register without an effect on it.
    pub fn get(&self, offset: u32) -> u32 {
        self.words.get(offset as usize / 4).copied().unwrap_or(0)
    }

    pub fn set(&mut self, offset: u32, value: u32) {
        if let Some(word) = self.words.get_mut(offset as usize / 4) {
            *word = value;
        }
    }

    /// Returns the 64-bit address in a pair of registers.
    pub fn address(&self, low: u32) -> u64 {
        u64::from(self.get(low)) | u64::from(self.get(low + 4)) << 32
    }

    pub fn raise(&mut self, causes: u32) {
        self.causes |= causes;
    }

    /// Returns true if the interrupt pin is asserted.
    pub fn pin(&self) -> bool {
        self.causes & self.mask != 0
    }

    /// Returns true if a message has to be sent, as which the causes are told.
    pub fn take_message(&mut self) -> bool {
        let is_due = self.causes & self.mask & !self.told != 0;
        if is_due {
            self.causes &= !(self.get(EIAC) & self.mask);
            self.told = self.causes;
        }
        is_due
    }

    pub fn read(&mut self, offset: u32) -> u32 {
        match offset {
            STATUS => STATUS_UP,
            EECD => self.get(EECD) | if self.wire.out { DO } else { 0 } | PRESENT,
            ICR => {
                self.told = 0;
                std::mem::take(&mut self.causes)
            }
            IMS => self.mask,
            ICS | IMC => 0,
            STATISTICS..STATISTICS_END => {
                let value = self.get(offset);
                self.set(offset, 0);
                value
            }
            _ => self.get(offset),
        }
    }

    pub fn write(&mut self, offset: u32, value: u32) {
        match offset {
            CTRL if value & CTRL_RST != 0 => self.reset(),
            EECD => {
                self.clock(value);
                self.set(EECD, value & (SK | CS | DI | REQUEST) | if value & REQUEST != 0 { GRANT } else { 0 });
            }
            EERD => {
                let word = self.eeprom.get((value >> 8 & 0xff) as usize).copied().unwrap_or(0);
                self.set(EERD, u32::from(word) << 16 | value & 0xff00 | EERD_DONE);
            }
            MDIC => {
                let read = value & 2 << 26 != 0;
                let data = if read { phy(value >> 16 & 0x1f) } else { value & 0xffff };
                self.set(MDIC, value & !0xffff | data | MDIC_READY);
            }
            ICR => self.causes &= !value,
            ICS => self.causes |= value,
            IMS => self.mask |= value,
            IMC => {
                self.mask &= !value;
                self.told &= self.mask;
            }
            STATUS | STATISTICS..STATISTICS_END => {}
            _ => self.set(offset, value),
        }
    }

    /// Accesses the window of I/O ports: an offset, and the register that is there.
    pub fn port(&mut self, port: u32) -> Option<u32> {
        (port == 4).then_some(self.io_address)
    }

    pub fn set_port(&mut self, offset: u32) {
        self.io_address = offset;
    }

    fn reset(&mut self) {
        let before = std::mem::replace(&mut self.words, vec![0; END as usize / 4]);
        for kept in KEPT {
            let kept = kept.start as usize / 4..kept.end as usize / 4;
            self.words[kept.clone()].copy_from_slice(&before[kept]);
        }
        let [low, middle, high] = [0, 1, 2].map(|word| u32::from(self.eeprom[word]));
        self.set(RAL, low | middle << 16);
        self.set(RAH, high | RAH_VALID);
        (self.causes, self.mask, self.told, self.wire) = (0, 0, 0, Wire::default());
    }

    /// The EEPROM behind EECD: at each rising edge of the clock, a bit comes, or a bit of a word goes.
    fn clock(&mut self, value: u32) {
        let rises = self.get(EECD) & SK == 0 && value & SK != 0;
        let wire = &mut self.wire;
        if value & CS == 0 {
            *wire = Wire::default();
        } else if rises && wire.count < 9 {
            // The first 1 starts an operation.
            if wire.count > 0 || value & DI != 0 {
                (wire.bits, wire.count) = (wire.bits << 1 | u16::from(value & DI != 0), wire.count + 1);
            }
        } else if rises {
            let (word, bit) = ((wire.count - 9) / 16, (wire.count - 9) % 16);
            let word = self.eeprom[usize::from((wire.bits + word) % 64)];
            (wire.out, wire.count) = (word >> (15 - bit) & 1 != 0, wire.count + 1);
        }
    }
}

/// Returns a register of the PHY (Marvell's M88E1011): gigabit, link up.
fn phy(register: u32) -> u32 {
    [0x1140, 0x796d, 0x0141, 0x0c20, 0x0de1, 0x41e1, 3, 0x2001, 0, 0x0f00, 0x3c00, 0, 0, 0, 0, 0x3000, 0, 0xac00]
        .get(register as usize)
        .copied()
        .unwrap_or(0)
}
