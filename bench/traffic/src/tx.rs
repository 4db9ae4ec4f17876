//! The sending loop.

use std::io;
use std::time::Duration;

use crate::endpoint::Endpoint;
use crate::pace::{Pacer, Rate};
use crate::report::{Ended, Throughput, TxReport};
use crate::run::{Limits, Run, WaitMode, Watch};
use crate::source::Source;

/// Settings of a sender.
#[derive(Debug, Clone)]
pub struct TxOptions {
    /// When to end.
    pub limits: Limits,
    /// Most frames published at a time.
    pub batch: usize,
    /// The send rate.
    pub rate: Rate,
    /// What to do when there is no room.
    pub wait_mode: WaitMode,
    /// Ends the run when there was no room for this time.
    pub stall: Duration,
}

impl Default for TxOptions {
    fn default() -> TxOptions {
        TxOptions {
            limits: Limits::default(),
            batch: 256,
            rate: Rate::Max,
            wait_mode: WaitMode::Wait,
            stall: Duration::from_secs(10),
        }
    }
}

/// Sends frames from `source` until a limit is reached, the source is empty, or the run is stopped or stalled.
///
/// # Errors
/// The endpoint reports that the other side has disconnected.
pub fn transmit<E: Endpoint, S: Source>(
    endpoint: &mut E,
    source: &mut S,
    options: &TxOptions,
    watch: &mut Watch<'_>,
) -> io::Result<TxReport> {
    let mut run = Run::start(options.limits, watch);
    let mut pacer = Pacer::new(options.rate);
    let (mut frames, mut bytes, mut full) = (0, 0, 0);
    let mut last_sent = Duration::ZERO;
    let ended = loop {
        let now = run.now();
        if let Some(ended) = run.over(now, frames, bytes) {
            break ended;
        }
        pacer.refill(now);
        let quota = run.quota(frames, options.batch.max(1));
        let before = frames;
        let stop = send_batch(endpoint, source, &mut pacer, quota, now, |len| {
            frames += 1;
            bytes += len as u64;
        });
        if frames > before {
            endpoint.tx_flush();
            last_sent = now;
        }
        match stop {
            Stop::Quota => {}
            Stop::Empty => break Ended::Frames,
            Stop::Early(delay) => {
                // The rate, not the other side, delays the sender.
                last_sent = now;
                run.pause(options.wait_mode, delay);
            }
            Stop::Full if frames > before => {}
            Stop::Full => {
                full += 1;
                if now.saturating_sub(last_sent) >= options.stall {
                    break Ended::Stalled;
                }
                endpoint.tx_flush();
                run.wait(endpoint, options.wait_mode, false, options.stall)?;
            }
        }
    };
    let sent = Throughput::new(frames, bytes, run.now().as_secs_f64());
    Ok(TxReport { sent, full, ended })
}

/// Why a batch ended.
enum Stop {
    /// The batch is complete.
    Quota,
    /// The source has no more.
    Empty,
    /// The next frame may be sent after this delay.
    Early(Duration),
    /// There is no room.
    Full,
}

#[inline]
fn send_batch<E: Endpoint, S: Source>(
    endpoint: &mut E,
    source: &mut S,
    pacer: &mut Pacer,
    quota: usize,
    now: Duration,
    mut sent: impl FnMut(usize),
) -> Stop {
    for _ in 0..quota {
        let Some(len) = source.next_len() else { return Stop::Empty };
        if !pacer.ready(len) {
            return Stop::Early(pacer.delay(len));
        }
        if source.due() > now {
            return Stop::Early(source.due() - now);
        }
        if !endpoint.tx_push(len, |frame| source.fill(frame)) {
            return Stop::Full;
        }
        pacer.spend(len);
        sent(len);
    }
    Stop::Quota
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checker, FrameSpec, Frames, Level, Origin, memory};

    fn frames() -> Frames {
        Frames::new(&FrameSpec::default()).expect("the default can be sent")
    }

    #[test]
    fn exactly_the_asked_number_of_frames_is_sent() {
        let (mut a, mut b) = memory::pair(1000);
        let options =
            TxOptions { limits: Limits { frames: Some(777), duration: None }, batch: 50, ..TxOptions::default() };
        let report = transmit(&mut a, &mut frames(), &options, &mut Watch::none()).expect("a memory link never fails");
        assert_eq!((report.sent.frames, report.sent.bytes, report.ended), (777, 777 * 60, Ended::Frames));
        let mut checker = Checker::new(Level::Full, Origin::Zero);
        assert_eq!(b.rx_batch(2000, |frame| checker.see(frame)), 777);
        assert!(checker.report().is_clean());
    }

    #[test]
    fn a_receiver_that_takes_nothing_ends_the_run_as_stalled() {
        for wait_mode in [WaitMode::Wait, WaitMode::Spin] {
            let (mut a, _b) = memory::pair(16);
            let limits = Limits { frames: None, duration: Some(ringway_testing::PATIENCE) };
            let options = TxOptions { limits, stall: Duration::from_millis(20), wait_mode, ..TxOptions::default() };
            let report =
                transmit(&mut a, &mut frames(), &options, &mut Watch::none()).expect("a memory link never fails");
            assert_eq!((report.sent.frames, report.ended), (16, Ended::Stalled));
            assert!(report.full > 0);
        }
    }

    #[test]
    fn a_rate_is_kept_on_the_real_clock() {
        let (mut a, _b) = memory::pair(10_000);
        let limits = Limits { frames: None, duration: Some(Duration::from_millis(100)) };
        let options = TxOptions { limits, rate: Rate::Frames(10_000), ..TxOptions::default() };
        let report = transmit(&mut a, &mut frames(), &options, &mut Watch::none()).expect("a memory link never fails");
        // Never above the rate. How far below depends on how long this machine delayed the test.
        assert!(report.sent.frames_per_second <= 10_000.0, "{report}");
        let late = report.sent.seconds > 0.15;
        assert!((report.sent.frames > 0 || late) && report.ended == Ended::Duration, "{report}");
    }

    #[test]
    fn a_run_can_be_stopped_and_tells_how_it_stands() {
        let (mut a, _b) = memory::pair(1);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut told = 0;
        let mut progress = |progress: &crate::Progress| {
            told = progress.total.frames;
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        };
        let mut watch = Watch::none().stop_by(&stop).tell(&mut progress);
        let report =
            transmit(&mut a, &mut frames(), &TxOptions::default(), &mut watch).expect("a memory link never fails");
        assert_eq!((report.ended, told), (Ended::Stopped, 1));
    }
}
