//! VPE, figures 9 and 10: LWEP's data with and without the segmentation layout, and what it costs the poller.

use std::io;

use crate::daemon::Daemon;
use crate::lwep::{BARE_FRAMES, SIZE, WRITING_MANY, bare_frames, frame_len, messenger, ringway, sockets};
use crate::messages::{LONG, LongFrames, Lwep, Measure, Way};
use crate::report::{Axis, Figure, Heading};
use crate::series::RINGWAY;
use crate::session::Session;

/// Bytes of messages, which are those of segments.
const SIZES: [usize; 3] = [64, 512, 1440];
const LONG_FRAMES: &str = "frames of 65,000 bytes";
/// LWEP's ways.
const WAYS: [(&str, Way); 3] = [
    (RINGWAY, Way { segmented: true, ..Way::PLAIN }),
    ("ringway, cut by the switch", Way { segmented: true, is_cut: true, ..Way::PLAIN }),
    ("ringway, a frame for each", Way::PLAIN),
];

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let settings = session.settings();
    let mut lineup = session.lineup();
    for size in session.places(&SIZES) {
        lineup.anchor(size, frame_len(size));
        for (series, way) in WAYS {
            ringway(&mut lineup, series, &settings, way, (size, Measure::Rate));
        }
        bare_frames(&mut lineup, BARE_FRAMES, &settings, size);
        lineup.add_with(LONG_FRAMES, size as f64, || LongFrames::start(Daemon::start(cores, &settings)?, cores));
        sockets(&mut lineup, &WRITING_MANY[..1], (size, Measure::Rate));
    }
    let heading = |name: &str, title: &str, source, y| Heading {
        name: format!("lwep-segmentation{name}"),
        title: title.into(),
        source,
        x: SIZE,
        y,
    };
    let rates = session.measure(
        "lwep-segmentation",
        heading("", "Messages", "VPE, figure 9", Axis { label: "rate", unit: "Mmessage/s", logarithmic: true }),
        lineup,
    )?;
    // Rates of messages and of frames have one unit only as rates of bytes.
    let title = "Data in messages with and without the segmentation layout";
    let y = Axis { label: "data", unit: "MB/s", logarithmic: true };
    let data = rates.otherwise(heading("", title, "VPE, figure 9", y), |sample| {
        sample.value * if sample.series == LONG_FRAMES { LONG as f64 } else { sample.x }
    });
    let mut lineup = session.lineup();
    for size in session.places(&SIZES) {
        for (series, way) in WAYS {
            messenger(&mut lineup, series, (size, Measure::PollerOfMessage), || {
                Lwep::start(Daemon::start(cores, &settings)?, way)
            });
        }
    }
    let title = "Time that the poller is busy for a message, with and without the segmentation layout";
    let y = Axis { label: "busy", unit: "ns/message", logarithmic: true };
    let busy = session.measure("lwep-segmentation", heading("-poller", title, "VPE, figure 10", y), lineup)?;
    Ok(vec![data, busy])
}
