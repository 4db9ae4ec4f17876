//! Shares of a receiver that takes less than it is sent, without any limit: by bytes and weight, as of a limit.
//!
//! While a receiver loses frames for want of room, each sender that loses some is noted with what it had, divided by its
//! weight. None may be ahead of the one that had least by more than a quantum: what it sends beyond is lost as if there
//! were no room, which leaves the room to the others. Who lost nothing lately has what it wants and holds nobody up:
//! lately, and not with its last batch, as batches that meet the room of a receiver that takes much at once lose nothing. Nor does
//! who is not back at once.
//! So the room goes to those who use it, and frame sizes, batches and the order of polling make no difference. Where the
//! receiver tells how much room it has, the last part of it is for those who had least, so that who wants little, or comes
//! a little later, finds some. One that was away for a moment makes up for it.
//!
//! Each queue of a receiver is shared by itself, among those whose frames go there: one that is not served, or slowly, takes
//! nothing from the senders to the others.
//!
//! What a bucket that several ports share lends one of them is shared by its senders in the same way: nobody knows how much that
//! will be. There a sender may be told to wait; until it is to be back it counts as one that lost frames.
//!
//! A receiver that keeps up costs its senders two loads a batch.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::rule::Rule;
use crate::frame::{Owner, Sender};

/// For so long (nanoseconds) after a loss a receiver counts as too slow: longer than a poller waits for its processor, in which
/// time nobody loses anything and the receiver's room becomes free.
const SLOW: u64 = 100_000_000;
/// For so long senders are remembered, and a receiver's pace is.
const MEMORY: u64 = 10_000_000;
/// This part of a receiver's room is not for those who are ahead of another.
const HEADROOM: usize = 8;
/// For so long after another came.
const COMPANY: u64 = 10_000_000_000;
/// Room that is kept for others and does not grow for so long is given to who is there: the driver may not post more before all is
/// used.
const STILL: u64 = 1_000_000;
/// For so long a sender that was served counts as one that will be back at once, and that much longer for each sender:
/// between two of its batches a poller serves all the others. One that sends now and then holds up nobody. While nobody
/// is served, as when the poller waits for its processor, no more of this time passes than that.
const AT_ONCE: u64 = 100_000;
const TURN: u64 = 30_000;
/// For so long one that is back each time counts as one that lost frames: longer than senders take to fill the ring of a receiver
/// that has emptied it, in which time nobody loses any.
const LATELY: u64 = 1_000_000;
/// How far one may be ahead of another, in bytes of weight 1: a part of what the receiver takes in [`MEMORY`], in bounds.
const QUANTUM: std::ops::RangeInclusive<u64> = 2048..=65_536;
const PART: u64 = 32;
/// How many of these one may be behind, and catch up after it waited for the processor, and how many bytes at most.
const BEHIND: u64 = 16;
const FARTHEST: u64 = 4 * *QUANTUM.end();
/// Room for so many senders is made with the receiver, so that pollers allocate nothing while these send. More take more
/// room, once.
const SENDERS: usize = 16;
/// What a sender had is in parts of a byte, as it is divided by weights.
const SCALE: u64 = 1 << 10;

/// A receiver's senders while it is too slow for them.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// Until then it counts as too slow.
    until: AtomicU64,
    /// Until then it is given nothing.
    aside: AtomicU64,
    /// By the queue's number.
    queues: Mutex<Vec<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Until then this one counts as too slow.
    until: u64,
    senders: Vec<Had>,
    /// When some sender was served last, and the time spent serving until then.
    served: u64,
    spent: u64,
    /// What it took since `since`, and how far one may be ahead.
    taken: u64,
    since: u64,
    quantum: u64,
    /// The most room that was seen while it is too slow: a driver may never post more.
    widest: usize,
    /// How little room there is while it is kept for others, and since when none was added.
    kept: Option<(usize, u64)>,
    /// Who came last, and when another than before did.
    last: Option<Owner>,
    company: Option<u64>,
}

/// What a receiver can take now, in whatever there is to take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) free: usize,
    /// The most that it can be; a driver may never post so much.
    pub(crate) of: usize,
    /// What is left of it is there later, up to that.
    pub(crate) adds_up: bool,
    /// About as much as a frame takes.
    pub(crate) frame: usize,
}

#[derive(Debug)]
struct Had {
    owner: Owner,
    /// What it had, divided by its weight.
    had: u64,
    /// When it was served last.
    seen: u64,
    /// How much time had been spent serving by then, and when it last lost frames.
    spent: u64,
    lost: Option<u64>,
    /// It waits, and will be back by then.
    back: u64,
}

impl Default for Congestion {
    fn default() -> Self {
        let first = Queue { senders: Vec::with_capacity(SENDERS), ..Queue::default() };
        Self { until: AtomicU64::new(0), aside: AtomicU64::new(0), queues: Mutex::new(vec![first]) }
    }
}

impl Congestion {
    /// Whether shares are to be kept.
    #[inline]
    pub(crate) fn is_on(&self, now: u64) -> bool {
        now < self.until.load(Ordering::Relaxed)
    }

    /// It is given nothing before `until`, and counts as too slow until then.
    #[cold]
    pub(crate) fn set_aside(&self, until: u64) {
        self.aside.fetch_max(until, Ordering::Relaxed);
        self.until.fetch_max(until, Ordering::Relaxed);
    }

    /// Counts as too slow until this is called off.
    pub(crate) fn divert(&self, on: bool) {
        match on {
            true => self.until.store(u64::MAX, Ordering::Relaxed),
            false => self.until.store(self.aside.load(Ordering::Relaxed), Ordering::Relaxed),
        }
    }

    /// Whether it is given nothing now. Asked while it [counts as too slow](Self::is_on).
    pub(crate) fn is_aside(&self, now: u64) -> bool {
        now < self.aside.load(Ordering::Relaxed)
    }

    /// `from` gave so many bytes to one that kept up, and lost some besides. Of several queues the next losses will tell which
    /// is too slow.
    #[cold]
    pub(crate) fn begin(&self, from: Sender, bytes: u64, now: u64) {
        if self.queues().len() == 1 {
            self.served(from, 0, bytes, true, now);
        } else {
            self.lost(now);
        }
    }

    fn lost(&self, now: u64) {
        self.until.fetch_max(now.saturating_add(SLOW), Ordering::Relaxed);
    }

    /// Bytes that `from` may give now (the last frame may be more), and how much of the room.
    pub(crate) fn most(&self, from: Sender, queue: u8, room: Option<Room>, now: u64) -> (u64, u64) {
        let mut queues = self.queues();
        let queue = queue_of(&mut queues, queue);
        if now >= queue.until {
            queue.widest = 0;
            return (u64::MAX, u64::MAX);
        }
        let headroom = room.as_ref().map_or(0, |room| queue.headroom(room));
        let has_company = queue.has_company(now);
        queue.spend(now);
        let least = queue.least_of_hungry(from.owner, now);
        let least_of_all = queue.least_of_others(from.owner, |other| now.saturating_sub(other.seen) < MEMORY);
        let sender = queue.sender(from.owner, least.unwrap_or(0), now);
        let (is_ahead, had) = (least_of_all.map_or(has_company, |least| sender.had > least), sender.had);
        let some = match room {
            Some(room) if is_ahead && room.free <= headroom => {
                // With others there it is for those. It was for those that may come, and nobody came.
                let is_given = least_of_all.is_none() && queue.is_still(room.free, now);
                if is_given { u64::MAX } else { 0 }
            }
            Some(room) if is_ahead => room.free.saturating_sub(headroom) as u64,
            _ => u64::MAX,
        };
        let Some(least) = least else { return (u64::MAX, some) };
        let quantum = queue.quantum.max(*QUANTUM.start()) * SCALE;
        (least.saturating_add(quantum).saturating_sub(had).saturating_mul(from.weight.into()) / SCALE, some)
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `from` gave so many bytes to a queue; whether it lost some besides.
    #[cold]
    pub(crate) fn served(&self, from: Sender, queue: u8, bytes: u64, lost: bool, now: u64) {
        let mut queues = self.queues();
        let queue = queue_of(&mut queues, queue);
        if lost {
            self.lost(now);
            queue.until = now.saturating_add(SLOW);
        }
        if now >= queue.until {
            return;
        }
        queue.note(from.owner, now);
        queue.spend(now);
        queue.take(bytes, now);
        let (least, spent) = (queue.least_of_hungry(from.owner, now).unwrap_or(0), queue.spent);
        // Who wanted less, or was away, does not make up for all of it.
        let behind = (BEHIND * queue.quantum.max(*QUANTUM.start())).min(FARTHEST) * SCALE;
        let sender = queue.sender(from.owner, least, now);
        sender.had = sender.had.max(least.saturating_sub(behind));
        // Comes round after months; whoever does is brought up to the others above.
        sender.had = sender.had.wrapping_add(bytes * SCALE / u64::from(from.weight.max(1)));
        (sender.seen, sender.spent) = (now, spent);
        if lost {
            sender.lost = Some(spent);
        }
    }

    /// `from` waits until then for a queue to take more.
    #[cold]
    pub(crate) fn waits(&self, from: Sender, queue: u8, until: u64, now: u64) {
        self.served(from, queue, 0, true, now);
        let mut queues = self.queues();
        // Pollers are late at times; who waits long may have gone.
        let wait = until.saturating_sub(now).min(MEMORY);
        queue_of(&mut queues, queue).sender(from.owner, 0, now).back = now.saturating_add(2 * wait);
    }
}

impl Rule for Congestion {
    /// Shares are of what a receiver takes; frames that its limit refuses take nothing.
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
    /// What of the room is not for those who are ahead.
    fn headroom(&mut self, room: &Room) -> usize {
        self.widest = self.widest.max(room.free);
        let most = if room.adds_up { room.of } else { self.widest.min(room.of) };
        (most / HEADROOM).max(room.frame.min(most / 2))
    }

    /// Whether there is so little room for a while, and none was added to it.
    fn is_still(&mut self, free: usize, now: u64) -> bool {
        let since = self.kept.filter(|(before, _)| free <= *before).map_or(now, |(_, since)| since);
        self.kept = Some((free, since));
        now.saturating_sub(since) >= STILL
    }

    /// `owner` has come.
    fn note(&mut self, owner: Owner, now: u64) {
        if self.last.replace(owner).is_some_and(|last| last != owner) {
            self.company = Some(now);
        }
    }

    /// Whether several have come lately.
    fn has_company(&self, now: u64) -> bool {
        self.company.is_some_and(|then| now.saturating_sub(then) < COMPANY)
    }

    /// Counts the time until now.
    fn spend(&mut self, now: u64) {
        self.spent += now.saturating_sub(self.served).min(AT_ONCE);
        self.served = self.served.max(now);
    }

    /// The least that any other had of those who lost frames lately and are expected to send more at once.
    fn least_of_hungry(&self, owner: Owner, now: u64) -> Option<u64> {
        let at_once = AT_ONCE + TURN * self.senders.len() as u64;
        let lately = |other: &Had| other.lost.is_some_and(|lost| self.spent - lost < LATELY.max(at_once));
        self.least_of_others(owner, |other| now < other.back || lately(other) && self.spent - other.spent < at_once)
    }

    /// The least that any other had of those that `count`.
    fn least_of_others(&self, owner: Owner, count: impl Fn(&Had) -> bool) -> Option<u64> {
        self.senders.iter().filter(|other| other.owner != owner && count(other)).map(|other| other.had).min()
    }

    /// The sender `owner`, who begins with what the others had at least.
    fn sender(&mut self, owner: Owner, least: u64, now: u64) -> &mut Had {
        let place = self.senders.iter().position(|sender| sender.owner == owner).unwrap_or_else(|| {
            self.senders.retain(|sender| now.saturating_sub(sender.seen) < MEMORY);
            self.senders.push(Had { owner, had: least, seen: now, spent: 0, lost: None, back: 0 });
            self.senders.len() - 1
        });
        &mut self.senders[place]
    }

    fn take(&mut self, bytes: u64, now: u64) {
        self.taken += bytes;
        if now.saturating_sub(self.since) >= MEMORY {
            self.quantum = (self.taken / PART).clamp(*QUANTUM.start(), *QUANTUM.end());
            (self.taken, self.since) = (0, now);
        }
    }
}
