//! No frame of any size and kind of address is lost, duplicated, reordered within its flow, or altered.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ringway_scenes::{Daemon, PATIENCE, frame, send, until};
use ringway_testing::{skip, whole};
use ringway_traffic::{Checker, Endpoint, FrameSpec, Frames, Level, Mac, Origin, ProcessEndpoint};

use crate::scene::turn;

const STATIONS: usize = 4;
/// Sizes around the limits of the ways of copying: head, buffer, several buffers.
const SIZES: [usize; 14] = [60, 61, 64, 127, 128, 129, 193, 594, 1514, 2111, 2112, 2113, 4225, 9000];
/// Most frames of one sender that a receiver has not taken yet. With 5 slots each and 3 senders, no ring is ever full.
const WINDOW: u64 = 24;

struct Soaked {
    endpoint: ProcessEndpoint,
    frames: Vec<Frames>,
    turn: usize,
    checker: Checker,
    /// Number of frames sent to each address.
    sent: HashMap<[u8; 6], u64>,
    /// Number of frames received from each address.
    received: HashMap<[u8; 6], u64>,
}

fn mac(station: usize) -> Mac {
    Mac::local(0x0050_0000 + station as u32)
}

impl Soaked {
    fn attach(daemon: &Daemon, station: usize) -> Self {
        let endpoint = ProcessEndpoint::new(daemon.attach(&format!("lan0:s{station}")).expect("a port"));
        let mut destinations = Vec::new();
        for peer in (0..STATIONS).filter(|&peer| peer != station) {
            destinations.extend([mac(peer), Mac::BROADCAST]);
        }
        let frames = |(number, size): (usize, &usize)| {
            let stream = Some((station * 100 + number) as u16);
            let spec = FrameSpec {
                size: *size,
                source: mac(station),
                destinations: destinations.clone(),
                flows: 3,
                stream,
                ..FrameSpec::default()
            };
            Frames::new(&spec).expect("valid")
        };
        Self {
            endpoint,
            frames: SIZES.iter().enumerate().map(frames).collect(),
            turn: 0,
            checker: Checker::new(Level::Full, Origin::Zero),
            sent: HashMap::new(),
            received: HashMap::new(),
        }
    }

    fn receive(&mut self) {
        let Self { endpoint, checker, received, .. } = self;
        endpoint.rx_batch(256, |frame| {
            let source: [u8; 6] = frame[6..12].try_into().expect("six bytes");
            // The checker ignores frames of visitors.
            if source[..4] == mac(0).0[..4] {
                checker.see(frame);
                *received.entry(source).or_default() += 1;
            }
        });
    }

    fn send(&mut self, most: u64) {
        for _ in 0..most.min(8) {
            self.turn += 1;
            let at = self.turn % self.frames.len();
            let (frames, sent) = (&mut self.frames[at], &mut self.sent);
            let pushed = self.endpoint.tx_push(frames.size(), |frame| {
                frames.write(frame);
                *sent.entry(frame[..6].try_into().expect("six bytes")).or_default() += 1;
            });
            if !pushed {
                break;
            }
        }
        self.endpoint.tx_flush();
    }
}

/// Returns the number of frames from `from` that `to` has not taken yet.
fn under_way(all: &[Soaked], from: usize, to: usize) -> u64 {
    let sent = |address: Mac| all[from].sent.get(&address.0).copied().unwrap_or(0);
    let received = all[to].received.get(&mac(from).0).copied().unwrap_or(0);
    (sent(mac(to)) + sent(Mac::BROADCAST)).checked_sub(received).expect("at most the sent frames arrive")
}

fn soak(config: &str, time: Duration) {
    let daemon = Daemon::start(&format!("{config}\n[switch.lan0]\n"));
    let mut all: Vec<Soaked> = (0..STATIONS).map(|station| Soaked::attach(&daemon, station)).collect();
    // The switch learns all addresses before the first unicast frame, so that no part of a flow is flooded.
    for (station, soaked) in all.iter_mut().enumerate() {
        send(soaked.endpoint.port(), &frame([0xff; 6], mac(station).0, 0));
    }
    until("all addresses are known", || {
        all.iter_mut().for_each(|soaked| {
            soaked.endpoint.rx_batch(16, |_| {});
        });
        let fdb: serde_json::Value = serde_json::from_str(&daemon.ok(&["fdb", "--json"])).expect("JSON");
        let heard = |n: usize| daemon.port(&format!("s{n}"))["out"]["frames"].as_u64() == Some(STATIONS as u64 - 1);
        fdb.as_array().map(Vec::len) == Some(STATIONS) && (0..STATIONS).all(heard)
    });
    all.iter_mut().for_each(|soaked| {
        soaked.endpoint.rx_batch(16, |_| {});
    });
    let (start, mut visits) = (Instant::now(), 0u32);
    let mut visitor = None;
    while start.elapsed() < time {
        for from in 0..STATIONS {
            let most = (0..STATIONS).filter(|&to| to != from).map(|to| under_way(&all, from, to)).max().unwrap_or(0);
            all[from].send(WINDOW.saturating_sub(most));
        }
        all.iter_mut().for_each(Soaked::receive);
        // Visitors attach, send and detach meanwhile.
        visits += 1;
        match visits % 64 {
            1 => {
                let mut port = daemon.attach(&format!("lan0:v{}", visits / 64 % 8)).ok();
                if let Some(port) = &mut port {
                    send(port, &frame([0xff; 6], [6, 0, 0, 0, 0, visits as u8], 0));
                }
                visitor = port;
            }
            33 => visitor = None,
            _ => {}
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    drop(visitor);
    let (start, pairs) = (Instant::now(), (0..STATIONS).flat_map(|a| (0..STATIONS).map(move |b| (a, b))));
    let pairs: Vec<_> = pairs.filter(|(a, b)| a != b).collect();
    while pairs.iter().any(|&(from, to)| under_way(&all, from, to) > 0) && start.elapsed() < PATIENCE {
        all.iter_mut().for_each(Soaked::receive);
    }
    let mut frames = 0;
    for (station, soaked) in all.iter().enumerate() {
        let check = soaked.checker.report();
        frames += check.frames;
        assert!(check.is_clean() && check.untracked == 0, "station {station} of {config:?}: {check}");
        assert_eq!(daemon.port(&format!("s{station}"))["drops"], serde_json::json!({}), "{config}");
    }
    pairs.iter().for_each(|&(from, to)| assert_eq!(under_way(&all, from, to), 0, "from {from} to {to}, {config:?}"));
    println!("{config:?}: {frames} frames of {} sizes, {} visitors, clean", SIZES.len(), visits / 64);
}

#[test]
fn every_frame_arrives_once_in_order_and_unaltered() {
    let _turn = turn();
    let seconds = std::env::var("RINGWAY_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(whole(4, 8));
    let mut configs = vec!["", "[engine]\nidle = \"sleep\"\nbatch = 1", "[engine]\nidle = \"spin\"\nbatch = 1024"];
    if skip::processors() >= 2 {
        configs.push("[engine]\ncores = [0, 1]");
    } else {
        skip::note("two pollers need two processors");
    }
    let each = Duration::from_secs(seconds) / configs.len() as u32;
    configs.iter().for_each(|config| soak(config, each));
}
