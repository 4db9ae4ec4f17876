//! Round trips: `ping` sends one frame at a time and measures the time until the frame is back, `pong` sends back every frame
//! that it receives.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::check;
use crate::endpoint::Endpoint;
use crate::frame::{FrameSpec, Frames};
use crate::mac::Mac;
use crate::report::{Ended, LatencyReport, PongReport, Throughput};
use crate::run::{Limits, Run, WaitMode, Watch};
use crate::wire::{MAX_FRAME, MIN_FRAME};

/// Longest round trip that the histogram resolves.
const LONGEST: Duration = Duration::from_secs(60);
/// Shortest frame with a sequence number, so that its reply can be distinguished from others.
pub const MIN_PING: usize = 28;

/// Settings of a latency measurement.
#[derive(Debug, Clone)]
pub struct PingOptions {
    /// When to end; `frames` counts pings.
    pub limits: Limits,
    /// Time from one ping to the next. Zero: the next ping follows the reply at once.
    pub interval: Duration,
    /// Time after which a reply counts as lost.
    pub timeout: Duration,
    /// How to wait for the reply.
    pub wait_mode: WaitMode,
}

impl Default for PingOptions {
    fn default() -> PingOptions {
        PingOptions {
            limits: Limits::default(),
            interval: Duration::ZERO,
            timeout: Duration::from_secs(1),
            wait_mode: WaitMode::Wait,
        }
    }
}

/// Measures round trips of frames like `spec` (28 bytes or more) from `endpoint` to a [`pong`] and back.
///
/// # Errors
/// `spec` is invalid or too short, or the other side has disconnected.
pub fn ping<E: Endpoint>(
    endpoint: &mut E,
    spec: &FrameSpec,
    options: &PingOptions,
    watch: &mut Watch<'_>,
) -> io::Result<LatencyReport> {
    measure(endpoint, spec, options, watch, || {})
}

/// Measures round trips between two endpoints on this thread: `far` returns each frame as soon as it receives it.
///
/// # Errors
/// `spec` is invalid or too short, or an endpoint has disconnected.
pub fn ping_pair<A: Endpoint, B: Endpoint>(
    near: &mut A,
    far: &mut B,
    spec: &FrameSpec,
    options: &PingOptions,
    watch: &mut Watch<'_>,
) -> io::Result<LatencyReport> {
    let mut reflector =
        Reflector::new(spec.destinations.iter().copied().find(|mac| !mac.is_group()).unwrap_or(Mac::local(2)));
    measure(near, spec, options, watch, || {
        reflector.turn(far, 1);
    })
}

fn measure<E: Endpoint>(
    endpoint: &mut E,
    spec: &FrameSpec,
    options: &PingOptions,
    watch: &mut Watch<'_>,
    mut meanwhile: impl FnMut(),
) -> io::Result<LatencyReport> {
    if spec.size < MIN_PING {
        let wrong = format!("frame size {}: a ping needs its sequence number, so at least {MIN_PING} bytes", spec.size);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong));
    }
    let mut frames = Frames::new(spec).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut run = Run::start(options.limits, watch);
    let mut tally = Tally::new(frames.stream());
    let mut next = Duration::ZERO;
    let ended = loop {
        let now = run.now();
        if let Some(ended) = run.over(now, tally.sent, tally.sent * spec.size as u64) {
            break ended;
        }
        if now < next {
            run.pause(options.wait_mode, next - now);
            meanwhile();
            continue;
        }
        next = now + options.interval;
        let sent = Instant::now();
        if !endpoint.tx_push(spec.size, |frame| tally.send(&mut frames, frame)) {
            meanwhile();
            run.wait(endpoint, options.wait_mode, false, options.timeout)?;
            next = now;
            continue;
        }
        endpoint.tx_flush();
        let mut looks = 0u32;
        loop {
            meanwhile();
            let mut arrived = None;
            endpoint.rx_batch(16, |frame| {
                let now = *arrived.get_or_insert_with(Instant::now);
                tally.receive(frame, now - sent);
            });
            looks = looks.wrapping_add(1);
            if !tally.answered && options.wait_mode == WaitMode::Spin && !looks.is_multiple_of(LOOKS_PER_CLOCK) {
                std::hint::spin_loop();
                continue;
            }
            let waited = sent.elapsed();
            if tally.answered {
                break;
            }
            if waited >= options.timeout {
                tally.lost += 1;
                break;
            }
            match options.wait_mode {
                // The clock is not read a second time: that would add to the measured time.
                WaitMode::Spin => run.spin(endpoint, now + waited)?,
                WaitMode::Wait => run.wait(endpoint, WaitMode::Wait, true, options.timeout - waited)?,
            }
        }
    };
    Ok(tally.report(ended))
}

/// When spinning, polls for a reply between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 64;
/// Frames of up to this many bytes take the room of one frame.
const SHORT: usize = 1514;

/// Counts the results of the pings.
struct Tally {
    stream: u16,
    /// Flow and sequence number of the ping whose reply is awaited.
    awaited: (u16, u64),
    /// Destination of that ping.
    destination: Mac,
    answered: bool,
    sent: u64,
    lost: u64,
    late: u64,
    corrupted: u64,
    foreign: u64,
    times: Histogram<u64>,
    scratch: Vec<u8>,
}

impl Tally {
    fn new(stream: u16) -> Tally {
        let times = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3).expect("1 ns to 60 s is a valid range");
        let scratch = Vec::with_capacity(MAX_FRAME);
        let (awaited, destination, answered) = ((0, 0), Mac::BROADCAST, false);
        Tally {
            stream,
            awaited,
            destination,
            answered,
            sent: 0,
            lost: 0,
            late: 0,
            corrupted: 0,
            foreign: 0,
            times,
            scratch,
        }
    }

    fn send(&mut self, frames: &mut Frames, frame: &mut [u8]) {
        frames.write(frame);
        if let Some((_, flow, Some(sequence))) = check::identify(frame) {
            self.awaited = (flow, sequence);
        }
        if let Some(destination) = frame.first_chunk() {
            self.destination = Mac(*destination);
        }
        self.answered = false;
        self.sent += 1;
    }

    /// Handles a frame that arrived `after` the awaited ping was sent.
    fn receive(&mut self, frame: &[u8], after: Duration) {
        let Some((stream, flow, Some(sequence))) = check::identify(frame) else {
            self.foreign += 1;
            return;
        };
        // The checksum covers the addresses before they were swapped.
        self.scratch.clear();
        self.scratch.extend_from_slice(frame);
        swap_addresses(&mut self.scratch);
        if self.destination.is_group() {
            // The source of the reply is the address of the station that answered.
            self.scratch[..6].copy_from_slice(&self.destination.0);
        }
        if stream != self.stream {
            self.foreign += 1;
        } else if !check::is_intact(&self.scratch) {
            self.corrupted += 1;
        } else if (flow, sequence) == self.awaited && !self.answered {
            self.answered = true;
            // Saturates at the longest time of the histogram.
            self.times.saturating_record(after.as_nanos() as u64);
        } else {
            self.late += 1;
        }
    }

    fn report(&self, ended: Ended) -> LatencyReport {
        let at = |quantile: f64| self.times.value_at_quantile(quantile);
        LatencyReport {
            sent: self.sent,
            received: self.times.len(),
            lost: self.lost,
            late: self.late,
            corrupted: self.corrupted,
            foreign: self.foreign,
            min_ns: self.times.min(),
            median_ns: at(0.5),
            mean_ns: self.times.mean(),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: self.times.max(),
            ended,
        }
    }
}

fn swap_addresses(frame: &mut [u8]) {
    if let Some((destination, rest)) = frame.split_first_chunk_mut::<6>()
        && let Some(source) = rest.first_chunk_mut::<6>()
    {
        std::mem::swap(destination, source);
    }
}

/// Settings for sending frames back.
#[derive(Debug, Clone)]
pub struct PongOptions {
    /// When to end; `frames` counts frames sent back.
    pub limits: Limits,
    /// Most frames taken at a time.
    pub batch: usize,
    /// What to do when there is no frame to take.
    pub wait_mode: WaitMode,
    /// Source address of replies to frames for a group address.
    pub mac: Mac,
}

impl Default for PongOptions {
    fn default() -> PongOptions {
        PongOptions { limits: Limits::default(), batch: 64, wait_mode: WaitMode::Wait, mac: Mac::local(2) }
    }
}

/// Sends back each received frame with source and destination address swapped.
///
/// # Errors
/// The endpoint reports that the other side has disconnected.
pub fn pong<E: Endpoint>(endpoint: &mut E, options: &PongOptions, watch: &mut Watch<'_>) -> io::Result<PongReport> {
    let mut run = Run::start(options.limits, watch);
    let mut reflector = Reflector::new(options.mac);
    let ended = loop {
        let now = run.now();
        if let Some(ended) = run.over(now, reflector.returned, reflector.bytes) {
            break ended;
        }
        let quota = run.quota(reflector.returned, options.batch.max(1));
        if reflector.turn(endpoint, quota) > 0 {
            continue;
        }
        let full = endpoint.tx_room() == 0;
        run.wait(endpoint, options.wait_mode, !full, Duration::MAX)?;
    };
    let returned = Throughput::new(reflector.returned, reflector.bytes, run.now().as_secs_f64());
    Ok(PongReport { returned, dropped: reflector.dropped, ended })
}

/// Sends frames back. Never takes more frames than there is room to send.
struct Reflector {
    mac: Mac,
    /// The frames of the batch, one after another: an endpoint cannot send during a call of `rx_batch`.
    bytes_held: Vec<u8>,
    lengths: Vec<usize>,
    /// Room as of the last check. The check costs the other side a cache line, so it is repeated only when this room is
    /// used up.
    room: usize,
    returned: u64,
    bytes: u64,
    dropped: u64,
}

impl Reflector {
    fn new(mac: Mac) -> Reflector {
        Reflector { mac, bytes_held: Vec::new(), lengths: Vec::new(), room: 0, returned: 0, bytes: 0, dropped: 0 }
    }

    /// Sends back at most `most` frames. Returns the number of taken frames.
    fn turn<E: Endpoint>(&mut self, endpoint: &mut E, most: usize) -> usize {
        self.bytes_held.clear();
        self.lengths.clear();
        if self.room == 0 {
            self.room = endpoint.tx_room();
        }
        let taken = endpoint.rx_batch(most.min(self.room), |frame| {
            if (MIN_FRAME..=MAX_FRAME).contains(&frame.len()) {
                self.bytes_held.extend_from_slice(frame);
                self.lengths.push(frame.len());
            } else {
                self.dropped += 1;
            }
        });
        let mut rest = self.bytes_held.as_mut_slice();
        for &len in &self.lengths {
            let (frame, after) = rest.split_at_mut(len);
            rest = after;
            swap_addresses(frame);
            // A group address cannot be a source.
            if frame[6] & 1 == 1 {
                frame[6..12].copy_from_slice(&self.mac.0);
            }
            if endpoint.tx_push(len, |place| place.copy_from_slice(frame)) {
                self.returned += 1;
                self.bytes += len as u64;
            } else {
                self.dropped += 1;
            }
        }
        if !self.lengths.is_empty() {
            endpoint.tx_flush();
            // A long frame may have taken more room than one frame.
            self.room = if self.lengths.iter().all(|&len| len <= SHORT) { self.room - taken } else { 0 };
        }
        taken
    }
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
