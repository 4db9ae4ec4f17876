//! The receiving loop.

use std::io;
use std::time::{Duration, SystemTime};

use crate::check::Checker;
use crate::endpoint::Endpoint;
use crate::pcap::Recorder;
use crate::report::{Ended, RxReport, Throughput};
use crate::run::{Limits, Run, WaitMode, Watch};

/// Settings of a receiver.
#[derive(Debug, Clone)]
pub struct RxOptions {
    /// When to end.
    pub limits: Limits,
    /// Ends the run when no frame has arrived for this time. Before the first frame only `limits` apply.
    pub idle: Option<Duration>,
    /// Most frames taken at a time.
    pub batch: usize,
    /// What to do when there is no frame to take.
    pub wait_mode: WaitMode,
}

impl Default for RxOptions {
    fn default() -> RxOptions {
        RxOptions { limits: Limits::default(), idle: None, batch: 256, wait_mode: WaitMode::Wait }
    }
}

/// Receives frames, checks each with `checker`, and writes it to `recorder` if there is one.
///
/// # Errors
/// The endpoint reports that the other side has disconnected, or the capture file cannot be written.
pub fn receive<E: Endpoint>(
    endpoint: &mut E,
    checker: &mut Checker,
    mut recorder: Option<&mut Recorder>,
    options: &RxOptions,
    watch: &mut Watch<'_>,
) -> io::Result<RxReport> {
    let mut run = Run::start(options.limits, watch);
    let (mut frames, mut bytes) = (0, 0);
    let mut active: Option<(Duration, Duration)> = None;
    let ended = loop {
        let now = run.now();
        if let Some(ended) = run.over(now, frames, bytes) {
            break ended;
        }
        let quota = run.quota(frames, options.batch.max(1));
        let taken = match &mut recorder {
            None => endpoint.rx_batch(quota, |frame| {
                bytes += frame.len() as u64;
                checker.see(frame);
            }),
            Some(recorder) => {
                let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let mut written = Ok(());
                let taken = endpoint.rx_batch(quota, |frame| {
                    bytes += frame.len() as u64;
                    checker.see(frame);
                    if written.is_ok() {
                        written = recorder.write(time, frame);
                    }
                });
                written?;
                taken
            }
        };
        frames += taken as u64;
        if taken > 0 {
            active = Some((active.map_or(now, |(first, _)| first), now));
            continue;
        }
        let quiet = active.map(|(_, last)| now - last);
        match (options.idle, quiet) {
            (Some(idle), Some(quiet)) if quiet >= idle => break Ended::Idle,
            (Some(idle), Some(quiet)) => run.wait(endpoint, options.wait_mode, true, idle - quiet)?,
            _ => run.wait(endpoint, options.wait_mode, true, Duration::MAX)?,
        }
    };
    if let Some(recorder) = recorder {
        recorder.flush()?;
    }
    let elapsed_seconds = run.now().as_secs_f64();
    let seconds = active.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
    Ok(RxReport { received: Throughput::new(frames, bytes, seconds), elapsed_seconds, check: checker.report(), ended })
}

#[cfg(test)]
mod tests {
    use ringway_testing::PATIENCE;

    use super::*;
    use crate::{FrameSpec, Frames, Level, Origin, TxOptions, memory, transmit};

    #[test]
    fn a_transfer_between_two_threads_is_clean() {
        for wait_mode in [WaitMode::Wait, WaitMode::Spin] {
            let (mut a, mut b) = memory::pair(256);
            let limits = Limits { frames: Some(20_000), duration: Some(PATIENCE) };
            let sender = std::thread::spawn(move || {
                let spec = FrameSpec { size: 200, flows: 7, ..FrameSpec::default() };
                let mut frames = Frames::new(&spec).expect("valid");
                let options = TxOptions { limits, wait_mode, stall: PATIENCE, ..TxOptions::default() };
                transmit(&mut a, &mut frames, &options, &mut Watch::none())
            });
            let mut checker = Checker::new(Level::Full, Origin::Zero);
            let options = RxOptions { limits, wait_mode, ..RxOptions::default() };
            let report =
                receive(&mut b, &mut checker, None, &options, &mut Watch::none()).expect("a memory link never fails");
            sender.join().expect("no panic").expect("a memory link never fails");
            assert_eq!((report.received.frames, report.check.flows, report.ended), (20_000, 7, Ended::Frames));
            assert!(report.check.is_clean(), "{report}");
        }
    }

    #[test]
    fn idle_time_counts_from_the_last_frame() {
        let (mut a, mut b) = memory::pair(256);
        assert!(a.tx_push(60, |frame| frame.fill(0)));
        let mut checker = Checker::new(Level::Sequence, Origin::Zero);
        let options = RxOptions { idle: Some(Duration::from_millis(10)), ..RxOptions::default() };
        let report =
            receive(&mut b, &mut checker, None, &options, &mut Watch::none()).expect("a memory link never fails");
        assert_eq!((report.received.frames, report.check.foreign, report.ended), (1, 1, Ended::Idle));
        assert!(report.elapsed_seconds >= 0.01);
    }

    #[test]
    fn a_run_without_any_frame_ends_by_its_duration() {
        let (_a, mut b) = memory::pair(256);
        let mut checker = Checker::new(Level::Sequence, Origin::Zero);
        let limits = Limits { frames: None, duration: Some(Duration::from_millis(10)) };
        let options = RxOptions { limits, idle: Some(Duration::from_millis(1)), ..RxOptions::default() };
        let report =
            receive(&mut b, &mut checker, None, &options, &mut Watch::none()).expect("a memory link never fails");
        assert_eq!((report.received.frames, report.ended), (0, Ended::Duration));
    }
}
