//! Limits are exact to one frame. Between two samples, at most the bucket's tokens, the tokens added meanwhile and one
//! frame may pass. No fewer may pass, unless the bucket was full because a sender or a poller had no processor for
//! long. The test then samples again.

use std::time::{Duration, Instant};

use ringway_api::client::Client;
use ringway_api::limits::LimitTally;
use ringway_api::types::{PortStatus, Status};
use ringway_scenes::flood::{address, clients_to, config};
use ringway_scenes::{Daemon, PATIENCE, until};

/// Length of a window. At 8 kbit/s, tokens for 50 frames of 60 bytes are added in it.
const WINDOW: Duration = Duration::from_secs(3);

/// A sample: the daemon's status at a moment between `began` and `ended`.
struct Look {
    began: Instant,
    ended: Instant,
    status: Status,
}

fn look(client: &Client) -> Look {
    let began = Instant::now();
    let status = client.status().expect("the daemon answers");
    Look { began, ended: Instant::now(), status }
}

impl Look {
    fn port(&self, name: &str) -> &PortStatus {
        self.status.ports.iter().find(|port| port.name == name).expect("a port of the test")
    }
}

/// The limited direction or bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Ingress(&'static str),
    Egress(&'static str),
    Bucket,
}

/// A tested limit: its bytes or frames per second, its burst, and the most tokens that one frame takes.
#[derive(Clone, Copy, Debug)]
struct Held {
    of: Of,
    is_bytes: bool,
    rate: f64,
    burst: f64,
    frame: f64,
    /// True if this machine may be too slow to reach the limit.
    is_high: bool,
    /// Tokens of a shared bucket that a poller may reserve while it serves a port. The status does not show them.
    reservation: f64,
}

impl Held {
    fn of(self, look: &Look) -> (LimitTally, Option<f64>) {
        let (tally, fill, frames_fill) = match self.of {
            Of::Bucket => {
                let bucket = &look.status.buckets[0];
                (bucket.tally, bucket.fill, bucket.frames_fill)
            }
            Of::Ingress(port) | Of::Egress(port) => {
                let port = look.port(port);
                let limit = if matches!(self.of, Of::Ingress(_)) { &port.ingress } else { &port.egress };
                let limit = limit.as_ref().expect("a limit");
                (limit.tally, limit.fill, limit.frames_fill)
            }
        };
        (tally, if self.is_bytes { fill } else { frames_fill })
    }

    /// Returns the bytes or frames that have passed the limit.
    fn passed(self, look: &Look) -> f64 {
        let passed = self.of(look).0.passed;
        if self.is_bytes { passed.bytes as f64 } else { passed.frames as f64 }
    }

    /// Returns the tokens in the bucket, in bytes or frames.
    fn left(self, look: &Look) -> f64 {
        self.of(look).1.expect("a fill level") * self.burst
    }

    /// Returns the tokens that are added between two moments.
    fn in_time(self, from: Instant, to: Instant) -> f64 {
        self.rate * (to - from).as_secs_f64()
    }

    /// Returns true if frames were refused or had to wait.
    fn is_reached(self, look: &Look) -> bool {
        let tally = self.of(look).0;
        tally.refused.all() + tally.waits > 0
    }
}

/// Number of samples at the beginning of a window. A sample without a poller's reservation shows all tokens.
const LOOKS: usize = 24;
/// Most tokens, in bytes, that a poller reserves of a shared bucket.
const RESERVATION: f64 = (4 << 20) as f64;

/// Checks windows, each between several samples at its beginning and three at its end. The passed frames are those
/// between the inner samples. The outer samples give the tokens left before and after the window.
///
/// In no window may more pass than the tokens allow, including reserved ones. Each limit must have a window that began
/// without a reservation, and in which no more passed than the visible tokens allow. If the machine interrupts a poller
/// that holds a reservation, the window is useless, but there is no defect.
fn hold(daemon: &Daemon, limits: &[Held]) {
    let client = Client::new(&daemon.runtime_dir()).patience(PATIENCE);
    let mut unseen: Vec<Held> = limits.iter().copied().filter(|limit| !limit.is_high).collect();
    until("all limits are reached, and their buckets are nearly empty", || {
        let look = look(&client);
        unseen.iter().all(|limit| limit.is_reached(&look) && limit.left(&look) < limit.burst / 2.0)
    });
    let mut unproven: Vec<Held> = limits.to_vec();
    until("all limits are exact", || {
        let looks = [(); LOOKS].map(|()| look(&client));
        let [.., first, after] = &looks;
        std::thread::sleep(WINDOW.saturating_sub(first.ended.elapsed()));
        let [before_last, last, end] = [(); 3].map(|()| look(&client));
        for limit in limits {
            let since = |before: &Look, first: &Look| {
                let passed = limit.passed(&last) - limit.passed(first);
                let used = limit.left(before) - limit.left(&end);
                (passed, used + limit.in_time(before.began, end.ended) + limit.frame)
            };
            let all: Vec<_> = looks.windows(2).map(|pair| since(&pair[0], &pair[1])).collect();
            let is_within = |slack: f64| all.iter().any(|(passed, most)| *passed <= most + slack);
            assert!(is_within(limit.reservation), "{limit:?}: (passed, allowed) in each window: {all:?}");
            if is_within(0.0) {
                unproven.retain(|other| other.of != limit.of);
            }
        }
        unseen.retain(|limit| {
            let passed = limit.passed(&last) - limit.passed(first);
            let used = limit.left(after) - limit.left(&before_last);
            let came = limit.in_time(after.ended, before_last.began);
            passed < used + came - limit.in_time(before_last.began, before_last.ended) - limit.frame
        });
        unseen.is_empty() && unproven.is_empty()
    });
}

/// The limit of each of four ports, its rate in bytes or frames per second, its burst, and frame lengths.
const RATES: [(&str, f64, f64, &[usize]); 4] = [
    ("rate = \"8kbit\", burst = \"1514B\"", 1e3, 1514.0, &[60]),
    ("rate = \"100Mbit\", burst = \"12500kB\"", 12.5e6, 12.5e6, &[60, 1514, 590]),
    ("rate = \"10Gbit\", burst = \"12500kB\"", 1.25e9, 12.5e6, &[9000]),
    ("frames = \"1kpps\", frames_burst = 1000", 1e3, 1e3, &[60, 1514]),
];

fn held(row: usize, of: Of) -> Held {
    let (_, rate, burst, lens) = RATES[row];
    let is_bytes = row < 3;
    let frame = if is_bytes { *lens.iter().max().expect("lengths") as f64 } else { 1.0 };
    Held { of, is_bytes, rate, burst, frame, is_high: row == 2, reservation: 0.0 }
}

/// Ports 1 to 4 flood ports 5 to 8. One port of each pair is limited.
fn floods_are_held(at_ingress: bool, on_excess: &str) {
    let way = if at_ingress { "ingress" } else { "egress" };
    let limits = RATES.map(|(keys, ..)| format!("{way} = {{ {keys}, on_excess = \"{on_excess}\" }}"));
    let none = [const { String::new() }; 4];
    let ports = if at_ingress { [limits, none] } else { [none, limits] }.concat();
    let daemon = Daemon::start(&config(&ports.iter().map(String::as_str).collect::<Vec<_>>()));
    let none: &[usize] = &[];
    let ends = (1..=4).flat_map(|n| [(n, address(n + 4), RATES[usize::from(n) - 1].3), (n + 4, address(n), none)]);
    let _floods = clients_to(&daemon, &ends.collect::<Vec<_>>());
    let names = if at_ingress { ["p1", "p2", "p3", "p4"] } else { ["p5", "p6", "p7", "p8"] };
    let of = names.map(if at_ingress { Of::Ingress } else { Of::Egress });
    hold(&daemon, &[0, 1, 2, 3].map(|row| held(row, of[row])));
}

#[test]
fn what_a_flood_may_send_is_exact_where_the_excess_is_dropped() {
    floods_are_held(true, "drop");
}

#[test]
fn what_a_flood_may_send_is_exact_where_the_excess_waits() {
    floods_are_held(true, "wait");
}

#[test]
fn what_a_port_is_given_of_a_flood_is_exact_where_the_excess_is_dropped() {
    floods_are_held(false, "drop");
}

#[test]
fn what_a_port_is_given_of_a_flood_is_exact_where_the_excess_waits() {
    floods_are_held(false, "wait");
}

#[test]
fn what_ports_have_together_is_exact_whatever_they_send_and_are_given() {
    let ports = [
        "ingress = { bucket = \"tenant\" }",
        "ingress = { bucket = \"tenant\", ceiling = \"20Mbit\" }",
        "ingress = { bucket = \"tenant\", on_excess = \"wait\" }",
        "egress = { bucket = \"tenant\" }",
        "",
        "",
    ];
    let bucket = "[bucket.tenant]\nrate = \"100Mbit\"\nburst = \"12500kB\"\n";
    let daemon = Daemon::start(&(bucket.to_owned() + &config(&ports)));
    let lens: [&[usize]; 6] = [&[60], &[1514], &[590], &[], &[], &[60, 1514]];
    let to = [5, 5, 5, 6, 1, 4].map(address);
    let ends: Vec<_> = (1..=6).zip(to).zip(lens).map(|((n, to), lens)| (n, to, lens)).collect();
    let _floods = clients_to(&daemon, &ends);
    // All ports of the bucket are on one poller, so the bucket can be in debt for at most one frame.
    let bucket = Held {
        of: Of::Bucket,
        is_bytes: true,
        rate: 12.5e6,
        burst: 12.5e6,
        frame: 1514.0,
        is_high: false,
        reservation: RESERVATION,
    };
    hold(&daemon, &[bucket]);
}
