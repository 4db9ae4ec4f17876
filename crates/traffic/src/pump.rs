//! Source and sink in one thread: several endpoints that send and receive by turns.
//!
//! Drives a network from one core so that the other is the network's own. All state of a turn stays in that core's cache.

use std::io;
use std::time::{Duration, Instant};

use crate::report::{Ended, PumpReport, StationReport, Throughput};
use crate::run::Run;
use crate::{Checker, Endpoint, Frames, Level, Limits, Watch};

/// Turns between two looks at the clock.
const TURNS_PER_LOOK: u32 = 16;

/// How transmit buffers are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fill {
    /// Each frame is written.
    #[default]
    Each,
    /// Frames are written until every buffer of the ring holds one, and sent again as they are afterwards: the cost of a
    /// generator that prepares its buffers once. Sequence numbers repeat, so receivers can only count.
    Once,
}

/// One endpoint's part in a pump.
pub struct Station<E> {
    /// The endpoint.
    pub endpoint: E,
    /// What it sends, if it sends.
    pub frames: Option<Frames>,
    /// What looks at the frames it receives, if it receives.
    pub checker: Option<Checker>,
}

impl<E> Station<E> {
    /// Only sends.
    pub fn source(endpoint: E, frames: Frames) -> Station<E> {
        Station { endpoint, frames: Some(frames), checker: None }
    }

    /// Only receives.
    pub fn sink(endpoint: E, checker: Checker) -> Station<E> {
        Station { endpoint, frames: None, checker: Some(checker) }
    }

    /// Sends and receives.
    pub fn both(endpoint: E, frames: Frames, checker: Checker) -> Station<E> {
        Station { endpoint, frames: Some(frames), checker: Some(checker) }
    }
}

/// How a pump works.
#[derive(Debug, Clone)]
pub struct PumpOptions {
    /// Most frames sent by one station in its turn.
    pub tx_batch: usize,
    /// Most frames received by one station in its turn.
    pub rx_batch: usize,
    /// How transmit buffers are filled.
    pub fill: Fill,
}

impl Default for PumpOptions {
    fn default() -> PumpOptions {
        PumpOptions { tx_batch: 128, rx_batch: 128, fill: Fill::Each }
    }
}

/// Frames and bytes counted by the pump itself.
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

struct Seat<E> {
    station: Station<E>,
    /// Frames to write before buffers are sent again as they are; only counts down in [`Fill::Once`].
    to_write: u64,
    /// A frame for endpoints that need one to repeat.
    template: Vec<u8>,
    sent: Count,
    received: Count,
}

/// Several endpoints of one network, served by one thread. Can run for many windows; checkers see all of them.
pub struct Pump<E> {
    seats: Vec<Seat<E>>,
    options: PumpOptions,
}

impl<E: Endpoint> Pump<E> {
    /// A pump over these stations, in this order.
    pub fn new(stations: impl IntoIterator<Item = Station<E>>, options: PumpOptions) -> Pump<E> {
        let seat = |mut station: Station<E>| {
            let room = station.endpoint.tx_room() as u64;
            // More than the ring holds: every buffer is written at least once.
            Seat {
                station,
                to_write: (2 * room).max(65_536),
                template: Vec::new(),
                sent: Count::default(),
                received: Count::default(),
            }
        };
        Pump { seats: stations.into_iter().map(seat).collect(), options }
    }

    /// Sends and receives as fast as possible until `duration` has passed, and returns what happened in that time. Frames
    /// under way at the end stay there for the next window or for [`drain`](Pump::drain).
    ///
    /// # Errors
    /// The network went away, as an endpoint reports it.
    pub fn run(&mut self, duration: Duration, watch: &mut Watch<'_>) -> io::Result<PumpReport> {
        let before: Vec<_> = self.seats.iter().map(|seat| (seat.sent, seat.received)).collect();
        let mut run = Run::start(Limits { frames: None, duration: Some(duration) }, watch);
        let ended = loop {
            let mut moved = 0;
            for _ in 0..TURNS_PER_LOOK {
                for seat in &mut self.seats {
                    moved += seat.send(&self.options) + seat.receive(&self.options);
                }
            }
            let now = run.now();
            let (frames, bytes) = self
                .seats
                .iter()
                .fold((0, 0), |(frames, bytes), seat| (frames + seat.received.frames, bytes + seat.received.bytes));
            if let Some(ended) = run.over(now, frames, bytes) {
                break ended;
            }
            if moved == 0 && run.probe_due(now) {
                for seat in &mut self.seats {
                    seat.station.endpoint.wait(true, Duration::ZERO)?;
                }
            }
        };
        Ok(self.report(&before, run.now().as_secs_f64(), ended))
    }

    /// Only receives, until nothing has come for `quiet` (or 10 s have passed). Returns the frames received.
    ///
    /// # Errors
    /// The network went away, as an endpoint reports it.
    pub fn drain(&mut self, quiet: Duration) -> io::Result<u64> {
        let start = Instant::now();
        let (mut last, mut drained) = (start, 0);
        loop {
            // Looked at before the turn: whoever was held up has then seen that nothing is there.
            let over = last.elapsed() >= quiet || start.elapsed() >= Duration::from_secs(10);
            let mut moved = 0;
            for seat in &mut self.seats {
                seat.station.endpoint.tx_flush();
                moved += seat.receive(&self.options) as u64;
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

    /// What the checkers have seen so far, and everything sent and received since the pump was made, per station.
    #[must_use]
    pub fn totals(&self) -> Vec<StationReport> {
        self.station_reports(&vec![Default::default(); self.seats.len()], 0.0)
    }

    /// The endpoints, in the stations' order.
    pub fn endpoints(&self) -> impl Iterator<Item = &E> {
        self.seats.iter().map(|seat| &seat.station.endpoint)
    }

    /// Gives the endpoints back.
    #[must_use]
    pub fn into_stations(self) -> Vec<Station<E>> {
        self.seats.into_iter().map(|seat| seat.station).collect()
    }

    fn station_reports(&self, before: &[(Count, Count)], seconds: f64) -> Vec<StationReport> {
        let report = |(seat, before): (&Seat<E>, &(Count, Count))| StationReport {
            sent: seat.sent.since(before.0, seconds),
            received: seat.received.since(before.1, seconds),
            check: seat.station.checker.as_ref().map(Checker::report).unwrap_or_default(),
        };
        self.seats.iter().zip(before).map(report).collect()
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

impl<E: Endpoint> Seat<E> {
    #[inline]
    fn send(&mut self, options: &PumpOptions) -> usize {
        let Some(frames) = &mut self.station.frames else { return 0 };
        let endpoint = &mut self.station.endpoint;
        let quota = endpoint.tx_room().min(options.tx_batch);
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
