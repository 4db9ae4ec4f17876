//! Frames to a driver: the receive ring (SDM 3.2).

use std::sync::atomic::Ordering;

use ringway_memory::{View, prefetch_write};
use ringway_switch::Frame;

use super::descriptor::{RX_DONE, RX_EOP, RX_IXSM, Table, Words};
use super::fault::RingFault;
use super::traffic::Traffic;
use crate::copy::{self, ROW, Source, prefetch};
use crate::guest::{GuestMemory, Space};

/// Shortest frame of the wire without its frame check sequence: shorter ones are padded.
const SHORTEST: usize = 60;
/// Bytes of a frame check sequence.
const FCS: usize = 4;
/// Most descriptors of a frame: 16 KiB in buffers of 256 bytes.
const LONGEST_FRAME: usize = 80;

/// What the registers say of reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveSettings {
    /// The frame check sequence is left out (RCTL.SECRC). Otherwise frames get four bytes more, which are zero.
    pub strip_fcs: bool,
    /// Longest frame without frame check sequence (RCTL.LPE).
    pub longest: usize,
    /// An interrupt is wanted when no more than this many descriptors are left (RCTL.RDMTS).
    pub low: u32,
}

/// What became of the frames of one delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames given to the driver, with their padding.
    pub traffic: Traffic,
    /// Bytes of the frames as they came.
    pub bytes: u64,
    /// Frames for which there were no descriptors.
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
    /// Bytes of a buffer.
    buffer: usize,
    /// The first descriptor that was filled by this delivery, held back: where, and its second word.
    held: Option<(u32, u64)>,
}

impl Receive {
    /// A ring of `count` descriptors at guest physical address `base`, of which `head` is the next to fill; every buffer has
    /// `buffer` bytes (RCTL.BSIZE and BSEX).
    ///
    /// # Errors
    /// There is no such ring.
    pub fn start(base: u64, count: u32, head: u32, buffer: usize) -> Result<Receive, RingFault> {
        let table = Table::new(base, count, 1)?;
        table.check_head(head)?;
        Ok(Receive { table, head, buffer: buffer.max(256), held: None })
    }

    /// The head register: the next descriptor to fill.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Gives frames to the driver, in order.
    ///
    /// # Errors
    /// The ring is not as it must be. What was given stays given; the others are counted as without descriptors.
    #[inline]
    pub fn deliver<'b, 'm: 'b>(
        &mut self,
        writable: &GuestMemory,
        frames: impl Iterator<Item = Frame<'b, 'm>>,
        settings: &ReceiveSettings,
        tail: u32,
        received: &mut Received,
    ) -> Result<(), RingFault> {
        let mut frames = frames;
        let mut next = frames.next();
        let result = self.give(writable, &mut next, &mut frames, settings, tail, received);
        for _ in next.into_iter().chain(frames) {
            received.full += 1;
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
        while self.head != tail && result.is_ok() {
            let end = if tail > self.head { tail } else { self.table.count() };
            let run = &words[self.head as usize..end as usize];
            let given = self.give_plain(run, &space, next, frames, settings, received);
            self.head = self.table.after(self.head, given as u32);
            let Some(frame) = *next else { break };
            if given < run.len() {
                *next = frames.next();
                result = self.give_pieces(words, writable, &mut space, &frame, settings, tail, received);
            }
        }
        self.publish(words);
        let left = self.table.ahead(self.head, tail);
        received.low |= before > settings.low && left <= settings.low;
        result.and(if writable.is_lost() { Err(RingFault::MemoryLost) } else { Ok(()) })
    }

    /// Gives frames to descriptors whose buffers hold them, in the region that was used last, up to the first that does
    /// not. Returns how many.
    #[inline(always)]
    fn give_plain<'b, 'm: 'b>(
        &mut self,
        run: &[Words],
        space: &Space<'_>,
        next: &mut Option<Frame<'b, 'm>>,
        frames: &mut impl Iterator<Item = Frame<'b, 'm>>,
        settings: &ReceiveSettings,
        received: &mut Received,
    ) -> usize {
        let fcs = if settings.strip_fcs { 0 } else { FCS };
        let mut writes = [None; ROW];
        let mut given = 0;
        loop {
            let mut found = 0;
            while found < ROW && given + found < run.len() {
                let Some(frame) = *next else { break };
                let total = frame.len().max(SHORTEST) + fcs;
                let address = u64::from_le(run[given + found][0].load(Ordering::Relaxed));
                if frame.len() > settings.longest || total > self.buffer || frame.offload().is_some() {
                    break;
                }
                let Some(buffer) = space.near(address, total as u32) else { break };
                prefetch(buffer, prefetch_write);
                writes[found] = Some((buffer, frame));
                found += 1;
                *next = frames.next();
            }
            if found == 0 {
                return given;
            }
            for write in &writes[..found] {
                let Some((buffer, frame)) = write else { break };
                copy::touch(*buffer, frame);
            }
            for write in &writes[..found] {
                let Some((buffer, frame)) = write else { break };
                copy::write(*buffer, frame);
                write_zeroes(*buffer, frame.len());
                received.traffic.add(&frame.head().0, frame.len().max(SHORTEST), 1);
                received.bytes += frame.len() as u64;
            }
            for (write, words) in writes[..found].iter().zip(&run[given..]) {
                let Some((buffer, _)) = write else { break };
                let word = buffer.len() as u64 | RX_DONE | RX_EOP | RX_IXSM;
                if self.held.is_none() {
                    self.held = Some((self.head + given as u32, word));
                } else {
                    words[1].store(word.to_le(), Ordering::Release);
                }
            }
            given += found;
            if found < ROW {
                return given;
            }
        }
    }

    /// Gives a frame to descriptors of any kind, to several of them if need be.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn give_pieces(
        &mut self,
        words: &[Words],
        writable: &GuestMemory,
        space: &mut Space<'_>,
        frame: &Frame<'_, '_>,
        settings: &ReceiveSettings,
        tail: u32,
        received: &mut Received,
    ) -> Result<(), RingFault> {
        if frame.len() > settings.longest {
            received.long += 1;
            return Ok(());
        }
        let total = frame.len().max(SHORTEST) + if settings.strip_fcs { 0 } else { FCS };
        let slots = total.div_ceil(self.buffer);
        if slots > LONGEST_FRAME {
            received.long += 1;
            return Ok(());
        }
        if slots > self.table.ahead(self.head, tail) as usize {
            received.full += 1;
            return Ok(());
        }
        let mut source = Source::new(frame);
        let (mut at, mut left) = (self.head, total);
        for _ in 0..slots {
            let part = left.min(self.buffer);
            let address = u64::from_le(words[at as usize][0].load(Ordering::Relaxed));
            let mut fill = |view: View<'_>| {
                let filled = source.fill(view);
                write_zeroes(view, filled);
            };
            let there = match space.view(address, part as u32) {
                Some(view) => {
                    fill(view);
                    true
                }
                None => writable.pieces(address, part as u32, &mut fill),
            };
            if !there {
                received.full += 1;
                return Err(RingFault::BadAddress { address, len: part as u32 });
            }
            (at, left) = (self.table.after(at, 1), left - part);
        }
        let mut left = total;
        for _ in 0..slots {
            let part = left.min(self.buffer);
            left -= part;
            let last = if left == 0 { RX_EOP } else { 0 };
            self.give_back(words, part as u64 | RX_DONE | RX_IXSM | last);
        }
        received.traffic.add(&frame.head().0, frame.len().max(SHORTEST), 1);
        received.bytes += frame.len() as u64;
        Ok(())
    }

    /// Writes the next descriptor back.
    fn give_back(&mut self, words: &[Words], word: u64) {
        match self.held {
            None => self.held = Some((self.head, word)),
            Some(_) => words[self.head as usize][1].store(word.to_le(), Ordering::Release),
        }
        self.head = self.table.after(self.head, 1);
    }

    /// Shows the driver what was given back.
    #[inline(always)]
    fn publish(&mut self, words: &[Words]) {
        if let Some((at, word)) = self.held.take() {
            words[at as usize][1].store(word.to_le(), Ordering::Release);
        }
    }
}

/// Writes zeroes to what is behind the first `from` bytes: padding and frame check sequence.
#[inline(always)]
fn write_zeroes(buffer: View<'_>, from: usize) {
    if let Some(behind) = buffer.behind(from) {
        let _ = behind.write(&[0; SHORTEST + FCS][..behind.len().min(SHORTEST + FCS)]);
    }
}
