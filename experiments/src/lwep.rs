//! VPE, figures 6 and 7: round trip and rate of LWEP's messages against their size, beside bare frames of the same switch and the kernel's
//! sockets.

use std::io;

use ringway_traffic::Fill;

use crate::daemon::Daemon;
use crate::messages::{Lwep, Measure, Messages, Sockets};
use crate::network::{Load, Waiting};
use crate::report::{Axis, Figure, Heading, TIME};
use crate::series::RINGWAY;
use crate::session::{Lineup, Session, one_to_one, round_trip};

/// Bytes of messages. The longest fits into a frame.
const SIZES: [usize; 5] = [8, 64, 256, 1024, 1400];
/// Bytes of LWEP's frames before the message.
const HEADERS: usize = 48;

/// Connects two sockets.
type Connect = fn() -> io::Result<Sockets>;

/// Measures round trips.
///
/// # Errors
/// The cores cannot be used.
pub fn latency(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut lineup = session.lineup();
    let (cores, settings) = (session.cores, session.settings());
    for size in session.places(&SIZES) {
        let daemon = Daemon::start(cores, &settings);
        lineup.add(RINGWAY, size, round_trip(daemon, cores, frame_len(size), Waiting::Spinning));
        messengers(session, &mut lineup, size, Measure::RoundTrip);
    }
    let heading = Heading {
        name: "lwep-latency".into(),
        title: "Round trip of a message against its size".into(),
        source: "VPE, figure 6",
        x: Axis { label: "message size", unit: "bytes", logarithmic: true },
        y: Axis { label: "round trip", ..TIME },
    };
    Ok(vec![session.measure("lwep-latency", heading, lineup)?])
}

/// Measures rates.
///
/// # Errors
/// The cores cannot be used.
pub fn bandwidth(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut lineup = session.lineup();
    let (cores, settings) = (session.cores, session.settings());
    for size in session.places(&SIZES) {
        let load = Load { fill: Fill::Each, ..one_to_one(frame_len(size)) };
        lineup.anchor(size, frame_len(size));
        lineup.ringway(RINGWAY, size, &settings, &load);
        messengers(session, &mut lineup, size, Measure::Rate);
        lineup.add_with("lwep, copied", size as f64, || {
            let messenger = Lwep::start(cores, &settings, true)?;
            Ok(Messages { messenger, size, measure: Measure::Rate, cores })
        });
    }
    let heading = Heading {
        name: "lwep-bandwidth".into(),
        title: "Messages from one end to the other against their size".into(),
        source: "VPE, figure 7",
        x: Axis { label: "message size", unit: "bytes", logarithmic: true },
        y: Axis { label: "rate", unit: "Mmessage/s", logarithmic: true },
    };
    Ok(vec![session.measure("lwep-bandwidth", heading, lineup)?])
}

/// Length of the frame that has a message of `size` bytes.
fn frame_len(size: usize) -> usize {
    (size + HEADERS).max(60)
}

/// Adds LWEP and its peers.
fn messengers(session: &Session, lineup: &mut Lineup, size: usize, measure: Measure) {
    let cores = session.cores;
    let settings = session.settings();
    lineup.add_with("lwep", size as f64, || {
        let messenger = Lwep::start(cores, &settings, false)?;
        Ok(Messages { messenger, size, measure, cores })
    });
    let sockets: [(&str, Connect); 4] = [
        ("tcp, linux bridge", Sockets::bridged_tcp),
        ("udp, linux bridge", Sockets::bridged_udp),
        ("unix seqpacket", Sockets::unix),
        ("tcp, loopback", Sockets::loopback),
    ];
    for (series, make) in sockets {
        lineup.add_with(series, size as f64, || make().map(|messenger| Messages { messenger, size, measure, cores }));
    }
}
