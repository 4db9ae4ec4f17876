use super::*;
use crate::memory::{self, Fault};
use crate::{FrameSpec, Origin};

const WINDOW: Duration = Duration::from_millis(30);

fn frames() -> Frames {
    Frames::new(&FrameSpec::default()).expect("the default can be sent")
}

fn checker(level: Level) -> Checker {
    Checker::new(level, Origin::Zero)
}

/// Drains until all frames of the first station are received: a drain ends after a time, too.
fn drain(pump: &mut Pump<memory::MemoryEndpoint>) {
    ringway_testing::until("all frames have come", || {
        pump.drain(Duration::from_millis(1)).expect("a memory link never fails");
        let totals = pump.totals();
        totals[0].sent.frames == totals[1].received.frames
    });
}

#[test]
fn everything_sent_is_received_after_a_drain() {
    let (a, b) = memory::pair(300);
    let mut pump =
        Pump::new([Station::source(a, frames()), Station::sink(b, checker(Level::Full))], PumpOptions::default());
    for _ in 0..2 {
        let report = pump.run(WINDOW, &mut Watch::none()).expect("a memory link never fails");
        assert!(report.received.frames > 0 && report.ended == Ended::Duration, "{report}");
        assert!(report.received.seconds >= WINDOW.as_secs_f64());
    }
    drain(&mut pump);
    let totals = pump.totals();
    assert_eq!(totals[1].check.frames, totals[1].received.frames);
    assert_eq!(totals[1].received.bytes, totals[1].received.frames * 60);
    assert_eq!(totals[1].check.bytes, totals[1].received.bytes);
    assert!(totals[1].check.is_clean());
}

#[test]
fn both_directions_are_checked_on_their_own() {
    let (mut a, b) = memory::pair(300);
    a.set_faults(|number| if number == 5 { Fault::Drop } else { Fault::None });
    let both = |endpoint| Station::both(endpoint, frames(), checker(Level::Sequence));
    let mut pump = Pump::new([both(a), both(b)], PumpOptions::default());
    let report = pump.run(WINDOW, &mut Watch::none()).expect("a memory link never fails");
    assert!(report.stations[0].check.is_clean() && report.stations[0].received.frames > 0, "{report}");
    assert_eq!(report.stations[1].check.lost, 1, "{report}");
}

#[test]
fn buffers_filled_once_are_counted() {
    let (a, b) = memory::pair(300);
    let options = PumpOptions { fill: Fill::Once, ..PumpOptions::default() };
    let mut pump = Pump::new([Station::source(a, frames()), Station::sink(b, checker(Level::Count))], options);
    ringway_testing::until("enough frames are sent", || {
        pump.run(WINDOW, &mut Watch::none()).expect("a memory link never fails");
        pump.totals()[0].sent.frames >= 100_000
    });
    drain(&mut pump);
    let totals = pump.totals();
    assert_eq!(totals[0].sent.frames, totals[1].check.frames);
    assert_eq!(totals[1].check.bytes, totals[1].check.frames * 60);
}
