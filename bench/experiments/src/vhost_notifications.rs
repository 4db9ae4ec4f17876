//! Wake-ups between the switch and two drivers per frame, under each idle policy, from a low rate to saturation.
//!
//! The drivers behave as a guest's: an idle driver sleeps until it is woken, and asks for wake-ups by event index. A wake-up of the
//! switch is a kick (a VM exit where there is a VM); a wake-up of a driver is a call (an interrupt).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringway_traffic::{
    Checker, FrameSpec, Frames, Level, Limits, Mac, Origin, Rate, RxOptions, Split, TxOptions, VirtioOptions, Watch,
    receive, transmit,
};
use serde_json::Value;

use crate::daemon::{Daemon, Settings};
use crate::network::{Network, SENDER};
use crate::peers::vhost::Vhost;
use crate::placement::{Cores, pin};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::{Shared, pair, with};

/// Offered frames per second; the last is more than any switch takes.
const RATES: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 100_000_000];
/// Length of a window in ordinary windows: at a low rate there are few frames.
const STRETCH: u32 = 5;

struct Notifications {
    pair: Shared<Vhost<Daemon, Split>>,
    cores: Cores,
    rate: u64,
}

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let options = VirtioOptions { event_idx: true, mergeable: true, ..VirtioOptions::default() };
    let start = |idle| pair(Daemon::start(cores, &Settings { idle, ..session.vhost_settings() }), cores, &options);
    let policies = [(RINGWAY, start("adaptive")), ("ringway, spin", start("spin")), ("ringway, sleep", start("sleep"))];
    let mut lineup = session.lineup();
    for rate in session.places(&RATES) {
        for (series, pair) in &policies {
            let contestant = with(pair, |pair| Notifications { pair, cores, rate: rate as u64 });
            lineup.add(series, rate, contestant);
        }
    }
    let heading = Heading {
        name: "notifications".into(),
        title: "Calls and kicks per frame of 64 bytes against offered frames, idle policy adaptive, spin and sleep"
            .into(),
        source: "VPE, figure 4",
        x: Axis { label: "offered", unit: "frame/s", logarithmic: true },
        y: Axis { label: "calls and kicks", unit: "per frame", logarithmic: false },
    };
    Ok(vec![session.measure("notifications", heading, lineup)?])
}

/// Returns all calls and kicks so far, and all frames delivered to clients.
fn notifications(status: &Value) -> (u64, u64) {
    let ports = status["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sum = |count: &dyn Fn(&Value) -> Option<u64>| ports.iter().filter_map(count).sum::<u64>();
    let wakes = sum(&|port| port["calls"].as_u64()) + sum(&|port| port["kicks"].as_u64());
    (wakes, sum(&|port| port["out"]["frames"].as_u64()))
}

impl Contestant for Notifications {
    fn resume(&mut self) -> io::Result<()> {
        self.pair.borrow_mut().network().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.pair.borrow_mut().network().hold()
    }

    fn needs_its_core(&self) -> bool {
        // Two threads share the generator's core.
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        let mut pair = self.pair.borrow_mut();
        let before = notifications(&pair.network().switch().status()?);
        let [near, far] = pair.ports();
        let over = AtomicBool::new(false);
        let (source, destinations) = (Mac::local(SENDER), vec![Mac::local(SENDER + 1)]);
        let spec = FrameSpec { size: 64, source, destinations, ..FrameSpec::default() };
        let mut frames = Frames::new(&spec).map_err(io::Error::other)?;
        let limits = Limits { frames: None, duration: Some(span * STRETCH) };
        let options = TxOptions { limits, rate: Rate::Frames(self.rate), ..TxOptions::default() };
        thread::scope(|scope| {
            let mut checker = Checker::new(Level::Count, Origin::Zero);
            let over = &over;
            let sink = scope.spawn(move || {
                receive(far, &mut checker, None, &RxOptions::default(), &mut Watch::none().stop_by(over))
            });
            let sent = transmit(near, &mut frames, &options, &mut Watch::none());
            over.store(true, Ordering::Relaxed);
            sink.join().map_err(|_| io::Error::other("the receiving thread panicked"))??;
            sent
        })?;
        let after = notifications(&pair.network().switch().status()?);
        match after.1 - before.1 {
            0 => Err(io::Error::other("no frame got through")),
            frames => Ok((after.0 - before.0) as f64 / frames as f64),
        }
    }
}
