//! Forwarding between two vhost-user ports against frame size, with our own virtio-net drivers as generator: Ringway as a learning
//! switch, Open vSwitch as one, and testpmd, which does not switch.

use std::io;

use ringway_traffic::{Packed, Ring, Split, VirtioOptions};

use crate::report::{Axis, Figure, Heading, RATE};
use crate::session::Session;
use crate::vhost::{IMIX, Load, SIZES, Switches};

/// Paper and section.
const SOURCE: &str = "VPE, section 5.1, between virtual machines";

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let mut figures = with_rings::<Split>(session, "split")?;
    figures.extend(with_rings::<Packed>(session, "packed")?);
    Ok(figures)
}

/// Measures one size after the other, in one direction and in both, and then a mix of sizes.
fn with_rings<R: Ring + Send + 'static>(session: &mut Session, rings: &str) -> io::Result<Vec<Figure>> {
    let switches = Switches::<R>::start(session, &VirtioOptions::default());
    let mut figures = Vec::new();
    for both in [false, true] {
        let (name, ways) = if both { ("both", "both ways") } else { ("one", "one way") };
        let mut lineup = session.lineup();
        for size in session.places(&SIZES) {
            lineup.anchor(size, size);
            switches.saturate(&mut lineup, size, &Load { sizes: vec![size], both, tcp: false, broadcasts: false });
        }
        let heading = Heading {
            name: format!("vhost-{rings}-{name}"),
            title: format!("Forwarding between two vhost-user ports, {rings} rings, {ways}"),
            source: SOURCE,
            x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
            y: RATE,
        };
        figures.push(session.measure("vhost-forwarding", heading, lineup)?);
    }
    let mut lineup = session.lineup();
    for both in [false, true] {
        let directions = 1 + usize::from(both);
        lineup.anchor(directions, IMIX.iter().sum::<usize>() / IMIX.len());
        switches.saturate(&mut lineup, directions, &Load { sizes: IMIX.to_vec(), both, tcp: false, broadcasts: false });
    }
    let heading = Heading {
        name: format!("vhost-{rings}-imix"),
        title: format!("Forwarding a mix of 64, 590 and 1514 bytes, 7 to 4 to 1, {rings} rings"),
        source: SOURCE,
        x: Axis { label: "directions", unit: "directions", logarithmic: false },
        y: RATE,
    };
    figures.push(session.measure("vhost-forwarding", heading, lineup)?);
    Ok(figures)
}
