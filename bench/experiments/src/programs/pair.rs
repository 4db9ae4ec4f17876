//! A sender and a receiver of the same load: the netmap program, the client library, and the program at packet sockets.

use std::io;
use std::time::Duration;

use ringway_traffic::Fill;

use super::driven::Driven;
use super::source::Compiled;
use super::threads::Threads;
use crate::daemon::{Daemon, LONG, Settings};
use crate::network::{Forwarding, Load};
use crate::placement::Cores;
use crate::session::{Lineup, Session, one_to_one};
use crate::trial::Contestant;

/// What VALE calls large.
pub(super) const LARGE: usize = 1024;
/// EtherType of the programs' frames.
const ETHERNET_TYPE: [u8; 2] = [0x88, 0xb5];
/// Longer than all buffers take when they are used for the first time.
const WARM_UP: Duration = Duration::from_millis(50);
const DEVICES: &[(&str, &str)] = &[("sender", "receiver")];

/// How a sender and a receiver share the generator's core.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shared {
    /// One thread does both by turns.
    OneThread,
    /// A thread each, which sleeps while it waits.
    TwoThreads,
}

/// Senders and receivers of one figure.
pub(super) struct Pairs<'a> {
    cores: Cores,
    compiled: &'a Compiled,
    settings: Settings,
    shared: Shared,
}

impl Pairs<'_> {
    /// Pairs on switches with large batches.
    pub(super) fn new<'a>(session: &Session, compiled: &'a Compiled, shared: Shared) -> Pairs<'a> {
        let settings = Settings { batch: LARGE, shape: LONG, ..session.settings() };
        Pairs { cores: session.cores, compiled, settings, shared }
    }

    /// Adds the netmap program.
    pub(super) fn netmap(&self, lineup: &mut Lineup, series: &str, x: usize, load: &Load) {
        let cores = self.cores;
        lineup.add_with(series, x as f64, || {
            let words = self.words(["netmap", "bench:sender", "bench:receiver"], load);
            Ok(self.shared(Driven::on_ports(cores, &self.settings, self.compiled.path()?, &words)?))
        });
    }

    /// Adds the program at packet sockets of veth devices.
    pub(super) fn packet(&self, lineup: &mut Lineup, series: &str, x: usize, load: &Load) {
        let cores = self.cores;
        lineup.add_with(series, x as f64, || {
            let words = self.words(["packet", "sender", "receiver"], load);
            Ok(self.shared(Driven::on_veth(cores, DEVICES, self.compiled.path()?, &words)?))
        });
    }

    /// Adds the client library.
    pub(super) fn client(&self, lineup: &mut Lineup, series: &str, x: usize, load: &Load) {
        let cores = self.cores;
        let daemon = || Daemon::start(cores, &self.settings);
        match self.shared {
            Shared::OneThread => {
                lineup.add_with(series, x as f64, || warmed(Forwarding::new(daemon()?, cores, load.clone())?));
            }
            Shared::TwoThreads => {
                lineup.add_with(series, x as f64, || warmed(Threads::new(daemon()?, cores, load.clone())?));
            }
        }
    }

    fn shared(&self, driven: Driven) -> Driven {
        if self.shared == Shared::TwoThreads { driven.sleeping() } else { driven }
    }

    /// The program's arguments.
    fn words(&self, places: [&str; 3], load: &Load) -> Vec<String> {
        let Load { frame_len, tx_batch, rx_batch, fill, .. } = load;
        let fill = if *fill == Fill::Once { "once" } else { "each" };
        let threads = if self.shared == Shared::OneThread { "one" } else { "two" };
        let numbers = [frame_len, tx_batch, rx_batch].map(ToString::to_string);
        places.map(str::to_owned).into_iter().chain(numbers).chain([fill, threads].map(str::to_owned)).collect()
    }
}

/// Uses all buffers once, as the programs do before their first window (`programs/turns.h`).
fn warmed<C: Contestant>(mut contestant: C) -> io::Result<C> {
    contestant.resume()?;
    // A window that fails says so when it is measured.
    let _ = contestant.window(WARM_UP);
    contestant.hold()?;
    Ok(contestant)
}

/// Frames of 60 bytes to one receiver.
pub(super) fn load((tx_batch, rx_batch): (usize, usize), fill: Fill) -> Load {
    Load { tx_batch, rx_batch, fill, ethernet_type: Some(ETHERNET_TYPE), ..one_to_one(60) }
}
