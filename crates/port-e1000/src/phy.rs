//! The PHY behind MDIC (SDM 8.9 and 13.4.6, IEEE 802.3 clause 22): a cable that is always gigabit while it is plugged in.

use super::kept::{Reader, Writer};
use super::settings::Model;

/// MDIC: operation and result.
const WRITE: u32 = 1 << 26;
const READ: u32 = 2 << 26;
const OPERATION: u32 = 3 << 26;
const READY: u32 = 1 << 28;
/// MDIC: interrupt when done.
pub(super) const INTERRUPT: u32 = 1 << 29;
const ERROR: u32 = 1 << 30;
/// The address at which the PHY answers.
const ADDRESS: u32 = 1;

const CONTROL: u16 = 0;
const STATUS: u16 = 1;
const PARTNER: u16 = 5;
const EXPANSION: u16 = 6;
const GIGABIT_STATUS: u16 = 10;
const EXTENDED: u16 = 15;
/// Marvell's status register: the present state of the link.
const SPECIFIC_STATUS: u16 = 17;
const INTERRUPT_STATUS: u16 = 19;
/// PHY of the 82574L: the page for registers 16 and above.
const PAGE: u16 = 22;

const RESET: u16 = 1 << 15;
const LOOPBACK: u16 = 1 << 14;
const NEGOTIATE: u16 = 1 << 12;
const POWER_DOWN: u16 = 1 << 11;
const RESTART: u16 = 1 << 9;
const LINK: u16 = 1 << 2;
const NEGOTIATED: u16 = 1 << 5;

/// Pages that store what is written to them: those that drivers use. Other pages read as zeroes.
const PAGES: [u16; 6] = [0, 2, 3, 769, 776, 800];
const REGISTERS: usize = 32;

/// The PHY.
#[derive(Debug)]
pub(super) struct Phy {
    id: [u16; 2],
    paged: bool,
    page: u16,
    registers: [[u16; REGISTERS]; PAGES.len()],
    cable: bool,
    /// True if the link was down since the status was last read.
    was_down: bool,
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accessed {
    /// The value of MDIC.
    pub(super) mdic: u32,
    /// The state of the link changed, at least for a moment.
    pub(super) link_changed: bool,
}

impl Phy {
    pub(super) fn new(model: Model, cable: bool) -> Phy {
        // IDs of Marvell's M88E1011 and BM (revision 1).
        let id = match model {
            Model::E1000 => [0x0141, 0x0c20],
            Model::E1000e => [0x0141, 0x0cb1],
        };
        let paged = model == Model::E1000e;
        let mut phy = Phy { id, paged, page: 0, registers: [[0; REGISTERS]; PAGES.len()], cable, was_down: !cable };
        phy.reset();
        phy
    }

    /// Restores the state after power-on.
    pub(super) fn reset(&mut self) {
        self.registers = [[0; REGISTERS]; PAGES.len()];
        self.page = 0;
        let first = &mut self.registers[0];
        // Control: autonegotiation, full duplex, 1000 Mbit/s. Register 4: all speeds and pause. Register 7: next pages.
        // Register 9: 1000 Mbit/s in both duplex modes. Register 16: automatic crossover.
        for (register, value) in
            [(CONTROL, 0x1140), (4, 0x0de1), (7, 0x2001), (9, 0x0f00), (16, 0x0068), (20, 0x0060), (24, 0x4100)]
        {
            first[usize::from(register)] = value;
        }
    }

    pub(super) fn save(&self, to: &mut Writer) {
        self.registers.iter().for_each(|page| to.u16s(page));
        to.u16s(&[self.page]);
        to.bool(self.cable);
        to.bool(self.was_down);
    }

    /// Reads what [`Phy::save`] has written.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Option<()> {
        self.registers.iter_mut().try_for_each(|page| from.u16s(page))?;
        let mut page = [0];
        from.u16s(&mut page)?;
        [self.page] = page;
        (self.cable, self.was_down) = (from.bool()?, from.bool()?);
        Some(())
    }

    /// Plugs the cable in or out. Returns true if the state of the link changed.
    pub(super) fn set_cable(&mut self, on: bool) -> bool {
        let before = self.has_link();
        self.cable = on;
        self.was_down |= !on;
        self.has_link() != before
    }

    /// Returns true if the cable is plugged in.
    pub(super) fn has_cable(&self) -> bool {
        self.cable
    }

    /// Returns true if there is a link. In loopback there is one without a cable.
    pub(super) fn has_link(&self) -> bool {
        let control = self.control();
        control & POWER_DOWN == 0 && (self.cable || control & LOOPBACK != 0)
    }

    /// Returns true if sent frames are looped back.
    pub(super) fn loops(&self) -> bool {
        self.control() & (LOOPBACK | POWER_DOWN) == LOOPBACK
    }

    fn control(&self) -> u16 {
        self.registers[0][usize::from(CONTROL)]
    }

    /// Executes the operation that `value`, written to MDIC, describes.
    pub(super) fn access(&mut self, value: u32) -> Accessed {
        let (before, register) = (self.has_link(), (value >> 16 & 0x1f) as u16);
        let mut restarted = false;
        let mdic = match value & OPERATION {
            _ if value >> 21 & 0x1f != ADDRESS => value | READY | ERROR,
            READ => value & !0xffff | u32::from(self.read(register)) | READY,
            WRITE => {
                restarted = self.write(register, value as u16);
                value | READY
            }
            _ => value | READY | ERROR,
        };
        Accessed { mdic, link_changed: restarted || self.has_link() != before }
    }

    /// Returns where a register is stored.
    fn place(&mut self, register: u16) -> Option<&mut u16> {
        // Registers 0 to 15 are the same on every page.
        let everywhere = register < 16 || register == PAGE || !self.paged;
        let page = if everywhere { 0 } else { self.page };
        let page = PAGES.iter().position(|&known| known == page)?;
        self.registers[page].get_mut(usize::from(register))
    }

    fn read(&mut self, register: u16) -> u16 {
        let (link, control) = (self.has_link(), self.control());
        match register {
            STATUS => {
                // All speeds up to 100 Mbit/s, extended status, autonegotiation. After a loss of the link, the link bit
                // reads as 0 once.
                let seen = link && !std::mem::take(&mut self.was_down);
                self.was_down = !link;
                let up = if seen { LINK } else { 0 };
                let negotiated = if link && control & NEGOTIATE != 0 { NEGOTIATED } else { 0 };
                0x7949 | up | negotiated
            }
            2 | 3 => self.id[usize::from(register - 2)],
            // The link partner supports all speeds, but no pause frames.
            PARTNER if link => 0x41e1,
            EXPANSION if link => 0x0003,
            // Both receivers are in order, and the link partner supports 1000 Mbit/s.
            GIGABIT_STATUS if link => 0x3c00,
            PARTNER | EXPANSION | GIGABIT_STATUS => 0,
            EXTENDED => 0x3000,
            SPECIFIC_STATUS if self.page == 0 || !self.paged => match link {
                // 1000 Mbit/s, full duplex, resolved, link up.
                true => 0xac00,
                false => 0x8000,
            },
            INTERRUPT_STATUS if self.page == 0 || !self.paged => self.place(register).map_or(0, std::mem::take),
            _ => self.place(register).copied().unwrap_or(0),
        }
    }

    /// Writes a register. Returns true if the link went down for a moment.
    fn write(&mut self, register: u16, value: u16) -> bool {
        if register == CONTROL {
            if value & RESET != 0 {
                // Marvell's PHYs keep the value that is written to the control register together with the reset bit.
                self.set_control(value & !(RESET | RESTART));
                self.was_down = true;
                return true;
            }
            let restart = value & (RESTART | NEGOTIATE) == RESTART | NEGOTIATE;
            self.set_control(value & !RESTART);
            self.was_down |= restart;
            return restart;
        }
        match register {
            STATUS | 2 | 3 | PARTNER | EXPANSION | GIGABIT_STATUS | EXTENDED => {}
            SPECIFIC_STATUS | INTERRUPT_STATUS if self.page == 0 || !self.paged => {}
            _ => {
                if let Some(place) = self.place(register) {
                    *place = value;
                }
                if register == PAGE && self.paged {
                    self.page = value;
                }
            }
        }
        false
    }

    fn set_control(&mut self, value: u16) {
        self.registers[0][usize::from(CONTROL)] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(phy: &mut Phy, register: u16) -> u16 {
        let mdic = phy.access(READ | ADDRESS << 21 | u32::from(register) << 16).mdic;
        assert_eq!(mdic & (READY | ERROR), READY);
        mdic as u16
    }

    fn write(phy: &mut Phy, register: u16, value: u16) -> bool {
        let accessed = phy.access(WRITE | ADDRESS << 21 | u32::from(register) << 16 | u32::from(value));
        assert_eq!(accessed.mdic & (READY | ERROR), READY);
        accessed.link_changed
    }

    #[test]
    fn each_model_has_the_phy_that_its_driver_looks_for() {
        for (model, id) in [(Model::E1000, 0x0141_0c20), (Model::E1000e, 0x0141_0cb1)] {
            let mut phy = Phy::new(model, true);
            let found = u32::from(read(&mut phy, 2)) << 16 | u32::from(read(&mut phy, 3));
            assert_eq!(found, id);
        }
    }

    #[test]
    fn a_lost_link_is_seen_once_even_if_it_is_back() {
        let mut phy = Phy::new(Model::E1000, true);
        assert_ne!(read(&mut phy, STATUS) & LINK, 0);
        assert!(phy.set_cable(false) && phy.set_cable(true));
        assert_eq!(read(&mut phy, STATUS) & LINK, 0);
        assert_ne!(read(&mut phy, STATUS) & LINK, 0);
        phy.set_cable(false);
        assert_eq!([read(&mut phy, STATUS) & LINK, read(&mut phy, STATUS) & LINK], [0, 0]);
        assert_eq!((read(&mut phy, PARTNER), read(&mut phy, SPECIFIC_STATUS) & 0x400), (0, 0));
    }

    #[test]
    fn negotiating_anew_is_told_as_a_change_of_the_link() {
        let mut phy = Phy::new(Model::E1000, true);
        assert!(write(&mut phy, CONTROL, NEGOTIATE | RESTART | 0x140));
        assert!(phy.has_link());
        assert_eq!(read(&mut phy, CONTROL), NEGOTIATE | 0x140, "the bit clears itself");
        assert!(write(&mut phy, CONTROL, POWER_DOWN) && !phy.has_link());
    }

    #[test]
    fn loopback_has_a_link_without_cable() {
        let mut phy = Phy::new(Model::E1000, false);
        write(&mut phy, CONTROL, 0x4140);
        assert!(phy.has_link() && phy.loops());
        assert_eq!(read(&mut phy, CONTROL), 0x4140);
    }

    #[test]
    fn nobody_answers_at_another_address() {
        let mut phy = Phy::new(Model::E1000, true);
        assert_eq!(phy.access(READ | 2 << 21).mdic & (READY | ERROR), READY | ERROR);
    }

    #[test]
    fn pages_are_apart_and_share_the_first_registers() {
        let mut phy = Phy::new(Model::E1000e, true);
        write(&mut phy, PAGE, 2);
        write(&mut phy, 21, 6);
        assert_eq!((read(&mut phy, 21), read(&mut phy, 2)), (6, 0x0141));
        write(&mut phy, PAGE, 0);
        assert_eq!(read(&mut phy, 21), 0);
        // Drivers access these without a switch back to page 0.
        write(&mut phy, PAGE, 776);
        write(&mut phy, CONTROL, 0x4140);
        assert!(phy.loops());
        write(&mut phy, PAGE, 4711);
        write(&mut phy, 21, 6);
        assert_eq!(read(&mut phy, 21), 0, "a page that nobody knows keeps nothing");
    }
}
