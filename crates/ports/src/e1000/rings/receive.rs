//! Frames to a driver: the receive ring (SDM 3.2).

mod fcs;
mod pieces;
mod sums;

use std::sync::atomic::Ordering;

use ringway_memory::{View, prefetch_write};
use ringway_switch::{Accepts, Frame};

use super::descriptor::{Table, Words, prefetch_run};
use super::fault::RingFault;
use super::filter::Filters;
use super::format::{Format, Status};
use super::traffic::{Group, Traffic};
use crate::copy::{self, ROW, prefetch};
use crate::guest::{GuestMemory, Space};

/// Shortest frame of the wire without its frame check sequence: shorter ones are padded.
const SHORTEST: usize = 60;

/// What the registers say of reception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveSettings {
    /// Which frames the guest wants.
    pub filters: Filters,
    /// Tags are taken out and told of in the descriptor (CTRL.VME).
    pub strip_tag: bool,
    /// The frame check sequence is left out (RCTL.SECRC). Otherwise it is made, as no sender has one.
    pub strip_fcs: bool,
    /// The guest is told of IPv4 header checksums that are right (RXCSUM.IPOFLD).
    pub ip_sums: bool,
    /// The guest is told of TCP and UDP checksums that are right (RXCSUM.TUOFLD).
    pub transport_sums: bool,
    /// Longest frame without frame check sequence (RCTL.LPE).
    pub longest: usize,
    /// An interrupt is wanted when no more than this many 16-byte descriptors are left (RCTL.RDMTS).
    pub low: u32,
}

/// What became of the frames of one delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames given to the driver, with their padding and tags.
    pub traffic: Traffic,
    /// Bytes of the frames as they came.
    pub bytes: u64,
    /// Frames that wait for descriptors.
    pub held: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Frames that the guest does not want.
    pub filtered: u64,
    /// Frames that are lost because there were no descriptors.
    pub full: u64,
    /// Frames that are longer than allowed.
    pub long: u64,
    /// With them, free descriptors became as few as was to be told.
    pub low: bool,
}

/// A started receive ring.
#[derive(Debug)]
pub struct Receive {
    table: Table,
    /// The next descriptor to fill.
    head: u32,
    format: Format,
    /// The first descriptor that was filled by this delivery, held back: where, and its second word.
    held: Option<(u32, u64)>,
}

impl Receive {
    /// What `deliver` takes: it makes missing checksums itself, as a guest that passes frames on could not know of them, and
    /// tells the guest that they are right.
    pub const ACCEPTS: Accepts = Accepts::CSUM;

    /// A ring of `count` 16-byte descriptors at guest physical address `base`, of which `head` is the next to fill.
    ///
    /// # Errors
    /// There is no such ring.
    pub fn start(base: u64, count: u32, head: u32, format: Format) -> Result<Receive, RingFault> {
        let table = Table::new(base, count)?;
        table.check_head(head)?;
        Ok(Receive { table, head: head - head % format.words(), format, held: None })
    }

    /// The head register: the next descriptor to fill.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Descriptors that the driver has given up to `tail`.
    #[inline]
    #[must_use]
    pub fn free(&self, tail: u32) -> u32 {
        if tail < self.table.count() { self.table.ahead(self.head, tail) } else { 0 }
    }

    /// Descriptors of the ring.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.table.count()
    }

    /// Gives frames to the driver, in order, up to the first that there are no descriptors for; it and those behind it go to
    /// `left`, which may count them.
    ///
    /// # Errors
    /// The ring is not as it must be. What was given stays given; the others went to `left`.
    #[inline]
    pub fn deliver<'b, 'm: 'b>(
        &mut self,
        writable: &GuestMemory,
        frames: impl Iterator<Item = Frame<'b, 'm>>,
        settings: &ReceiveSettings,
        tail: u32,
        received: &mut Received,
        mut left: impl FnMut(&Frame<'b, 'm>, &mut Received),
    ) -> Result<(), RingFault> {
        let mut frames = frames;
        let mut next = frames.next();
        let result = self.give(writable, &mut next, &mut frames, settings, tail, received);
        for frame in next.into_iter().chain(frames) {
            left(&frame, received);
        }
        result
    }

    #[inline(always)]
    fn give<'b, 'm: 'b>(
        &mut self,
        writable: &GuestMemory,
        next: &mut Option<Frame<'b, 'm>>,
        frames: &mut impl Iterator<Item = Frame<'b, 'm>>,
        settings: &ReceiveSettings,
        tail: u32,
        received: &mut Received,
    ) -> Result<(), RingFault> {
        self.table.check_tail(tail)?;
        let words = self.table.words(writable)?;
        let before = self.table.ahead(self.head, tail);
        let mut space = writable.space();
        let mut result = Ok(());
        while self.head != tail {
            let end = if tail > self.head { tail } else { self.table.count() };
            let run = &words[self.head as usize..end as usize];
            let mut given = 0;
            if let Some(buffer) = self.format.single() {
                given = self.give_plain(run, &space, buffer, next, frames, settings, received);
                self.head = self.table.after(self.head, given as u32);
            }
            let Some(frame) = *next else { break };
            if given < run.len() {
                if received.judge(&frame, settings) {
                    match self.give_pieces(words, writable, &mut space, &frame, settings, tail, received) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(fault) => {
                            result = Err(fault);
                            break;
                        }
                    }
                }
                *next = frames.next();
            }
        }
        if let Some((at, word)) = self.held.take() {
            self.format.write(&words[at as usize], word);
        }
        let left = self.table.ahead(self.head, tail);
        received.low |= before > settings.low && left <= settings.low;
        // What is lost reads as zeroes, which may look like any other mistake.
        if writable.is_lost() { Err(RingFault::MemoryLost) } else { result }
    }

    /// Gives frames to descriptors whose only buffers hold them, in the region that was used last, up to the first that does
    /// not. Returns how many.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn give_plain<'b, 'm: 'b>(
        &mut self,
        run: &[Words],
        space: &Space<'_>,
        size: usize,
        next: &mut Option<Frame<'b, 'm>>,
        frames: &mut impl Iterator<Item = Frame<'b, 'm>>,
        settings: &ReceiveSettings,
        received: &mut Received,
    ) -> usize {
        let fcs = if settings.strip_fcs { 0 } else { fcs::BYTES };
        let mut writes = [None; ROW];
        let mut given = 0;
        loop {
            prefetch_run(&run[given..], |line| prefetch_write(line.cast_mut()));
            let mut found = 0;
            while found < ROW && given + found < run.len() {
                let Some(frame) = *next else { break };
                if !settings.filters.passes(&frame.head().0, frame.len()) {
                    received.filtered += 1;
                    *next = frames.next();
                    continue;
                }
                let total = frame.len().max(SHORTEST) + fcs;
                let address = u64::from_le(run[given + found][0].load(Ordering::Relaxed));
                let is_tagged = settings.strip_tag && settings.filters.tag_of(&frame.head().0, frame.len()).is_some();
                if frame.len() > settings.longest || total > size || is_tagged {
                    break;
                }
                let Some(buffer) = space.near(address, total as u32) else { break };
                prefetch(buffer, prefetch_write);
                writes[found] = Some((buffer, frame));
                found += 1;
                *next = frames.next();
            }
            let writes = &writes[..found];
            for write in writes {
                let Some((buffer, frame)) = write else { break };
                copy::touch(*buffer, frame);
            }
            for write in writes {
                let Some((buffer, frame)) = write else { break };
                copy::write(*buffer, frame);
                write_zeroes(*buffer, frame.len());
                received.traffic.add(Group::of(&frame.head().0), frame.len().max(SHORTEST), 1);
                received.bytes += frame.len() as u64;
            }
            for ((write, words), at) in writes.iter().zip(&run[given..]).zip(self.head + given as u32..) {
                let Some((buffer, frame)) = write else { break };
                let status = Status::new(sums::finish(*buffer, frame, settings, self.format), None);
                if fcs > 0 {
                    fcs::put(*buffer);
                }
                let word = self.format.only(status, buffer.len());
                if self.held.is_none() {
                    self.held = Some((at, word));
                } else {
                    self.format.write(words, word);
                }
            }
            given += found;
            if found < ROW {
                return given;
            }
        }
    }
}

impl Received {
    /// Whether a frame is one that the guest wants and may be given; counts it otherwise.
    pub fn judge(&mut self, frame: &Frame<'_, '_>, settings: &ReceiveSettings) -> bool {
        let wanted = settings.filters.passes(&frame.head().0, frame.len());
        let fits = frame.len() <= settings.longest;
        self.filtered += u64::from(!wanted);
        self.long += u64::from(wanted && !fits);
        wanted && fits
    }

    /// Adds what became of others.
    pub fn merge(&mut self, other: &Received) {
        self.traffic.merge(&other.traffic);
        self.bytes += other.bytes;
        self.held += other.held;
        self.held_bytes += other.held_bytes;
        self.filtered += other.filtered;
        self.full += other.full;
        self.long += other.long;
        self.low |= other.low;
    }
}

/// Writes zeroes to what is behind the first `from` bytes: padding, and the place of a frame check sequence.
#[inline(always)]
fn write_zeroes(buffer: View<'_>, from: usize) {
    const MOST: usize = SHORTEST + fcs::BYTES;
    if let Some(behind) = buffer.behind(from) {
        let _ = behind.write(&[0; MOST][..behind.len().min(MOST)]);
    }
}
