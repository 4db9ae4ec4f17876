//! Messages beside bare frames through a switch, both ends in this thread: `rates ATTACH_SOCKET [ROUNDS [segmented]]`. Each round
//! measures a pair of ports without and with LWEP, one after the other; the table has the medians of the ratios. With `segmented` it
//! measures only buffers of many messages.
//!
//! `ringway run` with `[engine] idle = "spin"` and a switch `lan0` on another core; then
//! `taskset -c 1 cargo run --release -p ringway-lwep --example rates /run/ringway/attach.sock 9`.

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ringway_client::{Port, Shape};
use ringway_link::{Gso, Offload, ProcessLink, ProcessOptions};
use ringway_lwep::{Connection, Endpoint, Event, Options, SendError};
use ringway_traffic::*;

/// Time of one measurement.
const WINDOW: Duration = Duration::from_millis(200);
/// Rounds between two readings of the clock.
const TURNS: usize = 16;
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x11], [2, 0, 0, 0, 0, 0x12]];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Ends {
    client: Endpoint<ProcessLink>,
    server: Endpoint<ProcessLink>,
    connections: Vec<[Connection; 2]>,
    began: Instant,
}

impl Ends {
    fn new(socket: &str, links: &ProcessOptions, address: bool, count: usize) -> Result<Self> {
        let end = |number: usize| -> Result<Endpoint<ProcessLink>> {
            let options = ProcessOptions { mac: Some(MACS[number]), ..*links };
            let link = ProcessLink::attach(socket, &format!("lan0:lwep{number}"), &options)?;
            let address = address.then(|| Ipv4Addr::new(10, 99, 0, 1 + number as u8));
            Ok(Endpoint::new(
                link,
                Options {
                    address,
                    connections: 2048,
                    window: number_of("WINDOW", 1024),
                    queue: number_of("WINDOW", 1024).into(),
                    ..Options::default()
                },
            ))
        };
        let mut ends = Ends { client: end(0)?, server: end(1)?, connections: vec![], began: Instant::now() };
        ends.server.listen(1);
        // Both addresses are learned before frames are counted.
        for number in 0..count {
            let connection = ends.client.connect(MACS[1], 1, ends.now())?;
            let (mut far, mut is_open) = (None, false);
            let end = Instant::now() + Duration::from_secs(5);
            while far.is_none() || !is_open {
                let now = ends.now();
                while let Some(event) = ends.client.poll(now) {
                    is_open |= matches!(event, Event::Connected { .. });
                }
                while let Some(event) = ends.server.poll(now) {
                    if let Event::Accepted { connection, .. } = event {
                        far = Some(connection);
                    }
                }
                if Instant::now() > end {
                    return Err(format!("connection {number} is not open").into());
                }
            }
            ends.connections.push([connection, far.expect("just seen")]);
        }
        Ok(ends)
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Returns the median round trip in nanoseconds.
    fn ping(&mut self, size: usize) -> Result<f64> {
        let message = vec![0x55; size];
        let mut trips = Vec::with_capacity(1 << 20);
        let end = Instant::now() + WINDOW;
        while Instant::now() < end {
            let began = self.now();
            self.client.send(self.connections[0][0], &message, began)?;
            self.client.flush();
            let mut is_back = false;
            while !is_back {
                let mut reply = None;
                let now = began;
                while let Some(event) = self.server.poll(now) {
                    if let Event::Message { connection, data } = event {
                        reply = Some((connection, data.len()));
                    }
                }
                if let Some((connection, len)) = reply {
                    let mut outgoing = self.server.reserve().ok_or("no buffer")?;
                    outgoing[..len].copy_from_slice(&message[..len]);
                    self.server.commit(connection, outgoing, len, now).map_err(|refused| refused.error)?;
                    self.server.flush();
                }
                while let Some(event) = self.client.poll(now) {
                    is_back |= matches!(event, Event::Message { .. });
                }
            }
            trips.push(self.now() - began);
        }
        Ok(median(trips.iter().map(|trip| *trip as f64).collect()))
    }

    /// Returns messages a second, sent round robin over `active` connections.
    fn bulk(&mut self, size: usize, active: usize) -> Result<f64> {
        let (mut next, mut received, mut first) = (0, 0u64, 0u8);
        let began = Instant::now();
        let mut now;
        while began.elapsed() < WINDOW {
            for _ in 0..TURNS {
                now = self.now();
                for _ in 0..128 {
                    let connection = self.connections[next][0];
                    match self.client.send_with(connection, size, now, |bytes| bytes.fill(received as u8)) {
                        Ok(()) => {}
                        Err(SendError::Full) => break,
                        Err(error) => return Err(error.into()),
                    }
                    next = if next + 1 == active { 0 } else { next + 1 };
                }
                self.client.drain(now, 128, |_| ());
                self.server.drain(now, 256, |event| {
                    if let Event::Message { data, .. } = event {
                        received += 1;
                        first ^= data.first().copied().unwrap_or(0);
                    }
                });
            }
        }
        std::hint::black_box(first);
        Ok(received as f64 / began.elapsed().as_secs_f64())
    }

    /// Returns bytes a second, sent in buffers of many messages.
    fn trains(&mut self, bytes: usize, part: usize) -> Result<f64> {
        let connection = self.connections[0][0];
        let (mut received, mut first) = (0u64, 0u8);
        let began = Instant::now();
        let mut now;
        while began.elapsed() < WINDOW {
            for _ in 0..TURNS {
                now = self.now();
                while let Some(mut outgoing) = self.client.reserve_many() {
                    outgoing[..bytes].fill(received as u8);
                    if let Err(refused) = self.client.commit_many(connection, outgoing, bytes, part, now) {
                        self.client.discard(refused.outgoing);
                        break;
                    }
                }
                while self.client.poll(now).is_some() {}
                self.server.drain(now, 1 << 16, |event| {
                    if let Event::Message { data, .. } = event {
                        received += data.len() as u64;
                        first ^= data.first().copied().unwrap_or(0);
                    }
                });
            }
        }
        std::hint::black_box(first);
        if std::env::var_os("COUNTERS").is_some() {
            eprintln!("{:?}", self.client.status(connection));
            eprintln!("{:?}\n{:?}", self.client.counters(), self.server.counters());
        }
        Ok(received as f64 / began.elapsed().as_secs_f64())
    }
}

/// Returns the number in an environment variable.
fn number_of(name: &str, otherwise: u16) -> u16 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn bare(socket: &str, shape: Shape) -> Result<[ProcessEndpoint; 2]> {
    let end = |name| Ok::<_, Box<dyn Error>>(ProcessEndpoint::new(Port::attach(socket, name, shape)?));
    Ok([end("lan0:bare0")?, end("lan0:bare1")?])
}

fn bare_ping(socket: &str, size: usize) -> Result<f64> {
    let [mut near, mut far] = bare(socket, Shape::default())?;
    let spec = FrameSpec { size, destinations: vec![Mac::local(2)], ..FrameSpec::default() };
    let limits = Limits { frames: None, duration: Some(WINDOW) };
    let options = PingOptions { limits, wait_mode: WaitMode::Spin, ..PingOptions::default() };
    let report = ping_pair(&mut near, &mut far, &spec, &options, &mut Watch::none())?;
    Ok(report.median_ns as f64)
}

fn bare_bulk(socket: &str, size: usize) -> Result<f64> {
    let [near, far] = bare(socket, Shape::default())?;
    let spec = FrameSpec { size, ..FrameSpec::default() };
    let stations =
        [Station::source(near, Frames::new(&spec)?), Station::sink(far, Checker::new(Level::Count, Origin::Zero))];
    let mut pump = Pump::new(stations, PumpOptions { fill: Fill::Each, ..PumpOptions::default() });
    Ok(pump.run(WINDOW, &mut Watch::none())?.received.frames_per_second)
}

/// Bytes before a frame: the offload request and two without meaning.
const PREFIX_BYTES: usize = Offload::BYTES + 2;

/// A port whose frames are yet to be segmented.
struct Offloaded(ProcessEndpoint);

impl ringway_traffic::Endpoint for Offloaded {
    fn tx_room(&mut self) -> usize {
        self.0.tx_room()
    }

    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let offload = Offload {
            needs_csum: true,
            gso: Gso::UdpL4,
            gso_size: 1440,
            csum_start: 34,
            csum_offset: 6,
            ..Offload::default()
        };
        self.0.tx_push(PREFIX_BYTES + len, |bytes| {
            let (prefix, frame) = bytes.split_at_mut(PREFIX_BYTES);
            prefix[..Offload::BYTES].copy_from_slice(&Offload::encode(Some(&offload)));
            fill(frame);
        })
    }

    fn tx_flush(&mut self) {
        self.0.tx_flush();
    }

    fn rx_batch(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        self.0.rx_batch(max, |bytes| take(&bytes[PREFIX_BYTES..]))
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> std::io::Result<()> {
        self.0.wait(for_rx, timeout)
    }
}

/// Returns bytes a second in frames that are yet to be segmented.
fn bare_trains(socket: &str, size: usize, links: &ProcessOptions) -> Result<f64> {
    let shape = Shape {
        tx_slots: links.slots,
        rx_slots: links.slots,
        buffer_size: links.buffer,
        offload: true,
        ..Shape::default()
    };
    let [near, far] = bare(socket, shape)?.map(Offloaded);
    let spec = FrameSpec { size, ..FrameSpec::default() };
    let stations =
        [Station::source(near, Frames::new(&spec)?), Station::sink(far, Checker::new(Level::Count, Origin::Zero))];
    let mut pump = Pump::new(stations, PumpOptions { fill: Fill::Each, ..PumpOptions::default() });
    Ok(pump.run(WINDOW, &mut Watch::none())?.received.frames_per_second * size as f64)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("the daemon's attach.sock")?;
    let rounds: usize = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let is_segmented_only = arguments.next().is_some_and(|what| what == "segmented");
    let plain = ProcessOptions { slots: number_of("SLOTS", 1024).into(), buffers: 4096, ..ProcessOptions::default() };
    let large = ProcessOptions {
        slots: number_of("LARGE_SLOTS", 64).into(),
        buffer: 65_472,
        buffers: number_of("LARGE_BUFFERS", 128).into(),
        offload: true,
        ..plain
    };
    let mut table: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let mut add = |name: &str, ours: f64, bare: f64| match table.iter_mut().find(|(other, _)| other == name) {
        Some((_, rows)) => rows.push((ours, bare)),
        None => table.push((name.to_owned(), vec![(ours, bare)])),
    };
    for _ in 0..rounds {
        let one = Ends::new(&socket, &plain, false, 1)?.bulk(1400, 1)?;
        let bare = bare_trains(&socket, 65_000, &large)?;
        let trains = Ends::new(&socket, &large, true, 1)?.trains(64_800, 1440)?;
        add("segmented 1440 (bytes/s), beside bulk 1400", trains, one * 1400.0);
        add("segmented 1440 (bytes/s), beside frames of 65,000", trains, bare);
        if is_segmented_only {
            continue;
        }
        let bare = bare_ping(&socket, 60)?;
        add("ping 8 (ns)", Ends::new(&socket, &plain, false, 1)?.ping(8)?, bare);
        let bare = bare_ping(&socket, 1448)?;
        add("ping 1400 (ns)", Ends::new(&socket, &plain, false, 1)?.ping(1400)?, bare);
        let bare = bare_bulk(&socket, 60)?;
        add("bulk 8 (1/s)", Ends::new(&socket, &plain, false, 1)?.bulk(8, 1)?, bare);
        let bare = bare_bulk(&socket, 1448)?;
        let one = Ends::new(&socket, &plain, false, 1)?.bulk(1400, 1)?;
        add("bulk 1400 (1/s)", one, bare);
        let one8 = Ends::new(&socket, &plain, false, 1)?.bulk(8, 1)?;
        let mut many = Ends::new(&socket, &plain, false, 1000)?;
        add("1000 connections, 1400, beside 1", many.bulk(1400, 1000)?, one);
        add("1000 connections, 8, beside 1", many.bulk(8, 1000)?, one8);
        add("999 idle, 1400, beside 1", many.bulk(1400, 1)?, one);
    }
    for (name, rows) in &table {
        let ratio = median(rows.iter().map(|(ours, bare)| ours / bare).collect());
        let [ours, bare] = [0, 1].map(|side| median(rows.iter().map(|row| [row.0, row.1][side]).collect()));
        println!("{name:45} {ours:15.0} {bare:15.0}  ratio {ratio:.3}");
    }
    Ok(())
}
