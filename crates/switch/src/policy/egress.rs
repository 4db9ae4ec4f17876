//! What a port may be given: a limit, and each sender's share of it.

use std::sync::{Arc, Mutex, PoisonError};

use super::bucket::{BYTE, Bucket, PARTS};
use super::limit::Limit;
use super::shares::Share;
use crate::switch::Member;

/// A port's limit on what it is given. Used by whoever holds the port's output.
#[derive(Debug)]
pub struct Egress {
    limit: Limit,
    /// By the sender's index.
    senders: Arc<Mutex<Vec<Sender>>>,
}

#[derive(Debug, Default)]
struct Sender {
    bits: Share,
    frames: Share,
}

/// What one sender may give the port now, of the frames that it has.
pub(crate) struct Admitted {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) refused: u64,
}

impl Egress {
    /// No sender has had anything yet.
    #[must_use]
    pub fn new(limit: Limit) -> Egress {
        Egress { limit, senders: Arc::default() }
    }

    /// Another limit, with what each sender has had.
    #[must_use]
    pub fn changed(&self, limit: Limit) -> Egress {
        Egress { limit, senders: Arc::clone(&self.senders) }
    }

    /// What the limit is.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Of frames of these lengths, the first that `from` may give now. They count as given.
    pub(crate) fn admit(&self, from: &Member, lengths: impl Iterator<Item = usize>, now: u64) -> Admitted {
        let grant = self.limit.open(now);
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(from.owner.index());
        if senders.len() <= index {
            senders.resize_with(index + 1, Sender::default);
        }
        let sender = &senders[index];
        let allowed = |bucket: Option<&Bucket>, share: &Share, unit: i64| {
            let Some(bucket) = bucket else { return u64::MAX };
            (bucket.clock().allowed(share, from.weight, bucket, now) as u64).div_ceil(unit as u64)
        };
        let (bits, frames) = (self.shared_bits(), self.limit.own.frames.as_ref());
        let most = grant.bytes.min(allowed(bits, &sender.bits, BYTE));
        let most_frames = grant.frames.min(allowed(frames, &sender.frames, PARTS));
        let mut turn = Admitted { frames: 0, bytes: 0, refused: 0 };
        for len in lengths {
            if turn.bytes < most && turn.frames < most_frames {
                turn.frames += 1;
                turn.bytes += len as u64;
            } else {
                turn.refused += 1;
            }
        }
        self.limit.settle(&grant, turn.bytes, turn.frames);
        if let Some(bucket) = bits {
            bucket.clock().served(&sender.bits, from.weight, turn.bytes as i64 * BYTE, bucket);
        }
        if let Some(bucket) = frames {
            bucket.clock().served(&sender.frames, from.weight, turn.frames as i64 * PARTS, bucket);
        }
        turn
    }

    /// The bucket of which senders have shares: the one that everything given comes out of.
    fn shared_bits(&self) -> Option<&Bucket> {
        match self.limit.shared {
            None => self.limit.own.bits.as_ref(),
            Some(_) => self.limit.ceiling.as_ref(),
        }
    }
}
