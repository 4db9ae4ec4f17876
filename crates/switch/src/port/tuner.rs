//! Moderation that finds its interval: for each port and each reason to call, from what the calls brought (thesis chapter 5; Linux's
//! dynamic interrupt moderation, `lib/dim`, climbs in the same way).
//!
//! Calls are counted in samples of a few milliseconds. A client that gets many calls begins with the longest interval. From then on
//! another one is tried now and then, and the next one in the same direction while that gains: more frames, or as many with fewer calls.
//! A trial takes samples with both intervals by turns, because a sample of a guest that shares its processor says little by itself. An
//! interval in which a call gathers hardly more than one frame only delays: then every call is made at once again. So a client that waits for each frame gets each at once, and one that is busy
//! gets fewer calls.

/// Intervals, in nanoseconds.
const INTERVALS: [u64; 5] = [0, 25_000, 50_000, 100_000, 200_000];
/// Shortest time of a sample, in nanoseconds, and the least number of calls in it.
const SAMPLE: u64 = 4_000_000;
const SAMPLE_CALLS: u64 = 8;
/// A sample ends after this time in any case.
const LONGEST_SAMPLE: u64 = 50_000_000;
/// Calls per second up to which no interval is tried: they cost little.
const FEW_CALLS: u64 = 4_000;
/// Samples of a trial, half of them with each interval.
const TRIAL: u32 = 24;
/// Samples after which a resting search looks whether the rates have changed.
const LOOK: u32 = 16;
/// Looks after which another interval is tried although nothing changed.
const PATIENCE: u32 = 8;
/// Percent by which rates differ from those of another interval, and from those of an earlier time.
const DIFFERS: u64 = 10;
const HAS_CHANGED: u64 = 25;

/// The totals of a port in a call's direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a number of samples brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    nanoseconds: u64,
    calls: u64,
    frames: u64,
    bytes: u64,
}

/// Where the search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// The next sample shows whether there is anything to gain.
    Begin,
    /// A longer interval is tried against the one that is kept, or a shorter one.
    Try { longer: bool, kept: Sum, tried: Sum, samples: u32 },
    /// The interval stays while the rates are about these, for a number of looks; what the samples since the last look brought.
    Rest { before: Option<Sum>, since: Sum, samples: u32, looks: u32 },
}

/// Finds the interval of one port for one reason.
#[derive(Debug)]
pub struct Tuner {
    /// The interval that is kept, and the one in force.
    kept: usize,
    level: usize,
    search: Search,
    /// The next interval to be tried after a rest is a longer one.
    tries_longer: bool,
    /// When the sample began, the totals then, and its calls.
    since: u64,
    totals: Totals,
    calls: u64,
}

impl Default for Tuner {
    fn default() -> Tuner {
        let (search, totals) = (Search::Begin, Totals::default());
        Tuner { kept: 0, level: 0, search, tries_longer: false, since: 0, totals, calls: 0 }
    }
}

/// How one interval is compared with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Same,
    Worse,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.nanoseconds += other.nanoseconds;
        self.calls += other.calls;
        self.frames += other.frames;
        self.bytes += other.bytes;
    }

    fn rate(self, count: u64) -> u64 {
        (u128::from(count) * 1_000_000_000 / u128::from(self.nanoseconds.max(1))) as u64
    }

    /// Compares the rates. They are the same if they differ by no more than this percentage.
    fn than(self, other: Sum, percent: u64) -> Verdict {
        let rates = |of: fn(Sum) -> u64| (self.rate(of(self)), other.rate(of(other)));
        let differ = |(a, b): (u64, u64)| a.abs_diff(b) > a.max(b) / 100 * percent;
        let if_better = |is: bool| if is { Verdict::Better } else { Verdict::Worse };
        let (bytes, frames, calls) = (rates(|of| of.bytes), rates(|of| of.frames), rates(|of| of.calls));
        if differ(bytes) {
            if_better(bytes.0 > bytes.1)
        } else if differ(frames) {
            if_better(frames.0 > frames.1)
        } else if differ(calls) {
            if_better(calls.0 < calls.1)
        } else {
            Verdict::Same
        }
    }

    /// Returns true if a call gathers hardly more than one frame.
    fn is_single(self) -> bool {
        self.frames * 2 < self.calls * 3
    }
}

impl Tuner {
    /// Notes that the client was called at about `now` nanoseconds, and the totals at that time. Returns the interval from now on, in
    /// nanoseconds.
    pub fn note_call(&mut self, now: u64, totals: Totals) -> u64 {
        self.calls += 1;
        let passed = now.saturating_sub(self.since);
        if passed >= SAMPLE && (self.calls >= SAMPLE_CALLS || passed >= LONGEST_SAMPLE) {
            self.end_sample(now, passed, totals);
        }
        INTERVALS[self.level]
    }

    fn end_sample(&mut self, now: u64, passed: u64, totals: Totals) {
        let sample = Sum {
            nanoseconds: passed,
            calls: self.calls,
            frames: totals.frames.wrapping_sub(self.totals.frames),
            bytes: totals.bytes.wrapping_sub(self.totals.bytes),
        };
        (self.since, self.totals, self.calls) = (now, totals, 0);
        // The first sample after a silence would count the silence.
        if passed > LONGEST_SAMPLE * 2 {
            self.keep(self.kept, Search::Begin);
        } else if self.level > 0 && sample.is_single() {
            self.keep(0, Search::rest(None));
        } else {
            self.judge(sample);
        }
    }

    fn judge(&mut self, sample: Sum) {
        let needs_nothing = self.kept == 0 && sample.rate(sample.calls) < FEW_CALLS;
        match &mut self.search {
            Search::Begin if needs_nothing => {}
            Search::Begin => self.begin(),
            Search::Try { longer, kept, tried, samples } => {
                if self.level == self.kept { &mut *kept } else { &mut *tried }.add(sample);
                *samples += 1;
                let (longer, kept, tried, samples) = (*longer, *kept, *tried, *samples);
                let other = if longer { self.kept + 1 } else { self.kept - 1 };
                if samples < TRIAL {
                    self.level = if self.level == other { self.kept } else { other };
                    return;
                }
                match tried.than(kept, DIFFERS) {
                    Verdict::Better => self.go_on(other, longer, tried),
                    // A shorter interval that makes nothing worse is better: it delays less.
                    Verdict::Same if !longer => self.go_on(other, longer, tried),
                    Verdict::Same | Verdict::Worse => self.keep(self.kept, Search::rest(Some(kept))),
                }
            }
            Search::Rest { before, since, samples, looks } => {
                since.add(sample);
                *samples += 1;
                if *samples < LOOK {
                    return;
                }
                let has_changed = before.is_some_and(|before| since.than(before, HAS_CHANGED) != Verdict::Same);
                *looks += 1;
                if needs_nothing {
                    self.search = Search::Begin;
                } else if has_changed && self.kept == 0 {
                    self.begin();
                } else if has_changed || *looks == PATIENCE {
                    self.try_next();
                } else {
                    (*before, *since, *samples) = (before.or(Some(*since)), Sum::default(), 0);
                }
            }
        }
    }

    /// Begins with the longest interval: one sample shows that a client waits for each frame, and a busy one has it at once.
    fn begin(&mut self) {
        self.keep(INTERVALS.len() - 1, Search::begin_trial(false));
    }

    /// Keeps an interval.
    fn keep(&mut self, level: usize, search: Search) {
        (self.kept, self.level, self.search) = (level, level, search);
    }

    /// Keeps the interval that was tried, and tries the next one in the same direction.
    fn go_on(&mut self, level: usize, longer: bool, rates: Sum) {
        let is_last = level == if longer { INTERVALS.len() - 1 } else { 0 };
        self.keep(level, if is_last { Search::rest(Some(rates)) } else { Search::begin_trial(longer) });
        if !is_last {
            self.level = if longer { level + 1 } else { level - 1 };
        }
    }

    /// Tries another interval. By turns in both directions, so that an interval that is too long is left, too.
    fn try_next(&mut self) {
        self.tries_longer = self.kept == 0 || self.kept < INTERVALS.len() - 1 && !self.tries_longer;
        self.search = Search::begin_trial(self.tries_longer);
        self.level = if self.tries_longer { self.kept + 1 } else { self.kept - 1 };
    }
}

impl Search {
    fn rest(before: Option<Sum>) -> Search {
        Search::Rest { before, since: Sum::default(), samples: 0, looks: 0 }
    }

    fn begin_trial(longer: bool) -> Search {
        Search::Try { longer, kept: Sum::default(), tried: Sum::default(), samples: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client, as calls and frames that it gets with an interval of some nanoseconds: frames and calls per second.
    type Client = fn(u64) -> (f64, f64);

    /// A port whose client is run.
    #[derive(Default)]
    struct Scene {
        tuner: Tuner,
        now: u64,
        frames: f64,
        /// The client shares its processor: it runs at 0.4 or 1.6 of its rate, for some milliseconds each.
        is_disturbed: bool,
    }

    impl Scene {
        /// Runs a client for a number of milliseconds. Returns the frames that it got per second, and the time with each interval.
        fn run(&mut self, client: Client, milliseconds: u64) -> (f64, [u64; INTERVALS.len()]) {
            let (began, before, mut spent) = (self.now, self.frames, [0; INTERVALS.len()]);
            while self.now < began + milliseconds * 1_000_000 {
                let (rate, calls) = client(INTERVALS[self.tuner.level]);
                let slice = (self.now / 5_300_000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let runs = if !self.is_disturbed {
                    1.0
                } else if slice >> 63 == 0 {
                    0.4
                } else {
                    1.6
                };
                let (rate, calls) = (rate * runs, calls * runs);
                let step = (1e9 / calls) as u64;
                spent[self.tuner.level] += step;
                self.now += step;
                self.frames += rate / calls;
                let frames = self.frames as u64;
                self.tuner.note_call(self.now, Totals { frames, bytes: frames * 60 });
            }
            ((self.frames - before) * 1e9 / (self.now - began) as f64, spent)
        }
    }

    /// Waits for each frame: the next is sent when the client has answered, 30 us after it was called.
    fn waits(interval: u64) -> (f64, f64) {
        let rate = 1e9 / (30_000.0 + interval as f64);
        (rate, rate)
    }

    /// A guest with one processor, which frames come for at 200,000 a second: each call takes 10 us of it and each frame 5 us.
    fn is_busy(interval: u64) -> (f64, f64) {
        let calls = if interval == 0 { 50_000.0 } else { (1e9 / interval as f64).min(50_000.0) };
        (((1e6 - calls * 10.0) / 5.0).clamp(1.0, 200_000.0), calls)
    }

    /// Takes what comes, whatever the calls.
    fn is_fast(interval: u64) -> (f64, f64) {
        (1e6, if interval == 0 { 100_000.0 } else { 1e9 / interval as f64 })
    }

    /// Gets a frame now and then.
    fn is_quiet(_: u64) -> (f64, f64) {
        (1000.0, 1000.0)
    }

    fn best(client: Client) -> f64 {
        INTERVALS.iter().map(|&interval| client(interval).0).fold(0.0, f64::max)
    }

    #[test]
    fn each_client_gets_nearly_what_the_best_interval_would_give_it() {
        for (name, client) in
            [("waits", waits as Client), ("is busy", is_busy), ("is fast", is_fast), ("is quiet", is_quiet)]
        {
            let mut scene = Scene::default();
            scene.run(client, 200);
            let (rate, spent) = scene.run(client, 2000);
            assert!(rate > 0.95 * best(client), "{name}: {rate} of {}, {spent:?}", best(client));
        }
    }

    #[test]
    fn who_waits_for_each_frame_gets_it_at_once_and_who_does_not_gets_few_calls() {
        let mut scene = Scene::default();
        scene.run(waits, 100);
        let (_, spent) = scene.run(waits, 2000);
        assert!(spent[0] > 19 * spent[1..].iter().sum::<u64>(), "{spent:?}");
        scene.run(is_fast, 500);
        let (_, spent) = scene.run(is_fast, 2000);
        assert!(spent[4] > 9 * spent[..4].iter().sum::<u64>(), "{spent:?}");
    }

    #[test]
    fn a_client_that_runs_by_fits_and_starts_gets_long_intervals_too() {
        let mut scene = Scene { is_disturbed: true, ..Scene::default() };
        scene.run(is_busy, 1000);
        let (_, spent) = scene.run(is_busy, 20_000);
        assert!(spent[3] + spent[4] > 9 * spent[..3].iter().sum::<u64>(), "{spent:?}");
    }

    #[test]
    fn a_client_that_changes_is_followed_within_a_tenth_of_a_second() {
        let mut scene = Scene::default();
        for _ in 0..5 {
            scene.run(is_busy, 500);
            assert!(scene.tuner.level >= 3, "{:?}", scene.tuner);
            scene.run(waits, 100);
            assert_eq!(scene.tuner.level, 0, "{:?}", scene.tuner);
        }
        scene.run(is_busy, 500);
        scene.run(is_quiet, 200);
        assert_eq!(scene.tuner.level, 0, "{:?}", scene.tuner);
    }
}
