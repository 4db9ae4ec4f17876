//! What replacing a program delays: the longest time that a frame takes through a switch while its program is loaded anew, again and
//! again, beside the same stream while nobody loads one.
//!
//! One thread sends a few frames, waits until the last has arrived, and sleeps for some microseconds: then the thread that compiles
//! the program has the generator's core. Frames count while neither the generator nor the poller lost its core, so that the figure is
//! the switch's own delay and not the scheduler's; a second figure has all frames.

use std::io;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint as _, FrameSpec, Frames, Mac, ProcessEndpoint};

use super::compiled::{EXPERIMENT, Programs, RULES, SOURCE};
use super::modules::ACCESS_LIST;
use super::rules;
use crate::child::Program;
use crate::daemon::{Daemon, SWITCH};
use crate::extra_counts::ExtraCounts;
use crate::machine::ContextSwitches;
use crate::network::{Network as _, SENDER, introduce};
use crate::patience::PATIENCE;
use crate::placement::{Cores, pin};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;

const SIZE: usize = 64;
/// Frames sent at once.
const BURST: usize = 16;
/// Time that the generator sleeps between bursts.
const PAUSE: Duration = Duration::from_micros(20);
/// Replacements within a window.
const REPLACEMENTS: usize = 8;
/// Curve of the stream alone.
const ALONE: &str = "nothing loaded";

/// Two ports of a switch with a program.
struct Stream {
    // Ports are dropped before their switch.
    ports: Vec<ProcessEndpoint>,
    frames: Frames,
    daemon: Daemon,
    cores: Cores,
    /// The change that loads the program anew; `None`: nothing is loaded.
    change: Option<String>,
    series: &'static str,
    /// The longest delay of all frames.
    all: ExtraCounts,
}

impl Stream {
    fn start(session: &Session, programs: &Programs, series: &'static str, all: ExtraCounts) -> io::Result<Stream> {
        let rules = RULES[1];
        let settings = crate::daemon::Settings { forwarding: programs.access_list(rules)?, ..session.settings() };
        let mut daemon = Daemon::start(session.cores, &settings)?;
        let mut ports = daemon.attach(2)?;
        introduce(&mut ports)?;
        daemon.hold()?;
        let (source, destinations) = (Mac::local(SENDER), vec![Mac::local(SENDER + 1); rules::addresses(rules, 64)]);
        let spec = FrameSpec { size: SIZE, source, destinations, ..FrameSpec::default() };
        let frames = Frames::new(&spec).map_err(io::Error::other)?;
        let module = programs.module(&ACCESS_LIST)?;
        let change = (series == RINGWAY).then(|| format!("forwarding.program={}", module.display()));
        Ok(Stream { ports, frames, daemon, cores: session.cores, change, series, all })
    }

    /// Begins to load the program anew.
    fn load(&self, change: &str) -> io::Result<Program> {
        let mut command = self.daemon.ringway();
        command.args(["switch", "set", SWITCH, change]).stdin(Stdio::null()).stdout(Stdio::null());
        Program::start_on(&[self.cores.generator, self.cores.switch], &mut command)
    }

    /// Sends some frames. Returns the time until the last has arrived.
    fn burst(&mut self) -> io::Result<Duration> {
        let [sender, receiver] = &mut self.ports[..] else { return Err(io::Error::other("not two ports")) };
        let start = Instant::now();
        let mut sent = 0;
        while sent < BURST && sender.tx_push(SIZE, |frame| self.frames.write(frame)) {
            sent += 1;
        }
        sender.tx_flush();
        let mut received = 0;
        while received < sent {
            received += receiver.rx_batch(BURST, |_| {});
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("frames were lost"));
            }
        }
        Ok(start.elapsed())
    }
}

/// Returns true if a change was made; an error if it was refused.
fn is_done(child: &mut Child) -> io::Result<bool> {
    match child.try_wait()? {
        None => Ok(false),
        Some(status) if status.success() => Ok(true),
        Some(status) => Err(io::Error::other(format!("the program cannot be loaded anew: {status}"))),
    }
}

impl Contestant for Stream {
    fn resume(&mut self) -> io::Result<()> {
        self.daemon.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.daemon.hold()
    }

    /// The generator sleeps; bursts in which a thread lost its core do not count.
    fn needs_its_core(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        let mut threads = [ContextSwitches::of_this_thread()?, self.daemon.poller_switches()?];
        let (mut longest, mut longest_of_all) = (Duration::ZERO, Duration::ZERO);
        let change = self.change.clone();
        for _ in 0..REPLACEMENTS {
            let mut load = change.as_deref().map(|change| self.load(change)).transpose()?;
            let start = Instant::now();
            loop {
                let before: u64 = threads.iter_mut().map(ContextSwitches::count).sum();
                let took = self.burst()?;
                let after: u64 = threads.iter_mut().map(ContextSwitches::count).sum();
                longest_of_all = longest_of_all.max(took);
                if before == after {
                    longest = longest.max(took);
                }
                let is_over = match &mut load {
                    Some(load) => is_done(load.child())?,
                    None => start.elapsed() >= span,
                };
                if is_over {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
        }
        self.all.note(0, self.series, 1.0, longest_of_all.as_secs_f64() * 1e6);
        Ok(longest.as_secs_f64() * 1e6)
    }
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub(super) fn figures(session: &mut Session, programs: &Programs) -> io::Result<[Figure; 2]> {
    let (mut lineup, all) = (session.lineup(), ExtraCounts::default());
    for series in [RINGWAY, ALONE] {
        lineup.add_with(series, 1.0, || Stream::start(session, programs, series, all.clone()));
    }
    let heading = |name: &str, of: &str| Heading {
        name: name.to_owned(),
        title: format!("Longest time of a frame of {of} through a switch whose program is replaced"),
        source: SOURCE,
        x: Axis { label: "programs at a time", unit: "", logarithmic: false },
        y: Axis { label: "time", unit: "us", logarithmic: true },
    };
    let counted = session.measure(EXPERIMENT, heading("programs-replaced", "threads that have their cores"), lineup)?;
    let all = all.figure(0, heading("programs-replaced-all", "all"), &counted);
    Ok([counted, all])
}
