//! Source and sink in one thread: several endpoints that send and receive by turns.
//!
//! Drives a network from one core so that the other is the network's own. All state of a turn stays in that core's cache.

use std::io;
use std::time::{Duration, Instant};

use crate::check::{Checker, Level};
use crate::endpoint::Endpoint;
use crate::frame::Frames;
use crate::report::{Ended, PumpReport, StationReport, Throughput};
use crate::run::{Limits, Run, Watch};

/// Turns between two readings of the clock.
const TURNS_PER_LOOK: u32 = 16;

/// How transmit buffers are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fill {
    /// Every frame is written.
    #[default]
    Each,
    /// Frames are written until every buffer of the ring holds one, and are then sent again unchanged. This is the cost
    /// of a generator that prepares its buffers once. Sequence numbers repeat, so receivers can only count.
    Once,
}

/// One endpoint of a pump.
pub struct Station<E> {
    /// The endpoint.
    pub endpoint: E,
    /// Frames to send; `None` if it does not send.
    pub frames: Option<Frames>,
    /// Checks received frames; `None` if it does not receive.
    pub checker: Option<Checker>,
}

impl<E> Station<E> {
    /// A station that only sends.
    pub fn source(endpoint: E, frames: Frames) -> Station<E> {
        Station { endpoint, frames: Some(frames), checker: None }
    }

    /// A station that only receives.
    pub fn sink(endpoint: E, checker: Checker) -> Station<E> {
        Station { endpoint, frames: None, checker: Some(checker) }
    }

    /// A station that sends and receives.
    pub fn both(endpoint: E, frames: Frames, checker: Checker) -> Station<E> {
        Station { endpoint, frames: Some(frames), checker: Some(checker) }
    }
}

/// Settings of a pump.
#[derive(Debug, Clone)]
pub struct PumpOptions {
    /// Most frames that a station sends in one turn.
    pub tx_batch: usize,
    /// Most frames that a station receives in one turn.
    pub rx_batch: usize,
    /// How transmit buffers are filled.
    pub fill: Fill,
    /// Frames that each station sends, and no more: then the run ends.
    pub frames: Option<u64>,
}

impl Default for PumpOptions {
    fn default() -> PumpOptions {
        PumpOptions { tx_batch: 128, rx_batch: 128, fill: Fill::Each, frames: None }
    }
}

/// Frames and bytes that the pump counts itself.
#[derive(Clone, Copy, Default)]
struct Count {
    frames: u64,
    bytes: u64,
}

impl Count {
    fn since(self, before: Count, seconds: f64) -> Throughput {
        Throughput::new(self.frames - before.frames, self.bytes - before.bytes, seconds)
    }
}

struct StationState<E> {
    station: Station<E>,
    /// Number of frames to write before buffers are sent unchanged. Counts down only with [`Fill::Once`].
    to_write: u64,
    /// A frame for endpoints that cannot repeat their buffers.
    template: Vec<u8>,
    sent: Count,
    received: Count,
}

/// Several endpoints of one network, served by one thread. A pump can run for many windows; checkers see the frames of
/// all windows.
pub struct Pump<E> {
    stations: Vec<StationState<E>>,
    options: PumpOptions,
}

impl<E: Endpoint> Pump<E> {
    /// Makes a pump with these stations, in this order.
    pub fn new(stations: impl IntoIterator<Item = Station<E>>, options: PumpOptions) -> Pump<E> {
        let station = |mut station: Station<E>| {
            let room = station.endpoint.tx_room() as u64;
            // More than the ring holds, so that every buffer is written at least once.
            StationState {
                station,
                to_write: (2 * room).max(65_536),
                template: Vec::new(),
                sent: Count::default(),
                received: Count::default(),
            }
        };
        Pump { stations: stations.into_iter().map(station).collect(), options }
    }

    /// Sends and receives as fast as possible for `duration`. Returns the report of that time. Frames in flight at the
    /// end remain for the next window or for [`drain`](Pump::drain).
    ///
    /// # Errors
    /// An endpoint reports that the other side has disconnected.
    pub fn run(&mut self, duration: Duration, watch: &mut Watch<'_>) -> io::Result<PumpReport> {
        let before: Vec<_> = self.stations.iter().map(|station| (station.sent, station.received)).collect();
        let mut run = Run::start(Limits { frames: None, duration: Some(duration) }, watch);
        let ended = loop {
            let mut moved = 0;
            for _ in 0..TURNS_PER_LOOK {
                for station in &mut self.stations {
                    moved += station.send(&self.options) + station.receive(&self.options);
                }
            }
            let now = run.now();
            let (frames, bytes) = self.stations.iter().fold((0, 0), |(frames, bytes), station| {
                (frames + station.received.frames, bytes + station.received.bytes)
            });
            if let Some(ended) = run.over(now, frames, bytes) {
                break ended;
            }
            if self.options.frames.is_some() && self.stations.iter().all(|station| station.left(&self.options) == 0) {
                break Ended::Frames;
            }
            if moved == 0 && run.probe_due(now) {
                for station in &mut self.stations {
                    station.station.endpoint.wait(true, Duration::ZERO)?;
                }
            }
        };
        Ok(self.report(&before, run.now().as_secs_f64(), ended))
    }

    /// Only receives, until no frame has arrived for `quiet`, for at most 10 s. Returns the number of received frames.
    ///
    /// # Errors
    /// An endpoint reports that the other side has disconnected.
    pub fn drain(&mut self, quiet: Duration) -> io::Result<u64> {
        let start = Instant::now();
        let (mut last, mut drained) = (start, 0);
        loop {
            // Checked before the turn: if this thread was delayed, the turn still looks for frames once more.
            let over = last.elapsed() >= quiet || start.elapsed() >= Duration::from_secs(10);
            let mut moved = 0;
            for station in &mut self.stations {
                station.station.endpoint.tx_flush();
                moved += station.receive(&self.options) as u64;
            }
            drained += moved;
            if moved > 0 {
                last = Instant::now();
            }
            if over && (moved == 0 || start.elapsed() >= Duration::from_secs(10)) {
                return Ok(drained);
            }
            std::hint::spin_loop();
        }
    }

    /// Returns the reports of the checkers, and everything sent and received since the pump was made, for each station.
    #[must_use]
    pub fn totals(&self) -> Vec<StationReport> {
        self.station_reports(&vec![Default::default(); self.stations.len()], 0.0)
    }

    /// Returns the endpoints, in the order of the stations.
    pub fn endpoints(&self) -> impl Iterator<Item = &E> {
        self.stations.iter().map(|station| &station.station.endpoint)
    }

    /// Returns the stations with their endpoints.
    #[must_use]
    pub fn into_stations(self) -> Vec<Station<E>> {
        self.stations.into_iter().map(|station| station.station).collect()
    }

    fn station_reports(&self, before: &[(Count, Count)], seconds: f64) -> Vec<StationReport> {
        let report = |(station, before): (&StationState<E>, &(Count, Count))| StationReport {
            sent: station.sent.since(before.0, seconds),
            received: station.received.since(before.1, seconds),
            check: station.station.checker.as_ref().map(Checker::report).unwrap_or_default(),
        };
        self.stations.iter().zip(before).map(report).collect()
    }

    fn report(&self, before: &[(Count, Count)], seconds: f64, ended: Ended) -> PumpReport {
        let stations = self.station_reports(before, seconds);
        let sum = |part: fn(&StationReport) -> &Throughput| {
            let (frames, bytes) = stations.iter().map(part).fold((0, 0), |sum, t| (sum.0 + t.frames, sum.1 + t.bytes));
            Throughput::new(frames, bytes, seconds)
        };
        PumpReport { sent: sum(|station| &station.sent), received: sum(|station| &station.received), stations, ended }
    }
}

impl<E: Endpoint> StationState<E> {
    /// Returns how many frames are still to be sent.
    #[inline]
    fn left(&self, options: &PumpOptions) -> u64 {
        let most = options.frames.unwrap_or(u64::MAX);
        if self.station.frames.is_some() { most.saturating_sub(self.sent.frames) } else { 0 }
    }

    #[inline]
    fn send(&mut self, options: &PumpOptions) -> usize {
        let left = usize::try_from(self.left(options)).unwrap_or(usize::MAX);
        let Some(frames) = &mut self.station.frames else { return 0 };
        let endpoint = &mut self.station.endpoint;
        let quota = endpoint.tx_room().min(options.tx_batch).min(left);
        let size = frames.size();
        let mut sent = 0;
        if self.to_write == 0 {
            sent = endpoint.tx_repeat_many(&self.template, quota);
        } else {
            while sent < quota && endpoint.tx_push(size, |frame| frames.write(frame)) {
                sent += 1;
            }
            if options.fill == Fill::Once {
                self.to_write = self.to_write.saturating_sub(sent as u64);
                if self.to_write == 0 {
                    self.template = frames.next_frame();
                }
            }
        }
        if sent > 0 {
            self.station.endpoint.tx_flush();
        }
        self.sent.frames += sent as u64;
        self.sent.bytes += (sent * size) as u64;
        sent
    }

    #[inline]
    fn receive(&mut self, options: &PumpOptions) -> usize {
        let Some(checker) = &mut self.station.checker else { return 0 };
        let endpoint = &mut self.station.endpoint;
        let mut bytes = 0;
        let taken = if checker.level() == Level::Count {
            let mut first_bytes = 0;
            let taken = endpoint.rx_batch(options.rx_batch, |frame| {
                bytes += frame.len() as u64;
                first_bytes ^= frame.first().copied().unwrap_or(0);
            });
            std::hint::black_box(first_bytes);
            checker.add(taken as u64, bytes);
            taken
        } else {
            endpoint.rx_batch(options.rx_batch, |frame| {
                bytes += frame.len() as u64;
                checker.see(frame);
            })
        };
        self.received.frames += taken as u64;
        self.received.bytes += bytes;
        taken
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
