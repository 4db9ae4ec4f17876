//! The EEPROM: 64 words that identify the NIC (SDM 5.6, DS 6.1). They are read through EERD, written through EEWR, and both
//! bit by bit through EECD, behind which there is a Microwire device (SDM 5.3; 93C46: 3 bits of start and operation, 6 of
//! address).

use super::kept::{Reader, Writer};

const WORDS: usize = 64;
const CHECKSUM: usize = 0x3f;
/// The sum of all words.
const SUM: u16 = 0xbaba;

/// EECD: clock, chip select, data in, data out, access request and grant.
const SK: u32 = 1;
const CS: u32 = 1 << 1;
const DI: u32 = 1 << 2;
const DO: u32 = 1 << 3;
const REQUEST: u32 = 1 << 6;
const GRANT: u32 = 1 << 7;
/// EECD: an EEPROM is present.
const PRESENT: u32 = 1 << 8;
/// EECD of the 82574L: automatic read done (DS 10.2.2.3). On an 82540EM this bit means a size of 256 words.
const AUTO_READ: u32 = 1 << 9;
/// EERD and EEWR: start.
const START: u32 = 1;

/// Layout of EERD and EEWR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// 82540EM: "done" is bit 4, and the address begins at bit 8.
    Old,
    /// 82574L: "done" is bit 1, and the address begins at bit 2.
    New,
}

/// Identification of a NIC, for its EEPROM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) mac: [u8; 6],
    pub(super) device: u16,
    pub(super) subsystem_vendor: u16,
    pub(super) subsystem: u16,
}

/// The EEPROM and the state of its pins.
#[derive(Debug)]
pub(super) struct Eeprom {
    words: [u16; WORDS],
    /// The initial contents.
    made: [u16; WORDS],
    layout: Layout,
    /// The bits of EECD that are stored.
    pins: u32,
    wire: Wire,
    /// True if writes are enabled.
    unlocked: bool,
}

/// State of a serial (Microwire) operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    /// Waits for the start bit.
    Idle,
    /// Receives the operation and address; `count` bits have arrived.
    Command { bits: u16, count: u8 },
    /// Sends a word; `left` bits of it remain.
    Out { address: usize, left: u8 },
    /// Receives a word, for one address or (`None`) for all.
    In { address: Option<usize>, bits: u16, count: u8 },
    /// Done. Nothing happens until the EEPROM is selected again.
    Done,
}

impl Eeprom {
    pub(super) fn new(identity: &Identity, layout: Layout) -> Eeprom {
        let mut words = [0xffff; WORDS];
        for (word, bytes) in words.iter_mut().zip(identity.mac.chunks_exact(2)) {
            *word = u16::from_le_bytes([bytes[0], bytes[1]]);
        }
        // Compatibility bits and image version: none.
        words[3..8].fill(0);
        // Initialization control 1: signature (01), full duplex, load the identifiers.
        words[0x0a] = 0x4403;
        words[0x0b] = identity.subsystem;
        words[0x0c] = identity.subsystem_vendor;
        words[0x0d] = identity.device;
        words[0x0e] = 0x8086;
        // Initialization control 2. Then: no alternate address, no wake-up, no management.
        words[0x0f] = 0x3000;
        words[0x23..0x25].fill(0);
        let mut eeprom = Eeprom { words, made: words, layout, pins: 0, wire: Wire::Idle, unlocked: false };
        eeprom.words[CHECKSUM] = 0;
        eeprom.words[CHECKSUM] = SUM.wrapping_sub(eeprom.sum());
        eeprom.made = eeprom.words;
        eeprom
    }

    fn sum(&self) -> u16 {
        self.words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
    }

    /// Returns the station address.
    pub(super) fn mac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        for (bytes, word) in mac.chunks_exact_mut(2).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        mac
    }

    /// Restores the initial contents, before another guest connects.
    pub(super) fn restore(&mut self) {
        self.words = self.made;
    }

    /// Resets the pins. Keeps the contents.
    pub(super) fn reset(&mut self) {
        (self.pins, self.wire, self.unlocked) = (0, Wire::Idle, false);
    }

    pub(super) fn save(&self, to: &mut Writer) {
        to.u16s(&self.words);
        to.u32(self.pins);
        to.bool(self.unlocked);
        let (kind, a, b) = match self.wire {
            Wire::Idle => (0, 0, 0),
            Wire::Command { bits, count } => (1, bits, count),
            Wire::Out { address, left } => (2, address as u16, left),
            Wire::In { address: None, bits, count } => (3, bits, count),
            Wire::In { address: Some(address), bits, count } => (4 + address as u8, bits, count),
            Wire::Done => (255, 0, 0),
        };
        to.u8(kind);
        to.u16s(&[a]);
        to.u8(b);
    }

    /// Reads what [`Eeprom::save`] has written.
    pub(super) fn restore_from(&mut self, from: &mut Reader<'_>) -> Option<()> {
        from.u16s(&mut self.words)?;
        self.pins = from.u32()? & (SK | CS | DI | DO | REQUEST | 3 << 4);
        self.unlocked = from.bool()?;
        let mut a = [0];
        let kind = from.u8()?;
        from.u16s(&mut a)?;
        let ([a], b) = (a, from.u8()?);
        let is_bit = |most: u8| b < most;
        self.wire = match kind {
            0 => Wire::Idle,
            1 if is_bit(8) => Wire::Command { bits: a, count: b },
            2 if (1..=16).contains(&b) && usize::from(a) < WORDS => Wire::Out { address: a.into(), left: b },
            3 if is_bit(16) => Wire::In { address: None, bits: a, count: b },
            4..68 if is_bit(16) => Wire::In { address: Some(usize::from(kind - 4)), bits: a, count: b },
            255 => Wire::Done,
            _ => return None,
        };
        Some(())
    }

    /// Returns the value of EERD after `value` was written to it.
    pub(super) fn read(&self, value: u32) -> u32 {
        let (done, address) = self.fields(value);
        if value & START == 0 {
            return value & !done;
        }
        u32::from(self.word(address)) << 16 | value & 0xfffe & !START | done
    }

    /// Returns the value of EEWR after `value` was written to it.
    pub(super) fn write(&mut self, value: u32) -> u32 {
        let (done, address) = self.fields(value);
        if value & START == 0 {
            return value & !done;
        }
        self.set(address, (value >> 16) as u16);
        value & !START | done
    }

    fn fields(&self, value: u32) -> (u32, usize) {
        match self.layout {
            Layout::Old => (1 << 4, (value >> 8 & 0xff) as usize),
            Layout::New => (1 << 1, (value >> 2 & 0x3fff) as usize),
        }
    }

    fn word(&self, address: usize) -> u16 {
        self.words.get(address).copied().unwrap_or(0xffff)
    }

    fn set(&mut self, address: usize, word: u16) {
        if let Some(place) = self.words.get_mut(address) {
            *place = word;
        }
    }

    /// Returns the value of EECD.
    pub(super) fn control(&self) -> u32 {
        let grant = if self.pins & REQUEST != 0 { GRANT } else { 0 };
        let read = if self.layout == Layout::New { AUTO_READ } else { 0 };
        self.pins | grant | PRESENT | read
    }

    /// Writes EECD, which changes the pins.
    pub(super) fn set_control(&mut self, value: u32) {
        let before = self.pins;
        // Bits 5:4 (flash write enable) are stored for drivers that read them back.
        self.pins = value & (SK | CS | DI | REQUEST | 3 << 4) | before & DO;
        if self.pins & CS == 0 {
            self.wire = Wire::Idle;
            return;
        }
        if before & CS == 0 {
            // On selection, the data pin signals that no write is in progress.
            self.pins |= DO;
        }
        if before & SK == 0 && self.pins & SK != 0 {
            self.clock(self.pins & DI != 0);
        }
    }

    /// A rising clock edge, with `data` on the data pin.
    fn clock(&mut self, data: bool) {
        self.wire = match self.wire {
            Wire::Idle if data => Wire::Command { bits: 0, count: 0 },
            Wire::Idle => Wire::Idle,
            Wire::Command { bits, count } => {
                let (bits, count) = (bits << 1 | u16::from(data), count + 1);
                if count == 8 { self.begin(bits) } else { Wire::Command { bits, count } }
            }
            Wire::Out { address, left } => {
                self.show(self.word(address) >> (left - 1) & 1 != 0);
                match left {
                    // Reading continues with the next word.
                    1 => Wire::Out { address: (address + 1) % WORDS, left: 16 },
                    _ => Wire::Out { address, left: left - 1 },
                }
            }
            Wire::In { address, bits, count } => {
                let (bits, count) = (bits << 1 | u16::from(data), count + 1);
                match count {
                    16 => {
                        self.store(address, bits);
                        Wire::Done
                    }
                    _ => Wire::In { address, bits, count },
                }
            }
            Wire::Done => Wire::Done,
        }
    }

    /// Starts the received operation: 2 bits of operation and 6 of address.
    fn begin(&mut self, bits: u16) -> Wire {
        let address = usize::from(bits & 0x3f);
        match bits >> 6 {
            0b10 => {
                // A zero bit precedes the word.
                self.show(false);
                Wire::Out { address, left: 16 }
            }
            0b01 => Wire::In { address: Some(address), bits: 0, count: 0 },
            0b11 => {
                self.store(Some(address), 0xffff);
                Wire::Done
            }
            _ => match bits >> 4 {
                0b0011 => {
                    self.unlocked = true;
                    Wire::Done
                }
                0b0000 => {
                    self.unlocked = false;
                    Wire::Done
                }
                0b0001 => Wire::In { address: None, bits: 0, count: 0 },
                _ => {
                    self.store(None, 0xffff);
                    Wire::Done
                }
            },
        }
    }

    fn store(&mut self, address: Option<usize>, word: u16) {
        if self.unlocked {
            match address {
                Some(address) => self.set(address, word),
                None => self.words.fill(word),
            }
        }
    }

    fn show(&mut self, bit: bool) {
        self.pins = if bit { self.pins | DO } else { self.pins & !DO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eeprom(layout: Layout) -> Eeprom {
        let mac = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
        Eeprom::new(&Identity { mac, device: 0x100e, subsystem_vendor: 0x8086, subsystem: 0x1e }, layout)
    }

    /// One clock cycle with `bit` on the input pin. Returns the state of the output pin.
    fn bit(eeprom: &mut Eeprom, bit: bool) -> bool {
        let data = if bit { DI } else { 0 };
        eeprom.set_control(CS | data);
        eeprom.set_control(CS | data | SK);
        let out = eeprom.control() & DO != 0;
        eeprom.set_control(CS | data);
        out
    }

    fn send(eeprom: &mut Eeprom, bits: u32, count: u32) {
        for place in (0..count).rev() {
            bit(eeprom, bits >> place & 1 != 0);
        }
    }

    fn receive(eeprom: &mut Eeprom) -> u16 {
        (0..16).fold(0, |word, _| word << 1 | u16::from(bit(eeprom, false)))
    }

    fn select(eeprom: &mut Eeprom) {
        eeprom.set_control(0);
        eeprom.set_control(CS);
    }

    #[test]
    fn the_checksum_is_the_one_that_drivers_look_for() {
        assert_eq!(eeprom(Layout::Old).sum(), SUM);
    }

    #[test]
    fn every_word_is_the_same_by_register_and_by_wire() {
        for layout in [Layout::Old, Layout::New] {
            let mut eeprom = eeprom(layout);
            let (shift, done) = if layout == Layout::Old { (8, 1 << 4) } else { (2, 1 << 1) };
            for address in 0..WORDS as u32 {
                let read = eeprom.read(address << shift | START);
                assert_eq!((read & done, read & START), (done, 0));
                select(&mut eeprom);
                send(&mut eeprom, 0b110, 3);
                send(&mut eeprom, address, 6);
                assert_eq!(u32::from(receive(&mut eeprom)), read >> 16, "word {address}");
            }
            assert_eq!(eeprom.mac(), [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        }
    }

    #[test]
    fn words_are_written_once_that_was_allowed() {
        let mut eeprom = eeprom(Layout::Old);
        let write = |eeprom: &mut Eeprom| {
            select(eeprom);
            send(eeprom, 0b101 << 6 | 0x10, 9);
            send(eeprom, 0x1234, 16);
            select(eeprom);
            eeprom.control() & DO != 0
        };
        assert!(write(&mut eeprom), "is ready at once");
        assert_eq!(eeprom.word(0x10), 0xffff, "written without leave");
        select(&mut eeprom);
        send(&mut eeprom, 0b1_0011_0000, 9);
        write(&mut eeprom);
        assert_eq!(eeprom.word(0x10), 0x1234);
        select(&mut eeprom);
        send(&mut eeprom, 0b111 << 6 | 0x10, 9);
        assert_eq!(eeprom.word(0x10), 0xffff, "erased");
    }

    #[test]
    fn access_is_granted_when_it_is_asked_for() {
        let mut eeprom = eeprom(Layout::Old);
        assert_eq!(eeprom.control() & GRANT, 0);
        eeprom.set_control(REQUEST);
        assert_eq!(eeprom.control() & (REQUEST | GRANT), REQUEST | GRANT);
    }

    #[test]
    fn an_address_that_is_not_there_reads_as_erased() {
        let mut eeprom = eeprom(Layout::New);
        assert_eq!(eeprom.read(0x3fff << 2 | START) >> 16, 0xffff);
        eeprom.write(0x3fff << 2 | START);
        assert_eq!(eeprom.sum(), SUM);
    }
}
