//! VPE's utilisation: the share of its time that the poller is busy against the offered load, between two vhost-user ports.
//!
//! One load has TCP data in frames of 1514 bytes, the other, with segmentation offload, in frames of 44 such segments that the
//! receiver takes whole. The poller and the generator are pinned to a core each, or placed by the scheduler.

use std::io;
use std::time::Duration;

use ringway_traffic::{Split, VirtioOptions};

use crate::daemon::{Daemon, Settings};
use crate::network::Network;
use crate::peers::vhost::Vhost;
use crate::placement::{Cores, pin, unpin};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::{Load, Shared, pair, with};

/// Offered data, in Gbit/s.
const LOADS: [usize; 6] = [1, 2, 5, 10, 20, 40];
/// Data of one segment, in bytes.
const SEGMENT: usize = 1460;
/// Ethernet, IPv4 and TCP header.
const HEADERS: usize = 54;
/// Segments of an unsegmented frame.
const SEGMENTS: usize = 44;
/// Length of a window in ordinary windows.
const STRETCH: u32 = 5;

struct Utilisation {
    pair: Shared<Vhost<Daemon, Split>>,
    cores: Cores,
    pinned: bool,
    /// Segments of each frame.
    segments: usize,
    /// Frames per second.
    rate: f64,
}

/// Measures the figure.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let whole = VirtioOptions {
        tx_ring: 64,
        rx_ring: 64,
        buffer_size: 65_536,
        segments: Some(SEGMENT as u16),
        ..VirtioOptions::default()
    };
    let start = |core, options: &VirtioOptions| {
        pair(Daemon::start(cores, &Settings { core, ..session.vhost_settings() }), cores, options)
    };
    let [pinned, unpinned] = [Some(cores.switch), None];
    let setups = [
        (RINGWAY, true, 1, start(pinned, &VirtioOptions::default())),
        ("ringway, 64 KiB frames", true, SEGMENTS, start(pinned, &whole)),
        ("ringway, not pinned", false, 1, start(unpinned, &VirtioOptions::default())),
        ("ringway, 64 KiB frames, not pinned", false, SEGMENTS, start(unpinned, &whole)),
    ];
    let mut lineup = session.lineup();
    for load in session.places(&LOADS) {
        for (series, pinned, segments, pair) in &setups {
            let (pinned, segments) = (*pinned, *segments);
            let rate = load as f64 * 1e9 / 8.0 / (SEGMENT * segments) as f64;
            lineup.add(series, load, with(pair, |pair| Utilisation { pair, cores, pinned, segments, rate }));
        }
    }
    let heading = Heading {
        name: "utilisation".into(),
        title: "Share of the poller's time that is busy against offered TCP data".into(),
        source: "VPE, figures 8, 10 and 11",
        x: Axis { label: "offered", unit: "Gbit/s", logarithmic: true },
        y: Axis { label: "busy", unit: "%", logarithmic: false },
    };
    Ok(vec![session.measure("utilisation", heading, lineup)?])
}

impl Contestant for Utilisation {
    fn resume(&mut self) -> io::Result<()> {
        self.pair.borrow_mut().network().resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.pair.borrow_mut().network().hold()
    }

    fn needs_its_core(&self) -> bool {
        self.pinned
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        if self.pinned {
            pin(self.cores.generator)?
        } else {
            unpin(self.cores)?
        }
        let mut pair = self.pair.borrow_mut();
        let load = Load { sizes: vec![HEADERS + SEGMENT * self.segments], both: false, tcp: true, broadcasts: false };
        pair.offer(&load, self.rate, span / 8)?;
        let (before, _) = pair.network().switch().times()?;
        let seconds = pair.offer(&load, self.rate, span * STRETCH)?;
        // The generator does not send during the request for the status, so that the poller is not busy then.
        let (after, _) = pair.network().switch().times()?;
        Ok((after - before) / seconds * 100.0)
    }
}
