//! Measured passes: how much time the source took of a pass, and how much each receiver.
//!
//! A client can delay every access to its memory: the kernel blocks a thread that touches a page while the client
//! punches a hole there or the page is read from a disk. A direct copy from one client's memory to another's touches
//! both, so that its duration does not tell which of them is slow. An examined pass therefore first copies the
//! collected frames into private memory. The time of collecting, copying and releasing counts for the source, as does the
//! time of the switch's forwarding program and of offloads in software ([`crate::Workspace::take_source_time`]). The time
//! of delivering counts for the receiver. Due to the copy, no thread waits for the source's memory while it has a
//! receiver's output locked.
//!
//! Time alone does not tell a client from a machine that takes the processor away: the clock runs on, and so does the thread's account of
//! processor time where the hypervisor does not say what it took. So each access is measured with what the thread did meanwhile
//! ([`Moment`]): only a page fault in which the thread slept is a stall, and only time with something in it that can take long is
//! explained. What belongs to the thread itself is brought in before the access, so that it is not read from swap at a port's cost.

use ringway_memory::Mapping;

use super::fault::PortFault;
use super::input::{Armed, Discarded, Input, InputCapabilities, WakeOn};
use crate::batch::{Batch, MOST_BYTES};
use crate::time::{Measure, Moment};

/// Nanoseconds of an access that nothing else need explain: a delivery or a discard may read a thousand descriptors of chains, which nobody
/// counts. Not more than any visit may take, so that a processor that is taken away in one access of a visit costs no port anything.
const UNCOUNTED: u64 = 200_000;
/// Most nanoseconds that a counted step explains: a descriptor in memory that is neither in a cache nor in a TLB. Measured: 220.
const STEP: u64 = 500;

/// Time that one port took in examined passes, and the frames moved in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// Duration in nanoseconds.
    pub nanoseconds: u64,
    /// Number of frames.
    pub frames: u64,
    /// Number of bytes in these frames.
    pub bytes: u64,
    /// The part of the duration that was accesses in which the thread slept in a page fault.
    pub stalled: u64,
    /// The part of the duration that something explains: page faults, slow calls, the switch's program, cutting of frames, and a little of
    /// each access. If there is more, the machine may have taken the processor away.
    pub explained: u64,
}

impl TimeSpent {
    /// The time of one access, from `began` to `ended`, in which no frames were moved.
    #[must_use]
    pub fn between(began: Moment, ended: Moment) -> TimeSpent {
        let nanoseconds = ended.nanoseconds.saturating_sub(began.nanoseconds);
        let [faults, sleeps] = [ended.faults != began.faults, ended.sleeps != began.sleeps];
        let slow_calls = ended.slow_calls.saturating_sub(began.slow_calls).min(nanoseconds);
        let (stalled, explained) = match (faults, sleeps) {
            (true, true) => (nanoseconds, 0),
            (true, false) => (0, nanoseconds),
            (false, _) => (0, slow_calls.max(nanoseconds.min(UNCOUNTED))),
        };
        TimeSpent { nanoseconds, stalled, explained, ..TimeSpent::default() }
    }

    /// At least so many nanoseconds of an access are explained, if it was as long and no stall.
    fn explained_by(mut self, nanoseconds: u64) -> TimeSpent {
        if self.stalled == 0 {
            self.explained = self.explained.max(nanoseconds.min(self.nanoseconds));
        }
        self
    }

    /// Adds `other` to this.
    pub fn add(&mut self, other: TimeSpent) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.nanoseconds, other.nanoseconds);
        add(&mut self.frames, other.frames);
        add(&mut self.bytes, other.bytes);
        add(&mut self.stalled, other.stalled);
        add(&mut self.explained, other.explained);
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
    measure: Measure,
    spent: TimeSpent,
}

impl<'a> Examined<'a> {
    /// Bytes of the memory that the frames of a batch are copied to.
    pub const AREA: usize = MOST_BYTES;

    /// Returns an input that measures the time of `input`. Frames are copied into `area`, which has [`Examined::AREA`]
    /// bytes. Frames that do not fit are not copied.
    pub fn new(input: &'a mut dyn Input, area: &'a Mapping, measure: Measure) -> Examined<'a> {
        Examined { input, area, measure, spent: TimeSpent::default() }
    }

    /// Time that the source took until now.
    #[must_use]
    pub fn spent(&self) -> TimeSpent {
        self.spent
    }

    fn time<T>(&mut self, work: impl FnOnce(&mut dyn Input) -> T) -> T {
        let began = (self.measure)();
        let done = work(self.input);
        self.spent.add(TimeSpent::between(began, (self.measure)()));
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

/// Has the kernel bring in the first `bytes` of private memory. They are overwritten.
fn make_resident(area: &Mapping, bytes: usize) {
    const PAGE: usize = 4096;
    for page in (0..bytes.min(area.whole().len())).step_by(PAGE) {
        let _ = area.view(page, 1).is_some_and(|first| first.write(&[0]));
    }
}

impl Input for Examined<'_> {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let Self { input, area, measure, spent } = self;
        let began = measure();
        let collected = input.collect(batch);
        let took = TimeSpent::between(began, measure());
        spent.add(took.explained_by(batch.steps().saturating_mul(STEP)));
        let refused: u64 = batch.refused().map(|(_, frames)| frames).sum();
        spent.add(TimeSpent { frames: batch.len() as u64 + refused, bytes: batch.bytes(), ..TimeSpent::default() });
        make_resident(area, usize::try_from(batch.bytes()).unwrap_or(usize::MAX));
        let began = measure();
        batch.copy_rests_to(area);
        spent.add(TimeSpent::between(began, measure()));
        batch.measure_program(*measure);
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
}
