//! Ring registers, and the values that registers show of the rings.

use std::sync::Arc;

use crate::chip::Chip;
use crate::data_path::{InputState, OutputState, Ring, ring_location};
use crate::device::Device;
use crate::kept::{Noted, RECEIVE, State, TRANSMIT, TRANSMIT_SECOND};
use crate::offsets::*;
use crate::rings::{Filters, Format, PacketBuffer, Receive, ReceiveSettings, Transmit, TransmitSettings};
use crate::settings::Model;

/// Longest frame in bytes without frame check sequence. `LONGEST`: 1,518 bytes, a VLAN tag included. `LONGEST_LONG`: 16
/// KiB less the frame check sequence, for reception with long packets enabled (RCTL.LPE) and for transmission (SDM
/// 13.4.22 and 3.3.3).
const LONGEST: usize = 1518;
const LONGEST_LONG: usize = 16_384 - 4;

/// Whether a ring has to be restarted from its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    No,
    Yes,
}

impl Restart {
    /// Returns `Yes` if the enable bit of a control register changes.
    pub(super) fn after(before: u32, value: u32, enable: u32) -> Restart {
        if (before ^ value) & enable != 0 { Restart::Yes } else { Restart::No }
    }
}

impl Chip {
    pub(crate) fn new_input(&self, state: &Arc<State>) -> InputState {
        InputState {
            memory: Default::default(),
            page: self.page.clone(),
            state: Arc::clone(state),
            ring: Ring::Off,
            other: Ring::Off,
            queue: 0,
            settings: self.transmit_settings(),
            bounce: Default::default(),
            link: false,
            looped: false,
            sent: Default::default(),
            segmented: [0; 2],
            csb: None,
            asks: false,
        }
    }

    pub(crate) fn new_output(&self, state: &Arc<State>, buffer: PacketBuffer) -> OutputState {
        OutputState {
            memory: Default::default(),
            page: self.page.clone(),
            state: Arc::clone(state),
            ring: Ring::Off,
            settings: self.receive_settings(),
            format: self.receive_format(0),
            link: false,
            looped: false,
            csb: None,
            buffer,
            lost: 0,
            received: Default::default(),
        }
    }

    fn transmit_settings(&self) -> TransmitSettings {
        let insert = self.registers.get(CTRL) & CTRL_VME != 0;
        TransmitSettings {
            vlan: insert.then(|| self.registers.get(VET) as u16),
            pad: self.registers.get(TCTL) & TCTL_PSP != 0,
            longest: LONGEST_LONG,
        }
    }

    fn receive_settings(&self) -> ReceiveSettings {
        let get = |offset| self.registers.get(offset);
        let (rctl, sums) = (get(RCTL), get(RXCSUM));
        let mut filters = Filters::default();
        filters.set_control(rctl);
        filters.set_tag(get(VET) as u16);
        for (index, offset) in (RA..RA_END).step_by(8).enumerate() {
            filters.set_address(index, get(offset), get(offset.saturating_add(4)));
        }
        for (words, first) in [(&mut filters.multicast, MTA), (&mut filters.vlans, VFTA)] {
            words.iter_mut().zip((first..).step_by(4)).for_each(|(word, offset)| *word = get(offset));
        }
        ReceiveSettings {
            filters,
            strip_tag: get(CTRL) & CTRL_VME != 0,
            strip_fcs: rctl & RCTL_SECRC != 0,
            ip_sums: sums & RXCSUM_IPOFLD != 0,
            transport_sums: sums & RXCSUM_TUOFLD != 0,
            longest: if rctl & RCTL_LPE != 0 { LONGEST_LONG } else { LONGEST },
            low: 0,
        }
    }

    /// Returns the number of free descriptors at which RXDMT0 is due: a half, a quarter or an eighth of `count`
    /// (RCTL.RDMTS).
    fn low_mark(&self, count: u32) -> u32 {
        count >> [1, 2, 3, 3][(self.registers.get(RCTL) >> 8 & 3) as usize]
    }

    /// Returns the layout of the receive descriptors and the sizes of their buffers (RCTL.BSIZE and BSEX; on the 82574L
    /// also FLXBUF, DTYP and PSRCTL).
    fn receive_format(&self, psrctl: u32) -> Format {
        let rctl = self.registers.get(RCTL);
        let size = 2048u32 >> (rctl >> 16 & 3);
        let buffer = if rctl & RCTL_BSEX != 0 && size < 2048 { size << 4 } else { size };
        // FLXBUF replaces BSIZE. It counts KiB.
        let buffer = match (self.model, rctl >> 27 & 0xf) {
            (Model::E1000e, kib @ 1..) => kib << 10,
            _ => buffer,
        };
        match self.model {
            Model::E1000 => Format::Legacy { buffer },
            Model::E1000e if rctl & RCTL_DTYP == RCTL_SPLIT => Format::Split {
                buffers: [
                    (psrctl & 0x7f) << 7,
                    (psrctl >> 8 & 0x3f) << 10,
                    (psrctl >> 16 & 0x3f) << 10,
                    (psrctl >> 24 & 0x3f) << 10,
                ],
            },
            Model::E1000e if self.registers.get(RFCTL) & RFCTL_EXSTEN != 0 => Format::Extended { buffer },
            Model::E1000e => Format::Legacy { buffer },
        }
    }
}

impl Device {
    /// Writes a register of the ring pages by message.
    pub(super) fn write_ring_register(&self, chip: &Chip, offset: u32, value: u32) {
        if self.csb && matches!(offset, CSBAL | CSBAH) {
            chip.page.set(offset, value);
            return if offset == CSBAL {
                self.find_block()
            };
        }
        chip.page.set(offset, value & chip.registers.mask(offset));
        match offset {
            TDT | TDT1 => {
                self.access_counters.tail();
                self.kick();
            }
            RDT => {
                self.access_counters.tail();
                self.has_descriptors();
            }
            TDBAL | TDBAH | TDLEN | TDH => self.apply_transmit(chip, &[0]),
            TDBAL1 | TDBAH1 | TDLEN1 | TDH1 => self.apply_transmit(chip, &[SECOND]),
            RDBAL | RDBAH | RDLEN | RDH => self.apply_receive(chip, Restart::Yes),
            TIDV if value & FLUSH != 0 => {
                self.interrupting().causes.flush_transmit();
                self.settle();
            }
            RDTR if value & FLUSH != 0 => {
                self.interrupting().causes.flush_receive();
                self.settle();
            }
            _ => {}
        }
    }

    /// Applies the registers to the transmit side, and restarts the given rings: 0 is the first, [`SECOND`] the other.
    pub(super) fn apply_transmit(&self, chip: &Chip, rings: &[u32]) {
        let on = chip.registers.get(TCTL) & TCTL_EN != 0;
        let mut side = self.input.lock();
        side.settings = chip.transmit_settings();
        (side.link, side.looped) = (chip.can_move_frames(), chip.is_loopback());
        for &queue in rings {
            *side.ring_at(queue) = if on { Ring::Enabled } else { Ring::Off };
        }
        side.forget_places(rings);
        if rings.contains(&0) {
            self.begin_block(&mut side);
        }
        let pending = side.any_pending();
        drop(side);
        // Whether a sleeping poller has to poll by itself may have changed, too.
        if pending || self.mapped && !rings.is_empty() {
            self.kick();
        }
    }

    /// The rings go on as a predecessor of this process has left them.
    pub(crate) fn resume_rings(&self, chip: &Chip) {
        if self.csb {
            self.find_block_again();
        }
        let transmits = chip.registers.get(TCTL) & TCTL_EN != 0;
        let mut side = self.input.lock();
        for (queue, place) in [(0, TRANSMIT), (SECOND, TRANSMIT_SECOND)] {
            let noted = if transmits { side.state.noted(place) } else { Noted::Nothing };
            let ring = match noted {
                Noted::Nothing if transmits => Ring::Enabled,
                Noted::Nothing => Ring::Off,
                Noted::Broken => Ring::Broken,
                Noted::On { base, position } => {
                    let tail = side.tail_at(queue);
                    let contexts = side.state.contexts(place, position.contexts);
                    match Transmit::resume(base, position, contexts, &side.memory.writable, tail) {
                        Ok(ring) => {
                            side.page.set(TDH.saturating_add(queue), ring.head());
                            Ring::On(ring.noted_in(side.place(queue)))
                        }
                        Err(fault) => {
                            self.report("transmit", fault);
                            Ring::Broken
                        }
                    }
                }
            };
            *side.ring_at(queue) = ring;
        }
        drop(side);
        let receives = chip.registers.get(RCTL) & RCTL_EN != 0;
        let mut side = self.output.lock();
        side.format = chip.receive_format(chip.page.get(PSRCTL));
        let noted = if receives { side.state.noted(RECEIVE) } else { Noted::Nothing };
        side.ring = match noted {
            Noted::Nothing if receives => Ring::Enabled,
            Noted::Nothing => Ring::Off,
            Noted::Broken => Ring::Broken,
            Noted::On { base, position } => {
                let tail = side.tail();
                match Receive::resume(base, position, side.format, &side.memory.writable, tail) {
                    Ok((ring, lost)) => {
                        side.lost = side.lost.saturating_add(lost.into());
                        side.page.set(RDH, ring.head());
                        Ring::On(ring.noted_in(side.state.place(RECEIVE)))
                    }
                    Err(fault) => {
                        self.report("receive", fault);
                        Ring::Broken
                    }
                }
            }
        };
        drop(side);
        if self.csb {
            self.find_block();
        }
        self.apply_receive(chip, Restart::No);
        self.apply_transmit(chip, &[]);
    }

    /// Applies the registers to the receive side.
    pub(super) fn apply_receive(&self, chip: &Chip, restart: Restart) {
        let on = chip.registers.get(RCTL) & RCTL_EN != 0;
        // Computed without the lock, which other threads wait for: a guest can cause this continually.
        let mut settings = chip.receive_settings();
        settings.low = chip.low_mark(ring_location(&chip.page, RDBAL).1);
        let format = chip.receive_format(chip.page.get(PSRCTL));
        let mut side = self.output.lock();
        side.settings = settings;
        let (link, looped) = (chip.can_move_frames(), chip.is_loopback());
        if (side.link, side.looped) != (link, looped) {
            side.forget();
            (side.link, side.looped) = (link, looped);
        }
        let resized = std::mem::replace(&mut side.format, format) != format;
        if restart == Restart::Yes || resized && side.ring.is_on() {
            side.ring = if on { Ring::Enabled } else { Ring::Off };
            side.forget_place();
            side.forget();
        }
        self.tell_of_losses(side);
    }
}
