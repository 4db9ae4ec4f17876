//! A program's own counters, gauges and drop reasons.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ringway_switch::MAX_REASONS;

use crate::limits::{METERS, NAME_MAX};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameOf {
    Reason,
    Counter,
    Gauge,
}

impl NameOf {
    fn most(self) -> usize {
        match self {
            NameOf::Reason => MAX_REASONS,
            NameOf::Counter | NameOf::Gauge => METERS,
        }
    }

    /// The word for messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            NameOf::Reason => "drop reason",
            NameOf::Counter => "counter",
            NameOf::Gauge => "gauge",
        }
    }
}

/// The meters of one instance. Only the holder of the instance writes them.
#[derive(Debug)]
pub(crate) struct InstanceMeters {
    batches: AtomicU64,
    drops: [AtomicU64; MAX_REASONS],
    counters: [AtomicU64; METERS],
    gauges: [AtomicI64; METERS],
}

impl InstanceMeters {
    fn new() -> InstanceMeters {
        InstanceMeters {
            batches: AtomicU64::new(0),
            drops: [const { AtomicU64::new(0) }; MAX_REASONS],
            counters: [const { AtomicU64::new(0) }; METERS],
            gauges: [const { AtomicI64::new(0) }; METERS],
        }
    }

    #[inline]
    pub(crate) fn add_batch(&self) {
        add(&self.batches, 1);
    }

    #[inline]
    pub(crate) fn add_drops(&self, drops: &[u64]) {
        for (counter, drops) in self.drops.iter().zip(drops).filter(|(_, drops)| **drops > 0) {
            add(counter, *drops);
        }
    }

    pub(crate) fn add_counter(&self, number: usize, value: u64) {
        if let Some(counter) = self.counters.get(number) {
            add(counter, value);
        }
    }

    pub(crate) fn set_gauge(&self, number: usize, value: i64) {
        if let Some(gauge) = self.gauges.get(number) {
            gauge.store(value, Ordering::Relaxed);
        }
    }

    /// A new instance has set no gauge yet.
    pub(crate) fn reset_gauges(&self) {
        self.gauges.iter().for_each(|gauge| gauge.store(0, Ordering::Relaxed));
    }
}

/// Adds to a counter with one writer.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

#[derive(Debug, Default)]
struct Names {
    reasons: Vec<String>,
    counters: Vec<String>,
    gauges: Vec<String>,
}

/// The meters of all instances of a program, and their names.
#[derive(Debug)]
pub(crate) struct Meters {
    names: Mutex<Names>,
    instances: Box<[InstanceMeters]>,
}

impl Meters {
    pub(crate) fn new(instances: usize) -> Meters {
        Meters { names: Mutex::default(), instances: (0..instances).map(|_| InstanceMeters::new()).collect() }
    }

    /// The number of a name, which is new or known.
    ///
    /// # Errors
    /// Why the name cannot be had.
    pub(crate) fn register(&self, of: NameOf, name: &[u8]) -> Result<usize, String> {
        // A name can be given with the length of the memory.
        let shown = &name[..name.len().min(NAME_MAX + 1)];
        let Some(name) = std::str::from_utf8(shown).ok().filter(|name| is_name(name)) else {
            let name = String::from_utf8_lossy(shown);
            return Err(format!(
                "{name:?} is no name of a {}: write 1 to {NAME_MAX} of a-z, 0-9 and _, a letter first",
                of.word()
            ));
        };
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match of {
            NameOf::Reason => &mut names.reasons,
            NameOf::Counter => &mut names.counters,
            NameOf::Gauge => &mut names.gauges,
        };
        if let Some(number) = known.iter().position(|known| known == name) {
            return Ok(number);
        }
        if known.len() >= of.most() {
            return Err(format!("{name:?} is one {} more than the {} that a program may have", of.word(), of.most()));
        }
        known.push(name.to_owned());
        Ok(known.len() - 1)
    }

    pub(crate) fn of(&self, instance: usize) -> Option<&InstanceMeters> {
        self.instances.get(instance)
    }

    /// Number of calls of `ringway_frames`.
    pub(crate) fn batches(&self) -> u64 {
        self.instances.iter().map(|instance| instance.batches.load(Ordering::Relaxed)).sum()
    }

    /// Frames dropped, by the program's own reasons.
    pub(crate) fn drops(&self) -> Vec<(String, u64)> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        self.sums(&names.reasons, |instance, number| instance.drops[number].load(Ordering::Relaxed))
    }

    /// The program's counters.
    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        self.sums(&names.counters, |instance, number| instance.counters[number].load(Ordering::Relaxed))
    }

    /// The program's gauges: the sum of all instances.
    pub(crate) fn gauges(&self) -> Vec<(String, i64)> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let gauge = |instance: &InstanceMeters, number: usize| instance.gauges[number].load(Ordering::Relaxed);
        let sum = |number| self.instances.iter().fold(0_i64, |sum, one| sum.wrapping_add(gauge(one, number)));
        names.gauges.iter().enumerate().map(|(number, name)| (name.clone(), sum(number))).collect()
    }

    fn sums(&self, names: &[String], get: impl Fn(&InstanceMeters, usize) -> u64) -> Vec<(String, u64)> {
        let sum = |number| self.instances.iter().fold(0_u64, |sum, one| sum.wrapping_add(get(one, number)));
        names.iter().enumerate().map(|(number, name)| (name.clone(), sum(number))).collect()
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    (1..=NAME_MAX).contains(&name.len())
        && name.as_bytes()[0].is_ascii_lowercase()
        && name.as_bytes().iter().all(is_letter)
}
