//! A switch that hangs: its control thread or a poller makes no progress.
//!
//! The switch says each half second that all of them go on. While it does not, the keeper looks at these threads every 100 ms. What counts
//! against a thread is the time in which it could have gone on and did not: the processor time that it used without a round of its loop, and
//! a fifth of the time for which it slept. So a thread that has no processor, on a machine with much other work or that stood still, loses
//! nothing by that, and neither does one that is stopped (SIGSTOP, a debugger) or that the kernel keeps (state `D`), which no signal ends. While the kernel
//! keeps any thread, the switch is not ended: a thread that sleeps may wait for that one and is excused, and one that runs is judged afterwards.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::page::{CONTROL, Left, Watched};

/// Time without a word that all is well, after which the keeper looks.
pub(super) const SUSPECT_AFTER: Duration = Duration::from_millis(750);
/// Time between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What a thread may use, or not go on for, without progress.
const MOST: Duration = Duration::from_secs(2);
/// The part of the time of a sleeping thread that counts: it may wait for another one, which has no processor.
const ASLEEP: u32 = 5;
/// Most threads of a switch that are looked at for one that the kernel keeps.
const THREADS_MOST: usize = 4096;

/// A thread as it was seen last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    watched: Watched,
    task: Task,
    /// What counts against it.
    stood: Duration,
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    /// proc_pid_stat(5).
    state: char,
    /// Its processor time.
    used: Duration,
}

/// What was seen of the threads of one switch since it said last that all is well.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last: Option<Instant>,
    threads: Vec<Seen>,
}

impl Looks {
    /// Looks at the threads of the process `switch`. Returns the slot and the number of one that hangs.
    pub(super) fn look(&mut self, page: &OwnedFd, switch: u32, now: Instant) -> Option<(usize, u32)> {
        let left = Left::read_slots(page).ok()?;
        let is_kept = || keeps_one(switch);
        self.judge(left.watched(), |thread| task(switch, thread), is_kept, now)
    }

    /// The same with what the page and the kernel say. `is_kept`: the kernel keeps some thread of the switch.
    fn judge(
        &mut self,
        watched: impl Iterator<Item = Watched>,
        task: impl Fn(u32) -> Option<Task>,
        is_kept: impl Fn() -> bool,
        now: Instant,
    ) -> Option<(usize, u32)> {
        // The keeper itself may have stood still.
        let passed = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last).min(2 * LOOK_EVERY));
        self.last = Some(now);
        let before = std::mem::take(&mut self.threads);
        for watched in watched {
            let Some(task) = task(watched.thread) else { continue };
            let same = before.iter().find(|seen| seen.watched == watched);
            let stood = same.map_or(Duration::ZERO, |seen| {
                let used = task.used.saturating_sub(seen.task.used);
                seen.stood
                    + match task.state {
                        'R' => used,
                        'S' => used.max(passed / ASLEEP),
                        _ => Duration::ZERO,
                    }
            });
            self.threads.push(Seen { watched, task, stood });
        }
        // While the control thread stands, it wakes no poller: one that sleeps may have nothing to do.
        let is_control = |seen: &&Seen| seen.watched.duty == CONTROL;
        let control_stands = self.threads.iter().find(is_control).is_none_or(|seen| seen.stood > Duration::ZERO);
        let is_running = |seen: &Seen| seen.task.state == 'R';
        let most = self.threads.iter().filter(|seen| is_control(seen) || !control_stands || is_running(seen));
        let Seen { watched, stood, .. } = most.max_by_key(|seen| seen.stood)?;
        if *stood < MOST {
            return None;
        }
        let hangs = (watched.slot, watched.thread);
        // To end the process would be in vain. What sleeps may wait for the thread that the kernel keeps; what runs does not.
        if is_kept() {
            let waiting = self.threads.iter_mut().filter(|seen| !is_running(seen));
            waiting.for_each(|seen| seen.stood = Duration::ZERO);
            return None;
        }
        Some(hangs)
    }
}

/// What the kernel says of a thread.
fn task(process: u32, thread: u32) -> Option<Task> {
    let of = |file: &str| fs::read_to_string(format!("/proc/{process}/task/{thread}/{file}")).ok();
    let state = state_of(&of("stat")?)?;
    let Some(used) = of("schedstat").and_then(|text| used_of(&text)) else {
        // A thread that has just ended has none, either.
        of("stat").into_iter().for_each(|_| say_once());
        return None;
    };
    Some(Task { state, used })
}

/// The processor time in a text of `/proc/PID/task/TID/schedstat`: nanoseconds on a processor, nanoseconds of waiting for one, and their number.
fn used_of(schedstat: &str) -> Option<Duration> {
    Some(Duration::from_nanos(schedstat.split(' ').next()?.parse().ok()?))
}

fn say_once() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::warn!(
            "a switch that hangs is not ended: this kernel does not say what threads use (CONFIG_SCHED_INFO)"
        );
    });
}

/// The state in the text of proc_pid_stat(5). The name before it may hold anything.
fn state_of(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns true if the kernel keeps a thread of this process.
fn keeps_one(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let stat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat")).ok();
    let mut states = threads.take(THREADS_MOST).filter_map(|thread| state_of(&stat(thread.ok()?)?));
    states.any(|state| state == 'D')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::POLLER;

    const CONTROLS: u32 = 10;
    const POLLS: u32 = 20;

    /// Looks each 100 ms, at most for this time, at a control thread and a poller. `at`: turns, state and processor time in milliseconds of a
    /// thread after so many milliseconds. Returns the thread that hangs, and when.
    fn looked(
        ms_most: u64,
        is_kept: impl Fn(u64) -> bool,
        at: impl Fn(u32, u64) -> (u64, char, u64),
    ) -> Option<(u32, u64)> {
        let (mut looks, begun) = (Looks::default(), Instant::now());
        (0..ms_most).step_by(100).find_map(|ms| {
            let watched = |slot: usize, thread, duty| Watched { slot, duty, thread, turns: at(thread, ms).0 };
            let all = [watched(0, CONTROLS, CONTROL), watched(1, POLLS, POLLER)];
            let task = |thread| {
                let (_, state, used) = at(thread, ms);
                Some(Task { state, used: Duration::from_millis(used) })
            };
            let hangs = looks.judge(all.into_iter(), task, || is_kept(ms), begun + Duration::from_millis(ms));
            hangs.map(|(_, thread)| (thread, ms))
        })
    }

    /// A control thread that does its work each half second.
    fn goes_on(ms: u64) -> (u64, char, u64) {
        (ms / 500, 'S', ms / 50)
    }

    const HOUR: u64 = 3_600_000;

    /// The kernel keeps no thread.
    fn never(_: u64) -> bool {
        false
    }

    #[test]
    fn a_thread_that_uses_two_seconds_of_a_processor_without_a_round_hangs() {
        let poller = looked(HOUR, never, |thread, ms| if thread == POLLS { (7, 'R', ms) } else { goes_on(ms) });
        assert_eq!(poller, Some((POLLS, 2000)));
        let control = looked(HOUR, never, |thread, ms| if thread == CONTROLS { (7, 'R', ms) } else { (1, 'S', 0) });
        assert_eq!(control, Some((CONTROLS, 2000)));
        let busy = looked(HOUR, never, |thread, ms| if thread == POLLS { (7, 'R', ms / 25) } else { goes_on(ms) });
        assert_eq!(busy, Some((POLLS, 50_000)), "it shares two processors with fifty others");
    }

    #[test]
    fn a_thread_that_sleeps_for_ten_seconds_instead_of_going_on_hangs() {
        let poller = looked(HOUR, never, |thread, ms| if thread == POLLS { (7, 'S', 0) } else { goes_on(ms) });
        assert_eq!(poller, Some((POLLS, 10_000)));
        // Nobody wakes the poller.
        let control = looked(HOUR, never, |_, _| (7, 'S', 0));
        assert_eq!(control, Some((CONTROLS, 10_000)));
    }

    #[test]
    fn who_has_no_processor_is_stopped_or_kept_by_the_kernel_does_not_hang() {
        for state in ['R', 'T', 't', 'D'] {
            assert_eq!(looked(HOUR, never, |_, _| (7, state, 9)), None, "{state}");
        }
        assert_eq!(looked(HOUR, |_| true, |thread, ms| if thread == POLLS { (7, 'S', 0) } else { goes_on(ms) }), None);
        let slow = |thread, ms| if thread == POLLS { (ms / 1900, 'R', ms) } else { goes_on(ms) };
        assert_eq!(looked(HOUR, never, slow), None, "it goes on, if slowly");
    }

    #[test]
    fn while_the_kernel_keeps_a_thread_those_that_sleep_are_excused_and_those_that_run_are_judged_later() {
        let spins = |thread, ms| if thread == POLLS { (7, 'R', ms) } else { goes_on(ms) };
        // At some looks, by chance or because a client has the kernel keep one.
        let often = |ms: u64| !(ms / 100).is_multiple_of(7);
        assert_eq!(looked(HOUR, often, spins), Some((POLLS, 2100)));
        assert_eq!(looked(HOUR, |ms| ms < 60_000, spins), Some((POLLS, 60_000)));
        assert_eq!(looked(HOUR, |_| true, spins), None, "to end it would be in vain");
        let sleeps = |thread, ms| if thread == POLLS { (7, 'S', 0) } else { goes_on(ms) };
        assert_eq!(looked(HOUR, |ms| ms <= 10_000, sleeps), Some((POLLS, 20_000)), "from then on");
        let both = |thread, ms| if thread == POLLS { (7, 'R', ms / 2) } else { (7, 'S', 0) };
        assert_eq!(looked(HOUR, |ms| ms < 11_000, both), Some((POLLS, 11_000)), "the one that runs");
    }

    #[test]
    fn a_keeper_that_stood_still_counts_none_of_that() {
        let (mut looks, begun) = (Looks::default(), Instant::now());
        let asleep = |_| Some(Task { state: 'S', used: Duration::ZERO });
        let control = Watched { slot: 0, duty: CONTROL, thread: CONTROLS, turns: 1 };
        for (look, hour) in (0..40).zip(0..) {
            let now = begun + Duration::from_millis(hour * HOUR);
            assert_eq!(looks.judge([control].into_iter(), asleep, || false, now), None, "look {look}");
        }
    }

    #[test]
    fn this_thread_runs_and_uses_its_processor() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let look = || task(std::process::id(), thread).expect("a thread");
        ringway_testing::until("the kernel has counted some time", || look().used > Duration::ZERO);
        assert_eq!(look().state, 'R');
        assert_eq!(state_of("1 (a) D (b) S 1 2"), Some('S'));
        assert_eq!([used_of("7000 8 9\n"), used_of("")], [Some(Duration::from_micros(7)), None]);
    }
}
