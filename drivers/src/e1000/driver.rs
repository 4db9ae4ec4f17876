//! Both rings of a NIC, and how their tails are published.

use std::io;

use ringway_abi::Offload;
use ringway_abi::csb::{self, DriverCsb};
use ringway_abi::e1000::register as reg;
use ringway_abi::offload::Gso;
use ringway_memory::Buffer;

use super::csb::Csb;
use super::misuse::Misuse;
use super::nic::{Counts, Nic};
use super::offload::Request;
use super::options::E1000Options;
use super::receive::Receive;
use super::transmit::Transmit;
use crate::pci::Dma;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// A part of the receive ring: so many buffers are given back to the device at a time.
const GIVE_BACK: u32 = 8;

/// What a card has beyond its model, if it is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    /// A status block.
    pub csb: bool,
    /// Segmentation that can be relied on.
    pub segments: bool,
}

/// What a NIC takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Its address.
    pub mac: [u8; 6],
    /// Most bytes of a frame that is not segmented.
    pub longest: usize,
    /// Most bytes of a frame to be segmented; 0: it segments none.
    pub segmented: usize,
    /// It computes checksums.
    pub checksums: bool,
    /// Bytes of a buffer.
    pub buffer: usize,
}

/// A NIC with its rings.
#[derive(Debug)]
pub struct Driver {
    /// Its registers.
    pub nic: Nic,
    abilities: Abilities,
    tx: Transmit,
    rx: Receive,
    /// The status block, if it is used.
    block: Option<Csb>,
    buffers: Vec<Buffer>,
    /// Most descriptors of a frame.
    per_frame: u32,
    /// The length of the frame that was found and neither released nor exchanged.
    found: Option<usize>,
    /// What the device has done wrong. Then nothing moves.
    broken: Option<String>,
    dma: Dma,
}

impl Driver {
    /// Bytes of device memory for these options.
    pub fn memory(options: &E1000Options) -> usize {
        let buffers = Dma::bytes_of((options.slots + options.buffers) as usize, options.buffer as usize);
        buffers + Transmit::memory(options.slots, options.offload) + options.slots as usize * 16 + 3 * csb::BYTES
    }

    /// Sets up a NIC that was reset, in `dma`, which has enough memory.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn new(mut nic: Nic, mut dma: Dma, mac: [u8; 6], options: &E1000Options, card: Card) -> io::Result<Driver> {
        let Card { csb, segments } = card;
        let model = nic.model();
        let block = if csb { Some(dma.allocate(csb::BYTES, csb::BYTES)?) } else { None };
        // With a status block, the device reports its progress there.
        let tx = Transmit::new(&mut dma, options.slots, !csb, options.offload)?;
        let inside = dma.buffers(options.slots, options.buffer)?;
        let rx = Receive::new(&mut dma, model.format(), inside, model.receives(options.buffer) as usize)?;
        let buffers = dma.buffers(options.buffers, options.buffer)?;
        let (buffer, held) = (options.buffer as usize, model.longest(options.buffer) as usize);
        let abilities = Abilities {
            mac,
            longest: options.mtu.map_or(held, |mtu| held.min(usize::from(mtu) + ETHERNET)),
            segmented: if segments { buffer } else { 0 },
            checksums: options.offload,
            buffer,
        };
        let csb = block.as_ref().map(|piece| Csb::new(piece.mapping(), piece.at())).transpose()?;
        if let Some(csb) = &csb {
            csb.driver().want_received(false);
        }
        nic.start(tx.place(), rx.place(), block.map(|piece| piece.bus()), options.buffer);
        let per_frame = if options.offload { Transmit::most(buffer) } else { 1 };
        let (found, broken) = (None, None);
        let mut driver = Driver { nic, abilities, tx, rx, block: csb, buffers, per_frame, found, broken, dma };
        let tail = driver.rx.ring.tail();
        if let Some(csb) = driver.csb() {
            let _ = csb.publish_receive(tail, |_| false);
        }
        driver.nic.write(reg::RDT, tail);
        *driver.nic.counts() = Counts::default();
        Ok(driver)
    }

    #[inline]
    fn csb(&self) -> Option<DriverCsb<'_>> {
        self.block.as_ref().map(Csb::driver)
    }

    /// Returns true if a status block is used.
    pub fn has_csb(&self) -> bool {
        self.block.is_some()
    }

    /// Tells the device by the status block whether to interrupt for received frames, and for sent ones.
    pub fn want(&self, received: bool, sent: bool) {
        if let Some(csb) = self.csb() {
            csb.want_received(received);
            csb.want_transmitted(sent.then(|| self.tx.positions.middle()));
        }
    }

    /// Returns true if there is a received frame, or with `room` room for one.
    pub fn is_ready(&mut self, room: bool) -> bool {
        self.broken.is_some() || self.rx.ring.has_some() || room && self.room() > 0
    }

    /// Returns what the NIC takes and gives.
    #[must_use]
    pub fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// Returns the buffers of the user, once.
    pub fn take_buffers(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.buffers)
    }

    /// Takes back what the device has sent.
    #[inline]
    fn reap(&mut self) {
        let Some(head) = self.csb().map(DriverCsb::transmitted) else {
            self.tx.take_reported();
            return;
        };
        if let Err(misuse) = self.tx.take_until(head) {
            self.blame(misuse);
        }
    }

    /// Returns how many frames can be sent, at least.
    #[inline]
    pub fn room(&mut self) -> usize {
        self.reap();
        if self.broken.is_some() { 0 } else { (self.tx.positions.free() / self.per_frame) as usize }
    }

    /// Queues the first `len` bytes of a buffer of this driver. Returns false if it cannot.
    #[inline]
    pub fn send(&mut self, buffer: &Buffer, len: usize, offload: Option<&Offload>) -> bool {
        let is_cut = offload.is_some_and(|offload| offload.gso != Gso::None);
        let most = if is_cut { self.abilities.segmented } else { self.abilities.longest };
        // A buffer of this link is in one piece for the device, too.
        let (Some(frame), Some(bus)) = (buffer.get(..len), self.dma.bus(buffer.as_ptr())) else { return false };
        if len > most || self.broken.is_some() {
            return false;
        }
        if self.tx.positions.free() < self.per_frame {
            self.reap();
        }
        match offload {
            None => self.tx.push(bus, len),
            Some(_) if !self.abilities.checksums => false,
            Some(offload) => {
                Request::of(frame, offload).is_some_and(|request| self.tx.push_request(bus, len, &request))
            }
        }
    }

    /// Tells the device of all queued frames.
    #[inline]
    pub fn flush(&mut self) {
        if !self.tx.positions.has_unpublished() || self.broken.is_some() {
            return;
        }
        let tail = self.tx.positions.publish();
        if self.csb().is_none_or(|csb| csb.publish_transmit(tail)) {
            self.nic.write(reg::TDT, tail);
        }
    }

    /// Returns how many frames were sent: all up to this number.
    #[inline]
    pub fn sent(&mut self) -> u64 {
        self.reap();
        self.tx.sent()
    }

    /// Returns the next received frame, which stays the next.
    #[inline]
    pub fn peek(&mut self) -> Option<&[u8]> {
        if self.found.is_none() {
            if self.broken.is_some() {
                return None;
            }
            match self.rx.find() {
                Ok(found) => self.found = found,
                Err(misuse) => self.blame(misuse),
            }
            self.give_back();
        }
        Some(self.rx.frame(self.found?))
    }

    /// Gives the buffer of that frame back.
    #[inline]
    pub fn release(&mut self) {
        if self.found.take().is_some() {
            self.rx.renew();
            self.give_back();
        }
    }

    /// Puts `spare` into the place of that frame's buffer, which the caller gets. Returns where the frame is in it.
    #[inline]
    pub fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        let Some(len) = self.found else { return (0, 0) };
        match self.dma.bus(spare.as_ptr()).filter(|_| spare.len() == self.abilities.buffer) {
            Some(bus) => self.rx.swap(spare, bus),
            // Another link's buffer.
            None => {
                let frame = self.rx.frame(len);
                let len = len.min(spare.len());
                spare[..len].copy_from_slice(&frame[..len]);
            }
        }
        self.release();
        (0, len.min(spare.len()))
    }

    /// Gives buffers back to the device, if there are enough of them.
    #[inline]
    fn give_back(&mut self) {
        if self.rx.ring.to_give() < self.rx.ring.size() / GIVE_BACK {
            return;
        }
        let (tail, rx) = (self.rx.ring.tail(), &self.rx.ring);
        let wanted = self.csb().is_none_or(|csb| csb.publish_receive(tail, |at| rx.crosses(at)));
        self.rx.ring.publish();
        if wanted {
            self.nic.write(reg::RDT, tail);
        }
    }

    #[cold]
    fn blame(&mut self, misuse: Misuse) {
        self.fail(misuse.to_string());
    }

    /// Ends the link.
    #[cold]
    pub fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// # Errors
    /// The device has done something wrong or is gone.
    pub fn check(&mut self) -> io::Result<()> {
        if self.nic.is_lost() {
            self.fail("is gone".to_owned());
        }
        match &self.broken {
            None => Ok(()),
            Some(what) => {
                let name = self.nic.name();
                Err(io::Error::new(io::ErrorKind::ConnectionReset, format!("the device {name} {what}")))
            }
        }
    }

    /// Returns what was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { dropped: self.rx.dropped(), ..self.nic.counted() }
    }
}
