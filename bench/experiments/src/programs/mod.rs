//! Programs at the switch: a netmap sender and receiver beside the client library and beside packet sockets on veth, VALE's figures 9 and
//! 10 by them, a forwarder that swaps buffers beside one that copies, and VALE's libpcap case (section 7).
//!
//! The programs are our own, in C, written to netmap's and libpcap's interfaces (`bench/experiments/programs`). They are compiled when they are
//! measured, and `ringway exec` runs them as it runs users' programs. Source, sink and what is between them are one thread on the
//! generator's core, unless a figure says otherwise.

mod driven;
mod instructions;
mod pair;
mod source;
mod starts;
mod threads;
mod worker;

use std::io;

use ringway_traffic::Fill;

use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::Session;
use driven::Driven;
use instructions::Counted;
use pair::{LARGE, Pairs, Shared, load};
use source::{BRIDGE, FORWARDER, PAIR, STARTS};
pub(crate) use source::{Compiled, INSTRUCTIONS, SOCKETS};
use starts::Starts;

/// Curves of the same load by the Rust client library.
const CLIENT: &str = "client library";
/// Curves of the same program at packet sockets of veth devices.
const PACKET: &str = "packet sockets, veth";
const RECEIVES_ONE: &str = "ringway, receives one";
const CLIENT_RECEIVES_ONE: &str = "client library, receives one";
const COPIES: &str = "copies";
/// Curves of a program without Ringway's libraries.
const WITHOUT: &str = "without libraries";

const BATCHES: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// Batches of the sender and the receiver alike.
const BOTH_BATCHES: [usize; 6] = [1, 16, 64, 256, 512, 1024];
const LARGE_BATCHES: [usize; 3] = [64, 256, 1024];
const SIZES: [usize; 5] = [60, 252, 508, 1020, 1514];

/// Two switches, with a source at the first and a sink at the other; the program in question is between them.
const PORTS: [&str; 4] = ["bench:source", "bench:left", "beyond:right", "beyond:sink"];
const DEVICES: &[(&str, &str)] = &[("source", "left"), ("right", "sink")];
/// Batches of 256 frames whose instructions are counted.
const COUNTED_BATCHES: &str = "64";

const FRAME_SIZE: Axis = Axis { label: "frame size", unit: "bytes", logarithmic: false };

/// Measures a sender and a receiver against batch size.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let pair = Compiled::of(&PAIR);
    let x = Axis { label: "batch of sender and receiver", unit: "frames", logarithmic: true };
    let mut figures = Vec::new();
    for (name, how, places, fill, shared) in [
        ("programs", "buffers filled once", &BOTH_BATCHES[..], Fill::Once, Shared::OneThread),
        ("programs-written", "every frame written", &LARGE_BATCHES, Fill::Each, Shared::OneThread),
        (
            "programs-threads",
            "two threads that sleep, every frame written",
            &LARGE_BATCHES,
            Fill::Each,
            Shared::TwoThreads,
        ),
    ] {
        let mut lineup = session.lineup();
        let pairs = Pairs::new(session, &pair, shared);
        for batch in session.places(places) {
            lineup.anchor(batch, 60);
            let load = load((batch, batch), fill);
            pairs.netmap(&mut lineup, RINGWAY, batch, &load);
            pairs.client(&mut lineup, CLIENT, batch, &load);
            pairs.packet(&mut lineup, PACKET, batch, &load);
        }
        let title = format!("A netmap sender and receiver, frames of 60 bytes, {how}");
        let heading = Heading { name: name.into(), title, source: "VALE, section 3.1", x, y: RATE };
        figures.push(session.measure("programs", heading, lineup)?);
    }
    figures.push(start(session)?);
    Ok(figures)
}

/// Measures how long a program takes that has the libraries of `ringway exec` and uses no port.
fn start(session: &mut Session) -> io::Result<Figure> {
    let starts = Compiled::of(&STARTS);
    let (cores, settings) = (session.cores, session.settings());
    let mut lineup = session.lineup();
    lineup.add_with(RINGWAY, 1.0, || Starts::by_exec(cores, &settings, starts.path()?));
    lineup.add_with(WITHOUT, 1.0, || Starts::plain(cores, starts.path()?));
    let heading = Heading {
        name: "programs-start".into(),
        title: "Start and end of a program that uses no port, with the libraries of ringway exec".into(),
        source: "VALE, section 3.1",
        x: Axis { label: "programs at a time", unit: "", logarithmic: false },
        y: Axis { label: "time", unit: "us", logarithmic: false },
    };
    session.measure("programs", heading, lineup)
}

/// Measures VALE's figures 9 and 10 with netmap programs.
///
/// # Errors
/// The cores cannot be used.
pub fn batches(session: &mut Session) -> io::Result<Vec<Figure>> {
    let pair = Compiled::of(&PAIR);
    let heading = |name: &str, of: &str, source| Heading {
        name: name.into(),
        title: format!("Rate of netmap programs against batch size of the {of}, frames of 60 bytes"),
        source,
        x: Axis { label: "batch", unit: "frames", logarithmic: true },
        y: RATE,
    };
    let pairs = Pairs::new(session, &pair, Shared::OneThread);
    let (mut by_receiver, mut by_sender) = (session.lineup(), session.lineup());
    for batch in session.places(&BATCHES) {
        by_receiver.anchor(batch, 60);
        let receives = load((LARGE, batch), Fill::Once);
        pairs.netmap(&mut by_receiver, RINGWAY, batch, &receives);
        pairs.client(&mut by_receiver, CLIENT, batch, &receives);
        by_sender.anchor(batch, 60);
        let (large, single) = (load((batch, LARGE), Fill::Once), load((batch, 1), Fill::Once));
        pairs.netmap(&mut by_sender, RINGWAY, batch, &large);
        pairs.client(&mut by_sender, CLIENT, batch, &large);
        pairs.netmap(&mut by_sender, RECEIVES_ONE, batch, &single);
        pairs.client(&mut by_sender, CLIENT_RECEIVES_ONE, batch, &single);
    }
    Ok(vec![
        session.measure("programs-batch", heading("programs-fig09", "receiver", "VALE, figure 9"), by_receiver)?,
        session.measure("programs-batch", heading("programs-fig10", "sender", "VALE, figure 10"), by_sender)?,
    ])
}

/// Measures a forwarder between two ports that swaps buffers, and one that copies.
///
/// # Errors
/// The cores cannot be used.
pub fn forwarder(session: &mut Session) -> io::Result<Vec<Figure>> {
    let forwarder = Compiled::of(&FORWARDER);
    let heading = |name: &str, title: &str, y| Heading {
        name: name.into(),
        title: format!("{title} of a netmap program that forwards frames between two ports (swaps buffers: ringway)"),
        source: "VALE, section 3.1",
        x: FRAME_SIZE,
        y,
    };
    let (cores, settings) = (session.cores, session.settings());
    let (mut rates, mut instructions) = (session.lineup(), session.lineup());
    for size in session.places(&SIZES) {
        rates.anchor(size, size);
        for (series, way) in [(RINGWAY, "swap"), (COPIES, "copy")] {
            let size_word = size.to_string();
            let words = [&[way][..], &PORTS, &[&size_word]].concat();
            rates.add_with(series, size as f64, || Driven::on_ports(cores, &settings, forwarder.path()?, &words));
            let words = [&words[..], &["count", COUNTED_BATCHES]].concat();
            let count = || Counted::new(cores, &settings, "forward", forwarder.path()?, &words);
            instructions.add_with(series, size as f64, count);
        }
    }
    let y = Axis { label: "instructions", unit: "per frame", logarithmic: true };
    Ok(vec![
        session.measure("programs-forwarder", heading("forwarder", "Rate", RATE), rates)?,
        session.measure(
            "programs-forwarder",
            heading("forwarder-instructions", "Own instructions", y),
            instructions,
        )?,
    ])
}

/// Measures a bridge of two devices by libpcap.
///
/// # Errors
/// The cores cannot be used.
pub fn bridge(session: &mut Session) -> io::Result<Vec<Figure>> {
    let bridge = Compiled::of(&BRIDGE);
    let (cores, settings) = (session.cores, session.settings());
    let mut figures = Vec::new();
    for (name, title, ways) in
        [("bridge", "frames one way", "one"), ("bridge-both", "frames both ways, all together", "both")]
    {
        let mut lineup = session.lineup();
        for size in session.places(&SIZES) {
            lineup.anchor(size, size);
            let size_word = size.to_string();
            let words = [&["netmap"][..], &PORTS, &[&size_word, ways]].concat();
            lineup.add_with(RINGWAY, size as f64, || Driven::on_ports(cores, &settings, bridge.path()?, &words));
            let words = ["packet", "source", "left", "right", "sink", &size_word, ways];
            lineup.add_with(PACKET, size as f64, || Driven::on_veth(cores, DEVICES, bridge.path()?, &words));
        }
        let heading = Heading {
            name: name.into(),
            title: format!("A libpcap program that bridges two devices, {title}"),
            source: "VALE, section 7",
            x: FRAME_SIZE,
            y: RATE,
        };
        figures.push(session.measure("programs-bridge", heading, lineup)?);
    }
    Ok(figures)
}
