//! What one end has received: order, gaps, what it owes to the other end.

use std::collections::VecDeque;

use super::number::distance;

/// A message in a buffer, that waits for its turn or for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The buffer, and where the data is in it; `None` for an END.
    pub data: Option<(u32, u32, u32)>,
    /// Fragments of the same message that follow.
    pub remaining: u16,
}

/// What becomes of a message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is the next one: the program may have it at once.
    Next,
    /// It has to wait: [`Receiver::keep`] takes it.
    Early,
    /// It was there before.
    Duplicate,
    /// It is outside the window.
    Outside,
}

/// One end's receiving side: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Receiver {
    /// From `base` on.
    waiting: VecDeque<Option<Arrival>>,
    /// Messages that the program has had.
    had: u64,
    /// The next number for the program.
    base: u32,
    /// Numbers before `base + arrived` have arrived without a gap.
    arrived: u32,
    /// Where the window ends that the other end was told.
    announced: u32,
    capacity: u16,
    /// Messages since the last acknowledgement.
    owed: u16,
    /// An acknowledgement is due at once.
    urgent: bool,
}

impl Receiver {
    /// A side that expects number `first` and takes `capacity` messages that the program has not had.
    pub fn new(first: u32, capacity: u16) -> Self {
        Self {
            base: first,
            arrived: 0,
            waiting: VecDeque::new(),
            capacity,
            announced: first.wrapping_add(capacity.into()),
            owed: 0,
            urgent: false,
            had: 0,
        }
    }

    /// Returns the next number that is expected.
    #[inline]
    pub fn next(&self) -> u32 {
        self.base.wrapping_add(self.arrived)
    }

    /// Returns the number after the last one that has arrived, early or not.
    pub fn end(&self) -> u32 {
        self.base.wrapping_add(self.waiting.len() as u32)
    }

    /// Returns true if the other end's next number can be this one: nothing that it has sent is beyond the window.
    pub fn has_in_window(&self, next: u32) -> bool {
        distance(self.next(), next) <= u32::from(self.capacity).saturating_sub(self.arrived)
    }

    /// Returns how many messages have arrived without a gap.
    pub fn received(&self) -> u64 {
        self.had + u64::from(self.arrived)
    }

    /// Returns true if this is the next number and nothing waits before it.
    #[inline]
    pub fn is_next(&self, number: u32) -> bool {
        number == self.base && self.waiting.is_empty()
    }

    /// Judges a message that has arrived. After `Next` it counts as had by the program unless [`Receiver::keep`] follows.
    #[inline]
    pub fn judge(&mut self, number: u32) -> Taken {
        let ahead = distance(self.base, number);
        if ahead == 0 && self.waiting.is_empty() {
            return Taken::Next;
        }
        self.judge_other(ahead)
    }

    #[cold]
    fn judge_other(&mut self, ahead: u32) -> Taken {
        if ahead >= self.capacity.into() {
            let is_old = ahead >= 1 << 31;
            self.urgent |= is_old;
            return if is_old { Taken::Duplicate } else { Taken::Outside };
        }
        match self.waiting.get(ahead as usize) {
            // It needs no buffer: what waits for it may have taken all.
            Some(None) if ahead == 0 => Taken::Next,
            Some(Some(_)) => {
                self.urgent = true;
                Taken::Duplicate
            }
            _ => Taken::Early,
        }
    }

    /// The program has the message that was judged to be the next one.
    #[inline]
    pub fn passed(&mut self) {
        self.base = self.base.wrapping_add(1);
        self.had += 1;
        self.owed = self.owed.saturating_add(1);
        self.urgent |= self.owed >= (self.capacity / 8).max(1);
        if !self.waiting.is_empty() {
            self.fill();
        }
    }

    /// The program has the next `count` messages. None waits.
    #[inline]
    pub fn passed_many(&mut self, count: u16) {
        self.base = self.base.wrapping_add(count.into());
        self.had += u64::from(count);
        self.owed = self.owed.saturating_add(count);
        self.urgent |= self.owed >= (self.capacity / 8).max(1);
    }

    /// The message that was missing before those that wait has arrived.
    #[cold]
    fn fill(&mut self) {
        self.waiting.pop_front();
        self.urgent = true;
        self.count_arrived();
    }

    fn count_arrived(&mut self) {
        while self.waiting.get(self.arrived as usize).is_some_and(Option::is_some) {
            self.arrived += 1;
        }
    }

    /// Keeps a message that was judged to be the next one or early.
    pub fn keep(&mut self, number: u32, arrival: Arrival) {
        let ahead = distance(self.base, number) as usize;
        let in_order = ahead as u32 == self.arrived;
        // A gap is told at once; so is that one is filled.
        self.urgent |= !in_order || self.waiting.len() > ahead;
        while self.waiting.len() <= ahead {
            self.waiting.push_back(None);
        }
        self.waiting[ahead] = Some(arrival);
        self.count_arrived();
        self.owed = self.owed.saturating_add(1);
        self.urgent |= self.owed >= (self.capacity / 8).max(1);
    }

    /// Takes the next message that waits, if it has arrived.
    pub fn pop(&mut self) -> Option<Arrival> {
        let arrival = self.waiting.front().copied().flatten()?;
        self.waiting.pop_front();
        self.base = self.base.wrapping_add(1);
        self.had += 1;
        self.arrived -= 1;
        // The window opens.
        let left = distance(self.base, self.announced);
        self.urgent |= left < 1 << 31 && left <= u32::from(self.capacity) / 2;
        Some(arrival)
    }

    /// Returns true if a message waits for the program.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.arrived > 0
    }

    /// Returns the messages that wait.
    pub fn waiting(&self) -> impl Iterator<Item = &Arrival> {
        self.waiting.iter().flatten()
    }

    /// Returns all messages that wait, for their buffers.
    pub fn clear(&mut self) -> impl Iterator<Item = Arrival> {
        self.arrived = 0;
        std::mem::take(&mut self.waiting).into_iter().flatten()
    }

    /// An acknowledgement is due at once.
    #[inline]
    pub fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Returns true if an acknowledgement is due at once.
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Returns true if an acknowledgement is owed.
    #[inline]
    pub fn owes(&self) -> bool {
        self.owed > 0 || self.urgent
    }

    /// Returns true if acknowledgement and window say everything of this side.
    #[inline]
    pub fn is_told_briefly(&self) -> bool {
        self.waiting.len() as u32 <= self.arrived
    }

    /// Returns what a frame says of this side, which then owes nothing: acknowledgement, window, selective.
    #[inline]
    pub fn tell(&mut self) -> (u32, u16, u64) {
        self.owed = 0;
        self.urgent = false;
        let next = self.next();
        let window = u32::from(self.capacity) - self.arrived.min(self.capacity.into());
        self.announced = next.wrapping_add(window);
        let selective = if self.is_told_briefly() { 0 } else { self.word(0) };
        (next, window as u16, selective)
    }

    /// Returns the words of the selective acknowledgement behind the first one.
    pub fn further(&self) -> impl Iterator<Item = u64> {
        let beyond = (self.waiting.len() as u32).saturating_sub(self.arrived + 1);
        (1..beyond.div_ceil(64).min(65)).map(|word| self.word(word))
    }

    #[cold]
    fn word(&self, word: u32) -> u64 {
        let first = (self.arrived + 1 + 64 * word) as usize;
        let bits = self.waiting.iter().skip(first).take(64).zip(0..);
        bits.fold(0, |bits, (arrival, bit)| bits | u64::from(arrival.is_some()) << bit)
    }
}
