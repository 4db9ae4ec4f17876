//! Measured passes: how much time the source took of a pass, and how much each receiver.
//!
//! A client can delay every access to its memory: the kernel blocks a thread that touches a page while the client
//! punches a hole there or the page is read from a disk. A direct copy from one client's memory to another's touches
//! both, so that its duration does not tell which of them is slow. An examined pass therefore first copies the
//! collected frames into private memory. The time of collecting, copying and releasing counts for the source, as does the
//! time of the switch's forwarding program and of offloads in software ([`crate::Workspace::take_source_time`]). The time
//! of delivering counts for the receiver. Due to the copy, no thread waits for the source's memory while it has a
//! receiver's output locked.

use ringway_memory::Mapping;

use super::fault::PortFault;
use super::input::{Armed, Discarded, Input, InputCapabilities, Moved, WakeOn};
use crate::batch::{Batch, MOST_BYTES};

/// Time that one port took in examined passes, and the frames moved in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// Duration in nanoseconds.
    pub nanoseconds: u64,
    /// Number of frames.
    pub frames: u64,
    /// Number of bytes in these frames.
    pub bytes: u64,
}

impl TimeSpent {
    /// Adds the time since `began`, by the clock `read`, and the frames moved in it.
    pub(crate) fn add(&mut self, read: fn() -> u64, began: u64, frames: u64, bytes: u64) {
        self.nanoseconds = self.nanoseconds.saturating_add(read().saturating_sub(began));
        self.frames = self.frames.saturating_add(frames);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Time that one receiver took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryTime {
    /// The receiver's port index.
    pub port: u16,
    /// The time and the frames. Does not include waiting for other threads that deliver to the port.
    pub spent: TimeSpent,
}

/// An input whose frames are copied as they are collected, and whose time is measured.
pub struct Examined<'a> {
    input: &'a mut dyn Input,
    area: &'a Mapping,
    read: fn() -> u64,
    spent: TimeSpent,
}

impl<'a> Examined<'a> {
    /// Bytes of the memory that the frames of a batch are copied to.
    pub const AREA: usize = MOST_BYTES;

    /// Returns an input that measures the time of `input`. Frames are copied into `area`, which has [`Examined::AREA`]
    /// bytes. Frames that do not fit are not copied. `read` returns the time in nanoseconds.
    pub fn new(input: &'a mut dyn Input, area: &'a Mapping, read: fn() -> u64) -> Examined<'a> {
        Examined { input, area, read, spent: TimeSpent::default() }
    }

    /// Time that the source took until now.
    #[must_use]
    pub fn spent(&self) -> TimeSpent {
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
        batch.measure_program(*read);
        let refused: u64 = batch.refused().map(|(_, frames)| frames).sum();
        spent.add(*read, began, batch.len() as u64 + refused, batch.bytes());
        collected
    }

    fn release(&mut self) {
        self.time(|input| input.release());
    }

    fn capabilities(&self) -> InputCapabilities {
        self.input.capabilities()
    }

    fn rewind(&mut self, frames: usize) {
        self.time(|input| input.rewind(frames));
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        self.time_discarding(|input| input.discard(most))
    }

    fn discard_like(&mut self, addresses: &[u8; 12], most: usize) -> Result<Discarded, PortFault> {
        self.time_discarding(|input| input.discard_like(addresses, most))
    }

    fn pending(&mut self) -> bool {
        self.time(|input| input.pending())
    }

    fn has_frames(&mut self) -> bool {
        self.time(|input| input.has_frames())
    }

    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        self.time(|input| input.arm(wake_on))
    }

    fn disarm(&mut self) {
        self.time(|input| input.disarm());
    }

    fn take_event(&mut self) -> bool {
        self.time(|input| input.take_event())
    }

    fn last_frames(&self) -> usize {
        self.input.last_frames()
    }

    fn adopted(&mut self) -> bool {
        self.time(|input| input.adopted())
    }

    fn take_moved(&mut self) -> Moved {
        let moved = self.time(|input| input.take_moved());
        self.spent.frames = self.spent.frames.saturating_add(moved.frames);
        self.spent.bytes = self.spent.bytes.saturating_add(moved.bytes);
        moved
    }
}
