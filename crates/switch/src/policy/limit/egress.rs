//! The egress limit of a port, and each sender's share of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::bucket::Bucket;
use super::limiter::{Excess, Grant, Limit};
use super::shape::LOOK_NS;
use super::shares::Share;
use super::tally::Cause;
use super::units::{BYTE, PARTS};
use super::waiting::Waiting;
use crate::frame::{Account, Cost, Sender};
use crate::policy::congestion::{Congestion, Room};
use crate::policy::rule::Rule;

/// The queue number for borrowed tokens, which have no queues.
const LENT: u8 = 0;
/// Most bytes on credit for a sender: fewer than it can be ahead of the virtual clock.
const MOST_CREDIT: u64 = 64 << 10;
/// Assumed bytes of a frame whose length is not known.
const FRAME: usize = 2048;

/// A port's egress limit. Used under the lock of the port's output.
#[derive(Debug)]
pub struct Egress {
    limit: Limit,
    /// By the sender's index. A record is that of the account that it names, and of no other that has had the index.
    senders: Arc<Mutex<Vec<SenderShare>>>,
    /// Shares of the tokens borrowed from a shared bucket.
    lent: Arc<Congestion>,
}

#[derive(Debug, Default)]
struct SenderShare {
    account: Option<Account>,
    bits: Share,
    frames: Share,
    waiting: Waiting,
    /// Bytes by which the sender's last frame went beyond what it was allowed.
    overshoot: AtomicU64,
    /// It was allowed something. Until then it has no credit: one that comes anew again and again would take all that the limit brings.
    was_allowed: AtomicBool,
}

/// How many of a sender's frames may be delivered now.
pub(crate) struct Admitted {
    /// Number of leading frames that may be delivered, and their cost.
    pub(crate) given: usize,
    pub(crate) cost: Cost,
    pub(crate) refused: u64,
    /// The cause, if any frames were refused.
    pub(crate) cause: Cause,
}

impl Egress {
    /// A limit that no sender has used yet.
    #[must_use]
    pub fn new(limit: Limit) -> Egress {
        Egress { limit, senders: Arc::default(), lent: Arc::default() }
    }

    /// The same limit with other settings. Each sender's share so far is kept.
    #[must_use]
    pub fn changed(&self, limit: Limit) -> Egress {
        Egress { limit, senders: Arc::clone(&self.senders), lent: Arc::clone(&self.lent) }
    }

    /// The settings and counters of the limit.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What `from` may deliver to the port now. Ends its wait if that is not nothing.
    pub(crate) fn room(&self, from: Sender, now: u64) -> Grant {
        self.with(from, |sender| {
            let grant = self.limit.open(now);
            let room = self.most(&grant, sender, from, now);
            self.limit.settle(&grant, 0, 0);
            self.note_overshoot(sender, 0, &grant, &room);
            if !room.is_nothing() {
                let waited = sender.waiting.end(now);
                if waited > 0 {
                    self.limit.count_wait(waited, sender.waiting.is_shared());
                }
            }
            room
        })
    }

    /// Notes that frames from `from` wait until this time.
    pub(crate) fn begin_wait(&self, from: Sender, until: u64, cause: Cause, now: u64) {
        self.with(from, |sender| sender.waiting.begin(now, until, cause.is_shared()));
        if self.limit.shared.is_some() {
            self.lent.waits(from, LENT, until, now);
        }
    }

    /// Admits the leading frames that `from` may deliver now, by the cost of each, and charges them. If the limit shapes, the caller
    /// counts the others, or lets them pass on credit. `sum` is the
    /// number of frames and their total cost, if known. The first `promised` frames were promised room and are admitted
    /// even if another sender took it meanwhile. The level then becomes negative, and other senders wait until it is
    /// positive again.
    pub(crate) fn admit(
        &self,
        from: Sender,
        costs: impl ExactSizeIterator<Item = Cost> + Clone,
        sum: Option<(usize, Cost)>,
        promised: usize,
        now: u64,
    ) -> Admitted {
        self.with(from, |sender| {
            let grant = self.limit.open(now);
            let most = self.most(&grant, sender, from, now);
            let admitted = match sum {
                Some((given, cost)) if cost.bytes <= most.bytes && cost.frames <= most.frames => {
                    Admitted { given, cost, refused: 0, cause: Cause::Bits }
                }
                _ => {
                    let owed: Cost = costs.clone().take(promised).sum();
                    let admitted = first(costs, most.bytes.max(owed.bytes), most.frames.max(owed.frames));
                    Admitted { cause: most.cause(admitted.cost.frames), ..admitted }
                }
            };
            if admitted.refused > 0 && self.limit.excess != Excess::Shape {
                self.limit.refuse(admitted.cause, admitted.refused);
            }
            let Cost { bytes, frames } = admitted.cost;
            if self.limit.excess == Excess::Shape {
                self.note_overshoot(sender, bytes, &grant, &most);
            }
            self.limit.settle(&grant, bytes, frames);
            if let Some(bucket) = self.shared_bits() {
                bucket.served(&sender.bits, from.weight, bytes as i64 * BYTE);
            }
            if let Some(bucket) = &self.limit.own.frames {
                bucket.served(&sender.frames, from.weight, frames as i64 * PARTS);
            }
            if self.limit.shared.is_some() && (admitted.refused > 0 || self.lent.is_on(now)) {
                self.lent.served(from, LENT, bytes, admitted.refused > 0, now);
            }
            admitted
        })
    }

    /// How many of the frames of `from` may wait, before the last one of them. `None`: all.
    pub(crate) fn depth(&self, from: Sender) -> Option<Cost> {
        (self.limit.excess == Excess::Shape).then(|| {
            let Cost { bytes, frames } = self.limit.depth();
            // Each sender has a part of what waits, as of what passes.
            let part =
                |depth: u64, bucket: Option<&Bucket>| bucket.map_or(depth, |bucket| bucket.part(depth, from.weight));
            Cost { bytes: part(bytes, self.shared_bits()), frames: part(frames, self.limit.own.frames.as_ref()) }
        })
    }

    /// Bytes of short frames of `from` that may pass beyond a grant: its part of what may wait, as far as its share is not used up.
    pub(crate) fn credit(&self, from: Sender) -> u64 {
        self.with(from, |sender| self.credit_of(sender, from))
    }

    fn credit_of(&self, sender: &SenderShare, from: Sender) -> u64 {
        let shapes = self.limit.excess == Excess::Shape && sender.was_allowed.load(Ordering::Relaxed);
        let Some(bucket) = self.shared_bits().filter(|_| shapes) else { return 0 };
        let depth = self.limit.depth();
        let part = bucket.part(depth.bytes, from.weight).min(MOST_CREDIT);
        let ahead = (bucket.ahead(&sender.bits, from.weight) / BYTE) as u64;
        let most = part.saturating_add(sender.overshoot.load(Ordering::Relaxed));
        most.saturating_sub(ahead).min(self.limit.credit(depth))
    }

    /// Notes by how much the last of the admitted frames went beyond the grant, and beyond what the sender was allowed of it. Both owe
    /// that until they are given something again.
    fn note_overshoot(&self, sender: &SenderShare, bytes: u64, grant: &Grant, most: &Grant) {
        if grant.bytes > 0 {
            self.limit.note_overshoot(bytes.saturating_sub(grant.bytes));
        }
        if most.bytes > 0 {
            sender.overshoot.store(bytes.saturating_sub(most.bytes), Ordering::Relaxed);
            sender.was_allowed.store(true, Ordering::Relaxed);
        }
    }

    /// Charges a short frame beyond the grant. Returns false if there is no credit for it.
    pub(crate) fn pass_on_credit(&self, from: Sender, cost: Cost) -> bool {
        self.with(from, |sender| {
            if self.credit_of(sender, from) == 0 {
                return false;
            }
            self.limit.settle(&Grant::default(), cost.bytes, cost.frames);
            if let Some(bucket) = self.shared_bits() {
                bucket.served(&sender.bits, from.weight, cost.bytes as i64 * BYTE);
            }
            true
        })
    }

    /// Time at which a refused sender should try again.
    pub(crate) fn resume_at(&self, now: u64) -> u64 {
        let at = self.resume_fully_at(now);
        if self.limit.excess == Excess::Shape { at.min(now + LOOK_NS) } else { at }
    }

    fn resume_fully_at(&self, now: u64) -> u64 {
        let (batch, frames) = self.limit.batch();
        let buckets = [(self.shared_bits(), batch), (self.limit.own.frames.as_ref(), frames)];
        let pause = buckets.into_iter().filter_map(|(bucket, batch)| Some(bucket?.pause(batch))).max();
        self.limit.resume_at(now).max(now + pause.unwrap_or(0))
    }

    fn with<T>(&self, from: Sender, look: impl FnOnce(&SenderShare) -> T) -> T {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(from.index);
        if senders.len() <= index {
            senders.resize_with(index + 1, SenderShare::default);
        }
        if senders[index].account != Some(from.account) {
            senders[index] = self.begin(from.account, senders[index].account.is_some());
        }
        look(&senders[index])
    }

    /// The record of a sender that has none. It owes nothing. After another one with its index it has saved nothing either, so that a
    /// client gains nothing by coming anew.
    #[cold]
    fn begin(&self, account: Account, is_next: bool) -> SenderShare {
        let new = SenderShare { account: Some(account), ..SenderShare::default() };
        if !is_next {
            return new;
        }
        if let Some(bucket) = self.shared_bits() {
            bucket.begin(&new.bits);
        }
        if let Some(bucket) = &self.limit.own.frames {
            bucket.begin(&new.frames);
        }
        new
    }

    /// The lesser of the grant and the sender's share.
    fn most(&self, grant: &Grant, sender: &SenderShare, from: Sender, now: u64) -> Grant {
        let allowed = |bucket: Option<&Bucket>, share: &Share, unit: i64| {
            let Some(bucket) = bucket else { return u64::MAX };
            (bucket.allowed(share, from.weight, now) as u64).div_ceil(unit as u64)
        };
        let bytes = allowed(self.shared_bits(), &sender.bits, BYTE);
        let own = grant.within(bytes, allowed(self.limit.own.frames.as_ref(), &sender.frames, PARTS));
        self.most_of_loan(own, from, now)
    }

    /// Restricts a grant to the share of `from` in the tokens borrowed from the shared bucket.
    fn most_of_loan(&self, grant: Grant, from: Sender, now: u64) -> Grant {
        let Some(shared) = self.limit.shared.as_ref().filter(|_| self.lent.is_on(now)) else { return grant };
        let bits = shared.rates.bits.as_ref();
        let most = bits.map_or(0, |bucket| bucket.most(self.limit.weight));
        let most = self.limit.ceiling.as_ref().map_or(most, |ceiling| most.min(ceiling.burst_parts()));
        let worth = bits.filter(|_| self.limit.excess.waits()).map_or(0, Bucket::worth_of_a_wait).min(most) / BYTE;
        let room = Room {
            free: grant.bytes as usize,
            of: (most / BYTE) as usize,
            adds_up: true,
            frame: FRAME,
            worth: worth as u64,
        };
        let (bytes, others) = self.lent.most(from, LENT, Some(room), 0, now);
        grant.within(bytes.min(others), u64::MAX)
    }

    /// The bucket whose tokens the senders share: all delivered bits are charged to it.
    fn shared_bits(&self) -> Option<&Bucket> {
        match self.limit.shared {
            None => self.limit.own.bits.as_ref(),
            Some(_) => self.limit.ceiling.as_ref(),
        }
    }
}

impl Rule for Egress {
    /// With `drop`, the tokens for a port do not grow within a pass. With `wait`, a refusal says nothing about later
    /// frames.
    fn may_drop_unread(&self) -> bool {
        self.limit.excess == Excess::Drop
    }
}

/// Counts the leading frames that begin before `most` bytes and `most_frames` frames. All frames behind them are refused.
fn first(costs: impl ExactSizeIterator<Item = Cost>, most: u64, most_frames: u64) -> Admitted {
    let (count, mut given, mut sum) = (costs.len(), 0, Cost::default());
    for cost in costs {
        if sum.bytes >= most || sum.frames >= most_frames {
            break;
        }
        given += 1;
        sum += cost;
    }
    Admitted { given, cost: sum, refused: (count - given) as u64, cause: Cause::Bits }
}
