//! A port's limit in one direction: its own buckets, and one that it shares with others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bucket::Bucket;
use super::shares::Share;
use super::tally::{Cause, Tally};
use super::units::{BYTE, PARTS};
use super::waiting::Waiting;
use crate::frame::Cost;
use crate::policy::rule::Rule;

/// Frames that are worth a visit, and bytes: what takes longer to be copied keeps the poller's other ports waiting.
const BATCH: i64 = 256;
const BATCH_BYTES: i64 = 64 << 10;
/// More bytes than any batch has.
const ANY_BATCH: u64 = 4 << 20;
/// Most that one batch reserves of a shared bucket, in parts.
const TURN: i64 = ANY_BATCH as i64 * BYTE;
/// A frame's length until one was seen.
const USUAL_LEN: u64 = 512;

/// What a limit is made of: bits, frames or both.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// Of the frames' bytes, without FCS, preamble and gap.
    pub bits: Option<Bucket>,
    /// Of frames, however long.
    pub frames: Option<Bucket>,
}

impl Rates {
    /// Whether there is a limit.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.bits.is_some() || self.frames.is_some()
    }

    /// What may pass at `now`; to be taken then. For buckets that only one at a time draws on.
    #[inline]
    pub(crate) fn open(&self, now: u64) -> Grant {
        let level =
            |bucket: &Option<Bucket>, unit| bucket.as_ref().map_or(u64::MAX, |b| units(b.fill_alone(now), unit));
        Grant { bytes: level(&self.bits, BYTE), frames: level(&self.frames, PARTS), ..Grant::default() }
    }

    /// So much has passed.
    #[inline]
    pub(crate) fn take(&self, bytes: u64, frames: u64) {
        if let Some(bucket) = &self.bits {
            bucket.take(bytes as i64 * BYTE);
        }
        if let Some(bucket) = &self.frames {
            bucket.take(frames as i64 * PARTS);
        }
    }
}

/// What several ports share, and what it came to.
#[derive(Debug, Default)]
pub struct Shared {
    /// The limits.
    pub rates: Rates,
    tally: Arc<Tally>,
}

impl Shared {
    /// Nothing has passed yet.
    #[must_use]
    pub fn new(rates: Rates) -> Shared {
        Shared { rates, tally: Arc::default() }
    }

    /// Other limits, with what these came to so far.
    #[must_use]
    pub fn changed(&self, rates: Rates) -> Shared {
        Shared { rates, tally: Arc::clone(&self.tally) }
    }

    /// What it came to.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// What happens to what is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Excess {
    /// It is dropped.
    #[default]
    Drop,
    /// It stays where it is, in its sender's ring, until it may pass.
    Wait,
}

/// A limit, kept to by one at a time: whoever has the port's input, or all senders to it behind a lock. Without a shared
/// bucket, what `own` allows passes. With one, what `own` allows passes in any case (if the guarantees of all who share it
/// are no more than its rate), and beyond that, up to `ceiling`, a share of what the shared bucket has left.
#[derive(Debug, Default)]
pub struct Limit {
    /// The port's own.
    pub own: Rates,
    /// Bits that may pass with what the shared bucket lends.
    pub ceiling: Option<Bucket>,
    /// What several ports share.
    pub shared: Option<Arc<Shared>>,
    /// The port's weight among these.
    pub weight: u32,
    /// What happens to what is more.
    pub excess: Excess,
    account: Arc<Account>,
}

#[derive(Debug, Default)]
struct Account {
    bits: Share,
    frames: Share,
    /// Bytes and number of the frames that passed last.
    last: [AtomicU64; 2],
    /// What is more.
    waiting: Waiting,
    tally: Tally,
}

/// What may pass now: frames as long as they began before `bytes` and `frames` were used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
    /// Bits of the guarantee, and bits and frames reserved of the shared bucket; in parts.
    guaranteed: i64,
    lent: i64,
    lent_frames: i64,
    /// It is the shared bucket that there are no more bits of, or frames.
    bits_shared: bool,
    frames_shared: bool,
    /// For how long what it is for has waited, in nanoseconds.
    pub(crate) waited: u64,
}

impl Grant {
    pub(crate) fn is_nothing(&self) -> bool {
        self.bytes == 0 || self.frames == 0
    }

    /// Whether a frame may begin after so much.
    #[inline]
    pub(crate) fn covers(&self, cost: Cost) -> bool {
        cost.bytes < self.bytes && cost.frames < self.frames
    }

    /// Why no frame may begin after so many.
    pub(crate) fn cause(&self, frames: u64) -> Cause {
        match (frames >= self.frames, self.frames_shared, self.bits_shared) {
            (true, true, _) => Cause::SharedFrames,
            (true, false, _) => Cause::Frames,
            (false, _, true) => Cause::SharedBits,
            (false, _, false) => Cause::Bits,
        }
    }

    /// This much at most, of the limit's own.
    pub(crate) fn within(self, bytes: u64, frames: u64) -> Grant {
        Grant {
            bytes: self.bytes.min(bytes),
            frames: self.frames.min(frames),
            bits_shared: self.bits_shared && self.bytes <= bytes,
            frames_shared: self.frames_shared && self.frames <= frames,
            ..self
        }
    }
}

/// Whole units to cover what there is.
#[inline]
fn units(level: i64, unit: i64) -> u64 {
    if level <= 0 { 0 } else { (level as u64).div_ceil(unit as u64) }
}

#[inline]
fn fill(bucket: Option<&Bucket>, now: u64) -> Option<i64> {
    bucket.map(|bucket| bucket.fill_alone(now))
}

impl Limit {
    /// A limit of its own `own`, dropping what is more.
    #[must_use]
    pub fn new(own: Rates) -> Limit {
        Limit { own, weight: 1, ..Limit::default() }
    }

    /// Other settings, with what `before` has had so far.
    #[must_use]
    pub fn continuing(self, before: &Limit) -> Limit {
        Limit { account: Arc::clone(&before.account), ..self }
    }

    /// What may pass at `now`; to be settled.
    #[inline]
    pub(crate) fn open(&self, now: u64) -> Grant {
        match &self.shared {
            None => self.own.open(now),
            Some(shared) => self.open_shared(shared, now),
        }
    }

    #[inline(never)]
    fn open_shared(&self, shared: &Shared, now: u64) -> Grant {
        let shared = &shared.rates;
        let guaranteed = fill(self.own.bits.as_ref(), now).unwrap_or(0).max(0);
        let frames = fill(self.own.frames.as_ref(), now).unwrap_or(i64::MAX);
        let draw = |bucket: &Bucket, share: &Share, most: i64| {
            let _ = bucket.fill(now);
            let allowed = bucket.allowed(share, self.weight, now);
            bucket.reserve(most.min(allowed))
        };
        let ceiling = fill(self.ceiling.as_ref(), now).unwrap_or(i64::MAX);
        let beyond = ceiling.saturating_sub(guaranteed).clamp(0, TURN);
        let lent = shared.bits.as_ref().map(|bucket| draw(bucket, &self.account.bits, beyond));
        let level = lent.map_or(i64::MAX, |lent| guaranteed.saturating_add(lent));
        let bits_shared = level < ceiling;
        let lent_frames = shared.frames.as_ref().map(|bucket| draw(bucket, &self.account.frames, frames.min(TURN)));
        Grant {
            bytes: units(level.min(ceiling), BYTE),
            frames: units(lent_frames.map_or(frames, |lent| lent.min(frames)), PARTS),
            guaranteed,
            lent: lent.unwrap_or(0),
            lent_frames: lent_frames.unwrap_or(0),
            bits_shared,
            frames_shared: lent_frames.is_some_and(|lent| lent < frames),
            ..Grant::default()
        }
    }

    /// So much has passed of what was granted; the last frame may be more.
    #[inline]
    pub(crate) fn settle(&self, grant: &Grant, bytes: u64, frames: u64) {
        if frames > 0 {
            self.account.last[0].store(bytes, Ordering::Relaxed);
            self.account.last[1].store(frames, Ordering::Relaxed);
            self.account.tally.pass_alone(bytes, frames);
        }
        match &self.shared {
            None => self.own.take(bytes, frames),
            Some(shared) => self.settle_shared(shared, grant, bytes, frames),
        }
    }

    #[inline(never)]
    fn settle_shared(&self, shared: &Shared, grant: &Grant, bytes: u64, frames: u64) {
        if frames > 0 {
            shared.tally.pass(bytes, frames);
        }
        let shared = &shared.rates;
        let (cost, frame_cost) = (bytes as i64 * BYTE, frames as i64 * PARTS);
        // What the last frame took beyond the grant is owed by whoever gave to it last.
        let own = if grant.lent > 0 { cost.min(grant.guaranteed) } else { cost };
        for (bucket, cost) in [(&self.own.bits, own), (&self.own.frames, frame_cost), (&self.ceiling, cost)] {
            if let Some(bucket) = bucket {
                bucket.take(cost);
            }
        }
        if let Some(bucket) = &shared.bits {
            bucket.settle(grant.lent - cost);
            bucket.served(&self.account.bits, self.weight, cost - own);
        }
        if let Some(bucket) = &shared.frames {
            bucket.settle(grant.lent_frames - frame_cost);
            bucket.served(&self.account.frames, self.weight, frame_cost);
        }
    }

    /// What it came to.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.account.tally
    }

    /// Counts frames that may not pass.
    pub(crate) fn refuse(&self, cause: Cause, frames: u64) {
        self.account.tally.refuse(cause, frames);
        if let Some(shared) = self.shared.as_ref().filter(|_| cause.is_shared()) {
            shared.tally.refuse(cause, frames);
        }
    }

    /// How long what is more waits, where senders do.
    #[inline]
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.account.waiting
    }

    /// Counts that frames have passed that had waited for so many nanoseconds.
    #[inline(never)]
    pub(crate) fn count_wait(&self, time: u64, is_shared: bool) {
        self.account.tally.wait(time);
        if let Some(shared) = self.shared.as_ref().filter(|_| is_shared) {
            shared.tally.wait(time);
        }
    }

    /// How long frames are, by those that passed last.
    fn mean(&self) -> u64 {
        let [bytes, frames] = &self.account.last;
        let mean = bytes.load(Ordering::Relaxed).checked_div(frames.load(Ordering::Relaxed));
        mean.filter(|&mean| mean > 0).unwrap_or(USUAL_LEN)
    }

    /// About how many frames a grant is for.
    pub(crate) fn frames_in(&self, grant: &Grant) -> u64 {
        if grant.bytes >= ANY_BATCH {
            return grant.frames;
        }
        (grant.bytes / self.mean() + 1).min(grant.frames)
    }

    /// A batch's worth of bits, and of frames, in parts: more at once overflows the rings of those who receive.
    pub(crate) fn batch(&self) -> (i64, i64) {
        ((BATCH * self.mean() as i64).min(BATCH_BYTES) * BYTE, BATCH * PARTS)
    }

    /// When it is worth asking again after there was nothing, in nanoseconds.
    pub(crate) fn resume_at(&self, now: u64) -> u64 {
        let own = self.own.bits.as_ref();
        let (bits, lent) = match &self.shared {
            None => (own, None),
            Some(shared) => (self.ceiling.as_ref(), shared.rates.bits.as_ref()),
        };
        let (batch, frames) = self.batch();
        let shared_frames = self.shared.as_ref().and_then(|shared| shared.rates.frames.as_ref());
        let buckets = [(bits, batch), (lent, batch), (self.own.frames.as_ref(), frames), (shared_frames, frames)];
        let at = buckets.into_iter().filter_map(|(bucket, batch)| Some(bucket?.resume_at(now, batch))).max();
        // A guarantee does not wait for others; a share is looked for again soon.
        let at = match (own, lent) {
            (Some(own), Some(_)) => at.unwrap_or(now).min(own.resume_at(now, batch)),
            _ => at.unwrap_or(now),
        };
        at.max(now + lent.map_or(0, |lent| lent.pause(batch)))
    }
}

impl Rule for Limit {
    /// Each frame that a port sends is charged, and each that is beyond the limit is counted with its cause.
    fn may_drop_unread(&self) -> bool {
        false
    }
}
