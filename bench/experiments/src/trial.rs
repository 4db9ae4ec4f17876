//! Interleaved trials: windows of the contestants by turns (A B A B …), each between two probes of the distance of the cores.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::anchor;
use crate::machine;
use crate::placement::{Class, Cores};

/// Most repetitions of a window during which the cores moved.
const MIXED_RETRIES: usize = 2;

/// Most preemptions of the generator in a window that counts: kernel threads need its core now and then.
pub(crate) const MOST_PREEMPTIONS: u64 = 8;

/// What one point of a figure measures: a switch in one configuration under one load.
///
/// It is stopped when it is created, and runs only between `resume` and `hold`.
pub trait Contestant {
    /// Lets the program under test run.
    ///
    /// # Errors
    /// The program has ended.
    fn resume(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Stops the program under test, so that nothing disturbs the next probe or window.
    ///
    /// # Errors
    /// The program has ended.
    fn hold(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns true if a window counts only while the generator has its core to itself. A generator that sleeps gives its core up.
    fn needs_its_core(&self) -> bool {
        true
    }

    /// Returns true if the distance of the cores matters. It does not for programs that run for seconds wherever the scheduler puts
    /// them.
    fn depends_on_distance(&self) -> bool {
        true
    }

    /// Returns true if the last window does not count: the generator or the program under test did not run for long enough to
    /// change the figure. Called after each window.
    fn was_held_up(&self) -> bool {
        false
    }

    /// Runs the load for about `span`, after a short warm-up. Returns the figure in the unit of the y axis.
    ///
    /// # Errors
    /// The load could not run. The message says why.
    fn window(&mut self, span: Duration) -> io::Result<f64>;
}

/// A contestant, its curve and its place.
pub struct Entry {
    /// Name of the curve.
    pub series: String,
    /// Place on the x axis.
    pub x: f64,
    /// The contestant.
    pub contestant: Box<dyn Contestant>,
}

/// One window's outcome.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sample {
    /// Name of the curve.
    pub series: String,
    /// Place on the x axis.
    pub x: f64,
    /// Number of the round. Samples of one round and class are compared with each other.
    pub round: usize,
    /// Distance of the cores.
    pub class: Class,
    /// Nanoseconds per crossing before and after the window; 0 where the distance does not matter.
    pub crossing_ns: [f64; 2],
    /// The figure, in the unit of the y axis.
    pub value: f64,
}

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Number of rounds.
    pub pairs: usize,
    /// Length of a window.
    pub span: Duration,
    /// Time of a figure after which no round starts.
    pub budget: Duration,
}

/// Result of a series of rounds.
#[derive(Default)]
pub struct Outcome {
    /// Every window whose cores stayed where they were.
    pub samples: Vec<Sample>,
    /// Number of windows discarded because the cores moved, or because this program lost its core.
    pub discarded: usize,
    /// Curves of the discarded windows.
    pub disturbed: BTreeSet<String>,
    /// Failures, in words.
    pub notes: Vec<String>,
}

/// Callbacks of the rounds.
pub struct Callbacks<'a> {
    /// Returns the nanoseconds per crossing, now.
    pub probe: &'a mut dyn FnMut() -> io::Result<f64>,
    /// Called before every window; true ends the rounds.
    pub stop: &'a dyn Fn() -> bool,
    /// Called before every window, with its name.
    pub progress: &'a mut dyn FnMut(&str),
}

/// Runs all `entries` in turn. Entries of one x should stand together, the anchor first: their windows are adjacent.
///
/// An entry whose window fails is noted and left out from then on.
pub fn run(schedule: Schedule, title: &str, mut entries: Vec<Entry>, callbacks: &mut Callbacks) -> Outcome {
    let mut outcome = Outcome::default();
    let start = Instant::now();
    for round in 1..=schedule.pairs {
        if round > 1 && start.elapsed() > schedule.budget {
            outcome.notes.push(format!("{title}: time is up after {} of {} rounds", round - 1, schedule.pairs));
            break;
        }
        let mut index = 0;
        while index < entries.len() {
            if (callbacks.stop)() {
                outcome.notes.push(format!("{title}: interrupted in round {round} of {}", schedule.pairs));
                return outcome;
            }
            let entry = &mut entries[index];
            (callbacks.progress)(&format!("round {round}/{}, {title}: {}, {}", schedule.pairs, entry.series, entry.x));
            match sample(schedule.span, round, entry, callbacks, &mut outcome) {
                Ok(()) => index += 1,
                Err(error) => {
                    outcome.notes.push(format!("{} at {}: {error}", entry.series, entry.x));
                    entries.remove(index);
                }
            }
        }
    }
    outcome
}

/// Takes one window, and repeats it while the cores move. Discards it after [`MIXED_RETRIES`] repetitions.
fn sample(
    span: Duration,
    round: usize,
    entry: &mut Entry,
    callbacks: &mut Callbacks,
    outcome: &mut Outcome,
) -> io::Result<()> {
    if !entry.contestant.depends_on_distance() {
        entry.contestant.resume()?;
        let value = entry.contestant.window(span);
        entry.contestant.hold()?;
        let (series, x, class, crossing_ns) = (entry.series.clone(), entry.x, Class::Any, [0.0; 2]);
        outcome.samples.push(Sample { series, x, round, class, crossing_ns, value: value? });
        return Ok(());
    }
    let mut before = (callbacks.probe)()?;
    for _ in 0..=MIXED_RETRIES {
        entry.contestant.resume()?;
        let lost = machine::times_preempted();
        let value = entry.contestant.window(span);
        let lost = machine::times_preempted() - lost;
        entry.contestant.hold()?;
        let value = value?;
        let after = (callbacks.probe)()?;
        let class = Class::of(before, after);
        let was_alone = lost <= MOST_PREEMPTIONS || !entry.contestant.needs_its_core();
        let was_alone = was_alone && !entry.contestant.was_held_up();
        if class != Class::Mixed && was_alone {
            let (series, crossing_ns) = (entry.series.clone(), [before, after]);
            outcome.samples.push(Sample { series, x: entry.x, round, class, crossing_ns, value });
            return Ok(());
        }
        outcome.discarded += 1;
        outcome.disturbed.insert(entry.series.clone());
        before = after;
    }
    Ok(())
}

/// The bare ring as a contestant, in million frames per second.
pub struct Anchor {
    /// The two cores.
    pub cores: Cores,
    /// Length of its frames.
    pub frame_len: usize,
}

impl Contestant for Anchor {
    fn window(&mut self, span: Duration) -> io::Result<f64> {
        Ok(anchor::frames_per_second(self.cores, self.frame_len, span)? / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use super::*;

    type Log = Rc<RefCell<Vec<String>>>;

    struct Scripted {
        name: &'static str,
        log: Log,
        fails_at: usize,
    }

    impl Contestant for Scripted {
        fn resume(&mut self) -> io::Result<()> {
            self.log.borrow_mut().push(format!("{}+", self.name));
            Ok(())
        }
        fn hold(&mut self) -> io::Result<()> {
            self.log.borrow_mut().push(format!("{}-", self.name));
            Ok(())
        }
        fn window(&mut self, _: Duration) -> io::Result<f64> {
            self.fails_at -= 1;
            if self.fails_at == 0 { Err(io::Error::other("cable cut")) } else { Ok(1.0) }
        }
    }

    /// Three rounds of "a" and "b"; a probe gives the next of `distances`, for ever.
    fn run_scripted(fails_at: [usize; 2], stop_after: usize, distances: &[f64]) -> (Vec<String>, Outcome) {
        let log = Log::default();
        let entry = |name, fails_at| Entry {
            series: String::from(name),
            x: 1.0,
            contestant: Box::new(Scripted { name, log: Rc::clone(&log), fails_at }),
        };
        let entries = vec![entry("a", fails_at[0]), entry("b", fails_at[1])];
        let schedule = Schedule { pairs: 3, span: Duration::ZERO, budget: Duration::MAX };
        let windows = Cell::new(0);
        let mut distance = distances.iter().cycle();
        let mut callbacks = Callbacks {
            probe: &mut || Ok(*distance.next().unwrap()),
            stop: &|| windows.get() >= stop_after,
            progress: &mut |_| windows.set(windows.get() + 1),
        };
        let outcome = run(schedule, "test", entries, &mut callbacks);
        (log.take(), outcome)
    }

    #[test]
    fn contestants_take_turns_and_only_one_runs_at_a_time() {
        let (turns, outcome) = run_scripted([99, 99], 99, &[50.0]);
        assert_eq!(turns, ["a+", "a-", "b+", "b-"].repeat(3));
        assert_eq!((outcome.samples.len(), outcome.notes.len()), (6, 0));
    }

    #[test]
    fn a_window_in_which_the_cores_moved_is_repeated_and_does_not_count() {
        let (turns, outcome) = run_scripted([99, 99], 1, &[50.0, 235.0, 235.0]);
        assert_eq!(turns, ["a+", "a-", "a+", "a-"]);
        assert_eq!((outcome.samples.len(), outcome.discarded), (1, 1));
        assert_eq!(outcome.samples[0].class, Class::Far);
    }

    #[test]
    fn cores_that_never_stand_still_do_not_hold_up_the_rounds() {
        let (_, outcome) = run_scripted([99, 99], 99, &[120.0]);
        assert_eq!((outcome.samples.len(), outcome.discarded), (0, 6 * (1 + MIXED_RETRIES)));
        assert!(outcome.disturbed.iter().eq(["a", "b"]));
    }

    #[test]
    fn a_contestant_that_fails_is_held_and_named_and_the_others_go_on() {
        let (turns, outcome) = run_scripted([99, 1], 99, &[50.0]);
        assert_eq!(turns, ["a+", "a-", "b+", "b-", "a+", "a-", "a+", "a-"]);
        assert_eq!(outcome.notes, ["b at 1: cable cut"]);
    }

    #[test]
    fn an_interrupted_run_keeps_what_it_has() {
        let (_, outcome) = run_scripted([99, 99], 3, &[50.0]);
        assert_eq!(outcome.samples.len(), 3);
        assert_eq!(outcome.notes, ["test: interrupted in round 2 of 3"]);
    }
}
