//! Distance of the two cores: the time that one cache line takes from one core to the other, measured before and after every window.
//!
//! On a virtual machine the placement of its CPUs changes from second to second, and with it every figure that depends on two cores. A window counts only when the distance before it and after it is of the same [`Class`].

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::patience::PATIENCE;

/// A crossing below this many nanoseconds is near.
pub const NEAR_BELOW_NS: f64 = 110.0;
/// A crossing above this many nanoseconds is far.
pub const FAR_ABOVE_NS: f64 = 150.0;

/// Groups of round trips per probe; the probe's answer is the median group.
const GROUPS: usize = 9;
/// Round trips per group: long enough for the clock, short enough that a probe takes about two milliseconds.
const TRIPS_PER_GROUP: u64 = 250;

/// The two cores of a measurement.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Cores {
    /// Runs the traffic source and sink.
    pub generator: usize,
    /// Runs the switch under test.
    pub switch: usize,
}

impl Cores {
    /// The first two cores this process may run on.
    ///
    /// # Errors
    /// There is only one.
    pub fn choose() -> io::Result<Cores> {
        let allowed = sched_getaffinity(None)?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        match (usable.next(), usable.next()) {
            (Some(generator), Some(switch)) => Ok(Cores { generator, switch }),
            _ => Err(io::Error::other(
                "measuring needs two cores, one for the generator and one for the switch; this process may use only one",
            )),
        }
    }
}

/// How far apart the cores were during a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// One crossing takes less than [`NEAR_BELOW_NS`].
    Near,
    /// One crossing takes more than [`FAR_ABOVE_NS`].
    Far,
    /// In between, or different before and after: the window is discarded.
    Mixed,
    /// Not measured: the scheduler places what is under test.
    Any,
}

impl Class {
    /// The class of a window between two probes, each in nanoseconds per crossing.
    #[must_use]
    pub fn of(before_ns: f64, after_ns: f64) -> Class {
        if before_ns < NEAR_BELOW_NS && after_ns < NEAR_BELOW_NS {
            Class::Near
        } else if before_ns > FAR_ABOVE_NS && after_ns > FAR_ABOVE_NS {
            Class::Far
        } else {
            Class::Mixed
        }
    }

    /// Its name in tables and plots.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Near => "near",
            Class::Far => "far",
            Class::Mixed => "mixed",
            Class::Any => "any",
        }
    }
}

/// Pins the calling thread to `core`.
///
/// # Errors
/// The process may not run there.
pub fn pin(core: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).map_err(|error| io::Error::other(format!("cannot run on core {core}: {error}")))
}

/// Lets the calling thread run on both cores.
///
/// # Errors
/// The process may not run there.
pub fn unpin(cores: Cores) -> io::Result<()> {
    let mut both = CpuSet::new();
    both.set(cores.generator);
    both.set(cores.switch);
    Ok(sched_setaffinity(None, &both)?)
}

/// A value alone on its cache line, and on the neighbour the prefetcher fetches with it.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// Nanoseconds one cache line takes from core to core: two threads hand it back and forth.
///
/// The caller's thread is left pinned to the generator's core. Hold whatever else runs on either core still.
///
/// # Errors
/// A core cannot be used, or does not answer for five seconds.
pub fn crossing_ns(cores: Cores) -> io::Result<f64> {
    pin(cores.generator)?;
    let line = CachePadded(AtomicU64::new(0));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let echo = scope.spawn(|| -> io::Result<()> {
            pin(cores.switch)?;
            let mut turn = 1;
            while wait_for(&line.0, turn, &over) {
                line.0.store(turn + 1, Ordering::Release);
                turn += 2;
            }
            Ok(())
        });
        let result = bounce(&line.0, &over);
        over.store(true, Ordering::Release);
        echo.join().map_err(|_| io::Error::other("the probe's thread panicked"))??;
        result
    })
}

fn bounce(line: &AtomicU64, over: &AtomicBool) -> io::Result<f64> {
    let mut groups = [0.0; GROUPS];
    let mut turn = 1;
    // The first group waits for the other thread to start and is not counted.
    for group in 0..=GROUPS {
        let start = Instant::now();
        for _ in 0..TRIPS_PER_GROUP {
            line.store(turn, Ordering::Release);
            if !wait_for(line, turn + 1, over) {
                return Err(io::Error::other("the other core does not answer the distance probe"));
            }
            turn += 2;
        }
        if group > 0 {
            groups[group - 1] = start.elapsed().as_nanos() as f64 / (2 * TRIPS_PER_GROUP) as f64;
        }
    }
    groups.sort_by(f64::total_cmp);
    Ok(groups[GROUPS / 2])
}

/// Spins until `line` holds `value`. Returns false if the measurement is over or the other core does not answer.
fn wait_for(line: &AtomicU64, value: u64, over: &AtomicBool) -> bool {
    let mut silent_since = None;
    loop {
        for _ in 0..4096 {
            if line.load(Ordering::Acquire) == value {
                return true;
            }
            std::hint::spin_loop();
        }
        let since = *silent_since.get_or_insert_with(Instant::now);
        if over.load(Ordering::Acquire) || since.elapsed() > PATIENCE {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_whose_cores_moved_belongs_to_no_class() {
        assert_eq!(Class::of(45.0, 50.0), Class::Near);
        assert_eq!(Class::of(235.0, 160.0), Class::Far);
        assert_eq!(Class::of(45.0, 235.0), Class::Mixed);
        assert_eq!(Class::of(235.0, 45.0), Class::Mixed);
        assert_eq!(Class::of(120.0, 120.0), Class::Mixed);
    }

    #[test]
    fn the_probe_answers_with_a_time() {
        let Ok(cores) = Cores::choose() else { ringway_testing::skip!("needs two processors") };
        thread::spawn(move || assert!(crossing_ns(cores).unwrap() > 0.0)).join().unwrap();
    }

    #[test]
    fn pinning_to_a_core_that_does_not_exist_names_it() {
        let error = thread::spawn(|| pin(CpuSet::MAX_CPU - 1).unwrap_err().to_string()).join().unwrap();
        assert!(error.contains(&format!("core {}", CpuSet::MAX_CPU - 1)), "{error}");
    }
}
