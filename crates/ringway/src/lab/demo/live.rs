//! The display of rates during a part: a table in place on a terminal, a line a second elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use ringway_api::client::Client;
use ringway_api::types::{PortStatus, Status, Traffic};
use ringway_commands::out::{Scaled, Table};

use super::outcome::{Outcome, Stop};
use super::say::say;

/// Interval at which the display looks for Ctrl-C and the end of the part.
const LOOK: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);

/// The display.
#[derive(Debug)]
pub struct Live {
    client: Client,
    in_place: bool,
    start: Instant,
    /// Lines on the terminal that the next table replaces.
    drawn: usize,
    before: Option<(Instant, Status)>,
}

/// Rates of one port.
struct Rates {
    name: String,
    kind: String,
    input: (f64, f64),
    output: (f64, f64),
    drops: f64,
}

impl Live {
    /// A display of the switch's ports.
    pub fn new(client: Client) -> Live {
        Live { client, in_place: io::stdout().is_terminal(), start: Instant::now(), drawn: 0, before: None }
    }

    /// Shows `title`, and then rates until `ended` returns true or `longest` has passed. Returns false in the latter case.
    pub fn watch(
        &mut self,
        title: &str,
        longest: Duration,
        stop: &Stop,
        mut ended: impl FnMut() -> bool,
    ) -> Outcome<bool> {
        say(&format!("\n{title}\n"));
        self.before = self.client.status().ok().map(|status| (Instant::now(), status));
        let start = Instant::now();
        // The first table on a terminal comes early.
        let mut next = start + if self.in_place { SECOND / 4 } else { SECOND };
        let ended = loop {
            if let Err(interrupted) = stop.check() {
                self.erase();
                return Err(interrupted);
            }
            if ended() {
                break true;
            }
            let now = Instant::now();
            if now - start >= longest {
                break false;
            }
            if now >= next {
                next += SECOND;
                self.show();
            }
            std::thread::sleep(LOOK);
        };
        self.erase();
        Ok(ended)
    }

    /// Waits, without requests to the switch.
    pub fn pause(&self, time: Duration, stop: &Stop) -> Outcome<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            stop.check()?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn show(&mut self) {
        let Ok(status) = self.client.status() else { return };
        let now = Instant::now();
        if let Some((then, before)) = &self.before {
            let seconds = (now - *then).as_secs_f64();
            let rates: Vec<Rates> = status.ports.iter().map(|port| Rates::new(port, before, seconds)).collect();
            let busy = busy(&status, before);
            if self.in_place {
                self.draw(&table(&rates, busy));
            } else {
                say(&line(self.start.elapsed(), &rates, busy));
            }
        }
        self.before = Some((now, status));
    }

    fn draw(&mut self, text: &str) {
        self.erase();
        self.drawn = text.lines().count();
        // Lines must not wrap on a narrow terminal, as `erase` counts them.
        say(&format!("\x1b[?7l{text}\x1b[?7h"));
    }

    fn erase(&mut self) {
        if self.drawn > 0 {
            say(&format!("\x1b[{}A\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }
}

impl Rates {
    fn new(port: &PortStatus, before: &Status, seconds: f64) -> Rates {
        let same = |other: &&PortStatus| other.name == port.name && other.switch == port.switch;
        let (input, output, drops) = match before.ports.iter().find(same) {
            Some(before) => (before.input, before.output, before.drops.values().sum()),
            None => (Traffic::default(), Traffic::default(), 0),
        };
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let both =
            |now: Traffic, before: Traffic| (rate(now.frames, before.frames), 8.0 * rate(now.bytes, before.bytes));
        Rates {
            name: port.name.clone(),
            kind: port.kind.clone(),
            input: both(port.input, input),
            output: both(port.output, output),
            drops: rate(port.drops.values().sum(), drops),
        }
    }
}

/// Share of the time that the pollers worked, 0 to 1.
fn busy(now: &Status, before: &Status) -> f64 {
    let sum = |status: &Status| {
        status
            .pollers
            .iter()
            .fold((0.0, 0.0), |(busy, all), poller| (busy + poller.busy, all + poller.busy + poller.free))
    };
    let ((busy, all), (busy_before, all_before)) = (sum(now), sum(before));
    if all > all_before { ((busy - busy_before) / (all - all_before)).clamp(0.0, 1.0) } else { 0.0 }
}

fn table(rates: &[Rates], busy: f64) -> String {
    let mut table = Table::new(&["PORT", "KIND", "IN pps", "IN bit/s", "OUT pps", "OUT bit/s", "DROPS/s"]);
    for port in rates {
        let [a, b, c, d, e] =
            [port.input.0, port.input.1, port.output.0, port.output.1, port.drops].map(|rate| Scaled(rate).to_string());
        table.row(vec![port.name.clone(), port.kind.clone(), a, b, c, d, e]);
    }
    let indented: String = table.text().lines().map(|line| format!("  {line}\n")).collect();
    format!("{indented}  poller {:.0} % busy\n", busy * 100.0)
}

fn line(elapsed: Duration, rates: &[Rates], busy: f64) -> String {
    let mut parts = vec![format!("{:4.0} s", elapsed.as_secs_f64())];
    for port in rates.iter().filter(|port| port.input.0 > 0.0) {
        let (frames, bits) = port.input;
        parts.push(format!("{} sends {}pps, {}bit/s", port.name, Scaled(frames), Scaled(bits)));
    }
    let drops: f64 = rates.iter().map(|port| port.drops).sum();
    if drops > 0.0 {
        parts.push(format!("dropped {}/s", Scaled(drops)));
    }
    parts.push(format!("poller {:.0} % busy", busy * 100.0));
    parts.join("; ") + "\n"
}
