//! What the death of a switch and an upgrade cost its ports under traffic: a pause, and frames.
//!
//! One program sends numbered frames to each port by turns. The pause of a port is the longest time between two of its frames while the switch is
//! replaced. A switch that is killed has one that waits for its death, as after each three seconds of service. The scale is the time in which the same
//! executable starts and answers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, Mac, ProcessEndpoint, Split, VirtioEndpoint, VirtioOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process, pidfd_open, setrlimit};

use crate::daemon::{Daemon, Settings};
use crate::network::Network as _;
use crate::patience::PATIENCE;
use crate::peers::vhost::VhostSwitch as _;
use crate::placement::{Cores, pin, unpin};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;

/// Numbers of receiving ports.
const PORTS: [usize; 3] = [1, 16, 256];
/// Time between two frames to one port.
const EVERY: Duration = Duration::from_micros(500);
/// Frames for each port that wait for a switch.
const WAITING_MOST: usize = 128;
/// Nothing is under way when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(100);
/// Frames to each port before the switch is replaced.
const BEFORE: u64 = 20;
const FRAME: usize = 60;
/// The number in a frame.
const NUMBER: std::ops::Range<usize> = 14..22;
/// The first receiver's address.
const FIRST: u32 = 0x0051_0000;
/// The scale's curve.
const START: &str = "start of the executable";

/// How the switch is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Kill,
    Upgrade,
}

/// What one replacement cost. Times in milliseconds, over all ports.
#[derive(Clone, Copy, Debug)]
struct Cost {
    median: f64,
    p99: f64,
    longest: f64,
    lost: f64,
    doubled: f64,
}

/// A receiving port.
struct Receiver<E> {
    endpoint: E,
    /// The number of the last frame that was sent to it, and of the newest one that came.
    sent: u64,
    newest: u64,
    came: u64,
    doubled: u64,
    last: Instant,
    pause: Duration,
}

/// A daemon with its keeper, the program that sends, and the receivers.
struct Lan<E> {
    receivers: Vec<Receiver<E>>,
    source: ProcessEndpoint,
    next: Instant,
    daemon: Daemon,
    cores: Cores,
}

fn address(receiver: usize) -> Mac {
    Mac::local(FIRST + receiver as u32)
}

impl<E: Endpoint> Lan<E> {
    fn new(mut daemon: Daemon, endpoints: Vec<E>, cores: Cores) -> io::Result<Self> {
        let source = daemon.attach(1)?.pop().ok_or(io::ErrorKind::NotFound)?;
        // The keeper has a port when the next client has its answer.
        drop(daemon.attach_idle(1)?);
        let now = Instant::now();
        let receiver =
            |endpoint| Receiver { endpoint, sent: 0, newest: 0, came: 0, doubled: 0, last: now, pause: Duration::ZERO };
        let receivers = endpoints.into_iter().map(receiver).collect();
        let mut lan = Self { receivers, source, next: now, daemon, cores };
        // The switch learns where each one is.
        for number in 0..lan.receivers.len() {
            lan.receivers[number].endpoint.tx_push(FRAME, |frame| write(frame, Mac::BROADCAST, address(number), 0));
            lan.receivers[number].endpoint.tx_flush();
            lan.receive();
        }
        lan.until_quiet()?;
        Ok(lan)
    }

    fn receive(&mut self) {
        self.source.rx_batch(256, |_| {});
        for (number, receiver) in self.receivers.iter_mut().enumerate() {
            let Receiver { endpoint, newest, came, doubled, last, pause, .. } = receiver;
            endpoint.rx_batch(256, |frame| {
                // Others are flooded.
                if frame[..6] != address(number).0 {
                    return;
                }
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&frame[NUMBER]);
                let number = u64::from_ne_bytes(bytes);
                if number <= *newest {
                    *doubled += 1;
                    return;
                }
                *newest = number;
                *came += 1;
                let now = Instant::now();
                *pause = (*pause).max(now - *last);
                *last = now;
            });
        }
    }

    /// Receives, and sends to each port if it is time to.
    fn go_on(&mut self) {
        // Of what waits for the next switch, no receiver's ring can become full.
        let waiting = self.source.port().tx().unsent();
        if Instant::now() >= self.next && waiting < WAITING_MOST * self.receivers.len() {
            self.next = Instant::now() + EVERY;
            for (number, receiver) in self.receivers.iter_mut().enumerate() {
                let next = receiver.sent + 1;
                let fill = |frame: &mut [u8]| write(frame, address(number), Mac::local(FIRST - 1), next);
                receiver.sent += u64::from(self.source.tx_push(FRAME, fill));
            }
            self.source.tx_flush();
        }
        self.receive();
    }

    /// Receives until nothing comes any more.
    fn until_quiet(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let (mut since, mut before) = (begun, 0);
        while since.elapsed() < QUIET || !self.source.port().tx().is_sent() {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("frames still come"));
            }
            self.receive();
            let came = self.receivers.iter().map(|receiver| receiver.came).sum();
            if came != before {
                (since, before) = (Instant::now(), came);
            }
        }
        Ok(())
    }

    /// Goes on until each port has a frame that is sent from now on, and `done`.
    fn until_all_hear(&mut self, frames: u64, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
        let begun = Instant::now();
        while !done()? {
            self.go_on();
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("the switch is not replaced"));
            }
        }
        let wanted: Vec<u64> = self.receivers.iter().map(|receiver| receiver.sent + frames).collect();
        while self.receivers.iter().zip(&wanted).any(|(receiver, wanted)| receiver.newest < *wanted) {
            self.go_on();
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("a port hears nothing any more"));
            }
        }
        Ok(())
    }

    fn replace(&mut self, by: By) -> io::Result<Cost> {
        pin(self.cores.generator)?;
        if by == By::Kill {
            self.daemon.until_one_waits()?;
        }
        self.until_all_hear(BEFORE, || Ok(true))?;
        let now = Instant::now();
        for receiver in &mut self.receivers {
            (receiver.last, receiver.pause) = (now, Duration::ZERO);
        }
        let replaced = match by {
            By::Kill => {
                let switch = self.daemon.switch()?;
                let end = pidfd_open(switch, PidfdFlags::empty())?;
                kill_process(switch, Signal::KILL)?;
                let is_dead = || {
                    let mut ends = [PollFd::new(&end, PollFlags::IN)];
                    Ok(poll(&mut ends, Some(&Timespec::default()))? > 0)
                };
                self.until_all_hear(1, is_dead)
            }
            By::Upgrade => {
                let mut command = self.daemon.ringway();
                let mut upgrade = command.arg("upgrade").stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
                self.until_all_hear(1, || match upgrade.try_wait()? {
                    Some(status) if !status.success() => Err(io::Error::other(format!("ringway upgrade: {status}"))),
                    status => Ok(status.is_some()),
                })
            }
        };
        replaced?;
        let mut pauses: Vec<f64> = self.receivers.iter().map(|receiver| receiver.pause.as_secs_f64() * 1e3).collect();
        pauses.sort_by(f64::total_cmp);
        self.until_quiet()?;
        let at = |share: f64| pauses[((pauses.len() - 1) as f64 * share).round() as usize];
        let lost = self.receivers.iter().map(|receiver| receiver.sent - receiver.came).sum::<u64>();
        let doubled = self.receivers.iter().map(|receiver| receiver.doubled).sum::<u64>();
        for receiver in &mut self.receivers {
            (receiver.sent, receiver.newest, receiver.came, receiver.doubled) = (0, 0, 0, 0);
        }
        unpin(self.cores)?;
        let (lost, doubled) = (lost as f64, doubled as f64);
        Ok(Cost { median: at(0.5), p99: at(0.99), longest: at(1.0), lost, doubled })
    }
}

fn write(frame: &mut [u8], to: Mac, from: Mac, number: u64) {
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&from.0);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[NUMBER].copy_from_slice(&number.to_ne_bytes());
}

/// The costs of all windows, by curve and number of ports.
type Costs = Rc<RefCell<HashMap<(String, usize), Vec<Cost>>>>;

/// A daemon whose switch is replaced in each window.
struct Replaced<E> {
    lan: Rc<RefCell<Lan<E>>>,
    by: By,
    place: (String, usize),
    costs: Costs,
}

impl<E: Endpoint> Contestant for Replaced<E> {
    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, _: Duration) -> io::Result<f64> {
        let cost = self.lan.borrow_mut().replace(self.by)?;
        self.costs.borrow_mut().entry(self.place.clone()).or_default().push(cost);
        Ok(cost.median)
    }
}

/// The executable starts, and says its version.
struct Starts(std::path::PathBuf);

impl Contestant for Starts {
    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, _: Duration) -> io::Result<f64> {
        let begun = Instant::now();
        let said = Command::new(&self.0).arg("--version").stdin(Stdio::null()).output()?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        if said.status.success() { Ok(took) } else { Err(io::Error::other("it does not say its version")) }
    }
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    // Each driver has some descriptors.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let cores = session.cores;
    let settings = Settings { core: None, idle: "adaptive", is_kept: true, ..session.settings() };
    let costs = Costs::default();
    let mut lineup = session.lineup();
    for ports in session.places(&PORTS) {
        lineup.add(START, ports, Ok(Starts(settings.program.clone())));
        let process = Daemon::start(cores, &settings).and_then(|mut daemon| {
            let endpoints = daemon.attach(ports)?;
            Lan::new(daemon, endpoints, cores)
        });
        add(&mut lineup, "", ports, process, &costs);
        let settings = Settings { vhost_user: ports, ..settings.clone() };
        let vhost = Daemon::start(cores, &settings).and_then(|daemon| {
            let attach = |socket| VirtioEndpoint::<Split>::attach(socket, &VirtioOptions::default());
            let endpoints: Result<Vec<_>, _> = daemon.sockets().iter().map(|socket| attach(socket)).collect();
            Lan::new(daemon, endpoints.map_err(io::Error::other)?, cores)
        });
        add(&mut lineup, ", vhost-user", ports, vhost, &costs);
    }
    let heading = |name: &str, what: &str, y| Heading {
        name: name.into(),
        title: format!("{what} when the switch is killed or upgraded, against number of ports"),
        source: "DESIGN, two processes",
        x: Axis { label: "ports", unit: "ports", logarithmic: true },
        y,
    };
    let pause = Axis { label: "pause", unit: "ms", logarithmic: true };
    let frames = Axis { label: "frames", unit: "frames", logarithmic: false };
    let mut median = session.measure("survive", heading("survive", "Pause of the median port", pause), lineup)?;
    let folder = settings.program.parent().and_then(std::path::Path::file_name).unwrap_or_default().to_string_lossy();
    median.notes.push(format!("the executable is in the folder \"{folder}\" of its build"));
    let costs = costs.borrow();
    let of = |name: &str, what: &str, axis, value: fn(&Cost) -> f64, has_scale: bool| {
        let cost = |series: &str, x: f64, round: usize| costs.get(&(series.to_owned(), x as usize))?.get(round - 1);
        let mut figure = median.otherwise(heading(name, what, axis), |sample| {
            cost(&sample.series, sample.x, sample.round).map_or(sample.value, value)
        });
        if !has_scale {
            figure.samples.retain(|sample| sample.series != START);
            figure.points.retain(|point| point.series != START);
        }
        figure
    };
    let p99 = of("survive-p99", "Pause of the port at the 99th percentile", pause, |cost| cost.p99, true);
    let longest = of("survive-longest", "Longest pause of a port", pause, |cost| cost.longest, true);
    let lost = of("survive-lost", "Frames lost", frames, |cost| cost.lost, false);
    let doubled = of("survive-doubled", "Frames received twice", frames, |cost| cost.doubled, false);
    Ok(vec![median, p99, longest, lost, doubled])
}

fn add<E: Endpoint + 'static>(
    lineup: &mut crate::session::Lineup,
    kind: &str,
    ports: usize,
    lan: io::Result<Lan<E>>,
    costs: &Costs,
) {
    let lan = lan.map(|lan| Rc::new(RefCell::new(lan))).map_err(|why| why.to_string());
    for (by, what) in [(By::Kill, ""), (By::Upgrade, ", upgraded")] {
        let series = format!("{RINGWAY}{kind}{what}");
        let contestant = lan.clone().map_err(io::Error::other).map(|lan| {
            let (place, costs) = ((series.clone(), ports), Rc::clone(costs));
            Replaced { lan, by, place, costs }
        });
        lineup.add(&series, ports, contestant);
    }
}
