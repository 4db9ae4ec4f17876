//! Limits: from the configuration to the values that pollers use, and from these to the status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringway_api::limits::{BucketStatus, LimitStatus, LimitTally, Refused, StormBursts, StormCounts, StormStatus};
use ringway_api::traffic::Traffic;
use ringway_config::keys::units::{show_bits, show_rate, show_size};
use ringway_config::limit::Rate;
use ringway_config::{Bucket, Excess, Limit, Memory, Name, Port, Storm};
use ringway_memory::Limits;
use ringway_switch::Policy;
use ringway_switch::policy::{self as data, Egress, Rates, Shared, Tally, TallyReading};

/// Returns the bounds of the memory that all front ends together give.
pub fn of_all_memory(memory: Memory) -> Limits {
    let limits = memory.limits();
    let system = rustix::system::sysinfo();
    let half = system.totalram.saturating_mul(system.mem_unit.into()) / 2;
    Limits { holes: if limits.holes == u64::MAX { half } else { limits.holes }, ..limits }
}

/// The live buckets that ports share.
#[derive(Clone, Debug, Default)]
pub struct Buckets(BTreeMap<Name, Arc<Shared>>);

impl Buckets {
    /// Adds, changes or removes a bucket. A bucket that changes keeps its fill and its counters.
    pub fn set(&mut self, name: &Name, settings: Option<&Bucket>) {
        let before = self.0.remove(name);
        if let Some(settings) = settings {
            let before = before.unwrap_or_default();
            let bits = Some(bucket(before.rates.bits.as_ref(), settings.rate, settings.burst * 8));
            let frames = settings.frames.map(|(rate, burst)| bucket(before.rates.frames.as_ref(), rate, burst));
            self.0.insert(name.clone(), Arc::new(before.changed(Rates { bits, frames })));
        }
    }

    /// Returns the status of each bucket, with the number of ports that use it.
    pub fn report<'a>(
        &self,
        settings: &BTreeMap<Name, Bucket>,
        ports: impl Iterator<Item = &'a Port> + Clone,
        now: u64,
    ) -> Vec<BucketStatus> {
        let users = |name: &Name| ports.clone().filter(|port| port.draws_on(name)).count();
        let report = |(name, shared): (&Name, &Arc<Shared>)| {
            let rates = &shared.rates;
            let settings = settings.get(name)?;
            Some(BucketStatus {
                name: name.to_string(),
                rate: show_bits(settings.rate),
                burst: show_size(settings.burst),
                frames: settings.frames.map(|(rate, _)| show_rate(rate)),
                frames_burst: settings.frames.map(|(_, burst)| burst),
                fill: rates.bits.as_ref().map(|bucket| bucket.fill_at(now)),
                frames_fill: rates.frames.as_ref().map(|bucket| bucket.fill_at(now)),
                ports: users(name),
                tally: shared_tally(shared.tally()),
            })
        };
        self.0.iter().filter_map(report).collect()
    }
}

/// Returns a bucket with the fill of `before`.
fn bucket(before: Option<&data::Bucket>, rate: u64, burst: u64) -> data::Bucket {
    before.map_or_else(|| data::Bucket::new(rate, burst), |before| before.changed(rate, burst))
}

/// Returns the policy of a port with these settings. Its buckets keep the fill that they have in `before`.
pub fn policy(before: Option<&Policy>, settings: &Port, buckets: &Buckets) -> Policy {
    let ingress = settings.ingress.is_some().then(|| {
        let before = before.and_then(|policy| policy.ingress.as_deref());
        Arc::new(limit(before, &settings.ingress, settings.weight, buckets))
    });
    let egress = settings.egress.is_some().then(|| {
        let before = before.and_then(|policy| policy.egress.as_deref());
        let limit = limit(before.map(Egress::limit), &settings.egress, settings.weight, buckets);
        Arc::new(match before {
            Some(before) => before.changed(limit),
            None => Egress::new(limit),
        })
    });
    let storm = settings.storm.is_some().then(|| {
        let none = data::Storm::default();
        let before = before.and_then(|policy| policy.storm.as_deref()).unwrap_or(&none);
        let now = &settings.storm;
        let [broadcast, multicast, unknown_unicast] = [
            class(&before.broadcast, now, now.broadcast),
            class(&before.multicast, now, now.multicast),
            class(&before.unknown_unicast, now, now.unknown_unicast),
        ];
        Arc::new(data::Storm::new(broadcast, multicast, unknown_unicast).continuing(before))
    });
    Policy { ingress, egress, storm, ..Policy::default() }
}

fn limit(before: Option<&data::Limit>, settings: &Limit, weight: u32, buckets: &Buckets) -> data::Limit {
    let none = data::Limit::new(Rates::default());
    let before = before.unwrap_or(&none);
    let bits = |before: &Option<data::Bucket>, rate: Option<u64>| {
        rate.map(|rate| bucket(before.as_ref(), rate, settings.burst_at(rate) * 8))
    };
    let frames = settings.frames.map(|rate| bucket(before.own.frames.as_ref(), rate, settings.frames_burst_at(rate)));
    let mut limit = data::Limit::new(Rates { bits: bits(&before.own.bits, settings.rate), frames }).continuing(before);
    limit.shared = settings.bucket.as_ref().and_then(|name| buckets.0.get(name)).cloned();
    // Without a ceiling the bucket alone bounds what it lends.
    limit.ceiling = bits(&before.ceiling, settings.ceiling);
    limit.weight = weight;
    limit.excess = match settings.excess() {
        Excess::Drop => data::Excess::Drop,
        Excess::Wait => data::Excess::Wait,
        Excess::Shape => data::Excess::Shape,
    };
    limit
}

fn class(before: &Rates, storm: &Storm, rate: Option<Rate>) -> Rates {
    match rate {
        None => Rates::default(),
        Some(rate @ Rate::Frames(frames)) => {
            Rates { bits: None, frames: Some(bucket(before.frames.as_ref(), frames, storm.burst_at(rate))) }
        }
        Some(rate @ Rate::Bits(bits)) => {
            Rates { bits: Some(bucket(before.bits.as_ref(), bits, storm.burst_at(rate) * 8)), frames: None }
        }
    }
}

/// Returns the status of a limit: its settings, with the defaults, and the fill of its buckets. `None` if there is no limit.
pub fn report(settings: &Limit, live: Option<&data::Limit>, now: u64) -> Option<LimitStatus> {
    settings.is_some().then(|| LimitStatus {
        rate: settings.rate.map(show_bits),
        ceiling: settings.ceiling.map(show_bits),
        burst: settings.rate.or(settings.ceiling).map(|rate| show_size(settings.burst_at(rate))),
        frames: settings.frames.map(show_rate),
        frames_burst: settings.frames.map(|frames| settings.frames_burst_at(frames)),
        bucket: settings.bucket.as_ref().map(Name::to_string),
        on_excess: settings.excess().as_str().to_owned(),
        fill: live.and_then(|l| l.own.bits.as_ref().or(l.ceiling.as_ref())).map(|bucket| bucket.fill_at(now)),
        frames_fill: live.and_then(|l| l.own.frames.as_ref()).map(|bucket| bucket.fill_at(now)),
        tally: live.map_or_else(LimitTally::default, |live| tally(live.tally(), settings.bucket.is_some())),
    })
}

/// Returns the counters of a port's limit.
fn tally(tally: &Tally, has_bucket: bool) -> LimitTally {
    let now = tally.read();
    let shared = now.refused_shared_bits + now.refused_shared_frames;
    LimitTally {
        passed: Traffic { frames: now.frames, bytes: now.bytes },
        refused: Refused {
            bits: now.refused_bits,
            frames: now.refused_frames,
            bucket: (has_bucket || shared > 0).then_some(shared),
        },
        waits: now.waits,
        waited: Duration::from_nanos(now.waited).as_secs_f64(),
    }
}

/// Returns the counters of a shared bucket. Its refusals are counted as those of a shared bucket.
fn shared_tally(shared: &Tally) -> LimitTally {
    let now = shared.read();
    let refused = Refused { bits: now.refused_shared_bits, frames: now.refused_shared_frames, bucket: None };
    LimitTally { refused, ..tally(shared, false) }
}

/// Returns the status of storm control: its settings and counters. `None` if there is none.
pub fn report_storm(settings: &Port, live: Option<&data::Storm>) -> Option<StormStatus> {
    let storm = &settings.storm;
    let show = |rate: Option<Rate>| rate.map(|rate| rate.to_string());
    let burst = |rate: Option<Rate>| {
        rate.map(|rate| match rate {
            Rate::Frames(_) => format!("{} frames", storm.burst_at(rate)),
            Rate::Bits(_) => show_size(storm.burst_at(rate)),
        })
    };
    let counts = |count: fn(TallyReading) -> u64| {
        let [broadcast, multicast, unknown_unicast] =
            live.map_or([0; 3], |live| live.tallies().each_ref().map(|class| count(class.read())));
        StormCounts { broadcast, multicast, unknown_unicast }
    };
    storm.is_some().then(|| StormStatus {
        broadcast: show(storm.broadcast),
        multicast: show(storm.multicast),
        unknown_unicast: show(storm.unknown_unicast),
        bursts: StormBursts {
            broadcast: burst(storm.broadcast),
            multicast: burst(storm.multicast),
            unknown_unicast: burst(storm.unknown_unicast),
        },
        passed: counts(|class| class.frames),
        refused: counts(|class| class.refused()),
    })
}
