//! The e1000 driver as an endpoint.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ringway_abi::csb;
use ringway_abi::e1000::register as reg;
use ringway_drivers::e1000::bring_up::RingAt;
use ringway_drivers::e1000::{Csb, Misuse, ReceiveQueue, RingLayout, TransmitQueue};
use ringway_memory::SharedMemory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::bring_up::Nic;
use super::counters::Counters;
use super::options::{E1000Error, E1000Mode, E1000Options};
use crate::endpoint::Endpoint;
use crate::mac::Mac;

/// Address of guest memory in descriptors. It is not 0, so that addresses cannot be confused with offsets.
const GUEST: u64 = 0x1_0000_0000;
/// A multiple of every page size.
const PAGE: usize = 65_536;
/// Bytes between two buffers. The distance from one buffer to the next is an odd number of cache lines.
const GAP: usize = 64;
/// Number of buffers that Linux gives back to the device at a time.
const GIVE_BACK: u32 = 16;

/// A driver for an e1000 behind a vfio-user server.
///
/// The driver runs only when a method is called: it sees an interrupt at the next call.
#[derive(Debug)]
pub struct E1000Endpoint {
    pub(super) nic: Nic,
    pub(super) mode: E1000Mode,
    pub(super) tx: TransmitQueue,
    rx: ReceiveQueue,
    pub(super) csb: Option<Csb>,
    /// True while interrupts are masked and the driver polls.
    pub(super) polling: bool,
    /// True while frames wait for an interrupt that is expected.
    pub(super) expecting: bool,
    /// True if received frames are taken.
    receives: bool,
    /// Why the device is unusable. Then nothing moves, and the next wait returns the error.
    broken: Option<String>,
    _memory: SharedMemory,
}

impl E1000Endpoint {
    /// Connects to the server at `socket`, and sets up its device.
    ///
    /// # Errors
    /// There is no server, or its device does not support the options.
    pub fn attach(socket: &Path, options: &E1000Options) -> Result<E1000Endpoint, E1000Error> {
        options.check()?;
        let mut nic = Nic::connect(socket, options)?;
        let mut end = 0;
        let mut reserve = |bytes: usize| {
            let at = end;
            end = (at + bytes).next_multiple_of(csb::BYTES);
            at
        };
        let csb_at = reserve(csb::BYTES);
        let capacity = options.buffer_size as usize;
        let [tx_at, rx_at] = [options.tx_ring, options.rx_ring].map(|size| {
            let ring = reserve(size as usize * 16);
            let mut layout = RingLayout { size, ring, buffers: 0, capacity, gap: GAP, guest: GUEST };
            layout.buffers = reserve(layout.bytes());
            layout
        });
        let bytes = end.next_multiple_of(PAGE);
        let memory = SharedMemory::create("ringway-gen-e1000", bytes)?;
        let mode = options.mode;
        let csb = (mode == E1000Mode::Csb).then(|| Csb::new(memory.mapping(), csb_at)).transpose()?;
        // With a status block, the device reports its progress there.
        let tx = TransmitQueue::new(memory.mapping(), &tx_at, csb.is_none())?;
        let rx = ReceiveQueue::new(memory.mapping(), &rx_at, nic.model.format(), nic.with_fcs)?;

        nic.registers.client().map(GUEST, memory.file(), 0, bytes as u64)?;
        let ring = |layout: &RingLayout| RingAt { address: GUEST + layout.ring as u64, size: layout.size };
        let block = csb.as_ref().map(|_| GUEST + csb_at as u64);
        nic.start(options, ring(&tx_at), ring(&rx_at), block)?;
        let (polling, expecting, receives) = (false, false, false);
        let mut endpoint =
            E1000Endpoint { nic, mode, tx, rx, csb, polling, expecting, receives, broken: None, _memory: memory };
        endpoint.publish_receive()?;
        let tail = endpoint.rx.ring.tail();
        endpoint.nic.registers.write(reg::RDT, tail)?;
        endpoint.nic.awaken()?;
        if endpoint.take_interrupts() {
            endpoint.handle_interrupt()?;
        }
        if endpoint.polling {
            endpoint.complete()?;
        }
        if let Some(csb) = &endpoint.csb {
            csb.driver().want_received(false);
        }
        endpoint.nic.registers.count_from_here();
        Ok(endpoint)
    }

    /// Returns the NIC's address.
    #[must_use]
    pub fn mac(&self) -> Mac {
        self.nic.mac
    }

    /// Returns the counts since the device was set up.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.nic.registers.counters()
    }

    /// Returns the connection. It becomes readable when the server has disconnected.
    #[must_use]
    pub fn connection(&self) -> &UnixStream {
        self.nic.registers.connection().connection()
    }

    #[cold]
    fn fail(&mut self, error: &E1000Error) {
        self.broken.get_or_insert(error.to_string());
    }

    #[cold]
    fn blame(&mut self, misuse: Misuse) {
        let path = self.nic.registers.connection().path().display();
        self.broken = Some(format!("the device at {path} {misuse}"));
    }

    fn whole(&self) -> io::Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(what) => Err(io::Error::other(what.clone())),
        }
    }

    /// Tells the device of all queued frames, in the way of the mode.
    #[inline]
    pub(super) fn publish_transmit(&mut self) -> Result<(), E1000Error> {
        let tail = self.tx.positions.publish();
        if self.csb.as_ref().is_none_or(|csb| csb.driver().publish_transmit(tail)) {
            self.nic.registers.write(reg::TDT, tail)?;
        }
        Ok(())
    }

    /// Tells the device of all buffers given back.
    #[inline]
    fn publish_receive(&mut self) -> Result<(), E1000Error> {
        let (tail, rx) = (self.rx.ring.tail(), &self.rx.ring);
        let wanted = self.csb.as_ref().is_none_or(|csb| csb.driver().publish_receive(tail, |at| rx.crosses(at)));
        self.rx.ring.publish();
        if wanted {
            self.nic.registers.write(reg::RDT, tail)?;
        }
        Ok(())
    }

    /// Takes back sent buffers, as far as a driver would know of them by now.
    #[inline]
    fn serve(&mut self) {
        if self.broken.is_some() {
            return;
        }
        if let Some(csb) = &self.csb {
            if let Err(misuse) = self.tx.take_until(csb.driver().transmitted()) {
                self.blame(misuse);
            }
            return;
        }
        // An interrupt matters if frames wait for it, or if the device has done something.
        let matters = self.expecting || self.tx.has_done() || self.receives && self.rx.ring.has_some();
        let news = !self.polling && matters;
        let handled = if news && self.take_interrupts() { self.handle_interrupt() } else { Ok(()) };
        let served = handled.and_then(|()| if self.polling { self.poll_transmit() } else { Ok(()) });
        if let Err(error) = served {
            self.fail(&error);
        }
    }

    /// Polls for sent buffers. Ends polling if there is nothing to receive.
    pub(super) fn poll_transmit(&mut self) -> Result<(), E1000Error> {
        self.tx.take_reported();
        if self.receives && self.rx.ring.has_some() { Ok(()) } else { self.complete() }
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        if self.tx.positions.free() == 0 {
            self.serve();
        }
        self.tx.positions.free() > 0 && self.broken.is_none()
    }

    /// Counts a queued frame. Some modes tell the device at once.
    #[inline]
    fn queued(&mut self) {
        self.nic.registers.counting().frames += 1;
        if matches!(self.mode, E1000Mode::Combining | E1000Mode::Csb) {
            return;
        }
        let published = self.publish_transmit();
        let taken =
            published.and_then(|()| if self.mode == E1000Mode::Each { self.take_its_interrupt() } else { Ok(()) });
        if let Err(error) = taken {
            self.fail(&error);
        }
        if self.mode == E1000Mode::Base {
            self.serve();
        }
    }

    /// Receives frames, while polling or with the status block.
    #[inline]
    fn poll_receive(&mut self, max: u32, mut take: impl FnMut(&[u8])) -> Result<u32, Failure> {
        let (mut left, mut frames) = (max, 0);
        while left > 0 {
            let part = if self.csb.is_some() { left } else { left.min(GIVE_BACK) };
            let (taken, complete) = self.rx.take(part, &mut take)?;
            frames += complete;
            left -= taken;
            if self.rx.ring.to_give() > 0 {
                self.publish_receive()?;
            }
            if taken < part {
                if self.csb.is_none() {
                    self.tx.take_reported();
                    self.complete()?;
                }
                break;
            }
        }
        Ok(frames)
    }

    /// Returns true if there is something to receive (`for_rx`) or room to send. If not, an interrupt will come.
    fn ready(&mut self, for_rx: bool) -> Result<bool, Failure> {
        if self.take_interrupts() {
            self.handle_interrupt()?;
        }
        if let Some(csb) = &self.csb {
            csb.driver().want_received(for_rx);
            csb.driver().want_transmitted((!for_rx).then(|| self.tx.positions.middle()));
            self.tx.take_until(csb.driver().transmitted())?;
            return Ok(if for_rx { self.rx.ring.has_some() } else { self.tx.positions.free() > 0 });
        }
        if !self.polling {
            return Ok(!for_rx && self.tx.positions.free() > 0);
        }
        self.tx.take_reported();
        let ready = if for_rx { self.rx.ring.has_some() } else { self.tx.positions.free() > 0 };
        if !ready {
            self.complete()?;
        }
        Ok(ready)
    }

    /// Sleeps until an interrupt, the end of the connection, or the end of `left`.
    fn sleep(&self, left: Duration) -> io::Result<()> {
        let mut descriptors =
            [PollFd::new(&self.nic.interrupt, PollFlags::IN), PollFd::new(self.connection(), PollFlags::IN)];
        match poll(&mut descriptors, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // No command is outstanding, so only the end of the connection makes it readable.
        if !descriptors[1].revents().is_empty() {
            let path = self.nic.registers.connection().path().display();
            let what = format!("the device at {path} is gone");
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, what));
        }
        Ok(())
    }
}

/// Why an operation failed.
enum Failure {
    Misuse(Misuse),
    Error(E1000Error),
}

impl From<Misuse> for Failure {
    fn from(misuse: Misuse) -> Failure {
        Failure::Misuse(misuse)
    }
}

impl From<E1000Error> for Failure {
    fn from(error: E1000Error) -> Failure {
        Failure::Error(error)
    }
}

impl E1000Endpoint {
    #[cold]
    fn note_failure(&mut self, failure: Failure) {
        match failure {
            Failure::Misuse(misuse) => self.blame(misuse),
            Failure::Error(error) => self.fail(&error),
        }
    }
}

impl Endpoint for E1000Endpoint {
    #[inline]
    fn tx_room(&mut self) -> usize {
        self.serve();
        if self.broken.is_some() { 0 } else { self.tx.positions.free() as usize }
    }

    #[inline]
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(frame) = self.tx.next(len) else { return false };
        fill(frame);
        self.tx.push(len);
        self.queued();
        true
    }

    #[inline]
    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        let pushed = self.has_room() && self.tx.push(template.len());
        if pushed {
            self.queued();
        }
        pushed
    }

    #[inline]
    fn tx_flush(&mut self) {
        if self.mode == E1000Mode::Combining {
            self.serve();
        }
        if self.broken.is_some() || !self.tx.positions.has_unpublished() || self.expecting {
            return;
        }
        self.expecting = self.mode == E1000Mode::Combining;
        if let Err(error) = self.publish_transmit() {
            self.fail(&error);
        }
    }

    #[inline]
    fn rx_batch(&mut self, max: usize, take: impl FnMut(&[u8])) -> usize {
        if !self.receives {
            self.receives = true;
            // The interrupts of frames that arrived before may have been attributed to other causes.
            self.polling |= self.rx.ring.has_some();
        }
        self.serve();
        if self.broken.is_some() || !self.polling && self.csb.is_none() {
            return 0;
        }
        match self.poll_receive(u32::try_from(max).unwrap_or(u32::MAX), take) {
            Ok(frames) => {
                self.nic.registers.counting().frames += u64::from(frames);
                frames as usize
            }
            Err(failure) => {
                self.note_failure(failure);
                0
            }
        }
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        self.whole()?;
        if timeout.is_zero() {
            return self.sleep(timeout);
        }
        let deadline = Instant::now() + timeout;
        let slept = loop {
            let ready = match self.ready(for_rx) {
                Ok(ready) => ready,
                Err(failure) => {
                    self.note_failure(failure);
                    break self.whole();
                }
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if ready || left.is_zero() {
                break Ok(());
            }
            if let Err(error) = self.sleep(left) {
                break Err(error);
            }
        };
        if let Some(csb) = &self.csb {
            csb.driver().want_received(false);
            csb.driver().want_transmitted(None);
        }
        slept
    }
}
