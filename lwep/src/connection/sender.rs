//! What one end has sent and will send: numbers, acknowledgements, loss, how much may be under way.

use super::number::{Nanos, SECOND, distance, is_before};
use super::queue::Queue;
use super::round_trip::RoundTrip;

/// Messages under way at first, after a timeout, and at least.
const FIRST_WINDOW: u32 = 64;
const LEAST_WINDOW: u32 = 4;
/// A message is lost if so many that were sent after it have arrived.
const REORDERING: u64 = 3;
/// No answer for so long, and so many timeouts, end the connection.
const PATIENCE: Nanos = 300 * SECOND;
const MOST_TIMEOUTS: u32 = 8;
/// A timeout counts for no longer silence: the clock may have jumped.
const LONGEST_STEP: Nanos = 10 * SECOND;

/// Where the data of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The buffer.
    pub slot: u32,
    /// Which message of the buffer.
    pub index: u16,
    /// Fragments of the same message that follow.
    pub remaining: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not sent yet.
    Waiting,
    /// Under way.
    Sent,
    /// To be sent again.
    Lost,
    /// Has arrived.
    Arrived,
}

/// What a side still takes from its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// Messages.
    All,
    /// What is missing of a long message.
    Fragments,
    /// Nothing: END is queued.
    Nothing,
}

/// A message that is not acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its data; `None` for an END.
    pub part: Option<Part>,
    state: State,
    is_repeated: bool,
    /// Which transmission it was, and when.
    order: u64,
    at: Nanos,
}

/// What a frame acknowledges.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement<'a> {
    /// The next number that the other end expects.
    pub next: u32,
    /// Messages from there on that it can take.
    pub window: u16,
    /// Bit i: number `next + 1 + i` has arrived.
    pub selective: u64,
    /// The field goes on, eight bytes for each further 64 numbers.
    pub further: &'a [u8],
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// It acknowledges what was never sent.
    Invalid,
    /// It is older than one that came before.
    Old,
    /// It is valid.
    Valid,
}

/// What the endpoint does when the timer has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedOut {
    /// Messages are lost: send.
    Send,
    /// Ask for the window.
    Probe,
    /// The other end is not there any more.
    GiveUp,
}

/// One end's sending side. What every message needs comes first, in two cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Sender {
    /// From `oldest` on.
    entries: Queue<Entry>,
    /// The oldest number that is not acknowledged.
    oldest: u32,
    /// How many of the entries, from the front, were sent at least once.
    transmitted: u32,
    in_flight: u32,
    lost: u32,
    /// No entry before this one is lost.
    lost_from: u32,
    /// The other end takes numbers before this one.
    window_end: u32,
    /// Most messages under way; above the threshold it grows slowly.
    most: u32,
    threshold: u32,
    growth: u32,
    /// Probes since the window was last open.
    probes: u16,
    takes: Takes,
    /// Transmissions, and the last one that has arrived.
    order: u64,
    arrived_order: u64,
    /// When the timer began.
    since: Nanos,
    /// When something came from the other end.
    heard: Nanos,
    /// Messages that were acknowledged without a gap.
    acknowledged: u64,
    trip: RoundTrip,
    /// Before the last timeout: the window, its threshold, and the last transmission. An acknowledgement of one of those transmissions
    /// tells that nothing was lost.
    before_timeout: Option<(u32, u32, u64)>,
    /// Losses before this number have halved the window.
    halved_until: u32,
    /// How long timeouts have passed without an answer.
    silence: Nanos,
}

const _: () = assert!(std::mem::offset_of!(Sender, order) == 64 && std::mem::offset_of!(Sender, before_timeout) == 128);

impl Sender {
    /// A side whose first message will have number `first`, and whose other end takes `window` messages.
    pub fn new(first: u32, window: u16, now: Nanos) -> Self {
        Self {
            oldest: first,
            entries: Queue::default(),
            transmitted: 0,
            in_flight: 0,
            lost: 0,
            lost_from: first,
            window_end: first.wrapping_add(window.into()),
            most: FIRST_WINDOW,
            threshold: u32::MAX,
            growth: 0,
            before_timeout: None,
            halved_until: first,
            order: 0,
            arrived_order: 0,
            trip: RoundTrip::default(),
            probes: 0,
            since: now,
            heard: now,
            silence: 0,
            takes: Takes::All,
            acknowledged: 0,
        }
    }

    /// Returns the oldest number that is not acknowledged.
    #[inline]
    pub fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Returns the next number that will be sent for the first time.
    #[inline]
    pub fn next(&self) -> u32 {
        self.oldest.wrapping_add(self.transmitted)
    }

    /// Returns the number of the next message that will be queued.
    #[inline]
    pub fn end(&self) -> u32 {
        self.oldest.wrapping_add(self.entries.len() as u32)
    }

    /// Returns how many messages are not acknowledged.
    #[inline]
    pub fn queued(&self) -> usize {
        self.entries.len()
    }

    /// Returns how many messages were never sent.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.entries.len() - self.transmitted as usize
    }

    /// Returns how many messages were acknowledged without a gap.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns how many messages come before the one with this number, which is not acknowledged.
    pub fn count_to(&self, number: u32) -> u64 {
        self.acknowledged + u64::from(distance(self.oldest, number))
    }

    /// The other end has accepted the connection, and takes `window` messages.
    pub fn open(&mut self, window: u16, now: Nanos) {
        self.window_end = self.oldest.wrapping_add(window.into());
        (self.since, self.heard) = (now, now);
        self.trip.answered();
    }

    /// An answer did not come in time.
    pub fn back_off(&mut self) {
        self.trip.back_off();
    }

    /// Returns all messages that were queued, the oldest first.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        self.entries.iter().filter_map(|entry| entry.part)
    }

    /// Returns the measured round trips.
    pub fn trip(&self) -> &RoundTrip {
        &self.trip
    }

    /// Returns true if END is queued.
    pub fn is_ended(&self) -> bool {
        self.takes == Takes::Nothing
    }

    /// Returns true if a long message is queued in part.
    pub fn is_in_message(&self) -> bool {
        self.takes == Takes::Fragments
    }

    /// Queues a message, or the END (`None`). Returns its number.
    #[inline]
    pub fn queue(&mut self, part: Option<Part>, now: Nanos) -> u32 {
        let number = self.end();
        if self.entries.is_empty() {
            self.since = now;
        }
        self.takes = match part {
            None => Takes::Nothing,
            Some(Part { remaining: 1.., .. }) => Takes::Fragments,
            Some(_) => Takes::All,
        };
        self.entries.push_back(Entry { part, state: State::Waiting, is_repeated: false, order: 0, at: 0 });
        number
    }

    /// Returns true if a message that is queued now could be sent at once, and the queue of at most `most` has room for it.
    #[inline]
    pub fn may_send_at_once(&self, most: usize) -> bool {
        let queued = self.entries.len();
        self.lost == 0
            && self.in_flight < self.most
            && self.transmitted as usize == queued
            && queued < most
            && self.takes == Takes::All
            && is_before(self.next(), self.window_end)
    }

    /// The same for `count` messages.
    pub fn may_send_many_at_once(&self, count: usize, most: usize) -> bool {
        let queued = self.entries.len();
        let room = self.most.saturating_sub(self.in_flight).min(self.window());
        self.lost == 0
            && self.transmitted as usize == queued
            && queued + count <= most
            && count <= room as usize
            && self.takes == Takes::All
    }

    /// Queues the `count` messages of a buffer, which are sent now.
    pub fn sent_many_at_once(&mut self, slot: u32, count: u16, now: Nanos) {
        let order = self.order + 1;
        self.entries.extend(count.into(), |index| Entry {
            part: Some(Part { slot, index: index as u16, remaining: 0 }),
            state: State::Sent,
            is_repeated: false,
            order: order + index as u64,
            at: now,
        });
        if self.in_flight == 0 {
            self.since = now;
        }
        self.order += u64::from(count);
        self.in_flight += u32::from(count);
        self.transmitted += u32::from(count);
    }

    /// Queues a message that is sent now.
    #[inline]
    pub fn sent_at_once(&mut self, part: Part, now: Nanos) {
        self.order += 1;
        let entry = Entry { part: Some(part), state: State::Sent, is_repeated: false, order: self.order, at: now };
        self.entries.push_back(entry);
        if self.in_flight == 0 {
            self.since = now;
        }
        self.in_flight += 1;
        self.transmitted += 1;
    }

    /// Returns the number that can be sent next, if one can: a lost one, or a new one inside the windows.
    #[inline]
    pub fn sendable(&mut self) -> Option<u32> {
        if self.in_flight >= self.most {
            return None;
        }
        if self.lost > 0 {
            return self.first_lost();
        }
        let next = self.next();
        let is_new = (self.transmitted as usize) < self.entries.len() && is_before(next, self.window_end);
        is_new.then_some(next)
    }

    /// Returns how many messages that are sent next can be sent together: from the message with this number on, they are in one buffer
    /// one after the other, all are new or all are lost, and their numbers have the same upper 16 bits. What was repeated and is lost
    /// again goes alone: some devices cut buffers into what no receiver takes.
    pub fn run(&self, number: u32) -> usize {
        let at = distance(self.oldest, number) as usize;
        let Some(Entry { part: Some(first), state, is_repeated: false, .. }) = self.entries.get(at) else { return 1 };
        let follows = |index: &usize| {
            let entry = self.entries.get(at + index);
            let entry = entry.filter(|entry| entry.state == *state && !entry.is_repeated);
            entry.and_then(|entry| entry.part).is_some_and(|part| {
                part.slot == first.slot && usize::from(part.index) == usize::from(first.index) + index
            })
        };
        let most = (1 << 16) - (number & 0xffff) as usize;
        (0..most).take_while(follows).count()
    }

    /// Returns how many messages from the one with this number on the windows let out now.
    pub fn room(&self, number: u32) -> u32 {
        let room = self.most.saturating_sub(self.in_flight);
        if self.is_new(number) { room.min(self.window()) } else { room }
    }

    #[cold]
    fn first_lost(&mut self) -> Option<u32> {
        let from = distance(self.oldest, self.lost_from) as usize;
        let is_lost = |index: &usize| self.entries.get(*index).is_some_and(|entry| entry.state == State::Lost);
        let at = (from..self.transmitted as usize).find(is_lost)?;
        self.lost_from = self.oldest.wrapping_add(at as u32);
        Some(self.lost_from)
    }

    /// Returns true if the message with this number was never sent.
    #[inline]
    pub fn is_new(&self, number: u32) -> bool {
        distance(self.oldest, number) >= self.transmitted
    }

    /// Returns true if nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Returns how many new messages the other end takes.
    pub fn window(&self) -> u32 {
        if is_before(self.next(), self.window_end) { distance(self.next(), self.window_end) } else { 0 }
    }

    /// Returns the message with this number.
    #[inline]
    pub fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(distance(self.oldest, number) as usize)
    }

    /// The message with this number, from [`Sender::sendable`], is sent now.
    #[inline]
    pub fn sent(&mut self, number: u32, now: Nanos) {
        let index = distance(self.oldest, number);
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        if entry.state == State::Lost {
            self.lost -= 1;
            entry.is_repeated = true;
        }
        self.order += 1;
        (entry.state, entry.order, entry.at) = (State::Sent, self.order, now);
        if self.in_flight == 0 {
            self.since = now;
        }
        self.in_flight += 1;
        self.transmitted = self.transmitted.max(index + 1);
    }

    /// Something came from the other end.
    #[inline]
    pub fn hear(&mut self, now: Nanos) {
        self.heard = now;
        self.trip.answered();
    }

    /// Returns true if an acknowledgement says nothing but that messages have arrived in order, and nothing waits for it.
    #[inline]
    pub fn is_usual(&self, next: u32) -> bool {
        self.lost == 0
            && self.transmitted as usize == self.entries.len()
            && distance(self.oldest, next) <= self.transmitted
            && self.takes == Takes::All
    }

    /// Takes an acknowledgement. Calls `free` with the data of each message that has arrived.
    #[inline]
    pub fn acknowledge(&mut self, ack: &Acknowledgement<'_>, now: Nanos, mut free: impl FnMut(Part)) -> Acknowledged {
        let count = distance(self.oldest, ack.next);
        if count == 0 && ack.selective == 0 && ack.further.is_empty() {
            // Nothing new but, perhaps, the window.
            self.heard = self.heard.max(now);
            self.trip.answered();
            let end = ack.next.wrapping_add(ack.window.into());
            if is_before(self.window_end, end) {
                self.window_end = end;
                self.probes = 0;
            }
            return Acknowledged::Valid;
        }
        if count > self.transmitted {
            let is_old = distance(ack.next, self.oldest) < 1 << 16;
            return if is_old { Acknowledged::Old } else { Acknowledged::Invalid };
        }
        self.heard = self.heard.max(now);
        self.trip.answered();
        let end = ack.next.wrapping_add(ack.window.into());
        if is_before(self.window_end, end) {
            self.window_end = end;
            self.probes = 0;
        }
        let mut arrived = 0;
        if count > 0 {
            let (mut sample, mut was_early) = (None, false);
            for _ in 0..count {
                let Some(entry) = self.entries.pop_front() else { break };
                match entry.state {
                    State::Sent => {
                        arrived += 1;
                        self.in_flight -= 1;
                        self.arrived_order = self.arrived_order.max(entry.order);
                        sample = if entry.is_repeated { sample } else { Some(entry.at) };
                    }
                    State::Lost => {
                        arrived += 1;
                        self.lost -= 1;
                        was_early |= self.before_timeout.is_some_and(|(.., order)| entry.order <= order);
                    }
                    State::Waiting | State::Arrived => {}
                }
                if entry.state != State::Arrived {
                    entry.part.into_iter().for_each(&mut free);
                }
            }
            self.oldest = ack.next;
            self.acknowledged += u64::from(count);
            self.transmitted -= count;
            self.since = now;
            if is_before(self.lost_from, self.oldest) {
                self.lost_from = self.oldest;
            }
            if is_before(self.halved_until, self.oldest) {
                self.halved_until = self.oldest;
            }
            if let Some(at) = sample {
                self.trip.sample(now.saturating_sub(at));
            }
            if was_early {
                self.undo_timeout();
            }
        }
        if ack.selective != 0 || !ack.further.is_empty() {
            match self.acknowledge_selectively(ack, free) {
                Some(some) => arrived += some,
                None => return Acknowledged::Invalid,
            }
            self.find_lost();
        }
        self.grow(arrived);
        Acknowledged::Valid
    }

    /// The timeout came too early: what it took for lost is under way.
    #[cold]
    fn undo_timeout(&mut self) {
        let Some((most, threshold, order)) = self.before_timeout.take() else { return };
        (self.most, self.threshold) = (self.most.max(most), self.threshold.max(threshold));
        for index in 0..self.transmitted as usize {
            let Some(entry) = self.entries.get_mut(index) else { break };
            if entry.state == State::Lost && entry.order <= order {
                entry.state = State::Sent;
                self.lost -= 1;
                self.in_flight += 1;
            }
        }
    }

    /// Returns how many messages have arrived beyond a gap, or `None` if one of them was never sent.
    #[cold]
    fn acknowledge_selectively(&mut self, ack: &Acknowledgement<'_>, mut free: impl FnMut(Part)) -> Option<u32> {
        let mut arrived = 0;
        let words = ack.further.as_chunks().0.iter().map(|bytes| u64::from_be_bytes(*bytes));
        for (word, first) in std::iter::once(ack.selective).chain(words).take(65).zip((1..).step_by(64)) {
            let mut left = word;
            while left != 0 {
                let index = first + left.trailing_zeros();
                left &= left - 1;
                if index >= self.transmitted {
                    return None;
                }
                let entry = self.entries.get_mut(index as usize)?;
                match entry.state {
                    State::Sent => {
                        self.in_flight -= 1;
                        self.arrived_order = self.arrived_order.max(entry.order);
                    }
                    State::Lost => self.lost -= 1,
                    State::Waiting | State::Arrived => continue,
                }
                entry.state = State::Arrived;
                arrived += 1;
                entry.part.into_iter().for_each(&mut free);
            }
        }
        Some(arrived)
    }

    /// Finds messages that are lost because later ones have arrived.
    fn find_lost(&mut self) {
        let mut first = None;
        for index in 0..self.transmitted {
            let Some(entry) = self.entries.get_mut(index as usize) else { break };
            if entry.state == State::Sent && entry.order + REORDERING <= self.arrived_order {
                entry.state = State::Lost;
                self.in_flight -= 1;
                self.lost += 1;
                first.get_or_insert(index);
            }
        }
        let Some(first) = first else { return };
        let number = self.oldest.wrapping_add(first);
        if is_before(number, self.lost_from) {
            self.lost_from = number;
        }
        if !is_before(number, self.halved_until) {
            self.most = ((self.in_flight + self.lost) / 2).max(LEAST_WINDOW);
            self.threshold = self.most;
            self.halved_until = self.next();
        }
    }

    #[inline]
    fn grow(&mut self, arrived: u32) {
        if self.most < self.threshold {
            // Not beyond what is used.
            if self.in_flight + arrived >= self.most / 2 {
                self.most = self.most.saturating_add(arrived).min(1 << 16);
            }
        } else {
            self.growth += arrived;
            if self.growth >= self.most {
                (self.growth, self.most) = (0, (self.most + 1).min(1 << 16));
            }
        }
    }

    /// Returns a time before which the timer cannot expire.
    #[inline]
    pub fn earliest(&self) -> Nanos {
        self.since.saturating_add(RoundTrip::LEAST)
    }

    /// Returns when the timer expires, if it runs.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        (!self.entries.is_empty()).then(|| {
            let timeout = (self.trip.timeout() << self.probes.min(16)).min(SECOND);
            self.since.saturating_add(timeout)
        })
    }

    /// The timer has expired.
    pub fn time_out(&mut self, now: Nanos) -> TimedOut {
        if self.trip.timeouts() == 0 {
            self.silence = 0;
        }
        self.silence += now.saturating_sub(self.since).min(LONGEST_STEP);
        if self.trip.timeouts() >= MOST_TIMEOUTS && self.silence >= PATIENCE {
            return TimedOut::GiveUp;
        }
        self.trip.back_off();
        self.since = now;
        if self.in_flight == 0 && self.lost == 0 {
            self.probes = self.probes.saturating_add(1);
            return TimedOut::Probe;
        }
        // A second timeout in a row leaves no doubt.
        let is_first = self.trip.timeouts() == 1;
        self.before_timeout = is_first.then_some((self.most, self.threshold, self.order));
        for index in 0..self.transmitted as usize {
            let Some(entry) = self.entries.get_mut(index) else { break };
            if entry.state == State::Sent {
                entry.state = State::Lost;
                self.lost += 1;
            }
        }
        self.threshold = (self.in_flight / 2).max(LEAST_WINDOW).min(self.threshold);
        self.in_flight = 0;
        self.lost_from = self.oldest;
        self.most = LEAST_WINDOW;
        self.growth = 0;
        self.halved_until = self.next();
        TimedOut::Send
    }

    /// Returns when something last came from the other end.
    pub fn heard(&self) -> Nanos {
        self.heard
    }

    /// Returns the data of the messages that have not arrived, as far as this end knows.
    pub fn unacknowledged(&self) -> impl Iterator<Item = Part> {
        self.entries.iter().filter(|entry| entry.state != State::Arrived).filter_map(|entry| entry.part)
    }

    /// Checks the counts.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&self) -> Result<(), String> {
        let count = |state| self.entries.iter().filter(|entry| entry.state == state).count() as u32;
        let waiting = self.entries.iter().skip(self.transmitted as usize);
        let is_right = count(State::Sent) == self.in_flight
            && count(State::Lost) == self.lost
            && count(State::Waiting) == waiting.count() as u32
            && self.transmitted as usize <= self.entries.len();
        if is_right { Ok(()) } else { Err(format!("wrong counts: {self:?}")) }
    }

    /// Takes all messages out. Calls `free` with the data of each that has not arrived.
    pub fn clear(&mut self, mut free: impl FnMut(Part)) {
        while let Some(entry) = self.entries.pop_front() {
            if entry.state != State::Arrived {
                entry.part.into_iter().for_each(&mut free);
            }
        }
        (self.transmitted, self.in_flight, self.lost) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_halves_the_window_however_many_messages_came_before_it() {
        let mut sender = Sender::new(0, 1_000, 0);
        // As if so many messages had come and gone.
        for oldest in [1 << 30, (1 << 31) + 10] {
            (sender.oldest, sender.window_end) = (oldest, oldest + 1_000);
            for _ in 0..20 {
                let number = sender.queue(None, 0);
                sender.sent(number, 0);
            }
            let ack = Acknowledgement { next: oldest + 10, window: 1_000, selective: 0, further: &[] };
            sender.acknowledge(&ack, 1, |_| {});
            if oldest > 1 << 30 {
                let most = sender.most;
                sender.acknowledge(&Acknowledgement { selective: 0xf0, ..ack }, 1, |_| {});
                assert!(sender.lost > 0 && sender.most < most, "{} {}", sender.lost, sender.most);
            }
            sender.clear(|_| {});
        }
    }
}
