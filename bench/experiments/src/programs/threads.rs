//! A sender and a receiver by the client library, in a thread each, which sleep while they wait.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_traffic::{
    Checker, FrameSpec, Frames, Level, Limits, Mac, Origin, ProcessEndpoint, RxOptions, TxOptions, Watch, receive,
    transmit,
};

use crate::daemon::Daemon;
use crate::network::{Load, Network as _, SENDER, introduce};
use crate::patience::PATIENCE;
use crate::placement::{Cores, pin};
use crate::trial::Contestant;

/// The ports of two threads that share the generator's core.
pub(super) struct Threads {
    // Dropped before their network.
    ports: [ProcessEndpoint; 2],
    daemon: Daemon,
    frames: Frames,
    load: Load,
    cores: Cores,
}

impl Threads {
    /// Attaches the ports. The daemon is held when this returns.
    ///
    /// # Errors
    /// The daemon refuses a port, or no frame gets through.
    pub(super) fn new(mut daemon: Daemon, cores: Cores, load: Load) -> io::Result<Threads> {
        let mut ports = daemon.attach(2)?;
        introduce(&mut ports)?;
        daemon.hold()?;
        let spec = FrameSpec {
            size: load.frame_len,
            source: Mac::local(SENDER),
            destinations: vec![Mac::local(SENDER + 1)],
            ethernet_type: load.ethernet_type,
            ..FrameSpec::default()
        };
        let frames = Frames::new(&spec).map_err(io::Error::other)?;
        let ports = <[ProcessEndpoint; 2]>::try_from(ports).map_err(|_| io::Error::other("a port is missing"))?;
        Ok(Threads { ports, daemon, frames, load, cores })
    }

    /// Sends for `span` and receives meanwhile. Returns the number of frames received.
    fn run(&mut self, span: Duration) -> io::Result<u64> {
        let [sender, receiver] = &mut self.ports;
        let limits = Limits { frames: None, duration: Some(span) };
        let options = TxOptions { limits, batch: self.load.tx_batch, ..TxOptions::default() };
        let rx_options = RxOptions { batch: self.load.rx_batch, ..RxOptions::default() };
        let over = &AtomicBool::new(false);
        thread::scope(|scope| {
            let sink = scope.spawn(move || {
                let mut checker = Checker::new(Level::Count, Origin::Zero);
                receive(receiver, &mut checker, None, &rx_options, &mut Watch::none().stop_by(over))
            });
            let sent = transmit(sender, &mut self.frames, &options, &mut Watch::none());
            over.store(true, Ordering::Relaxed);
            let received = sink.join().map_err(|_| io::Error::other("the receiving thread panicked"))?;
            sent?;
            Ok(received?.received.frames)
        })
    }
}

impl Contestant for Threads {
    fn resume(&mut self) -> io::Result<()> {
        self.daemon.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.daemon.hold()
    }

    fn needs_its_core(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        self.run(span / 8)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let begun = Instant::now();
            let frames = self.run(span)?;
            if frames > 0 {
                return Ok(frames as f64 / begun.elapsed().as_secs_f64() / 1e6);
            }
        }
        Err(io::Error::other("no frame got through"))
    }
}
