//! How much of a shared bucket its waiting senders use, with a simulated clock.

use std::sync::Arc;

use super::limit_tests::{START, member};
use crate::frame::Cost;
use crate::policy::{Bucket, Egress, Excess, Limit, Rates, Shared};
use crate::topology::Member;

const SECOND: u64 = 1_000_000_000;
/// Frames in a batch, and nanoseconds between two visits to a sender that does not wait.
const BATCH: u64 = 256;
const EVERY: u64 = 10_000;
/// The least burst that is configured by default, in bits.
const LEAST_BURST: u64 = 16 << 13;

/// Ports that draw on one bucket, and their senders, which want more than there is.
#[derive(Clone, Debug)]
struct Plan {
    rate: u64,
    /// Nanoseconds in which a bucket fills.
    burst: u64,
    /// The part of the rate that each port is guaranteed, in percent.
    guarantees: Vec<u64>,
    /// Bytes of the frames of each sender. Senders belong to the ports in rotation.
    lens: Vec<u64>,
    /// Nanoseconds by which visits to waiting senders are late at most.
    late: u64,
}

impl Plan {
    fn rates(&self, rate: u64) -> Rates {
        let burst = u128::from(rate) * u128::from(self.burst) / u128::from(SECOND);
        Rates { bits: Some(Bucket::new(rate, (burst as u64).max(LEAST_BURST))), frames: None }
    }

    fn limits(&self) -> Vec<Limit> {
        let tenant = Arc::new(Shared::new(self.rates(self.rate)));
        let limit = |&percent: &u64| {
            let own = if percent > 0 { self.rates(self.rate * percent / 100) } else { Rates::default() };
            let mut limit = Limit::new(own);
            (limit.shared, limit.excess) = (Some(Arc::clone(&tenant)), Excess::Wait);
            limit
        };
        self.guarantees.iter().map(limit).collect()
    }

    /// Runs the senders for two seconds. Returns the bits that each sent in the second one. `send` returns the bytes
    /// that a sender sends in a visit, and until when the sender waits.
    fn run(&self, mut send: impl FnMut(usize, u64, u64) -> (u64, Option<u64>)) -> Vec<u64> {
        let mut next = vec![START; self.lens.len()];
        let mut sent = vec![0; self.lens.len()];
        let mut state = 1u64;
        while let Some((sender, &now)) = next.iter().enumerate().min_by_key(|&(_, next)| next)
            && now < START + 2 * SECOND
        {
            let (bytes, until) = send(sender, self.lens[sender], now);
            sent[sender] += if now >= START + SECOND { bytes * 8 } else { 0 };
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let late = |until| until + (state >> 33) % (self.late + 1);
            next[sender] = until.map_or(now + EVERY, late).max(now + EVERY);
        }
        sent
    }

    /// Senders to ports whose egress limits draw on the bucket.
    fn egress(&self) -> Vec<u64> {
        let ports: Vec<Egress> = self.limits().into_iter().map(Egress::new).collect();
        let senders: Vec<Member> = (0..).zip(&self.lens).map(|(index, _)| member(index)).collect();
        self.run(|index, len, now| {
            let (egress, from) = (&ports[index % ports.len()], senders[index].sender());
            let room = egress.room(from, now);
            let frames = room.bytes.div_ceil(len).min(BATCH);
            let costs = std::iter::repeat_n(Cost::of_one(len as usize), frames as usize);
            let bytes = egress.admit(from, costs, None, frames as usize, now).cost.bytes;
            assert_eq!(bytes, frames * len, "frames with reserved room pass");
            let until = (frames < BATCH).then(|| egress.resume_at(now));
            until.inspect(|&until| egress.begin_wait(from, until, room.cause(0), now));
            (bytes, until)
        })
    }

    /// Ports whose ingress limits draw on the bucket, with one sender each.
    fn ingress(&self) -> Vec<u64> {
        let ports = self.limits();
        self.run(|index, len, now| {
            let limit = &ports[index];
            let grant = limit.open(now);
            let frames = grant.bytes.div_ceil(len).min(BATCH);
            limit.settle(&grant, frames * len, frames);
            (frames * len, (frames < BATCH).then(|| limit.resume_at(now)))
        })
    }

    /// Bits that a window may have more or less than the rate: the last frame of each sender, twice.
    fn grain(&self) -> u64 {
        16 * self.lens.iter().sum::<u64>()
    }

    fn check(&self, sent: &[u64], alone: u64) {
        let sum: u64 = sent.iter().sum();
        // One sender alone may have had a part of the burst left, which several have used before.
        let alone = alone.min(self.rate);
        assert!(sum + self.grain() >= alone / 100 * 98, "{self:?}: {sum} together, {alone} alone: {sent:?}");
        for (port, percent) in self.guarantees.iter().enumerate() {
            let had: u64 = sent.iter().skip(port).step_by(self.guarantees.len()).sum();
            let guaranteed = self.rate * percent / 100;
            assert!(
                had + self.grain() >= guaranteed / 100 * 98,
                "{self:?}: port {port}: {had} of {guaranteed}: {sent:?}"
            );
        }
    }
}

/// Rates, bursts, guarantees, frames and late visits of each kind.
fn plans() -> impl Iterator<Item = Plan> {
    let guarantees: [&[u64]; 4] = [&[0], &[25, 25], &[10, 20, 30], &[0, 29]];
    let lens: [&[u64]; 4] = [&[1514; 2], &[590, 1514, 1514], &[590; 5], &[1514, 590, 1514, 590, 1514, 590, 1514, 590]];
    let mut plans = Vec::new();
    for rate in [10_000_000, 100_000_000, 300_000_000, 1_000_000_000] {
        for burst in [10_000_000, 50_000_000, 200_000_000] {
            for late in [0, 1_000_000, 2_900_000] {
                for (guarantees, lens) in
                    guarantees.iter().zip(lens).chain(guarantees.iter().zip(lens.iter().rev().copied()))
                {
                    let guarantees = guarantees[..guarantees.len().min(lens.len())].to_vec();
                    plans.push(Plan { rate, burst, guarantees, lens: lens.to_vec(), late });
                }
            }
        }
    }
    plans.into_iter()
}

#[test]
fn waiting_senders_use_together_what_a_bucket_lends_their_ports() {
    for plan in plans() {
        let alone = Plan { lens: plan.lens[..1].to_vec(), guarantees: vec![0], ..plan.clone() }.egress()[0];
        plan.check(&plan.egress(), alone);
    }
}

#[test]
fn ports_whose_frames_wait_use_together_what_their_bucket_has() {
    for plan in plans() {
        let of_each = |index: usize| plan.guarantees.get(index).copied().unwrap_or(0);
        let guarantees = (0..plan.lens.len()).map(of_each).collect();
        let plan = Plan { guarantees, ..plan };
        let alone = Plan { lens: plan.lens[..1].to_vec(), guarantees: vec![0], ..plan.clone() }.ingress()[0];
        plan.check(&plan.ingress(), alone);
    }
}
