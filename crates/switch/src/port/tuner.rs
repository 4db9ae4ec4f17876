//! Moderation that finds its interval: for each port and each reason to call, from what the calls brought (thesis chapter 5; Linux's
//! dynamic interrupt moderation, `lib/dim`, climbs in the same way).
//!
//! Calls are counted in samples of a few milliseconds. A client that gets many calls is tried with a longer interval, and a longer one
//! again while that gains: more frames, or as many with fewer calls. An interval in which a call gathers hardly more than one frame
//! only delays: then every call is made at once again. So a client that waits for each frame gets each at once, and one that is busy
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
/// Samples after which another interval is tried although nothing changed.
const PATIENCE: u32 = 64;

/// The totals of a port in a call's direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a sample brought, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    calls: u64,
    frames: u64,
    bytes: u64,
}

/// Where the search is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Search {
    /// The next sample shows what the present interval brings.
    #[default]
    Begin,
    /// The present interval is tried; these are the rates of the one before.
    Longer(Rates),
    /// As [`Search::Longer`], with a shorter one.
    Shorter(Rates),
    /// The interval stays: the next sample shows what it brings.
    Settle,
    /// The interval stays, for this number of samples, while the rates stay about these.
    Rest(Rates, u32),
}

/// Finds the interval of one port for one reason.
#[derive(Debug, Default)]
pub struct Tuner {
    level: usize,
    search: Search,
    /// The next interval to be tried after a rest is a longer one.
    tries_longer: bool,
    /// When the sample began, the totals then, and its calls.
    since: u64,
    totals: Totals,
    calls: u64,
}

/// How one sample is compared with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Same,
    Worse,
}

impl Rates {
    fn than(self, other: Rates) -> Verdict {
        let differs = |a: u64, b: u64| a.abs_diff(b) * 10 > a.max(b);
        let if_better = |is: bool| if is { Verdict::Better } else { Verdict::Worse };
        if differs(self.bytes, other.bytes) {
            if_better(self.bytes > other.bytes)
        } else if differs(self.frames, other.frames) {
            if_better(self.frames > other.frames)
        } else if differs(self.calls, other.calls) {
            if_better(self.calls < other.calls)
        } else {
            Verdict::Same
        }
    }

    /// Returns true if a call gathers hardly more than one frame.
    fn are_single(self) -> bool {
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
        let per_second = |count: u64| (u128::from(count) * 1_000_000_000 / u128::from(passed)) as u64;
        let rates = Rates {
            calls: per_second(self.calls),
            frames: per_second(totals.frames.wrapping_sub(self.totals.frames)),
            bytes: per_second(totals.bytes.wrapping_sub(self.totals.bytes)),
        };
        // The first sample after a silence would count the silence.
        let is_first = passed > LONGEST_SAMPLE * 2;
        (self.since, self.totals, self.calls) = (now, totals, 0);
        if is_first {
            self.search = Search::Begin;
        } else {
            self.judge(rates);
        }
    }

    fn judge(&mut self, rates: Rates) {
        let last = INTERVALS.len() - 1;
        if self.level > 0 && rates.are_single() {
            self.level = 0;
            self.search = Search::Settle;
            return;
        }
        self.search = match self.search {
            Search::Begin if self.level == 0 && rates.calls < FEW_CALLS => Search::Begin,
            Search::Begin if self.level < last => self.go(1, Search::Longer(rates)),
            Search::Begin => self.go(-1, Search::Shorter(rates)),
            Search::Longer(before) => match rates.than(before) {
                Verdict::Better if self.level < last => self.go(1, Search::Longer(rates)),
                Verdict::Better => Search::Rest(rates, PATIENCE),
                Verdict::Same | Verdict::Worse => self.go(-1, Search::Rest(before, PATIENCE)),
            },
            Search::Shorter(before) => match rates.than(before) {
                // A shorter interval that makes nothing worse is better: it delays less.
                Verdict::Better | Verdict::Same if self.level > 0 => self.go(-1, Search::Shorter(rates)),
                Verdict::Better | Verdict::Same => Search::Rest(rates, PATIENCE),
                Verdict::Worse => self.go(1, Search::Rest(before, PATIENCE)),
            },
            Search::Settle => Search::Rest(rates, PATIENCE),
            Search::Rest(before, left) => {
                let few = self.level == 0 && rates.calls < FEW_CALLS;
                match rates.than(before) {
                    Verdict::Same if left > 1 => Search::Rest(before, left - 1),
                    _ if few => Search::Begin,
                    // By turns in both directions, so that an interval that is too long is left, too.
                    _ => {
                        self.tries_longer = self.level == 0 || self.level < last && !self.tries_longer;
                        match self.tries_longer {
                            true => self.go(1, Search::Longer(rates)),
                            false => self.go(-1, Search::Shorter(rates)),
                        }
                    }
                }
            }
        };
    }

    fn go(&mut self, step: isize, then: Search) -> Search {
        self.level = self.level.saturating_add_signed(step);
        then
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
    }

    impl Scene {
        /// Runs a client for a number of milliseconds. Returns the frames that it got per second, and the time with each interval.
        fn run(&mut self, client: Client, milliseconds: u64) -> (f64, [u64; INTERVALS.len()]) {
            let (began, before, mut spent) = (self.now, self.frames, [0; INTERVALS.len()]);
            while self.now < began + milliseconds * 1_000_000 {
                let (rate, calls) = client(INTERVALS[self.tuner.level]);
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
        scene.run(is_fast, 100);
        let (_, spent) = scene.run(is_fast, 2000);
        assert!(spent[4] > 9 * spent[..4].iter().sum::<u64>(), "{spent:?}");
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
