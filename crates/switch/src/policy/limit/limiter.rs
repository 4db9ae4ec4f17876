//! A port's limit in one direction: its own buckets, and one that several ports share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bucket::Bucket;
use super::shares::Share;
use super::tally::{Cause, Tally};
use super::units::{BYTE, PARTS};
use super::waiting::Waiting;
use crate::frame::Cost;
use crate::policy::rule::Rule;

/// Frames and bytes that are worth a visit. More bytes would delay the poller's other ports while they are copied.
const BATCH: i64 = 256;
const BATCH_BYTES: i64 = 64 << 10;
/// More bytes than any batch holds.
const ANY_BATCH: u64 = 4 << 20;
/// Most parts that one batch reserves from a shared bucket.
const TURN: i64 = ANY_BATCH as i64 * BYTE;
/// With [`Excess::Shape`]: nanoseconds for which frames may wait, and what may wait at any rate, in bytes and frames. TCP
/// needs some frames on their way for each connection, and a queue to fill the link while it sends less after a loss.
const DEPTH_NS: u64 = 50_000_000;
const LEAST_DEPTH: Cost = Cost { bytes: 16 << 10, frames: 16 };
/// Assumed length of a frame until one has passed.
const USUAL_LEN: u64 = 512;

/// The buckets of a limit: bits, frames or both.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// Bits of the frames, without FCS, preamble and gap.
    pub bits: Option<Bucket>,
    /// Number of frames.
    pub frames: Option<Bucket>,
}

impl Rates {
    /// Returns true if there is a bucket.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.bits.is_some() || self.frames.is_some()
    }

    /// What may pass at `now`. The caller takes afterwards what has passed. Only for buckets with one user at a time.
    #[inline]
    pub(crate) fn open(&self, now: u64) -> Grant {
        let level =
            |bucket: &Option<Bucket>, unit| bucket.as_ref().map_or(u64::MAX, |b| units(b.fill_alone(now), unit));
        Grant { bytes: level(&self.bits, BYTE), frames: level(&self.frames, PARTS), ..Grant::default() }
    }

    /// Takes what has passed from the buckets.
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

/// A bucket that several ports share, with its counters.
#[derive(Debug, Default)]
pub struct Shared {
    /// The limits.
    pub rates: Rates,
    tally: Arc<Tally>,
}

impl Shared {
    /// A shared bucket with counters at zero.
    #[must_use]
    pub fn new(rates: Rates) -> Shared {
        Shared { rates, tally: Arc::default() }
    }

    /// A shared bucket with other rates that keeps the counters.
    #[must_use]
    pub fn changed(&self, rates: Rates) -> Shared {
        Shared { rates, tally: Arc::clone(&self.tally) }
    }

    /// The counters.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// What happens to frames beyond a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Excess {
    /// They are dropped.
    #[default]
    Drop,
    /// They stay in the sender's ring until they may pass.
    Wait,
    /// They stay in the sender's ring, up to what comes in 50 ms. The oldest of more are dropped.
    Shape,
}

impl Excess {
    /// Returns true if frames may stay in the sender's ring.
    #[inline]
    pub(crate) fn waits(self) -> bool {
        self != Excess::Drop
    }
}

/// A limit with one user at a time: the owner of the port's input, or the senders under the lock of its output. Without
/// a shared bucket `own` is the limit. With one, `own` is a guarantee (if the guarantees of all ports do not exceed the
/// shared rate). Above it a port may use a share of what the shared bucket has left, up to `ceiling`.
#[derive(Debug, Default)]
pub struct Limit {
    /// The port's own buckets.
    pub own: Rates,
    /// Limit of bits including those borrowed from the shared bucket.
    pub ceiling: Option<Bucket>,
    /// The bucket that several ports share.
    pub shared: Option<Arc<Shared>>,
    /// The port's weight among the ports of the shared bucket.
    pub weight: u32,
    /// What happens to frames beyond the limit.
    pub excess: Excess,
    account: Arc<Account>,
}

#[derive(Debug, Default)]
struct Account {
    bits: Share,
    frames: Share,
    /// Bytes and number of the frames of the last batch.
    last: [AtomicU64; 2],
    /// The wait of frames beyond the limit.
    waiting: Waiting,
    /// Bytes by which the last frame of a grant went beyond it. Short frames may owe as much more.
    overshoot: AtomicU64,
    tally: Tally,
}

/// What may pass now: frames that begin before `bytes` and `frames` are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
    /// Bits of the guarantee, and bits and frames reserved from the shared bucket; in parts.
    guaranteed: i64,
    lent: i64,
    lent_frames: i64,
    /// True if the shared bucket is what bounds the bits, or the frames.
    bits_shared: bool,
    frames_shared: bool,
    /// Nanoseconds for which the frames have waited.
    pub(crate) waited: u64,
}

impl Grant {
    pub(crate) fn is_nothing(&self) -> bool {
        self.bytes == 0 || self.frames == 0
    }

    /// Returns true if a frame may begin after this cost.
    #[inline]
    pub(crate) fn covers(&self, cost: Cost) -> bool {
        cost.bytes < self.bytes && cost.frames < self.frames
    }

    /// What is used up after this many frames.
    pub(crate) fn cause(&self, frames: u64) -> Cause {
        match (frames >= self.frames, self.frames_shared, self.bits_shared) {
            (true, true, _) => Cause::SharedFrames,
            (true, false, _) => Cause::Frames,
            (false, _, true) => Cause::SharedBits,
            (false, _, false) => Cause::Bits,
        }
    }

    /// The grant, restricted to this much by the limit's own buckets.
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

/// Parts converted to whole units, rounded up; 0 for a negative level.
#[inline]
fn units(level: i64, unit: i64) -> u64 {
    if level <= 0 { 0 } else { (level as u64).div_ceil(unit as u64) }
}

#[inline]
fn fill(bucket: Option<&Bucket>, now: u64) -> Option<i64> {
    bucket.map(|bucket| bucket.fill_alone(now))
}

impl Limit {
    /// A limit with these buckets that drops frames beyond it.
    #[must_use]
    pub fn new(own: Rates) -> Limit {
        Limit { own, weight: 1, ..Limit::default() }
    }

    /// These settings, with the counters and shares of `before`.
    #[must_use]
    pub fn continuing(self, before: &Limit) -> Limit {
        Limit { account: Arc::clone(&before.account), ..self }
    }

    /// What may pass at `now`. The caller settles the grant afterwards.
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

    /// Charges what has passed of the grant. The last frame may go beyond it.
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
        // The excess of the last frame is charged to the bucket that granted the last bits.
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

    /// The counters of the limit.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.account.tally
    }

    /// Counts refused frames.
    pub(crate) fn refuse(&self, cause: Cause, frames: u64) {
        self.account.tally.refuse(cause, frames);
        if let Some(shared) = self.shared.as_ref().filter(|_| cause.is_shared()) {
            shared.tally.refuse(cause, frames);
        }
    }

    /// The wait of frames beyond the limit, if senders wait.
    #[inline]
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.account.waiting
    }

    /// Counts that frames passed after waiting for `time` nanoseconds.
    #[inline(never)]
    pub(crate) fn count_wait(&self, time: u64, is_shared: bool) {
        self.account.tally.wait(time);
        if let Some(shared) = self.shared.as_ref().filter(|_| is_shared) {
            shared.tally.wait(time);
        }
    }

    /// With [`Excess::Shape`]: what may wait, before the last frame of it.
    #[cold]
    pub(crate) fn depth(&self) -> Cost {
        let shared = self.shared.as_ref().map(|shared| &shared.rates);
        let bits = self.own.bits.as_ref().or(self.ceiling.as_ref()).or(shared.and_then(|rates| rates.bits.as_ref()));
        let frames = self.own.frames.as_ref().or(shared.and_then(|rates| rates.frames.as_ref()));
        let passing = |bucket: &Bucket, unit: i64| (bucket.gain(DEPTH_NS) / unit) as u64;
        Cost {
            bytes: bits.map_or(u64::MAX, |bits| passing(bits, BYTE)).max(LEAST_DEPTH.bytes),
            frames: frames.map_or(u64::MAX, |frames| passing(frames, PARTS)).max(LEAST_DEPTH.frames),
        }
    }

    /// Bytes of short frames that may pass beyond a grant: as many as may wait, without what short frames owe.
    pub(crate) fn credit(&self, depth: Cost) -> u64 {
        match (&self.own.bits, &self.shared) {
            (Some(bits), None) if self.own.frames.is_none() => {
                let most = depth.bytes.saturating_add(self.account.overshoot.load(Ordering::Relaxed));
                most.saturating_sub(units(-bits.level(), BYTE))
            }
            _ => 0,
        }
    }

    /// Notes by how many bytes the last frame of a grant went beyond it.
    pub(crate) fn note_overshoot(&self, bytes: u64) {
        self.account.overshoot.store(bytes, Ordering::Relaxed);
    }

    /// Mean length of the frames of the last batch.
    fn mean(&self) -> u64 {
        let [bytes, frames] = &self.account.last;
        let mean = bytes.load(Ordering::Relaxed).checked_div(frames.load(Ordering::Relaxed));
        mean.filter(|&mean| mean > 0).unwrap_or(USUAL_LEN)
    }

    /// Estimated number of frames that a grant allows.
    pub(crate) fn frames_in(&self, grant: &Grant) -> u64 {
        if grant.bytes >= ANY_BATCH {
            return grant.frames;
        }
        (grant.bytes / self.mean() + 1).min(grant.frames)
    }

    /// Bits and frames of a batch, in parts. More at once would overflow receivers' rings.
    pub(crate) fn batch(&self) -> (i64, i64) {
        ((BATCH * self.mean() as i64).min(BATCH_BYTES) * BYTE, BATCH * PARTS)
    }

    /// Time in nanoseconds at which to try again after an empty grant.
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
        // A guarantee does not wait for other ports. A share is tried again soon.
        let at = match (own, lent) {
            (Some(own), Some(_)) => at.unwrap_or(now).min(own.resume_at(now, batch)),
            _ => at.unwrap_or(now),
        };
        at.max(now + lent.map_or(0, |lent| lent.pause(batch)))
    }
}

impl Rule for Limit {
    /// Each frame of a port is charged, and each frame beyond the limit is counted with its cause.
    fn may_drop_unread(&self) -> bool {
        false
    }
}
