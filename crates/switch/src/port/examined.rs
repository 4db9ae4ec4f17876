//! Passes whose time is told apart: what the source took of it, and what each receiver.
//!
//! A client decides how long an access to its memory takes: the kernel lets whoever touches a page that is being punched, or
//! read from a disk, wait. A copy touches the memory of two clients, so its time says nothing about either. A pass that is
//! examined therefore copies what it collected into memory of its own first. The time of collecting, copying and releasing is
//! the source's; the time of delivering is the receiver's. What the copy costs besides is that nobody waits for the source while
//! a receiver's output is locked.

use ringway_memory::Mapping;

use super::fault::PortFault;
use super::input::{Discarded, Input};
use crate::batch::{Batch, MOST_BYTES};

/// What one port took of a pass that was examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// How long it took.
    pub nanoseconds: u64,
    /// For so many frames.
    pub frames: u64,
    /// And their bytes.
    pub bytes: u64,
}

impl Spent {
    /// Adds what was spent from `began` on, by the clock `read`.
    pub(crate) fn add(&mut self, read: fn() -> u64, began: u64, frames: u64, bytes: u64) {
        self.nanoseconds = self.nanoseconds.saturating_add(read().saturating_sub(began));
        self.frames = self.frames.saturating_add(frames);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What a receiver took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its index.
    pub port: u16,
    /// Waiting for others that fill the port is not in it.
    pub spent: Spent,
}

/// A source whose frames are copied as they are collected, and whose time is taken.
pub struct Examined<'a> {
    input: &'a mut dyn Input,
    area: &'a Mapping,
    read: fn() -> u64,
    spent: Spent,
}

impl<'a> Examined<'a> {
    /// Bytes of the memory that the frames of a batch are copied to.
    pub const AREA: usize = MOST_BYTES;

    /// `area` has [`Examined::AREA`] bytes; frames that do not fit are not copied. `read` tells the time.
    pub fn new(input: &'a mut dyn Input, area: &'a Mapping, read: fn() -> u64) -> Examined<'a> {
        Examined { input, area, read, spent: Spent::default() }
    }

    /// What it took so far.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.spent
    }

    fn time<T>(&mut self, work: impl FnOnce(&mut dyn Input) -> T) -> T {
        let began = (self.read)();
        let done = work(self.input);
        self.spent.add(self.read, began, 0, 0);
        done
    }

    fn time_discarding(
        &mut self,
        work: impl FnOnce(&mut dyn Input) -> Result<Discarded, PortFault>,
    ) -> Result<Discarded, PortFault> {
        let discarded = self.time(work)?;
        self.spent.frames = self.spent.frames.saturating_add(discarded.frames);
        Ok(discarded)
    }
}

impl Input for Examined<'_> {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let Self { input, area, read, spent } = self;
        let began = read();
        let collected = input.collect(batch);
        batch.copy_rests_to(area);
        let refused: u64 = batch.refused().map(|(_, frames)| frames).sum();
        spent.add(*read, began, batch.len() as u64 + refused, batch.bytes());
        collected
    }

    fn release(&mut self) {
        self.time(|input| input.release());
    }

    fn keeps(&self) -> bool {
        self.input.keeps()
    }

    fn keep(&mut self, frames: usize) {
        self.time(|input| input.keep(frames));
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        self.time_discarding(|input| input.discard(most))
    }

    fn discard_like(&mut self, addresses: &[u8; 12], most: usize) -> Result<Discarded, PortFault> {
        self.time_discarding(|input| input.discard_like(addresses, most))
    }

    fn discards_like(&self) -> bool {
        self.input.discards_like()
    }

    fn pending(&mut self) -> bool {
        self.time(|input| input.pending())
    }

    fn has_frames(&mut self) -> bool {
        self.time(|input| input.has_frames())
    }

    fn arm(&mut self) -> bool {
        self.time(|input| input.arm())
    }

    fn disarm(&mut self) {
        self.time(|input| input.disarm());
    }

    fn has_news(&mut self) -> bool {
        self.time(|input| input.has_news())
    }

    fn arm_for_news(&mut self) -> bool {
        self.time(|input| input.arm_for_news())
    }

    fn needs_looks(&mut self) -> bool {
        self.time(|input| input.needs_looks())
    }
}
