//! VPE, figures 6 and 7: round trip and rate of LWEP's messages against their size, beside bare frames of the same switch and beside the
//! kernel's sockets.

use std::io;

use ringway_traffic::Fill;

use crate::daemon::{Daemon, Settings};
use crate::messages::{Lwep, Measure, Messages, Messenger, Route, Sockets, Way};
use crate::network::{Load, Waiting};
use crate::report::{Axis, Figure, Heading, TIME};
use crate::series::RINGWAY;
use crate::session::{Lineup, Session, one_to_one, round_trip};

/// Bytes of messages. The longest fits into a frame.
pub const SIZES: [usize; 5] = [8, 64, 256, 1024, 1400];
/// Bytes of LWEP's frames before the message.
const HEADERS: usize = 48;
/// Name of the curve of frames without messages.
pub const BARE_FRAMES: &str = "bare frames";
/// Bytes of a stream that are written at once where that is not a message.
const LARGE_WRITE: usize = 64 << 10;
/// The axis of messages' sizes.
pub const SIZE: Axis = Axis { label: "message size", unit: "bytes", logarithmic: true };
/// Rates of messages.
pub const MESSAGES: Axis = Axis { label: "rate", unit: "Mmessage/s", logarithmic: true };

/// Connects two sockets.
type Connect = fn() -> io::Result<Sockets>;

/// Measures round trips.
///
/// # Errors
/// The cores cannot be used.
pub fn latency(session: &mut Session) -> io::Result<Vec<Figure>> {
    let y = Axis { label: "round trip", ..TIME };
    let heading = |name: &str, beside: &str| Heading {
        name: format!("lwep-latency{name}"),
        title: format!("Round trip of a message against its size, beside {beside}"),
        source: "VPE, figure 6",
        x: SIZE,
        y,
    };
    let mut lineup = session.lineup();
    let (cores, settings) = (session.cores, session.settings());
    for size in session.places(&SIZES) {
        lineup.add_with(BARE_FRAMES, size as f64, || {
            let daemon = Daemon::start(cores, &settings);
            Ok(round_trip(daemon, cores, frame_len(size), Waiting::Spinning)?.timing_each())
        });
        ringway(&mut lineup, RINGWAY, &settings, Way::PLAIN, (size, Measure::RoundTrip));
    }
    let frames = session.measure("lwep-latency", heading("", "bare frames"), lineup)?;
    let mut lineup = session.lineup();
    for size in session.places(&SIZES) {
        ringway(&mut lineup, RINGWAY, &settings, Way::COPIED, (size, Measure::RoundTrip));
        sockets(&mut lineup, &SOCKETS, (size, Measure::RoundTrip));
    }
    let sockets = session.measure("lwep-latency", heading("-sockets", "sockets"), lineup)?;
    Ok(vec![frames, sockets])
}

/// Measures rates.
///
/// # Errors
/// The cores cannot be used.
pub fn bandwidth(session: &mut Session) -> io::Result<Vec<Figure>> {
    let heading = |name: &str, beside: &str| Heading {
        name: format!("lwep-bandwidth{name}"),
        title: format!("Messages from one end to the other against their size, beside {beside}"),
        source: "VPE, figure 7",
        x: SIZE,
        y: MESSAGES,
    };
    let mut lineup = session.lineup();
    let settings = session.settings();
    for size in session.places(&SIZES) {
        lineup.anchor(size, frame_len(size));
        bare_frames(&mut lineup, BARE_FRAMES, &settings, size);
        ringway(&mut lineup, RINGWAY, &settings, Way::PLAIN, (size, Measure::Rate));
        ringway(&mut lineup, "ringway, copied", &settings, Way::COPIED, (size, Measure::Rate));
    }
    let frames = session.measure("lwep-bandwidth", heading("", "bare frames"), lineup)?;
    let mut lineup = session.lineup();
    for size in session.places(&SIZES) {
        lineup.anchor(size, frame_len(size));
        ringway(&mut lineup, RINGWAY, &settings, Way::COPIED, (size, Measure::Rate));
        sockets(&mut lineup, &SOCKETS, (size, Measure::Rate));
        sockets(&mut lineup, &WRITING_MANY, (size, Measure::Rate));
    }
    let sockets = session.measure("lwep-bandwidth", heading("-sockets", "sockets"), lineup)?;
    Ok(vec![frames, sockets])
}

/// Length of the frame that has a message of `size` bytes.
pub fn frame_len(size: usize) -> usize {
    (size + HEADERS).max(60)
}

/// Adds frames that `ringway gen loop` writes and sends, each as long as one with a message of `size` bytes.
pub fn bare_frames(lineup: &mut Lineup, series: &str, settings: &Settings, size: usize) {
    lineup.ringway(series, size, settings, &Load { fill: Fill::Each, ..one_to_one(frame_len(size)) });
}

/// Adds LWEP between two process ports.
pub fn ringway(lineup: &mut Lineup, series: &str, settings: &Settings, way: Way, what: (usize, Measure)) {
    let cores = lineup.cores();
    messenger(lineup, series, what, || Lwep::start(Daemon::start(cores, settings)?, way));
}

/// Peers that write each message.
pub const SOCKETS: [(&str, Connect); 4] = [
    ("tcp, linux bridge", || Sockets::tcp(Route::Bridge)),
    ("udp, linux bridge", || Sockets::udp(Route::Bridge)),
    ("unix seqpacket", Sockets::unix),
    ("tcp, loopback", Sockets::loopback),
];
/// Peers that write many messages at once.
pub const WRITING_MANY: [(&str, Connect); 2] = [
    ("tcp, linux bridge, 64 KiB writes", || Ok(Sockets::tcp(Route::Bridge)?.writing(LARGE_WRITE))),
    ("tcp, loopback, 64 KiB writes", || Ok(Sockets::loopback()?.writing(LARGE_WRITE))),
];

/// Adds sockets.
pub fn sockets(lineup: &mut Lineup, peers: &[(&str, Connect)], what: (usize, Measure)) {
    for (series, connect) in peers {
        messenger(lineup, series, what, connect);
    }
}

/// Adds sockets whose ends sleep.
pub fn sleeping_sockets(lineup: &mut Lineup, peers: &[(&str, Connect)], what: (usize, Measure)) {
    for (series, connect) in peers {
        messenger(lineup, series, what, || connect().map(Sockets::sleeping));
    }
}

/// Adds what carries messages of this size and is measured so, both ends on the generator's core.
pub fn messenger<M: Messenger + 'static>(
    lineup: &mut Lineup,
    series: &str,
    (size, measure): (usize, Measure),
    make: impl FnOnce() -> io::Result<M>,
) {
    let cores = lineup.cores();
    lineup.add_with(series, size as f64, || Ok(Messages { messenger: make()?, size, measure, cores, is_bound: true }));
}
