//! One run of `ringway bench`: its options and cores, and the line-up of each figure's contestants.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringway_traffic::Fill;

use crate::daemon::{Daemon, Settings};
use crate::network::{Destination, Forwarding, Load, Network};
use crate::peers::linux_bridge::{LinuxBridge, Steering};
use crate::peers::vde::Vde;
use crate::placement::{Cores, crossing_ns};
use crate::report::{Figure, Heading, Unavailable};
use crate::series::{ANCHOR, LINUX_BRIDGE, VDE};
use crate::trial::{self, Anchor, Callbacks, Contestant, Entry, Schedule};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `ringway` command that daemons are started from.
    pub program: PathBuf,
    /// Runs every experiment within seconds, to show that it works.
    pub quick: bool,
    /// Rounds of A B A B ….
    pub pairs: usize,
    /// The curves to measure; all when none is named.
    pub only: Vec<String>,
}

impl Options {
    /// Returns true if the run measures the curve `series`. (It always measures the bare ring.)
    #[must_use]
    pub fn wants(&self, series: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == series)
    }
}

/// One run.
pub struct Session<'a> {
    /// Its options.
    pub options: Options,
    /// The cores it uses.
    pub cores: Cores,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&str),
}

impl<'a> Session<'a> {
    /// Prepares a run on the first two cores. The run ends early, with the windows that it has, once `stop` is true. It calls
    /// `progress` with the name of each window.
    ///
    /// # Errors
    /// This process may use one core only.
    pub fn new(options: Options, stop: &'a AtomicBool, progress: &'a mut dyn FnMut(&str)) -> io::Result<Session<'a>> {
        Ok(Session { options, cores: Cores::choose()?, stop, progress })
    }

    /// Returns true once the run has to end.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns `all` places on an x axis, or in a quick run the first and the last.
    #[must_use]
    pub fn places(&self, all: &[usize]) -> Vec<usize> {
        match all {
            [first, .., last] if self.options.quick => vec![*first, *last],
            _ => all.to_vec(),
        }
    }

    /// Settings of a daemon for throughput.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings::spinning(self.options.program.clone(), self.cores)
    }

    /// Settings of a daemon for throughput with two vhost-user ports.
    #[must_use]
    pub fn vhost_settings(&self) -> Settings {
        Settings { vhost_user: 2, ..self.settings() }
    }

    /// Starts collecting contestants for one figure.
    #[must_use]
    pub fn lineup(&self) -> Lineup {
        let options = self.options.clone();
        Lineup { entries: Vec::new(), unavailable: Vec::new(), left_out: BTreeSet::new(), cores: self.cores, options }
    }

    /// Measures all contestants in turn.
    ///
    /// # Errors
    /// Ringway could not be measured at all, or no curve has a name of [`Options::only`]. The message says which.
    pub fn measure(&mut self, experiment: &str, heading: Heading, lineup: Lineup) -> io::Result<Figure> {
        let is_empty = lineup.entries.iter().all(|entry| entry.series == ANCHOR) && lineup.unavailable.is_empty();
        if is_empty && !lineup.left_out.is_empty() {
            let (only, there_are) = (self.options.only.join("\", \""), Vec::from_iter(lineup.left_out).join("\", \""));
            let message = format!("{}: no curve \"{only}\": there are \"{there_are}\"", heading.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let schedule = if self.options.quick {
            Schedule { pairs: 1, span: Duration::from_millis(4), budget: Duration::from_secs(10) }
        } else {
            Schedule { pairs: self.options.pairs, span: Duration::from_millis(40), budget: Duration::from_secs(180) }
        };
        let (cores, stop, quick) = (self.cores, self.stop, self.options.quick);
        let mut callbacks = Callbacks {
            probe: &mut || if quick { crossing_ns(cores).map(settled) } else { crossing_ns(cores) },
            stop: &|| stop.load(Ordering::Relaxed),
            progress: self.progress,
        };
        let outcome = trial::run(schedule, &heading.name, lineup.entries, &mut callbacks);
        let only: String = self.options.only.iter().map(|series| format!(" --only \"{series}\"")).collect();
        let command = format!("ringway bench {experiment}{only} --pairs {}", self.options.pairs);
        let command = if self.options.quick { format!("ringway bench {experiment}{only} --quick") } else { command };
        Ok(Figure::new(heading, command, outcome, lineup.unavailable))
    }
}

/// Moves a probe of a quick run to one side of the gap between near and far, so that no window is discarded.
fn settled(crossing_ns: f64) -> f64 {
    use crate::placement::{FAR_ABOVE_NS, NEAR_BELOW_NS};
    if crossing_ns < f64::midpoint(NEAR_BELOW_NS, FAR_ABOVE_NS) {
        crossing_ns.min(NEAR_BELOW_NS - 1.0)
    } else {
        crossing_ns.max(FAR_ABOVE_NS + 1.0)
    }
}

/// Contestants of one figure.
pub struct Lineup {
    entries: Vec<Entry>,
    unavailable: Vec<Unavailable>,
    /// Curves that [`Options::only`] leaves out.
    left_out: BTreeSet<String>,
    cores: Cores,
    options: Options,
}

impl Lineup {
    /// The two cores.
    #[must_use]
    pub fn cores(&self) -> Cores {
        self.cores
    }

    /// Adds the bare ring at the whole number `x`.
    pub fn anchor(&mut self, x: usize, frame_len: usize) {
        self.anchor_at(x as f64, frame_len);
    }

    /// Adds the bare ring at any place `x`.
    pub fn anchor_at(&mut self, x: f64, frame_len: usize) {
        self.add_at(ANCHOR, x, Ok(Anchor { cores: self.cores, frame_len }));
    }

    /// Adds a contestant at the whole number `x`, or notes once why its curve is missing or incomplete.
    pub fn add<C: Contestant + 'static>(&mut self, series: &str, x: usize, contestant: io::Result<C>) {
        self.add_at(series, x as f64, contestant);
    }

    /// Adds a contestant at any place `x`, or notes once why its curve is missing or incomplete. An error of this program's own that is
    /// `Unsupported` says that a tool is not installed.
    pub fn add_at<C: Contestant + 'static>(&mut self, series: &str, x: f64, contestant: io::Result<C>) {
        if series != ANCHOR && !self.options.wants(series) {
            self.left_out.insert(series.to_owned());
            return;
        }
        match contestant {
            Ok(contestant) => {
                let contestant = Box::new(contestant);
                self.entries.push(Entry { series: series.to_owned(), x, contestant });
            }
            Err(error) => {
                let (peer, reason) = (series.to_owned(), error.to_string());
                let lacks_tool = error.kind() == io::ErrorKind::Unsupported && error.raw_os_error().is_none();
                if !self.unavailable.iter().any(|known| known.peer == peer && known.reason == reason) {
                    self.unavailable.push(Unavailable { peer, reason, lacks_tool });
                }
            }
        }
    }

    /// Adds a contestant that takes time to make: `make` runs only if the run measures its curve.
    pub fn add_with<C: Contestant + 'static>(&mut self, series: &str, x: f64, make: impl FnOnce() -> io::Result<C>) {
        let is_wanted = self.options.wants(series);
        self.add_at(series, x, if is_wanted { make() } else { Err(io::Error::other("not asked for")) });
    }

    /// Adds a daemon that forwards `load`.
    pub fn ringway(&mut self, series: &str, x: usize, settings: &Settings, load: &Load) {
        let cores = self.cores;
        self.add(
            series,
            x,
            Daemon::start(cores, settings).and_then(|daemon| Forwarding::new(daemon, cores, load.clone())),
        );
    }

    /// Adds the Linux bridge and VDE, forwarding `load`.
    pub fn peers(&mut self, x: usize, load: &Load) {
        let cores = self.cores;
        let ports = 1 + load.receivers;
        let bridge = LinuxBridge::start(cores, ports, Steering::SwitchCore);
        self.add(LINUX_BRIDGE, x, bridge.and_then(|bridge| Forwarding::new(bridge, cores, load.clone())));
        let vde = Vde::start(cores, ports + 1);
        self.add(VDE, x, vde.and_then(|vde| Forwarding::new(vde, cores, load.clone())));
    }
}

/// The load of most experiments: large batches to one receiver.
#[must_use]
pub fn one_to_one(frame_len: usize) -> Load {
    Load {
        frame_len,
        receivers: 1,
        to: Destination::Learned,
        tx_batch: 128,
        rx_batch: 128,
        fill: Fill::Once,
        flows: 1,
        addresses: 1,
        ethernet_type: None,
    }
}

/// Starts a network of any kind for round trips.
pub fn round_trip<N: Network>(
    network: io::Result<N>,
    cores: Cores,
    frame_len: usize,
    waiting: crate::network::Waiting,
) -> io::Result<crate::network::RoundTrip<N>> {
    network.and_then(|network| crate::network::RoundTrip::new(network, cores, frame_len, waiting))
}
