//! VPE, figures 6 and 7, end to end: LWEP between two hosts.

use std::io;

use ringway_link::{AnyLink, AnyOptions, ProcessLink};

use crate::daemon::Settings;
use crate::lwep::{BARE_FRAMES, MESSAGES, SIZE, messenger};
use crate::messages::{Bare, LinkNetwork, Lwep, Measure, Route, Sockets, Way};
use crate::peers::cable::{Cable, WIRE};
use crate::peers::netns;
use crate::report::{Axis, Figure, Heading, TIME};
use crate::series::RINGWAY;
use crate::session::Session;
use crate::vm_switch::TwoHosts;

const SIZES: [usize; 2] = [8, 1400];

/// Two hosts whose end of a cable LWEP has for itself.
struct Hosts {
    /// How: as on the command line of `ringway lwep`.
    by: &'static str,
    cable: Cable,
}

impl Hosts {
    fn start(by: &'static str) -> io::Result<Hosts> {
        Ok(Hosts { by, cable: Cable::start()? })
    }
}

impl LinkNetwork for Hosts {
    type Link = AnyLink;

    fn link(&mut self, number: usize, _: &Way) -> io::Result<AnyLink> {
        let interface = format!("{}:{WIRE}", self.by);
        netns::inside(&self.cable.hosts()[number], || AnyLink::open(&interface, "".as_ref(), &AnyOptions::default()))
    }
}

impl LinkNetwork for TwoHosts {
    type Link = ProcessLink;

    fn link(&mut self, number: usize, way: &Way) -> io::Result<ProcessLink> {
        self.daemon(number).link(number, way)
    }

    fn hold(&mut self) -> io::Result<()> {
        [0, 1].into_iter().try_for_each(|number| self.daemon(number).hold())
    }

    fn resume(&mut self) -> io::Result<()> {
        [0, 1].into_iter().try_for_each(|number| self.daemon(number).resume())
    }
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let settings = Settings { idle: "sleep", ..session.settings() };
    let way = Way { checksums: true, ..Way::COPIED };
    let trip = Axis { label: "round trip", ..TIME };
    let figures = [
        ("-latency", "Round trip between two hosts", "VPE, figure 6", Measure::RoundTrip, trip),
        ("", "Messages from one host to another", "VPE, figure 7", Measure::Rate, MESSAGES),
    ];
    let mut done = Vec::new();
    for (name, title, source, measure, y) in figures {
        let mut lineup = session.lineup();
        for size in SIZES {
            let what = (size, measure);
            messenger(&mut lineup, BARE_FRAMES, what, || Bare::start(Hosts::start("xdp")?));
            messenger(&mut lineup, RINGWAY, what, || Lwep::start(Hosts::start("xdp")?, way));
            messenger(&mut lineup, "ringway, without checksums", what, || {
                Lwep::start(Hosts::start("xdp")?, Way { checksums: false, ..way })
            });
            messenger(&mut lineup, "ringway, packet sockets", what, || Lwep::start(Hosts::start("dev")?, way));
            messenger(&mut lineup, "ringway, two switches", what, || {
                Lwep::start(TwoHosts::start(cores, &settings, [Some(cores.switch); 2])?, way)
            });
            messenger(&mut lineup, "tcp", what, || Sockets::tcp(Route::Cable));
            messenger(&mut lineup, "udp", what, || Sockets::udp(Route::Cable));
        }
        let name = format!("lwep-hosts{name}");
        let heading = Heading { name, title: title.into(), source, x: SIZE, y };
        done.push(session.measure("lwep-hosts", heading, lineup)?);
    }
    Ok(done)
}
