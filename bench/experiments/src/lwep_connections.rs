//! The number of LWEP's connections between two ports: many by turns, and many that are idle.

use std::io;

use crate::lwep::{MESSAGES, SIZE, ringway};
use crate::messages::{Measure, Way};
use crate::report::{Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;

const SIZES: [usize; 2] = [8, 1400];
const MANY: usize = 1000;

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let settings = session.settings();
    let many = Way { connections: MANY, active: MANY, ..Way::PLAIN };
    let figures = [
        ("", "Messages on 1,000 connections by turns", many),
        ("-idle", "Messages on one connection beside 999 idle ones", Way { active: 1, ..many }),
    ];
    let mut done = Vec::new();
    for (name, title, way) in figures {
        let mut lineup = session.lineup();
        for size in SIZES {
            ringway(&mut lineup, RINGWAY, &settings, way, (size, Measure::Rate));
            ringway(&mut lineup, "one connection", &settings, Way::PLAIN, (size, Measure::Rate));
        }
        let (name, source) = (format!("lwep-connections{name}"), "VPE, section 4.7");
        let heading = Heading { name, title: title.into(), source, x: SIZE, y: MESSAGES };
        done.push(session.measure("lwep-connections", heading, lineup)?);
    }
    Ok(done)
}
