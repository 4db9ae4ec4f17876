//! Fair shares of a receiver that is slower than its senders and has no limit: by bytes and weight, as for a limit.
//!
//! While a receiver loses frames for lack of room, the delivered bytes of each sender, divided by its weight, are
//! recorded. A sender may be ahead of the least served one by a quantum at most. Frames beyond that are dropped as if
//! the receiver had no room, so the room is left to the other senders. Only senders that lost frames recently and send
//! again at once count as waiting for their share; others have all they want. A loss counts for a time and not until
//! the next batch, because a receiver that frees much room at once may take a whole batch. So the room goes to the
//! senders that use it, and frame sizes, batch sizes and the order of polling make no difference. If the receiver
//! reports its free room, the last part is reserved for the least served senders, so that a sender of few frames finds
//! room. A sender that paused briefly catches up.
//!
//! Each queue of a receiver is shared separately, among the senders of frames for that queue. A slow or stopped queue
//! does not affect senders to other queues.
//!
//! The tokens that a port borrows from a shared bucket are shared among its senders in the same way, because their
//! amount is not known in advance. A sender may have to wait there. Until it is due again it counts as one that lost
//! frames. It may come back with other frames, or with none: so the tokens that nearly fill the bucket are for every
//! sender, and a sender that takes nothing no longer counts after a while. The quantum is there at least what comes while
//! a sender waits: with less, all senders together would use less than the bucket gains.
//!
//! A receiver that is fast enough costs its senders two loads a batch.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::rule::Rule;
use crate::frame::{Account, Sender};

/// Nanoseconds after a loss for which a receiver counts as congested. This is longer than a poller may wait for its
/// processor: during such a wait no frames are lost and the receiver frees room.
const CONGESTED_NS: u64 = 100_000_000;
/// Nanoseconds after which an idle sender is removed. Also the interval over which a receiver's rate is measured.
const MEMORY_NS: u64 = 10_000_000;
/// One part in this many of a receiver's room is reserved for senders that are not ahead.
const HEADROOM: usize = 8;
/// Nanoseconds for which the reserve is kept after a second sender appeared.
const COMPETITION_NS: u64 = 10_000_000_000;
/// If the reserved room does not grow for this many nanoseconds, the present sender may use it: some drivers post no
/// more buffers before all are used.
const STALLED_NS: u64 = 1_000_000;
/// Nanoseconds after a delivery for which a sender counts as backlogged, and the time to add for each sender, because a
/// poller serves all senders between two batches of one. An occasional sender is not backlogged and delays no other.
/// While no sender is served (the poller waits for its processor), at most [`BACKLOGGED_NS`] of this time passes.
const BACKLOGGED_NS: u64 = 100_000;
const TURN_NS: u64 = 30_000;
/// Nanoseconds after a loss for which a backlogged sender counts as one that loses frames. This is longer than senders
/// take to refill an emptied ring, because they lose nothing during that time.
const RECENT_LOSS_NS: u64 = 1_000_000;
/// Nanoseconds for which a sender counts as waiting without taking anything.
const IN_VAIN_NS: u64 = 100_000_000;
/// Bytes at weight 1 by which a sender may be ahead of another: a part of what the receiver takes in [`MEMORY_NS`], within
/// these bounds.
const QUANTUM: std::ops::RangeInclusive<u64> = 2048..=65_536;
const PART: u64 = 32;
/// Quanta by which a sender may be behind and catch up after a wait for the processor, and the most bytes.
const MAX_LAG_QUANTA: u64 = 16;
const MAX_LAG_BYTES: u64 = 4 * *QUANTUM.end();
/// Senders for which memory is allocated together with the receiver, so that pollers do not allocate. More senders
/// cause an allocation once.
const SENDERS: usize = 16;
/// Delivered bytes count in 1/1024 bytes, because they are divided by weights.
const SCALE: u64 = 1 << 10;

/// The senders of a receiver, and their shares while it is congested.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// Time until which the receiver counts as congested.
    until: AtomicU64,
    /// Time until which the receiver gets no frames.
    paused_until: AtomicU64,
    /// By queue number.
    queues: Mutex<Vec<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Time until which this queue counts as congested.
    until: u64,
    senders: Vec<SenderState>,
    /// Time of the last delivery of any sender, and the serving time counted up to then.
    served: u64,
    spent: u64,
    /// Bytes taken since `since`, and the present quantum in bytes.
    taken: u64,
    since: u64,
    quantum: u64,
    /// The last [`Room::worth`].
    worth: u64,
    /// The most free room seen during this congestion: a driver may never post more.
    most_free: usize,
    /// The free room while it is reserved, and the time since which it has not grown.
    kept: Option<(usize, u64)>,
    /// The last sender, and the time when the sender last changed.
    last: Option<Account>,
    competition: Option<u64>,
}

/// What a receiver can take now, in its own unit (slots or bytes).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) free: usize,
    /// The largest possible value of `free`. A driver may never post that much.
    pub(crate) of: usize,
    /// True if unused room accumulates, up to `of`.
    pub(crate) adds_up: bool,
    /// The usual size of a frame.
    pub(crate) frame: usize,
    /// Bytes that come while a sender waits for its next visit: a sender may be ahead by that much. 0: senders do not
    /// wait.
    pub(crate) worth: u64,
}

#[derive(Debug)]
struct SenderState {
    account: Account,
    /// Delivered bytes divided by its weight, in units of 1/[`SCALE`] byte.
    delivered: u64,
    /// Time of its last delivery.
    seen: u64,
    /// Serving time ([`Queue::spent`]) at its last delivery, and at its last loss.
    spent: u64,
    lost: Option<u64>,
    /// Time until which it counts as waiting for a shared bucket.
    back: u64,
    /// Time of its first wait since its last delivery.
    in_vain: Option<u64>,
}

impl Default for Congestion {
    fn default() -> Self {
        let first = Queue { senders: Vec::with_capacity(SENDERS), ..Queue::default() };
        Self { until: AtomicU64::new(0), paused_until: AtomicU64::new(0), queues: Mutex::new(vec![first]) }
    }
}

impl Congestion {
    /// Returns true while the receiver counts as congested, so that shares apply.
    #[inline]
    pub(crate) fn is_on(&self, now: u64) -> bool {
        now < self.until.load(Ordering::Relaxed)
    }

    /// Gives the receiver no frames before `until`. It counts as congested until then.
    #[cold]
    pub(crate) fn set_aside(&self, until: u64) {
        self.paused_until.fetch_max(until, Ordering::Relaxed);
        self.until.fetch_max(until, Ordering::Release);
    }

    /// Counts the receiver as congested until this is called with false. By one thread at a time.
    pub(crate) fn divert(&self, on: bool) {
        if on {
            self.until.store(u64::MAX, Ordering::Relaxed);
        } else {
            // Who set the receiver aside before this is seen below; who does so later counts it as congested himself.
            self.until.swap(0, Ordering::Acquire);
            self.until.fetch_max(self.paused_until.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns true if the receiver gets no frames now. Only meaningful while it [counts as congested](Self::is_on).
    pub(crate) fn is_aside(&self, now: u64) -> bool {
        now < self.paused_until.load(Ordering::Relaxed)
    }

    /// Begins congestion: `from` delivered `bytes` bytes to a receiver that was not congested, and lost some. With
    /// several queues the next losses show which queue is congested.
    #[cold]
    pub(crate) fn begin(&self, from: Sender, bytes: u64, now: u64) {
        if self.queues().len() == 1 {
            self.served(from, 0, bytes, true, now);
        } else {
            self.lost(now);
        }
    }

    fn lost(&self, now: u64) {
        self.until.fetch_max(now.saturating_add(CONGESTED_NS), Ordering::Relaxed);
    }

    /// Returns the bytes that `from` may deliver now (the last frame may go beyond), and how much of the room it may
    /// use. The next frame takes `takes` of it.
    pub(crate) fn most(&self, from: Sender, queue: u8, room: Option<Room>, takes: usize, now: u64) -> (u64, u64) {
        let mut queues = self.queues();
        let queue = queue_of(&mut queues, queue);
        if now >= queue.until {
            queue.most_free = 0;
            return (u64::MAX, u64::MAX);
        }
        let headroom = room.as_ref().map_or(0, |room| queue.headroom(room));
        queue.worth = room.as_ref().map_or(0, |room| room.worth);
        let has_competition = queue.has_competition(now);
        queue.spend(now);
        let least = queue.least_of_backlogged(from.account, now);
        let least_of_all = queue.least_of_others(from.account, |other| now.saturating_sub(other.seen) < MEMORY_NS);
        let sender = queue.sender(from.account, least.unwrap_or(0), now);
        let (is_ahead, delivered) =
            (least_of_all.map_or(has_competition, |least| sender.delivered > least), sender.delivered);
        let some = match room {
            Some(room) if is_ahead => {
                let some = room.free.saturating_sub(headroom);
                // The reserve is for the other senders. If no other sender came and the room does not grow, this one may use it. A frame
                // that needs all would never pass: if all is free for a while, it may, once. Then another sender finds room for a while.
                let is_small = room.free <= headroom && least_of_all.is_none();
                let needs_all = some < takes && takes <= room.free && room.free >= queue.most_free;
                match (is_small || needs_all) && queue.is_stalled(room.free, now) {
                    true if is_small => u64::MAX,
                    true => {
                        queue.kept = None;
                        takes as u64
                    }
                    false => some as u64,
                }
            }
            _ => u64::MAX,
        };
        let Some(least) = least else { return (u64::MAX, some) };
        let quantum = queue.quantum() * SCALE;
        let share = least.saturating_add(quantum).saturating_sub(delivered).saturating_mul(from.weight.into()) / SCALE;
        // Tokens that nearly fill the bucket are not used by the senders that wait for them.
        let full = |room: &Room| room.of - room.of / HEADROOM;
        let spare = room.filter(|room| room.adds_up).map_or(0, |room| room.free.saturating_sub(full(&room)));
        (share.max(spare as u64), some)
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `from` delivered `bytes` bytes to a queue. `lost`: it lost frames, too.
    #[cold]
    pub(crate) fn served(&self, from: Sender, queue: u8, bytes: u64, lost: bool, now: u64) {
        let mut queues = self.queues();
        let queue = queue_of(&mut queues, queue);
        if lost {
            self.lost(now);
            queue.until = now.saturating_add(CONGESTED_NS);
        }
        if now >= queue.until {
            return;
        }
        queue.note(from.account, now);
        queue.spend(now);
        queue.take(bytes, now);
        let (least, spent) = (queue.least_of_backlogged(from.account, now).unwrap_or(0), queue.spent);
        // A sender that sent less or paused may catch up only this far.
        let behind = (MAX_LAG_QUANTA * queue.quantum()).min(MAX_LAG_BYTES.max(queue.worth)) * SCALE;
        let sender = queue.sender(from.account, least, now);
        sender.delivered = sender.delivered.max(least.saturating_sub(behind));
        // Wraps after months. The line above then brings the sender up to the others.
        sender.delivered = sender.delivered.wrapping_add(bytes * SCALE / u64::from(from.weight.max(1)));
        (sender.seen, sender.spent) = (now, spent);
        if bytes > 0 {
            sender.in_vain = None;
        }
        if lost {
            sender.lost = Some(spent);
        }
    }

    /// Notes that `from` waits until `until` for a queue to take more.
    #[cold]
    pub(crate) fn waits(&self, from: Sender, queue: u8, until: u64, now: u64) {
        let mut queues = self.queues();
        if queue_of(&mut queues, queue).waits_in_vain(from.account, now) {
            return;
        }
        drop(queues);
        self.served(from, queue, 0, true, now);
        let mut queues = self.queues();
        // Doubled, because pollers may be late. Bounded, because a sender that waits long may be gone.
        let wait = until.saturating_sub(now).min(MEMORY_NS);
        let sender = queue_of(&mut queues, queue).sender(from.account, 0, now);
        sender.back = now.saturating_add(2 * wait);
        sender.in_vain.get_or_insert(now);
    }
}

impl Rule for Congestion {
    /// Shares concern delivered frames only. Frames that the limit refuses are not delivered.
    fn may_drop_unread(&self) -> bool {
        true
    }
}

fn queue_of(queues: &mut Vec<Queue>, number: u8) -> &mut Queue {
    let number = usize::from(number);
    if queues.len() <= number {
        queues.resize_with(number + 1, Queue::default);
    }
    &mut queues[number]
}

impl Queue {
    /// The part of the room that is reserved for senders that are not ahead.
    fn headroom(&mut self, room: &Room) -> usize {
        self.most_free = self.most_free.max(room.free);
        let most = if room.adds_up { room.of } else { self.most_free.min(room.of) };
        (most / HEADROOM).max(room.frame.min(most / 2))
    }

    /// Bytes at weight 1 by which a sender may be ahead of another.
    fn quantum(&self) -> u64 {
        self.quantum.max(*QUANTUM.start()).max(self.worth)
    }

    /// Returns true if the free room has not grown for [`STALLED_NS`].
    fn is_stalled(&mut self, free: usize, now: u64) -> bool {
        let since = self.kept.filter(|(before, _)| free <= *before).map_or(now, |(_, since)| since);
        self.kept = Some((free, since));
        now.saturating_sub(since) >= STALLED_NS
    }

    /// Returns true if `account` has waited for [`IN_VAIN_NS`] without taking anything.
    fn waits_in_vain(&self, account: Account, now: u64) -> bool {
        let since = self.senders.iter().find(|sender| sender.account == account).and_then(|sender| sender.in_vain);
        since.is_some_and(|since| now.saturating_sub(since) >= IN_VAIN_NS)
    }

    /// Notes that `account` sends.
    fn note(&mut self, account: Account, now: u64) {
        if self.last.replace(account).is_some_and(|last| last != account) {
            self.competition = Some(now);
        }
    }

    /// Returns true if several senders were present recently.
    fn has_competition(&self, now: u64) -> bool {
        self.competition.is_some_and(|then| now.saturating_sub(then) < COMPETITION_NS)
    }

    /// Counts the serving time until now.
    fn spend(&mut self, now: u64) {
        self.spent += now.saturating_sub(self.served).min(BACKLOGGED_NS);
        self.served = self.served.max(now);
    }

    /// The least delivered by any other sender that lost frames recently and is backlogged.
    fn least_of_backlogged(&self, account: Account, now: u64) -> Option<u64> {
        let at_once = BACKLOGGED_NS + TURN_NS * self.senders.len() as u64;
        let lately =
            |other: &SenderState| other.lost.is_some_and(|lost| self.spent - lost < RECENT_LOSS_NS.max(at_once));
        self.least_of_others(account, |other| now < other.back || lately(other) && self.spent - other.spent < at_once)
    }

    /// The least delivered by any other sender for which `count` returns true.
    fn least_of_others(&self, account: Account, count: impl Fn(&SenderState) -> bool) -> Option<u64> {
        self.senders.iter().filter(|other| other.account != account && count(other)).map(|other| other.delivered).min()
    }

    /// The record of the sender `account`. A new one begins with `least` delivered.
    fn sender(&mut self, account: Account, least: u64, now: u64) -> &mut SenderState {
        let place = self.senders.iter().position(|sender| sender.account == account).unwrap_or_else(|| {
            // A sender that waited in vain does not begin anew by a pause.
            let is_kept = |sender: &SenderState| {
                let memory = if sender.in_vain.is_some() { COMPETITION_NS } else { MEMORY_NS };
                now.saturating_sub(sender.seen) < memory
            };
            self.senders.retain(is_kept);
            self.senders.push(SenderState {
                account,
                delivered: least,
                seen: now,
                spent: 0,
                lost: None,
                back: 0,
                in_vain: None,
            });
            self.senders.len() - 1
        });
        &mut self.senders[place]
    }

    fn take(&mut self, bytes: u64, now: u64) {
        self.taken += bytes;
        if now.saturating_sub(self.since) >= MEMORY_NS {
            self.quantum = (self.taken / PART).clamp(*QUANTUM.start(), *QUANTUM.end());
            (self.taken, self.since) = (0, now);
        }
    }
}
